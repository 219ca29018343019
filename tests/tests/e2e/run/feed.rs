//! `--feed`: attempts that another program gives while others run, and `--ledger`, which that program keeps.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::{Value, json};

use super::{answering, asking, shown, start, text};

fn feeding(place: &Place, model: &ScriptedModel, args: &[&str]) -> std::process::Command {
    let mut command = asking(place, model, &[&["run", "--events", "--feed"], args].concat());
    command.stdin(Stdio::piped());
    command
}

#[test]
fn attempts_run_as_they_come_and_the_command_ends_with_them() {
    let (place, model) = start([answering("42")]);
    let mut child = feeding(&place, &model, &[]).spawn().unwrap();
    let (mut feed, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let lines = output.lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut results = lines.filter(|line| line["event"] == "result").map(|line| line["result"].clone());
    for attempt in [1, 2] {
        // The second one comes when the first has its result.
        let line = json!({"question": "Why?", "id": "q", "attempt": attempt, "context_text": "text", "expected": "42"});
        writeln!(feed, "{line}").unwrap();
        let result = results.next().unwrap();
        assert_eq!(
            (&result["id"], &result["answer"], &result["attempt"], &result["score"]),
            (&json!(format!("q-{attempt}")), &json!("42"), &json!(attempt), &json!(1.0))
        );
    }
    drop(feed);
    assert_eq!((results.next(), child.wait().unwrap().code()), (None, Some(0)));
}

#[test]
fn a_line_that_is_no_attempt_ends_the_command_with_its_place() {
    let (place, model) = start([answering("1")]);
    let not_a_number = "standard input:2: `attempt` must be a number from 1";
    let first = r#"{"question": "a"}"#;
    for (line, expected) in [
        (r#"{"question": "b", "attempt": 0}"#, not_a_number),
        ("{}", "standard input:2: `question` is missing"),
    ] {
        let mut child = feeding(&place, &model, &[]).stderr(Stdio::piped()).spawn().unwrap();
        write!(child.stdin.take().unwrap(), "{first}\n{line}\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let (_, words, status) = shown(&output);
        assert_eq!((words, status), (format!("rlm: {expected}\n").as_str(), Some(2)));
    }
}

/// Feeds one attempt to a command whose ledger follows these rules. Returns its result and what the ledger was told.
fn with_ledger(
    place: &Place,
    model: &ScriptedModel,
    rules: impl IntoIterator<Item = Rule>,
) -> (Value, Vec<Value>) {
    let ledger = ScriptedModel::start(rules);
    let url = format!("{}/chat/completions", ledger.base_url());
    let mut command = feeding(place, model, &["--ledger", &url]);
    let mut child = command.env("RLM_LEDGER_SECRET", "s3cret").spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), r#"{{"question": "Why?", "id": "q"}}"#).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let last = text(&output.stdout).lines().last().unwrap();
    let requests = ledger.finish();
    assert!(requests.iter().all(|request| request.header("authorization") == "Bearer s3cret"));
    let result = serde_json::from_str::<Value>(last).unwrap()["result"].clone();
    (result, requests.into_iter().map(|request| request.body).collect())
}

#[test]
fn each_request_is_reserved_in_the_ledger_of_the_other_program_and_settled() {
    let (place, model) = start([answering("42").usage(90, 7)]);
    let (result, told) = with_ledger(&place, &model, [Rule::any().body(r#"{"completion_tokens": 300}"#)]);
    assert_eq!(result["answer"], "42");
    // Before it begins, it asks whether there is room for a turn.
    let calls =
        |told: &Value| (told["reserve"]["rollout"].as_str().is_some(), told["settle"]["calls"].as_u64());
    let mut sums: Vec<_> = told.iter().map(calls).collect();
    sums.sort_unstable();
    assert_eq!(sums, [(false, Some(0)), (false, Some(1)), (true, None), (true, None)]);
    let settled = told.iter().find(|told| told["settle"]["calls"] == 1).unwrap();
    let id = &settled["settle"]["id"];
    assert_eq!(
        settled["settle"],
        json!({"id": id, "calls": 1, "prompt_tokens": 90, "completion_tokens": 7, "cost_usd": null})
    );
    let reserved = &told.iter().find(|told| &told["reserve"]["id"] == id).unwrap()["reserve"];
    assert_eq!((&reserved["rollout"], &reserved["model"]), (&json!("q-1"), &json!("root")));
    assert!(reserved["completion_tokens"].as_u64() > Some(300), "{reserved}");
    // What the ledger allows is the bound of the completion.
    let requests = model.finish();
    assert_eq!(requests[0].body["max_tokens"], 300);
}

#[test]
fn without_room_in_the_other_ledger_nothing_is_sent() {
    let (place, model) = start([answering("42")]);
    let full = Rule::any().status(402, "").body(r#"{"error": "no room for it"}"#);
    let (result, _) = with_ledger(&place, &model, [full]);
    assert_eq!((&result["stop_reason"], &result["error"]), (&json!("stopped"), &json!("no room for it")));
    let (result, _) = with_ledger(&place, &model, [Rule::any().hang_up()]);
    let error = result["error"].as_str().unwrap();
    assert!(error.starts_with("the ledger of all rollouts cannot be asked: "), "{error}");
    assert!(model.finish().is_empty());
}
