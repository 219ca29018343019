//! Comparison of a call's response with that of its rerun.

use std::borrow::Cow;

use rlm_core::protocol::{Answer, Outcome, Response, State};

use super::past::{KnownOutput, PastCall};

/// Replaces the session's directory in compared texts.
const DIRECTORY: &str = "/…/rlm_fs";

/// The last part of a rollout's working directory.
const OF_A_ROLLOUT: &str = "/rlm_fs";

/// The prefixes of the lines that these tools print in Python, which contain a time.
const TIMED_LINES: [&str; 4] = ["llm_batch: ", "rlm_query: ", "rlm_query_batch: ", "rlm_query_batched: "];

/// A call, and how its rerun differs.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedCall<'a> {
    /// The original call.
    pub call: &'a PastCall,
    /// The differences; empty if there are none or the call was not run again.
    pub differences: Vec<Difference>,
    /// Why the call was not run again. None: it was.
    pub skipped: Option<String>,
}

/// A difference between a call and its rerun.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// The outcome differs.
    Outcome {
        /// The original one.
        was: Outcome,
        /// The new one.
        is: Outcome,
    },
    /// The state of the session after the call differs.
    State {
        /// The original one.
        was: State,
        /// The new one.
        is: State,
    },
    /// The status of the last command differs.
    ExitCode {
        /// The original one.
        was: Option<i32>,
        /// The new one.
        is: Option<i32>,
    },
    /// A text differs.
    Text {
        /// The name of the text: `stdout`, `stderr`, `result`, `answer`.
        what: &'static str,
        /// The original text.
        was: String,
        /// The new text.
        is: String,
    },
    /// The output differs from the one whose digest is in the history.
    Output {
        /// Length of the original output in bytes.
        was_bytes: u64,
        /// Length of the new output in bytes.
        is_bytes: u64,
        /// The new output: streams and result.
        is: String,
    },
    /// The answer's `ready` differs.
    Ready {
        /// The original value.
        was: bool,
        /// The new value.
        is: bool,
    },
}

/// The working directories of both sessions, whose names must not count as differences.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    pub(super) then: Option<String>,
    pub(super) now: String,
}

impl Directories {
    /// A new text with the original session's directory in the place of the new one.
    fn translated<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.then {
            Some(then) if text.contains(&self.now) => Cow::Owned(text.replace(&self.now, then)),
            _ => Cow::Borrowed(text),
        }
    }

    /// A text without what varies from run to run: the session's directory, and times that tools print.
    fn plain(&self, text: &str) -> String {
        let mut plain = text.replace(&self.now, DIRECTORY);
        if let Some(then) = &self.then {
            plain = plain.replace(then, DIRECTORY);
        }
        without_times(&without_rollouts(&plain))
    }
}

/// The differences between a call's response and that of its rerun.
pub(super) fn differences(
    was: &Response,
    known: &KnownOutput,
    is: &Response,
    directories: &Directories,
) -> Vec<Difference> {
    let mut found = Vec::new();
    if was.outcome != is.outcome {
        found.push(Difference::Outcome { was: was.outcome, is: is.outcome });
    }
    if matches!(was.outcome, Outcome::TimedOut | Outcome::Interrupted) {
        // The output up to the stop depends on timing.
        return found;
    }
    if was.state != is.state {
        found.push(Difference::State { was: was.state, is: is.state });
    }
    if was.exit_code != is.exit_code {
        found.push(Difference::ExitCode { was: was.exit_code, is: is.exit_code });
    }
    match known {
        KnownOutput::Nothing => {}
        KnownOutput::Digest { digest, bytes, .. } => found.extend(of_digest(digest, *bytes, is, directories)),
        KnownOutput::All => {
            found.extend(of_output(was, is, directories));
            found.extend(of_answer(&was.answer, &is.answer, directories));
        }
    }
    found
}

/// Compares an output with the digest of the original one.
fn of_digest(digest: &str, bytes: u64, is: &Response, directories: &Directories) -> Option<Difference> {
    let translated = Response {
        stdout: directories.translated(&is.stdout).into_owned(),
        stderr: directories.translated(&is.stderr).into_owned(),
        result: is.result.as_deref().map(|result| directories.translated(result).into_owned()),
        ..is.clone()
    };
    if [is, &translated].iter().any(|response| response.output_digest() == digest) {
        return None;
    }
    let result = translated.result.as_deref().unwrap_or_default();
    let is = [translated.stdout.as_str(), translated.stderr.as_str(), result].concat();
    Some(Difference::Output { was_bytes: bytes, is_bytes: translated.output_bytes(), is })
}

fn of_output(was: &Response, is: &Response, directories: &Directories) -> Vec<Difference> {
    let texts = [
        ("stdout", was.stdout.as_str(), is.stdout.as_str()),
        ("stderr", &was.stderr, &is.stderr),
        ("result", was.result.as_deref().unwrap_or_default(), is.result.as_deref().unwrap_or_default()),
    ];
    texts.into_iter().filter_map(|(what, was, is)| of_text(what, was, is, directories)).collect()
}

/// Compares two answers.
pub(super) fn of_answer(was: &Answer, is: &Answer, directories: &Directories) -> Vec<Difference> {
    let ready = (was.ready != is.ready).then_some(Difference::Ready { was: was.ready, is: is.ready });
    of_text("answer", &was.content, &is.content, directories).into_iter().chain(ready).collect()
}

fn of_text(what: &'static str, was: &str, is: &str, directories: &Directories) -> Option<Difference> {
    if was == is {
        return None;
    }
    let (was, is) = (directories.plain(was), directories.plain(is));
    (was != is).then_some(Difference::Text { what, was, is })
}

/// The text with the directories of rollouts replaced by [`DIRECTORY`].
fn without_rollouts(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(OF_A_ROLLOUT) {
        let (before, after) = (&rest[..at], &rest[at + OF_A_ROLLOUT.len()..]);
        let in_path = |c: char| !c.is_whitespace() && !"'\"`:=(,<>|;".contains(c);
        let start = before
            .rfind(|c| !in_path(c))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        plain.push_str(&before[..start]);
        plain.push_str(if before[start..].starts_with('/') {
            DIRECTORY
        } else {
            &rest[start..at + OF_A_ROLLOUT.len()]
        });
        rest = after;
    }
    plain.push_str(rest);
    plain
}

/// The text with each time in lines of tools replaced by `…`.
fn without_times(text: &str) -> String {
    let line = |line: &str| {
        let time = TIMED_LINES.iter().find_map(|prefix| line.strip_prefix(prefix))?.split_once(" in ")?.1;
        let seconds = time.split_once('s')?.0;
        seconds.parse::<f64>().ok()?;
        Some(line.replacen(&format!(" in {seconds}s"), " in …s", 1))
    };
    text.split_inclusive('\n').map(|text| line(text).unwrap_or_else(|| text.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_and_times_are_not_differences() {
        let directories = Directories { then: Some("/old".to_owned()), now: "/tmp/new".to_owned() };
        let differs = |was: &str, is: &str| of_text("stdout", was, is, &directories).is_some();
        assert!(!differs("cat: /old/a", "cat: /tmp/new/a"));
        assert!(!differs("in '/tmp/rlm-1/run-2/rlm_fs/a'", "in '/tmp/new/a'"));
        assert!(!differs("llm_batch: 2 calls in 0.53s\nx", "llm_batch: 2 calls in 10.00s\nx"));
        assert!(differs("llm_batch: 2 calls in 0.53s\nx", "llm_batch: 3 calls in 0.53s\nx"));
        assert!(!differs("rlm_query: 2 turns in 0.53s\n", "rlm_query: 2 turns in 0.00s\n"));
        assert!(differs("at é/rlm_fs", "at ö/rlm_fs"));
        assert!(differs("a", "b"));
    }

    #[test]
    fn a_digest_is_that_of_the_old_directory() {
        let printed =
            |stdout: &str| Response { stdout: stdout.to_owned(), ..Response::refused(1, String::new()) };
        let then = printed("/old/a\n");
        let (digest, bytes) = (then.output_digest(), then.output_bytes());
        let directories = Directories { then: Some("/old".to_owned()), now: "/tmp/new".to_owned() };
        assert_eq!(of_digest(&digest, bytes, &printed("/tmp/new/a\n"), &directories), None);
        assert_eq!(of_digest(&digest, bytes, &printed("/old/a\n"), &directories), None);
        assert_eq!(
            of_digest(&digest, bytes, &printed("/tmp/new/bc\n"), &directories),
            Some(Difference::Output { was_bytes: 7, is_bytes: 8, is: "/old/bc\n".to_owned() })
        );
    }
}
