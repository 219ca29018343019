//! A rollout from its beginning to its end.

use std::path::Path;
use std::sync::Arc;

use rlm_rootd::RootModel;

use super::child::{Runner, Running};
use super::config::{Control, RolloutConfig, RolloutResult};
use super::driver::{End, RolloutDriver};
use super::host::{Host, Parts};
use super::log::Log;
use super::setup::Setup;
use crate::terms::StopReason;
use crate::trajectory::{Event, QuestionEnded, RolloutEnded};

impl Host {
    /// Runs a rollout to its end. Failures are in the result too.
    ///
    /// Dropping the future ends the rollout at once and removes what it made.
    pub async fn run(&self, config: RolloutConfig, control: &Control) -> RolloutResult {
        self.parts.run(&config, control).await
    }

    /// Begins a rollout that can take further questions, with the question of its configuration. `control` can stop the setup.
    ///
    /// # Errors
    /// The result of a rollout that could not be set up, or was stopped before its first turn.
    pub async fn begin<'a>(
        &'a self,
        config: &'a RolloutConfig,
        control: &Control,
    ) -> Result<Rollout<'a>, Box<RolloutResult>> {
        self.parts.begin(config, control).await
    }
}

impl Parts {
    async fn run(&self, config: &RolloutConfig, control: &Control) -> RolloutResult {
        match self.begin(config, control).await {
            Ok(mut rollout) => {
                rollout.last = rollout.driver.answer(control).await;
                rollout.end().await
            }
            Err(result) => *result,
        }
    }

    pub(super) async fn begin<'a>(
        &'a self,
        config: &'a RolloutConfig,
        control: &Control,
    ) -> Result<Rollout<'a>, Box<RolloutResult>> {
        let log = Log::new(&config.id, config.sinks.clone(), self.config.prices.clone());
        let log = log.keeping_reasoning(config.keep_reasoning);
        let log = Arc::new(match &config.recursion {
            Some(recursion) => log.below(recursion.parent_log(), recursion.origin().0),
            None => log,
        });
        let setup = Setup { host: self, runner: Arc::new(self.clone()), config, control, log: &log };
        match setup.prepare().await {
            Ok(driver) => Ok(Rollout { driver, last: End::from(StopReason::Stopped) }),
            Err(end) => {
                log.add(Event::RolloutStarted(setup.started(Vec::new(), None)));
                Err(Box::new(ended(config, &log, end)))
            }
        }
    }
}

impl Runner for Parts {
    fn run(self: Arc<Self>, config: RolloutConfig, control: Control) -> Running {
        Box::pin(async move { Self::run(&self, &config, &control).await })
    }
}

/// A rollout that takes one question after the other: its session, files, conversation, budget and trajectory go on.
///
/// The limits of turns and time hold for each question. Results count from the beginning of the rollout. Dropping the rollout, or
/// the future of a question, ends it at once and removes what it made.
#[derive(Debug)]
pub struct Rollout<'a> {
    pub(super) driver: RolloutDriver<'a>,
    /// The end of the last question.
    pub(super) last: End,
}

impl Rollout<'_> {
    /// The directory with the context, whose files the session may read.
    #[must_use]
    pub fn context_dir(&self) -> &Path {
        self.driver.workspace.fs_path()
    }

    /// Sets the most turns that the next question may take, in place of the limit of the configuration.
    pub fn set_max_turns(&mut self, turns: u32) {
        self.driver.max_turns = turns;
    }

    /// Asks another model from the next question on. The conversation stays as it is, and so do the models of sub-LLMs and
    /// children. `context_tokens` is the size of its context window, if it is known.
    ///
    /// # Errors
    /// A sentence that says why the model cannot serve the rollout, which keeps the model that it had.
    pub fn set_model(
        &mut self,
        model: Arc<dyn RootModel>,
        context_tokens: Option<u64>,
    ) -> Result<(), String> {
        self.driver.set_model(model, context_tokens)
    }

    /// Works on the first question until it is answered, or something ends it. `control` ends this question alone.
    pub async fn answer(&mut self, control: &Control) -> RolloutResult {
        let question = self.driver.config.question.clone();
        let end = self.driver.answer(control).await;
        self.question_ended(question, end)
    }

    /// Works on a further question in the same way.
    pub async fn ask(&mut self, question: &str, control: &Control) -> RolloutResult {
        let end = self.driver.ask_further(question, control).await;
        self.question_ended(question.to_owned(), end)
    }

    /// Ends the rollout. The result says how the last question ended.
    pub async fn end(self) -> RolloutResult {
        let Self { driver, last } = self;
        let (config, log) = (driver.config, driver.log.clone());
        driver.take_down().await;
        ended(config, &log, last)
    }

    fn question_ended(&mut self, question: String, end: End) -> RolloutResult {
        let log = &self.driver.log;
        if let Some(seen) = self.driver.registered.seen() {
            log.set_root_tools(&seen);
        }
        log.add(Event::QuestionEnded(QuestionEnded {
            stop_reason: end.reason,
            answer: end.answer.clone(),
            answer_ready: end.is_ready,
            error: end.error.clone(),
        }));
        self.last = end.clone();
        RolloutResult { question, ..result(self.driver.config, log, end) }
    }
}

/// Logs the end of a rollout.
fn ended(config: &RolloutConfig, log: &Log, end: End) -> RolloutResult {
    let result = result(config, log, end);
    log.add(Event::RolloutEnded(RolloutEnded {
        stop_reason: result.stop_reason,
        answer: result.answer.clone(),
        answer_ready: result.answer_ready,
        error: result.error.clone(),
        metrics: result.metrics.clone(),
    }));
    result
}

fn result(config: &RolloutConfig, log: &Log, end: End) -> RolloutResult {
    RolloutResult {
        id: config.id.clone(),
        question: config.question.clone(),
        answer: end.answer,
        answer_ready: end.is_ready,
        stop_reason: end.reason,
        error: end.error,
        refused_by_server: end.is_refused,
        metrics: log.metrics(),
        dir: end.dir,
    }
}
