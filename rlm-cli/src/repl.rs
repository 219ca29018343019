//! `rlm repl`: an interactive session.

mod completeness;
mod lines;

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use rlm_core::protocol::{Outcome, Response};
use rlm_core::text::without_middle;
use rlm_env::{ReplLanguage, Session, SessionConfig, SessionError};
use rustyline::error::ReadlineError;

use self::lines::{Ahead, Lines};
use crate::arguments::ReplOptions;
use crate::config::Settings;
use crate::environment::Environment;
use crate::exec::{check_size, notice};
use crate::fork_server::Sessions;
use crate::live::LivePrinter;
use crate::session_tools::SessionTools;
use crate::signals::interrupted;
use crate::terminal::TerminalSettings;
use crate::{tell, worker};

/// Bytes of the beginning, and of the end, of the output of an interrupted call.
const INTERRUPTED_BYTES: usize = 2 << 10;

pub(crate) fn run(options: &ReplOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    crate::standard_output::require()?;
    let language = options.session.language();
    let settings = Settings::load(&options.settings.0, environment)?;
    let python = options.session.python().map(Path::to_owned);
    let for_sessions = settings.for_sessions(environment);
    let sessions = Sessions::start(&settings, &for_sessions, language, python);
    let environment = &sessions.environment;
    let mut config = worker::session_config(&options.session, environment)?;
    let printer = Arc::new(LivePrinter::default());
    config.output = Some(printer.clone());
    let tools = SessionTools::choose(&options.settings, &settings, None, &config, environment)?;
    let _terminal = TerminalSettings::keep();
    let mut lines = Lines::start(language, history_file(language, environment))?;
    tools.run(language, config, environment, async move |config, _tools| {
        serve_lines(config, &mut lines, &printer).await?;
        // After a signal, the line editor is still reading; it ends with the process.
        lines.finish();
        Ok(ExitCode::SUCCESS)
    })
}

async fn serve_lines(config: SessionConfig, lines: &mut Lines, printer: &LivePrinter) -> anyhow::Result<()> {
    let is_terminal = std::io::stdin().is_terminal();
    let dir = config.fs_root.clone();
    let mut session = Session::start(config).await?;
    if is_terminal {
        let info = session.info().await?;
        let (language, version) = (info.language, info.version);
        tell(format_args!("{language} {version} in {}; Ctrl-C stops a call, Ctrl-D leaves", dir.display()));
    }
    let mut ahead = Ahead::Keep;
    while let Some(line) = lines.next(std::mem::replace(&mut ahead, Ahead::Keep), &mut session).await {
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
        // The rest of an interrupted call's output is shortened.
        let stop = async {
            interrupted().await;
            printer.stop();
        };
        match session.execute_until(code.as_str(), stop).await {
            Ok(response) => {
                show(&response, printer, is_terminal)?;
                if response.outcome == Outcome::Interrupted {
                    ahead = Ahead::Drop;
                }
            }
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

fn show(response: &Response, printer: &LivePrinter, is_terminal: bool) -> anyhow::Result<()> {
    let [stdout, stderr] = printer.rest(response);
    let mut output = std::io::stdout().lock();
    let result = response.result.as_deref().unwrap_or_default();
    let is_interrupted = response.outcome == Outcome::Interrupted;
    for (rest, text) in [(&*stdout, &*response.stdout), (&*stderr, &*response.stderr), (result, result)] {
        let rest = if is_interrupted { without_middle(rest, INTERRUPTED_BYTES) } else { Cow::from(rest) };
        output.write_all(rest.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            output.write_all(b"\n")?;
        }
    }
    output.flush()?;
    // A traceback says enough.
    let is_traceback = response.exception.is_some() && response.outcome == Outcome::Error;
    if is_traceback && response.hint.is_none() {
        return Ok(());
    }
    let is_exit = response.outcome == Outcome::Exited
        || response.exception.as_ref().is_some_and(|exception| exception.kind == "SystemExit");
    if let Some(notice) = notice(response) {
        let leave = if is_exit && is_terminal { "; Ctrl-D leaves" } else { "" };
        tell(format_args!("rlm: the call {notice}{leave}"));
    }
    Ok(())
}

/// The history of a language: `$XDG_STATE_HOME/rlm/history-LANGUAGE`, by default under `~/.local/state`. None if its
/// directory cannot be made.
fn history_file(language: ReplLanguage, environment: &Environment) -> Option<PathBuf> {
    let dir = environment.state_dir()?;
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join(format!("history-{language}")))
}
