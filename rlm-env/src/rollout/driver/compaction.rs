//! A conversation that nears the end of the context window: the model is warned, older turns are replaced by a summary.

use std::ops::Range;

use rlm_rootd::{ChatReply, ModelError};
use serde_json::json;

use super::{FULL_PERCENT, RolloutDriver, Step, Stop};
use crate::prompts::{ContextLow, Summary, SummaryRequest};
use crate::rollout::calls::plain_text;
use crate::rollout::config::Compaction;
use crate::rollout::conversation::SHORT_OUTPUT;
use crate::terms::StopReason;

/// Percentage of the context window from which on the model is warned.
const WARN_PERCENT: u128 = 75;

/// Tokens below the context window at which the conversation is replaced by a summary, if nothing else is configured.
const COMPACTION_RESERVE: u64 = 16_384;

/// Longest summary in words.
const SUMMARY_WORDS: u32 = 500;

impl RolloutDriver<'_> {
    /// Warns the model, once, that few tokens are left.
    pub(super) fn warn(&mut self) -> Step {
        let Some(total_tokens) = self.context_tokens else { return Ok(()) };
        let is_low = self.is_part_of_context(WARN_PERCENT) && self.compaction().is_none();
        if self.progress.is_warned || !is_low {
            return Ok(());
        }
        self.progress.is_warned = true;
        let left_tokens = total_tokens.saturating_sub(self.conversation.tokens());
        let low = ContextLow { language: self.config.language, left_tokens, total_tokens };
        self.notice(&low.render(self.prompts)?);
        Ok(())
    }

    /// Replaces older turns by a summary if that is configured and there are twice as many turns as should stay.
    pub(super) async fn summarise(&mut self) -> Step {
        let Some(newest) = self.config.summarize_turns.map(|turns| turns.max(1) as usize) else {
            return Ok(());
        };
        if self.conversation.whole_turns() < 2 * newest + self.progress.deferred_turns {
            return Ok(());
        }
        let Some(older) = self.conversation.older_than(newest) else { return Ok(()) };
        match self.ask_for_summary(&older).await? {
            Ok(Some(summary)) => self.replace_by(&summary, older, newest)?,
            // Keep the turns, and try again after as many more of them.
            _ => self.progress.deferred_turns += newest,
        }
        Ok(())
    }

    /// Replaces all turns by a summary. A model that refuses even that request as too long gets it without the newest turns, which
    /// stay with cut outputs. Returns the limit that is reached if there is no summary.
    pub(super) async fn compact(&mut self) -> Step<Option<Stop>> {
        let attempts = self.compaction().map_or(0, |compaction| compaction.max_attempts.max(1));
        let mut newest = 0;
        let mut error = "the model gave no summary of the conversation".to_owned();
        for _ in 0..attempts {
            let Some(older) = self.conversation.older_than(newest) else { break };
            match self.ask_for_summary(&older).await? {
                Ok(Some(summary)) => {
                    self.progress.compactions += 1;
                    self.replace_by(&summary, older, newest)?;
                    if newest > 0 {
                        self.conversation.cut_outputs(SHORT_OUTPUT);
                    }
                    return Ok(None);
                }
                Ok(None) => {}
                Err(failed) if self.leave_images_out(&failed)? => {}
                Err(failed) => match Stop::from(failed) {
                    Stop { reason: StopReason::ContextFull, error: said, .. } => {
                        newest += 1;
                        error = said.unwrap_or(error);
                    }
                    failed if failed.reason == StopReason::ModelFailed => return Err(failed),
                    limit => return Ok(Some(limit)),
                },
            }
        }
        Ok(Some(Stop::new(StopReason::ContextFull, error)))
    }

    /// The settings of a summary of the conversation, if one may be made now.
    pub(super) fn compaction(&self) -> Option<&Compaction> {
        let has_room = |times| self.progress.compactions < times;
        let compaction = self.config.compaction.as_ref()?;
        (self.conversation.whole_turns() > 0 && compaction.max_times.is_none_or(has_room))
            .then_some(compaction)
    }

    /// True if the conversation is to be replaced by a summary now.
    pub(super) fn is_long(&self) -> bool {
        let Some(compaction) = self.compaction() else { return false };
        let window = self.context_tokens;
        let default = || window.map(|most| most.saturating_sub(COMPACTION_RESERVE).max(most / 2));
        compaction.at_tokens.or_else(default).is_some_and(|at| self.conversation.tokens() >= at)
            || self.is_part_of_context(FULL_PERCENT)
    }

    /// True if the conversation takes at least this percentage of the context window.
    pub(super) fn is_part_of_context(&self, percent: u128) -> bool {
        self.context_tokens.is_some_and(|most| is_part(self.conversation.tokens(), most, percent))
    }

    /// Asks the model for a summary of older messages. None: its reply is none, since it has no text, calls a tool or
    /// refuses.
    async fn ask_for_summary(&self, older: &Range<usize>) -> Step<Result<Option<String>, ModelError>> {
        let mut messages = self.conversation.messages().to_vec();
        let is_all = older.end == messages.len();
        messages.truncate(older.end);
        let asking = SummaryRequest {
            language: self.config.language,
            max_words: SUMMARY_WORDS,
            is_all,
            has_summary: self.conversation.summarised_turns() > 0,
        };
        messages.push(json!({"role": "user", "content": asking.render(self.prompts)?}).into());
        let mut request = self.request(self.config.limits.max_completion_tokens);
        request.messages = &messages;
        request.may_skip_thinking = true;
        let replied = self.complete(request, true).await?;
        Ok(replied
            .map(|ChatReply { message, finish_reason, .. }| plain_text(&message, finish_reason.as_deref())))
    }

    /// Replaces older messages by a summary, after which so many of the newest turns are left.
    fn replace_by(&mut self, summary: &str, older: Range<usize>, newest: usize) -> Step {
        let turns = self.conversation.turn() - u32::try_from(newest).unwrap_or(0);
        let text = Summary { turns, summary }.render(self.prompts)?;
        self.conversation.summarise(older, &text);
        Ok(())
    }
}

/// True if the tokens are at least this percentage of the whole.
fn is_part(tokens: u64, whole: u64, percent: u128) -> bool {
    u128::from(tokens) * 100 >= u128::from(whole) * percent
}
