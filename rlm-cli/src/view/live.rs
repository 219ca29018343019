//! A trajectory that grows, and the rollouts that it has so far.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use rlm_core::text::counted;
use rlm_env::trajectory::{Entry, Line, read};
use tokio::sync::watch;

use super::rollouts::{Lengths, Rollouts};
use super::{rlms, text};

/// Time between two looks at a file that does not grow.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Most bytes that are read at once.
const CHUNK_BYTES: u64 = 4 << 20;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Growing {
    path: PathBuf,
    file: File,
    /// The end of what was read: a line that is not finished.
    rest: Vec<u8>,
    bytes: u64,
    lines: u64,
}

impl Growing {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), file, rest: Vec::new(), bytes: 0, lines: 0 })
    }

    /// The entries that have come since; None if there is nothing new.
    pub(super) fn more(&mut self) -> anyhow::Result<Option<Vec<Entry>>> {
        let before = self.rest.len();
        let count = (&self.file).take(CHUNK_BYTES).read_to_end(&mut self.rest)?;
        if count == 0 {
            return Ok(None);
        }
        self.bytes += count as u64;
        let Some(end) = self.rest[before..].iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Some(Vec::new()));
        };
        let rest = self.rest.split_off(before + end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        if self.lines == 0 && rlms::begins(&whole) {
            anyhow::bail!("a file of RLMLogger does not grow line by line: show it with --html");
        }
        let mut entries = Vec::new();
        for line in read(&whole[..]) {
            let line = line.with_context(|| format!("behind the first {}", counted(self.lines, "line")))?;
            if let Line::Entry(entry) = line {
                entries.push(*entry);
            }
        }
        self.lines += whole.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(Some(entries))
    }

    /// Reports whether another file took its place, or it was cut.
    pub(super) fn is_void(&self) -> io::Result<bool> {
        let (here, there) = (self.file.metadata()?, self.path.metadata()?);
        Ok((here.dev(), here.ino()) != (there.dev(), there.ino()) || here.len() < self.bytes)
    }
}

/// The rollouts of a file, as it grows. A thread reads it as long as somebody has this.
#[derive(Debug)]
pub(super) struct Live {
    so_far: Mutex<SoFar>,
    changes: watch::Sender<()>,
}

/// What is known.
#[derive(Debug)]
pub(super) struct SoFar {
    /// Another one for each reading from the file's beginning, also by another process.
    pub(super) instance: String,
    pub(super) rollouts: Rollouts,
    /// Why the file is read no further.
    pub(super) trouble: Option<String>,
}

impl SoFar {
    fn new(lengths: Lengths) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self { instance: time.to_string(), rollouts: Rollouts::new(lengths), trouble: None }
    }
}

impl Live {
    pub(super) fn follow(path: &Path, lengths: Lengths) -> anyhow::Result<Arc<Self>> {
        let growing = Growing::open(path)?;
        let live =
            Arc::new(Self { so_far: Mutex::new(SoFar::new(lengths)), changes: watch::Sender::new(()) });
        let reader = Arc::downgrade(&live);
        std::thread::Builder::new()
            .name("trajectory".to_owned())
            .spawn(move || read_on(&reader, growing, lengths))
            .context("no thread can be started")?;
        Ok(live)
    }

    pub(super) fn so_far(&self) -> MutexGuard<'_, SoFar> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

fn read_on(live: &Weak<Live>, mut growing: Growing, lengths: Lengths) {
    yield_to_others();
    while let Some(live) = live.upgrade() {
        match look(&live, &mut growing, lengths) {
            Ok(true) => live.changes.send_replace(()),
            Ok(false) => {
                drop(live);
                std::thread::sleep(LOOK_EVERY);
            }
            Err(error) => {
                live.so_far().trouble = Some(text::visible(&format!("{error:#}")));
                live.changes.send_replace(());
                return;
            }
        }
    }
}

/// Reads what has come; false if nothing has.
fn look(live: &Live, growing: &mut Growing, lengths: Lengths) -> anyhow::Result<bool> {
    if let Some(entries) = growing.more()? {
        let mut so_far = live.so_far();
        entries.into_iter().for_each(|entry| so_far.rollouts.add(entry));
        return Ok(true);
    }
    if !growing.is_void()? {
        return Ok(false);
    }
    *growing = Growing::open(&growing.path)?;
    *live.so_far() = SoFar::new(lengths);
    Ok(true)
}

/// Lets this thread have what others leave of the processors.
pub(super) fn yield_to_others() {
    // SAFETY: no pointers are passed. 0 is the calling thread; without the change it is only less polite.
    unsafe { nix::libc::setpriority(nix::libc::PRIO_PROCESS, 0, 10) };
}
