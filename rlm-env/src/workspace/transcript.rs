//! The transcript: the conversation with the root model, for code in the session to read.
//!
//! The session may do anything to the file. So the host opens it once, before the
//! session begins, and from then on only appends to the open file: it never follows, opens or writes anything that the
//! session puts in its place. The transcript ends when the file's name is gone or stands for something else.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use rlm_core::dirfd::{Directory, Identity};
use rlm_core::jsonl;
use serde_json::Value as Json;

/// Name of the file if it is in the working directory.
pub(super) const MESSAGES_IN_CONTEXT: &str = rlm_rootd::nav::TRANSCRIPT;

/// Bound on the messages that wait for space on the disk, in bytes.
const MAX_PENDING: usize = 64 << 20;

/// The file: a message per line, in OpenAI's form, appended and never rewritten.
#[derive(Debug)]
pub(crate) struct Transcript {
    /// The file. None: the transcript has ended.
    file: Option<File>,
    directory: Directory,
    name: &'static str,
    path: PathBuf,
    /// Lines that are not yet written.
    pending: VecDeque<Vec<u8>>,
    is_failing: bool,
}

impl Transcript {
    /// Creates the file in a directory of this path.
    pub(super) fn create(directory: Directory, path: &Path, name: &'static str) -> io::Result<Self> {
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let file = openat(&directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let (path, pending) = (path.join(name), VecDeque::new());
        Ok(Self { file: Some(file.into()), directory, name, path, pending, is_failing: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a message. Messages that cannot be written are retried with the next one. Repeated failures are logged
    /// once.
    pub(crate) fn append(&mut self, message: &Json) {
        let Some(file) = &self.file else { return };
        match is_in_place(&self.directory, self.name, file) {
            Ok(true) => {}
            Ok(false) => return self.end("the session has moved, removed or replaced it"),
            Err(error) => return self.end(&error.to_string()),
        }
        self.pending.extend(jsonl::line(message));
        let written = write(&mut self.pending, file);
        self.note(written);
    }

    fn note(&mut self, written: io::Result<()>) {
        match written {
            Ok(()) => self.is_failing = false,
            Err(error) if self.pending.iter().map(Vec::len).sum::<usize>() > MAX_PENDING => {
                self.end(&error.to_string())
            }
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::warn!(path = %self.path.display(), %error, "cannot write the transcript now, will try again");
            }
            Err(_logged_already) => {}
        }
    }

    fn end(&mut self, reason: &str) {
        self.file = None;
        self.pending.clear();
        tracing::warn!(path = %self.path.display(), reason, "the transcript has ended");
    }
}

/// Writes whole lines; those that cannot be written stay queued.
fn write(lines: &mut VecDeque<Vec<u8>>, file: &File) -> io::Result<()> {
    while let Some(line) = lines.front() {
        jsonl::append(file, line)?;
        lines.pop_front();
    }
    Ok(())
}

/// True if the file is still at its path.
fn is_in_place(directory: &Directory, name: &str, file: &File) -> io::Result<bool> {
    let ours = Identity::from(&file.metadata()?);
    Ok(directory.metadata_of(OsStr::new(name)).is_ok_and(|named| Identity::from(&named) == ours))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use serde_json::json;

    use super::*;
    use crate::files::testing::warnings_of;

    fn transcript() -> (tempfile::TempDir, Transcript) {
        let dir = tempfile::tempdir().unwrap();
        let fs = dir.path().join("fs");
        fs::create_dir(&fs).unwrap();
        let directory = Directory::at_path(&fs).unwrap();
        let transcript = Transcript::create(directory, &fs, MESSAGES_IN_CONTEXT).unwrap();
        (dir, transcript)
    }

    #[test]
    fn messages_are_lines_that_are_appended() {
        let (dir, mut transcript) = transcript();
        let path = dir.path().join("fs/.messages");
        let long = json!({"role": "tool", "content": "line\n".repeat(1 << 18)});
        transcript.append(&json!({"role": "user", "content": "a\nb"}));
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"role\":\"user\",\"content\":\"a\\nb\"}\n");
        transcript.append(&long);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines, [json!({"role": "user", "content": "a\nb"}), long]);
    }

    /// The session does something to the file; later messages go nowhere else, with one warning.
    #[track_caller]
    fn check_ends(tamper: impl Fn(&Path, &Path)) {
        let (dir, mut transcript) = transcript();
        let (path, outside) = (dir.path().join("fs/.messages"), dir.path().join("outside"));
        fs::write(&outside, "mine").unwrap();
        transcript.append(&json!(1));
        tamper(&path, &outside);
        let warnings = warnings_of(|| (2..5).for_each(|number| transcript.append(&json!(number))));
        assert_eq!(warnings, 1);
        assert_eq!(fs::read_to_string(outside).unwrap(), "mine");
        assert!(transcript.file.is_none());
        if path.is_file() && !path.is_symlink() {
            assert_eq!(fs::read_to_string(path).unwrap(), "mine");
        }
    }

    #[test]
    fn a_file_in_its_place_is_left_alone() {
        check_ends(|path, _| fs::remove_file(path).unwrap());
        check_ends(|path, _| fs::remove_dir_all(path.parent().unwrap()).unwrap());
        let then = |put: fn(&Path, &Path)| {
            check_ends(|path, outside| {
                fs::remove_file(path).unwrap();
                put(path, outside);
            });
        };
        then(|path, outside| symlink(outside, path).unwrap());
        then(|path, outside| fs::hard_link(outside, path).unwrap());
        then(|path, _| nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap());
        then(|path, _| fs::create_dir(path).unwrap());
        then(|path, _| fs::write(path, "mine").unwrap());
    }

    #[test]
    fn a_link_to_it_in_its_place_ends_it() {
        check_ends(|path, _| {
            fs::rename(path, path.with_extension("moved")).unwrap();
            symlink(".messages.moved", path).unwrap();
        });
    }

    #[test]
    fn permissions_and_truncation_do_not_end_it() {
        let (dir, mut transcript) = transcript();
        let path = dir.path().join("fs/.messages");
        transcript.append(&json!(1));
        fs::set_permissions(&path, Permissions::from_mode(0o0)).unwrap();
        transcript.append(&json!(2));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        File::create(&path).unwrap();
        transcript.append(&json!(3));
        assert_eq!(fs::read_to_string(&path).unwrap(), "3\n");
    }

    #[test]
    fn a_full_disk_is_logged_once_and_nothing_is_lost() {
        let (dir, mut transcript) = transcript();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let warnings = warnings_of(|| {
            for number in 0..3 {
                transcript.pending.extend(jsonl::line(&json!(number)));
                let written = write(&mut transcript.pending, &full);
                transcript.note(written);
            }
        });
        assert_eq!(warnings, 1);
        transcript.append(&json!(3));
        assert_eq!(fs::read_to_string(dir.path().join("fs/.messages")).unwrap(), "0\n1\n2\n3\n");
    }
}
