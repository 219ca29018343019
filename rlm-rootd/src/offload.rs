//! Work on large values, on threads other than those that serve.

use std::sync::Arc;

use rlm_core::pickle::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// Larger work runs on a thread of its own, in bytes: some 100 µs of decoding.
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// The runtime ended before the work did.
#[derive(Debug, thiserror::Error)]
#[error("the server is shutting down")]
pub(crate) struct ShuttingDown;

/// Threads for large work: one per core, since each piece takes a multiple of its bytes in memory.
#[derive(Clone, Debug)]
pub(crate) struct LargeWork(Arc<Semaphore>);

impl LargeWork {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new(cores)))
    }

    /// Runs work on this many bytes: here, or on another thread where they are many. Once begun, work goes on to its end,
    /// even if this future is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ShuttingDown> {
        if bytes <= LARGE_BYTES { Ok(work()) } else { self.run_large(None, work).await }
    }

    /// Like [`Self::run`], for a rollout: its large work is done one piece at a time, so that another rollout waits for one
    /// piece of it and not for all.
    pub(crate) async fn run_in_turn<T: Send + 'static>(
        &self,
        turn: &Arc<Semaphore>,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ShuttingDown> {
        if bytes <= LARGE_BYTES {
            return Ok(work());
        }
        let turn = turn.clone().acquire_owned().await.map_err(|_closed| ShuttingDown)?;
        self.run_large(Some(turn), work).await
    }

    async fn run_large<T: Send + 'static>(
        &self,
        turn: Option<OwnedSemaphorePermit>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ShuttingDown> {
        let permit = self.0.clone().acquire_owned().await.map_err(|_closed| ShuttingDown)?;
        let permitted = move || {
            let done = work();
            drop((permit, turn));
            done
        };
        spawn_blocking(permitted).await.map_err(|_cancelled| ShuttingDown)
    }
}

/// Approximate bytes of these values, in memory or written. Counting stops above `enough`.
pub(crate) fn value_bytes<'a>(values: impl IntoIterator<Item = &'a Value>, enough: usize) -> usize {
    sum(&mut values.into_iter(), enough)
}

fn sum(values: &mut dyn Iterator<Item = &Value>, enough: usize) -> usize {
    let mut bytes = 0;
    for value in values {
        bytes += size_of::<Value>();
        bytes += match value {
            Value::Str(text) => text.len(),
            Value::Bytes(bytes) | Value::ByteArray(bytes) => bytes.len(),
            Value::Tuple(items) | Value::List(items) => sum(&mut items.iter(), enough),
            Value::Set(set) | Value::FrozenSet(set) => sum(&mut set.iter(), enough),
            Value::Dict(dict) => sum(&mut dict.iter().flat_map(|(key, value)| [key, value]), enough),
            _ => 0,
        };
        if bytes > enough {
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    #[tokio::test]
    async fn a_rollout_waits_for_one_piece_of_work_of_another_and_not_for_all() {
        let (large_work, done) = (LargeWork(Arc::new(Semaphore::new(1))), Arc::new(Mutex::new(Vec::new())));
        let [one, other] = [(); 2].map(|()| Arc::new(Semaphore::new(1)));
        let work = |turn: &Arc<Semaphore>, name: &'static str, wait: Option<Receiver<()>>| {
            let (large_work, turn, done) = (large_work.clone(), turn.clone(), done.clone());
            let work = move || {
                if let Some(wait) = wait {
                    wait.recv().unwrap();
                }
                done.lock().unwrap().push(name);
            };
            async move { large_work.run_in_turn(&turn, usize::MAX, work).await.unwrap() }
        };
        let (release, wait) = channel();
        // Each future waits for its turn before the next one comes.
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
