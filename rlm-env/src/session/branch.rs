//! Sessions that go on twice.

use std::path::PathBuf;

use rlm_core::protocol::{Outcome, Response};

use super::error::io_error;
use super::{CallClock, Session, SessionConfig, SessionError};
use crate::files::PrivateDir;

/// The working directory of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchDirectory {
    /// The directory of the session that branches: each sees what the other writes.
    Shared,
    /// A copy of it, in this directory, which must be empty.
    Copied(PathBuf),
}

/// A session that began with the state of another one.
#[derive(Debug)]
pub struct Branch {
    /// The new session.
    pub session: Session,
    /// The response to the save, whose `hint` names what the branch has not.
    pub saved: Response,
    /// The response to the load.
    pub loaded: Response,
}

impl Session {
    /// Begins another session with the state of this one, by way of a [saved session](Self::save): variables, answer, history and
    /// number of calls. It has the settings of this one, a control directory of its own, and its own end. This session goes on.
    ///
    /// # Errors
    /// As for [`Self::start`] and [`Self::save`]. [`SessionError::Branch`] if the state could not be saved or loaded. Nothing of the
    /// branch is left then, and this session is as it was.
    pub async fn branch(&mut self, directory: &BranchDirectory) -> Result<Branch, SessionError> {
        let config = SessionConfig { control_dir: None, clock: CallClock::default(), ..self.config.clone() };
        let (config, is_copied) = match directory {
            BranchDirectory::Shared => (config, false),
            BranchDirectory::Copied(copy) => (SessionConfig { fs_root: copy.clone(), ..config }, true),
        };
        self.branch_into(config, is_copied).await
    }

    /// Like [`Self::branch`], with these settings. `copies_files`: into their working directory, which must be empty.
    ///
    /// # Errors
    /// As for [`Self::branch`].
    pub async fn branch_into(
        &mut self,
        config: SessionConfig,
        copies_files: bool,
    ) -> Result<Branch, SessionError> {
        let place =
            PrivateDir::create().map_err(io_error("make a private directory for the state of the branch"))?;
        let file = place.path().join("state");
        let saved = self.save_to(&file, copies_files).await?;
        if saved.outcome != Outcome::Ok {
            return Err(SessionError::Branch(saved.hint.unwrap_or_default()));
        }
        let mut session = Self::start(config).await?;
        let loaded = session.load(&file).await?;
        if loaded.outcome != Outcome::Ok {
            return Err(SessionError::Branch(loaded.hint.unwrap_or_default()));
        }
        Ok(Branch { session, saved, loaded })
    }
}
