//! Files of JSON lines. Lines are appended whole, and a line that a killed writer left unfinished is recognised.

use std::fs::{File, TryLockError};
use std::io::{self, BufRead, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Longest line that is read, in bytes. The largest lines hold the outputs of calls, some 16 MiB of text.
const MAX_LINE_BYTES: u64 = 512 << 20;

/// A value as a line, including its newline.
///
/// # Errors
/// The value cannot be JSON.
pub fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// Appends a line whole, or none of it, to a file that is open for appending and has no other writer at the moment.
///
/// # Errors
/// For example, the disk is full.
pub fn append(mut file: &File, line: &[u8]) -> io::Result<()> {
    let mut left = line;
    while !left.is_empty() {
        match file.write(left) {
            Ok(count) => left = &left[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let written = (line.len() - left.len()) as u64;
                if written > 0
                    && let Ok(metadata) = file.metadata()
                {
                    // If this fails too, readers find a line that is cut off.
                    let _cut_off = file.set_len(metadata.len().saturating_sub(written));
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// A lock on a file (`flock`), released on drop.
#[derive(Debug)]
pub struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    /// Waits for the lock. None if another process held it all that time.
    ///
    /// # Errors
    /// The file system does not support locks.
    pub fn wait(file: &'a File, time_limit: Duration) -> io::Result<Option<Self>> {
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self(file))),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if began.elapsed() >= time_limit => return Ok(None),
                Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let _it_goes_with_the_file = self.0.unlock();
    }
}

/// Removes an unfinished line from the end of a file that has no other writer at the moment.
///
/// # Errors
/// The file cannot be read or written.
pub fn remove_unfinished_line(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    if last == *b"\n" { Ok(()) } else { file.set_len(line_start(file, length)?) }
}

/// Offset of the start of the line that ends at `end`: just after the newline before it.
///
/// # Errors
/// The file cannot be read.
pub fn line_start(file: &File, end: u64) -> io::Result<u64> {
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

/// Reads lines one by one and skips blank ones. Only the current line is in memory.
#[derive(Debug)]
pub struct Lines<R> {
    input: R,
    number: u64,
    text: Vec<u8>,
}

/// A line that is not blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Line number, from 1.
    pub number: u64,
    /// The line's bytes, without the newline.
    pub text: &'a [u8],
    /// True if the line ends with a newline. The last line of a file may be unfinished: its writer was killed, or is
    /// still writing.
    pub is_finished: bool,
}

impl<R: BufRead> Lines<R> {
    /// Reads from the input's current position.
    pub fn new(input: R) -> Self {
        Self { input, number: 0, text: Vec::new() }
    }

    /// Number of the last line that was read, or that could not be read.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line; None at the end of the input.
    ///
    /// # Errors
    /// The input cannot be read, or the line is longer than 512 MiB.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            self.number += 1;
            self.text.clear();
            if (&mut self.input).take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut self.text)? == 0 {
                return Ok(None);
            }
            if self.text.len() as u64 > MAX_LINE_BYTES {
                let message = format!("it is longer than {MAX_LINE_BYTES} bytes");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
            }
            if !self.text.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        let text = self.text.strip_suffix(b"\n");
        Ok(Some(Line { number: self.number, text: text.unwrap_or(&self.text), is_finished: text.is_some() }))
    }
}

/// A parser's message about a single line, without the line number, which would always be 1.
#[must_use]
pub fn fault(error: &serde_json::Error) -> String {
    error.to_string().replacen(" at line 1 column ", " at column ", 1)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    fn file(text: &str) -> File {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        OpenOptions::new().read(true).append(true).open(file.path()).unwrap()
    }

    fn text(file: &File) -> String {
        let mut text = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut text, 0).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_are_appended() {
        let file = file("1\n");
        append(&file, &line(&["a\nb"]).unwrap()).unwrap();
        assert_eq!(text(&file), "1\n[\"a\\nb\"]\n");
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(append(&full, b"1\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn only_an_unfinished_line_is_removed() {
        let long = "x".repeat(200_000);
        for (before, after) in [("", ""), ("a", ""), ("a\n", "a\n"), ("a\nb", "a\n"), ("\n", "\n")] {
            let file = file(&before.replace('b', &long));
            remove_unfinished_line(&file).unwrap();
            assert_eq!(text(&file), after);
        }
    }

    #[test]
    fn a_lock_is_waited_for_and_released_on_drop() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let [one, other] = [(); 2].map(|()| File::open(path.path()).unwrap());
        let held = Lock::wait(&one, Duration::ZERO).unwrap();
        assert!(held.is_some());
        assert!(Lock::wait(&other, Duration::from_millis(5)).unwrap().is_none());
        drop(held);
        assert!(Lock::wait(&other, Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn lines_have_numbers_and_the_last_may_be_unfinished() {
        let mut lines = Lines::new(&b"1\n\n \t\n2\n3"[..]);
        let mut found = Vec::new();
        while let Some(Line { number, text, is_finished }) = lines.next_line().unwrap() {
            found.push((number, text.to_owned(), is_finished));
        }
        assert_eq!(found, [(1, b"1".to_vec(), true), (4, b"2".to_vec(), true), (5, b"3".to_vec(), false)]);
    }

    #[test]
    fn a_fault_names_only_the_column() {
        let error = serde_json::from_slice::<serde_json::Value>(b"x").unwrap_err();
        assert_eq!(fault(&error), "expected value at column 1");
    }
}
