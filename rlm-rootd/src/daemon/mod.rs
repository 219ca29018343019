//! `rlm-rootd`: the endpoint as a process of its own.

mod arguments;
mod log;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rlm_core::env::HOST_PID;
use serde_json::{Map, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use self::arguments::Arguments;
use self::arguments::ListenAddress;
use crate::host_process::HostProcess;
use crate::nav::{NAV_TOOLS, Navigation};
use crate::{
    Key, Listener, Models, ModelsConfig, Prices, Proxy, Registration, RolloutConfig, Rootd, RootdConfig,
    Secret, ServerRules, Tool, load_tools,
};

/// Exit status when an argument, or a file that one names, is wrong.
const USAGE_ERROR: u8 = 2;

/// Exit status when nothing can be served.
const SERVER_ERROR: u8 = 3;

/// Time limit at the end for calls to be dropped.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// Descriptors that are kept for everything but connections: tools, models, the log.
const DESCRIPTORS: usize = 64;

/// Serves until a signal ends it, or the process that [`HOST_PID`] names in the environment. Prints errors; gives the exit
/// status.
#[must_use]
pub fn run(arguments: &Arguments, environment: &BTreeMap<OsString, OsString>) -> ExitCode {
    match serve_with_log(arguments, &Environment(environment)) {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, error)) => {
            // If standard error is closed, the exit status remains.
            let _closed = writeln!(std::io::stderr(), "rlm-rootd: {error:#}");
            ExitCode::from(status)
        }
    }
}

/// An error comes with its exit status.
fn serve_with_log(arguments: &Arguments, environment: &Environment<'_>) -> Result<(), (u8, anyhow::Error)> {
    let filter = environment.text("RUST_LOG").unwrap_or_else(|| "info".to_owned());
    let log = log::start(arguments.log_format, &filter)
        .map_err(|error| (SERVER_ERROR, anyhow::Error::new(error).context("the log cannot be started")))?;
    let ended = Settings::new(arguments, environment)
        .map_err(|error| (USAGE_ERROR, error))
        .and_then(|settings| serve(settings).map_err(|error| (SERVER_ERROR, error)));
    log.finish(log::LAST_LINES);
    ended
}

/// The variables of the environment.
struct Environment<'a>(&'a BTreeMap<OsString, OsString>);

impl Environment<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(OsStr::new(name))?.to_str().map(str::to_owned)
    }

    /// A variable that holds a secret. An empty secret would admit everyone.
    fn secret(&self, name: &str) -> anyhow::Result<String> {
        match self.text(name) {
            Some(value) if !value.trim().is_empty() => Ok(value.trim().to_owned()),
            _ => bail!("the variable {name} is not set"),
        }
    }
}

/// The settings that the arguments give.
struct Settings {
    rootd: Rootd,
    rollouts: Vec<Registration>,
    /// Shown at the start where it was made here.
    new_token: Option<Secret>,
    address: ListenAddress,
    host: HostProcess,
}

impl Settings {
    fn new(arguments: &Arguments, environment: &Environment<'_>) -> anyhow::Result<Self> {
        // Other processes of the same user cannot read the key from our environment or memory.
        nix::sys::prctl::set_dumpable(false)
            .context("the process cannot be hidden from others of its user")?;
        let address = arguments.listen_address()?;
        let host = HostProcess::new(environment.text(HOST_PID).as_deref())?;
        let tools = tools(arguments, environment)?;
        let prices = arguments.prices.as_deref().map(Prices::read).transpose()?.unwrap_or_default();
        let prices = Prices::built_in().with(&prices);
        let models = models(arguments, environment)?;
        let new_token = match arguments.admin_token_env {
            Some(_) => None,
            None => Some(Secret::random().context("no admin token can be made")?),
        };
        let admin_token = match &arguments.admin_token_env {
            Some(name) => Some(Secret::new(&environment.secret(name)?)),
            None => new_token.clone(),
        };
        let defaults = RootdConfig::default();
        let descriptors = raise_descriptor_limit()?;
        let config = RootdConfig {
            tools: tools.clone(),
            models,
            prices,
            admin_token,
            max_body_bytes: arguments.max_body_bytes.unwrap_or(defaults.max_body_bytes),
            // A call of a program takes four descriptors.
            max_connections: defaults.max_connections.min(descriptors.saturating_sub(DESCRIPTORS) / 2).max(1),
            ..defaults
        };
        let rootd = Rootd::new(config);
        let mut rollouts = Vec::new();
        for id in &arguments.rollouts {
            let config = RolloutConfig { tools: tools.clone(), ..RolloutConfig::default() };
            rollouts.push(rootd.register(id, config).with_context(|| format!("--rollout {id}"))?);
        }
        Ok(Self { rootd, rollouts, new_token, address, host })
    }
}

/// The tools of the file, and those for the working directory.
fn tools(arguments: &Arguments, environment: &Environment<'_>) -> anyhow::Result<Vec<Tool>> {
    let of_file = |path| tools_of_file(path, environment);
    let mut tools = arguments.tools.as_deref().map_or_else(|| Ok(Vec::new()), of_file)?;
    let Some(workdir) = &arguments.workdir else { return Ok(tools) };
    if let Some(tool) = tools.iter().find(|tool| NAV_TOOLS.contains(&tool.name())) {
        bail!("--workdir: the name of its tool {} is taken by one of --tools", tool.name());
    }
    tools.extend(Navigation::new(workdir)?.tools());
    Ok(tools)
}

fn tools_of_file(path: &Path, environment: &Environment<'_>) -> anyhow::Result<Vec<Tool>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let whole =
        std::path::absolute(path).with_context(|| format!("{} cannot be resolved", path.display()))?;
    let dir = whole.parent().unwrap_or(Path::new("/"));
    load_tools(&text, dir, environment.0).with_context(|| path.display().to_string())
}

fn models(arguments: &Arguments, environment: &Environment<'_>) -> anyhow::Result<Option<Arc<Models>>> {
    let Some((base_url, model)) = arguments.base_url.as_ref().zip(arguments.model.as_ref()) else {
        return Ok(None);
    };
    let mut config = ModelsConfig::new(base_url, model);
    let ServerRules { name, rules } = arguments.server.clone().unwrap_or_default();
    (config.api, config.server, config.rules) = (arguments.api, name, rules);
    config.proxy = Proxy::of_variables(base_url, |name| environment.text(name));
    if let Some(name) = &arguments.api_key_env {
        config.key = Some(Key::new(environment.secret(name)?));
    }
    if let Some(parallelism) = arguments.server_parallelism {
        config.parallelism = parallelism;
    }
    Ok(Some(Arc::new(Models::new(config)?)))
}

/// Raises the limit of open files as far as the system allows, and returns it. The programs of tools keep the limit from
/// before.
fn raise_descriptor_limit() -> anyhow::Result<usize> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files cannot be read")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("the limit of open files cannot be raised")?;
    Ok(usize::try_from(most).unwrap_or(usize::MAX))
}

fn serve(settings: Settings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("no threads can be started")?;
    let served = runtime.block_on(serve_until_signals(settings));
    // Drops calls that were cut off, which kills their programs. The shutdown does not wait longer for a thread that still
    // decodes a large body.
    runtime.shutdown_timeout(LAST_CALLS);
    served
}

async fn serve_until_signals(settings: Settings) -> anyhow::Result<()> {
    let Settings { rootd, rollouts, new_token, address, host } = settings;
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut ends = signal(SignalKind::terminate())?;
    let listener = match &address {
        ListenAddress::Tcp(address) => {
            Listener::tcp(*address).with_context(|| format!("{address} cannot be bound"))
        }
        ListenAddress::Unix(path) => {
            Listener::unix(path).with_context(|| format!("{} cannot be bound", path.display()))
        }
    }?;
    let base_url = listener.base_url().to_owned();
    let mut registered = Map::new();
    for rollout in rollouts {
        let address = json!({
            "secret": rollout.secret.reveal(),
            "tools_url": rollout.tools_url(&base_url),
            "chat_url": rollout.chat_url(&base_url),
            "tools": rollout.tools,
        });
        registered.insert(rollout.id, address);
    }
    let admin_token = new_token.as_ref().map(Secret::reveal);
    let line = json!({"url": base_url, "admin_token": admin_token, "rollouts": registered});
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("the address cannot be printed")?;
    tracing::info!(url = base_url, "listening");
    let signals = async {
        for token in [&first, &second] {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = ends.recv() => {}
            }
            tracing::info!("shutting down");
            token.cancel();
        }
        std::future::pending().await
    };
    tokio::select! {
        () = host.ended() => {
            tracing::info!("the host has ended");
            Ok(())
        }
        served = rootd.serve(listener, first.cancelled()) => served.context("the server cannot be started"),
        () = second.cancelled() => Ok(()),
        () = signals => Ok(()),
    }
}
