//! Sessions that go on twice.

use std::path::{Path, PathBuf};

use rlm_core::error::with_causes;
use rlm_core::ids;
use rlm_core::protocol::{Outcome, Response, State};

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
    /// True if it was forked. Otherwise the state was saved, and loaded by a new worker.
    pub is_forked: bool,
    /// The response of this session to the fork, or of the new one to the load. Its `hint` names what the branch has not, and says why it
    /// was not forked.
    pub response: Response,
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
    /// Begins another session with the state of this one: variables, answer, history and number of calls. It has the settings of this
    /// one, a control directory of its own, and its own end. This session goes on.
    ///
    /// The interpreter is forked where it can be, which takes along all that is in its memory. Otherwise the state is passed by way of a
    /// [saved session](Self::save).
    ///
    /// # Errors
    /// As for [`Self::start`] and [`Self::save`]. [`SessionError::Branch`] if the state could not be saved or loaded. Nothing of the
    /// branch is left then, and this session is as it was.
    pub async fn branch(&mut self, directory: &BranchDirectory) -> Result<Branch, SessionError> {
        let copy = match directory {
            BranchDirectory::Copied(copy) => Some(&**copy),
            BranchDirectory::Shared => None,
        };
        let (config, has_directory) = (self.config_of_branch(copy), copy.is_some());
        let not_forked = match self.fork(config.clone(), has_directory).await? {
            Ok(branch) => return Ok(branch),
            Err(reason) => format!("it was saved and loaded, not forked: {reason}"),
        };
        let (state, saved) = self.hand_on(has_directory).await?;
        let mut session = Self::start(config).await?;
        let mut response = session.take_over(&state).await?;
        let hints = [Some(not_forked), saved.hint, response.hint.take()].into_iter().flatten();
        response.hint = hints.reduce(|hints, hint| format!("{hints}; {hint}"));
        Ok(Branch { session, is_forked: false, response })
    }

    /// A fork of this session that waits, with a copy of its directory in this empty one. None: it cannot be forked.
    pub(crate) async fn fork_for_later(&mut self, copy: Option<&Path>) -> Result<Option<Self>, SessionError> {
        let config = SessionConfig { output: None, ..self.config_of_branch(copy) };
        Ok(self.fork(config, copy.is_some()).await?.ok().map(|branch| branch.session))
    }

    /// The settings of a branch, in the same directory or in a copy.
    fn config_of_branch(&self, copy: Option<&Path>) -> SessionConfig {
        let config = self.config.clone();
        let fs_root = copy.map_or(config.fs_root, Path::to_owned);
        SessionConfig { control_dir: None, clock: CallClock::default(), fs_root, ..config }
    }

    /// Begins another session as a fork of this one. Inner `Err`: the reason why it cannot be, in words.
    pub(crate) async fn fork(
        &mut self,
        config: SessionConfig,
        directory: bool,
    ) -> Result<Result<Branch, String>, SessionError> {
        let name = format!("rlm-branch-{}", ids::unique().map_err(io_error("name the branch"))?);
        self.ask(serde_json::json!({"op": "branch", "name": name, "directory": directory}));
        let response = self.response_within(self.state_limit()).await?;
        if response.state != State::Kept {
            // There is nothing to hand on.
            return Err(SessionError::Branch(response.hint.unwrap_or_default()));
        }
        if response.outcome != Outcome::Ok {
            return Ok(Err(response.hint.unwrap_or_default()));
        }
        Ok(match Self::begin(config, Some(&name)).await {
            Ok(mut session) => {
                session.last_answer = response.answer.clone();
                session.executions = response.execution_count;
                Ok(Branch { session, is_forked: true, response })
            }
            Err(error) => Err(with_causes(&error)),
        })
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
