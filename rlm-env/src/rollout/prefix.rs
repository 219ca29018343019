//! The beginning of a rollout, from which several go on.
//!
//! A prefix is a rollout that ends after so many turns. It keeps what the next turn needs: the conversation, its progress, and the
//! session in a file, with its directory. A rollout whose configuration names it begins there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rlm_core::error::with_causes;
use rlm_core::protocol::Outcome;
use rlm_rootd::{Budget, Left};

use super::conversation::Messages;
use super::progress::Progress;
use crate::files::PrivateDir;
use crate::session::Session;
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
    /// The directory of the session's file.
    pub(super) place: PrivateDir,
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

    /// Has a new session go on with the state of the beginning.
    ///
    /// # Errors
    /// A sentence that says why it cannot.
    pub(super) async fn load(&self, session: &mut Session) -> Result<(), String> {
        let loaded = session.load(state_in(&self.place)).await.map_err(|error| with_causes(&error))?;
        if loaded.outcome == Outcome::Ok {
            return Ok(());
        }
        Err(format!("the session of {} cannot be loaded: {}", self.id, loaded.hint.unwrap_or_default()))
    }

    /// A notice of the directory in which a rollout goes on, if the conversation has named that of the beginning.
    pub(super) fn notice_of_directory(&self, new: &Path) -> Option<String> {
        let old = self.directory.to_string_lossy();
        self.messages.mention(&old).then(|| {
            format!("The working directory is {} now, with all of its files; {old} is gone.", new.display())
        })
    }
}

/// The file of the session, in its directory.
pub(super) fn state_in(place: &PrivateDir) -> PathBuf {
    place.path().join("state")
}
