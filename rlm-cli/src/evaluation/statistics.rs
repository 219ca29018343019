//! Statistics of scores: accuracy, and pass@k.

use std::collections::BTreeMap;

use rlm_core::text::counted;

use super::result::RunResult;

/// The scores of a batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statistics {
    /// The scores by question; those of results without an id are under None.
    scores: BTreeMap<Option<String>, Vec<f64>>,
    /// Results that could not be scored.
    unscored: u64,
}

impl Statistics {
    pub(crate) fn add(&mut self, result: &RunResult) {
        match result.evaluation.score {
            Some(Some(score)) => {
                self.scores.entry(result.evaluation.question_id.clone()).or_default().push(score);
            }
            Some(None) => self.unscored += 1,
            None => {}
        }
    }

    /// One line: the accuracy, and with several attempts pass@k. None if nothing was to be scored.
    pub(crate) fn line(&self) -> Option<String> {
        let scores: Vec<f64> = self.scores.values().flatten().copied().collect();
        if scores.is_empty() && self.unscored == 0 {
            return None;
        }
        let mut parts = Vec::new();
        if !scores.is_empty() {
            let mean = scores.iter().sum::<f64>() / scores.len() as f64;
            parts.push(format!("accuracy {mean:.3} of {}", counted(scores.len() as u64, "score")));
        }
        if self.unscored > 0 {
            parts.push(format!("{} could not be scored", counted(self.unscored, "result")));
        }
        let most = self.scores.values().map(Vec::len).max().unwrap_or(0);
        if most > 1 {
            let powers = std::iter::successors(Some(1), |k| Some(k * 2)).take_while(|k| *k <= most);
            parts.extend(powers.map(|k| format!("pass@{k} {:.3}", self.pass_at(k))));
        }
        Some(parts.join(", "))
    }

    /// The mean of the unbiased estimates of pass@k, over the questions with k scores and more: `1 - C(n - c, k) / C(n, k)`
    /// for n scores, c of which are 1 (Chen et al., "Evaluating Large Language Models Trained on Code", arXiv 2107.03374).
    fn pass_at(&self, k: usize) -> f64 {
        let of_questions: Vec<f64> = self
            .scores
            .values()
            .filter(|scores| scores.len() >= k)
            .map(|scores| {
                let n = scores.len();
                let wrong = scores.iter().filter(|score| **score < 1.0).count();
                // Each factor is 1 - k / i; one is 0 if fewer than k are wrong.
                1.0 - (wrong + 1..=n).map(|i| 1.0 - (k as f64 / i as f64).min(1.0)).product::<f64>()
            })
            .collect();
        of_questions.iter().sum::<f64>() / of_questions.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::Evaluation;
    use super::super::result::tests::result;
    use super::*;

    fn statistics(scores: &[(&str, Option<Option<f64>>)]) -> Statistics {
        let mut statistics = Statistics::default();
        for (id, score) in scores {
            let mut one = result("1", rlm_env::StopReason::Answered, None);
            one.evaluation =
                Evaluation { question_id: Some((*id).to_owned()), score: *score, ..Evaluation::default() };
            statistics.add(&one);
        }
        statistics
    }

    #[test]
    fn pass_at_k_is_the_unbiased_estimate() {
        let right = |count: usize| (0..5).map(move |at| ("a", Some(Some(f64::from(u8::from(at < count))))));
        let pass = |count: usize, k| statistics(&right(count).collect::<Vec<_>>()).pass_at(k);
        let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-12, "{one} {other}");
        near(pass(2, 1), 0.4);
        // 1 - C(3, 2) / C(5, 2)
        near(pass(2, 2), 0.7);
        near(pass(2, 4), 1.0);
        near(pass(0, 4), 0.0);
        near(pass(5, 1), 1.0);
    }

    #[test]
    fn a_line_has_the_mean_and_what_is_missing_from_it() {
        assert_eq!(statistics(&[]).line(), None);
        assert_eq!(statistics(&[("a", None)]).line(), None);
        assert_eq!(statistics(&[("a", Some(Some(0.5)))]).line().unwrap(), "accuracy 0.500 of 1 score");
        let (right, wrong) = (Some(Some(1.0)), Some(Some(0.0)));
        assert_eq!(
            statistics(&[("a", right), ("a", wrong), ("b", wrong), ("b", wrong), ("b", Some(None))])
                .line()
                .unwrap(),
            "accuracy 0.250 of 4 scores, 1 result could not be scored, pass@1 0.250, pass@2 0.500"
        );
    }
}
