//! Decides whether code is complete, by asking the language's own parser.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rlm_env::ReplLanguage;

/// The parser of a language.
pub(super) enum Parser {
    Bash,
    /// A parser; None if it cannot run: code then counts as complete.
    Python(Option<PythonParser>),
}

impl Parser {
    pub(super) fn new(language: ReplLanguage) -> Self {
        match language {
            ReplLanguage::Bash => Self::Bash,
            ReplLanguage::Python => Self::Python(PythonParser::start().ok()),
        }
    }

    /// True if the code needs another line. An empty last line ends it as it is.
    pub(super) fn wants_more(&mut self, code: &str) -> bool {
        !code.ends_with('\n')
            && (code.ends_with('\\')
                || match self {
                    Self::Bash => bash_wants_more(code),
                    Self::Python(parser) => {
                        let last_line = code.lines().next_back().unwrap_or_default();
                        // A block ends with an empty line.
                        last_line.starts_with([' ', '\t'])
                            || parser.as_mut().is_some_and(|parser| parser.wants_more(code).unwrap_or(false))
                    }
                })
    }
}

/// Reports whether bash reaches the end of the code too early.
fn bash_wants_more(code: &str) -> bool {
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-n", "-O", "extglob"]).env("LC_ALL", "C");
    let streams = bash.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let Ok(mut bash) = streams.spawn() else { return false };
    if let Some(mut input) = bash.stdin.take() {
        // Bash may stop reading early.
        let _stopped_reading = input.write_all(code.as_bytes());
    }
    let Ok(output) = bash.wait_with_output() else { return false };
    let complaint = String::from_utf8_lossy(&output.stderr);
    ["unexpected end of file", "unexpected EOF", "delimited by end-of-file"]
        .iter()
        .any(|cut| complaint.contains(cut))
}

/// A Python that runs `complete.py`: starting one for each line of a paste would take minutes.
pub(super) struct PythonParser {
    child: Child,
    /// The input of the parser; None once the parser is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl PythonParser {
    fn start() -> std::io::Result<Self> {
        let mut python = Command::new("python3");
        python.args(["-I", "-c", include_str!("complete.py")]);
        // Ctrl-C is not for it.
        python.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = python.spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        Ok(Self { child, input, output })
    }

    fn wants_more(&mut self, code: &str) -> std::io::Result<bool> {
        if let Some(input) = &mut self.input {
            input.write_all(format!("{}\n{code}", code.len()).as_bytes())?;
        }
        let mut verdict = String::new();
        self.output.read_line(&mut verdict)?;
        Ok(verdict == "1\n")
    }
}

impl Drop for PythonParser {
    fn drop(&mut self) {
        // The parser ends at the end of its input.
        drop(self.input.take());
        // A child that cannot be waited for is gone.
        let _gone = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_cut_off_where_bash_wants_more() {
        for code in ["echo 'a", "if true; then", "cat <<E\nx", "f() {", "echo $(ls"] {
            assert!(bash_wants_more(code), "{code:?}");
        }
        for code in ["echo a", "fi", "cat <<E\nx\nE\n", ""] {
            assert!(!bash_wants_more(code), "{code:?}");
        }
    }

    #[test]
    fn python_code_goes_on_while_a_block_or_a_bracket_is_open() {
        let mut parser = Parser::new(ReplLanguage::Python);
        for code in ["def f():", "if x:\n    pass", "f(1,", "\"\"\"text", "@decorated", "class A:\n    x = 1"]
        {
            assert!(parser.wants_more(code), "{code:?}");
        }
        for code in ["x = 1", "f()", "x =", "await f()", "", "x = 1\ny = 2", "if x:\n    é\n"] {
            assert!(!parser.wants_more(code), "{code:?}");
        }
    }
}
