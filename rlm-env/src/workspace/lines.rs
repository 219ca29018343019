//! Numbers of lines, for the summary of a working directory.

use std::io::Read;
use std::path::Path;

use rlm_core::dirfd::Directory;

/// A file with a zero byte in this many first bytes is not text.
const SNIFFED_BYTES: usize = 8 << 10;

/// Counts lines, with a bound on the total bytes read.
pub(super) struct Lines<'a> {
    pub(super) fs: &'a Directory,
    /// Bytes that may still be read.
    pub(super) left: u64,
    pub(super) is_stopped: &'a dyn Fn() -> bool,
}

impl Lines<'_> {
    /// Outer None: stopped. Inner None: not text, too large, or unreadable.
    pub(super) fn count(&mut self, path: &Path) -> Option<Option<u64>> {
        let Ok(mut file) = self.fs.file_below(path) else { return Some(None) };
        let Ok(metadata) = file.metadata() else { return Some(None) };
        let Some(left) = self.left.checked_sub(metadata.len()) else { return Some(None) };
        let mut buffer = vec![0; 256 << 10];
        let (mut lines, mut is_start, mut is_line_open) = (0, true, false);
        loop {
            if (self.is_stopped)() {
                return None;
            }
            let read = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => &buffer[..count],
                Err(_unreadable) => return Some(None),
            };
            if is_start && read[..read.len().min(SNIFFED_BYTES)].contains(&0) {
                return Some(None);
            }
            is_start = false;
            lines += memchr::memchr_iter(b'\n', read).count() as u64;
            is_line_open = read.last() != Some(&b'\n');
        }
        self.left = left;
        Some(Some(lines + u64::from(is_line_open)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_of_more_bytes_than_are_read_are_not_counted() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "1\n2\n").unwrap();
        fs::write(dir.path().join("b"), "1").unwrap();
        let fs = Directory::at_path(dir.path()).unwrap();
        let mut lines = Lines { fs: &fs, left: 4, is_stopped: &|| false };
        assert_eq!(["a", "b"].map(|name| lines.count(Path::new(name))), [Some(Some(2)), Some(None)]);
    }
}
