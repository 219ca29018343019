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

/// The state of a session, for others that go on with it: a file in a private directory.
#[derive(Debug)]
pub(crate) struct HandedOn(PrivateDir);

impl HandedOn {
    fn file(&self) -> PathBuf {
        self.0.path().join("state")
    }
}

impl Session {
    /// Begins another session with the state of this one, by way of a [saved session](Self::save): variables, answer, history and
    /// number of calls. It has the settings of this one, a control directory of its own, and its own end. This session goes on.
    ///
    /// # Errors
    /// As for [`Self::start`] and [`Self::save`]. [`SessionError::Branch`] if the state could not be saved or loaded. Nothing of the
    /// branch is left then, and this session is as it was.
    pub async fn branch(&mut self, directory: &BranchDirectory) -> Result<Branch, SessionError> {
        let mut config =
            SessionConfig { control_dir: None, clock: CallClock::default(), ..self.config.clone() };
        if let BranchDirectory::Copied(copy) = directory {
            config.fs_root.clone_from(copy);
        }
        let (state, saved) = self.hand_on(*directory != BranchDirectory::Shared).await?;
        let mut session = Self::start(config).await?;
        let loaded = session.take_over(&state).await?;
        Ok(Branch { session, saved, loaded })
    }

    /// Saves the state for other sessions, with the directory or without.
    ///
    /// # Errors
    /// As for [`Self::save`]. [`SessionError::Branch`] if nothing was saved.
    pub(crate) async fn hand_on(&mut self, directory: bool) -> Result<(HandedOn, Response), SessionError> {
        let place = PrivateDir::create().map_err(io_error("make a private directory for the state"))?;
        let state = HandedOn(place);
        let saved = self.save_to(&state.file(), directory).await?;
        Ok((state, succeeded(saved)?))
    }

    /// Goes on with the state that another session has handed on.
    ///
    /// # Errors
    /// As for [`Self::load`]. [`SessionError::Branch`] if it cannot be loaded.
    pub(crate) async fn take_over(&mut self, state: &HandedOn) -> Result<Response, SessionError> {
        succeeded(self.load(state.file()).await?)
    }
}

fn succeeded(response: Response) -> Result<Response, SessionError> {
    match response.outcome {
        Outcome::Ok => Ok(response),
        _ => Err(SessionError::Branch(response.hint.unwrap_or_default())),
    }
}
