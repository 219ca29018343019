//! `rlm run`: a question, or many, to a model that works in a REPL.

mod chat;
mod dry_run;
mod question;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use rlm_core::env::HOST_PID;
use rlm_core::ids::is_rollout_id;
use rlm_env::rollout::Image;
use rlm_env::trajectory::Sink;
use rlm_env::{Control, Host, StopReason};
use rlm_rootd::HostProcess;

use self::chat::Chat;
use self::question::{print_answer, print_line, until_end};
use crate::arguments::{BatchOptions, ProgressLevel, RunOptions};
use crate::batch::Plan;
use crate::config::Settings;
use crate::config::table::{
    MAX_CONTEXT_BYTES, MAX_RECORDED_RUNS, MAX_TURNS, PYTHON, SYNC_RESULTS, TRAJECTORY,
};
use crate::doctor::tell_of_confinement;
use crate::environment::Environment;
use crate::evaluation::{Evaluation, Provenance, RunResult};
use crate::files::is_one_file;
use crate::fork_server::Sessions;
use crate::rollouts::{
    Events, GivenContext, LeftOutNotices, Progress, Requests, Setup, WaitNotices, can_draw, close,
    ending_words, hide_from_others, new_id, progress_level, status,
};
use crate::runs::{Record, Runs};
use crate::terminal::TerminalSettings;
use crate::usage::{Usage, refuse};
use crate::view::{Shown, serve_run};
use crate::warnings::Warnings;
use crate::{batch, tell};

pub(crate) fn run(
    options: &RunOptions,
    environment: &Environment,
    warnings: &Warnings,
) -> anyhow::Result<ExitCode> {
    if options.question.is_none() && options.batch.questions.is_none() && !options.batch.feed && !options.chat
    {
        refuse!("no question: give one, or a file of them with --questions FILE");
    }
    let settings = Settings::load(&options.settings, environment)?;
    check_files(&options.batch, settings.get(&TRAJECTORY).as_deref())?;
    if let Some(id) = options.id.as_ref().filter(|id| !is_rollout_id(id)) {
        refuse!("--id `{id}`: expected 1 to 128 of a-z, A-Z, 0-9, `_`, `-` and `.`");
    }
    if options.batch.results.is_none() || options.events {
        crate::standard_output::require()?;
    }
    let mut setup = Setup::new(&settings, environment)?;
    let work = Work::new(options, &settings, environment)?;
    let host_process = HostProcess::new(environment.text(HOST_PID)?);
    let host_process = host_process.map_err(|error| Usage::new(error.to_string()))?;
    let given = GivenContext::new(&options.context)?;
    work.check_contexts(&given)?;
    let images = options.image.iter().map(|file| Image::read(file).map_err(Usage::new));
    setup.rollout.images = images.collect::<Result<_, _>>()?;
    Image::check_all(&setup.rollout.images).map_err(|fault| Usage::new(format!("--image: {fault}")))?;
    if !setup.rollout.images.is_empty() {
        setup.provenance.settings += &format!("-{}", Image::digest(&setup.rollout.images));
    }
    if options.batch.max_cost.is_some() {
        setup.check_prices()?;
    }
    if options.dry_run {
        let runs = Runs::of(environment);
        return dry_run::show(&work.plan(&setup.provenance)?, &setup, runs.as_ref(), options.batch.max_cost);
    }
    setup.open_files(&settings)?;
    let chat = options.chat.then(|| Chat::new(environment)).transpose()?;
    setup.rollout.plain_answers = options.chat;
    setup.rollout.context = given.read(settings.value(&MAX_CONTEXT_BYTES))?;
    setup.rollout.sinks.push(Arc::new(LeftOutNotices::new(warnings)));
    if !can_draw(environment) {
        setup.rollout.sinks.push(Arc::new(WaitNotices(warnings.clone())));
    }
    hide_from_others()?;
    let language = setup.rollout.language;
    let sessions =
        Sessions::start(&settings, &settings.for_sessions(environment), language, settings.get(&PYTHON));
    setup.host.env = sessions.environment.to_list();
    let runtime = tokio::runtime::Runtime::new().context("no threads can be started")?;
    let level = progress_level(options, environment);
    let draws = level != ProgressLevel::None && can_draw(environment);
    let _settings = draws.then(TerminalSettings::hide_control_keys);
    let ended = runtime.block_on(async {
        let events = options.events.then(Events::start).transpose().context("no threads can be started")?;
        let events = events.map(Arc::new);
        let mut requests = Requests::catch()?.until(lost(host_process, events.clone()));
        // A signal that ends the run also ends the page.
        let mut end_of_page = Requests::catch()?;
        let mcp_servers = tokio::select! {
            started = setup.start_mcp_servers() => started?,
            request = requests.next() => return Ok(ExitCode::from(request.status())),
        };
        setup.learn_limits(options.batch.max_cost).await;
        if level != ProgressLevel::None {
            tell_of_confinement(&settings.for_sessions(environment)).await;
        }
        setup.rollout.sinks.extend(events.clone().map(|events| events as Arc<dyn Sink>));
        let id = options.id.clone().unwrap_or_else(new_id);
        // A program that reads the events has all of them.
        let record =
            (!options.no_record && !options.events).then(|| record(&id, &settings, environment)).flatten();
        setup.rollout.sinks.extend(record.as_ref().map(|record| record.writer.clone() as Arc<dyn Sink>));
        let serve = |port| serve_run(port, shown(record.as_ref(), &settings)?, environment);
        let page = options.serve.map(serve).transpose()?;
        let ended = match work {
            Work::Feed(feed) => {
                let events = events.expect("--feed requires --events");
                feed.run(setup, requests, events).await
            }
            Work::Batch(batch) => batch.run(setup, requests, draws.then_some(warnings), events, record).await,
            Work::One(question) => {
                setup.rollout.question = question;
                setup.rollout.id = id;
                let (max_turns, language) = (settings.value(&MAX_TURNS), setup.rollout.language);
                let progress = Progress::new(level, max_turns, language, environment, warnings).map(Arc::new);
                let output = match events {
                    Some(events) => Output::Events(events),
                    None if options.json => Output::Json,
                    None => Output::Answer,
                };
                one(setup, requests, progress, output, record, chat).await
            }
        };
        mcp_servers.stop().await;
        if let Some(page) = page.filter(|_| ended.is_ok()) {
            if options.chat {
                // Requests to end so far were for answers.
                end_of_page = Requests::catch()?;
            }
            let rest = async {
                if std::io::stderr().is_terminal() {
                    tell(format_args!("rlm: the page stays until Ctrl-C"));
                    std::future::pending::<()>().await;
                }
                page.catch_up().await;
            };
            tokio::select! {
                biased;
                _ = end_of_page.next() => {}
                () = rest => {}
            }
        }
        ended
    });
    // A thread that still reads or writes a large file must not delay the end.
    runtime.shutdown_background();
    ended
}

/// The file that the page of a run follows: its record, or without one its trajectory.
fn shown(record: Option<&Record>, settings: &Settings) -> Result<Shown, Usage> {
    match (record, settings.get(&TRAJECTORY)) {
        (Some(record), _) => Ok(Shown::Run(record.id.clone())),
        (None, Some(file)) => Ok(Shown::File(file)),
        (None, None) => refuse!(
            "--serve shows what is recorded of a run: leave out --no-record and --events, or give --trajectory FILE",
        ),
    }
}

/// Begins the record of a run. Without one, the run goes on.
fn record(id: &str, settings: &Settings, environment: &Environment) -> Option<Record> {
    let most = usize::try_from(settings.value(&MAX_RECORDED_RUNS)).ok().filter(|most| *most > 0)?;
    let runs = Runs::of(environment)?;
    let not_recorded = |error| tell(format_args!("rlm: the run is not recorded in {runs}: {error}"));
    runs.record(id, most).map_err(not_recorded).ok()
}

/// Completes once the host process has ended, or nobody reads the events.
async fn lost(host: HostProcess, events: Option<Arc<Events>>) {
    let Some(events) = events else { return host.ended().await };
    tokio::select! {
        () = host.ended() => {}
        () = events.closed() => {}
    }
}

/// The text for standard output.
enum Output {
    Answer,
    Json,
    Events(Arc<Events>),
}

/// Refuses a file that is given for two purposes.
fn check_files(options: &BatchOptions, trajectory: Option<&Path>) -> Result<(), Usage> {
    let Some(trajectory) = trajectory else { return Ok(()) };
    for (flag, other) in [("--questions", &options.questions), ("--results", &options.results)] {
        if other.as_ref().is_some_and(|other| is_one_file(trajectory, other)) {
            let file = trajectory.display();
            refuse!("the trajectory and {flag} cannot be one file: {file} is given for both");
        }
    }
    Ok(())
}

/// The task of a command.
enum Work {
    One(String),
    Batch(batch::Batch),
    Feed(batch::Feed),
}

impl Work {
    fn new(options: &RunOptions, settings: &Settings, environment: &Environment) -> anyhow::Result<Self> {
        let is_stdin = |path: &Path| path == Path::new("-");
        let takes_questions = options.batch.questions.as_deref().is_some_and(is_stdin);
        let takes_questions = takes_questions || options.batch.feed;
        let takes_context = options.context.iter().filter(|path| is_stdin(path)).count();
        if takes_context + usize::from(takes_questions) > 1 {
            refuse!("standard input can be read once only: `-` is given more than once");
        }
        if options.question.as_ref().is_some_and(|question| question.trim().is_empty()) {
            refuse!("the question is empty");
        }
        if !options.batch.is_batch() && options.batch.max_cost.is_some() {
            refuse!("--max-cost is for a batch: --budget-usd limits one rollout");
        }
        if options.chat && takes_context > 0 {
            refuse!("--chat reads questions from standard input: `--context -` has none");
        }
        match &options.question {
            None if options.batch.feed => Ok(Self::Feed(batch::Feed::new(&options.batch, environment)?)),
            None if options.chat => Ok(Self::One(String::new())),
            Some(question) if !options.batch.is_batch() => Ok(Self::One(question.clone())),
            question => Ok(Self::Batch(batch::Batch::new(
                question.as_deref(),
                &options.batch,
                settings.value(&SYNC_RESULTS),
                environment,
            )?)),
        }
    }

    /// A report of what it would run.
    fn plan(&self, provenance: &Provenance) -> anyhow::Result<Plan> {
        match self {
            Self::One(_) | Self::Feed(_) => Ok(Plan::ONE),
            Self::Batch(batch) => batch.plan(provenance),
        }
    }

    /// Checks that each question has a context, and that those of a file can be opened.
    fn check_contexts(&self, given: &GivenContext<'_>) -> Result<(), Usage> {
        match self {
            Self::One(_) => given.require(None),
            // Contexts are known only when the questions come.
            Self::Feed(_) => Ok(()),
            Self::Batch(batch) => batch.check_contexts(|place| given.require(place)),
        }
    }
}

async fn one(
    mut setup: Setup,
    mut requests: Requests,
    progress: Option<Arc<Progress>>,
    output: Output,
    record: Option<Record>,
    chat: Option<Chat>,
) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let is_chat = chat.is_some();
    if let Some(progress) = &progress {
        setup.rollout.sinks.push(progress.clone());
    }
    let keeps = setup.rollout.keep.is_some();
    let host = Host::start(setup.host).await?;
    let (result, ended_by) = match chat {
        None => {
            let control = Control::new();
            let running = host.run(setup.rollout, &control);
            until_end(running, &control, &mut requests, &progress, false).await
        }
        Some(chat) => chat.run(&host, &setup.rollout, &mut requests, &progress).await?,
    };
    if let Some(progress) = &progress {
        progress.finish();
    }
    close(host).await;
    let Some(result) = result else {
        return Ok(ExitCode::from(ended_by.unwrap_or(crate::ENVIRONMENT_ERROR)));
    };
    let time = began.elapsed();
    let recorded = record.as_ref().map(|record| record.id.clone());
    if let Some(record) = record {
        let answered = u64::from(result.stop_reason == StopReason::Answered);
        record.end(&result.question, std::slice::from_ref(&result.metrics), answered, time);
    }
    let provenance = Some(setup.provenance);
    let whole = RunResult { rollout: result, evaluation: Evaluation::default(), provenance };
    let printed = match &output {
        Output::Events(events) => {
            events.result(&whole);
            events.finish(&mut requests).await
        }
        // A chat has printed its answers.
        _ if is_chat => Ok(()),
        Output::Json => print_json(&whole),
        _ => print_answer(&whole.rollout),
    };
    let result = whole.rollout;
    if let Some(dir) = result.dir.as_ref().filter(|_| keeps) {
        tell(format_args!("rlm: the rollout's directory is {}", dir.display()));
    }
    if let Some(words) = ending_words(&result).filter(|_| !is_chat && !matches!(output, Output::Events(_))) {
        tell(format_args!("rlm: {words}"));
        if result.stop_reason == StopReason::ModelFailed {
            let settings = &setup.server_settings;
            tell(format_args!(
                "rlm: settings of the server: {settings}; `rlm config` shows all, `rlm doctor` checks them"
            ));
        }
    }
    if let Some(progress) = progress {
        let recorded = recorded.map_or(String::new(), |id| format!(" · rlm view {id}"));
        tell(format_args!("rlm: {}{recorded}", progress.summary(time)));
    }
    printed?;
    Ok(ExitCode::from(ended_by.unwrap_or_else(|| status(&result))))
}

/// Prints all of the result as JSON.
fn print_json(result: &RunResult) -> anyhow::Result<()> {
    print_line(serde_json::to_string(result)?)
}
