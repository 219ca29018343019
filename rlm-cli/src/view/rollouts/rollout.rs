//! A rollout as it is shown.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rlm_core::protocol::{Answer, Outcome, Response};
use rlm_env::rollout::Callbacks;
use rlm_env::trajectory::{ImagePlace, MessageKind};

use crate::text::Text;
use crate::view::quantity::Usage;

/// A rollout.
#[derive(Debug, Default)]
pub(in crate::view) struct Rollout {
    pub(in crate::view) id: String,
    /// The directory with the images of its trajectory; empty if that is not a file.
    pub(super) images: PathBuf,
    /// The number of the rollout in the file, from 0: links name it.
    pub(in crate::view) at: usize,
    /// The number of the rollout's latest entry in the file, from 1.
    pub(in crate::view) stamp: u64,
    /// The number of rollouts above this one.
    pub(in crate::view) depth: usize,
    /// The place in the list of the rollout whose code has started this one, if it is in the file.
    pub(in crate::view) parent: Option<usize>,
    /// The turn and the id of the call whose code has started this rollout.
    pub(in crate::view) parent_turn: Option<u32>,
    pub(in crate::view) parent_call: Option<String>,
    /// Times of its first and last entry, in seconds since the epoch.
    pub(in crate::view) began: f64,
    pub(in crate::view) last: f64,
    pub(in crate::view) start: Option<Start>,
    pub(in crate::view) system: Option<Text>,
    pub(in crate::view) turns: Vec<Turn>,
    pub(in crate::view) end: Option<End>,
    pub(in crate::view) score: Option<f64>,
    /// Why the rollout has no score.
    pub(in crate::view) unscored: Option<String>,
    /// The number of the first rollout with its question.
    pub(in crate::view) asks: usize,
    /// The usage of all models.
    pub(in crate::view) usage: Usage,
    /// The part of the usage by requests that were cut off, which have no entry.
    pub(in crate::view) cut_off: Usage,
    /// The answer after the last call, to show it only when it changes.
    pub(super) answer: Answer,
}

#[derive(Debug)]
pub(in crate::view) struct Start {
    pub(in crate::view) question: Text,
    pub(in crate::view) language: String,
    pub(in crate::view) callbacks: Callbacks,
    pub(in crate::view) model: String,
    pub(in crate::view) sub_model: Option<String>,
    pub(in crate::view) root_tools: Vec<String>,
    pub(in crate::view) tools: Vec<String>,
    pub(in crate::view) context_files: u64,
    pub(in crate::view) context_bytes: u64,
}

/// A turn. Number 0 is before the first reply.
#[derive(Debug)]
pub(in crate::view) struct Turn {
    pub(in crate::view) number: u32,
    pub(in crate::view) steps: Vec<Step>,
}

/// A part of a turn.
#[derive(Debug)]
pub(in crate::view) enum Step {
    Model(ModelCall),
    Message(MessageKind, Text),
    /// An image of the message before.
    Image(ImagePlace),
    /// The reasoning of the reply that follows.
    Thought(Thought),
    /// Why a request is sent again.
    Retry(Text),
    Call(Box<Call>),
    /// Sub-calls outside any call.
    Batch(Batch),
}

#[derive(Debug)]
pub(in crate::view) struct ModelCall {
    pub(in crate::view) model: String,
    pub(in crate::view) is_summary: bool,
    pub(in crate::view) began: f64,
    pub(in crate::view) seconds: f64,
    pub(in crate::view) usage: Usage,
    pub(in crate::view) attempts: u32,
    pub(in crate::view) error: Option<Text>,
    /// The reason why the reply ended, if it is not an ordinary one.
    pub(in crate::view) finish_reason: Option<String>,
    /// A sentence for each kind of change to what was sent.
    pub(in crate::view) adapted: Vec<String>,
}

/// The reasoning of a reply.
#[derive(Debug)]
pub(in crate::view) struct Thought {
    /// The length and the first words of the reasoning.
    pub(in crate::view) line: String,
    pub(in crate::view) text: Text,
}

#[derive(Debug, Default)]
pub(in crate::view) struct Call {
    pub(in crate::view) id: String,
    pub(in crate::view) tool: Option<String>,
    /// The code for a REPL, the arguments for other tools.
    pub(in crate::view) input: Option<Text>,
    pub(in crate::view) began: f64,
    /// The time of the call; None if it still runs or was never started.
    pub(in crate::view) seconds: Option<f64>,
    pub(in crate::view) has_begun: bool,
    pub(in crate::view) output: Option<Output>,
    /// The output message to the model, for a call without an output of the session.
    pub(in crate::view) message: Option<Text>,
    pub(in crate::view) error: Option<Text>,
    pub(in crate::view) batches: Vec<Batch>,
}

#[derive(Debug)]
pub(in crate::view) struct Output {
    pub(in crate::view) stdout: Text,
    pub(in crate::view) stderr: Text,
    pub(in crate::view) result: Option<Text>,
    pub(in crate::view) hint: Option<Text>,
    /// The rest of the response: its texts are above.
    pub(in crate::view) response: Response,
    /// The answer, and true if it is final. None if the call did not change it.
    pub(in crate::view) answer: Option<(Text, bool)>,
}

/// The sub-calls of one `llm_batch`.
#[derive(Debug, Default)]
pub(in crate::view) struct Batch {
    pub(super) id: String,
    /// The prompts by their index in the batch.
    pub(in crate::view) prompts: BTreeMap<usize, Prompt>,
    pub(in crate::view) began: f64,
    pub(in crate::view) ended: f64,
    pub(in crate::view) usage: Usage,
}

#[derive(Debug, Default)]
pub(in crate::view) struct Prompt {
    pub(in crate::view) model: String,
    pub(in crate::view) prompt: Text,
    pub(in crate::view) thought: Option<Thought>,
    pub(in crate::view) reply: Option<Text>,
    pub(in crate::view) error: Option<Text>,
    pub(in crate::view) usage: Usage,
    pub(in crate::view) seconds: f64,
    /// Number of requests for the prompt, and of attempts with retries.
    pub(in crate::view) requests: u32,
    pub(in crate::view) attempts: u32,
}

#[derive(Debug)]
pub(in crate::view) struct End {
    pub(in crate::view) stop_reason: String,
    pub(in crate::view) answer: Option<Text>,
    pub(in crate::view) is_ready: bool,
    pub(in crate::view) error: Option<Text>,
    /// Names and values, without zeros and nulls.
    pub(in crate::view) metrics: Vec<(String, String)>,
}

impl Rollout {
    pub(in crate::view) fn seconds(&self) -> f64 {
        self.last - self.began
    }

    pub(in crate::view) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.turns.iter().flat_map(|turn| &turn.steps)
    }

    pub(in crate::view) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.steps().filter_map(|step| if let Step::Call(call) = step { Some(&**call) } else { None })
    }

    pub(in crate::view) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.steps().flat_map(|step| match step {
            Step::Call(call) => &call.batches[..],
            Step::Batch(batch) => std::slice::from_ref(batch),
            _ => &[],
        })
    }
}

impl Call {
    /// Reports whether the call failed or was stopped.
    pub(in crate::view) fn has_failed(&self) -> bool {
        self.error.is_some()
            || self.output.as_ref().is_some_and(|output| output.response.outcome != Outcome::Ok)
    }
}

impl Batch {
    pub(in crate::view) fn seconds(&self) -> f64 {
        self.ended - self.began
    }

    pub(in crate::view) fn failed(&self) -> usize {
        self.prompts.values().filter(|prompt| prompt.error.is_some()).count()
    }
}
