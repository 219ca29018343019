//! Whether a call came to the same.

use std::borrow::Cow;

use rlm_core::protocol::{Answer, Outcome, Response, State};

use super::past::{Known, PastCall};

/// What stands for the session's directory in a text that is compared.
const DIRECTORY: &str = "/…/rlm_fs";

/// The name of a rollout's working directory.
const OF_A_ROLLOUT: &str = "/rlm_fs";

/// How `llm_batch` tells of itself in Python: the end of that line is a time.
const BATCH_LINE: &str = "llm_batch: ";

/// A call, and how it differs from what it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared<'a> {
    /// The call.
    pub call: &'a PastCall,
    /// What is different; nothing where it came to the same, or was not run.
    pub differences: Vec<Difference>,
    /// Why it was not run again. None: it was.
    pub skipped: Option<String>,
}

/// Something that is different.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// How the call ended.
    Outcome {
        /// Then.
        was: Outcome,
        /// Now.
        is: Outcome,
    },
    /// What was left of the session.
    State {
        /// Then.
        was: State,
        /// Now.
        is: State,
    },
    /// Status of the last command.
    ExitCode {
        /// Then.
        was: Option<i32>,
        /// Now.
        is: Option<i32>,
    },
    /// A text.
    Text {
        /// Which one: `stdout`, `stderr`, `result`, `answer`.
        what: &'static str,
        /// Then.
        was: String,
        /// Now.
        is: String,
    },
    /// The output, of which the history has a digest alone.
    Output {
        /// Bytes of it then.
        was_bytes: u64,
        /// Bytes of it now.
        is_bytes: u64,
        /// The output of now: streams and result.
        is: String,
    },
    /// Whether the answer is final.
    Ready {
        /// Then.
        was: bool,
        /// Now.
        is: bool,
    },
}

/// Where the sessions worked, so that the names of their directories are no difference.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    pub(super) then: Option<String>,
    pub(super) now: String,
}

impl Directories {
    /// A text of now as it would have been then.
    fn translated<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.then {
            Some(then) if text.contains(&self.now) => Cow::Owned(text.replace(&self.now, then)),
            _ => Cow::Borrowed(text),
        }
    }

    /// A text without what differs from one run to the next: the session's directory, and times of `llm_batch`.
    fn plain(&self, text: &str) -> String {
        let mut plain = text.replace(&self.now, DIRECTORY);
        if let Some(then) = &self.then {
            plain = plain.replace(then, DIRECTORY);
        }
        without_times(&without_rollouts(&plain))
    }
}

/// The differences between a call's response and that of the same call now.
pub(super) fn differences(
    was: &Response,
    known: &Known,
    is: &Response,
    directories: &Directories,
) -> Vec<Difference> {
    let mut found = Vec::new();
    if was.outcome != is.outcome {
        found.push(Difference::Outcome { was: was.outcome, is: is.outcome });
    }
    if matches!(was.outcome, Outcome::TimedOut | Outcome::Interrupted) {
        // How far it came until then is chance.
        return found;
    }
    if was.state != is.state {
        found.push(Difference::State { was: was.state, is: is.state });
    }
    if was.exit_code != is.exit_code {
        found.push(Difference::ExitCode { was: was.exit_code, is: is.exit_code });
    }
    match known {
        Known::Nothing => {}
        Known::Digest { digest, bytes, .. } => found.extend(of_digest(digest, *bytes, is, directories)),
        Known::All => {
            found.extend(of_output(was, is, directories));
            found.extend(of_answer(&was.answer, &is.answer, directories));
        }
    }
    found
}

/// The difference between an output of which the digest is known and that of now.
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

/// What two answers differ in.
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

/// The directories of rollouts, under one name.
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

/// The lines of `llm_batch`, with a `…` in the place of each time.
fn without_times(text: &str) -> String {
    let line = |line: &str| {
        let time = line.strip_prefix(BATCH_LINE)?.split_once(" in ")?.1;
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
    fn directories_and_times_are_no_difference() {
        let directories = Directories { then: Some("/old".to_owned()), now: "/tmp/new".to_owned() };
        let differs = |was: &str, is: &str| of_text("stdout", was, is, &directories).is_some();
        assert!(!differs("cat: /old/a", "cat: /tmp/new/a"));
        assert!(!differs("in '/tmp/rlm-1/run-2/rlm_fs/a'", "in '/tmp/new/a'"));
        assert!(!differs("llm_batch: 2 calls in 0.53s\nx", "llm_batch: 2 calls in 10.00s\nx"));
        assert!(differs("llm_batch: 2 calls in 0.53s\nx", "llm_batch: 3 calls in 0.53s\nx"));
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
