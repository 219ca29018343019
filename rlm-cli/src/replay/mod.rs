//! `rlm replay`: the calls of a session in a fresh one, compared with their recorded results.

mod report;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use rlm_env::replay::{PastSession, Recorder, Recording, ReplayConfig, Tools, Workdir, replay};
use rlm_env::{Context, ReplLanguage};
use rlm_rootd::McpServers;

use crate::arguments::ReplayOptions;
use crate::config::Settings;
use crate::config::table::PYTHON;
use crate::environment::Environment;
use crate::fork_server::Sessions;
use crate::mcp_servers::DeclaredServers;
use crate::rollouts::{context_filter, hide_from_others, left_out_words, live_tools, python_variable};
use crate::script::open;
use crate::signals::AnyEndSignal;
use crate::usage::{Usage, refuse};
use crate::{standard_output, tell, worker};

use self::report::Report;

/// Exit status if a result differs.
const DIFFERENT: u8 = 1;

pub(crate) fn run(options: &ReplayOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    standard_output::require()?;
    let settings = Settings::load(&options.settings.0, environment)?;
    let environment = &settings.for_sessions(environment);
    let past = open(&options.source)?;
    if options.python.is_some() && past.language != ReplLanguage::Python {
        refuse!("the session is a {} session: leave --python out", past.language);
    }
    let workdir = match &options.workdir {
        Some(workdir) => {
            let workdir =
                worker::working_directory(workdir).map_err(|error| Usage::new(format!("{error:#}")))?;
            Workdir::Root(workdir)
        }
        None if options.context.is_empty() => Workdir::Fresh(Context::Nothing),
        None => Workdir::Fresh(Context::Paths(options.context.clone())),
    };
    // The worker resolves a relative path in another directory.
    let python = options.python.clone().flatten().or_else(|| settings.get(&PYTHON));
    let names_python = python.is_some();
    let sessions = Sessions::start(&settings, environment, past.language, python.clone());
    let environment = &sessions.environment;
    let mut variables = environment.to_list();
    for (name, value) in python_variable(python.map(absolute_unless_name)) {
        rlm_core::env::set(&mut variables, name, value);
    }
    let (tools, recorder) = tools(options, &settings, environment)?;
    let mcp_servers = DeclaredServers::read(&settings, environment)?;
    let mut config = ReplayConfig {
        worker: worker::find(past.language, names_python, environment)?,
        env: variables,
        dir: environment.temp_dir(),
        workdir,
        context_filter: context_filter(&settings)?,
        tools,
        timeout: options.call_timeout,
        max_output_bytes: options.max_output_bytes,
    };
    hide_from_others()?;
    let runtime = tokio::runtime::Runtime::new().context("no threads can be started")?;
    let ended = runtime.block_on(async {
        let mut ends = AnyEndSignal::catch()?;
        let mcp_servers = match &mut config.tools {
            Tools::Recording(_) => McpServers::default(),
            Tools::Live { tools, .. } => tokio::select! {
                started = mcp_servers.start(tools) => started?,
                status = ends.next() => return Ok(ExitCode::from(status)),
            },
        };
        // Dropping the session's future ends the session.
        let ended = tokio::select! {
            is_equal = compare(&past, config) => is_equal.map(|is_equal| status(is_equal, options)),
            status = ends.next() => Ok(ExitCode::from(status)),
        };
        mcp_servers.stop().await;
        ended
    });
    // A tool that still reads must not delay the end.
    runtime.shutdown_background();
    if let Some(recorder) = recorder {
        recorder.check()?;
    }
    ended
}

fn status(is_equal: bool, options: &ReplayOptions) -> ExitCode {
    if is_equal {
        return ExitCode::SUCCESS;
    }
    if options.workdir.is_none() && options.context.is_empty() {
        tell(
            "hint: it ran in an empty directory; --context or --workdir gives it the files that the session started with",
        );
    }
    ExitCode::from(DIFFERENT)
}

/// Runs the session again and shows the differences. Returns true if there are no differences.
async fn compare(past: &PastSession, config: ReplayConfig) -> anyhow::Result<bool> {
    let report = Report::default();
    let replayed = replay(past, config, |call| report.call(call)).await?;
    report.end(past, &replayed);
    if let Some(words) = left_out_words(&replayed.left_out, "`gitignore = false`") {
        tell(format_args!("rlm: {words}"));
    }
    report.0.check()?;
    Ok(replayed.is_equal())
}

/// The absolute path of a file; a bare name stays, to be found on `PATH`.
fn absolute_unless_name(path: std::path::PathBuf) -> std::path::PathBuf {
    match path.components().count() {
        1 if !path.exists() => path,
        _ => std::path::absolute(&path).unwrap_or(path),
    }
}

fn tools(
    options: &ReplayOptions,
    settings: &Settings,
    environment: &Environment,
) -> anyhow::Result<(Tools, Option<Arc<Recorder>>)> {
    if let Some(file) = &options.recorded {
        return Ok((Tools::Recording(Recording::read(file)?), None));
    }
    let tools = live_tools(settings, environment)?;
    let recorder = match &options.record {
        None => None,
        Some(file) => Some(Arc::new(Recorder::create(file).map_err(|error| match error {
            rlm_env::replay::RecordingError::Exists(_) => Usage::new(error.to_string()).into(),
            error => anyhow::Error::new(error),
        })?)),
    };
    Ok((Tools::Live { tools, recorder: recorder.clone() }, recorder))
}
