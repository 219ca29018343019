//! The answer in the session: its check, and its change when it is taken back.

use std::time::Duration;

use super::{CallResult, RolloutDriver, Step};
use crate::prompts::{AnswerEmpty, AnswerUnfit};
use crate::render;
use crate::session;
use crate::terms::{ReplLanguage, StopReason};

/// Time limit of the check of an answer against its schema.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// Time limit of the code that changes the answer.
const SET_ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Number of times that the code is run: the interpreter may have died just before.
const SET_ANSWER_TRIES: u32 = 2;

/// Changes of the answer in the session.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnswerChange {
    /// The answer is not final.
    TakenBack,
    /// There is no answer.
    Cleared,
}

impl RolloutDriver<'_> {
    /// Ends what the question before has left: calls without an output, and its answer. A session that has ended since then is
    /// replaced, and the model is told.
    pub(super) async fn clear_answer(&mut self) -> Step {
        self.fill_in_skipped()?;
        let cleared = self.set_answer(AnswerChange::Cleared).await?;
        if !cleared.text.is_empty() {
            self.notice(cleared.text.trim());
        }
        cleared.stop.map_or(Ok(()), Err)
    }

    /// The notice on a final answer that is not accepted. An empty answer is accepted the second time.
    pub(super) async fn answer_fault(&mut self) -> Step<Option<String>> {
        let (language, answer) = (self.config.language, &self.progress.answer.content);
        if let Some(schema) = &self.config.answer_schema {
            // A schema of a few lines can take longer than anyone waits.
            let (schema, answer) = (schema.clone(), answer.clone());
            let checking = tokio::task::spawn_blocking(move || schema.faults(&answer));
            let faults = tokio::select! {
                biased;
                () = self.control.cancelled() => return Err(StopReason::Cancelled.into()),
                checked = tokio::time::timeout(CHECK_LIMIT, checking) => match checked {
                    Ok(checked) => checked.unwrap_or_else(|error| vec![error.to_string()]),
                    Err(_) => vec![format!("it could not be checked within {} s", CHECK_LIMIT.as_secs())],
                },
            };
            if faults.is_empty() {
                return Ok(None);
            }
            return Ok(Some(AnswerUnfit { language, faults: &faults }.render(self.prompts)?));
        }
        if !answer.trim().is_empty() || std::mem::replace(&mut self.progress.was_empty, true) {
            return Ok(None);
        }
        Ok(Some(AnswerEmpty { language }.render(self.prompts)?))
    }

    /// Changes the answer, in the session too: an interpreter that takes over from a dead one gets the answer that the
    /// worker keeps. Returns the output printed by then.
    pub(super) async fn set_answer(&mut self, change: AnswerChange) -> Step<CallResult> {
        self.progress.answer.ready = false;
        let code = match (self.config.language, change) {
            (ReplLanguage::Bash, AnswerChange::TakenBack) => "RLM_READY=",
            (ReplLanguage::Bash, AnswerChange::Cleared) => "RLM_READY= RLM_CONTENT=",
            (ReplLanguage::Python, AnswerChange::TakenBack) => "answer[\"ready\"] = False",
            (ReplLanguage::Python, AnswerChange::Cleared) => "answer.update(ready=False, content=\"\")",
        };
        let mut printed = String::new();
        for _ in 0..SET_ANSWER_TRIES {
            let limit = self.clock.limit(SET_ANSWER_LIMIT).max(Duration::from_millis(1));
            let call = session::Call { timeout: Some(limit), ..session::Call::from(code) };
            let replacements = self.session.replacements();
            let taken = self.session.execute_until(call, self.control.cancelled()).await;
            self.progress.restarts =
                self.progress.restarts.saturating_add(self.session.replacements() - replacements);
            let response = match taken {
                Ok(response) => response,
                Err(error) => return self.restart(&error).await,
            };
            if response.output_bytes() > 0 || response.hint.is_some() {
                let limit = self.config.limits.max_output_length;
                printed += "\n";
                printed += &render::render(&response, self.config.language, limit, self.prompts)?;
            }
            // An interpreter that was dead already had not taken the change.
            if !response.answer.ready {
                break;
            }
        }
        Ok(printed.into())
    }
}
