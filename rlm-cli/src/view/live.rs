//! A trajectory that grows, and the rollouts that it has so far.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use rlm_env::trajectory::{Entry, Line, ReadError, read};
use serde::de::IgnoredAny;
use tokio::sync::watch;

use super::rlms;
use super::rollouts::Rollouts;
use crate::lock::lock;
use crate::text;
use crate::text::Lengths;

/// Time between two looks at a file that does not grow.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Most bytes that are read at once.
const CHUNK_BYTES: u64 = 4 << 20;

/// Bytes at both ends of the part that was read. If they change, it is another file.
const MARK_BYTES: usize = 4096;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Growing {
    path: PathBuf,
    file: File,
    /// The end of what was read: a line that is not finished.
    rest: Vec<u8>,
    lines: u64,
    seen: Seen,
    /// Why reading has ended: a line that is not an entry.
    malformed: Option<String>,
}

impl Growing {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let about = || path.display().to_string();
        // Opening a FIFO would wait for its writer.
        let file = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
        let file = file.with_context(about)?;
        if !file.metadata().with_context(about)?.is_file() {
            anyhow::bail!("{}: expected a file, which can be read from its beginning", path.display());
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            rest: Vec::new(),
            lines: 0,
            seen: Seen::default(),
            malformed: None,
        })
    }

    /// The entries that have come since; None if there is nothing new.
    pub(super) fn more(&mut self) -> anyhow::Result<Option<Vec<Entry>>> {
        if let Some(reason) = &self.malformed {
            anyhow::bail!("{reason}");
        }
        let before = self.rest.len();
        let count = (&self.file).take(CHUNK_BYTES).read_to_end(&mut self.rest)?;
        if count == 0 {
            return Ok(None);
        }
        self.seen.add(&self.rest[before..]);
        let end = self.rest[before..].iter().rposition(|byte| *byte == b'\n').map(|end| before + end + 1);
        let rest = self.rest.split_off(end.unwrap_or_default());
        let mut whole = std::mem::replace(&mut self.rest, rest);
        // The last line of a file made by hand may lack its line break: half an entry is not JSON.
        if self.rest.ends_with(b"}") && serde_json::from_slice::<IgnoredAny>(&self.rest).is_ok() {
            whole.append(&mut self.rest);
        }
        if whole.is_empty() {
            return Ok(Some(Vec::new()));
        }
        if self.lines == 0 && rlms::begins(&whole) {
            let reason = "a file of RLMLogger does not grow line by line: show it with --html";
            self.malformed = Some(reason.to_owned());
        }
        let mut entries = Vec::new();
        for line in read(&whole[..]) {
            match line {
                Ok(Line::Entry(entry)) => entries.push(*entry),
                Ok(_) => {}
                Err(error) => {
                    let reason = match error {
                        ReadError::Malformed { line, reason } => {
                            ReadError::Malformed { line: self.lines + line, reason }.to_string()
                        }
                        other => other.to_string(),
                    };
                    self.malformed.get_or_insert(reason);
                }
            }
        }
        self.lines += whole.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(Some(entries))
    }

    /// Reports whether the file was replaced or written anew.
    pub(super) fn is_void(&mut self) -> anyhow::Result<bool> {
        let here = self.file.metadata()?;
        let there = self.path.metadata().with_context(|| self.path.display().to_string())?;
        Ok((here.dev(), here.ino()) != (there.dev(), there.ino())
            || self.seen.has_changed(&self.file, &here)?)
    }
}

/// The part of a file that was read. Its first and last bytes and the time of its last change tell whether it has changed since.
#[derive(Debug, Default)]
struct Seen {
    bytes: u64,
    /// The first bytes, and the last ones that were read.
    marks: [Vec<u8>; 2],
    /// The time of the file's last change when there was nothing more to read.
    settled: Option<SystemTime>,
    /// True if the last look saw another time than `settled`.
    is_suspect: bool,
}

impl Seen {
    /// Adds bytes that have just been read.
    fn add(&mut self, new: &[u8]) {
        self.bytes += new.len() as u64;
        (self.settled, self.is_suspect) = (None, false);
        let [first, last] = &mut self.marks;
        first.extend_from_slice(&new[..new.len().min(MARK_BYTES - first.len())]);
        last.extend_from_slice(&new[new.len().saturating_sub(MARK_BYTES)..]);
        last.drain(..last.len().saturating_sub(MARK_BYTES));
    }

    /// Reports whether the file no longer begins with this part. A writer that goes on changes the time a moment before the size:
    /// so two looks must see another time.
    fn has_changed(&mut self, file: &File, now: &Metadata) -> io::Result<bool> {
        let [first, last] = &self.marks;
        let has = |mark: &[u8], at| {
            let mut found = vec![0; mark.len()];
            file.read_exact_at(&mut found, at).is_ok() && found == mark
        };
        if now.len() < self.bytes || !has(first, 0) || !has(last, self.bytes - last.len() as u64) {
            return Ok(true);
        }
        if now.len() > self.bytes {
            return Ok(false);
        }
        let modified = now.modified()?;
        let is_other = *self.settled.get_or_insert(modified) != modified;
        Ok(std::mem::replace(&mut self.is_suspect, is_other) && is_other)
    }
}

/// The rollouts of a file, as it grows. A thread reads the file as long as this value exists.
#[derive(Debug)]
pub(super) struct Live {
    so_far: Mutex<SoFar>,
    changes: watch::Sender<()>,
}

/// The rollouts of one reading of the file, and how that went.
#[derive(Debug)]
pub(super) struct SoFar {
    /// An id of this reading from the file's beginning. No other reading has it, in any process.
    pub(super) instance: String,
    pub(super) rollouts: Rollouts,
    /// True once the end of the file was reached.
    pub(super) is_read: bool,
    /// Why the file is not read now.
    pub(super) trouble: Option<String>,
}

impl SoFar {
    /// True until all that was there at the beginning is read.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.is_read && self.trouble.is_none()
    }

    fn new(path: &Path, lengths: Lengths) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self {
            instance: time.to_string(),
            rollouts: Rollouts::new(Some(path), lengths),
            is_read: false,
            trouble: None,
        }
    }
}

impl Live {
    pub(super) fn follow(path: &Path, lengths: Lengths) -> anyhow::Result<Arc<Self>> {
        let growing = Growing::open(path)?;
        let live =
            Arc::new(Self { so_far: Mutex::new(SoFar::new(path, lengths)), changes: watch::Sender::new(()) });
        let reader = Arc::downgrade(&live);
        std::thread::Builder::new()
            .name("trajectory".to_owned())
            .spawn(move || read_on(&reader, growing, lengths))
            .context("no thread can be started")?;
        Ok(live)
    }

    pub(super) fn so_far(&self) -> MutexGuard<'_, SoFar> {
        lock(&self.so_far)
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

fn read_on(live: &Weak<Live>, mut growing: Growing, lengths: Lengths) {
    yield_to_others();
    while let Some(live) = live.upgrade() {
        let has_changed = look(&live, &mut growing, lengths).unwrap_or_else(|error| {
            // The file may be repaired.
            let trouble = Some(text::visible(&format!("{error:#}")));
            let mut so_far = live.so_far();
            std::mem::replace(&mut so_far.trouble, trouble.clone()) != trouble
        });
        if has_changed {
            live.changes.send_replace(());
        } else {
            drop(live);
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Reads what has come; false if nothing has.
fn look(live: &Live, growing: &mut Growing, lengths: Lengths) -> anyhow::Result<bool> {
    if growing.is_void()? {
        *growing = Growing::open(&growing.path)?;
        *live.so_far() = SoFar::new(&growing.path, lengths);
        return Ok(true);
    }
    let entries = growing.more()?;
    let mut so_far = live.so_far();
    let had_trouble = so_far.trouble.take().is_some();
    let was_read = so_far.is_read;
    so_far.is_read |= entries.is_none();
    let has_more = entries.is_some();
    entries.into_iter().flatten().for_each(|entry| so_far.rollouts.add(entry));
    Ok(has_more || had_trouble || so_far.is_read != was_read)
}

/// Gives this thread only the processor time that other programs leave.
pub(super) fn yield_to_others() {
    // SAFETY: no pointers are passed. 0 is the calling thread; without the change it is only less polite.
    unsafe { nix::libc::setpriority(nix::libc::PRIO_PROCESS, 0, 10) };
}
