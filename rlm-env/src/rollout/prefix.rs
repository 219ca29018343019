//! The beginning of a rollout, from which several go on.
//!
//! A prefix is a rollout that ends after so many turns. It keeps what the next turn needs: the conversation, its progress, and the
//! session in a file, with its directory. A rollout whose configuration names it begins there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rlm_rootd::{Budget, Left};

use super::conversation::Messages;
use super::progress::Progress;
use crate::session::HandedOn;
use crate::terms::CallForm;
use crate::workspace::Summary;

/// The beginning of a rollout: its conversation, and its session in a file.
#[derive(Debug)]
pub struct Prefix {
    pub(super) id: String,
    pub(super) turns: u32,
    pub(super) messages: Messages,
    pub(super) progress: Progress,
    pub(super) call_form: CallForm,
    pub(super) fenced_prompt: Option<String>,
    /// The directory in which the session worked.
    pub(super) directory: PathBuf,
    pub(super) files: Arc<Summary>,
    /// The rest of the rollout's budget and of its time.
    pub(super) left: Left,
    pub(super) time_left: Option<Duration>,
    pub(super) state: HandedOn,
}

impl Prefix {
    /// The id of the rollout that was the beginning.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The number of its turns.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// The budget of a rollout that goes on: what the beginning has left.
    pub(super) fn budget(&self) -> Budget {
        let Left { calls, tokens, completion_tokens, cost_usd } = self.left;
        Budget { calls, tokens, completion_tokens, cost_usd }
    }

    /// A notice of the directory in which a rollout goes on, if the conversation has named that of the beginning.
    pub(super) fn notice_of_directory(&self, new: &Path) -> Option<String> {
        let old = self.directory.to_string_lossy();
        self.messages.mention(&old).then(|| {
            format!("The working directory is {} now, with all of its files; {old} is gone.", new.display())
        })
    }
}
