//! Short facts on the parts of a rollout, the same in the terminal and on a page.

use rlm_core::protocol::{Outcome, State};
use rlm_core::text::{counted, duration, grouped, size};
use rlm_env::rollout::Callbacks;
use rlm_env::trajectory::MessageKind;

use super::rollouts::{Batch, Call, End, ModelCall, Output, Prompt, Rollout, Start, Step, Turn};

/// The words before the error of a request to the model that is retried.
pub(super) const RETRIED: &str = "the request to the model failed, and is sent again";

/// Reports whether the model gave a final answer.
pub(super) fn has_answer(rollout: &Rollout) -> bool {
    rollout.end.as_ref().is_some_and(|end| end.is_ready)
}

/// Why the rollout has ended.
pub(super) fn state(rollout: &Rollout) -> &str {
    rollout.end.as_ref().map_or("no end", |end| &end.stop_reason)
}

/// The number of turns.
pub(super) fn turns(rollout: &Rollout) -> usize {
    rollout.turns.iter().filter(|turn| turn.number > 0).count()
}

pub(super) fn of_rollout(rollout: &Rollout) -> Vec<String> {
    let mut facts = vec![
        state(rollout).to_owned(),
        counted(turns(rollout) as u64, "turn"),
        duration(rollout.seconds()),
        rollout.usage.tokens(),
    ];
    facts.extend(rollout.usage.cost());
    facts.extend(rollout.score.map(|score| format!("score {score}")));
    facts.extend(rollout.unscored.as_ref().map(|error| format!("not scored: {error}")));
    facts
}

pub(super) fn of_start(start: &Start) -> Vec<String> {
    let mut facts = vec![start.language.clone(), start.model.clone()];
    if start.callbacks == Callbacks::Intercept {
        facts.insert(1, "calls intercepted".to_owned());
    }
    facts.extend(start.sub_model.as_ref().map(|model| format!("sub-LLM {model}")));
    facts.push(format!("{}, {}", counted(start.context_files, "file"), size(start.context_bytes)));
    for (kind, names) in [("tools", &start.tools), ("root tools", &start.root_tools)] {
        if !names.is_empty() {
            facts.push(format!("{kind} {}", names.join(", ")));
        }
    }
    facts
}

/// The turn's heading, then facts on its requests to the root model.
pub(super) fn of_turn(turn: &Turn) -> Vec<String> {
    let heading = match turn.number {
        0 => "before the first turn".to_owned(),
        number => format!("turn {number}"),
    };
    let calls = turn.steps.iter().filter_map(|step| match step {
        Step::Model(call) => Some(of_model_call(call)),
        _ => None,
    });
    std::iter::once(heading).chain(calls.flatten()).collect()
}

fn of_model_call(call: &ModelCall) -> Vec<String> {
    let mut facts = Vec::new();
    if call.is_summary {
        facts.push("summary".to_owned());
    }
    facts.push(duration(call.seconds));
    facts.push(call.usage.tokens());
    facts.extend(call.usage.cost());
    if call.attempts > 1 {
        facts.push(counted(call.attempts.into(), "attempt"));
    }
    if call.error.is_some() {
        facts.push("failed".to_owned());
    }
    facts.extend(call.finish_reason.as_ref().map(|reason| format!("ended by {reason}")));
    facts
}

/// A sentence on the parts of the conversation that were not sent as they came.
pub(super) fn of_adapted(sentence: &str) -> String {
    format!("not sent as it came: {sentence}")
}

/// The heading of a message.
pub(super) fn of_message(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::System => "system prompt",
        MessageKind::Question => "question",
        MessageKind::Reply => "reply",
        MessageKind::Output => "output",
        MessageKind::Notice => "notice",
        MessageKind::Summary => "summary of earlier turns",
        _ => "message",
    }
}

pub(super) fn of_call(call: &Call) -> Vec<String> {
    let mut facts = vec![call.tool.clone().unwrap_or_else(|| "call".to_owned())];
    match call.seconds {
        Some(time) if call.has_begun => facts.push(duration(time)),
        Some(_) => facts.push("could not be read".to_owned()),
        None if call.has_begun => facts.push("no end".to_owned()),
        None => facts.push("not run".to_owned()),
    }
    facts
}

/// The end of a REPL call, if it was not an ordinary one.
pub(super) fn of_output(output: &Output) -> Vec<String> {
    let mut facts = Vec::new();
    let outcome = match output.response.outcome {
        Outcome::Ok => None,
        Outcome::Error => Some("error"),
        Outcome::TimedOut => Some("timed out"),
        Outcome::Interrupted => Some("interrupted"),
        Outcome::Exited => Some("the shell ended"),
        Outcome::Crashed => Some("the interpreter died"),
    };
    facts.extend(outcome.map(str::to_owned));
    facts.extend(
        output.response.exit_code.filter(|status| *status != 0).map(|status| format!("exit status {status}")),
    );
    match output.response.state {
        State::Kept => {}
        State::Restored => facts.push("state restored".to_owned()),
        State::Reset => facts.push("state lost".to_owned()),
    }
    let dropped_bytes = output.response.dropped_bytes();
    if dropped_bytes > 0 {
        facts.push(format!("{} of output dropped", size(dropped_bytes)));
    }
    facts
}

pub(super) fn of_batch(batch: &Batch) -> Vec<String> {
    let mut facts = vec!["llm_batch".to_owned(), counted(batch.prompts.len() as u64, "prompt")];
    let failed = batch.failed();
    if failed > 0 {
        facts.push(format!("{} failed", grouped(failed as u64)));
    }
    facts.push(duration(batch.seconds()));
    facts.push(batch.usage.tokens());
    facts.extend(batch.usage.cost());
    facts
}

pub(super) fn of_prompt(prompt: &Prompt) -> Vec<String> {
    let mut facts = vec![prompt.model.clone(), duration(prompt.seconds), prompt.usage.tokens()];
    if prompt.requests > 1 {
        facts.push(counted(prompt.requests.into(), "request"));
    }
    if prompt.attempts > prompt.requests {
        facts.push(counted(prompt.attempts.into(), "attempt"));
    }
    if prompt.error.is_some() {
        facts.push("failed".to_owned());
    }
    facts
}

pub(super) fn of_end(end: &End) -> Vec<String> {
    let answer = match (&end.answer, end.is_ready) {
        (None, _) => "no answer",
        (Some(_), true) => "the answer is final",
        (Some(_), false) => "the answer is not final",
    };
    vec![end.stop_reason.clone(), answer.to_owned()]
}
