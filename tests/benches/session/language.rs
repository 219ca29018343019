//! The worker to measure, and its interpreter without a worker.

use std::path::{Path, PathBuf};
use std::process::Command;

use rlm_env::SessionConfig;
use rlm_tests::{Setup, Worker, default_python, program};
use tempfile::TempDir;

/// Environment of every worker here, and of every interpreter that serves as a floor.
pub(crate) const ENVIRONMENT: [(&str, &str); 3] =
    [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/"), ("LANG", "C.UTF-8")];

/// A language, with the interpreter that its worker runs.
pub(crate) enum Language {
    Bash(PathBuf),
    Python(PathBuf),
}

impl Language {
    /// The bash that the worker finds, as a path: a name on a `PATH` other than ours would make the floor's spawn
    /// slower.
    pub(crate) fn bash() -> Self {
        let found =
            std::env::split_paths(ENVIRONMENT[0].1).map(|dir| dir.join("bash")).find(|bash| bash.is_file());
        Self::Bash(found.expect("the workers need a bash as well"))
    }

    /// The default Python of the tests.
    pub(crate) fn python() -> Self {
        Self::Python(default_python())
    }

    /// Path of the interpreter.
    pub(crate) fn interpreter(&self) -> &Path {
        let (Self::Bash(program) | Self::Python(program)) = self;
        program
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Bash(_) => "bash",
            Self::Python(_) => "Python",
        }
    }

    /// A call that does almost nothing.
    pub(crate) fn least_call(&self) -> &'static str {
        match self {
            Self::Bash(_) => ":",
            Self::Python(_) => "1+1",
        }
    }

    pub(crate) fn worker(&self) -> Worker {
        match self {
            Self::Bash(_) => Worker::bash(),
            Self::Python(python) => Setup::python_at(python).start(),
        }
    }

    /// The worker program, without its control directory.
    pub(crate) fn worker_command(&self) -> Command {
        let mut command = Command::new(self.worker_program());
        if let Self::Python(python) = self {
            command.arg("--python").arg(python);
        }
        command.env_clear().envs(ENVIRONMENT);
        command
    }

    /// Settings for a session whose working directory is `fs_root`.
    pub(crate) fn session_config(&self, fs_root: &TempDir) -> SessionConfig {
        let mut config = SessionConfig::new(self.worker_program(), fs_root.path());
        config.env = ENVIRONMENT.map(|(name, value)| (name.into(), value.into())).to_vec();
        if let Self::Python(python) = self {
            config.env.push(("RLM_PYTHON".into(), python.into()));
        }
        config
    }

    /// The interpreter without a worker, with code to run.
    pub(crate) fn bare_command(&self, code: &str) -> Command {
        let options: &[&str] = match self {
            Self::Bash(_) => &["--noprofile", "--norc", "-c"],
            Self::Python(_) => &["-I", "-c"],
        };
        let mut command = Command::new(self.interpreter());
        command.args(options).arg(code).env_clear().envs(ENVIRONMENT);
        command
    }

    fn worker_program(&self) -> PathBuf {
        program(match self {
            Self::Bash(_) => "rlm-worker-bash",
            Self::Python(_) => "rlm-worker-python",
        })
    }
}
