//! The configuration of sessions and of calls.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rlm_core::protocol::Confine;

use super::clock::CallClock;
use super::live::OutputObserver;

/// The configuration of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The worker program.
    pub worker: PathBuf,
    /// Arguments of the worker besides those of the session.
    pub arguments: Vec<OsString>,
    /// The session's working directory.
    pub fs_root: PathBuf,
    /// The control directory, which must exist. None: a private one, removed with the session. An `rlm_answer.json` in it is
    /// the answer that the session begins with; [`Session::restart`](crate::Session::restart) begins with an empty one.
    pub control_dir: Option<PathBuf>,
    /// The worker's whole environment. The session adds `RLM_HOST_PID` and the variables of limits that are set.
    pub env: Vec<(OsString, OsString)>,
    /// Time limit of calls that do not set one. None: no limit.
    pub exec_timeout: Option<Duration>,
    /// The part of this host that the session may reach. None: `RLM_CONFINE` of `env`, off by default.
    pub confine: Option<Confine>,
    /// Bound on the output returned per stream, in bytes. None: the worker's default.
    pub max_output_bytes: Option<usize>,
    /// A description of the files for Python sessions; null by default.
    pub fs_metadata: serde_json::Value,
    /// Paths outside the working directory that the jail of Python sessions (`RLM_FS_JAIL`) leaves open.
    pub allowed_paths: Vec<PathBuf>,
    /// Time beyond the worker's own limit after which the worker is replaced. Default 5 s: the worker's ladder takes up
    /// to 2 s, and the machine may be busy.
    pub margin: Duration,
    /// Watches the output of calls as it comes; nobody by default.
    pub output: Option<Arc<dyn OutputObserver>>,
    /// The clock of the calls.
    pub clock: CallClock,
    /// Time limit of the worker's start. Default 60 s, for machines that start hundreds at once.
    pub start_limit: Duration,
}

impl SessionConfig {
    /// The defaults for a worker program and a working directory.
    #[must_use]
    pub fn new(worker: impl Into<PathBuf>, fs_root: impl Into<PathBuf>) -> Self {
        Self {
            worker: worker.into(),
            arguments: Vec::new(),
            fs_root: fs_root.into(),
            control_dir: None,
            env: Vec::new(),
            exec_timeout: None,
            confine: None,
            max_output_bytes: None,
            fs_metadata: serde_json::Value::Null,
            allowed_paths: Vec::new(),
            margin: Duration::from_secs(5),
            output: None,
            clock: CallClock::default(),
            start_limit: Duration::from_secs(60),
        }
    }
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// The code to run.
    pub code: String,
    /// The code as written, if it differs from the code that runs: see [`rlm_core::protocol::Execute`].
    pub source: Option<String>,
    /// Time limit of this call; the session's when None.
    pub timeout: Option<Duration>,
    /// Bound on this call's output in bytes; the session's when None.
    pub max_output_bytes: Option<usize>,
}

impl From<&str> for Call {
    fn from(code: &str) -> Self {
        Self { code: code.to_owned(), ..Self::default() }
    }
}
