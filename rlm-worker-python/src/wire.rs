//! Messages between the supervisor and the cell engine.
//!
//! The engine opens every pipe and file by path, while it needs it ([`PipePaths`]). A command is [`Command::BYTES`]
//! bytes on the command pipe, written at once; its payload is in a file in memory. A report is a header, the result
//! as it is and a JSON document on the report pipe. Both sides come from one build, so there are no versions.

use std::path::PathBuf;

use rlm_core::protocol::{Answer, Exception};
use rlm_core::saved::Contents;
use rlm_core::worker::output::into_string;
use rlm_core::worker::settings::RootTools;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The signal that stops a cell if SIGINT does not: a real-time signal, far from those that programs use.
#[must_use]
pub fn hard_stop_signal() -> i32 {
    nix::libc::SIGRTMAX() - 3
}

/// Exit status of an interpreter whose engine cannot start, or can no longer reach its supervisor.
pub const LOST_STATUS: i32 = 121;

/// Paths of the engine's pipes and files, passed as arguments in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipePaths {
    /// Pipe from which commands are read.
    pub commands: String,
    /// File in memory with the payload of the command.
    pub payload: String,
    /// Pipe to which reports are written.
    pub report: String,
    /// Path of descriptor 1.
    pub stdout: String,
    /// Path of descriptor 2.
    pub stderr: String,
}

impl PipePaths {
    /// The paths as arguments.
    #[must_use]
    pub fn into_arguments(self) -> [String; 5] {
        [self.commands, self.payload, self.report, self.stdout, self.stderr]
    }

    /// The inverse of [`Self::into_arguments`].
    #[must_use]
    pub fn from_arguments(arguments: [String; 5]) -> Self {
        let [commands, payload, report, stdout, stderr] = arguments;
        Self { commands, payload, report, stdout, stderr }
    }
}

/// A command for the engine. It consists of numbers, so that it fits into one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Returned in the report's header.
    pub nonce: u64,
    /// The task, which determines the meaning of the payload.
    pub task: Task,
    /// Size of the payload in bytes.
    pub payload_bytes: u64,
    /// Number of bytes at the end of the payload that are the cell's source as written; 0 if that is the code.
    pub written_bytes: u64,
    /// Longest `result` of the report, in bytes.
    pub max_result_bytes: u64,
}

/// The task of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Make the session ready: the payload is a [`Setup`].
    SetUp,
    /// Set variables: the payload is a JSON object.
    Set,
    /// Find what can complete code: the payload is the code.
    Complete,
    /// Write the session's state to the file of the payload. [`Report::result`] is JSON: [`Saved`].
    Save,
    /// Take over the state in the payload. The namespace is a new one.
    Load,
    /// Take the place of the interpreter that has died: for a copy at its gate.
    TakeOver,
    /// Leave a copy for another session: the payload is a [`Branch`].
    Branch,
    /// Run the cell with this number, which is part of its file name: the payload is its code, and its source as
    /// written.
    Cell(u64),
}

/// [`Task::Complete`] as a number.
const COMPLETE: u64 = u64::MAX - 1;

/// [`Task::Save`] as a number.
const SAVE: u64 = u64::MAX - 2;

/// [`Task::Load`] as a number.
const LOAD: u64 = u64::MAX - 3;

/// [`Task::TakeOver`] as a number.
const TAKE_OVER: u64 = u64::MAX - 4;

/// [`Task::Branch`] as a number.
const BRANCH: u64 = u64::MAX - 5;

impl Task {
    /// True if the session may be another one afterwards: then a copy of the interpreter is taken.
    #[must_use]
    pub fn changes_session(self) -> bool {
        matches!(self, Self::SetUp | Self::Set | Self::Load | Self::Cell(_))
    }

    fn encode(self) -> u64 {
        match self {
            Self::SetUp => 0,
            Self::Set => u64::MAX,
            Self::Complete => COMPLETE,
            Self::Save => SAVE,
            Self::Load => LOAD,
            Self::TakeOver => TAKE_OVER,
            Self::Branch => BRANCH,
            Self::Cell(number) => number,
        }
    }

    fn decode(number: u64) -> Self {
        match number {
            0 => Self::SetUp,
            u64::MAX => Self::Set,
            COMPLETE => Self::Complete,
            SAVE => Self::Save,
            LOAD => Self::Load,
            TAKE_OVER => Self::TakeOver,
            BRANCH => Self::Branch,
            number => Self::Cell(number),
        }
    }
}

impl Command {
    /// Size of an encoded command.
    pub const BYTES: usize = 40;

    /// The command as bytes for the pipe.
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let Self { nonce, task, payload_bytes, written_bytes, max_result_bytes } = self;
        let fields = [nonce, task.encode(), payload_bytes, written_bytes, max_result_bytes];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// The inverse of [`Self::encode`].
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let field = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        let task = Task::decode(field(1));
        let [payload_bytes, written_bytes, max_result_bytes] = [2, 3, 4].map(field);
        Self { nonce: field(0), task, payload_bytes, written_bytes, max_result_bytes }
    }
}

/// The initial namespace and guard rails of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Setup {
    /// Value of `extra_data`.
    pub fs_root: PathBuf,
    /// Value of `fs_metadata`.
    pub fs_metadata: Value,
    /// Value of `answer`.
    pub answer: Answer,
    /// Modules that cells may not import.
    pub disallowed_modules: Vec<String>,
    /// Builtins that cells may not use.
    pub disallowed_builtins: Vec<String>,
    /// Directories and files that cells may access besides the interpreter's own library. None: all.
    pub jail: Option<Vec<PathBuf>>,
    /// Functions of the host.
    pub root_tools: Option<RootTools>,
    /// True if `FINAL` and `FINAL_VAR` exist.
    pub has_final_functions: bool,
    /// Copies of the interpreter that wait to take its place. None: no copies.
    pub copies: Option<CopySettings>,
}

/// A copy of the interpreter for another session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Branch {
    /// Name of the abstract socket at which it takes a worker.
    pub name: String,
    /// Path of the file with what the worker needs besides: see [`rlm_core::saved`].
    pub saved: String,
}

/// Copies of the interpreter: which are taken, and the pipes between them and the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopySettings {
    /// Most memory of an interpreter that is copied, in bytes. Pages of files do not count.
    pub max_bytes: u64,
    /// Pipe at which a copy waits: it takes over when it reads a command, and ends at end of file.
    pub gate: String,
    /// Pipe to which a copy that waits writes an [`Announcement`].
    pub announcements: String,
}

/// The message of a copy that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The nonce of the command after which the copy was taken.
    pub number: u64,
    /// Process id of the copy.
    pub pid: i32,
}

impl Announcement {
    /// Size of an encoded announcement.
    pub const BYTES: usize = 16;

    /// The announcement as bytes for the pipe.
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let [number, pid] = [self.number, self.pid.unsigned_abs().into()].map(u64::to_le_bytes);
        std::array::from_fn(|byte| if byte < 8 { number[byte] } else { pid[byte - 8] })
    }

    /// The inverse of [`Self::encode`].
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let field = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        Self { number: field(0), pid: i32::try_from(field(1)).unwrap_or(0) }
    }
}

/// The result of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Repr of the trailing expression, or the traceback; shortened if it is too long. [`Task::SetUp`]: Python's
    /// version. [`Task::Set`] and [`Task::Branch`]: the reason why nothing was done. [`Task::Complete`]: the completions as JSON.
    #[serde(skip)]
    pub result: Option<String>,
    /// Bytes dropped from the middle of `result`.
    pub dropped: u64,
    /// The exception that ended the cell.
    pub exception: Option<Exception>,
    /// The answer; None if it has not changed.
    pub answer: Option<Answer>,
    /// Type of a new value of the answer that is not a dict.
    pub answer_type: Option<String>,
    /// The reason why no copy of the interpreter is taken, where copies are wanted.
    pub no_copy: Option<String>,
}

/// The result of [`Task::Save`] and [`Task::Load`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Size of the state that was written.
    pub bytes: u64,
    /// The objects in it, and those that are not.
    #[serde(flatten)]
    pub contents: Contents,
}

/// Size of a report's header in bytes: nonce, size of the result, size of the document.
pub const REPORT_HEADER_BYTES: usize = 24;

/// The size of a result that is not there.
const NO_RESULT: u64 = u64::MAX;

impl Report {
    /// The report as three pieces of bytes: header, result, and the rest as a JSON document.
    ///
    /// # Errors
    /// The document cannot be made, which does not happen.
    pub fn encode(&self, nonce: u64) -> serde_json::Result<([u8; REPORT_HEADER_BYTES], &[u8], Vec<u8>)> {
        let document = serde_json::to_vec(self)?;
        let result_bytes = self.result.as_ref().map_or(NO_RESULT, |result| result.len() as u64);
        let mut header = [0; REPORT_HEADER_BYTES];
        for (place, field) in header.chunks_exact_mut(8).zip([nonce, result_bytes, document.len() as u64]) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        Ok((header, self.result.as_deref().unwrap_or_default().as_bytes(), document))
    }

    /// The inverse of [`Self::encode`], which empties the bytes. None, and nothing changes, unless they are a whole report with this
    /// nonce.
    ///
    /// # Errors
    /// The document is not that of a report.
    pub fn take(bytes: &mut Vec<u8>, nonce: u64) -> serde_json::Result<Option<Self>> {
        let Some(header) = bytes.first_chunk::<REPORT_HEADER_BYTES>() else { return Ok(None) };
        let field = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at * 8 + byte]));
        let (result_bytes, document_bytes) = (field(1), field(2));
        let has_result = result_bytes != NO_RESULT;
        let sizes = [if has_result { result_bytes } else { 0 }, document_bytes];
        let total = sizes.iter().try_fold(REPORT_HEADER_BYTES as u64, |total, size| total.checked_add(*size));
        if field(0) != nonce || total != Some(bytes.len() as u64) {
            return Ok(None);
        }
        let document = bytes.split_off(REPORT_HEADER_BYTES + sizes[0] as usize);
        let mut result = std::mem::take(bytes);
        let report: Self = serde_json::from_slice(&document)?;
        // A large result is moved, and not copied.
        result.drain(..REPORT_HEADER_BYTES);
        Ok(Some(Self { result: has_result.then(|| into_string(result)), ..report }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_survives_the_round_trip() {
        for task in [
            Task::SetUp,
            Task::Set,
            Task::Complete,
            Task::Save,
            Task::Load,
            Task::Cell(1),
            Task::TakeOver,
            Task::Branch,
            Task::Cell(u64::MAX - 6),
        ] {
            let (payload_bytes, written_bytes, max_result_bytes) = (u64::MAX, 3, 1 << 40);
            let command = Command { nonce: 1, task, payload_bytes, written_bytes, max_result_bytes };
            assert_eq!(Command::decode(&command.encode()), command);
        }
    }

    #[test]
    fn an_announcement_survives_the_round_trip() {
        let announcement = Announcement { number: u64::MAX - 7, pid: i32::MAX };
        assert_eq!(Announcement::decode(&announcement.encode()), announcement);
    }

    #[test]
    fn a_report_is_complete_at_its_last_byte_and_only_for_its_nonce() {
        for result in [None, Some(""), Some("'é'")] {
            let report = Report { result: result.map(str::to_owned), dropped: 3, ..Report::default() };
            let (header, result, document) = report.encode(7).unwrap();
            let whole = [&header[..], result, &document].concat();
            for cut in 0..whole.len() {
                assert_eq!(Report::take(&mut whole[..cut].to_vec(), 7).unwrap(), None);
            }
            assert_eq!(Report::take(&mut whole.clone(), 8).unwrap(), None);
            let mut bytes = whole;
            assert_eq!(Report::take(&mut bytes, 7).unwrap(), Some(report));
            assert_eq!(bytes, b"");
        }
    }
}
