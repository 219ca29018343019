//! The children of a past rollout: their results answer the same questions again, and no model is asked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rlm_rootd::{OnTheWay, Paid, Tool};

use super::past::{PastChild, PastSession};
use crate::rollout::RolloutResult;
use crate::rollout::query::{Answering, Answers, Question, query_tools};
use crate::terms::StopReason;
use crate::workspace::PathWithin;

/// The tools by which the code of a session had children. None if it had none.
pub(super) fn tools(past: &PastSession, root: &Path) -> Vec<Tool> {
    if past.children.is_empty() {
        return Vec::new();
    }
    let models: BTreeSet<_> =
        past.children.iter().map(|child| &child.model).chain(&past.model).cloned().collect();
    let children: Arc<dyn Answering> = Arc::new(PastChildren {
        models: models.into_iter().collect(),
        left: Mutex::new(past.children.clone()),
        root: root.to_owned(),
        paid: Paid::default(),
    });
    query_tools(&children)
}

#[derive(Debug)]
struct PastChildren {
    /// Children that have not been asked for yet, in the order of their starts.
    left: Mutex<Vec<PastChild>>,
    /// The models of the past rollout and its children.
    models: Vec<String>,
    /// The session's directory.
    root: PathBuf,
    /// Results that have not reached the code.
    paid: Paid<RolloutResult>,
}

impl PastChildren {
    async fn answers(&self, questions: Vec<Result<Question, String>>) -> Answers {
        let (mut results, mut before, mut way) = (Vec::new(), 0, self.paid.on_the_way());
        for question in questions {
            let answered = self.one(question, &mut way).await;
            results.push(answered.map(|(result, is_from_before)| {
                before += usize::from(is_from_before);
                result
            }));
        }
        Answers { results, before, receipt: way.into_receipt() }
    }

    /// Answers one question. True: with a result that did not reach the code before.
    async fn one(
        &self,
        question: Result<Question, String>,
        way: &mut OnTheWay<RolloutResult>,
    ) -> Result<(RolloutResult, bool), String> {
        let question = question?;
        let (files, key) = question.files_and_key(std::slice::from_ref(&self.root)).await?;
        if let Some(result) = way.take(&key).await {
            return Ok((result, true));
        }
        let result = self.take(&question, &files)?;
        if result.stop_reason == StopReason::Cancelled {
            // The call was given up in the past session, as this one will be.
            std::future::pending::<()>().await;
        }
        way.add(&key, result.clone());
        Ok((result, false))
    }

    /// The size of the files and the text that a child gets; None: it gets something else, too.
    fn bytes(question: &Question, files: &[PathWithin]) -> Option<u64> {
        let of_file = |file: &PathWithin| {
            let metadata = file.with_place(Path::metadata).ok()?;
            metadata.is_file().then_some(metadata.len())
        };
        let of_files = files.iter().map(of_file).sum::<Option<u64>>()?;
        question.data.is_none().then(|| of_files + question.text.as_ref().map_or(0, |text| text.len() as u64))
    }

    fn take(&self, question: &Question, files: &[PathWithin]) -> Result<RolloutResult, String> {
        if let Some(model) = question.model.as_ref().filter(|model| !self.models.contains(model)) {
            // The past session refused this question, too.
            return Err(format!("there is no model {model}: the models are {}", self.models.join(", ")));
        }
        let (digest, bytes) = (Some(question.digest(&self.root)), Self::bytes(question, files));
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |child: &PastChild| child.result.question == question.question;
        // Of children with this question, the one with this digest; in older trajectories, one of this size, or the first one.
        let same = left.iter().position(|child| child.query_digest == digest).or_else(|| {
            let of_size =
                |child: &PastChild| child.query_digest.is_none() && Some(child.context_bytes) == bytes;
            left.iter().position(|child| is_it(child) && of_size(child))
        });
        match same.or_else(|| left.iter().position(is_it)) {
            Some(at) => Ok(left.remove(at).result),
            None => Err("the trajectory has no further child with this question".to_owned()),
        }
    }
}

impl Answering for PastChildren {
    fn answer(
        &self,
        questions: Vec<Result<Question, String>>,
    ) -> Pin<Box<dyn Future<Output = Answers> + Send + '_>> {
        Box::pin(self.answers(questions))
    }

    fn time_limit(&self) -> Duration {
        Duration::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn what_code_did_not_get_answers_the_question_about_the_same_content_alone() {
        let dir = tempfile::tempdir().unwrap();
        let child = |answer: &str| PastChild {
            result: RolloutResult {
                id: answer.to_owned(),
                question: "what?".to_owned(),
                answer: Some(answer.to_owned()),
                answer_ready: true,
                stop_reason: StopReason::Answered,
                error: None,
                refused_by_server: false,
                metrics: Metrics::default(),
                dir: None,
            },
            query_digest: None,
            context_bytes: 4,
            model: "m".to_owned(),
        };
        let children = PastChildren {
            left: Mutex::new(["first", "second"].map(child).to_vec()),
            models: vec!["m".to_owned()],
            root: dir.path().to_owned(),
            paid: Paid::default(),
        };
        let question: Question =
            serde_json::from_value(serde_json::json!({"question": "what?", "files": "file"})).unwrap();
        for (content, expected) in [("four", ("first", 0)), ("else", ("second", 0)), ("four", ("first", 1))] {
            std::fs::write(dir.path().join("file"), content).unwrap();
            // The answers do not reach the code.
            let Answers { results, before, .. } = children.answers(vec![Ok(question.clone())]).await;
            assert_eq!((results[0].as_ref().unwrap().id.as_str(), before), expected, "{content}");
        }
        // A FIFO has no content, and nobody waits for it.
        nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let question = Question { files: vec!["fifo".into()], ..question };
        assert!(children.answers(vec![Ok(question)]).await.results[0].is_err());
    }
}
