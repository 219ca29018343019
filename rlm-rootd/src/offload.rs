//! Work on large values, on threads other than those that serve.

use std::sync::Arc;

use rlm_core::pickle::Value;
use tokio::sync::Semaphore;
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
        if bytes <= LARGE_BYTES {
            return Ok(work());
        }
        let permit = self.0.clone().acquire_owned().await.map_err(|_closed| ShuttingDown)?;
        let permitted = move || {
            let done = work();
            drop(permit);
            done
        };
        spawn_blocking(permitted).await.map_err(|_cancelled| ShuttingDown)
    }
}

/// About how many bytes these values take when they are written. Counting stops above [`LARGE_BYTES`].
pub(crate) fn written_bytes<'a>(values: impl IntoIterator<Item = &'a Value>) -> usize {
    sum(&mut values.into_iter())
}

fn sum(values: &mut dyn Iterator<Item = &Value>) -> usize {
    let mut bytes = 0;
    for value in values {
        bytes += size_of::<Value>();
        bytes += match value {
            Value::Str(text) => text.len(),
            Value::Bytes(bytes) | Value::ByteArray(bytes) => bytes.len(),
            Value::Tuple(items) | Value::List(items) => sum(&mut items.iter()),
            Value::Set(set) | Value::FrozenSet(set) => sum(&mut set.iter()),
            Value::Dict(dict) => sum(&mut dict.iter().flat_map(|(key, value)| [key, value])),
            _ => 0,
        };
        if bytes > LARGE_BYTES {
            break;
        }
    }
    bytes
}
