//! The progress of a rollout, beside its conversation.

use std::collections::VecDeque;

use rlm_core::protocol::Answer;

use super::calls::Call;

/// The progress of a rollout.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) answer: Answer,
    /// The model's latest text without a call.
    pub(super) last_words: Option<String>,
    /// Calls of the last reply that did not run.
    pub(super) skipped: VecDeque<Call>,
    /// Tokens of the model's longest completion.
    pub(super) longest_completion: u64,
    /// Replies that were cut off.
    pub(super) cut_replies: u32,
    pub(super) restarts: u32,
    /// Consecutive replies without a call.
    pub(super) idle_turns: u32,
    pub(super) is_warned: bool,
    /// True once an empty answer was given back.
    pub(super) was_empty: bool,
    /// True if the next request is that of the last turn, for which a part of the budget is reserved.
    pub(super) is_last_turn: bool,
    /// Turns by which the next summary is deferred.
    pub(super) deferred_turns: usize,
    /// Times that the whole conversation was replaced by a summary.
    pub(super) compactions: u32,
}

impl Progress {
    /// Forgets what belongs to the question before.
    pub(super) fn begin_question(&mut self) {
        self.answer = Answer::default();
        self.last_words = None;
        self.idle_turns = 0;
        self.was_empty = false;
        self.is_last_turn = false;
        self.restarts = 0;
    }
}
