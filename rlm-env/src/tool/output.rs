//! Outputs that are too long for a reply: head and tail are returned, the whole is kept in a file.

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anstream::adapter::strip_str;
use rlm_core::error::with_causes;
use rlm_core::protocol::{Response, Truncated};
use rlm_core::text::cut_to_bytes;

use super::config::SessionToolConfig;
use super::result::{Cut, Cuts};
use crate::prompts::ToolOutputCut;

/// Longest exception message in a reply, in bytes; the traceback also contains it.
const MAX_MESSAGE_BYTES: usize = 4096;

/// Removes escape sequences and control characters from what a response shows, as a terminal does. White space stays.
pub(super) fn strip_escapes(response: &mut Response) {
    let result = response.result.as_mut();
    for text in [&mut response.stdout, &mut response.stderr].into_iter().chain(result) {
        *text = strip_str(text).to_string();
    }
}

/// The files of whole outputs. They are removed with their directory.
#[derive(Debug)]
pub(super) struct Outputs {
    dir: PathBuf,
    max_bytes: u64,
    kept: VecDeque<(PathBuf, u64)>,
    /// Number of files so far, for their names.
    count: u64,
}

impl Outputs {
    pub(super) fn new(dir: PathBuf, max_bytes: u64) -> Self {
        Self { dir, max_bytes, kept: VecDeque::new(), count: 0 }
    }

    /// Cuts a response down to the limit. None if nothing is missing. Blocks.
    pub(super) fn shorten(&mut self, response: &mut Response, config: &SessionToolConfig) -> Option<Cuts> {
        if let Some(exception) = &mut response.exception {
            exception.message = cut_to_bytes(&exception.message, MAX_MESSAGE_BYTES);
            exception.kind = cut_to_bytes(&exception.kind, MAX_MESSAGE_BYTES);
        }
        let Truncated { stdout, stderr, result } = response.truncated.unwrap_or_default();
        let mut no_result = String::new();
        let texts = [
            ("stdout", &mut response.stdout, stdout),
            ("stderr", &mut response.stderr, stderr),
            ("result", response.result.as_mut().unwrap_or(&mut no_result), result),
            ("answer", &mut response.answer.content, 0),
        ];
        let shares = shares(texts.each_ref().map(|(_, text, _)| text.len()), config.max_output_bytes);
        if shares.iter().zip(&texts).any(|(share, (_, text, _))| text.len() > *share) {
            self.count += 1;
        }
        let mut cuts = texts.into_iter().zip(shares);
        let mut next =
            || cuts.next().and_then(|((name, text, lost), share)| self.cut(name, text, share, lost, config));
        let cuts = Cuts { stdout: next(), stderr: next(), result: next(), answer: next() };
        (cuts != Cuts::default()).then_some(cuts)
    }

    fn cut(
        &mut self,
        name: &str,
        text: &mut String,
        share: usize,
        lost_bytes: u64,
        config: &SessionToolConfig,
    ) -> Option<Cut> {
        if text.len() <= share {
            return (lost_bytes > 0).then(|| Cut { lost_bytes, ..Cut::default() });
        }
        let file = self.keep(&format!("{}-{name}.txt", self.count), text);
        let head = text.floor_char_boundary(share - share / 2);
        let tail = text.ceil_char_boundary(text.len() - share / 2);
        let cut = Cut {
            omitted_bytes: (tail - head) as u64,
            lost_bytes,
            file: file.map(|path| path.to_string_lossy().into_owned()),
        };
        let note = ToolOutputCut {
            language: config.language,
            omitted_bytes: cut.omitted_bytes,
            lost_bytes,
            file: cut.file.as_deref(),
        };
        let note = note.render(&config.prompts).unwrap_or_else(|error| with_causes(&error));
        let line_break = if head == 0 || text[..head].ends_with('\n') { "" } else { "\n" };
        *text = format!("{}{line_break}{note}\n{}", &text[..head], &text[tail..]);
        Some(cut)
    }

    /// Writes a whole output to a file, removing the oldest ones to make room. None if that fails.
    fn keep(&mut self, name: &str, text: &str) -> Option<PathBuf> {
        let bytes = text.len() as u64;
        if bytes > self.max_bytes {
            return None;
        }
        while self.kept.iter().map(|(_, bytes)| bytes).sum::<u64>() + bytes > self.max_bytes {
            let (oldest, _) = self.kept.pop_front()?;
            // The session may already have removed it.
            let _gone = fs::remove_file(oldest);
        }
        let path = self.dir.join(name);
        match write_new(&path, text) {
            Ok(()) => {
                self.kept.push_back((path.clone(), bytes));
                Some(path)
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot keep the whole output");
                // An incomplete file is useless.
                let _gone = fs::remove_file(&path);
                None
            }
        }
    }
}

/// Creates a new file, whatever the session put there. Only the session's user can enter the directory above.
fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    match path.parent().map(fs::create_dir) {
        Some(Err(error)) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

/// Divides the limit among the texts: small ones are shown whole, the others in equal parts.
fn shares(sizes: [usize; 4], limit: usize) -> [usize; 4] {
    let mut order = [0, 1, 2, 3];
    order.sort_by_key(|at| sizes[*at]);
    let (mut shares, mut left) = ([0; 4], limit);
    for (done, at) in order.into_iter().enumerate() {
        shares[at] = sizes[at].min(left / (sizes.len() - done));
        left -= shares[at];
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rlm_core::protocol::{Outcome, State};

    use super::*;
    use crate::session::SessionConfig;
    use crate::terms::ReplLanguage;

    fn config(max_output_bytes: usize) -> SessionToolConfig {
        let session = SessionConfig::new("worker", "/");
        SessionToolConfig { max_output_bytes, ..SessionToolConfig::new(ReplLanguage::Bash, session, "/") }
    }

    fn response(stdout: &str) -> Response {
        Response { stdout: stdout.to_owned(), ..Response::new(Outcome::Error, State::Kept) }
    }

    #[test]
    fn escape_sequences_leave_no_trace() {
        let mut coloured =
            response("\u{1b}[1;31mred\u{1b}[0m\tand\r\n\u{1b}]0;title\u{7}\u{1b}[?1049hé€\u{7}\n");
        coloured.stderr = "\u{1b}[Kerr".to_owned();
        coloured.result = Some("\u{1b}[35mTraceback\u{1b}[0m".to_owned());
        strip_escapes(&mut coloured);
        assert_eq!((coloured.stdout.as_str(), coloured.stderr.as_str()), ("red\tand\r\né€\n", "err"));
        assert_eq!(coloured.result.as_deref(), Some("Traceback"));
    }

    #[test]
    fn output_within_the_limit_is_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let mut outputs = Outputs::new(dir.path().to_owned(), 1000);
        let mut whole = response("0123456789");
        assert_eq!(outputs.shorten(&mut whole, &config(10)), None);
        assert_eq!(whole, response("0123456789"));
    }

    #[test]
    fn head_and_tail_stay_and_the_whole_is_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut outputs = Outputs::new(dir.path().to_owned(), 1000);
        let text: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let mut cut = response(&text);
        let cuts = outputs.shorten(&mut cut, &config(40)).unwrap();
        let stdout = cuts.stdout.clone().unwrap();
        let file = stdout.file.unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(stdout.omitted_bytes, text.len() as u64 - 40);
        assert_eq!(Cuts { stdout: None, ..cuts }, Cuts::default());
        assert!(cut.stdout.starts_with("line 0\nline 1\nline 2"), "{}", cut.stdout);
        assert!(cut.stdout.ends_with("line 98\nline 99\n"), "{}", cut.stdout);
        assert!(cut.stdout.contains(&format!("; the whole is in {file}")), "{}", cut.stdout);
    }

    #[test]
    fn characters_stay_whole_and_every_text_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mut outputs = Outputs::new(dir.path().to_owned(), 10_000);
        let mut cut = response(&"é€😀".repeat(30));
        cut.result = Some("€".repeat(40));
        cut.answer.content = "😀".repeat(40);
        cut.truncated = Some(Truncated { stdout: 7, ..Truncated::default() });
        let cuts = outputs.shorten(&mut cut, &config(99)).unwrap();
        assert_eq!(cuts.stderr, None);
        let [stdout, result, answer] = [cuts.stdout, cuts.result, cuts.answer].map(Option::unwrap);
        assert_eq!((stdout.lost_bytes, result.lost_bytes), (7, 0));
        // A third for each, minus what would split a character.
        assert!((270 - 33..270 - 33 + 8).contains(&stdout.omitted_bytes), "{stdout:?}");
        assert!((160 - 33..160 - 33 + 8).contains(&answer.omitted_bytes), "{answer:?}");
        assert_eq!(fs::read_to_string(result.file.unwrap()).unwrap(), "€".repeat(40));
    }

    #[test]
    fn lost_bytes_are_reported_even_if_nothing_else_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let mut outputs = Outputs::new(dir.path().to_owned(), 1000);
        let mut short = response("a");
        short.truncated = Some(Truncated { stderr: 3, ..Truncated::default() });
        let cuts = outputs.shorten(&mut short, &config(10)).unwrap();
        assert_eq!(cuts.stderr, Some(Cut { omitted_bytes: 0, lost_bytes: 3, file: None }));
    }

    #[test]
    fn files_are_bounded_and_the_oldest_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut outputs = Outputs::new(dir.path().to_owned(), 250);
        let mut file = |bytes: usize| {
            let cuts = outputs.shorten(&mut response(&"x".repeat(bytes)), &config(10)).unwrap();
            cuts.stdout.unwrap().file
        };
        let files: Vec<_> = (0..3).map(|_| file(100).unwrap()).collect();
        let exist: Vec<_> = files.iter().map(|file| Path::new(file).exists()).collect();
        assert_eq!(exist, [false, true, true]);
        assert_eq!(file(251), None, "larger than all that may be kept");
        assert!(Path::new(&files[2]).exists());
    }

    #[test]
    fn a_directory_that_the_session_removed_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut outputs = Outputs::new(dir.path().join("outputs"), 1000);
        let cuts = outputs.shorten(&mut response(&"x".repeat(100)), &config(10)).unwrap();
        assert!(Path::new(&cuts.stdout.unwrap().file.unwrap()).exists());
        fs::remove_dir_all(dir.path().join("outputs")).unwrap();
        fs::write(dir.path().join("outputs"), "").unwrap();
        let cuts = outputs.shorten(&mut response(&"x".repeat(100)), &config(10)).unwrap();
        assert_eq!(cuts.stdout.unwrap().file, None);
    }

    #[test]
    fn a_long_message_is_clipped() {
        let dir = tempfile::tempdir().unwrap();
        let mut outputs = Outputs::new(dir.path().to_owned(), 1000);
        let mut raised = response("");
        let message = "é".repeat(MAX_MESSAGE_BYTES);
        raised.exception = Some(rlm_core::protocol::Exception { kind: "E".to_owned(), message });
        assert_eq!(outputs.shorten(&mut raised, &config(10)), None);
        assert_eq!(raised.exception.unwrap().message, "é".repeat(MAX_MESSAGE_BYTES / 2) + "…");
    }

    proptest! {
        #[test]
        fn shares_use_the_whole_limit(sizes: [u16; 4], limit: u16) {
            let sizes = sizes.map(usize::from);
            let limit = usize::from(limit);
            let shares = shares(sizes, limit);
            prop_assert!(shares.iter().zip(sizes).all(|(share, size)| *share <= size));
            let shown: usize = shares.iter().sum();
            prop_assert!(shown <= limit);
            prop_assert!(shown + 4 > limit.min(sizes.iter().sum()));
        }
    }
}
