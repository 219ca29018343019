//! Renders a response as text for the root model.
//!
//! Bash: the terminal output unchanged. Python: standard output, a block `stderr:`, and a traceback or `Out[n]: …`.
//! Output above a limit loses its middle, and a line in its place says so. Notes in square brackets follow for the
//! rest: a call that was stopped, lost state, an exit status other than 0.

use rlm_core::protocol::{Outcome, Response, State};
use unicode_segmentation::GraphemeCursor;

use crate::prompts::output::{OutputCut, note};
use crate::prompts::{PromptError, Prompts};
use crate::terms::ReplLanguage;

/// Stands for an empty output.
const NO_OUTPUT: &str = "(no output)";

/// Follows output of only white space without a note, which some model servers refuse as a message.
const ONLY_WHITE_SPACE: &str = "(only white space)";

/// Longest grapheme cluster that is never split, in bytes.
const MAX_CLUSTER_BYTES: usize = 64;

/// Renders a response. Shows at most `max_output_length` characters of its output, half of them from its end.
///
/// # Errors
/// [`PromptError`], only from custom templates.
pub(crate) fn render(
    response: &Response,
    language: ReplLanguage,
    max_output_length: usize,
    prompts: &Prompts,
) -> Result<String, PromptError> {
    let composed;
    let output = match language {
        ReplLanguage::Bash => without_hint(response),
        ReplLanguage::Python => {
            composed = streams_and_result(response);
            &composed
        }
    };
    let mut text = shortened(output, max_output_length, Some(language), response.dropped_bytes(), prompts)?;
    let note = note(response, prompts)?;
    if text.is_empty() {
        text.push_str(NO_OUTPUT);
    } else if text.trim().is_empty() && note.is_empty() {
        push_on_new_line(&mut text, ONLY_WHITE_SPACE);
    }
    if !note.is_empty() {
        push_on_new_line(&mut text, &note);
    }
    Ok(text)
}

/// Renders the output of a standard tool.
///
/// # Errors
/// [`PromptError`], only from custom templates.
pub(crate) fn render_tool_output(
    output: &str,
    max_output_length: usize,
    prompts: &Prompts,
) -> Result<String, PromptError> {
    let text = shortened(output, max_output_length, None, 0, prompts)?;
    Ok(if text.trim().is_empty() { NO_OUTPUT.to_owned() } else { text })
}

/// An output without its middle if it is too long.
fn shortened(
    output: &str,
    max_output_length: usize,
    language: Option<ReplLanguage>,
    dropped_bytes: u64,
    prompts: &Prompts,
) -> Result<String, PromptError> {
    let Some(Cut { head, tail, cut, total }) = Cut::of(output, max_output_length) else {
        return Ok(output.to_owned());
    };
    let line = OutputCut { language, cut, total, dropped_bytes }.render(prompts)?;
    let mut text = String::with_capacity(head.len() + line.len() + tail.len() + 2);
    text.push_str(head);
    push_on_new_line(&mut text, &line);
    text.push('\n');
    text.push_str(tail);
    Ok(text)
}

/// Bash's output without the hint at its end, which is for hosts that show no hints: here a note has it.
fn without_hint(response: &Response) -> &str {
    let hint = response.hint.as_deref().filter(|_| response.state == State::Reset);
    let before = |hint| response.stdout.strip_suffix('\n')?.strip_suffix(hint);
    hint.and_then(before).unwrap_or(&response.stdout)
}

/// Python's streams and the cell's result, each starting on a new line.
fn streams_and_result(response: &Response) -> String {
    let mut text = response.stdout.clone();
    if !response.stderr.is_empty() {
        push_on_new_line(&mut text, "stderr:\n");
        text.push_str(&response.stderr);
    }
    if let Some(result) = &response.result {
        if response.exception.is_none() && response.outcome != Outcome::Error {
            push_on_new_line(&mut text, &format!("Out[{}]: ", response.execution_count));
        } else {
            push_on_new_line(&mut text, "");
        }
        text.push_str(result);
    }
    text
}

fn push_on_new_line(text: &mut String, addition: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(addition);
}

/// An output without its middle.
#[derive(Debug, PartialEq, Eq)]
struct Cut<'a> {
    head: &'a str,
    tail: &'a str,
    /// Number of characters left out.
    cut: usize,
    /// Number of characters of the whole output.
    total: usize,
}

impl<'a> Cut<'a> {
    /// None if the text is short enough. Reads it once.
    fn of(text: &'a str, max_length: usize) -> Option<Self> {
        if text.len() <= max_length {
            return None;
        }
        let total = text.chars().count();
        if total <= max_length {
            return None;
        }
        let tail_length = max_length / 2;
        let head_length = max_length - tail_length;
        let head_end = text.char_indices().nth(head_length).map_or(text.len(), |(at, _)| at);
        let tail_start = match tail_length {
            0 => text.len(),
            length => text.char_indices().nth_back(length - 1).map_or(0, |(at, _)| at),
        };
        let head = &text[..cluster_start(text, head_end)];
        let tail = &text[cluster_end(text, tail_start)..];
        let cut = total - head.chars().count() - tail.chars().count();
        Some(Self { head, tail, cut, total })
    }
}

/// The start of the grapheme cluster that contains this place.
fn cluster_start(text: &str, at: usize) -> usize {
    let mut cursor = GraphemeCursor::new(at, text.len(), true);
    if cursor.is_boundary(text, 0) != Ok(false) {
        return at;
    }
    let start = cursor.prev_boundary(text, 0).ok().flatten();
    start.filter(|start| at - start <= MAX_CLUSTER_BYTES).unwrap_or(at)
}

/// The end of the grapheme cluster that contains this place.
fn cluster_end(text: &str, at: usize) -> usize {
    let mut cursor = GraphemeCursor::new(at, text.len(), true);
    if cursor.is_boundary(text, 0) != Ok(false) {
        return at;
    }
    let end = cursor.next_boundary(text, 0).ok().flatten();
    end.filter(|end| end - at <= MAX_CLUSTER_BYTES).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use rlm_core::protocol::{Exception, State, Truncated};

    use super::*;

    fn ok() -> Response {
        Response { execution_count: 3, ..Response::new(Outcome::Ok, State::Kept) }
    }

    fn bash(stdout: &str) -> Response {
        Response { stdout: stdout.to_owned(), exit_code: Some(0), ..ok() }
    }

    fn shown(response: &Response, language: ReplLanguage, max_output_length: usize) -> String {
        render(response, language, max_output_length, &Prompts::new()).unwrap()
    }

    fn in_bash(response: &Response) -> String {
        shown(response, ReplLanguage::Bash, 8192)
    }

    fn in_python(response: &Response) -> String {
        shown(response, ReplLanguage::Python, 8192)
    }

    /// Head, number of characters left out, and tail.
    fn cut(text: &str, max_length: usize) -> (&str, usize, &str) {
        let Cut { head, tail, cut, total } = Cut::of(text, max_length).unwrap();
        assert_eq!(total, text.chars().count());
        assert_eq!(head.chars().count() + cut + tail.chars().count(), total);
        assert!(head.chars().count() + tail.chars().count() <= max_length);
        (head, cut, tail)
    }

    #[test]
    fn bash_output_is_shown_as_it_is() {
        for output in ["a\n", "a", "  a\n\n", "\u{1b}[31mred\u{1b}[0m\rover\u{7}\n", "(no output)\n"] {
            assert_eq!(in_bash(&bash(output)), output);
        }
    }

    #[test]
    fn empty_output_has_a_text() {
        assert_eq!(in_bash(&bash("")), "(no output)");
        assert_eq!(in_python(&ok()), "(no output)");
        assert_eq!(in_bash(&bash("\n \n")), "\n \n(only white space)");
        assert_eq!(in_bash(&bash("\t")), "\t\n(only white space)");
        let failed = Response { exit_code: Some(1), ..bash("\n") };
        assert_eq!(in_bash(&failed), "\n[exit status 1]");
    }

    #[test]
    fn an_exit_status_is_shown_unless_it_is_zero() {
        let failed = |stdout: &str| Response { exit_code: Some(1), ..bash(stdout) };
        assert_eq!(in_bash(&failed("")), "(no output)\n[exit status 1]");
        assert_eq!(
            in_bash(&failed("bash: x: command not found\n")),
            "bash: x: command not found\n[exit status 1]"
        );
        assert_eq!(in_bash(&failed("no newline")), "no newline\n[exit status 1]");
    }

    #[test]
    fn output_of_the_limit_is_whole_and_one_character_more_is_cut() {
        let full = "x".repeat(8192);
        assert_eq!(in_bash(&bash(&full)), full);
        let half = "x".repeat(4096);
        assert_eq!(
            in_bash(&bash(&(full + "x"))),
            format!(
                "{half}\n[output cut: 1 of 8,193 characters are left out here. To see them, write the output to a file \
                 and print parts of it: sed -n '1,40p' FILE]\n{half}"
            )
        );
        // The limit counts characters, not bytes.
        assert_eq!(Cut::of(&"€".repeat(8192), 8192), None);
    }

    #[test]
    fn the_longest_that_is_shown_is_the_limit_and_the_notes() {
        let notice = shown(&bash(&"x".repeat(1000)), ReplLanguage::Bash, 0).chars().count();
        for limit in [0, 1, 2, 3, 100, 999] {
            let text = shown(&bash(&"€".repeat(1000)), ReplLanguage::Bash, limit);
            assert_eq!(text.matches('€').count(), limit);
            assert!(text.chars().count() <= limit + notice + 1, "{limit}: {text}");
        }
    }

    #[test]
    fn a_cut_never_divides_a_character() {
        assert_eq!(cut("aé€😀b", 4), ("aé", 1, "😀b"));
        assert_eq!(cut("aé€😀b", 3), ("aé", 2, "b"));
        assert_eq!(cut("abc", 1), ("a", 2, ""));
        assert_eq!(cut("abc", 0), ("", 3, ""));
    }

    #[test]
    fn a_cut_never_divides_a_character_from_what_combines_with_it() {
        // e, then a combining acute accent: the head would end between them.
        assert_eq!(cut("ae\u{301}bcdefgh", 4), ("a", 7, "gh"));
        // The tail would begin with the accent.
        assert_eq!(cut("abcdefge\u{301}h", 4), ("ab", 7, "h"));
        // A family emoji: five code points in one character.
        let family = "👨\u{200d}👩\u{200d}👧";
        assert_eq!(cut(&format!("{family}bcdefgh"), 6), ("", 9, "fgh"));
        assert_eq!(cut("a\r\nbcdefgh", 4), ("a", 7, "gh"));
    }

    #[test]
    fn an_endless_grapheme_cluster_is_cut() {
        let text = format!("e{}", "\u{301}".repeat(10_000));
        let (head, _, tail) = cut(&text, 100);
        assert_eq!((head.chars().count(), tail.chars().count()), (50, 50));
    }

    #[test]
    fn a_large_output_is_cut_in_linear_time() {
        // Quadratic, each of these would take hours.
        for text in ["x".repeat(16 << 20), "\u{301}".repeat(8 << 20), "🇩🇪".repeat(2 << 20)] {
            let (head, _, tail) = cut(&text, 8192);
            assert!(head.len() + tail.len() <= 4 * 8192);
        }
    }

    #[test]
    fn python_shows_streams_and_result_each_on_lines_of_their_own() {
        let response = |stdout: &str, stderr: &str, result: Option<&str>| Response {
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            result: result.map(str::to_owned),
            ..ok()
        };
        for (response, expected) in [
            (response("out\n", "", None), "out\n"),
            (response("out", "", Some("42")), "out\nOut[3]: 42"),
            (response("", "", Some("''")), "Out[3]: ''"),
            (response("", "", Some("")), "Out[3]: "),
            (response("", "warned\n", None), "stderr:\nwarned\n"),
            (response("out", "warned", Some("[1,\n 2]")), "out\nstderr:\nwarned\nOut[3]: [1,\n 2]"),
        ] {
            assert_eq!(in_python(&response), expected);
        }
    }

    #[test]
    fn python_shows_a_traceback_after_both_streams() {
        let traceback =
            "Traceback (most recent call last):\n  File \"<cell 3>\", line 1, in <module>\nValueError: no";
        let response = Response {
            stdout: "out\n".to_owned(),
            stderr: "warned\n".to_owned(),
            result: Some(traceback.to_owned()),
            outcome: Outcome::Error,
            exception: Some(Exception { kind: "ValueError".to_owned(), message: "no".to_owned() }),
            ..ok()
        };
        assert_eq!(in_python(&response), format!("out\nstderr:\nwarned\n{traceback}"));
        // The traceback's end says what went wrong: it stays where the output is cut.
        let loud = Response { stdout: "x".repeat(100_000), ..response };
        assert!(in_python(&loud).ends_with(traceback), "{}", in_python(&loud));
    }

    #[test]
    fn a_call_that_timed_out_shows_its_output_and_its_state() {
        let hint = "the call was stopped after its time limit of 2 s; the session's state is kept";
        let kept = Response {
            outcome: Outcome::TimedOut,
            hint: Some(hint.to_owned()),
            exit_code: Some(130),
            ..bash("part\n")
        };
        assert_eq!(in_bash(&kept), format!("part\n[timed out: {hint}]"));
        let reset = Response { state: State::Reset, hint: None, exit_code: None, ..kept };
        assert_eq!(
            in_bash(&reset),
            "part\n[timed out: the call was stopped, and the session's state is lost]"
        );
    }

    #[test]
    fn other_outcomes_are_shown_with_their_hint() {
        let ended = |outcome, hint: &str| Response { outcome, hint: Some(hint.to_owned()), ..ok() };
        let shell =
            Response { exit_code: Some(3), ..ended(Outcome::Exited, "the shell ended with status 3; …") };
        assert_eq!(in_bash(&shell), "(no output)\n[the shell ended with status 3; …]");
        assert_eq!(in_python(&ended(Outcome::Crashed, "why")), "(no output)\n[why]");
        assert_eq!(in_python(&ended(Outcome::Ok, "why")), "(no output)\n[why]");
        assert_eq!(in_bash(&ended(Outcome::Error, "request is …")), "(no output)\n[error: request is …]");
        let interrupted = Response { outcome: Outcome::Interrupted, ..bash("") };
        assert_eq!(
            in_bash(&interrupted),
            "(no output)\n[interrupted: the call was stopped from outside; the session's state is kept]"
        );
    }

    #[test]
    fn bytes_dropped_by_the_worker_are_mentioned_once() {
        let dropped = Some(Truncated { stdout: 4096, stderr: 0, result: 0 });
        let mut response =
            Response { truncated: dropped, ..bash("aa\n[4096 bytes of output dropped here]\nbb") };
        // The worker's line about the dropped bytes is in the text already.
        assert_eq!(in_bash(&response), "aa\n[4096 bytes of output dropped here]\nbb");
        response.stdout =
            format!("{}\n[4096 bytes of output dropped here]\n{}", "a".repeat(9000), "b".repeat(9000));
        let text = in_bash(&response);
        assert!(
            text.contains("characters are left out here, and 4,096 bytes before them were too many"),
            "{text}"
        );
        assert!(!text.contains("dropped here"), "{text}");
    }
}
