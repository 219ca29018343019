//! Sub-LLMs: batches, retries, budgets, tools, the proxy.

mod budgets;
mod chat;
mod deadlines;
mod failures;
mod gateways;
mod order;
mod records;
mod requests;
mod session_tools;
mod streams;
mod tools;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rlm_rootd::{
    Budget, Ledger, Models, ModelsConfig, Prices, Recorder, Retries, SubCallError, SubCallRecord, SubLlm,
    SubLlmOptions, Usage,
};
use rlm_tests::scripted_model::ScriptedModel;
use serde_json::Value as Json;

/// A rollout's sub-LLM and what it is made of.
struct Setup {
    config: ModelsConfig,
    budget: Budget,
    prices: &'static str,
    options: SubLlmOptions,
}

/// A sub-LLM of this server, with pauses of a few milliseconds.
fn setup(model: &ScriptedModel) -> Setup {
    let mut config = ModelsConfig::new(model.base_url(), "small");
    config.retries = Retries { max: 2, base: Duration::from_millis(2), cap: Duration::from_millis(10) };
    Setup { config, budget: Budget::default(), prices: "", options: SubLlmOptions::default() }
}

impl Setup {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn start(self) -> Arc<SubLlm> {
        let models = Arc::new(Models::new(self.config).unwrap());
        let ledger = Arc::new(Ledger::new(self.budget, Prices::from_toml(self.prices).unwrap()));
        Arc::new(SubLlm::new(models, ledger, self.options).unwrap())
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn prompts(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("p{at}.")).collect()
}

/// The texts of a batch, or of its errors.
async fn ask(sub_llm: &SubLlm, prompts: Vec<String>) -> Vec<String> {
    ask_until(sub_llm, prompts, soon()).await
}

async fn ask_until(sub_llm: &SubLlm, prompts: Vec<String>, deadline: Instant) -> Vec<String> {
    let results = sub_llm.batch(prompts, deadline).await;
    let text = |result: Result<rlm_rootd::Completion, SubCallError>| match result {
        Ok(completion) => completion.text,
        Err(error) => format!("! {error}"),
    };
    results.into_iter().map(text).collect()
}

async fn ask_one(sub_llm: &SubLlm, prompt: &str) -> String {
    ask(sub_llm, vec![prompt.to_owned()]).await.remove(0)
}

fn echoes(count: usize) -> Vec<String> {
    prompts(count).iter().map(|prompt| format!("re: {prompt}")).collect()
}

/// Keeps the records of requests.
#[derive(Debug, Default)]
struct Memory(Mutex<Vec<Record>>);

#[derive(Debug)]
struct Record {
    batch_id: String,
    index: usize,
    turn: u32,
    request_id: String,
    messages: usize,
    reply: Option<Json>,
    finish_reason: Option<String>,
    error: Option<String>,
    usage: Usage,
    attempts: u32,
}

impl Recorder for Memory {
    fn sub_call(&self, record: &SubCallRecord<'_>) {
        assert_eq!(record.model, "small");
        assert!(record.seconds >= 0.0);
        self.0.lock().unwrap().push(Record {
            batch_id: record.batch_id.to_owned(),
            index: record.index,
            turn: record.turn,
            request_id: record.request_id.to_owned(),
            messages: record.messages.len(),
            reply: record.reply.cloned(),
            finish_reason: record.finish_reason.map(str::to_owned),
            error: record.error.map(ToString::to_string),
            usage: record.usage,
            attempts: record.attempts,
        });
    }
}
