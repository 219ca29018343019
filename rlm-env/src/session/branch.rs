//! Sessions that go on twice.

use std::fs;
use std::path::{Path, PathBuf};

use rlm_core::error::with_causes;
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
        let mut config =
            SessionConfig { control_dir: None, clock: CallClock::default(), ..self.config.clone() };
        if let BranchDirectory::Copied(copy) = directory {
            config.fs_root.clone_from(copy);
        }
        let has_directory = *directory != BranchDirectory::Shared;
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
        let mut config = SessionConfig {
            control_dir: None,
            clock: CallClock::default(),
            output: None,
            ..self.config.clone()
        };
        if let Some(copy) = copy {
            config.fs_root = copy.to_owned();
        }
        Ok(self.fork(config, copy.is_some()).await?.ok().map(|branch| branch.session))
    }

    /// Begins another session as a fork of this one. Inner `Err`: the reason why it cannot be, in words.
    pub(crate) async fn fork(
        &mut self,
        config: SessionConfig,
        directory: bool,
    ) -> Result<Result<Branch, String>, SessionError> {
        let random =
            fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(io_error("name the branch"))?;
        let name = format!("rlm-branch-{}", random.trim());
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
