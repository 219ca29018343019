//! Sessions in files.
//!
//! A worker reads and writes the file itself. A confined one reaches it only in its control directory, so the file is copied.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::libc;
use rlm_core::env;
use rlm_core::limits::OPERATION_LIMIT;
use rlm_core::protocol::{Confine, Outcome, Response};

use super::Session;
use super::error::{SessionError, io_error};

/// Name of the copy in the control directory.
const COPY: &str = "rlm_saved";

impl Session {
    /// Writes the session's state to a file, which replaces one that is there once it is whole. The session goes on. The
    /// response's `result` is JSON, with what could not be saved; if nothing was, its outcome is not `ok`, and `hint` says why.
    ///
    /// # Errors
    /// As for [`Self::execute`].
    pub async fn save(&mut self, file: impl AsRef<Path>) -> Result<Response, SessionError> {
        self.save_to(file.as_ref(), false).await
    }

    /// Like [`Self::save`], with the session's directory: [`Self::load`] unpacks it, into an empty one.
    ///
    /// # Errors
    /// As for [`Self::execute`].
    pub async fn save_with_directory(&mut self, file: impl AsRef<Path>) -> Result<Response, SessionError> {
        self.save_to(file.as_ref(), true).await
    }

    pub(super) async fn save_to(&mut self, file: &Path, directory: bool) -> Result<Response, SessionError> {
        let file = std::path::absolute(file).map_err(io_error("find the working directory"))?;
        let Some(copy) = self.copy_of(&file) else { return self.pass("save", &file, directory).await };
        let response = self.pass("save", Path::new(COPY), directory).await?;
        if response.outcome == Outcome::Ok {
            copied(&copy, &file).map_err(io_error("copy the saved session from the control directory"))?;
        }
        let _never_made = fs::remove_file(&copy);
        Ok(response)
    }

    /// Ends everything that the session started, and goes on with the session in a file: in this session's directory, with its
    /// root tools and limits. The state in the file is a program, which runs with the rights of the session. If it cannot be
    /// loaded, the outcome is not `ok`, `hint` says why, and the session is as it was.
    ///
    /// # Errors
    /// As for [`Self::execute`].
    pub async fn load(&mut self, file: impl AsRef<Path>) -> Result<Response, SessionError> {
        let file = std::path::absolute(file).map_err(io_error("find the working directory"))?;
        let Some(copy) = self.copy_of(&file) else { return self.pass("load", &file, false).await };
        copied(&file, &copy).map_err(io_error("copy the saved session to the control directory"))?;
        let response = self.pass("load", Path::new(COPY), false).await;
        let _never_made = fs::remove_file(&copy);
        response
    }

    async fn pass(&mut self, op: &str, file: &Path, directory: bool) -> Result<Response, SessionError> {
        let mut request = serde_json::json!({"op": op, "file": file.to_string_lossy()});
        if directory {
            request["directory"] = true.into();
        }
        self.ask(request);
        self.response_within(self.state_limit()).await
    }

    /// Time limit of a request that passes on the state.
    pub(super) fn state_limit(&self) -> Option<Duration> {
        self.config.exec_timeout.map(|limit| limit + OPERATION_LIMIT + self.config.margin)
    }

    /// The path of a copy for the worker, if it does not reach the file, or its name is not UTF-8.
    fn copy_of(&self, file: &Path) -> Option<PathBuf> {
        let of_env = || self.config.env.iter().rev().find(|(name, _)| name == env::CONFINE);
        let confined = match self.config.confine {
            Some(confine) => confine != Confine::Off,
            None => of_env().is_some_and(|(_, value)| !value.is_empty() && value != "off"),
        };
        (confined || file.to_str().is_none()).then(|| self.control.path().join(COPY))
    }
}

/// Copies a file, and replaces what is there once the copy is whole. Links are what code has planted.
fn copied(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(from)?;
    if !from.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let new = to.with_added_extension("new");
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let mut copy = || -> io::Result<()> {
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags);
        io::copy(&mut from, &mut options.open(&new)?)?;
        fs::rename(&new, to)
    };
    copy().inspect_err(|_error| {
        let _never_made = fs::remove_file(&new);
    })
}
