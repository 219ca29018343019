//! The attempts of a batch, and their order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rlm_env::RolloutConfig;

use super::questions::Question;
use super::results::Finished;
use crate::evaluation::RunResult;

/// An attempt at a question.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The number of the attempt, from 1.
    pub(super) number: usize,
    pub(super) question: Arc<Question>,
}

impl Attempt {
    pub(super) fn id(&self) -> String {
        format!("{}-{}", self.question.id, self.number)
    }

    /// The attempt's rollout: the template with an id, a question and a context.
    pub(super) fn rollout(&self, template: &RolloutConfig) -> RolloutConfig {
        let own = self.question.context.as_ref();
        RolloutConfig {
            id: self.id(),
            question: self.question.question.clone(),
            context: own.unwrap_or(&template.context).clone(),
            ..template.clone()
        }
    }
}

/// All attempts: the first at each question, then the second at each, …; or `by_question`.
pub(super) fn attempts(
    questions: &[Arc<Question>],
    attempts: usize,
    by_question: bool,
) -> impl Iterator<Item = Attempt> {
    let count = questions.len();
    (0..attempts * count).map(move |at| {
        let (number, question) =
            if by_question { (at % attempts, at / attempts) } else { (at / count, at % count) };
        Attempt { number: number + 1, question: questions[question].clone() }
    })
}

/// Finds the attempts of a batch by their ids.
pub(super) struct Places<'a> {
    questions: HashMap<&'a str, usize>,
    attempts: usize,
}

/// An attempt's number, and its question's index: attempts run in this order.
pub(super) type Place = (usize, usize);

impl<'a> Places<'a> {
    pub(super) fn new(questions: &'a [Arc<Question>], attempts: usize) -> Self {
        let ids = questions.iter().enumerate().map(|(index, question)| (question.id.as_str(), index));
        Self { questions: ids.collect(), attempts }
    }

    pub(super) fn of(&self, id: &str) -> Option<Place> {
        let (question, number) = id.rsplit_once('-')?;
        let number = number.parse().ok().filter(|number| (1..=self.attempts).contains(number))?;
        Some((number, *self.questions.get(question)?))
    }

    /// The results of attempts of this batch.
    pub(super) fn in_order<'b>(&self, done: &'b Finished) -> BTreeMap<Place, &'b RunResult> {
        done.results.iter().filter_map(|(id, result)| Some((self.of(id)?, result))).collect()
    }
}
