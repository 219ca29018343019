//! `rlm repl`: an interactive session.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::Context;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use rlm_core::protocol::Response;
use rlm_env::{ReplLanguage, Session, SessionConfig, SessionError};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Completer, Editor, Helper, Highlighter, Hinter};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::arguments::ReplOptions;
use crate::environment::Environment;
use crate::exec::{check_size, notice};
use crate::signals::{EndSignals, interrupted};
use crate::{tell, worker};

pub(crate) fn run(options: &ReplOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    let config = worker::session_config(&options.session, environment)?;
    let _terminal = TerminalSettings::keep();
    let mut lines = Lines::start(options.session.language(), history_file(environment))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut ends = EndSignals::catch()?;
        // Dropping the session's future ends the session.
        tokio::select! {
            served = serve_lines(config, &mut lines) => served.map(|()| None),
            status = ends.next() => Ok(Some(status)),
        }
    })?;
    match ended {
        // The line editor is still reading; it ends with the process.
        Some(status) => Ok(ExitCode::from(status)),
        None => {
            lines.finish();
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn serve_lines(config: SessionConfig, lines: &mut Lines) -> anyhow::Result<()> {
    let mut session = Session::start(config).await?;
    while let Some(line) = lines.next().await {
        let code = match line {
            Ok(code) if code.trim().is_empty() => continue,
            Ok(code) => code,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                tell("rlm: the line is not UTF-8");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = check_size(&code) {
            tell(error);
            continue;
        }
        match session.execute_until(code.as_str(), interrupted()).await {
            Ok(response) => show(&response)?,
            Err(error @ SessionError::Died { .. }) => {
                tell(format_args!("rlm: {error}; starting a new one"));
                session.restart().await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    session.close().await?;
    Ok(())
}

/// The line editor, in its own thread: it blocks, and signals must be handled while it does.
struct Lines {
    requests: mpsc::Sender<()>,
    lines: UnboundedReceiver<rustyline::Result<String>>,
    editor: JoinHandle<()>,
}

impl Lines {
    fn start(language: ReplLanguage, history: Option<PathBuf>) -> anyhow::Result<Self> {
        let prompt = format!("{language}> ");
        let mut editor: Editor<Completeness, FileHistory> = Editor::new()?;
        editor.set_helper(Some(Completeness(language)));
        if let Some(history) = &history {
            // The file does not exist before the first session.
            let _missing = editor.load_history(history);
        }
        let (requests, requested) = mpsc::channel();
        let (sender, lines) = unbounded_channel();
        let editor = std::thread::Builder::new()
            .name("line editor".to_owned())
            .spawn(move || edit(editor, &prompt, history, &requested, &sender))
            .context("cannot start the line editor")?;
        Ok(Self { requests, lines, editor })
    }

    /// The next line; None after the editor has ended.
    async fn next(&mut self) -> Option<rustyline::Result<String>> {
        self.requests.send(()).ok()?;
        self.lines.recv().await
    }

    /// Saves the history. Must not be called while the editor waits for a line.
    fn finish(self) {
        drop(self.requests);
        // A panic has printed its message already.
        let _panicked = self.editor.join();
    }
}

fn edit(
    mut editor: Editor<Completeness, FileHistory>,
    prompt: &str,
    history: Option<PathBuf>,
    requested: &mpsc::Receiver<()>,
    lines: &UnboundedSender<rustyline::Result<String>>,
) {
    while requested.recv().is_ok() {
        let line = editor.readline(prompt);
        if let Ok(code) = &line
            && !code.trim().is_empty()
            && let Err(error) = editor.add_history_entry(code)
        {
            tell(format_args!("rlm: cannot keep the line for later: {error}"));
        }
        if lines.send(line).is_err() {
            return;
        }
    }
    if let Some(history) = &history
        && let Err(error) = editor.save_history(history)
    {
        tell(format_args!("rlm: cannot save the history to {}: {error}", history.display()));
    }
}

/// The terminal's settings, restored on drop: a signal may arrive while the line editor has changed them.
struct TerminalSettings(Option<Termios>);

impl TerminalSettings {
    fn keep() -> Self {
        Self(tcgetattr(std::io::stdin()).ok())
    }
}

impl Drop for TerminalSettings {
    fn drop(&mut self) {
        if let Some(settings) = &self.0 {
            // A terminal that is gone needs no settings.
            let _gone = tcsetattr(std::io::stdin(), SetArg::TCSANOW, settings);
        }
    }
}

fn show(response: &Response) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    let result = response.result.as_deref().unwrap_or_default();
    for text in [&response.stdout, &response.stderr, result] {
        output.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            output.write_all(b"\n")?;
        }
    }
    output.flush()?;
    if let Some(notice) = notice(response) {
        tell(format_args!("rlm: the call {notice}"));
    }
    Ok(())
}

/// `$XDG_STATE_HOME/rlm/history`, by default under `~/.local/state`; None if its directory cannot be made.
fn history_file(environment: &Environment) -> Option<PathBuf> {
    let state = environment.directory("XDG_STATE_HOME");
    let dir = state.or_else(|| Some(environment.directory("HOME")?.join(".local/state")))?.join("rlm");
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join("history"))
}

/// Decides whether code is complete, by asking the language's own parser.
#[derive(Completer, Debug, Helper, Highlighter, Hinter)]
struct Completeness(ReplLanguage);

impl Validator for Completeness {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let code = context.input();
        let is_cut_off = match self.0 {
            ReplLanguage::Bash => bash_wants_more,
            ReplLanguage::Python => python_wants_more,
        };
        let wants_more = !code.ends_with("\n") && (code.ends_with('\\') || is_cut_off(code));
        Ok(if wants_more { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// Reports whether bash reaches the end of the code too early.
fn bash_wants_more(code: &str) -> bool {
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-n", "-O", "extglob"]).env("LC_ALL", "C");
    let Some(output) = ask(bash, code) else { return false };
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    ["unexpected end of file", "unexpected EOF", "delimited by end-of-file"]
        .iter()
        .any(|cut| complaint.contains(cut))
}

/// Reports whether Python does, or the last line belongs to a block, which an empty line ends.
fn python_wants_more(code: &str) -> bool {
    let last_line = code.lines().next_back().unwrap_or_default();
    let mut python = Command::new("python3");
    python.args(["-I", "-c", include_str!("complete.py")]);
    last_line.starts_with([' ', '\t'])
        || ask(python, code).is_some_and(|output| output.status.code() == Some(INCOMPLETE))
}

/// Exit status of `complete.py` for incomplete code.
const INCOMPLETE: i32 = 10;

/// Passes code to a checker. None if the checker cannot run: the code then counts as complete.
fn ask(mut checker: Command, code: &str) -> Option<Output> {
    let streams = checker.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut checker = streams.spawn().ok()?;
    if let Some(mut input) = checker.stdin.take() {
        // A checker may stop reading early.
        let _stopped_reading = input.write_all(code.as_bytes());
    }
    checker.wait_with_output().ok()
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
        for code in ["def f():", "if x:\n    pass", "f(1,", "\"\"\"text", "@decorated", "class A:\n    x = 1"]
        {
            assert!(python_wants_more(code), "{code:?}");
        }
        for code in ["x = 1", "f()", "x =", "await f()", "", "x = 1\ny = 2"] {
            assert!(!python_wants_more(code), "{code:?}");
        }
    }
}
