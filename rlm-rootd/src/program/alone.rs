//! A program that is not a tool: the same run, in the hands of another crate.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::lookup::{Variables, find, usual_variables};
use super::run::{ProgramOutput, RunError, run};
use super::spawner::Spawner;

/// A program that can be run many times, also at once. It gets no arguments, and of the environment only the variables that a
/// tool gets: no keys.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    dir: PathBuf,
    env: Variables,
    spawner: Spawner,
}

/// Why a program has no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// There is no such program.
    #[error("{0}")]
    NotFound(String),
    /// The thread that starts programs cannot be started.
    #[error("no programs can be started: {0}")]
    Spawner(#[source] io::Error),
    /// The program could not be started, lost its connection, or wrote too much.
    #[error("the program {0}")]
    Failed(String),
    /// The program ran for too long.
    #[error("the program timed out after {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

impl From<RunError> for ProgramError {
    fn from(error: RunError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Program {
    /// Finds a program, which is to run in `dir`: a path with a slash is relative to `dir`, a name is looked up on PATH.
    ///
    /// # Errors
    /// [`ProgramError::NotFound`], [`ProgramError::Spawner`].
    pub fn find(
        program: &str,
        dir: &Path,
        environment: &BTreeMap<OsString, OsString>,
    ) -> Result<Self, ProgramError> {
        let path = find(program, dir, environment).map_err(ProgramError::NotFound)?;
        let spawner = Spawner::start().map_err(ProgramError::Spawner)?;
        Ok(Self { path, dir: dir.to_owned(), env: usual_variables(environment), spawner })
    }

    /// Runs the program with this standard input. Its process group is killed when it has ended, at the time limit, when it
    /// writes more than `max_output` bytes, and when the future is dropped.
    ///
    /// # Errors
    /// [`ProgramError`]. An exit status other than 0 is not an error.
    pub async fn run(
        &self,
        input: Vec<u8>,
        max_output: usize,
        limit: Duration,
    ) -> Result<ProgramOutput, ProgramError> {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.dir).env_clear().envs(&self.env);
        let running = run(&self.spawner, command, input, max_output);
        let ran = tokio::time::timeout(limit, running).await;
        Ok(ran.map_err(|_late| ProgramError::TimedOut(limit))??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_stopped_and_one_that_is_missing_is_named() {
        let environment = BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let cat = Program::find("cat", Path::new("/"), &environment).unwrap();
        let ran = cat.run(b"x".to_vec(), 10, Duration::from_secs(60)).await.unwrap();
        assert_eq!((ran.status.code(), ran.output.as_slice()), (Some(0), &b"x"[..]));
        let limit = Duration::from_millis(1);
        let sh = Program::find("sh", Path::new("/"), &environment).unwrap();
        let late = sh.run(b"exec sleep 1000".to_vec(), 10, limit).await.unwrap_err();
        assert_eq!(late.to_string(), "the program timed out after 0.001 s");
        let much = cat.run(vec![b'x'; 100], 10, Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(much.to_string(), "the program wrote more than 10 bytes");
        let missing = |name| Program::find(name, Path::new("/"), &environment).unwrap_err().to_string();
        assert_eq!(missing("no-such"), "no program no-such on PATH");
        assert_eq!(missing("./no-such"), "./no-such is not a program");
    }
}
