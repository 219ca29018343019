//! Results that were paid for. One that does not reach the code that asked for it, because its call was stopped, its interpreter
//! has crashed or the connection broke, is kept: the same question takes it, once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Time that a new call waits for another one that has an answer to its question and has not ended: code that stops a call
/// and asks again at once is faster than the news of the stop.
const MOMENT: Duration = Duration::from_millis(250);

/// The results that nobody has got, by their questions. Clones share them.
#[derive(Debug)]
pub struct Paid<V>(Arc<Inner<V>>);

#[derive(Debug)]
struct Inner<V> {
    questions: Mutex<HashMap<Arc<str>, Results<V>>>,
    /// Notified when a result is kept, or its call has ended.
    changed: Notify,
    calls: AtomicU64,
}

/// The results of a question.
#[derive(Debug)]
struct Results<V> {
    kept: VecDeque<V>,
    /// The running calls that have the other results, once for each result.
    calls: Vec<u64>,
}

impl<V> Default for Results<V> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), calls: Vec::new() }
    }
}

impl<V> Results<V> {
    /// A result of this call is not on its way any more.
    fn forget(&mut self, call: u64) {
        if let Some(at) = self.calls.iter().position(|other| *other == call) {
            self.calls.swap_remove(at);
        }
    }
}

impl<V> Clone for Paid<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V> Default for Paid<V> {
    fn default() -> Self {
        Self(Arc::new(Inner {
            questions: Mutex::default(),
            changed: Notify::new(),
            calls: AtomicU64::new(0),
        }))
    }
}

impl<V> Paid<V> {
    /// A place for the results of one call, until they have reached the code.
    #[must_use]
    pub fn on_the_way(&self) -> OnTheWay<V> {
        OnTheWay {
            paid: self.clone(),
            call: self.0.calls.fetch_add(1, Relaxed),
            patience: Instant::now() + MOMENT,
            results: Vec::new(),
        }
    }

    fn questions(&self) -> MutexGuard<'_, HashMap<Arc<str>, Results<V>>> {
        self.0.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The results of a call on their way to the code. If this is dropped, they are kept.
#[derive(Debug)]
pub struct OnTheWay<V> {
    paid: Paid<V>,
    call: u64,
    /// Time until which the call waits for others.
    patience: Instant,
    results: Vec<(Arc<str>, V)>,
}

impl<V> OnTheWay<V> {
    /// A place for further results of the same call.
    #[must_use]
    pub fn of_the_same_call(&self) -> Self {
        Self { paid: self.paid.clone(), results: Vec::new(), ..*self }
    }

    /// Adds a result.
    pub fn add(&mut self, question: &str, result: V) {
        let question = Arc::<str>::from(question);
        self.paid.questions().entry(question.clone()).or_default().calls.push(self.call);
        self.results.push((question, result));
    }

    /// Joins other results of the same call to these.
    pub fn append(&mut self, mut other: Self) {
        self.results.append(&mut other.results);
    }
}

impl<V: Clone> OnTheWay<V> {
    /// Takes the oldest result of a question that nobody has got, and adds it.
    pub async fn take(&mut self, question: &str) -> Option<V> {
        let paid = self.paid.clone();
        let next = async {
            loop {
                let changed = paid.0.changed.notified();
                match paid.questions().get_mut(question) {
                    Some(results) if !results.kept.is_empty() => break results.kept.pop_front(),
                    Some(results) if results.calls.iter().any(|call| *call != self.call) => {}
                    _ => break None,
                }
                changed.await;
            }
        };
        let Ok(taken) = timeout_at(self.patience, next).await else {
            // The other call goes on: nobody else waits for it.
            if let Some(results) = paid.questions().get_mut(question) {
                results.calls.retain(|call| *call == self.call);
            }
            return None;
        };
        let taken = taken?;
        self.add(question, taken.clone());
        Some(taken)
    }
}

impl<V: Send + 'static> OnTheWay<V> {
    /// A receipt for all results. The call has ended.
    #[must_use]
    pub fn into_receipt(self) -> Receipt {
        let mut questions = self.paid.questions();
        for (question, _) in &self.results {
            if let Some(results) = questions.get_mut(question) {
                results.forget(self.call);
                if results.kept.is_empty() && results.calls.is_empty() {
                    questions.remove(question);
                }
            }
        }
        drop(questions);
        self.paid.0.changed.notify_waiters();
        Receipt(Arc::new(Mutex::new(Some(Box::new(self)))))
    }
}

impl<V> Drop for OnTheWay<V> {
    fn drop(&mut self) {
        if self.results.is_empty() {
            return;
        }
        let mut questions = self.paid.questions();
        for (question, result) in self.results.drain(..) {
            let results = questions.entry(question).or_default();
            results.forget(self.call);
            results.kept.push_back(result);
        }
        drop(questions);
        self.paid.0.changed.notify_waiters();
    }
}

/// A receipt, which goes with a reply. Results have not reached the code if their receipt is dropped unsigned. Clones are one.
#[derive(Clone)]
pub struct Receipt(Arc<Mutex<Option<Box<dyn Delivery>>>>);

trait Delivery: Send {
    fn delivered(self: Box<Self>);
}

impl<V: Send> Delivery for OnTheWay<V> {
    fn delivered(mut self: Box<Self>) {
        self.results.clear();
    }
}

impl Receipt {
    /// The results have reached the code.
    pub fn sign(&self) {
        let way = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(way) = way {
            way.delivered();
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Receipt").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn send(paid: &Paid<u32>, results: &[(&str, u32)]) -> OnTheWay<u32> {
        let mut way = paid.on_the_way();
        results.iter().for_each(|(question, result)| way.add(question, *result));
        way
    }

    /// Takes a result, and has it delivered.
    async fn take(paid: &Paid<u32>, question: &str) -> Option<u32> {
        let mut way = paid.on_the_way();
        let taken = way.take(question).await;
        way.into_receipt().sign();
        taken
    }

    #[tokio::test]
    async fn a_result_that_is_lost_on_its_way_is_there_once_more() {
        let paid = Paid::default();
        drop(send(&paid, &[("a", 1), ("b", 2), ("a", 3)]));
        for (question, expected) in [("a", Some(1)), ("a", Some(3)), ("a", None), ("b", Some(2))] {
            assert_eq!(take(&paid, question).await, expected);
        }
        let receipt = send(&paid, &[("a", 4)]).into_receipt();
        let copy = receipt.clone();
        drop(receipt);
        copy.sign();
        drop(copy);
        assert_eq!(take(&paid, "a").await, None, "it was delivered");
        drop(send(&paid, &[("a", 5)]).into_receipt());
        assert_eq!(take(&paid, "a").await, Some(5));
        assert!(paid.questions().is_empty());
    }

    #[tokio::test]
    async fn a_call_waits_a_moment_for_the_end_of_one_that_has_its_answer() {
        let paid = Paid::default();
        let lost = send(&paid, &[("a", 1)]);
        let (taken, ()) = tokio::join!(take(&paid, "a"), async { drop(lost) });
        assert_eq!(taken, Some(1));
        let delivered = send(&paid, &[("a", 2)]);
        let (taken, ()) = tokio::join!(take(&paid, "a"), async { delivered.into_receipt().sign() });
        assert_eq!(taken, None);
        let runs = send(&paid, &[("a", 3), ("b", 4)]);
        let (began, mut call) = (Instant::now(), paid.on_the_way());
        assert_eq!((call.take("a").await, call.take("b").await), (None, None));
        assert!(began.elapsed() >= MOMENT);
        let mut other = paid.on_the_way();
        assert_eq!(other.take("a").now_or_never(), Some(None), "nobody waits for the same call again");
        drop(runs);
        let mut own = send(&paid, &[("c", 5)]);
        assert_eq!(own.take("c").now_or_never(), Some(None), "its own answer is no news");
    }
}
