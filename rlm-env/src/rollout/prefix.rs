//! The beginning of a rollout, from which several go on.
//!
//! A prefix is a rollout that ends after so many turns. It keeps what the next turn needs: the conversation, its progress, and the
//! session: forked if it can be, and in a file, with its directory. A rollout whose configuration names it begins there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rlm_rootd::{Budget, Left};
use tokio::sync::Mutex;

use super::conversation::Messages;
use super::progress::Progress;
use crate::files::PrivateDir;
use crate::session::{HandedOn, Session, SessionConfig, SessionError};
use crate::terms::CallForm;
use crate::workspace::Summary;

/// The beginning of a rollout: its conversation, and its session.
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
    /// The session itself, if it could be forked.
    pub(super) session: Option<Mutex<Kept>>,
}

/// A fork of the session, which waits to be forked again. Field order is drop order: the worker first, the directory last.
#[derive(Debug)]
pub(super) struct Kept {
    session: Session,
    directory: Option<PrivateDir>,
}

impl Kept {
    /// Forks the session that works in this directory, with a copy of it if `is_own`. None: it cannot be forked, as most in bash.
    pub(super) async fn of(session: &mut Session, is_own: bool) -> Result<Option<Self>, SessionError> {
        let directory = is_own.then(PrivateDir::create).transpose();
        let Ok(directory) = directory else { return Ok(None) };
        let forked = session.fork_for_later(directory.as_ref().map(PrivateDir::path)).await?;
        Ok(forked.map(|session| Self { session, directory }))
    }
}

impl Prefix {
    /// The session of a rollout that goes on.
    ///
    /// # Errors
    /// As for [`Session::start`] and [`Session::load`].
    pub(super) async fn begin(&self, config: SessionConfig) -> Result<Session, SessionError> {
        if let Some(kept) = &self.session {
            let mut kept = kept.lock().await;
            let is_own = kept.directory.is_some();
            // Otherwise the state is loaded, for instance because somebody has killed the worker.
            if let Ok(Ok(branch)) = kept.session.fork(config.clone(), is_own).await {
                return Ok(branch.session);
            }
        }
        let mut session = Session::start(config).await?;
        session.take_over(&self.state).await?;
        Ok(session)
    }

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
