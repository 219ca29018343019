//! The control directory: where a host and its worker meet.
//!
//! | name | what | made by |
//! | --- | --- | --- |
//! | `rlm_context.json` | the session's directory | host, before start |
//! | `rlm_cmd`, `rlm_res` | the FIFOs, mode 0600 | worker |
//! | `rlm_ready` | `ready`, once a call can be taken; removed at the worker's end | worker |
//! | `rlm_answer.json` | the latest answer, replaced atomically | worker |
//! | `rlm_history.jsonl` | one line for each executed call, appended | worker |
//! | `rlm_worker.log` | what the worker has to say to people | worker |

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::Mode;
use serde::Serialize;

use crate::protocol::{Answer, Context, HistoryEntry};

/// A file operation that failed, with its path.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}", path.display())]
pub struct ControlError {
    operation: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl ControlError {
    /// The file that the operation was about.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

type Result<T> = std::result::Result<T, ControlError>;

/// The paths of a control directory, and the operations on its files.
#[derive(Clone, Debug)]
pub struct ControlDir {
    dir: PathBuf,
}

impl ControlDir {
    /// Names a directory. Nothing is read or made yet.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The FIFO of requests.
    #[must_use]
    pub fn command_fifo(&self) -> PathBuf {
        self.dir.join("rlm_cmd")
    }

    /// The FIFO of responses.
    #[must_use]
    pub fn response_fifo(&self) -> PathBuf {
        self.dir.join("rlm_res")
    }

    /// The flag that says that a call can be taken.
    #[must_use]
    pub fn ready_flag(&self) -> PathBuf {
        self.dir.join("rlm_ready")
    }

    /// The file that tells the worker about its session.
    #[must_use]
    pub fn context_file(&self) -> PathBuf {
        self.dir.join("rlm_context.json")
    }

    /// The latest answer.
    #[must_use]
    pub fn answer_file(&self) -> PathBuf {
        self.dir.join("rlm_answer.json")
    }

    /// The executed calls.
    #[must_use]
    pub fn history_file(&self) -> PathBuf {
        self.dir.join("rlm_history.jsonl")
    }

    /// The worker's log.
    #[must_use]
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("rlm_worker.log")
    }

    /// Writes the context file: the host's part, before it starts a worker.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write_context(&self, context: &Context) -> Result<()> {
        self.replace(&self.context_file(), context)
    }

    /// Reads what [`Self::write_context`] wrote.
    ///
    /// # Errors
    /// The file is missing, or is not a JSON object with an `fs_root`.
    pub fn read_context(&self) -> Result<Context> {
        let path = self.context_file();
        let text = fs::read(&path).map_err(|error| at("cannot read the context file", &path, error))?;
        serde_json::from_slice(&text)
            .map_err(|error| at("cannot understand the context file", &path, io::Error::from(error)))
    }

    /// Makes both FIFOs, readable and writable by this user alone, replacing whatever lies at their paths.
    ///
    /// # Errors
    /// The directory does not exist or cannot be written, or a directory lies at a FIFO's path.
    pub fn make_fifos(&self) -> Result<()> {
        for path in [self.command_fifo(), self.response_fifo()] {
            remove(&path)?;
            nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)
                .map_err(|errno| at("cannot make the FIFO", &path, errno.into()))?;
        }
        Ok(())
    }

    /// Says that a call can be taken.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn set_ready(&self) -> Result<()> {
        self.replace_bytes(&self.ready_flag(), b"ready\n")
    }

    /// Takes the ready flag back.
    ///
    /// # Errors
    /// The flag is there and cannot be removed.
    pub fn clear_ready(&self) -> Result<()> {
        remove(&self.ready_flag())
    }

    /// Replaces the answer file; a reader sees the old answer or the new one, never a part.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write_answer(&self, answer: &Answer) -> Result<()> {
        self.replace(&self.answer_file(), answer)
    }

    /// Opens the history file for appending.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open_history(&self) -> Result<History> {
        let path = self.history_file();
        let file = append(&path).map_err(|error| at("cannot open the history", &path, error))?;
        Ok(History { file, path, line: Vec::new() })
    }

    /// Opens the log file for appending.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open_log(&self) -> Result<File> {
        let path = self.log_file();
        append(&path).map_err(|error| at("cannot open the log", &path, error))
    }

    fn replace(&self, path: &Path, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(value).map_err(|error| at("cannot write", path, error.into()))?;
        self.replace_bytes(path, &text)
    }

    fn replace_bytes(&self, path: &Path, text: &[u8]) -> Result<()> {
        let mut name = path.file_name().map(OsString::from).unwrap_or_default();
        name.push(".new");
        let temporary = self.dir.join(name);
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(text))
            .and_then(|()| fs::rename(&temporary, path));
        written.map_err(|error| at("cannot write", path, error))
    }
}

/// The open history file.
#[derive(Debug)]
pub struct History {
    file: File,
    path: PathBuf,
    line: Vec<u8>,
}

impl History {
    /// Appends one call as one line, with one write.
    ///
    /// # Errors
    /// The disk is full, or the file was taken away.
    pub fn append(&mut self, entry: &HistoryEntry) -> Result<()> {
        self.line.clear();
        let written = serde_json::to_writer(&mut self.line, entry).map_err(io::Error::from).and_then(|()| {
            self.line.push(b'\n');
            self.file.write_all(&self.line)
        });
        self.line.shrink_to(64 << 10);
        written.map_err(|error| at("cannot append to the history", &self.path, error))
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn remove(path: &Path) -> Result<()> {
    match nix::unistd::unlink(path) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(at("cannot remove", path, errno.into())),
    }
}

fn at(operation: &'static str, path: &Path, source: io::Error) -> ControlError {
    ControlError { operation, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};

    use super::*;

    #[test]
    fn fifos_replace_what_lies_there() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlDir::new(dir.path());
        fs::write(control.command_fifo(), "old").unwrap();
        control.make_fifos().unwrap();
        control.make_fifos().unwrap();
        for path in [control.command_fifo(), control.response_fifo()] {
            let meta = fs::metadata(path).unwrap();
            assert!(meta.file_type().is_fifo());
            assert_eq!(meta.mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn the_answer_file_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlDir::new(dir.path());
        for content in ["a\u{1F600}\n", ""] {
            let answer = Answer { ready: content.is_empty(), content: content.to_owned() };
            control.write_answer(&answer).unwrap();
            let read: Answer = serde_json::from_slice(&fs::read(control.answer_file()).unwrap()).unwrap();
            assert_eq!(read, answer);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file was left");
    }

    #[test]
    fn an_error_names_the_path() {
        let error = ControlDir::new("/does/not/exist").make_fifos().unwrap_err();
        assert_eq!(error.to_string(), "cannot make the FIFO /does/not/exist/rlm_cmd");
        let error = ControlDir::new("/does/not/exist").read_context().unwrap_err();
        assert_eq!(error.to_string(), "cannot read the context file /does/not/exist/rlm_context.json");
    }
}
