//! `nav_search`: searches for lines that match a regular expression.
//!
//! Several threads take files from one walk, a few at a time, and search them; hits are combined in the order of the
//! walk. So the result does not depend on the number of threads, and all stop once the files so far have more hits than
//! are wanted.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use grep_matcher::{LineTerminator, Matcher as _};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use rlm_core::pickle::Value;

use super::context::{Context, OpenFile, is_gone, open_file, shown};
use super::fault::Fault;
use super::pattern::{Pattern, Stoppable, without_end};
use super::source::{Target, nothing, target};
use super::stop::{Stop, Stopped, is_stopped};
use super::text::{BLOCK_BYTES, bytes, fill, is_binary};
use super::value::{dict, int};
use super::walk::{FoundFile, Walk};

/// Largest number of hits in a result.
pub(super) const MAX_RESULTS: usize = 1000;

/// Longest text of a hit in characters; of a longer line, the part around the match.
const TEXT_CHARS: usize = 300;

/// Characters before the match that a cut line keeps.
const CHARS_BEFORE: usize = 100;

/// Longest line that is searched, in bytes.
const MAX_LINE_BYTES: usize = 32 << 20;

/// Number of files that a thread takes at once.
const FILES: usize = 16;

/// Number of threads of a call.
const MAX_THREADS: usize = 4;

/// A line that matches.
#[derive(Debug)]
struct Hit {
    path: String,
    line: u64,
    text: String,
    is_cut: bool,
}

/// The results of a few files.
#[derive(Debug, Default)]
struct Part {
    hits: Vec<Hit>,
    /// Files that were not searched to the end, with the reason.
    unsearched: Vec<String>,
    last_path: String,
}

pub(super) fn search(
    context: &Context,
    pattern: &str,
    max: usize,
    path: &str,
    stop: &Stop,
) -> Result<Value, Fault> {
    let matcher = Pattern::new(pattern)?;
    let searched = match target(context, path)? {
        Some(Target::Directory(path, directory)) => {
            let walk = Walk::new(context, directory, &path, stop)
                .map_err(|error| Fault::reading(&shown(&path), &error))?;
            Search::new(&matcher, max, stop, walk).run()
        }
        Some(Target::File(path, open)) => {
            let mut part = Part::default();
            let mut files = FileSearch::new(&matcher, max, stop);
            match files.search(&path, open, &mut part) {
                Ok(true) => Outcome { parts: vec![part], is_complete: true, unread: 0 },
                Ok(false) => {
                    return Err(Fault::refused(format!("{:?} is binary: it has NUL bytes", shown(&path))));
                }
                Err(Stopped) => Outcome { parts: vec![part], is_complete: false, unread: 0 },
            }
        }
        Some(Target::InFile(path, name, _)) => {
            return Err(Fault::refused(format!(
                "a search takes a file or a directory, not a symbol or lines: omit {:?} from the path, as in {:?}",
                format!(":{name}"),
                shown(&path)
            )));
        }
        None => {
            return Err(nothing(context, path, "file or directory", stop));
        }
    };
    Ok(searched.into_value(max))
}

/// A search of many files.
struct Search<'a> {
    matcher: &'a Pattern,
    max: usize,
    stop: &'a Stop,
    source: Mutex<Source>,
    results: Mutex<Results>,
}

struct Source {
    walk: Walk,
    /// The index of the next part.
    next: usize,
    is_over: bool,
    is_stopped: bool,
}

#[derive(Default)]
struct Results {
    parts: BTreeMap<usize, Part>,
    /// Number of finished parts without a gap from the first, and their hits.
    whole: usize,
    hits: usize,
}

/// The result of a search: the finished parts in order, up to the first gap.
struct Outcome {
    parts: Vec<Part>,
    is_complete: bool,
    unread: u64,
}

impl<'a> Search<'a> {
    fn new(matcher: &'a Pattern, max: usize, stop: &'a Stop, walk: Walk) -> Self {
        let source = Source { walk, next: 0, is_over: false, is_stopped: false };
        Self { matcher, max, stop, source: Mutex::new(source), results: Mutex::default() }
    }

    fn run(self) -> Outcome {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        thread::scope(|scope| {
            for _ in 1..threads {
                let name = "nav_search".to_owned();
                // With fewer threads the search only takes longer.
                let _too_few = thread::Builder::new().name(name).spawn_scoped(scope, || self.work()).is_err();
            }
            self.work();
        });
        let source = self.source.into_inner().unwrap_or_else(PoisonError::into_inner);
        let results = self.results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (taken, unread) = (source.next, source.walk.unread);
        let is_complete = !source.is_stopped && results.parts.len() == taken;
        let parts = results.parts.into_iter().enumerate();
        let parts = parts.take_while(|(place, (index, _))| place == index).map(|(_, (_, part))| part);
        Outcome { parts: parts.collect(), is_complete, unread }
    }

    fn work(&self) {
        let mut files = FileSearch::new(self.matcher, self.max, self.stop);
        while let Some((index, found)) = self.take() {
            let mut part = Part::default();
            for file in found {
                if files.search_found(&file, &mut part).is_err() {
                    return;
                }
                if part.hits.len() > self.max {
                    break;
                }
            }
            if self.put(index, part) > self.max {
                locked(&self.source).is_over = true;
            }
        }
    }

    /// The next files.
    fn take(&self) -> Option<(usize, Vec<FoundFile>)> {
        let mut source = locked(&self.source);
        if source.is_over {
            return None;
        }
        let mut files = Vec::with_capacity(FILES);
        while files.len() < FILES {
            match source.walk.next() {
                Ok(Some(found)) => files.push(found),
                Ok(None) => {
                    source.is_over = true;
                    break;
                }
                Err(Stopped) => {
                    source.is_stopped = true;
                    return None;
                }
            }
        }
        if files.is_empty() {
            return None;
        }
        source.next += 1;
        Some((source.next - 1, files))
    }

    /// Stores a part. Returns the number of hits in the finished parts without a gap.
    fn put(&self, index: usize, part: Part) -> usize {
        let mut results = locked(&self.results);
        results.parts.insert(index, part);
        while let Some(part) = results.parts.get(&results.whole) {
            results.hits += part.hits.len();
            results.whole += 1;
        }
        results.hits
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Searches one file after another.
struct FileSearch<'a> {
    matcher: Stoppable<'a>,
    searcher: Searcher,
    max: usize,
    stop: &'a Stop,
    head: Vec<u8>,
}

impl<'a> FileSearch<'a> {
    fn new(matcher: &'a Pattern, max: usize, stop: &'a Stop) -> Self {
        let searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::none())
            .bom_sniffing(false)
            .heap_limit(Some(MAX_LINE_BYTES))
            .line_number(true)
            .line_terminator(LineTerminator::crlf())
            .build();
        Self { matcher: matcher.stoppable(stop), searcher, max, stop, head: Vec::with_capacity(BLOCK_BYTES) }
    }

    /// Searches one file of the walk. Skips a file that has been removed; notes one that cannot be read.
    fn search_found(&mut self, found: &FoundFile, part: &mut Part) -> Result<(), Stopped> {
        match open_file(&found.directory, found.name()) {
            Ok(Some(open)) => {
                self.search(&found.path, open, part)?;
            }
            Ok(None) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => part.unsearched.push(format!("{}: {error}", shown(&found.path))),
        }
        Ok(())
    }

    /// Searches one file. False if it is binary.
    fn search(&mut self, path: &Path, open: OpenFile, part: &mut Part) -> Result<bool, Stopped> {
        part.last_path = shown(path);
        let is_small = open.size > 0 && open.size < BLOCK_BYTES as u64;
        let mut reader = bytes(open, self.stop);
        self.head.clear();
        let filled = fill(&mut reader, &mut self.head, BLOCK_BYTES);
        let mut sink = Hits { matcher: &self.matcher, max: self.max, part };
        let searched = match filled {
            Ok(()) if is_binary(&self.head) => return Ok(false),
            Ok(()) if is_small => self.searcher.search_slice(&self.matcher, &self.head, &mut sink),
            Ok(()) => {
                let whole = io::Read::chain(self.head.as_slice(), reader);
                self.searcher.search_reader(&self.matcher, whole, &mut sink)
            }
            Err(error) => Err(error),
        };
        if self.matcher.was_in_pieces() {
            part.unsearched.push(format!(
                "{}: a long line was searched in pieces, so no match longer than 4 KiB is found there",
                shown(path)
            ));
        }
        match searched {
            Ok(()) => Ok(true),
            // Errors from the matcher arrive as text.
            Err(error) if is_stopped(&error) || self.stop.check().is_err() => Err(Stopped),
            Err(error) => {
                part.unsearched.push(format!("{}: {error}", shown(path)));
                Ok(true)
            }
        }
    }
}

/// Takes the hits of a file.
struct Hits<'a> {
    matcher: &'a Stoppable<'a>,
    max: usize,
    part: &'a mut Part,
}

impl Sink for Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let line = without_end(found.bytes());
        let at = self.matcher.find(line).ok().flatten().map_or(0, |matched| matched.start());
        let (text, is_cut) = around(line, at);
        let path = self.part.last_path.clone();
        self.part.hits.push(Hit { path, line: found.line_number().unwrap_or(0), text, is_cut });
        Ok(self.part.hits.len() <= self.max)
    }
}

/// The text of a line for a hit, and true if only the part around the match is kept.
fn around(line: &[u8], at: usize) -> (String, bool) {
    // A character has at most four bytes.
    if line.len() <= TEXT_CHARS {
        return (String::from_utf8_lossy(line).into_owned(), false);
    }
    let far = 4 * TEXT_CHARS;
    let before = String::from_utf8_lossy(&line[at.saturating_sub(far)..at]);
    let after = String::from_utf8_lossy(&line[at..line.len().min(at + far)]);
    let chars_before = before.chars().count();
    let is_whole = at <= far && line.len() <= at + far && chars_before + after.chars().count() <= TEXT_CHARS;
    if is_whole {
        return (String::from_utf8_lossy(line).into_owned(), false);
    }
    let kept_before: String = before.chars().skip(chars_before.saturating_sub(CHARS_BEFORE)).collect();
    let room = TEXT_CHARS - kept_before.chars().count();
    let kept_after: String = after.chars().take(room).collect();
    let begins = if at > kept_before.len() { "…" } else { "" };
    let ends = if at + kept_after.len() < line.len() { "…" } else { "" };
    (format!("{begins}{kept_before}{kept_after}{ends}"), true)
}

impl Outcome {
    fn into_value(self, max: usize) -> Value {
        let mut unsearched: Vec<String> = Vec::new();
        let mut hits = Vec::new();
        let mut last_path = String::new();
        for part in self.parts {
            if hits.len() > max {
                // Anything after the last wanted hit depends on the threads.
                break;
            }
            hits.extend(part.hits);
            unsearched.extend(part.unsearched);
            if !part.last_path.is_empty() {
                last_path = part.last_path;
            }
        }
        let has_more = hits.len() > max;
        hits.truncate(max);
        let mut values: Vec<_> = hits.into_iter().map(Hit::into_value).collect();
        if has_more {
            let most = if max < MAX_RESULTS { "a larger max_results, " } else { "" };
            values.push(note(format!(
                "there are more than {max} matches: ask with {most}a path or a narrower pattern"
            )));
        } else if !self.is_complete {
            values.push(note(format!(
                "the time limit was reached after {last_path:?}: search one directory at a time with path"
            )));
        }
        if self.unread > 0 && !has_more {
            values.push(note(format!("{} directories could not be searched", self.unread)));
        }
        let count = unsearched.len();
        for text in unsearched.into_iter().take(3) {
            values.push(note(format!("not searched to the end: {text}")));
        }
        if count > 3 {
            values.push(note(format!("{} more files were not searched to the end", count - 3)));
        }
        Value::list(values)
    }
}

impl Hit {
    fn into_value(self) -> Value {
        let (path, line, text) = (Value::from(self.path), int(self.line), Value::from(self.text));
        if self.is_cut {
            dict([("path", path), ("line", line), ("text", text), ("cut", true.into())])
        } else {
            dict([("path", path), ("line", line), ("text", text)])
        }
    }
}

/// An entry that is not a match but a remark.
fn note(text: String) -> Value {
    dict([("path", Value::from("")), ("line", int(0)), ("text", text.into()), ("note", true.into())])
}
