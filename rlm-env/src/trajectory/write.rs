//! Trajectories into a file.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{major, minor};

use super::entry::Entry;
use super::sink::Sink;

/// How an entry begins.
const BEGINNING: &[u8] = b"{\"rollout\":";

/// How long the lock of a file is waited for. Writers hold it for one entry; who holds it for longer is none of them, and is
/// waited for once.
const LOCK_TIME: Duration = Duration::from_secs(1);

/// Writes entries to a file, one line each, when they happen. Several rollouts may share it, of several processes too.
///
/// Each line is one write to a file that is open for appending, so lines are whole whoever else writes, and a killed process
/// loses none that it had told of. Writers take turns by a lock (`flock`), so that what one finds behind the last line is no
/// entry which another is about to write, but one that was cut off: it is taken away, and no line is appended to it. A disk
/// that is full costs lines, and one warning in the log.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: Mutex<Open>,
    is_regular: bool,
    /// Another program keeps the lock.
    is_locked_out: AtomicBool,
    has_failed: AtomicBool,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Where our last line ended.
    end: u64,
}

impl Writer {
    /// Opens a file for appending, and makes it where there is none. An entry at its end that was cut off is removed.
    ///
    /// # Errors
    /// The file cannot be opened, or another program has locked it. [`io::ErrorKind::InvalidInput`]: it is of a kind that may
    /// hold up its writer, such as a pipe. [`io::ErrorKind::InvalidData`]: it holds something else.
    pub fn append(path: &Path) -> io::Result<Self> {
        if let Ok(metadata) = path.metadata() {
            check_kind(&metadata)?;
        }
        // Should it have become a pipe by now, nobody is waited for.
        let flags = OFlag::O_NONBLOCK;
        let file =
            OpenOptions::new().read(true).append(true).create(true).custom_flags(flags.bits()).open(path)?;
        fcntl(file.as_fd(), FcntlArg::F_SETFL(OFlag::O_APPEND))?;
        let is_regular = file.metadata()?.is_file();
        if is_regular {
            let _locked = Locked::wait(&file, LOCK_TIME)?
                .ok_or_else(|| io::Error::new(io::ErrorKind::WouldBlock, "another program has locked it"))?;
            check_is_trajectory(&file)?;
            remove_cut_entry(&file)?;
        }
        let path = path.to_owned();
        let [is_locked_out, has_failed] = [false; 2].map(AtomicBool::new);
        Ok(Self { path, file: Mutex::new(Open { file, end: 0 }), is_regular, is_locked_out, has_failed })
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut open = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Open { file, end } = &mut *open;
        if !self.is_regular {
            return file.write_all(line);
        }
        // Where another program keeps the lock, the line is whole all the same.
        let patience = if self.is_locked_out.load(Relaxed) { Duration::ZERO } else { LOCK_TIME };
        let mut appended = &*file;
        let Ok(Some(_locked)) = Locked::wait(file, patience) else {
            self.is_locked_out.store(true, Relaxed);
            return appended.write_all(line);
        };
        self.is_locked_out.store(false, Relaxed);
        if file.metadata()?.len() != *end {
            *end = remove_cut_entry(file)?;
        }
        // Safe while all others wait: what was written of the line is the end of the file.
        appended.write_all(line).inspect_err(|_| {
            let _is_tried_again_by_the_next = file.set_len(*end);
        })?;
        *end += line.len() as u64;
        Ok(())
    }
}

impl Sink for Writer {
    fn entry(&self, entry: &Entry) {
        let written = serde_json::to_vec(entry).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.write(&line)
        });
        if let Err(error) = written
            && !self.has_failed.swap(true, Relaxed)
        {
            tracing::error!(path = %self.path.display(), %error, "the trajectory is incomplete");
        }
    }
}

/// The lock of a file, until it is dropped.
struct Locked<'a>(&'a File);

impl<'a> Locked<'a> {
    /// Waits for the lock. None: it could not be had in time.
    fn wait(file: &'a File, patience: Duration) -> io::Result<Option<Self>> {
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self(file))),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if began.elapsed() >= patience => return Ok(None),
                Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _it_goes_with_the_file = self.0.unlock();
    }
}

/// Refuses what may hold up its writer, or does something with what is written to it.
fn check_kind(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let device = (major(metadata.rdev()), minor(metadata.rdev()));
    // Memory devices: null, zero, full. Terminals, their masters, the controlling one.
    let is_harmless = matches!(device, (1, 3 | 5 | 7) | (4 | 136..=143, _) | (5, 0 | 1));
    // What a directory is, is said where it is opened.
    let found = if kind.is_file() || kind.is_dir() || (kind.is_char_device() && is_harmless) {
        return Ok(());
    } else if kind.is_fifo() {
        "a pipe, whose reader could hold everything up"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {found}: name a file")))
}

/// Refuses a file whose first or last whole line, or what is behind it, is no entry.
fn check_is_trajectory(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let cut = line_start(file, length)?;
    let mut starts = vec![0, cut];
    if cut > 0 {
        starts.push(line_start(file, cut - 1)?);
    }
    for start in starts {
        let mut begun = [0; BEGINNING.len()];
        let has = usize::try_from(length - start).unwrap_or(usize::MAX).min(begun.len());
        file.read_exact_at(&mut begun[..has], start)?;
        if begun[..has] != BEGINNING[..has] {
            let what = if start == 0 { "its first line" } else { "a line at its end" };
            let message = format!("it is no trajectory: {what} is no entry");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    Ok(())
}

/// Cuts a locked file behind its last whole line, and tells its length.
fn remove_cut_entry(file: &File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut last = [0];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    if length == 0 || last == *b"\n" {
        return Ok(length);
    }
    let cut = line_start(file, length)?;
    file.set_len(cut)?;
    Ok(cut)
}

/// Where the line begins that ends here: behind the newline before.
fn line_start(file: &File, end: u64) -> io::Result<u64> {
    let mut piece = vec![0; 64 << 10];
    let mut start = end;
    while start > 0 {
        let count = piece.len().min(usize::try_from(start).unwrap_or(usize::MAX));
        start -= count as u64;
        file.read_exact_at(&mut piece[..count], start)?;
        if let Some(at) = memchr::memrchr(b'\n', &piece[..count]) {
            return Ok(start + at as u64 + 1);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

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
        let message = Message { turn: 1, kind: MessageKind::Notice, message: json!({ "content": text }) };
        Entry { rollout: "r".to_owned(), time: 1.5, event: Event::Message(message) }
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
            // It may look at the file now; it may not cut it.
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
    fn what_could_hold_up_its_writer_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |path: &Path| {
            let error = Writer::append(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
            error.to_string()
        };
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(refused(&fifo), "it is a pipe, whose reader could hold everything up: name a file");
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(refused(&socket), "it is a socket: name a file");
        assert_eq!(refused(Path::new("/dev/urandom")), "it is a device: name a file");
        Writer::append(Path::new("/dev/null")).unwrap().entry(&entry("nobody reads it"));
    }

    #[test]
    fn who_keeps_the_lock_holds_up_no_entry_for_long() {
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
