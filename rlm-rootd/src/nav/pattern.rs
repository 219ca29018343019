//! Regular expressions whose searches can be stopped at any time.
//!
//! The full engine cannot be interrupted, and takes time in proportion to the size of the pattern and of the text. So
//! it gets little text at once. Long lines go through an automaton byte by byte; if that would need too many states,
//! the engine searches the line in pieces.

use std::cell::RefCell;
use std::fmt;

use grep_matcher::{ByteSet, LineTerminator, Match, Matcher, NoCaptures};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use memchr::{memchr, memrchr};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Input, meta};

use super::fault::Fault;
use super::stop::{Stop, Stopped};

/// Largest compiled pattern, in bytes.
const PATTERN_BYTES: usize = 256 << 10;

/// Memory limit of an automaton, in bytes.
const AUTOMATON_BYTES: usize = 2 << 20;

/// Bytes of progress that each new state must allow; otherwise the automaton is abandoned.
const BYTES_PER_STATE: usize = 100;

/// Bytes that are searched at once. A line above this is a long line.
const PIECE_BYTES: usize = 8 << 10;

/// Bytes between two checks whether the call is over.
const STEPS: usize = 4 << 10;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    lines: RegexMatcher,
    engine: meta::Regex,
    /// Searches long lines.
    automaton: DFA,
}

/// A pattern as used by one thread for one call.
pub(super) struct Stoppable<'a> {
    pattern: &'a Pattern,
    stop: &'a Stop,
    cache: RefCell<Option<Cache>>,
    /// True if a line was searched in pieces, which misses matches longer than a piece.
    in_pieces: RefCell<bool>,
}

impl Pattern {
    pub(super) fn new(pattern: &str) -> Result<Self, Fault> {
        let refuse = |error: &dyn fmt::Display| {
            let hint = "patterns are those of the Rust crate regex, within one line; \
                        put \\ before a sign that means itself, as in \\(";
            Fault::refused(format!("the pattern is not a valid regular expression: {error}\nhint: {hint}"))
        };
        // The builder's own error would show more than the caller's pattern.
        regex_syntax::parse(pattern).map_err(|error| refuse(&error))?;
        let too_large = |error: Option<usize>| {
            error.map(|_limit| {
                Fault::refused(format!(
                    "the pattern is too large: it takes more than {} KiB once its repetitions are written out; \
                     use smaller counts, as in x{{1,100}}, or * and +",
                    PATTERN_BYTES >> 10
                ))
            })
        };
        let syntax = syntax::Config::new().multi_line(true).crlf(true).utf8(false);
        let config = meta::Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(PATTERN_BYTES))
            .hybrid_cache_capacity(AUTOMATON_BYTES);
        let engine = meta::Builder::new().syntax(syntax).configure(config).build(pattern);
        let engine =
            engine.map_err(|error| too_large(error.size_limit()).unwrap_or_else(|| refuse(&error)))?;
        let thompson = thompson::Config::new().utf8(false).nfa_size_limit(Some(PATTERN_BYTES));
        let config = DFA::config()
            .unicode_word_boundary(true)
            .cache_capacity(AUTOMATON_BYTES)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(1))
            .minimum_bytes_per_state(Some(BYTES_PER_STATE));
        let automaton = DFA::builder().syntax(syntax).thompson(thompson).configure(config).build(pattern);
        let automaton = automaton.map_err(|error| refuse(&error))?;
        let mut builder = RegexMatcherBuilder::new();
        // Patterns that the engine accepts fit this limit, including the little that is added around them.
        builder.multi_line(true).crlf(true).size_limit(8 * PATTERN_BYTES).dfa_size_limit(AUTOMATON_BYTES);
        let lines = builder.build(pattern).map_err(|error| refuse(&error))?;
        Ok(Self { lines, engine, automaton })
    }

    pub(super) fn stoppable<'a>(&'a self, stop: &'a Stop) -> Stoppable<'a> {
        Stoppable { pattern: self, stop, cache: RefCell::default(), in_pieces: RefCell::default() }
    }
}

impl Stoppable<'_> {
    /// Returns and clears the flag that a line was searched in pieces.
    pub(super) fn was_in_pieces(&self) -> bool {
        self.in_pieces.take()
    }

    /// The next match in a long line, from a position on.
    fn find_in_long(&self, line: &[u8], at: usize) -> Result<Option<Match>, Stopped> {
        let Some(end) = self.step_through(line, at)? else {
            *self.in_pieces.borrow_mut() = true;
            return self.find_in_pieces(line, at);
        };
        let Some(end) = end else { return Ok(None) };
        let near = end.saturating_sub(PIECE_BYTES).max(at)..line.len().min(end + PIECE_BYTES);
        let found = self.pattern.engine.find(Input::new(line).span(near));
        Ok(Some(found.map_or(Match::zero(end), |found| Match::new(found.start(), found.end()))))
    }

    /// The end of the next match, if there is one. None: the automaton was abandoned.
    fn step_through(&self, line: &[u8], at: usize) -> Result<Option<Option<usize>>, Stopped> {
        let automaton = &self.pattern.automaton;
        let mut held = self.cache.borrow_mut();
        let cache = held.get_or_insert_with(|| automaton.create_cache());
        let input = Input::new(line).range(at..);
        let Ok(mut state) = automaton.start_state_forward(cache, &input) else { return Ok(None) };
        for (number, byte) in line[at..].iter().enumerate() {
            if number.is_multiple_of(STEPS) {
                self.stop.check()?;
                cache.search_start(at + number);
            }
            let Ok(next) = automaton.next_state(cache, state, *byte) else { return Ok(None) };
            state = next;
            if state.is_tagged() {
                if state.is_match() {
                    // The automaton reports a match one byte late.
                    return Ok(Some(Some(at + number)));
                }
                if state.is_dead() {
                    return Ok(Some(None));
                }
                if state.is_quit() {
                    return Ok(None);
                }
            }
            if number % STEPS == STEPS - 1 {
                cache.search_finish(at + number + 1);
            }
        }
        let Ok(state) = automaton.next_eoi_state(cache, state) else { return Ok(None) };
        Ok(Some(state.is_match().then_some(line.len())))
    }

    /// Each piece overlaps the next by half.
    fn find_in_pieces(&self, line: &[u8], at: usize) -> Result<Option<Match>, Stopped> {
        for start in (at..=line.len()).step_by(PIECE_BYTES / 2) {
            self.stop.check()?;
            let end = line.len().min(start + PIECE_BYTES);
            if let Some(found) = self.pattern.engine.find(Input::new(line).span(start..end)) {
                return Ok(Some(Match::new(found.start(), found.end())));
            }
        }
        Ok(None)
    }
}

impl Matcher for Stoppable<'_> {
    type Captures = NoCaptures;
    type Error = Stopped;

    /// Matches do not cross lines, so whole lines are searched, up to the size of a piece.
    fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, Stopped> {
        let mut start = at;
        loop {
            self.stop.check()?;
            let rest = &text[start..];
            let (length, is_long) = match rest.get(..PIECE_BYTES).map(|piece| memrchr(b'\n', piece)) {
                None => (rest.len(), false),
                Some(Some(last)) => (last + 1, false),
                Some(None) => (memchr(b'\n', rest).map_or(rest.len(), |last| last + 1), true),
            };
            let next = start + length;
            let is_last = next == text.len();
            // The last piece keeps its end: it is the end of the text.
            let piece = if is_last { text } else { without_end(&text[..next]) };
            let found = if is_long && start <= piece.len() {
                let line = memrchr(b'\n', &text[..start]).map_or(0, |last| last + 1);
                let found = self.find_in_long(&without_end(piece)[line..], start - line)?;
                found.map(|found| found.offset(line))
            } else if start <= piece.len() {
                self.pattern.lines.find_at(piece, start).expect("it has no errors")
            } else {
                None
            };
            if found.is_some() || is_last {
                return Ok(found);
            }
            start = next;
        }
    }

    fn new_captures(&self) -> Result<NoCaptures, Stopped> {
        Ok(NoCaptures::new())
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.pattern.lines.line_terminator()
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.pattern.lines.non_matching_bytes()
    }
}

/// A line without its line ending.
pub(super) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_patterns_are_no_large_ones() {
        for pattern in
            [r"\w+\s+\w+", "(?i)navigation tools", ".{0,200}", r"\bfn\s+\w+\s*\(.*\)\s*->", "x{900}y"]
        {
            Pattern::new(pattern).unwrap();
        }
        for pattern in ["x{50000}y", "(x{1,300}){1,300}", r"\w{1000}"] {
            let error = Pattern::new(pattern).unwrap_err().to_string();
            assert!(error.starts_with("the pattern is too large: it takes more than "), "{error}");
        }
    }
}
