//! The file of a saved session.
//!
//! A line, `rlm-saved-session VERSION BYTES DIGEST`, is followed by so many bytes of JSON, the [`Header`], which has that digest, and
//! by the parts that the header lists, one after another. Digests are SHA-256: they find damage, and prove nothing about where a file
//! comes from. The state is a program for an interpreter; reading the header runs nothing.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::protocol::Answer;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The part that the session's interpreter reads.
pub const STATE: &str = "state";

/// The part with the lines of the history.
pub const HISTORY: &str = "history";

/// The part with the session's directory.
pub const DIRECTORY: &str = "directory";

const MAGIC: &str = "rlm-saved-session";

/// Longest first line, in bytes.
const MAX_FIRST_LINE: u64 = 256;

/// Largest header, in bytes.
const MAX_HEADER_BYTES: u64 = 64 << 20;

/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The description of a saved session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// `bash` or `python`.
    pub language: String,
    /// Version of the interpreter.
    pub version: String,
    /// Version of the worker that saved it.
    pub worker_version: String,
    /// Seconds since the Unix epoch.
    pub saved_at: f64,
    /// The session's directory.
    pub fs_root: PathBuf,
    /// Working directory of the interpreter.
    pub cwd: PathBuf,
    /// Calls executed so far.
    pub execution_count: u64,
    /// The answer.
    pub answer: Answer,
    /// Names of the root tools that its host gave.
    pub root_tools: Vec<String>,
    /// The objects in the state, and those that are not.
    #[serde(flatten)]
    pub contents: Contents,
    /// The size of the session's directory, if it was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<Directory>,
    /// The parts of the file, in order.
    pub parts: Vec<Part>,
}

/// The size of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// Number of files, directories and links in it.
    pub entries: u64,
    /// Size of its files in bytes.
    pub bytes: u64,
}

/// The objects in a saved state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Number of objects by their kind: `variables`, `functions`, …
    pub counts: BTreeMap<String, u64>,
    /// The objects that could not be saved: names and reasons.
    pub left_out: BTreeMap<String, String>,
}

impl Contents {
    /// A sentence on what was left out; None if that is nothing.
    #[must_use]
    pub fn notice(&self) -> Option<String> {
        const SHOWN: usize = 5;
        let mut names: Vec<String> =
            self.left_out.iter().take(SHOWN).map(|(name, reason)| format!("{name} ({reason})")).collect();
        if self.left_out.len() > SHOWN {
            names.push(format!("and {} more", self.left_out.len() - SHOWN));
        }
        (!names.is_empty()).then(|| format!("left out: {}", names.join(", ")))
    }
}

/// A part of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Name of the part: [`STATE`], [`HISTORY`], [`DIRECTORY`].
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// A saved session that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The file system refuses.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The action, as a verb: "write".
        operation: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// It is another kind of file.
    #[error("{} is not a saved session: expected a file that `save` has written", .0.display())]
    Other(PathBuf),
    /// A later version of the format.
    #[error("{} has version {found} of the format, and this program reads version {VERSION}: use a newer rlm", path.display())]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// The file's version.
        found: u32,
    },
    /// Bytes are missing or are not those that were written.
    #[error("{} is damaged: {fault}; use another copy, or save the session again", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// The finding, and what was expected.
        fault: String,
    },
}

/// An open file with a saved session.
#[derive(Debug)]
pub struct Saved {
    path: PathBuf,
    file: File,
    header: Header,
    /// Offset of the first part.
    start: u64,
}

impl Saved {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`SavedError`]: the file is no saved session, or is cut off.
    pub fn open(path: &Path) -> Result<Self, SavedError> {
        let io = |source| SavedError::Io { operation: "read", path: path.to_owned(), source };
        let damaged = |fault| SavedError::Damaged { path: path.to_owned(), fault };
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(SavedError::Other(path.to_owned()));
        }
        let mut reader = BufReader::new(&file);
        let mut line = Vec::new();
        reader.by_ref().take(MAX_FIRST_LINE).read_until(b'\n', &mut line).map_err(io)?;
        let line = str::from_utf8(&line).unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let version = match words[..] {
            [MAGIC, version, ..] => version.parse::<u32>().ok().filter(|version| *version > 0),
            _ => None,
        };
        let Some(version) = version else { return Err(SavedError::Other(path.to_owned())) };
        if version > VERSION {
            return Err(SavedError::Newer { path: path.to_owned(), found: version });
        }
        let sizes = match words[..] {
            [_, _, bytes, digest] if line.ends_with('\n') => {
                bytes.parse::<u64>().ok().map(|bytes| (bytes, digest))
            }
            _ => None,
        };
        let Some((bytes, expected)) = sizes.filter(|(bytes, _)| *bytes <= MAX_HEADER_BYTES) else {
            return Err(damaged("its first line has no size and digest of a header".to_owned()));
        };
        let mut text = Vec::new();
        reader.take(bytes).read_to_end(&mut text).map_err(io)?;
        if hex(&Sha256::digest(&text)) != expected {
            return Err(damaged("its header does not have the digest that the first line has".to_owned()));
        }
        let header: Header = serde_json::from_slice(&text)
            .map_err(|error| damaged(format!("its header is not one: {error}")))?;
        let start = line.len() as u64 + bytes;
        let total = header.parts.iter().try_fold(start, |total, part| total.checked_add(part.bytes));
        if total != Some(metadata.len()) {
            let total = total.unwrap_or(u64::MAX);
            return Err(damaged(format!("it has {} bytes, expected {total}", metadata.len())));
        }
        Ok(Self { path: path.to_owned(), file, header, start })
    }

    /// The description of the session.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Copies a part to the beginning of a file, and returns its size. None: there is no such part.
    ///
    /// # Errors
    /// [`SavedError::Damaged`] once all of it was copied, or an error of the system.
    pub fn copy_part(&self, name: &str, to: &File) -> Result<Option<u64>, SavedError> {
        self.pass_part(name, |at, chunk| to.write_all_at(chunk, at))
    }

    /// Checks the digests of all parts.
    ///
    /// # Errors
    /// As for [`Self::copy_part`].
    pub fn check(&self) -> Result<(), SavedError> {
        for part in &self.header.parts {
            self.pass_part(&part.name, |_, _| Ok(()))?;
        }
        Ok(())
    }

    fn pass_part(
        &self,
        name: &str,
        take: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<Option<u64>, SavedError> {
        let before = self.header.parts.iter().take_while(|part| part.name != name);
        let start = self.start + before.map(|part| part.bytes).sum::<u64>();
        let Some(part) = self.header.parts.iter().find(|part| part.name == name) else { return Ok(None) };
        let io = |source| SavedError::Io { operation: "read", path: self.path.clone(), source };
        let digest = copy(&self.file, start, part.bytes, take).map_err(io)?;
        if digest != part.sha256 {
            let fault = format!("its part `{name}` does not have the digest that its header has");
            return Err(SavedError::Damaged { path: self.path.clone(), fault });
        }
        Ok(Some(part.bytes))
    }
}

/// Writes a saved session: all of it, or nothing. Each part is a range of a file; the header's own list is replaced. Returns the size of
/// the whole.
///
/// # Errors
/// [`SavedError::Io`]: for example, the disk is full. A file that was there before stays as it was.
pub fn write(path: &Path, header: Header, parts: &[(&str, &File, Range<u64>)]) -> Result<u64, SavedError> {
    let temporary = path.with_added_extension("new");
    let written = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(&temporary)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(file)
    };
    let io = |source| SavedError::Io { operation: "write", path: path.to_owned(), source };
    let file = written().map_err(io)?;
    let written = write_to(&file, path, header, parts)
        .and_then(|total| fs::rename(&temporary, path).map(|()| total).map_err(io));
    written.inspect_err(|_error| {
        let _never_made = fs::remove_file(&temporary);
    })
}

/// Writes a saved session to a new file, which errors call by this path. Returns the size of the whole.
///
/// # Errors
/// As for [`write()`].
pub fn write_to(
    mut file: &File,
    path: &Path,
    header: Header,
    parts: &[(&str, &File, Range<u64>)],
) -> Result<u64, SavedError> {
    let io = |operation| move |source| SavedError::Io { operation, path: path.to_owned(), source };
    let described = parts.iter().map(|(name, file, range)| {
        let bytes = range.end - range.start;
        let sha256 = copy(file, range.start, bytes, |_, _| Ok(()))?;
        Ok(Part { name: (*name).to_owned(), bytes, sha256 })
    });
    let header =
        Header { parts: described.collect::<io::Result<_>>().map_err(io("read the state for"))?, ..header };
    let mut text = serde_json::to_vec(&header).map_err(|error| io("describe")(error.into()))?;
    text.push(b'\n');
    let first = format!("{MAGIC} {VERSION} {} {}\n", text.len(), hex(&Sha256::digest(&text)));
    let mut written = || -> io::Result<u64> {
        file.write_all(first.as_bytes())?;
        file.write_all(&text)?;
        let mut total = (first.len() + text.len()) as u64;
        for (_, part, range) in parts {
            let bytes = range.end - range.start;
            copy(part, range.start, bytes, |at, chunk| file.write_all_at(chunk, total + at))?;
            total += bytes;
        }
        Ok(total)
    };
    written().map_err(io("write"))
}

/// Reads bytes of a file, and returns their digest.
fn copy(
    from: &File,
    start: u64,
    bytes: u64,
    mut take: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(bytes).unwrap_or(CHUNK_BYTES))];
    let mut at = 0;
    while at < bytes {
        let most = usize::try_from(bytes - at).unwrap_or(CHUNK_BYTES).min(buffer.len());
        from.read_exact_at(&mut buffer[..most], start + at)?;
        digest.update(&buffer[..most]);
        take(at, &buffer[..most])?;
        at += most as u64;
    }
    Ok(hex(&digest.finalize()))
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            language: "bash".to_owned(),
            version: "5.2".to_owned(),
            worker_version: "0.1.0".to_owned(),
            saved_at: 1.5,
            fs_root: "/data".into(),
            cwd: "/data/x".into(),
            execution_count: 3,
            answer: Answer::default(),
            root_tools: Vec::new(),
            contents: Contents::default(),
            directory: None,
            parts: Vec::new(),
        }
    }

    fn saved(dir: &Path) -> PathBuf {
        let (path, part) = (dir.join("session"), dir.join("part"));
        fs::write(&part, b"the state").unwrap();
        write(&path, header(), &[(STATE, &File::open(&part).unwrap(), 0..9)]).unwrap();
        path
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_belongs_to_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = saved(dir.path());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let found = Saved::open(&path).unwrap();
        assert_eq!(Header { parts: Vec::new(), ..found.header().clone() }, header());
        let copy =
            File::options().read(true).write(true).create_new(true).open(dir.path().join("copy")).unwrap();
        assert_eq!(found.copy_part(STATE, &copy).unwrap(), Some(9));
        assert_eq!(fs::read(dir.path().join("copy")).unwrap(), b"the state");
        assert_eq!(found.copy_part(HISTORY, &copy).unwrap(), None);
    }

    #[test]
    fn no_cut_and_no_changed_byte_goes_unnoticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = saved(dir.path());
        let (whole, sink) = (fs::read(&path).unwrap(), tempfile::tempfile_in(dir.path()).unwrap());
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            Saved::open(&path).and_then(|saved| saved.copy_part(STATE, &sink))
        };
        for at in 0..whole.len() {
            read(&whole[..at]).unwrap_err();
            let mut changed = whole.clone();
            changed[at] ^= 1;
            // White space between words may be another one.
            if !changed[at].is_ascii_whitespace() || !whole[at].is_ascii_whitespace() {
                read(&changed).unwrap_err();
            }
        }
        let newer = [b"rlm-saved-session 2 ", &whole[20..]].concat();
        let error = read(&newer).unwrap_err().to_string();
        assert!(
            error.ends_with("has version 2 of the format, and this program reads version 1: use a newer rlm")
        );
    }
}
