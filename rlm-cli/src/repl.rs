//! `rlm repl`: a person at a session.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use rlm_core::protocol::Response;
use rlm_env::{Session, SessionError};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Completer, Editor, Helper, Highlighter, Hinter};

use crate::arguments::ReplOptions;
use crate::exec::{check_size, interrupted, notice};
use crate::{tell, worker};

pub(crate) fn run(options: &ReplOptions) -> anyhow::Result<ExitCode> {
    let config = worker::session_config(&options.session)?;
    let language = options.session.repl_language;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut session = runtime.block_on(Session::start(config))?;
    let mut editor: Editor<Completeness, FileHistory> = Editor::new()?;
    editor.set_helper(Some(Completeness));
    let history = history_file();
    if let Some(history) = &history {
        // The first time there is none.
        let _none_yet = editor.load_history(history);
    }
    let prompt = format!("{language}> ");
    loop {
        let code = match editor.readline(&prompt) {
            Ok(code) => code,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        };
        if code.trim().is_empty() {
            continue;
        }
        editor.add_history_entry(&code)?;
        if let Err(error) = check_size(&code) {
            tell(error);
            continue;
        }
        match runtime.block_on(session.execute_until(code.as_str(), interrupted())) {
            Ok(response) => show(&response)?,
            Err(error @ SessionError::Died { .. }) => {
                tell(format_args!("rlm: {error}; starting a new one"));
                runtime.block_on(session.restart())?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(history) = &history
        && let Err(error) = editor.save_history(history)
    {
        tell(format_args!("rlm: cannot save the history to {}: {error}", history.display()));
    }
    runtime.block_on(session.close())?;
    Ok(ExitCode::SUCCESS)
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

/// `$XDG_STATE_HOME/rlm/history`, by default under `~/.local/state`; None where no directory can be made.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    let dir = state.join("rlm");
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join("history"))
}

/// Tells the line editor whether code is complete, by asking bash.
#[derive(Completer, Debug, Helper, Highlighter, Hinter)]
struct Completeness;

impl Validator for Completeness {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let code = context.input();
        let wants_more = !code.ends_with("\n") && (code.ends_with('\\') || is_cut_off(code));
        Ok(if wants_more { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// Whether bash finds the end of the code too early. Where bash cannot be asked, the code is taken as it is.
fn is_cut_off(code: &str) -> bool {
    let checker = Command::new("bash")
        .args(["--noprofile", "--norc", "-n", "-O", "extglob"])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut checker) = checker else { return false };
    if let Some(mut input) = checker.stdin.take() {
        // A checker that has seen enough may close its end.
        let _seen_enough = input.write_all(code.as_bytes());
    }
    let Ok(output) = checker.wait_with_output() else { return false };
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    ["unexpected end of file", "unexpected EOF", "delimited by end-of-file"]
        .iter()
        .any(|cut| complaint.contains(cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_cut_off_where_bash_wants_more() {
        for code in ["echo 'a", "if true; then", "cat <<E\nx", "f() {", "echo $(ls"] {
            assert!(is_cut_off(code), "{code:?}");
        }
        for code in ["echo a", "fi", "cat <<E\nx\nE\n", ""] {
            assert!(!is_cut_off(code), "{code:?}");
        }
    }
}
