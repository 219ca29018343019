//! Work on large bodies, off the threads that serve.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::share;

/// What is larger is worked on elsewhere, in bytes: some 100 µs of decoding.
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// The work was given up, as the runtime ends.
#[derive(Debug, thiserror::Error)]
#[error("the server is shutting down")]
pub(crate) struct ShuttingDown;

/// Runs work on so many bytes: here, or on a thread for such work when they are many. At most as many large ones at
/// once as there are permits, and one of each rollout.
pub(crate) async fn offload<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ShuttingDown> {
    if bytes <= LARGE_BYTES {
        return Ok(work());
    }
    let turn = share::turn(bytes).await;
    let permit = permits.clone().acquire_owned().await.map_err(|_closed| ShuttingDown)?;
    // The work goes on where the request is dropped, and so does its permit.
    let permitted = move || {
        let done = work();
        drop((permit, turn));
        done
    };
    spawn_blocking(permitted).await.map_err(|_ended| ShuttingDown)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::share::{Share, Shares};

    #[tokio::test]
    async fn a_rollout_waits_for_one_piece_of_work_of_another_and_not_for_all() {
        let (permits, done) = (Arc::new(Semaphore::new(1)), Arc::new(Mutex::new(Vec::new())));
        let (one, other) = (Arc::new(Shares::default()), Arc::new(Shares::default()));
        let work = |shares: &Arc<Shares>, name: &'static str, wait: Option<std::sync::mpsc::Receiver<()>>| {
            let done = done.clone();
            let work = move || {
                if let Some(wait) = wait {
                    wait.recv().unwrap();
                }
                done.lock().unwrap().push(name);
            };
            let permits = permits.clone();
            Share::of(shares).during(async move { offload(&permits, usize::MAX, work).await.unwrap() })
        };
        let (release, wait) = channel();
        // Each waits for its turn before the next comes.
        tokio::join!(
            work(&one, "one 1", Some(wait)),
            work(&one, "one 2", None),
            work(&one, "one 3", None),
            work(&other, "other 1", None),
            async { release.send(()).unwrap() },
        );
        assert_eq!(done.lock().unwrap()[..], ["one 1", "other 1", "one 2", "one 3"]);
    }
}
