//! `rlm prompts`: the texts that models read.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use rlm_env::model::{ChatRequest, ModelError, ModelErrorKind, ModelFuture, RootModel};
use rlm_env::rollout::Prompts;
use rlm_env::{Control, Host};
use serde_json::Value as Json;

use crate::arguments::PromptsOptions;
use crate::config::Settings;
use crate::config::table::MODEL;
use crate::environment::Environment;
use crate::rollouts::{GivenContext, Setup, close, new_id};
use crate::standard_output::print;

pub(crate) fn run(options: &PromptsOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    let text = match options.show {
        true => shown(options, environment)?,
        false => Prompts::new().names().map(|name| format!("{name}\n")).collect(),
    };
    print(text).map(|()| ExitCode::SUCCESS)
}

/// The system prompt and the tools, as a rollout with these settings would send them.
fn shown(options: &PromptsOptions, environment: &Environment) -> anyhow::Result<String> {
    let seen = Arc::new(Opening::default());
    let mut setup = setup(options, environment)?;
    let context = GivenContext::new(&options.context)?.read(setup.rollout.limits.max_context_bytes)?;
    let runtime = tokio::runtime::Runtime::new().context("no threads can be started")?;
    let result = runtime.block_on(async {
        let mcp_servers = setup.start_mcp_servers().await?;
        let Setup { mut host, mut rollout, .. } = setup;
        host.root_model = seen.clone();
        rollout.id = new_id();
        rollout.context = context;
        (rollout.keep, rollout.sinks) = (None, Vec::new());
        let host = Host::start(host).await?;
        let result = host.run(rollout, &Control::new()).await;
        close(host).await;
        mcp_servers.stop().await;
        anyhow::Ok(result)
    })?;
    let (system, tools) = seen.0.get().with_context(|| {
        result.error.unwrap_or_else(|| "the rollout ended before its first request".to_owned())
    })?;
    let tools: Vec<_> = tools.iter().map(|tool| format!("{tool:#}\n")).collect();
    Ok(if tools.is_empty() { format!("{system}\n") } else { format!("{system}\n\n{}", tools.concat()) })
}

/// The setup of a rollout whose model is never asked, so that no server and no key are needed.
fn setup(options: &PromptsOptions, environment: &Environment) -> anyhow::Result<Setup> {
    let mut flags = options.settings.clone();
    let mut set = |name: &'static str, value: &str| {
        flags.values.insert(name, (value.to_owned(), format!("--{}", name.replace('_', "-"))));
    };
    for name in ["base_url", "sub_base_url"] {
        set(name, "http://127.0.0.1/v1");
    }
    for name in ["api_key_env", "sub_api_key_env"] {
        set(name, "");
    }
    if Settings::load(&options.settings, environment)?.get(&MODEL).is_none() {
        set("model", "model");
    }
    Setup::new(&Settings::load(&flags, environment)?, environment)
}

/// A root model that keeps the first request and answers none: the system prompt, and the tools.
#[derive(Debug, Default)]
struct Opening(OnceLock<(String, Vec<Json>)>);

impl RootModel for Opening {
    fn name(&self) -> &str {
        "model"
    }

    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> ModelFuture<'a> {
        let system =
            request.messages.first().and_then(|message| message["content"].as_str()).unwrap_or_default();
        self.0.get_or_init(|| (system.to_owned(), request.tools.to_vec()));
        Box::pin(async { Err(ModelError::new(ModelErrorKind::Failed, "the prompt is shown")) })
    }
}
