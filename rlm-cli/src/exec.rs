//! `rlm exec`: calls from the command line or a file, in one session.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use rlm_core::protocol::{Answer, Outcome, Response};
use rlm_env::rollout::Callbacks;
use rlm_env::session::OutputObserver;
use rlm_env::unstable::RootTools;
use rlm_env::{Call, Session, SessionConfig};

use crate::arguments::ExecOptions;
use crate::config::Settings;
use crate::environment::Environment;
use crate::fork_server::Sessions;
use crate::live::LivePrinter;
use crate::session_tools::SessionTools;
use crate::signals::{INTERRUPTED, interrupted};
use crate::{tell, worker};

/// Largest code of one call, in bytes.
pub(crate) const MAX_CODE_BYTES: usize = 1 << 20;

/// Exit status when a call did not run to its end.
const CALL_STOPPED: u8 = 1;

pub(crate) fn run(options: &ExecOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    crate::standard_output::require()?;
    let calls = match &options.file {
        Some(file) => blocks(&read(file)?),
        None => options.code.clone(),
    };
    for (at, code) in calls.iter().enumerate() {
        check_size(code).with_context(|| format!("call {}", at + 1))?;
    }
    let settings = Settings::load(&options.settings.0, environment)?;
    let python = options.session.python().map(Path::to_owned);
    let for_sessions = settings.for_sessions(environment);
    let sessions = Sessions::start(&settings, &for_sessions, options.session.language(), python);
    let environment = &sessions.environment;
    let mut config = worker::session_config(&options.session, environment)?;
    let printer = (!options.json).then(|| Arc::new(LivePrinter::default()));
    // The lines that intercepted calls print come before the code's.
    let is_intercepted = options.callbacks == Some(Callbacks::Intercept);
    let watching = printer.clone().filter(|_| !is_intercepted);
    config.output = watching.map(|printer| printer as Arc<dyn OutputObserver>);
    let tools = SessionTools::choose(&options.settings, &settings, options.callbacks, &config, environment)?;
    tools.run(options.session.language(), config, environment, async |config, tools| {
        run_calls(config, tools, &calls, options, printer).await
    })
}

async fn run_calls(
    config: SessionConfig,
    mut tools: RootTools,
    calls: &[String],
    options: &ExecOptions,
    printer: Option<Arc<LivePrinter>>,
) -> anyhow::Result<ExitCode> {
    let mut session = tokio::select! {
        started = Session::start(config) => started?,
        () = interrupted() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    if let Some(file) = &options.load {
        let response = session.load(file).await?;
        passed(&response, file, "loaded", options.json)?;
    }
    let mut all_ran = true;
    let mut answer = Answer::default();
    for (at, code) in calls.iter().enumerate() {
        let call = Call { timeout: options.session.call_timeout, ..Call::from(code.as_str()) };
        let response = tools.execute_until(&mut session, call, interrupted()).await?;
        match &printer {
            Some(printer) => show(&response, printer, at + 1)?,
            None => writeln!(std::io::stdout(), "{}", serde_json::to_string(&response)?)?,
        }
        all_ran &= response.outcome == Outcome::Ok;
        answer = response.answer;
        if response.outcome == Outcome::Interrupted {
            break;
        }
    }
    if let Some(file) = &options.save {
        let response = match options.save_directory {
            true => session.save_with_directory(file).await?,
            false => session.save(file).await?,
        };
        passed(&response, file, "saved", options.json)?;
    }
    if printer.is_some() && answer != Answer::default() {
        show_answer(&answer)?;
    }
    session.close().await?;
    Ok(if all_ran { ExitCode::SUCCESS } else { ExitCode::from(CALL_STOPPED) })
}

/// Shows the response to a load or a save, and fails if that did.
fn passed(response: &Response, file: &Path, done: &str, json: bool) -> anyhow::Result<()> {
    if json {
        writeln!(std::io::stdout(), "{}", serde_json::to_string(response)?)?;
    }
    match (response.outcome, response.hint.as_deref()) {
        (Outcome::Ok, Some(hint)) if !json => tell(format_args!("rlm: the session was {done}; {hint}")),
        (Outcome::Ok, _) => {}
        (_, reason) => bail!("{} was not {done}: {}", file.display(), reason.unwrap_or_default()),
    }
    Ok(())
}

/// Refuses code that is too large, naming size and limit.
pub(crate) fn check_size(code: &str) -> anyhow::Result<()> {
    if code.len() > MAX_CODE_BYTES {
        bail!(
            "code of {} bytes exceeds the limit of {MAX_CODE_BYTES} bytes: put data into a file",
            code.len()
        );
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    String::from_utf8(bytes).map_err(|error| {
        anyhow::anyhow!("{} is not UTF-8: offset {}", file.display(), error.utf8_error().valid_up_to())
    })
}

/// The blocks of a file of calls, without blank ones.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "# %%" {
            blocks.push(String::new());
        } else if let Some(block) = blocks.last_mut() {
            block.push_str(line);
        }
    }
    blocks.retain(|block| !block.trim().is_empty());
    blocks
}

/// Prints what is left of a call's output, its result, and how it ended if that needs words.
fn show(response: &Response, printer: &LivePrinter, call: usize) -> anyhow::Result<()> {
    let [stdout, stderr] = printer.rest(response);
    let mut output = std::io::stdout().lock();
    output.write_all(stdout.as_bytes())?;
    output.flush()?;
    let mut errors = std::io::stderr();
    errors.write_all(stderr.as_bytes())?;
    match (&response.result, &response.exception) {
        (Some(traceback), Some(_)) => writeln!(errors, "{traceback}")?,
        (Some(value), None) => writeln!(output, "{value}")?,
        (None, _) => {}
    }
    if let Some(notice) = notice(response) {
        tell(format_args!("rlm: call {call} {notice}"));
    }
    Ok(())
}

/// A remark on a call beside its output: how it ended, unless it ran to its end without a hint.
pub(crate) fn notice(response: &Response) -> Option<String> {
    let outcome = match response.outcome {
        Outcome::Ok => "ran",
        Outcome::Error => "failed",
        Outcome::TimedOut => "timed out",
        Outcome::Interrupted => "was interrupted",
        Outcome::Exited => "ended its shell",
        Outcome::Crashed => "ended its interpreter",
    };
    match &response.hint {
        Some(hint) => Some(format!("{outcome}: {hint}")),
        None if response.outcome != Outcome::Ok => Some(outcome.to_owned()),
        None => None,
    }
}

fn show_answer(answer: &Answer) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    if output.is_terminal() {
        let state = if answer.ready { "ready" } else { "not ready" };
        writeln!(output, "answer ({state}):")?;
    }
    output.write_all(answer.content.as_bytes())?;
    if !answer.content.ends_with('\n') {
        output.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_what_stands_between_marks() {
        assert_eq!(blocks("# %%\na\n\nb\n# %%\n\n# %% \nc"), ["a\n\nb\n", "c"]);
        assert_eq!(blocks(" \n"), [""; 0]);
        assert_eq!(blocks("echo '# %%'\n"), ["echo '# %%'\n"]);
    }

    #[test]
    fn oversize_code_is_refused_with_size_and_limit() {
        let error = check_size(&"x".repeat(MAX_CODE_BYTES + 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "code of 1048577 bytes exceeds the limit of 1048576 bytes: put data into a file"
        );
    }
}
