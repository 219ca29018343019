//! The control directory, where a host and its worker meet.
//!
//! | name | what | made by |
//! | --- | --- | --- |
//! | `rlm_context.json` | the session's directory | host, before start |
//! | `rlm_cmd`, `rlm_res` | the FIFOs, mode 0600 | worker |
//! | `rlm_stdout`, `rlm_stderr` | FIFOs for output as it comes, if the host wants it | host, before start |
//! | `rlm_ready` | `ready`, once a call can be taken; removed at the worker's end | worker |
//! | `rlm_answer.json` | the latest answer, replaced atomically; before the start, the answer to begin with | worker, host |
//! | `rlm_history.jsonl` | one line for each executed call, appended | worker |
//! | `rlm_clock` | how long the clock of the running call has stood still; only where it has | host |
//! | `rlm_worker.log` | what the worker has to say to people | worker |

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::{self, File, FileType, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::Mode;
use serde::Serialize;
use serde_json::Value;

use crate::jsonl;
use crate::protocol::{Answer, CallClock, Context, HistoryEntry};

/// Open flags for our own files: never block on or follow something that the session planted there.
const OWN_FILE_FLAGS: i32 = libc::O_NONBLOCK | libc::O_NOFOLLOW;

/// Most directories that are moved aside for one path.
const MAX_BACKUPS: usize = 100;

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
    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the file, or the directory that it belongs in, does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

type Result<T> = std::result::Result<T, ControlError>;

/// The paths of a control directory, and the operations on its files.
#[derive(Clone, Debug)]
pub struct ControlDir {
    dir: PathBuf,
    /// Links are what code has planted.
    has_no_links: bool,
}

impl ControlDir {
    /// Names a directory. Nothing is read or created yet.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), has_no_links: false }
    }

    /// Follows no links in the directory: code can write to the directory, but not to what its links would lead to.
    #[must_use]
    pub fn without_links(self) -> Self {
        Self { has_no_links: true, ..self }
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The FIFO for requests.
    #[must_use]
    pub fn command_fifo(&self) -> PathBuf {
        self.dir.join("rlm_cmd")
    }

    /// The FIFO for requests, until it has a reader.
    #[must_use]
    pub fn new_command_fifo(&self) -> PathBuf {
        temporary(&self.command_fifo())
    }

    /// The FIFO for responses.
    #[must_use]
    pub fn response_fifo(&self) -> PathBuf {
        self.dir.join("rlm_res")
    }

    /// The FIFO that takes the place of the one for responses, until it does.
    #[must_use]
    pub fn spare_response_fifo(&self) -> PathBuf {
        temporary(&self.response_fifo())
    }

    /// The FIFO for standard output as it comes, or for the terminal's text.
    #[must_use]
    pub fn stdout_fifo(&self) -> PathBuf {
        self.dir.join("rlm_stdout")
    }

    /// The FIFO for standard error as it comes.
    #[must_use]
    pub fn stderr_fifo(&self) -> PathBuf {
        self.dir.join("rlm_stderr")
    }

    /// The directory for temporary files of a session that has no `/tmp` of its own and may not write to the host's.
    #[must_use]
    pub fn tmp_dir(&self) -> PathBuf {
        self.dir.join("rlm_tmp")
    }

    /// The file that exists while a call can be taken.
    #[must_use]
    pub fn ready_flag(&self) -> PathBuf {
        self.dir.join("rlm_ready")
    }

    /// The file that describes the session to its worker.
    #[must_use]
    pub fn context_file(&self) -> PathBuf {
        self.dir.join("rlm_context.json")
    }

    /// The latest answer.
    #[must_use]
    pub fn answer_file(&self) -> PathBuf {
        self.dir.join("rlm_answer.json")
    }

    /// The history of executed calls.
    #[must_use]
    pub fn history_file(&self) -> PathBuf {
        self.dir.join("rlm_history.jsonl")
    }

    /// The worker's log.
    #[must_use]
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("rlm_worker.log")
    }

    /// Writes the context file: the host does so before it starts a worker.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write_context(&self, context: &Context) -> Result<()> {
        self.replace(&self.context_file(), context)
    }

    /// Reads the context file.
    ///
    /// # Errors
    /// The file is missing, or is not a JSON object with an `fs_root`.
    pub fn read_context(&self) -> Result<Context> {
        let path = self.context_file();
        let text = read(&path).map_err(|error| at("cannot read the context file", &path, error))?;
        let parsed = serde_json::from_slice(&text).map_err(io::Error::from).and_then(|value: Value| {
            check_fs_root(&value)?;
            Ok(serde_json::from_value(value)?)
        });
        parsed.map_err(|error| at("cannot understand the context file", &path, error))
    }

    /// Reads the answer file; None if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read, or is not an answer.
    pub fn read_answer(&self) -> Result<Option<Answer>> {
        let path = self.answer_file();
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at("cannot read the answer file", &path, error)),
        };
        let parsed = serde_json::from_slice(&text).map(Some);
        parsed.map_err(|error| at("cannot understand the answer file", &path, io::Error::from(error)))
    }

    /// The clock of the running call.
    #[must_use]
    pub fn clock_file(&self) -> PathBuf {
        self.dir.join("rlm_clock")
    }

    /// Says how long the clock of the running call has stood still; None for a call whose clock has not.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write_clock(&self, clock: Option<&CallClock>) -> Result<()> {
        match clock {
            Some(clock) => self.replace(&self.clock_file(), clock),
            None => remove(&self.clock_file()),
        }
    }

    /// Reads what the host has said of the clock; None if that is nothing, or cannot be understood.
    #[must_use]
    pub fn read_clock(&self) -> Option<CallClock> {
        serde_json::from_slice(&read(&self.clock_file()).ok()?).ok()
    }

    /// Makes the directory usable again for a new worker, whatever a session has done to it: it exists, belongs to us,
    /// and holds at our paths only files of the right kind. Directories at those paths are moved aside. The answer is
    /// removed, so that the new session begins with an empty one.
    ///
    /// # Errors
    /// The directory cannot be created, or an entry cannot be moved.
    pub fn repair(&self) -> Result<()> {
        let cannot = |error| at("cannot repair the control directory", &self.dir, error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(cannot)?;
        fs::set_permissions(&self.dir, Permissions::from_mode(0o700)).map_err(cannot)?;
        let files =
            [self.ready_flag(), self.context_file(), self.history_file(), self.log_file(), self.clock_file()];
        for path in &files {
            clear_unless(path, |kind| kind.is_file() || kind.is_symlink())?;
        }
        let fifos =
            [self.command_fifo(), self.new_command_fifo(), self.response_fifo(), self.spare_response_fifo()];
        for path in fifos {
            clear_unless(&path, |kind| kind.is_fifo())?;
        }
        for path in [self.answer_file(), temporary(&self.answer_file())] {
            clear_unless(&path, |_| false)?;
        }
        Ok(())
    }

    /// Sets the ready flag: a call can be taken.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn set_ready(&self) -> Result<()> {
        self.replace_bytes(&self.ready_flag(), b"ready\n")
    }

    /// Removes the ready flag.
    ///
    /// # Errors
    /// The flag exists and cannot be removed.
    pub fn clear_ready(&self) -> Result<()> {
        remove(&self.ready_flag())
    }

    /// Replaces the answer file. A reader sees the old answer or the new one, never a part.
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
        let opened = self.append_to(&path)?.read(true).open(&path);
        let file = opened.map_err(|error| at("cannot open the history", &path, error))?;
        Ok(History { file, path, may_be_unfinished: true, session_start: 0 })
    }

    /// Opens the log file for appending.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open_log(&self) -> Result<File> {
        let path = self.log_file();
        self.append_to(&path)?.open(&path).map_err(|error| at("cannot open the log", &path, error))
    }

    /// Opens files for appending. Never blocks on something that a session planted there. A link is followed where a host may have
    /// put it there, and otherwise removed.
    fn append_to(&self, path: &Path) -> Result<OpenOptions> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK);
        if self.has_no_links {
            clear_unless(path, |kind| !kind.is_symlink())?;
            options.custom_flags(OWN_FILE_FLAGS);
        }
        Ok(options)
    }

    fn replace(&self, path: &Path, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(value).map_err(|error| at("cannot write", path, error.into()))?;
        self.replace_bytes(path, &text)
    }

    fn replace_bytes(&self, path: &Path, text: &[u8]) -> Result<()> {
        let temporary = temporary(path);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(OWN_FILE_FLAGS);
        let opened = options.open(&temporary).or_else(|error| {
            // Code may have put something else there.
            clear_unless(&temporary, |kind| kind.is_file()).map_err(|_| error)?;
            options.open(&temporary)
        });
        let written =
            opened.and_then(|mut file| file.write_all(text)).and_then(|()| fs::rename(&temporary, path));
        written.map_err(|error| {
            // If the disk is full, the file's bytes are needed.
            let _never_made = fs::remove_file(&temporary);
            at("cannot write", path, error)
        })
    }
}

/// The open history file.
#[derive(Debug)]
pub struct History {
    file: File,
    path: PathBuf,
    /// A worker that was killed, or an append that failed, may have left a part of a line.
    may_be_unfinished: bool,
    /// Offset of the first line of the session that was loaded.
    session_start: u64,
}

impl History {
    /// Appends one call as one line, or nothing.
    ///
    /// # Errors
    /// For example, the disk is full.
    pub fn append(&mut self, entry: &HistoryEntry) -> Result<()> {
        self.append_line(entry).map_err(|error| at("cannot append to the history", &self.path, error))
    }

    /// The file, and the place of the lines that led to the state of the session: those before a load did not.
    #[must_use]
    pub fn of_session(&self) -> (&File, Range<u64>) {
        let end = self.file.metadata().map_or(0, |metadata| metadata.len());
        (&self.file, self.session_start.min(end)..end)
    }

    /// Appends the history of a session that was loaded: the whole lines among the first bytes of another file.
    ///
    /// # Errors
    /// For example, the disk is full.
    pub fn append_loaded(&mut self, lines: &File, bytes: u64) -> Result<()> {
        let append = || -> io::Result<u64> {
            let mut text = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
            lines.read_exact_at(&mut text, 0)?;
            text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
            jsonl::remove_unfinished_line(&self.file)?;
            let start = self.file.metadata()?.len();
            jsonl::append(&self.file, &text)?;
            Ok(start)
        };
        self.session_start =
            append().map_err(|error| at("cannot append to the history", &self.path, error))?;
        Ok(())
    }

    fn append_line(&mut self, entry: &HistoryEntry) -> io::Result<()> {
        if self.may_be_unfinished {
            jsonl::remove_unfinished_line(&self.file)?;
        }
        self.may_be_unfinished = true;
        jsonl::append(&self.file, &jsonl::line(entry)?)?;
        self.may_be_unfinished = false;
        Ok(())
    }
}

/// Creates a FIFO, readable and writable by this user alone, and replaces whatever is at the path.
///
/// # Errors
/// The directory does not exist or cannot be written, or a directory is at the path.
pub fn make_fifo(path: &Path) -> Result<()> {
    remove(path)?;
    nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|errno| at("cannot make the FIFO", path, errno.into()))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    OpenOptions::new().read(true).custom_flags(OWN_FILE_FLAGS).open(path)?.read_to_end(&mut text)?;
    Ok(text)
}

/// Checks the field of a context that hosts most often get wrong.
fn check_fs_root(context: &Value) -> io::Result<()> {
    let found = match context.get("fs_root") {
        Some(Value::String(_)) => return Ok(()),
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a boolean",
        Some(Value::Number(_)) => "a number",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
        None => "missing",
    };
    let expected = r#"expected the path of the session's directory, such as {"fs_root": "/data"}"#;
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("`fs_root` is {found}, {expected}")))
}

/// Path at which a file is written before it is renamed into place.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(".new");
    path.with_file_name(name)
}

/// Removes a file of the wrong kind from a path: a directory is moved aside, anything else is deleted.
fn clear_unless(path: &Path, belongs: impl FnOnce(FileType) -> bool) -> Result<()> {
    let cannot = |error| at("cannot clear", path, error);
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot(error)),
    };
    if belongs(kind) {
        return Ok(());
    }
    if !kind.is_dir() {
        return remove(path);
    }
    let backups = (1..).map(|number| path.with_added_extension(format!("aside{number}")));
    let free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    let Some(backup) = backups.take(MAX_BACKUPS).find(free) else {
        return Err(cannot(io::ErrorKind::DirectoryNotEmpty.into()));
    };
    fs::rename(path, backup).map_err(cannot)
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
