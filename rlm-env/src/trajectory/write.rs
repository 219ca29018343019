//! Trajectories into a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::rollout::Sink;
use crate::trajectory::Entry;

/// Writes entries to a file, one line each, when they happen. Several rollouts may share it.
///
/// Each line is one write to a file that is open for appending, so lines are whole whoever else writes, and a killed process
/// loses none that it had told of. A disk that is full costs lines, and one warning in the log.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: Mutex<File>,
    has_failed: AtomicBool,
}

impl Writer {
    /// Opens a file for appending, and makes it where there is none. An entry at its end that was cut off is removed.
    ///
    /// # Errors
    /// The file cannot be opened, or holds something else.
    pub fn append(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        remove_cut_entry(&file)?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), has_failed: AtomicBool::new(false) })
    }
}

impl Sink for Writer {
    fn entry(&self, entry: &Entry) {
        let written = serde_json::to_vec(entry).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
        });
        if let Err(error) = written
            && !self.has_failed.swap(true, Relaxed)
        {
            tracing::error!(path = %self.path.display(), %error, "the trajectory is incomplete");
        }
    }
}

/// How an entry begins.
const BEGINNING: &[u8] = b"{\"rollout\":";

/// Cuts a file behind its last whole line. What is no regular file, such as a terminal, is left alone.
fn remove_cut_entry(mut file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(());
    }
    let mut end = Vec::new();
    let mut start = metadata.len();
    while start > 0 && !end.contains(&b'\n') {
        let count = start.min(64 << 10);
        start -= count;
        file.seek(SeekFrom::Start(start))?;
        let mut piece = vec![0; usize::try_from(count).unwrap_or_default()];
        file.read_exact(&mut piece)?;
        piece.append(&mut end);
        end = piece;
    }
    let cut = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let tail = &end[cut..];
    if !tail.is_empty() && !BEGINNING.starts_with(tail) && !tail.starts_with(BEGINNING) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is no trajectory: its last line is no entry",
        ));
    }
    file.set_len(start + cut as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_entry_is_removed_and_another_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let long = format!("{{\"rollout\":\"{}", "x".repeat(200_000));
        for (before, after) in [
            ("", Some("")),
            ("{\"rollout\":1}\n", Some("{\"rollout\":1}\n")),
            ("{\"rollout\":1}\n{\"rol", Some("{\"rollout\":1}\n")),
            ("{\"rollout\":", Some("")),
            (&long, Some("")),
            ("{\"rollout\":1}\nnotes", None),
            ("notes", None),
        ] {
            std::fs::write(&path, before).unwrap();
            let opened = Writer::append(&path);
            assert_eq!(opened.is_ok(), after.is_some(), "{:.40}", before);
            drop(opened);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after.unwrap_or(before));
        }
    }
}
