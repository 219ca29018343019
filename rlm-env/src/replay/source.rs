//! Sources of past sessions.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;
use rlm_core::control::ControlDir;
use rlm_core::jsonl::{self, Lines};
use serde::de::DeserializeOwned;

use super::past::PastSession;
use super::source_error::{SourceError, SourceOptions, at};
use super::{history, trajectory};

/// Largest history that is read, in bytes.
pub(super) const MAX_HISTORY_BYTES: u64 = 256 << 20;

/// Largest file besides the history that is read, in bytes.
const MAX_OTHER_BYTES: u64 = 64 << 20;

/// Bytes of a file that are searched for its first line.
const MAX_FIRST_LINE_BYTES: u64 = 64 << 20;

/// Name of the control directory in a kept rollout.
const CONTROL: &str = "rlm_control";

impl PastSession {
    /// Reads a control directory, the directory of a kept rollout, a history or a trajectory.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn open(path: &Path, options: &SourceOptions) -> Result<Self, SourceError> {
        let metadata = std::fs::metadata(path).map_err(at(path))?;
        if metadata.is_dir() {
            let inner = path.join(CONTROL);
            let has_history = |dir: &Path| ControlDir::new(dir).history_file().symlink_metadata().is_ok();
            return match [path, &inner].into_iter().find(|dir| has_history(dir)) {
                Some(dir) => Self::of_control_dir(&ControlDir::new(dir), options),
                None => Err(SourceError::NoHistory(path.to_owned())),
            };
        }
        // The user named this path, so a link is followed.
        let mut file = open(path, 0)?;
        if is_trajectory(&mut file, path)? {
            trajectory::read(BufReader::with_capacity(1 << 16, file), path, options)
        } else {
            history::read(bounded(file, path, MAX_HISTORY_BYTES)?, path, options)
        }
    }

    /// Reads the history of a control directory and the documents beside it.
    ///
    /// # Errors
    /// [`SourceError`]; [`SourceError::Empty`] if there is no history yet.
    pub fn of_control_dir(control: &ControlDir, options: &SourceOptions) -> Result<Self, SourceError> {
        let path = control.history_file();
        let file = match open(&path, libc::O_NOFOLLOW) {
            Err(SourceError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(SourceError::Empty(path));
            }
            opened => opened?,
        };
        let mut past = history::read(bounded(file, &path, MAX_HISTORY_BYTES)?, &path, options)?;
        past.answer = beside(&control.answer_file(), &mut past.remarks);
        let context: Option<rlm_core::protocol::Context> = beside(&control.context_file(), &mut past.remarks);
        if let Some(context) = context {
            past.fs_root.get_or_insert(context.fs_root);
            past.fs_metadata = Some(context.fs_metadata);
        }
        Ok(past)
    }
}

/// A document beside a history. None if it is missing; if it is invalid, None with a remark.
fn beside<T: DeserializeOwned>(path: &Path, remarks: &mut Vec<String>) -> Option<T> {
    let read = || -> Result<Vec<u8>, SourceError> {
        let mut bytes = Vec::new();
        let mut file = bounded(open(path, libc::O_NOFOLLOW)?, path, MAX_OTHER_BYTES)?;
        file.read_to_end(&mut bytes).map_err(at(path))?;
        Ok(bytes)
    };
    let reason = match read() {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(value) => return Some(value),
            Err(error) => format!("{} is ignored: {error}", path.display()),
        },
        Err(SourceError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return None,
        Err(SourceError::Io { source, .. }) => format!("{} is ignored: {source}", path.display()),
        Err(error) => format!("{error}: it is ignored"),
    };
    remarks.push(reason);
    None
}

/// Opens a regular file. Does not block on anything else.
fn open(path: &Path, flags: i32) -> Result<File, SourceError> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | flags).open(path);
    let file = opened.map_err(at(path))?;
    if file.metadata().map_err(at(path))?.is_file() {
        Ok(file)
    } else {
        Err(SourceError::NotAFile(path.to_owned()))
    }
}

fn bounded(file: File, path: &Path, limit: u64) -> Result<BufReader<io::Take<File>>, SourceError> {
    let bytes = file.metadata().map_err(at(path))?.len();
    if bytes > limit {
        return Err(SourceError::TooLarge { path: path.to_owned(), bytes, limit });
    }
    // The file may still be growing.
    Ok(BufReader::with_capacity(1 << 16, file.take(limit)))
}

/// Tells a trajectory from a history by the first line, and seeks back to the beginning.
fn is_trajectory(file: &mut File, path: &Path) -> Result<bool, SourceError> {
    let unknown = |reason: String| SourceError::Unknown { path: path.to_owned(), reason };
    let mut lines = Lines::new(BufReader::new((&*file).take(MAX_FIRST_LINE_BYTES)));
    let Some(line) = lines.next_line().map_err(at(path))? else {
        return Err(SourceError::Empty(path.to_owned()));
    };
    let parsed = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line.text);
    let entry = parsed.map_err(|error| unknown(jsonl::fault(&error)))?;
    file.rewind().map_err(at(path))?;
    match (entry.contains_key("event"), entry.contains_key("code")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(unknown("it has neither `event` nor `code`".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> String {
        PastSession::open(path, &SourceOptions::default()).unwrap_err().to_string()
    }

    #[test]
    fn files_that_are_not_histories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlDir::new(dir.path());
        let history = control.history_file();
        let name = history.display().to_string();
        assert!(refusal(dir.path()).contains("holds neither rlm_history.jsonl"), "{}", refusal(dir.path()));
        nix::unistd::mkfifo(&history, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(refusal(dir.path()), format!("{name} is not a regular file"));
        assert_eq!(refusal(&history), format!("{name} is not a regular file"));
        std::fs::remove_file(&history).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &history).unwrap();
        assert_eq!(refusal(dir.path()), format!("cannot read {name}"));
        std::fs::remove_file(&history).unwrap();
        let sparse = File::create(&history).unwrap();
        sparse.set_len(MAX_HISTORY_BYTES + 1).unwrap();
        assert_eq!(
            refusal(dir.path()),
            format!("{name} has 268435457 bytes, more than the limit of 268435456")
        );
        sparse.set_len(0).unwrap();
        assert_eq!(refusal(dir.path()), format!("{name} holds no calls"));
        assert_eq!(refusal(&history), format!("{name} holds no calls"));
        for (text, reason) in [
            ("hello\n", "line 1: expected value at column 1"),
            ("[1]\n", "line 1: invalid type: sequence, expected a map at column 0"),
            ("{\"a\":1}\n", "line 1: it has neither `event` nor `code`"),
        ] {
            std::fs::write(&history, text).unwrap();
            assert_eq!(refusal(&history), format!("{name} is neither a history nor a trajectory: {reason}"));
        }
    }
}
