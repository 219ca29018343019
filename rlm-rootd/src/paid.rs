//! Results that were paid for. One that does not reach the code that asked for it, because its call was stopped, its interpreter
//! has crashed or the connection broke, is kept: the same question takes it, once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The results that nobody has got, by their questions. Clones are the same.
#[derive(Debug)]
pub struct Paid<V>(Arc<Mutex<HashMap<String, VecDeque<V>>>>);

impl<V> Clone for Paid<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V> Default for Paid<V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<V> Paid<V> {
    /// Takes the oldest result of a question.
    #[must_use]
    pub fn take(&self, question: &str) -> Option<V> {
        let mut results = self.results();
        let of_question = results.get_mut(question)?;
        let taken = of_question.pop_front();
        if of_question.is_empty() {
            results.remove(question);
        }
        taken
    }

    /// For the results of one call, until they have reached the code.
    #[must_use]
    pub fn on_the_way(&self) -> OnTheWay<V> {
        OnTheWay { paid: self.clone(), results: Vec::new() }
    }

    fn results(&self) -> MutexGuard<'_, HashMap<String, VecDeque<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The results of a call on their way to the code. Where this is dropped, they are kept.
#[derive(Debug)]
pub struct OnTheWay<V> {
    paid: Paid<V>,
    results: Vec<(String, V)>,
}

impl<V> OnTheWay<V> {
    /// One more.
    pub fn add(&mut self, question: impl Into<String>, result: V) {
        self.results.push((question.into(), result));
    }

    /// Those of another call go with these.
    pub fn append(&mut self, mut other: Self) {
        self.results.append(&mut other.results);
    }
}

impl<V: Send + 'static> OnTheWay<V> {
    /// A receipt for all of them.
    #[must_use]
    pub fn into_receipt(self) -> Receipt {
        Receipt(Arc::new(Mutex::new(Some(Box::new(self)))))
    }
}

impl<V> Drop for OnTheWay<V> {
    fn drop(&mut self) {
        if self.results.is_empty() {
            return;
        }
        let mut kept = self.paid.results();
        for (question, result) in self.results.drain(..) {
            kept.entry(question).or_default().push_back(result);
        }
    }
}

/// Goes with a reply. Results whose receipts are dropped before they are signed have not reached the code. Clones are the same one.
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
    use super::*;

    #[test]
    fn a_result_that_is_lost_on_its_way_is_there_once_more() {
        let paid = Paid::default();
        let send = |results: &[(&str, u32)]| {
            let mut way = paid.on_the_way();
            results.iter().for_each(|(question, result)| way.add(*question, *result));
            way
        };
        drop(send(&[("a", 1), ("b", 2), ("a", 3)]));
        assert_eq!(
            ["a", "a", "a", "b"].map(|question| paid.take(question)),
            [Some(1), Some(3), None, Some(2)]
        );
        let receipt = send(&[("a", 4)]).into_receipt();
        let copy = receipt.clone();
        drop(receipt);
        copy.sign();
        drop(copy);
        assert_eq!(paid.take("a"), None, "it was delivered");
        drop(send(&[("a", 5)]).into_receipt());
        assert_eq!(paid.take("a"), Some(5));
    }
}
