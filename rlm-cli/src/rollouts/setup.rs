//! The host and the rollout that settings describe.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rlm_core::error::with_causes;
use rlm_core::root_tool::SHOW;
use rlm_core::text::listed;
use rlm_env::rollout::{AnswerSchema, Level, Prompts, Recursion};
use rlm_env::trajectory::Sink;
use rlm_env::trajectory::Writer;
use rlm_env::unstable::SubLlmPrompt;
use rlm_env::{ContextFilter, Host, HostConfig, Limits, ReplLanguage, RolloutConfig, RootModel};
use rlm_rootd::{
    Budget, BudgetTool, HttpModel, Ledger, LlmBatch, McpServers, Models, Prices, SubLlm, SubLlmOptions, Tool,
    check_sampling, load_tools,
};

use super::servers::{Of, Servers, models};
use crate::config::table::{
    ANSWER_SCHEMA, BASE_URL, BUDGET_TOKENS, BUDGET_USD, CALL_TIMEOUT, CALLBACKS, CHILD_TOOLS, CONTEXT_TOKENS,
    DEPTH_MODELS, EXCLUDE, FINAL_FUNCTIONS, GITIGNORE, KEEP, KEEP_REASONING, LANGUAGE, MAX_CHILDREN,
    MAX_COMPLETION_TOKENS, MAX_CONTEXT_BYTES, MAX_DEPTH, MAX_OUTPUT_CHARS, MAX_TURNS, MESSAGES_IN_CONTEXT,
    MODEL, NAVIGATION, PRICES, PROMPTS, PYTHON, SAMPLING, SHOW_IMAGES, SUB_BASE_URL, SUB_MODEL,
    SUB_PARALLELISM, SUB_SAMPLING, SUMMARIZE_TURNS, TIMEOUT, TOKEN_IDS, TOOL_CALLS, TOOLS, TRAJECTORY,
    VERBOSITY,
};
use crate::config::{Settings, digest};
use crate::environment::Environment;
use crate::evaluation::Provenance;
use crate::files::{directory_of, read_named};
use crate::mcp_servers::DeclaredServers;
use crate::usage::{Usage, refuse};
use crate::{tell, worker};

/// Tools that every rollout has.
pub(crate) const BUILT_IN_TOOLS: [&str; 6] =
    ["llm_batch", "llm_query", "budget", "rlm_query", "rlm_query_batch", "rlm_query_batched"];

/// The configuration of a host and of its rollouts. Id, question and context of the rollout are not set yet.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) host: HostConfig,
    pub(crate) rollout: RolloutConfig,
    /// The models and settings, for results.
    pub(crate) provenance: Provenance,
    /// The origin of the settings of the root model's server, in words.
    pub(crate) server_settings: String,
    pub(crate) root_models: Arc<Models>,
    mcp_servers: DeclaredServers,
}

impl Setup {
    /// Reads the settings in force. Fails if a required one is missing.
    pub(crate) fn new(settings: &Settings, environment: &Environment) -> anyhow::Result<Self> {
        let environment = &settings.for_sessions(environment);
        let (prices, prompts) = (prices(settings)?, prompts(settings)?);
        let servers = Servers::new(settings, environment)?;
        let depth_models = settings.get(&DEPTH_MODELS).unwrap_or_default();
        let models = [servers.root.model(), &servers.sub_model];
        let models = models.into_iter().chain(depth_models.iter().map(String::as_str));
        let budget = budget(settings, &prices, models)?;
        for setting in [&SAMPLING, &SUB_SAMPLING] {
            let fields = settings.get(setting).unwrap_or_default();
            check_sampling(&fields, &budget)
                .map_err(|reason| Usage::new(format!("{}: {reason}", settings.place(setting))))?;
        }
        let language = settings.value(&LANGUAGE);
        let final_functions = settings.value(&FINAL_FUNCTIONS);
        if final_functions && language == ReplLanguage::Bash {
            let place = settings.place(&FINAL_FUNCTIONS);
            refuse!("{place}: a bash session has no function FINAL: add --python");
        }
        if settings.value(&TOKEN_IDS) && !settings.value(&KEEP_REASONING) {
            let (ids, reasoning) = (settings.place(&TOKEN_IDS), settings.place(&KEEP_REASONING));
            refuse!(
                "{ids}: the tokens of a reply tell its reasoning, which {reasoning} leaves out: set one of the two"
            );
        }
        let tools = tools(settings, environment)?;
        if settings.value(&SHOW_IMAGES) && tools.iter().any(|tool| tool.name() == SHOW) {
            let (show, tools) = (settings.place(&SHOW_IMAGES), settings.place(&TOOLS));
            refuse!("{show}: {tools} has a tool of the name `show`, too: rename it");
        }
        let (model, sub_model) = (servers.root.model().to_owned(), servers.sub_model.clone());
        let rollout = RolloutConfig {
            context_filter: context_filter(settings)?,
            language,
            callbacks: settings.value(&CALLBACKS),
            navigation: settings.get(&NAVIGATION),
            final_functions,
            show_images: settings.value(&SHOW_IMAGES),
            answer_schema: settings.get(&ANSWER_SCHEMA).map(|file| answer_schema(&file)).transpose()?,
            limits: limits(settings, budget),
            verbosity: settings.value(&VERBOSITY),
            root_tools: tools,
            sub_llm: SubLlmOptions {
                model: Some(servers.sub_model),
                parallelism: settings.value(&SUB_PARALLELISM),
                sampling: settings.get(&SUB_SAMPLING).unwrap_or_default(),
                ..SubLlmOptions::default()
            },
            sampling: settings.get(&SAMPLING).unwrap_or_default(),
            recursion: Some(recursion(settings, &servers.root, depth_models)),
            tool_calls: settings.value(&TOOL_CALLS),
            summarize_turns: settings.get(&SUMMARIZE_TURNS),
            messages_in_context: settings.value(&MESSAGES_IN_CONTEXT),
            keep_reasoning: settings.value(&KEEP_REASONING),
            env: python_variable(settings.get(&PYTHON)),
            ..RolloutConfig::new("", "")
        };
        let host = HostConfig {
            prices,
            prompts: Arc::new(prompts),
            ..host(environment, &rollout, Arc::new(HttpModel::new(servers.root.clone())), servers.sub)?
        };
        let provenance = Provenance { model, sub_model, settings: digest(settings)? };
        let key = settings.key(environment)?;
        let key = key.variable().map_or("no key".to_owned(), |variable| format!("the key in {variable}"));
        let (model, base_url) = (settings.place(&MODEL), settings.place(&BASE_URL));
        let server_settings = format!("{model}, {base_url}, {key}");
        let mcp_servers = DeclaredServers::read(settings, environment)?;
        Ok(Self { host, rollout, provenance, server_settings, root_models: servers.root, mcp_servers })
    }

    /// Makes the directory for what is kept, and opens the trajectory.
    pub(crate) fn open_files(&mut self, settings: &Settings) -> Result<(), Usage> {
        self.rollout.keep = settings.get(&KEEP).map(|dir| make_directory(&dir)).transpose()?;
        self.rollout.sinks.extend(sinks(settings.get(&TRAJECTORY).as_deref())?);
        Ok(())
    }

    /// Starts the user's MCP servers, whose tools all rollouts get. They run until the result is stopped or dropped.
    pub(crate) async fn start_mcp_servers(&mut self) -> anyhow::Result<McpServers> {
        let servers = self.mcp_servers.start(&mut self.rollout.root_tools).await?;
        self.check_child_tools()?;
        Ok(servers)
    }

    /// Fails if children should have a tool that is not there.
    fn check_child_tools(&self) -> Result<(), Usage> {
        let tools: Vec<_> = self.rollout.root_tools.iter().map(Tool::name).collect();
        let levels = self.rollout.recursion.iter().flat_map(|recursion| &recursion.levels);
        let mut wanted = levels.flat_map(|level| level.root_tools.iter().flatten().map(String::as_str));
        match wanted.find(|name| !tools.contains(name) && !BUILT_IN_TOOLS.contains(name)) {
            Some(name) => refuse!(
                "child_tools: no tool is named {name}; `tools` and `mcp` define {}",
                listed(&tools, tools.len())
            ),
            None => Ok(()),
        }
    }

    /// Fails if a model has no price that the limit of a batch's cost needs.
    pub(crate) fn check_prices(&self) -> Result<(), Usage> {
        let ledger =
            Ledger::new(Budget { cost_usd: Some(0.0), ..Budget::default() }, self.host.prices.clone());
        let models = [Some(self.host.root_model.name()), self.rollout.sub_llm.model.as_deref()];
        models.into_iter().flatten().try_for_each(|model| {
            ledger
                .check_model(model)
                .map_err(|error| Usage::new(format!("--max-cost: {error} (--prices FILE)")))
        })
    }

    /// Asks the servers for the limits of their models: for the size of the root model's context window, if that is not set, and with
    /// a budget, which would bound completions more tightly, for the longest completions, which are kept with the models.
    pub(crate) async fn learn_limits(&mut self, max_cost: Option<f64>) {
        let limits = &mut self.rollout.limits;
        let has_budget = limits.budget.bounds_completions() || max_cost.is_some();
        if limits.context_tokens.is_none() || has_budget {
            let listed = self.root_models.limits().await;
            limits.context_tokens = limits.context_tokens.or(listed.context_tokens);
        }
        let sub = self.host.sub_models.as_ref().filter(|sub| !Arc::ptr_eq(sub, &self.root_models));
        if let Some(sub) = sub.filter(|_| has_budget) {
            sub.limits().await;
        }
    }
}

/// A host with these models, for rollouts in the language of this one.
pub(crate) fn host(
    environment: &Environment,
    rollout: &RolloutConfig,
    root_model: Arc<dyn RootModel>,
    sub_models: Arc<Models>,
) -> anyhow::Result<HostConfig> {
    let worker = worker::find(
        rollout.language,
        rollout.env.iter().any(|(name, _)| name == rlm_core::env::PYTHON),
        environment,
    )?;
    Ok(HostConfig {
        env: environment.to_list(),
        dir: environment.temp_dir(),
        sub_models: Some(sub_models),
        ..HostConfig::new(worker.parent().unwrap_or(Path::new(".")), root_model)
    })
}

/// Ends a host. A directory that it could not remove is named, and changes nothing else.
pub(crate) async fn close(host: Host) {
    if let Err(error) = host.close().await {
        tell(format_args!("rlm: a temporary directory is left behind: {error}"));
    }
}

/// The files that copies of a context's directories leave out.
pub(crate) fn context_filter(settings: &Settings) -> Result<ContextFilter, Usage> {
    let exclude = settings.get(&EXCLUDE).unwrap_or_default();
    ContextFilter::new(settings.value(&GITIGNORE), &exclude).map_err(|error| Usage::new(error.to_string()))
}

/// Makes the directory for rollouts that are kept, and its parents, for their owner alone, and checks that it can be written
/// to. Returns its absolute path.
pub(crate) fn make_directory(dir: &Path) -> Result<PathBuf, Usage> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir).and_then(|()| dir.canonicalize());
    let dir =
        made.map_err(|error| Usage::new(format!("cannot make the directory {}: {error}", dir.display())))?;
    match tempfile::tempdir_in(&dir).and_then(tempfile::TempDir::close) {
        Ok(()) => Ok(dir),
        Err(error) => refuse!("cannot make a directory in {}: {error}", dir.display()),
    }
}

/// The variable that names the Python of a session.
pub(crate) fn python_variable(python: Option<PathBuf>) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    python.map(|python| (rlm_core::env::PYTHON.into(), python.into())).into_iter().collect()
}

/// The writer of the trajectory, if there is one.
pub(crate) fn sinks(trajectory: Option<&Path>) -> Result<Vec<Arc<dyn Sink>>, Usage> {
    let Some(file) = trajectory else { return Ok(Vec::new()) };
    match Writer::append(file) {
        Ok(writer) => Ok(vec![Arc::new(writer)]),
        Err(error) => refuse!("cannot write the trajectory to {}: {error}", file.display()),
    }
}

/// The root tools in the settings: those of the file, and `llm_batch` and `budget` if a model is set.
pub(crate) fn live_tools(settings: &Settings, environment: &Environment) -> anyhow::Result<Vec<Tool>> {
    let mut tools = tools(settings, environment)?;
    let root_url = settings.get(&BASE_URL);
    let sub_url = settings.get(&SUB_BASE_URL);
    let model = settings.get(&SUB_MODEL).or_else(|| settings.get(&MODEL));
    let (Some(model), Some(base_url)) = (model, sub_url.clone().or_else(|| root_url.clone())) else {
        return Ok(tools);
    };
    let prices = prices(settings)?;
    let budget = budget(settings, &prices, [model.as_str()])?;
    let models = models(settings, environment, &base_url, &model, Of::Sub)?;
    let ledger = Arc::new(Ledger::new(budget, prices));
    let prompt = SubLlmPrompt { boxed: false, has_tools: false }.render(&prompts(settings)?);
    let options = SubLlmOptions {
        model: Some(model),
        parallelism: settings.value(&SUB_PARALLELISM),
        sampling: settings.get(&SUB_SAMPLING).unwrap_or_default(),
        system_prompt: Some(prompt.map_err(|error| Usage::new(with_causes(&error)))?),
        ..SubLlmOptions::default()
    };
    let sub_llm = SubLlm::new(models, ledger.clone(), options)
        .map_err(|error| Usage::new(format!("{}: {}", settings.place(&SUB_SAMPLING), with_causes(&error))))?;
    let batch = LlmBatch::new(Arc::new(sub_llm));
    let one = Tool::new(batch.one())?;
    tools.extend([Tool::new(batch)?, one]);
    tools.push(Tool::new(BudgetTool::new(ledger))?);
    Ok(tools)
}

fn prompts(settings: &Settings) -> anyhow::Result<Prompts> {
    let Some(dir) = settings.get(&PROMPTS) else { return Ok(Prompts::new()) };
    Prompts::with_overrides(&dir).map_err(|error| Usage::new(with_causes(&error)).into())
}

fn answer_schema(file: &Path) -> Result<AnswerSchema, Usage> {
    if file.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        refuse!("{}: the answer's schema is not in a regular file", file.display());
    }
    let schema = serde_json::from_str(&read_named(file, "the answer's schema")?)
        .map_err(|error| Usage::new(format!("{}: it is not JSON: {error}", file.display())))?;
    AnswerSchema::new(schema).map_err(|error| Usage::new(format!("{}: {error}", file.display())))
}

fn prices(settings: &Settings) -> anyhow::Result<Prices> {
    let Some(file) = settings.get(&PRICES) else { return Ok(Prices::built_in()) };
    let own = Prices::read(&file)
        .map_err(|error| Usage::new(format!("{}: {}", file.display(), with_causes(&error))))?;
    Ok(Prices::built_in().with(&own))
}

/// The recursion: how far code may start rollouts of its own.
fn recursion(settings: &Settings, servers: &Arc<Models>, models: Vec<String>) -> Recursion {
    let root_tools = settings.get(&CHILD_TOOLS);
    let level = |model: Option<String>| Level {
        model: model.map(|name| Arc::new(HttpModel::named(servers.clone(), name)) as Arc<dyn RootModel>),
        root_tools: root_tools.clone(),
    };
    let levels: Vec<_> = models.into_iter().map(|model| level(Some(model))).collect();
    let mut recursion = Recursion::new(settings.value(&MAX_DEPTH));
    recursion.max_running = settings.value(&MAX_CHILDREN);
    recursion.levels = if levels.is_empty() && root_tools.is_some() { vec![level(None)] } else { levels };
    recursion
}

fn budget<'a>(
    settings: &Settings,
    prices: &Prices,
    models: impl IntoIterator<Item = &'a str>,
) -> Result<Budget, Usage> {
    let cost_usd = settings.get(&BUDGET_USD);
    if cost_usd.is_some()
        && let Some(model) = models.into_iter().find(|model| prices.get(model).is_none())
    {
        return Err(Usage::new(match settings.get(&PRICES) {
            Some(file) => {
                format!(
                    "the budget is in USD, and neither {} nor the built-in prices have one of the model {model}",
                    file.display()
                )
            }
            None => format!(
                "the budget is in USD, and the price of the model {model} is unknown: give --prices FILE"
            ),
        }));
    }
    Ok(Budget { tokens: settings.get(&BUDGET_TOKENS), cost_usd, ..Budget::default() })
}

fn limits(settings: &Settings, budget: Budget) -> Limits {
    Limits {
        max_turns: settings.value(&MAX_TURNS),
        timeout: settings.get(&TIMEOUT),
        call_timeout: settings.value(&CALL_TIMEOUT),
        budget,
        context_tokens: settings.get(&CONTEXT_TOKENS),
        max_completion_tokens: settings.get(&MAX_COMPLETION_TOKENS),
        max_output_length: settings.value(&MAX_OUTPUT_CHARS),
        max_context_bytes: settings.value(&MAX_CONTEXT_BYTES),
        ..Limits::default()
    }
}

/// The root tools of the file in the settings.
fn tools(settings: &Settings, environment: &Environment) -> anyhow::Result<Vec<Tool>> {
    let Some(file) = settings.get(&TOOLS) else { return Ok(Vec::new()) };
    let text = read_named(&file, "the tools")?;
    let tools = load_tools(&text, &directory_of(&file)?, environment.variables())
        .map_err(|error| Usage::new(format!("{}: {}", file.display(), with_causes(&error))))?;
    match tools.iter().find(|tool| BUILT_IN_TOOLS.contains(&tool.name())) {
        Some(tool) => refuse!(
            "{}: tool '{}': this is the name of a built-in tool: choose another",
            file.display(),
            tool.name()
        ),
        None => Ok(tools),
    }
}
