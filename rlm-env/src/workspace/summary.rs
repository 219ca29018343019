//! Summary of a working directory's contents for the model.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rlm_core::dirfd::{Directory, Entry, Kind as FileKind};
use rlm_core::text::{counted, grouped, size};
use serde_json::{Map, Value as Json, json};

use super::lines::Lines;
use crate::files::{shown, shown_short};
use crate::terms::{LeftOut, LeftOutReason};

/// Number of top-level entries, and of files in the whole tree, that are kept: the largest.
const KEPT: usize = 100;

/// Number of kept entries, and of kept files, that the text names.
const ENTRIES_IN_TEXT: usize = 10;
const FILES_IN_TEXT: usize = 5;
const EXTENSIONS_IN_TEXT: usize = 8;

/// Longest name and longest path in the text, in characters.
const NAME_IN_TEXT: usize = 48;
const PATH_IN_TEXT: usize = 72;

/// Longest extension in characters; anything longer is hardly an extension.
const MAX_EXTENSION: usize = 12;

/// Number of extensions that are counted separately.
const MAX_EXTENSIONS: usize = 1000;

/// Bytes of the named files in which lines are counted.
const LINES_BYTES: u64 = 256 << 20;

/// Collects a [`Summary`] while a working directory is filled.
#[derive(Debug, Default)]
pub(super) struct Tally {
    files: u64,
    dirs: u64,
    bytes: u64,
    /// Top-level entries. The last one is being filled.
    entries: Vec<TopEntry>,
    /// Number of entries that are counted but not kept.
    dropped_entries: u64,
    largest: Vec<LargeFile>,
    /// Size in bytes from which a file is among the largest.
    large_from: u64,
    extensions: HashMap<String, Kind>,
    left_out: Vec<LeftOut>,
}

impl Tally {
    /// Adds a file. `place` is the path of its directory below the working directory.
    pub(super) fn file(&mut self, place: &[OsString], name: &OsStr, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        if place.is_empty() {
            self.begin_entry(name, false);
        }
        if let Some(entry) = self.entries.last_mut() {
            entry.files += 1;
            entry.bytes += bytes;
        }
        self.count_kind(name, bytes);
        self.note_large(place, name, bytes);
    }

    /// Adds a directory.
    pub(super) fn dir(&mut self, place: &[OsString], name: &OsStr) {
        self.dirs += 1;
        if place.is_empty() {
            self.begin_entry(name, true);
        }
    }

    /// Notes an entry that is not copied. `place` is the path that its directory has below the working directory.
    pub(super) fn left_out(&mut self, reason: LeftOutReason, place: &[OsString], entry: &Entry) {
        LeftOut::add(&mut self.left_out, reason, || {
            let path: PathBuf = place.iter().chain([&entry.name]).collect();
            let end = if entry.kind == FileKind::Directory { "/" } else { "" };
            format!("{}{end}", path.display())
        });
    }

    /// Counts the lines of the named files and returns the summary. None: stopped.
    pub(super) fn summarize(mut self, fs: &Directory, is_stopped: &dyn Fn() -> bool) -> Option<Summary> {
        self.sort_entries();
        self.sort_largest();
        let mut kinds: Vec<(String, Kind)> = self.extensions.into_iter().collect();
        kinds.sort_by(|(a, x), (b, y)| {
            y.bytes.cmp(&x.bytes).then(y.files.cmp(&x.files)).then_with(|| a.cmp(b))
        });
        let mut lines = Lines { fs, left: LINES_BYTES, is_stopped };
        for file in self.largest.iter_mut().take(FILES_IN_TEXT) {
            file.lines = lines.count(&file.path)?;
        }
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_dir).take(ENTRIES_IN_TEXT) {
            let known = self.largest.iter().find(|file| file.path.as_os_str() == entry.name);
            entry.lines = match known.and_then(|file| file.lines) {
                Some(known) => Some(known),
                None => lines.count(Path::new(&entry.name))?,
            };
        }
        Some(Summary {
            files: self.files,
            dirs: self.dirs,
            bytes: self.bytes,
            entries: self.entries,
            dropped_entries: self.dropped_entries,
            largest: self.largest,
            kinds,
            left_out: self.left_out,
        })
    }

    fn begin_entry(&mut self, name: &OsStr, is_dir: bool) {
        if self.entries.len() >= 2 * KEPT {
            self.sort_entries();
        }
        self.entries.push(TopEntry { name: name.to_owned(), is_dir, files: 0, bytes: 0, lines: None });
    }

    fn count_kind(&mut self, name: &OsStr, bytes: u64) {
        let extension = Path::new(name).extension().map(|extension| shown(extension.to_ascii_lowercase()));
        let mut kind = match extension {
            Some(extension) if extension.chars().count() <= MAX_EXTENSION => format!(".{extension}"),
            Some(_too_long) => OTHER.to_owned(),
            None => NO_EXTENSION.to_owned(),
        };
        if self.extensions.len() >= MAX_EXTENSIONS && !self.extensions.contains_key(&kind) {
            kind = OTHER.to_owned();
        }
        let kind = self.extensions.entry(kind).or_default();
        kind.files += 1;
        kind.bytes += bytes;
    }

    fn note_large(&mut self, place: &[OsString], name: &OsStr, bytes: u64) {
        if bytes < self.large_from {
            return;
        }
        let mut path: PathBuf = place.iter().collect();
        path.push(name);
        self.largest.push(LargeFile { path, bytes, lines: None });
        if self.largest.len() >= 2 * KEPT {
            self.sort_largest();
            self.large_from = self.largest.last().map_or(0, |smallest| smallest.bytes);
        }
    }

    fn sort_entries(&mut self) {
        self.entries.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        self.dropped_entries += self.entries.len().saturating_sub(KEPT) as u64;
        self.entries.truncate(KEPT);
    }

    fn sort_largest(&mut self) {
        self.largest.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
        self.largest.truncate(KEPT);
    }
}

const OTHER: &str = "other";
const NO_EXTENSION: &str = "none";

/// The contents of a working directory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    files: u64,
    dirs: u64,
    bytes: u64,
    /// The entries of the working directory itself, the largest first.
    entries: Vec<TopEntry>,
    dropped_entries: u64,
    largest: Vec<LargeFile>,
    /// Counts by extension, with its dot; the extension with the most bytes first.
    kinds: Vec<(String, Kind)>,
    left_out: Vec<LeftOut>,
}

#[derive(Clone, Debug, PartialEq)]
struct TopEntry {
    name: OsString,
    is_dir: bool,
    files: u64,
    bytes: u64,
    lines: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
struct LargeFile {
    path: PathBuf,
    bytes: u64,
    lines: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Kind {
    files: u64,
    bytes: u64,
}

impl Summary {
    /// Number of files.
    pub(crate) fn files(&self) -> u64 {
        self.files
    }

    /// Size of all files in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Files that are not there, by reason.
    pub(crate) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Text for the model's prompt: at most 2,000 characters, without a newline at the end.
    pub(crate) fn text(&self) -> String {
        if self.files == 0 && self.dirs == 0 {
            return "The directory is empty.".to_owned();
        }
        let mut text = counted(self.files, "file");
        if self.dirs > 0 {
            put(&mut text, format_args!(" in {}", counted(self.dirs, "directory")));
        }
        put(&mut text, format_args!(", {}:", size(self.bytes)));
        for entry in self.entries.iter().take(ENTRIES_IN_TEXT) {
            put(&mut text, format_args!("\n  {}", entry.text()));
        }
        let named = self.entries.len().min(ENTRIES_IN_TEXT);
        let more = self.dropped_entries + (self.entries.len() - named) as u64;
        if more > 0 {
            put(&mut text, format_args!("\n  … and {} more", grouped(more)));
        }
        self.put_largest(&mut text);
        self.put_kinds(&mut text);
        text
    }

    /// Adds the largest files that are not yet named as entries.
    fn put_largest(&self, text: &mut String) {
        let is_nested = |file: &LargeFile| file.path.components().count() > 1;
        if !self.largest.iter().take(FILES_IN_TEXT).any(is_nested) {
            return;
        }
        text.push_str("\nLargest files:");
        for file in self.largest.iter().take(FILES_IN_TEXT) {
            let path = shown_short(&file.path, PATH_IN_TEXT);
            put(text, format_args!("\n  {path}: {}", measures(file.bytes, file.lines)));
        }
    }

    fn put_kinds(&self, text: &mut String) {
        if self.files < 2 {
            return;
        }
        text.push_str("\nBy extension: ");
        for (index, (kind, total)) in self.kinds.iter().take(EXTENSIONS_IN_TEXT).enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            put(text, format_args!("{comma}{kind} {} ({})", grouped(total.files), size(total.bytes)));
        }
        if self.kinds.len() > EXTENSIONS_IN_TEXT {
            put(text, format_args!(", and {} more", grouped((self.kinds.len() - EXTENSIONS_IN_TEXT) as u64)));
        }
    }

    /// JSON for code in the session. Bytes of names that are not UTF-8 are replaced.
    pub(crate) fn to_json(&self) -> Json {
        let entries: Vec<Json> = self.entries.iter().map(TopEntry::to_json).collect();
        let largest = self.largest.iter().map(
            |file| json!({"path": file.path.to_string_lossy(), "bytes": file.bytes, "lines": file.lines}),
        );
        let kinds = self
            .kinds
            .iter()
            .map(|(kind, total)| (kind.clone(), json!({"files": total.files, "bytes": total.bytes})));
        json!({
            "files": self.files,
            "directories": self.dirs,
            "bytes": self.bytes,
            "entries": entries,
            "entries_left_out": self.dropped_entries,
            "largest_files": largest.collect::<Vec<_>>(),
            "extensions": kinds.collect::<Map<_, _>>(),
        })
    }
}

impl TopEntry {
    fn text(&self) -> String {
        let name = shown_short(&self.name, NAME_IN_TEXT);
        if self.is_dir {
            format!("{name}/: {}, {}", counted(self.files, "file"), size(self.bytes))
        } else {
            format!("{name}: {}", measures(self.bytes, self.lines))
        }
    }

    fn to_json(&self) -> Json {
        let name = self.name.to_string_lossy();
        if self.is_dir {
            json!({"name": name, "type": "directory", "files": self.files, "bytes": self.bytes})
        } else {
            json!({"name": name, "type": "file", "bytes": self.bytes, "lines": self.lines})
        }
    }
}

fn measures(bytes: u64, lines: Option<u64>) -> String {
    let lines = lines.map(|lines| format!(", {}", counted(lines, "line"))).unwrap_or_default();
    format!("{}{lines}", size(bytes))
}

fn put(text: &mut String, piece: std::fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("a String takes what is written to it");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// The summary of a directory with these files.
    fn summary_of(files: &[(&str, &[u8])]) -> Summary {
        let dir = tempfile::tempdir().unwrap();
        let mut tally = Tally::default();
        for (path, bytes) in files {
            let path = Path::new(path);
            let place: Vec<OsString> = path.parent().unwrap().iter().map(OsStr::to_owned).collect();
            for depth in 0..place.len() {
                let below: PathBuf = place[..=depth].iter().collect();
                if fs::create_dir(dir.path().join(below)).is_ok() {
                    tally.dir(&place[..depth], &place[depth]);
                }
            }
            fs::write(dir.path().join(path), bytes).unwrap();
            tally.file(&place, path.file_name().unwrap(), bytes.len() as u64);
        }
        tally.summarize(&Directory::at_path(dir.path()).unwrap(), &|| false).unwrap()
    }

    fn nowhere() -> Directory {
        Directory::at_path(Path::new("/proc/self")).unwrap()
    }

    #[test]
    fn a_tree_is_summarised() {
        let summary = summary_of(&[
            ("src/main.rs", b"fn main() {\n}\n"),
            ("src/deep/lib.RS", b"x"),
            ("LICENSE", b"no end"),
            ("data.csv", &b"a,b\n".repeat(1000)),
            ("image.png", b"\x89PNG\0\n\n"),
        ]);
        assert_eq!(
            summary.text(),
            "5 files in 2 directories, 4.0 kB:\n\
             \x20 data.csv: 4.0 kB, 1,000 lines\n\
             \x20 src/: 2 files, 15 B\n\
             \x20 image.png: 7 B\n\
             \x20 LICENSE: 6 B, 1 line\n\
             Largest files:\n\
             \x20 data.csv: 4.0 kB, 1,000 lines\n\
             \x20 src/main.rs: 14 B, 2 lines\n\
             \x20 image.png: 7 B\n\
             \x20 LICENSE: 6 B, 1 line\n\
             \x20 src/deep/lib.RS: 1 B, 1 line\n\
             By extension: .csv 1 (4.0 kB), .rs 2 (15 B), .png 1 (7 B), none 1 (6 B)"
        );
        assert_eq!(
            summary.to_json(),
            json!({
                "files": 5, "directories": 2, "bytes": 4028,
                "entries": [
                    {"name": "data.csv", "type": "file", "bytes": 4000, "lines": 1000},
                    {"name": "src", "type": "directory", "files": 2, "bytes": 15},
                    {"name": "image.png", "type": "file", "bytes": 7, "lines": null},
                    {"name": "LICENSE", "type": "file", "bytes": 6, "lines": 1},
                ],
                "entries_left_out": 0,
                "largest_files": [
                    {"path": "data.csv", "bytes": 4000, "lines": 1000},
                    {"path": "src/main.rs", "bytes": 14, "lines": 2},
                    {"path": "image.png", "bytes": 7, "lines": null},
                    {"path": "LICENSE", "bytes": 6, "lines": 1},
                    {"path": "src/deep/lib.RS", "bytes": 1, "lines": 1},
                ],
                "extensions": {
                    ".csv": {"files": 1, "bytes": 4000},
                    ".rs": {"files": 2, "bytes": 15},
                    ".png": {"files": 1, "bytes": 7},
                    "none": {"files": 1, "bytes": 6},
                },
            })
        );
    }

    #[test]
    fn one_file_and_no_files_take_a_line_or_two() {
        assert_eq!(summary_of(&[]).text(), "The directory is empty.");
        assert_eq!(summary_of(&[("a.txt", b"x\n")]).text(), "1 file, 2 B:\n  a.txt: 2 B, 1 line");
        let mut tally = Tally::default();
        tally.dir(&[], OsStr::new("empty"));
        let summary = tally.summarize(&nowhere(), &|| false).unwrap();
        assert_eq!(summary.text(), "0 files in 1 directory, 0 B:\n  empty/: 0 files, 0 B");
    }

    #[test]
    fn the_largest_stay_and_the_rest_is_counted() {
        let mut tally = Tally::default();
        for index in 0..10_000_u64 {
            tally.file(&[], OsStr::new(&format!("{index:05}")), index * 7919 % 10_000);
        }
        let summary = tally.summarize(&nowhere(), &|| false).unwrap();
        let sizes: Vec<u64> = summary.entries.iter().map(|entry| entry.bytes).collect();
        assert_eq!(sizes, (9900..10_000).rev().collect::<Vec<_>>());
        assert_eq!(summary.largest.iter().map(|file| file.bytes).collect::<Vec<_>>(), sizes);
        assert!(summary.text().contains("\n  … and 9,990 more"), "{}", summary.text());
        assert_eq!(summary.to_json()["entries_left_out"], 9900);
    }

    #[test]
    fn the_text_is_bounded_and_of_plain_characters_whatever_the_names() {
        let mut tally = Tally::default();
        for index in 0..5000_u64 {
            let mut name = format!("{index}\n\x1b[2J\u{202e}\\").into_bytes();
            name.resize(240, if index % 2 == 0 { 0xff } else { b'\n' });
            name.extend_from_slice(format!(".\r{}\u{7f}", index % 2000).as_bytes());
            let place = vec![OsString::from(OsStr::from_bytes(&name)); (index % 3) as usize];
            tally.dir(&place, OsStr::from_bytes(&name));
            tally.file(&place, OsStr::from_bytes(&name), u64::MAX / 10_000 - index);
        }
        let text = tally.summarize(&nowhere(), &|| false).unwrap().text();
        assert!(text.chars().count() <= 2000, "{}: {text}", text.chars().count());
        assert!(text.chars().count() > 1000, "the test must be near the bound: {text}");
        assert!(text.chars().all(|c| c == '\n' || c == '…' || c.is_ascii_graphic() || c == ' '), "{text}");
        assert_eq!(text.lines().count(), 1 + ENTRIES_IN_TEXT + 1 + 1 + FILES_IN_TEXT + 1, "{text}");
    }

    #[test]
    fn counting_can_be_stopped() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "x").unwrap();
        let mut tally = Tally::default();
        tally.file(&[], OsStr::new("a"), 1);
        assert_eq!(tally.summarize(&Directory::at_path(dir.path()).unwrap(), &|| true), None);
    }
}
