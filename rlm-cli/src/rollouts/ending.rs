//! The end of a rollout, in words and as an exit status.

use rlm_env::{RolloutResult, StopReason};

use crate::config::AnySetting;
use crate::config::table::{EXCLUDE, MAX_CONTEXT_BYTES};
use crate::text::one_line;

/// Exit status without a final answer.
const NOT_ANSWERED: u8 = 1;

/// The exit status for a result.
pub(crate) fn status(result: &RolloutResult) -> u8 {
    match result.stop_reason {
        StopReason::Answered => 0,
        reason if is_failure(reason) => crate::ENVIRONMENT_ERROR,
        _ => NOT_ANSWERED,
    }
}

/// Reports whether a requirement of the rollout failed, through no fault of the model.
pub(crate) fn is_failure(reason: StopReason) -> bool {
    matches!(reason, StopReason::ModelFailed | StopReason::WorkerFailed | StopReason::SetupFailed)
}

/// One line on the reason for a missing final answer; None if there is a final answer.
pub(crate) fn words(result: &RolloutResult) -> Option<String> {
    if result.stop_reason == StopReason::Answered {
        return None;
    }
    let error = result.error.as_ref().map(|error| one_line(error.trim_end()));
    // An error of our own may name settings.
    let is_ours = result.stop_reason == StopReason::SetupFailed;
    let error = if is_ours { error.map(with_flags) } else { error };
    let why = match (result.stop_reason, error) {
        // The error says itself that it is the server's.
        (StopReason::ModelFailed, Some(error)) => error,
        (other, Some(error)) => format!("{}: {error}", reason(other)),
        (other, None) => reason(other).to_owned(),
    };
    let printed = if result.answer.is_some() { "; the answer so far is printed" } else { "" };
    Some(format!("no final answer: {why}{printed}"))
}

/// An error with the flags of the settings that it names.
fn with_flags(error: String) -> String {
    [&MAX_CONTEXT_BYTES as &dyn AnySetting, &EXCLUDE].into_iter().fold(error, |error, setting| {
        error.replace(&format!("`{}`", setting.name), &format!("--{}", setting.flag()))
    })
}

/// A stop reason in words.
pub(crate) fn reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Answered => "answered",
        StopReason::MaxTurns => "all turns are used up (--max-turns)",
        StopReason::TimedOut => "the time is up (--timeout)",
        StopReason::BudgetExhausted => "the budget has no room for more (--budget-usd, --budget-tokens)",
        StopReason::ContextFull => "the conversation is longer than the model's context window",
        StopReason::NoToolCall => "the model called no tool",
        StopReason::ModelRefused => "the model refused",
        StopReason::ReplyCut => "replies were cut off at the limit of their tokens (--max-completion-tokens)",
        StopReason::Stopped => "it was stopped",
        StopReason::Cancelled => "it was cancelled",
        StopReason::Branched => "others go on from there",
        StopReason::ModelFailed => "the model's server failed",
        StopReason::WorkerFailed => "the session died too often",
        StopReason::SetupFailed => "the rollout could not be set up",
        _ => "it ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(id: &str, stop_reason: StopReason, answer: Option<&str>) -> RolloutResult {
        crate::evaluation::result(id, stop_reason, answer).rollout
    }

    #[test]
    fn the_exit_status_tells_answers_from_none_and_from_failures() {
        let status = |reason| status(&result("1", reason, None));
        assert_eq!(status(StopReason::Answered), 0);
        for reason in [
            StopReason::MaxTurns,
            StopReason::TimedOut,
            StopReason::Stopped,
            StopReason::ModelRefused,
            StopReason::NoToolCall,
        ] {
            assert_eq!(status(reason), 1);
        }
        for reason in [StopReason::ModelFailed, StopReason::WorkerFailed, StopReason::SetupFailed] {
            assert_eq!(status(reason), 3);
        }
    }

    #[test]
    fn one_line_has_the_reason_and_the_state_of_the_answer() {
        assert_eq!(words(&result("1", StopReason::Answered, Some("a"))), None);
        assert_eq!(
            words(&result("1", StopReason::MaxTurns, Some("a"))).unwrap(),
            "no final answer: all turns are used up (--max-turns); the answer so far is printed"
        );
        let mut failed = result("1", StopReason::SetupFailed, None);
        failed.error = Some("leave out with `exclude`, or raise `max_context_bytes`".to_owned());
        assert_eq!(
            words(&failed).unwrap(),
            "no final answer: the rollout could not be set up: leave out with --exclude, or raise --max-context-bytes"
        );
        let mut failed = result("1", StopReason::ModelFailed, None);
        failed.error = Some("status 500\nbu\x1b]0;sy\r\n".to_owned());
        assert_eq!(words(&failed).unwrap(), "no final answer: status 500 bu␛]0;sy");
    }
}
