//! The lines of `rlm_history.jsonl`.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rlm_core::protocol::Response;
use serde_json::{Value, json};

use super::super::check::{Check, fault, fields, same, that};
use super::super::host::{Stand, Worker, document, or_fault};
use super::{Case, case, case_on_stand};

pub(super) const SECTION: &str = "The history";

pub(super) const CASES: &[Case] = &[
    case(
        "history/a-line-for-each",
        "a line for each call, `reset`, `set`, `save` and `load`, appended",
        line_for_each,
    )
    .of("The control directory"),
    case("history/as-in-the-response", "as in the response", as_in_the_response),
    case(
        "history/digest",
        "The digest is the first 16 hexadecimal digits of the SHA-256 of `stdout`, `stderr` and, if it is not null, `result`",
        digest,
    ),
    case("history/variables", "in the order of their names", variables),
    case_on_stand("history/session", "in the first line of each worker", session),
    case("history/started-at", "seconds since the epoch", started_at),
];

/// The lines of the history, which must be this many.
pub(super) fn lines(stand: &Stand<'_>, count: usize) -> Check<Vec<Value>> {
    let text = or_fault("rlm_history.jsonl", fs::read_to_string(stand.control("rlm_history.jsonl")))?;
    that(text.ends_with('\n'), "whole lines", &text)?;
    let lines = text.lines().map(|line| document(line.as_bytes())).collect::<Check<Vec<_>>>()?;
    same("lines of the history", &count, &lines.len())?;
    Ok(lines)
}

fn line_for_each(worker: &mut Worker<'_>) -> Check {
    worker.still_works()?;
    worker.request(json!({"op": "set", "variables": {"a": 1}}))?;
    worker.request(json!({"op": "info"}))?;
    worker.send_for_response(b"{}")?;
    worker.request(json!({"op": "reset"}))?;
    let seen: Vec<Value> =
        lines(worker.stand, 3)?.iter().map(|line| json!([line["op"], line["code"]])).collect();
    same(
        "`op` and `code` of each line",
        &vec![json!(["execute", worker.code.print("on")]), json!(["set", ""]), json!(["reset", ""])],
        &seen,
    )
}

fn as_in_the_response(worker: &mut Worker<'_>) -> Check {
    let stopped = worker.call_with(worker.code.sleeps, json!({"timeout": 0.1}))?;
    let ended = worker.call(worker.code.ends_its_interpreter)?;
    let lines = lines(worker.stand, 2)?;
    for (response, line) in [stopped, ended].iter().zip(&lines) {
        for name in ["seq", "outcome", "state", "exit_code", "execution_time"] {
            same(name, &response[name], &line[name])?;
        }
    }
    Ok(())
}

fn digest(worker: &mut Worker<'_>) -> Check {
    let responses = [
        worker.call(&worker.code.print("on"))?,
        worker.call("1")?,
        worker.call_with(worker.code.prints_much, json!({"max_output_bytes": 1000}))?,
    ];
    for (response, line) in responses.iter().zip(&lines(worker.stand, 3)?) {
        let parsed: Response = serde_json::from_value(response.clone())
            .or_else(|error| fault("a response", format_args!("{error} in {response}")))?;
        let expected =
            json!({"output_digest": parsed.output_digest(), "output_bytes": parsed.output_bytes()});
        fields(&expected, line)?;
        let has_result = (!response["result"].is_null()).then(|| json!(true));
        same("has_result", &has_result.as_ref(), &line.get("has_result"))?;
    }
    Ok(())
}

fn variables(worker: &mut Worker<'_>) -> Check {
    worker.request(json!({"op": "set", "variables": {"b": [1, "x"], "a": {"k": "v"}}}))?;
    let large = json!({"large": "x".repeat((1 << 20) - 2), "small": 1});
    fields(&json!({"outcome": "ok"}), &worker.request(json!({"op": "set", "variables": large}))?)?;
    let lines = lines(worker.stand, 2)?;
    fields(&json!({"variables": {"a": {"k": "v"}, "b": [1, "x"]}}), &lines[0])?;
    that(lines[0].get("variables_omitted").is_none(), "no `variables_omitted` if all fit", &lines[0])?;
    same("variables_omitted", &json!(["small"]), &lines[1]["variables_omitted"])
}

fn session(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    worker.still_works()?;
    worker.still_works()?;
    let info = super::operations::info(&mut worker)?;
    worker.send(br#"{"shutdown": true}"#)?;
    worker.must_end(0)?;
    drop(worker);
    stand.start()?.still_works()?;
    let lines = lines(stand, 3)?;
    same(
        "lines with `session`",
        &vec![true, false, true],
        &lines.iter().map(|line| line.get("session").is_some()).collect(),
    )?;
    let expected = json!({"language": info["language"], "version": info["version"], "root_tools": []});
    fields(&expected, &lines[0]["session"])
}

fn started_at(worker: &mut Worker<'_>) -> Check {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let before = now();
    worker.still_works()?;
    let after = now();
    let line = lines(worker.stand, 1)?.swap_remove(0);
    let started = line["started_at"].as_f64().unwrap_or_default();
    // The clock may have been set by a little while the call ran.
    that(
        (before - 1.0..after + 1.0).contains(&started),
        format_args!("a time from {before} to {after}"),
        started,
    )
}
