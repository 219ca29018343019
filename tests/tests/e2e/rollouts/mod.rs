//! Rollouts: real workers, a real endpoint for root tools, and scripted models.

mod branches;
mod context;
mod control;
mod faults;
mod intercept;
mod limits;
mod many;
mod questions;
mod recursion;
mod servers;
mod turns;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rlm_env::model::HttpModel;
use rlm_env::trajectory::Sink;
use rlm_env::trajectory::{Entry, Event, MessageKind};
use rlm_env::{Context, Control, Host, HostConfig, ReplLanguage, RolloutConfig, RolloutResult, StopReason};
use rlm_rootd::Prices;
use rlm_tests::scripted_model::{Rule, ScriptedModel, calling};
use rlm_tests::{PATIENCE, assert_no_marked_process, default_python, marked_env};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Prices of the models in these tests: USD per million tokens.
const PRICES: &str = "
    [models.root]
    prompt = 10.0
    completion = 20.0
    [models.sub]
    prompt = 1.0
    completion = 2.0
";

/// A host, its models, and a directory for both.
struct Stage {
    host: Host,
    model: ScriptedModel,
    dir: TempDir,
    mark: String,
}

impl Stage {
    /// A host whose root model `root` and sub-LLM `sub` follow these rules.
    async fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self::with_prices(PRICES, rules).await
    }

    /// A stage whose models have these prices.
    async fn with_prices(prices: &str, rules: impl IntoIterator<Item = Rule>) -> Self {
        let model = ScriptedModel::start(rules);
        let dir = tempfile::tempdir().unwrap();
        let prices = Prices::from_toml(prices).unwrap();
        let host = Host::start(HostConfig { prices, ..model.host_config(dir.path()) }).await.unwrap();
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let mark = format!("rollouts-{}-{}", std::process::id(), STAGES.fetch_add(1, Relaxed));
        Self { host, model, dir, mark }
    }

    /// A configuration with this id, which a test may change.
    fn rollout(&self, id: &str) -> (RolloutConfig, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        let mut config = RolloutConfig::new(id, "How many?");
        config.env = marked_env(&self.mark, &default_python());
        config.sinks = vec![seen.clone()];
        (config, seen)
    }

    /// Runs a rollout whose configuration this changes.
    async fn run_as(&self, change: impl FnOnce(&mut RolloutConfig)) -> (RolloutResult, Arc<Seen>) {
        let (mut config, seen) = self.rollout("one");
        change(&mut config);
        (self.run(config).await, seen)
    }

    async fn run(&self, config: RolloutConfig) -> RolloutResult {
        self.run_with(config, &Control::new()).await
    }

    async fn run_with(&self, config: RolloutConfig, control: &Control) -> RolloutResult {
        tokio::time::timeout(PATIENCE, self.host.run(config, control)).await.unwrap()
    }

    /// Requests to the root model.
    fn root_requests(&self) -> Vec<Value> {
        self.requests("root")
    }

    /// Requests to the sub-LLM.
    fn sub_requests(&self) -> Vec<Value> {
        self.requests("sub")
    }

    fn requests(&self, model: &str) -> Vec<Value> {
        let bodies = self.model.requests().into_iter().map(|request| request.body);
        bodies.filter(|body| body["model"] == model).collect()
    }

    /// Ends everything, and checks that nothing is left.
    async fn end(self) {
        self.host.close().await.unwrap();
        assert_no_marked_process(&self.mark);
        let left: Vec<_> = std::fs::read_dir(self.dir.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        // Fails the test if a request arrived that no rule matches.
        drop(self.model);
    }
}

/// The entries of a rollout.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<Entry>>);

impl Sink for Seen {
    fn entry(&self, entry: &Entry) {
        self.0.lock().unwrap().push(entry.clone());
    }
}

impl Seen {
    fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().iter().map(|entry| entry.event.clone()).collect()
    }

    /// The texts of all messages of one kind.
    fn texts(&self, kind: MessageKind) -> Vec<String> {
        let text = |event: Event| match event {
            Event::Message(said) if said.kind == kind => {
                Some(said.message["content"].as_str().unwrap_or_default().to_owned())
            }
            _ => None,
        };
        self.events().into_iter().filter_map(text).collect()
    }

    fn outputs(&self) -> Vec<String> {
        self.texts(MessageKind::Output)
    }

    fn notices(&self) -> Vec<String> {
        self.texts(MessageKind::Notice)
    }
}

/// Checks how a rollout ended, and with which answer.
#[track_caller]
fn ended(result: &RolloutResult, reason: StopReason, answer: &str) {
    assert_eq!((result.stop_reason, result.answer.as_deref()), (reason, Some(answer)), "{result:?}");
}

/// Values for both languages.
fn in_each<T>(bash: T, python: T) -> [(ReplLanguage, T); 2] {
    [(ReplLanguage::Bash, bash), (ReplLanguage::Python, python)]
}

/// Has the root model's next message call the REPL with this code.
fn call(language: ReplLanguage, code: &str) -> Rule {
    Rule::any().calls(language.tool_name(), code).once()
}

fn bash(code: &str) -> Rule {
    call(ReplLanguage::Bash, code)
}

/// The final answer of tests in bash.
fn answer(content: &str) -> Rule {
    bash(&format!("RLM_CONTENT={content} RLM_READY=1"))
}

/// A context with one file.
fn a_file(dir: &Path) -> Context {
    let path = dir.join("numbers.txt");
    std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
    Context::Paths(vec![path])
}
