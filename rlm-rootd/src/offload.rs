//! Work on large bodies, off the threads that serve.

use std::sync::Arc;

use rlm_core::pickle::Value;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// What is larger is worked on elsewhere, in bytes: some 100 µs of decoding.
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// The work was given up, as the runtime ends.
#[derive(Debug, thiserror::Error)]
#[error("the server is shutting down")]
pub(crate) struct ShuttingDown;

/// Runs work on so many bytes: here, or on a thread for such work when they are many. At most as many large ones at
/// once as there are permits.
pub(crate) async fn offload<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ShuttingDown> {
    if bytes <= LARGE_BYTES {
        return Ok(work());
    }
    let permit = permits.clone().acquire_owned().await.map_err(|_closed| ShuttingDown)?;
    // The work goes on where the request is dropped, and so does its permit.
    let permitted = move || {
        let done = work();
        drop(permit);
        done
    };
    spawn_blocking(permitted).await.map_err(|_ended| ShuttingDown)
}

/// About how many bytes values take. What is over [`LARGE_BYTES`] is not looked at.
#[derive(Debug)]
pub(crate) struct Size {
    left: usize,
}

impl Size {
    /// Of these.
    pub(crate) fn of<'a>(values: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut size = Self { left: LARGE_BYTES + 1 };
        size.add_all(values);
        size
    }

    /// At most one more than [`LARGE_BYTES`].
    pub(crate) fn bytes(&self) -> usize {
        LARGE_BYTES + 1 - self.left
    }

    fn add_all<'a>(&mut self, values: impl IntoIterator<Item = &'a Value>) {
        for value in values {
            self.add(value);
            if self.left == 0 {
                return;
            }
        }
    }

    fn add(&mut self, value: &Value) {
        self.left = self.left.saturating_sub(match value {
            Value::Str(text) => text.len(),
            Value::Bytes(bytes) | Value::ByteArray(bytes) => bytes.len(),
            _ => size_of::<Value>(),
        });
        match value {
            Value::Tuple(items) | Value::List(items) => self.add_all(items.iter()),
            Value::Set(set) | Value::FrozenSet(set) => self.add_all(set.iter()),
            Value::Dict(dict) => self.add_all(dict.iter().flat_map(|(key, value)| [key, value])),
            _ => {}
        }
    }
}
