//! The children of a past rollout: their results answer the same questions again, and no model is asked.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rlm_rootd::{Paid, Tool};

use super::past::PastSession;
use crate::rollout::RolloutResult;
use crate::rollout::query::{Answering, Answers, Question, query_tools};

/// The tools by which the code of a session had children. None if it had none.
pub(super) fn tools(past: &PastSession) -> Vec<Tool> {
    if past.children.is_empty() {
        return Vec::new();
    }
    let children: Arc<dyn Answering> = Arc::new(PastChildren { left: Mutex::new(past.children.clone()) });
    query_tools(&children)
}

#[derive(Debug)]
struct PastChildren {
    /// Those that have not been asked for yet, in the order of their starts.
    left: Mutex<Vec<RolloutResult>>,
}

impl PastChildren {
    fn take(&self, question: &Question) -> Result<RolloutResult, String> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        match left.iter().position(|result| result.question == question.question) {
            Some(at) => Ok(left.remove(at)),
            None => Err("the trajectory has no further child with this question".to_owned()),
        }
    }
}

impl Answering for PastChildren {
    fn answer(
        &self,
        questions: Vec<Result<Question, String>>,
    ) -> Pin<Box<dyn Future<Output = Answers> + Send + '_>> {
        let results = questions.into_iter().map(|question| self.take(&question?)).collect();
        let receipt = Paid::<()>::default().on_the_way().into_receipt();
        Box::pin(std::future::ready(Answers { results, before: 0, receipt }))
    }

    fn time_limit(&self) -> Duration {
        Duration::MAX
    }
}
