//! Directories for one test, and a mark on every process that it starts there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::unistd::Pid;
use tempfile::TempDir;

use crate::process::{assert_no_marked_process, marked_processes, marking};
use crate::{default_python, program};

/// A place for programs: the directories `work`, `tmp` and `home`, without any files of the user. Programs started by
/// [`Self::command`] carry the place's mark, and so do the sessions that they start. When it is dropped, no process and no
/// temporary file may be left.
#[derive(Debug)]
pub struct Place {
    dir: TempDir,
    mark: String,
}

impl Place {
    /// Creates the directories.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes directories")]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["work", "tmp", "home"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mark = format!("place-{}", dir.path().display());
        Self { dir, mark }
    }

    /// A path in the place: `work`, `tmp`, `home` or another.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The path of a file in `work`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path("work").join(name)
    }

    /// Writes a file in `work`.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.file(name), text).unwrap();
        self.file(name)
    }

    /// Reads a file in `work`.
    #[must_use]
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    /// The variables in the environment of every process of the place.
    #[must_use]
    pub fn mark(&self) -> [(&'static str, &str); 2] {
        marking(&self.mark)
    }

    /// A program in an environment with only the mark, a directory for temporary files, a `PATH` and a Python.
    #[must_use]
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", crate::variable("PATH").unwrap_or_default())
            .env("TMPDIR", self.path("tmp"))
            .env("RLM_PYTHON", default_python())
            .envs(self.mark());
        command
    }

    /// A program in the directory `work`, with `home` as its home directory and piped standard streams.
    #[must_use]
    pub fn at_work(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.command(program);
        command
            .current_dir(self.path("work"))
            .env("HOME", self.path("home"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// [`Self::at_work`] for `rlm`.
    #[must_use]
    pub fn rlm(&self, args: &[&str]) -> Command {
        let mut command = self.at_work(program("rlm"));
        command.args(args);
        command
    }

    /// Removes what a killed program left below its directory for temporary files, which only it could remove.
    ///
    /// # Panics
    /// It cannot be removed.
    pub fn remove_temporary(&self) {
        for left in fs::read_dir(self.path("tmp")).unwrap() {
            fs::remove_dir_all(left.unwrap().path()).unwrap();
        }
    }

    /// The running processes of the place.
    #[must_use]
    pub fn processes(&self) -> Vec<(Pid, String)> {
        marked_processes(&self.mark)
    }

    /// Checks that no process and no temporary file is left, before the end of the place.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        assert_no_marked_process(&self.mark);
        let left: Vec<_> = fs::read_dir(self.path("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.assert_nothing_left();
        }
    }
}
