//! What a request may take of what all share: turns at large work, and memory for values larger than what was sent.
//!
//! A rollout does one piece of large work at a time, so that others wait for one of its pieces and not for all. A few of its
//! requests at once hold large results, from the moment at which a result becomes large until its last byte is sent; and
//! a few hold arguments that are much larger than their body. Each request takes at most one permit of each kind, in this
//! order, so that none waits for another in a circle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rlm_core::pickle::Value;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use crate::memory;

/// Values that take no more than this are never waited for, in bytes.
pub(crate) const FREE_BYTES: usize = 1 << 20;

/// Requests of a rollout that hold a large result at once.
const LARGE_RESULTS: usize = 4;

/// Requests of a rollout that hold much larger arguments than they sent, at once.
const EXPANSIONS: usize = 2;

/// Arguments this many times as large as their body are much larger.
const MUCH: usize = 4;

tokio::task_local! {
    static SHARE: Arc<Share>;
}

/// The shares of a rollout.
#[derive(Debug)]
pub(crate) struct Shares {
    turn: Arc<Semaphore>,
    results: Arc<Semaphore>,
    expansions: Arc<Semaphore>,
}

impl Default for Shares {
    fn default() -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        Self { turn: permits(1), results: permits(LARGE_RESULTS), expansions: permits(EXPANSIONS) }
    }
}

/// The share of one request. What it holds it holds until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    rollout: Arc<Shares>,
    result: OnceCell<OwnedSemaphorePermit>,
    expansion: OnceCell<OwnedSemaphorePermit>,
    /// Whether it took more memory than is worth no word.
    is_large: AtomicBool,
}

impl Share {
    pub(crate) fn of(rollout: &Arc<Shares>) -> Arc<Self> {
        let (result, expansion) = (OnceCell::new(), OnceCell::new());
        Arc::new(Self { rollout: rollout.clone(), result, expansion, is_large: AtomicBool::new(false) })
    }

    /// Runs the work of the request, which finds its share by the functions below.
    pub(crate) async fn during<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        SHARE.scope(self, work).await
    }
}

/// The last that is left of a request is gone, also its response.
impl Drop for Share {
    fn drop(&mut self) {
        if *self.is_large.get_mut()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(memory::give_back);
        }
    }
}

/// The turn of the request's rollout at work on so many bytes; none outside of requests.
pub(crate) async fn turn(bytes: usize) -> Option<OwnedSemaphorePermit> {
    let share = SHARE.try_with(Arc::clone).ok()?;
    if bytes > FREE_BYTES {
        share.is_large.store(true, Relaxed);
    }
    share.rollout.turn.clone().acquire_owned().await.ok()
}

/// Waits until the request may hold a result of so many bytes.
pub(crate) async fn hold_result(bytes: usize) {
    if bytes > FREE_BYTES
        && let Ok(share) = SHARE.try_with(Arc::clone)
    {
        hold(&share.result, &share.rollout.results).await;
    }
}

/// Whether the request may hold much larger arguments than it sent without waiting for it.
pub(crate) fn may_hold_expanded() -> bool {
    SHARE
        .try_with(|share| {
            share.expansion.initialized()
                || match share.rollout.expansions.clone().try_acquire_owned() {
                    Ok(permit) => share.expansion.set(permit).is_ok(),
                    Err(_none_free) => false,
                }
        })
        .unwrap_or(true)
}

/// Waits until the request may hold much larger arguments than it sent.
pub(crate) async fn hold_expanded() {
    if let Ok(share) = SHARE.try_with(Arc::clone) {
        hold(&share.expansion, &share.rollout.expansions).await;
    }
}

/// The largest size of arguments, in bytes, that is not much more than what was sent.
pub(crate) fn expansion(sent: usize) -> usize {
    sent.saturating_mul(MUCH).max(FREE_BYTES)
}

async fn hold(held: &OnceCell<OwnedSemaphorePermit>, permits: &Arc<Semaphore>) {
    let permit = async || permits.clone().acquire_owned().await;
    held.get_or_try_init(permit).await.expect("nobody closes the semaphore");
}

/// About how many bytes values take when they are written, where shared ones are written each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    most: usize,
    left: usize,
}

impl Size {
    /// Of these. What is over `most` is not looked at.
    pub(crate) fn of<'a>(values: impl IntoIterator<Item = &'a Value>, most: usize) -> Self {
        let most = most.saturating_add(1);
        let mut size = Self { most, left: most };
        size.add_all(values);
        size
    }

    /// At most one more than `most`.
    pub(crate) fn bytes(&self) -> usize {
        self.most - self.left
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
            _ => 0,
        });
        self.left = self.left.saturating_sub(size_of::<Value>());
        match value {
            Value::Tuple(items) | Value::List(items) => self.add_all(items.iter()),
            Value::Set(set) | Value::FrozenSet(set) => self.add_all(set.iter()),
            Value::Dict(dict) => self.add_all(dict.iter().flat_map(|(key, value)| [key, value])),
            _ => {}
        }
    }
}
