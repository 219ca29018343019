//! `rlm mcp`: sessions for agents, over the Model Context Protocol on standard input and output, or on HTTP.
//!
//! Standard output belongs to the protocol; messages for people go to standard error. The sessions of a client end when it
//! is gone, and all sessions at a signal.
//!
//! The runtime has a single thread, which keeps calls in order: the SDK spawns a task for each incoming request, tasks
//! start in the order in which they were spawned, and a call takes its place in the queue in its first step.

mod ask;
mod files;
mod http;
pub(crate) mod log;
mod requests;
mod server;
mod sessions;
mod tools;
mod uri;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rlm_core::env::PASS_ENV;
use rlm_env::rollout::Prompts;
use rlm_env::unstable::{McpDoc, McpText};
use rlm_env::{ReplLanguage, SessionConfig};
use rmcp::ServiceExt;
use rmcp::model::ProtocolVersion;
use rmcp::service::ServerInitializeError;
use rmcp::transport::io::stdio_pipes;

use crate::arguments::McpOptions;
use crate::config::Settings;
use crate::config::table::CONFINE;
use crate::doctor::tell_of_confinement;
use crate::environment::Environment;
use crate::fork_server;
use crate::rollouts::{hide_from_others, python_variable};
use crate::signals::AnyEndSignal;
use crate::worker;
use ask::Asker;
use files::Files;
use http::Listen;
use requests::Requests;
use server::{Offer, Server, Servers};
use sessions::Limits;

/// Time for running calls to end after the client has closed standard input: enough for `printf … | rlm mcp`.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// Time after that for the client to read the last answers; it may have stopped reading.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

pub(crate) fn run(options: &McpOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    let settings = Settings::load(&options.settings.0, environment)?;
    let python = options.python.clone().flatten();
    let for_sessions = settings.for_sessions(environment);
    let sessions = fork_server::Sessions::start(&settings, &for_sessions, ReplLanguage::Python, python);
    let environment = &sessions.environment;
    let listen = options.listen.map(|address| Listen::new(address, environment)).transpose()?;
    let servers = Arc::new(servers(options, settings, environment)?);
    hide_from_others()?;
    let log = log::start(&options.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut ends = AnyEndSignal::catch()?;
        tell_of_confinement(environment).await;
        let serving = async {
            match &listen {
                Some(listen) => listen.serve(Arc::clone(&servers)).await,
                None => serve(&servers.open()).await,
            }
        };
        let ended = tokio::select! {
            ended = serving => ended.map(|()| ExitCode::SUCCESS),
            status = ends.next() => Ok(ExitCode::from(status)),
        };
        servers.close().await;
        ended
    });
    // If standard input is not a pipe, a blocked thread reads it and cannot be woken.
    runtime.shutdown_background();
    log.finish(log::LAST_LINES);
    ended
}

/// Serves one client, until it closes its end.
async fn serve(server: &Arc<Server>) -> anyhow::Result<()> {
    let (input, output) = stdio_pipes();
    let (requests, end) = Requests::new(input, output);
    let running = match Arc::clone(server).serve(requests).await {
        Ok(running) => running,
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error).context("the client does not speak MCP"),
    };
    let closing = async {
        end.cancelled().await;
        tokio::time::sleep(LAST_CALLS).await;
        server.stop_calls();
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        ended = running.waiting() => ended.map(drop).context("the server failed"),
        () = closing => Ok(()),
    }
}

fn servers(options: &McpOptions, settings: Settings, environment: &Environment) -> anyhow::Result<Servers> {
    let root = worker::working_directory(&options.workdir)?;
    let mut env = rlm_core::env::for_workers(&environment.to_list());
    // Agents run the user's programs. A worker gives its session another PATH unless this variable names it.
    let passed = environment.text(PASS_ENV)?.unwrap_or_default();
    rlm_core::env::set(&mut env, PASS_ENV, format!("{passed} PATH"));
    for (name, value) in python_variable(options.python.clone().flatten()) {
        rlm_core::env::set(&mut env, name, value);
    }
    let prompts = Arc::new(Prompts::new());
    let doc = McpDoc {
        root: &root,
        timeout: options.call_timeout,
        max_output_bytes: options.max_output_bytes,
        max_sessions: options.max_sessions.get(),
        confine: settings.get(&CONFINE).unwrap_or_default(),
    };
    let asker = Asker::new(settings, environment, &root)?.map(Arc::new);
    let mut tools = tools::definitions(&doc, &prompts)?;
    if asker.is_none() {
        tools.retain(|tool| tool.name != tools::ASK_DIRECTORY);
    }
    let instructions = doc.render(McpText::Instructions, &prompts)?;
    let files = Files::new(root.clone(), options.max_resource_bytes);
    let session = |language: ReplLanguage| {
        let names_python = options.python.iter().flatten().next().is_some();
        let worker = worker::find(language, names_python, environment)?;
        anyhow::Ok(SessionConfig { env: env.clone(), ..SessionConfig::new(worker, &root) })
    };
    let limits = Limits {
        bash: session(ReplLanguage::Bash)?,
        python: session(ReplLanguage::Python)?,
        dir: environment.temp_dir(),
        timeout: options.call_timeout,
        max_code_bytes: options.max_code_bytes,
        max_output_bytes: options.max_output_bytes,
        max_sessions: options.max_sessions.get(),
        prompts,
    };
    let versions = match options.listen {
        // On HTTP, later versions have no sessions.
        Some(_) => ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25),
        None => ProtocolVersion::KNOWN_VERSIONS,
    };
    Ok(Servers::new(Offer { tools, instructions, versions, limits, files, asker }))
}
