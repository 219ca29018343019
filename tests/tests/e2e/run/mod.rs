//! `rlm run`, `rlm demo` and `rlm config`: command lines, with a scripted model.

mod answers;
mod batches;
mod chat;
mod contexts;
mod demo;
mod doctor;
mod events;
mod feed;
mod forked;
mod images;
mod progress;
mod reasoning;
mod records;
mod recursion;
mod refusals;
mod schemas;
mod scores;
mod settings;
mod signals;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Output};

use rlm_env::{RolloutResult, StopReason};
use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel, calling};

/// A place, and a model that follows these rules.
fn start(rules: impl IntoIterator<Item = Rule>) -> (Place, ScriptedModel) {
    (Place::new(), ScriptedModel::start(rules))
}

/// `rlm` with a model, and without files if no context is given.
fn asking(place: &Place, model: &ScriptedModel, args: &[&str]) -> Command {
    let mut command = place.rlm(args);
    if args.first() == Some(&"run") && !args.contains(&"--context") {
        command.args(["--context", ""]);
    }
    command.env("RLM_BASE_URL", model.base_url()).env("RLM_MODEL", "root");
    command
}

/// Runs [`asking`] to its end.
fn ask(place: &Place, model: &ScriptedModel, args: &[&str]) -> Output {
    asking(place, model, args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn shown(output: &Output) -> (&str, &str, Option<i32>) {
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

fn bash(code: &str) -> Rule {
    Rule::any().calls("call_bash_repl", code)
}

fn answering(answer: &str) -> Rule {
    bash(&format!("RLM_CONTENT={answer} RLM_READY=1"))
}

/// Starts the command with a terminal as its standard error, and returns the terminal's other end.
fn at_terminal(mut command: Command) -> (Child, File) {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let child = command.stderr(terminal.slave).env("TERM", "xterm").spawn().unwrap();
    (child, File::from(terminal.master))
}

/// Reads a terminal until it shows a text (true) or ends (false).
fn read_until(terminal: &mut dyn Read, what: &str) -> (String, bool) {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match terminal.read(&mut buffer) {
            // Reading a terminal fails once nobody has it open any more.
            Ok(0) | Err(_) => return (String::from_utf8_lossy(&seen).into_owned(), false),
            Ok(count) => seen.extend_from_slice(&buffer[..count]),
        }
        if !what.is_empty() && String::from_utf8_lossy(&seen).contains(what) {
            return (String::from_utf8_lossy(&seen).into_owned(), true);
        }
    }
}

/// The results on these lines, by id.
fn results(lines: &str) -> BTreeMap<String, (StopReason, Option<String>)> {
    let all: Vec<RolloutResult> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let by_id: BTreeMap<_, _> =
        all.iter().map(|result| (result.id.clone(), (result.stop_reason, result.answer.clone()))).collect();
    assert_eq!(by_id.len(), all.len(), "an id is there twice");
    by_id
}
