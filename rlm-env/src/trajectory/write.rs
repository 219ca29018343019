//! Writing trajectories to files.

use std::borrow::Cow;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rlm_core::jsonl::{self, Lock};

use super::entry::Entry;
use super::images::{images_dir, with_files};
use super::sink::Sink;

/// The beginning of every entry.
const BEGINNING: &[u8] = b"{\"rollout\":";

/// Longest wait for the lock of a file. Writers hold it for one entry; a program that keeps it is waited for only once.
const LOCK_TIME: Duration = Duration::from_secs(1);

/// Writes entries to a file as they happen, one line each. Rollouts of one or several processes may share the file.
///
/// Each line is a single write to a file opened for appending, so lines stay whole whoever else writes, and a killed
/// process loses no written entry. Writers take turns by a lock (`flock`), so an unfinished line at the end is not one
/// that another writer is still writing; it is removed. On a full disk, lines are lost and one error is logged. Images are
/// files in the directory `NAME.images` beside the trajectory, or beside the file that a link leads to.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    /// The directory for images.
    images: PathBuf,
    file: Mutex<File>,
    is_regular: bool,
    /// True once another program has kept the lock for too long.
    is_locked_out: AtomicBool,
    has_failed: AtomicBool,
    has_failed_images: AtomicBool,
}

impl Writer {
    /// Opens a file for appending, and creates it, with mode 0600, if it does not exist. Removes an unfinished entry at its end.
    ///
    /// # Errors
    /// The file cannot be opened, or another program has locked it. [`io::ErrorKind::InvalidInput`]: it is neither a
    /// regular file nor a character device such as a terminal. [`io::ErrorKind::InvalidData`]: it is not a trajectory.
    pub fn append(path: &Path) -> io::Result<Self> {
        if let Ok(metadata) = path.metadata() {
            check_kind(metadata.file_type())?;
        }
        // If it has become a pipe in the meantime, do not wait for a reader.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        // A model's messages may sign or encrypt its reasoning: a new file is for its owner alone.
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true).mode(0o600);
        let file = options.custom_flags(flags.bits()).open(path)?;
        fcntl(file.as_fd(), FcntlArg::F_SETFL(OFlag::O_APPEND))?;
        let is_regular = file.metadata()?.is_file();
        if is_regular {
            let _lock = Lock::wait(&file, LOCK_TIME)?
                .ok_or_else(|| io::Error::new(io::ErrorKind::WouldBlock, "another program has locked it"))?;
            check_is_trajectory(&file)?;
            jsonl::remove_unfinished_line(&file)?;
        }
        let [is_locked_out, has_failed, has_failed_images] = [false; 3].map(AtomicBool::new);
        Ok(Self {
            path: path.to_owned(),
            // Where readers look for those of a linked file, too.
            images: images_dir(&path.canonicalize().unwrap_or_else(|_| path.to_owned())),
            file: Mutex::new(file),
            is_regular,
            is_locked_out,
            has_failed,
            has_failed_images,
        })
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_regular {
            return (&*file).write_all(line);
        }
        let patience = if self.is_locked_out.load(Relaxed) { Duration::ZERO } else { LOCK_TIME };
        let lock = Lock::wait(&file, patience).ok().flatten();
        self.is_locked_out.store(lock.is_none(), Relaxed);
        if lock.is_none() {
            // Even without the lock, lines are whole unless a writer is killed.
            return (&*file).write_all(line);
        }
        jsonl::remove_unfinished_line(&file)?;
        jsonl::append(&file, line)
    }
}

impl Sink for Writer {
    fn entry(&self, entry: &Entry) {
        let mut written = Cow::Borrowed(entry);
        if self.is_regular {
            let dir = &self.images;
            match with_files(entry, dir) {
                Ok(with_files) => written = with_files,
                Err(error) if !self.has_failed_images.swap(true, Relaxed) => {
                    tracing::error!(dir = %dir.display(), %error, "images stay in the trajectory, they cannot be files");
                }
                Err(_told_before) => {}
            }
        }
        if let Err(error) = jsonl::line(&*written).and_then(|line| self.write(&line))
            && !self.has_failed.swap(true, Relaxed)
        {
            tracing::error!(path = %self.path.display(), %error, "the trajectory is incomplete");
        }
    }
}

/// Refuses pipes and sockets, which could block the writer, and disks.
fn check_kind(kind: FileType) -> io::Result<()> {
    // Opening a directory fails with its own error.
    let found = if kind.is_file() || kind.is_dir() || kind.is_char_device() {
        return Ok(());
    } else if kind.is_fifo() {
        "a pipe, whose reader could block the writer"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a block device"
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {found}: expected a file")))
}

/// Refuses a file whose first line, last finished line, or unfinished line does not begin like an entry.
fn check_is_trajectory(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let unfinished = jsonl::line_start(file, length)?;
    let mut starts = vec![0, unfinished];
    if unfinished > 0 {
        starts.push(jsonl::line_start(file, unfinished - 1)?);
    }
    for start in starts {
        let mut begun = [0; BEGINNING.len()];
        let has = usize::try_from(length - start).unwrap_or(usize::MAX).min(begun.len());
        file.read_exact_at(&mut begun[..has], start)?;
        if begun[..has] != BEGINNING[..has] {
            let what = if start == 0 { "its first line" } else { "a line at its end" };
            let message = format!("it is not a trajectory: {what} is not an entry");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread::sleep;
    use std::time::Instant;

    use serde_json::json;

    use super::*;
    use crate::trajectory::{Event, Message, MessageKind};

    const ENTRY: &str = "{\"rollout\":1}\n";

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn entry(text: &str) -> Entry {
        let message = Message {
            turn: 1,
            kind: MessageKind::Notice,
            message: json!({ "content": text }),
            left_out: Vec::new(),
        };
        Entry { rollout: "r".to_owned(), time: 1.5, event: Event::Message(message), depth: 0 }
    }

    #[test]
    fn images_of_a_linked_file_lie_beside_the_file() {
        let (dir, path) = file("");
        let link = dir.path().join("link.jsonl");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let images = images_dir(&path.canonicalize().unwrap());
        for name in [&path, &link] {
            assert_eq!(Writer::append(name).unwrap().images, images);
        }
    }

    #[test]
    fn a_cut_entry_is_removed_and_another_file_is_left_alone() {
        let (_dir, path) = file("");
        let long = format!("{{\"rollout\":\"{}", "x".repeat(200_000));
        let long_ones = format!("{long}\"}}\n{long}");
        for (before, after) in [
            ("", Some("")),
            (ENTRY, Some(ENTRY)),
            ("{\"rollout\":1}\n{\"rol", Some(ENTRY)),
            ("{\"rollout\":", Some("")),
            ("{\"ro", Some("")),
            (&long, Some("")),
            (&long_ones, Some(&long_ones[..=long.len() + 2])),
            ("{\"rollout\":1}\nnotes", None),
            ("{\"rollout\":1}\nnotes\n", None),
            ("notes\n{\"rollout\":1}\n", None),
            ("{\"question\": \"why?\"}\n", None),
            ("notes", None),
        ] {
            std::fs::write(&path, before).unwrap();
            let opened = Writer::append(&path).map(drop).map_err(|error| error.kind());
            let expected = if after.is_some() { Ok(()) } else { Err(io::ErrorKind::InvalidData) };
            assert_eq!(opened, expected, "{before:.40}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after.unwrap_or(before));
        }
    }

    #[test]
    fn an_entry_that_another_has_begun_is_waited_for() {
        let (_dir, path) = file(ENTRY);
        let mut other = OpenOptions::new().append(true).open(&path).unwrap();
        other.lock().unwrap();
        other.write_all(b"{\"rollout\"").unwrap();
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| Writer::append(&path));
            // The other thread may read the file now but must not cut it.
            sleep(Duration::from_millis(20));
            other.write_all(b":2}\n").unwrap();
            other.unlock().unwrap();
            opening.join().unwrap().unwrap().entry(&entry("mine"));
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("{\"rollout\":1}\n{\"rollout\":2}\n{\"rollout\":\"r\","), "{text}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn no_entry_of_many_writers_that_open_a_file_again_and_again_is_lost() {
        let (_dir, path) = file("");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for count in 0..50 {
                        let text = format!("{writer}-{count}-{}", "x".repeat(20_000));
                        Writer::append(path).unwrap().entry(&entry(&text));
                    }
                });
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().filter(|line| serde_json::from_str::<Entry>(line).is_ok()).count(), 200);
    }

    #[test]
    fn an_entry_is_not_appended_to_one_that_another_writer_could_not_end() {
        let (_dir, path) = file("");
        let writer = Writer::append(&path).unwrap();
        writer.entry(&entry("one"));
        let whole = std::fs::read_to_string(&path).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"rollout\":\"killed").unwrap();
        writer.entry(&entry("one"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole.repeat(2));
    }

    #[test]
    fn files_that_could_block_the_writer_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |path: &Path| {
            let error = Writer::append(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
            error.to_string()
        };
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(refused(&fifo), "it is a pipe, whose reader could block the writer: expected a file");
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(refused(&socket), "it is a socket: expected a file");
        Writer::append(Path::new("/dev/null")).unwrap().entry(&entry("nobody reads it"));
    }

    #[test]
    fn a_lock_that_is_kept_does_not_delay_entries_for_long() {
        let (_dir, path) = file("");
        let writer = Writer::append(&path).unwrap();
        let held = File::open(&path).unwrap();
        held.lock().unwrap();
        assert_eq!(Writer::append(&path).unwrap_err().to_string(), "another program has locked it");
        let began = Instant::now();
        for _ in 0..20 {
            writer.entry(&entry("one"));
        }
        assert!(began.elapsed() < LOCK_TIME * 10, "it is waited for once");
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 20);
    }
}
