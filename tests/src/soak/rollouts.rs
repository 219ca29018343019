//! Rollouts of random replies, with root tools, sub-LLMs, limits, dying workers, and hosts that cancel them.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use rlm_env::root_tool::{Tool, Value};
use rlm_env::trajectory::{self, Event, Line, Writer};
use rlm_env::{Control, Host, ReplLanguage, RolloutConfig, RolloutResult, StopReason};
use serde_json::json;

use super::defect::{Class, Defect};
use super::frame::Language;
use crate::process::{marked_env, marked_processes};
use crate::scripted_model::{Rule, ScriptedModel, calling};

/// The time in which every rollout here must have ended, however busy the machine is.
const LONGEST: Duration = Duration::from_secs(90);

/// Time limit of a call.
const CALL_TIMEOUT: Duration = Duration::from_millis(700);

/// A rollout to run, and what may come of it.
#[derive(Debug)]
struct Script {
    language: ReplLanguage,
    turns: Vec<Turn>,
    max_turns: u32,
    max_restarts: u32,
    timeout: Option<Duration>,
    disturbance: Option<Disturbance>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Sets the content of the answer to its turn's number.
    Draft,
    /// Sets the content, and declares the answer final.
    Final,
    /// Asks two sub-LLMs.
    Batch,
    /// Calls a root tool.
    Tool,
    /// Kills its worker.
    Die,
    /// Runs until its time limit.
    Hang,
    /// Ends its interpreter.
    Exit,
    Flood,
    /// Says something and calls nothing.
    Talk,
    /// Makes a call that is not JSON.
    Babble,
    /// The model's server fails once.
    Stumble,
}

/// A disturbance of a rollout from outside, after some milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    Stop(u64),
    Cancel(u64),
    KillWorker(u64),
}

/// Rollouts to run.
#[derive(Debug)]
pub(crate) struct Rollouts<'a> {
    pub(crate) count: usize,
    pub(crate) seed: u64,
    /// Languages, one of which is drawn for each.
    pub(crate) languages: &'a [Language],
    /// True if they have time limits, and are ended from outside at random moments.
    pub(crate) disturbs: bool,
    /// The Python of Python sessions.
    pub(crate) python: &'a Path,
}

impl Rollouts<'_> {
    /// Runs them one after another, and passes on how each ended.
    pub(crate) fn run(&self, mut tell: impl FnMut(Result<StopReason, Defect>)) {
        let mut rng = Rng::with_seed(self.seed);
        for number in 0..self.count {
            let seed = rng.u64(..);
            let script = Script::draw(&mut Rng::with_seed(seed), self);
            let mark = format!("soak-rollout-{}-{number}", std::process::id());
            let ended = script.run(self.python, &mark).map(|result| result.stop_reason);
            tell(ended.map_err(|Defect { class, what }| {
                Defect::new(class, format!("seed {seed}, {script:?}: {what}"))
            }));
        }
    }
}

impl Script {
    fn draw(rng: &mut Rng, rollouts: &Rollouts<'_>) -> Self {
        const TURNS: [Turn; 17] = [
            Turn::Draft,
            Turn::Draft,
            Turn::Draft,
            Turn::Batch,
            Turn::Batch,
            Turn::Tool,
            Turn::Tool,
            Turn::Die,
            Turn::Hang,
            Turn::Exit,
            Turn::Flood,
            Turn::Talk,
            Turn::Babble,
            Turn::Stumble,
            Turn::Stumble,
            Turn::Final,
            Turn::Final,
        ];
        let delay = rng.u64(..1500);
        Self {
            language: match rollouts.languages[rng.usize(..rollouts.languages.len())] {
                Language::Bash => ReplLanguage::Bash,
                Language::Python => ReplLanguage::Python,
            },
            turns: (0..rng.usize(1..12)).map(|_| TURNS[rng.usize(..TURNS.len())]).collect(),
            max_turns: rng.u32(1..15),
            max_restarts: rng.u32(0..3),
            timeout: (rollouts.disturbs && rng.u32(..4) == 0)
                .then(|| Duration::from_millis(rng.u64(200..3000))),
            disturbance: match rng.u32(..10) {
                _ if !rollouts.disturbs => None,
                0 => Some(Disturbance::Stop(delay)),
                1 => Some(Disturbance::Cancel(delay)),
                2 => Some(Disturbance::KillWorker(delay)),
                _ => None,
            },
        }
    }

    fn run(&self, python: &Path, mark: &str) -> Result<RolloutResult, Defect> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| defect(&e))?;
        let dir = tempfile::tempdir().map_err(|error| defect(&error))?;
        let file = dir.path().join("trajectory.jsonl");
        let place = dir.path().join("rollouts");
        std::fs::create_dir(&place).map_err(|error| defect(&error))?;
        let model = ScriptedModel::start(self.rules());
        let result = runtime.block_on(async {
            let host = Host::start(model.host_config(&place)).await.map_err(|error| defect(&error))?;
            let control = Control::new();
            let config = self.config(python, mark, &file)?;
            let result = {
                let running = tokio::time::timeout(LONGEST, host.run(config, &control));
                tokio::pin!(running);
                tokio::select! {
                    result = &mut running => result,
                    () = self.disturb(&control, mark) => running.await,
                }
            };
            let result = result
                .map_err(|_| Defect::new(Class::Wedge, format!("the rollout goes on after {LONGEST:?}")))?;
            let left = marked_processes(mark);
            if !left.is_empty() {
                return Err(Defect::new(Class::LeftBehind, format!("processes after a rollout: {left:?}")));
            }
            host.close().await.map_err(|error| defect(&error))?;
            Ok(result)
        })?;
        let left = std::fs::read_dir(&place).map_err(|error| defect(&error))?.count();
        if left > 0 {
            return Err(Defect::new(Class::LeftBehind, format!("{left} directories after a rollout")));
        }
        self.check(&result)?;
        check_trajectory(&file, &result)?;
        Ok(result)
    }

    fn config(&self, python: &Path, mark: &str, file: &Path) -> Result<RolloutConfig, Defect> {
        let mut config = RolloutConfig::new("soak", "How many?");
        config.language = self.language;
        config.limits.max_turns = self.max_turns;
        config.limits.max_restarts = self.max_restarts;
        config.limits.timeout = self.timeout;
        config.limits.call_timeout = CALL_TIMEOUT;
        config.root_tools = vec![twice()?];
        config.env = marked_env(mark, python);
        config.sinks = vec![Arc::new(Writer::append(file).map_err(|error| defect(&error))?)];
        Ok(config)
    }

    /// The replies of the models, in order. When they are used up, the root model only talks.
    fn rules(&self) -> Vec<Rule> {
        let mut rules = vec![Rule::on("judge: ")];
        for (at, turn) in self.turns.iter().enumerate() {
            rules.push(match turn {
                Turn::Talk => Rule::any().reply("hm").once(),
                Turn::Stumble => Rule::any().status(500, "oops").once(),
                _ => Rule::any().message(self.call(*turn, at)).once(),
            });
        }
        rules.push(Rule::any().reply("hm"));
        rules
    }

    fn call(&self, turn: Turn, at: usize) -> serde_json::Value {
        let (bash, python) = match turn {
            Turn::Draft => (format!("RLM_CONTENT={at}"), format!("answer['content'] = '{at}'")),
            Turn::Final => (
                format!("RLM_CONTENT={at} RLM_READY=1"),
                format!("answer['content'] = '{at}'; answer['ready'] = True"),
            ),
            // What the models read must not contain the word by which sub-LLMs are told from the root model.
            Turn::Batch => (
                "llm_batch 'jud''ge: a' 'jud''ge: b' 2>&1 | wc -l".into(),
                "len(llm_batch(['jud' 'ge: a', 'jud' 'ge: b']))".into(),
            ),
            Turn::Tool => ("(sleep 600 &); twice 21".into(), "twice(21)".into()),
            Turn::Die => (
                "kill -9 $PPID; sleep 600".into(),
                "import os, time; os.kill(os.getppid(), 9); time.sleep(600)".into(),
            ),
            Turn::Hang => (
                "(setsid sleep 600 &); while :; do sleep 600; done".into(),
                "import time; time.sleep(600)".into(),
            ),
            Turn::Exit => ("exit 3".into(), "import os; os._exit(3)".into()),
            Turn::Flood => ("yes | head -c 3000000".into(), "print('y\\n' * 1500000)".into()),
            Turn::Talk | Turn::Babble | Turn::Stumble => (String::new(), String::new()),
        };
        let code = if self.language == ReplLanguage::Bash { bash } else { python };
        let mut message = calling(self.language.tool_name(), &code);
        if turn == Turn::Babble {
            message["tool_calls"][0]["function"]["arguments"] = "{\"code".into();
        }
        message
    }

    async fn disturb(&self, control: &Control, mark: &str) {
        let Some(disturbance) = self.disturbance else { return };
        let (Disturbance::Stop(delay) | Disturbance::Cancel(delay) | Disturbance::KillWorker(delay)) =
            disturbance;
        // The moment is drawn at random: there is no event to wait for.
        tokio::time::sleep(Duration::from_millis(delay)).await;
        match disturbance {
            Disturbance::Stop(_) => control.stop(),
            Disturbance::Cancel(_) => control.cancel(),
            Disturbance::KillWorker(_) => {
                let mut workers =
                    marked_processes(mark).into_iter().filter(|(_, name)| name.starts_with("rlm-worker"));
                if let Some((worker, _)) = workers.next_back() {
                    // The worker may just have ended.
                    let _gone = kill(worker, Signal::SIGKILL);
                }
            }
        }
    }

    /// Checks that the stop reason and the answer fit the script.
    fn check(&self, result: &RolloutResult) -> Result<(), Defect> {
        let wrong = |what: &str| Err(Defect::new(Class::Rollout, format!("{what}: {result:?}")));
        let has = |turn: Turn| self.turns.contains(&turn);
        let is_killed = matches!(self.disturbance, Some(Disturbance::KillWorker(_)));
        let deaths = self.turns.iter().filter(|turn| **turn == Turn::Die).count() + usize::from(is_killed);
        let is_possible = match result.stop_reason {
            StopReason::Answered => has(Turn::Final),
            StopReason::MaxTurns => result.metrics.root_llm_turns == u64::from(self.max_turns),
            StopReason::TimedOut => self.timeout.is_some(),
            StopReason::NoToolCall => result.metrics.root_llm_turns >= 3,
            StopReason::Stopped => matches!(self.disturbance, Some(Disturbance::Stop(_))),
            StopReason::Cancelled => matches!(self.disturbance, Some(Disturbance::Cancel(_))),
            StopReason::WorkerFailed => deaths > self.max_restarts as usize,
            StopReason::SetupFailed => is_killed,
            // The server's faults pass, and there is neither a budget nor a context window.
            _ => false,
        };
        if !is_possible {
            return wrong("the stop reason does not fit");
        }
        if result.answer_ready != (result.stop_reason == StopReason::Answered) {
            return wrong("answer_ready does not fit");
        }
        let drafts =
            self.turns.iter().enumerate().filter(|(_, turn)| matches!(turn, Turn::Draft | Turn::Final));
        let mut drafts = drafts.map(|(at, turn)| (at.to_string(), *turn));
        let is_drafted = match (&result.answer, result.stop_reason) {
            (Some(answer), StopReason::Answered) => {
                // The first final answer ends the rollout, unless a dying worker took it along.
                drafts.any(|(draft, turn)| draft == *answer && turn == Turn::Final)
            }
            // A text of the model is the answer if there is no other.
            (Some(answer), _) if answer == "hm" => true,
            (Some(answer), _) => drafts.any(|(draft, _)| draft == *answer),
            (None, _) => true,
        };
        if is_drafted { Ok(()) } else { wrong("nothing gave this answer") }
    }
}

fn twice() -> Result<Tool, Defect> {
    let parameters = json!({"type": "object", "properties": {"number": {}}, "required": ["number"]});
    Tool::from_fn("twice", "Returns a number twice.", parameters, |call| match call.argument(0, "number") {
        Some(Value::Str(text)) => Ok(format!("{text}{text}")),
        _ => Ok("42".to_owned()),
    })
    .map_err(|error| defect(&error))
}

/// Checks that a trajectory can be read, is whole, and says what the result says.
fn check_trajectory(file: &Path, result: &RolloutResult) -> Result<(), Defect> {
    let wrong = |what: String| Err(Defect::new(Class::Rollout, format!("the trajectory {what}: {result:?}")));
    let lines = trajectory::read(BufReader::new(File::open(file).map_err(|error| defect(&error))?));
    let mut events = Vec::new();
    for line in lines {
        match line {
            Ok(Line::Entry(entry)) => events.push(entry.event),
            other => return wrong(format!("has {other:?}")),
        }
    }
    let Some(Event::RolloutEnded(end)) = events.last() else { return wrong("has no end".to_owned()) };
    if result.stop_reason != StopReason::SetupFailed
        && !matches!(events.first(), Some(Event::RolloutStarted(_)))
    {
        return wrong("has no start".to_owned());
    }
    let said = (end.stop_reason, &end.answer, end.answer_ready, &end.error, &end.metrics);
    if said != (result.stop_reason, &result.answer, result.answer_ready, &result.error, &result.metrics) {
        return wrong(format!("ends with {end:?}"));
    }
    let mut open = HashSet::new();
    let (mut calls, mut replies, mut sub_calls) = (0, 0, 0);
    for event in &events {
        match event {
            Event::CallStarted(call) => {
                calls += u64::from(call.code.is_some());
                open.insert((call.turn, call.call_id.clone()));
            }
            Event::CallEnded(call) => {
                open.remove(&(call.turn, call.call_id.clone()));
            }
            Event::ModelCall(call) => replies += u64::from(call.error.is_none()),
            // A request that was not sent any more does not count.
            Event::SubCall(call) => sub_calls += u64::from(call.attempts > 0),
            _ => {}
        }
    }
    if !open.is_empty() {
        return wrong(format!("has no end of {open:?}"));
    }
    let counted =
        (result.metrics.repl_call_count, result.metrics.root_llm_turns, result.metrics.sub_llm_call_count);
    if counted != (calls, replies, sub_calls) {
        return wrong(format!("has {calls} calls, {replies} replies and {sub_calls} sub-calls"));
    }
    Ok(())
}

fn defect(error: &dyn std::error::Error) -> Defect {
    Defect::new(Class::Rollout, error.to_string())
}
