//! `rlm demo`: a sample rollout. The models follow scripts; the session, its calls of `llm_batch` and the HTTP traffic are
//! real. Only the loopback device is used, and the answer is checked.

mod corpus;
mod reader;
mod script;
mod server;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rlm_core::text::{counted, grouped};
use rlm_env::rollout::{Metrics, Recursion};
use rlm_env::{Control, Host, HostConfig, Limits, ReplLanguage, RolloutConfig, RolloutResult, RootModel};
use rlm_rootd::{Models, ModelsConfig};

use self::corpus::Corpus;
use self::script::Script;
use self::server::Server;
use crate::arguments::DemoOptions;
use crate::display::{Display, Style};
use crate::environment::Environment;
use crate::rollouts::{Requests, close, host, make_directory, new_id, python_variable, sinks};
use crate::standard_output::Output;

/// The question of the rollout.
const QUESTION: &str =
    "In which month were most people injured because the brakes of a bike failed, and how many were they?";

/// Exit status for a wrong answer.
const WRONG: u8 = 1;

/// Limit of turns, above those that the script needs.
const MAX_TURNS: u32 = 12;

/// Levels of children of the recursive one.
const DEPTH: u32 = 2;

/// Time limit of a call; the longest takes 0.1 s.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn run(options: &DemoOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    crate::standard_output::require()?;
    let colours = std::io::stdout().is_terminal() && !environment.is_dumb() && !environment.wants_no_colour();
    let language = if options.python.is_some() { ReplLanguage::Python } else { ReplLanguage::Bash };
    let output = Arc::new(Output::default());
    let lines = output.clone();
    let display =
        Arc::new(Display::new(colours, language, None, move |line| lines.print(&format!("{line}\n"))));
    let mut others = sinks(options.trajectory.as_deref())?;
    others.push(display.clone());
    let keep = options.keep.as_deref().map(make_directory).transpose()?;
    let rollout = RolloutConfig {
        language,
        limits: Limits { max_turns: MAX_TURNS, call_timeout: CALL_TIMEOUT, ..Limits::default() },
        env: python_variable(options.python.clone().flatten()),
        keep,
        sinks: others,
        recursion: options.recursive.then(|| Recursion::new(DEPTH)),
        ..RolloutConfig::new(new_id(), QUESTION)
    };
    let runtime = tokio::runtime::Runtime::new().context("no threads can be started")?;
    let ended = runtime.block_on(async {
        let requests = Requests::catch()?;
        let status = show_rollout(rollout, &display, environment, requests).await?;
        output.check().map(|()| status)
    });
    runtime.shutdown_background();
    ended
}

async fn show_rollout(
    mut rollout: RolloutConfig,
    display: &Display,
    environment: &Environment,
    requests: Requests,
) -> anyhow::Result<ExitCode> {
    let corpus = Corpus::new();
    let is_recursive = rollout.recursion.is_some();
    introduce(display, &corpus, rollout.language, is_recursive);
    rollout.context = corpus.context();
    let server = Server::start().await.context("the scripted sub-LLM cannot listen on 127.0.0.1")?;
    let (root_llm, models) = models(rollout.language, is_recursive, &server)?;
    let config: HostConfig = host(environment, &rollout, root_llm, models)?;
    let host = Host::start(config).await?;
    let (result, ended_by) = until_end(&host, rollout, requests).await;
    close(host).await;
    if let Some(status) = ended_by {
        return Ok(ExitCode::from(status));
    }
    conclude(display, &result, &corpus);
    Ok(if is_right(&result, &corpus) { ExitCode::SUCCESS } else { ExitCode::from(WRONG) })
}

/// Runs the rollout. A signal cancels it, and gives an exit status.
async fn until_end(
    host: &Host,
    rollout: RolloutConfig,
    mut requests: Requests,
) -> (RolloutResult, Option<u8>) {
    let control = Control::new();
    let mut running = std::pin::pin!(host.run(rollout, &control));
    let mut ended_by = None;
    loop {
        tokio::select! {
            result = &mut running => return (result, ended_by),
            request = requests.next() => {
                control.cancel();
                ended_by.get_or_insert(request.status());
            }
        }
    }
}

fn models(
    language: ReplLanguage,
    is_recursive: bool,
    server: &Server,
) -> anyhow::Result<(Arc<dyn RootModel>, Arc<Models>)> {
    let models = Models::new(ModelsConfig::new(server.base_url(), server::MODEL))?;
    Ok((Arc::new(Script::new(language, is_recursive)), Arc::new(models)))
}

fn introduce(display: &Display, corpus: &Corpus, language: ReplLanguage, is_recursive: bool) {
    display.line(Style::Strong, format_args!("A rollout in {language}, with scripted models"));
    display.line(
        Style::Plain,
        format_args!(
            "No model is called: the root model's turns come from a script, and the sub-LLM is a keyword search.\n\
             The rest is real: the {language} session and its output, the calls of llm_batch over HTTP, limits, counts.\n\
             The context is generated: a year of letters to a bicycle-hire service, {} bytes.",
            grouped(corpus.bytes() as u64)
        ),
    );
    if is_recursive {
        display.line(
            Style::Plain,
            format_args!("Its code starts rollouts of its own, and theirs do, {DEPTH} levels deep: each has a session of its own."),
        );
    }
}

fn is_right(result: &RolloutResult, corpus: &Corpus) -> bool {
    result.answer_ready && result.answer.as_deref() == Some(corpus.truth.as_str())
}

fn conclude(display: &Display, result: &RolloutResult, corpus: &Corpus) {
    display.line(Style::Strong, format_args!("\nanswer    {}", result.answer.as_deref().unwrap_or("none")));
    if is_right(result, corpus) {
        display.line(Style::Good, "verified  it is what the generator of the letters recorded");
    } else {
        let error = result.error.as_deref().unwrap_or("no error");
        display.line(
            Style::Bad,
            format_args!("wrong     expected {}; {:?}, {error}", corpus.truth, result.stop_reason),
        );
    }
    display.line(Style::Plain, format_args!("\n{}", metrics(&result.metrics)));
    display.line(
        Style::Plain,
        "\nThe models of this rollout were scripted. With a real one, over your own files:\n\n  \
         export RLM_BASE_URL=https://host/v1 RLM_MODEL=large-model RLM_API_KEY=…\n  \
         rlm run --context DIR 'What is in here?'",
    );
    if let Some(dir) = &result.dir {
        display.line(Style::Faint, format_args!("\nThe rollout's directory is {}", dir.display()));
    }
}

/// The metrics, one per line.
fn metrics(metrics: &Metrics) -> String {
    let requests = counted(metrics.sub_llm_call_count, "request");
    let batches = counted(metrics.sub_llm_batch_count, "call");
    let tokens = counted(metrics.sub_llm_prompt_tokens + metrics.sub_llm_completion_tokens, "token");
    let children: u64 = metrics.depths.values().map(|of_depth| of_depth.rollouts).sum();
    let children = match metrics.depths.len() {
        0 => String::new(),
        levels => format!("rollouts below it        {children}, {levels} levels deep\n"),
    };
    format!(
        "{children}turns of the root model  {}\n\
         calls of the session     {}, {:.1} ms each on average\n\
         sub-LLM                  {requests} by {batches} of llm_batch, {tokens}\n\
         the whole rollout        {:.2} s",
        metrics.root_llm_turns,
        metrics.repl_call_count,
        metrics.repl_mean_time_seconds * 1e3,
        metrics.total_time_seconds
    )
}
