//! The fields of responses.

use rlm_env::ReplLanguage;
use serde_json::{Value, json};

use super::super::check::{Check, fields, names, that};
use super::super::host::Worker;
use super::{Case, case, plain};

pub(super) const SECTION: &str = "Responses";

const FIELDS: [&str; 15] = [
    "status",
    "stdout",
    "stderr",
    "result",
    "execution_count",
    "seq",
    "answer",
    "outcome",
    "state",
    "execution_time",
    "exit_code",
    "exception",
    "truncated",
    "hint",
    "protocol",
];

pub(super) const CASES: &[Case] = &[
    plain("responses/all-fields-always", "All fields, always:", all_fields),
    case("responses/types", "what the call printed", types),
    case("responses/status", "`\"ok\"` if `outcome` is `\"ok\"`, otherwise `\"error\"`", status),
    case("responses/execution-count", "calls executed so far, including this one", execution_count),
    case("responses/answer", "the answer after this call", answer),
    case("responses/execution-time", "wall clock", execution_time),
    case("responses/state-is-kept", "what is left of the session", state_is_kept),
    case("responses/an-interpreter-that-ends", "how the call ended", interpreter_ends),
    case(
        "responses/bash-exit-code",
        "bash: status of the last command, or of the shell if it ended (128 + N for signal N)",
        exit_code,
    )
    .only(ReplLanguage::Bash),
    case(
        "responses/bash-is-one-stream",
        "for bash, everything that a person would see at the terminal",
        one_stream,
    )
    .only(ReplLanguage::Bash),
    case(
        "responses/python-result",
        "Python: the repr of the last expression's value, or the traceback",
        result,
    )
    .only(ReplLanguage::Python),
    case("responses/python-exception", "Python: what the cell raised", exception).only(ReplLanguage::Python),
    case("responses/python-two-streams", "what the call printed", two_streams).only(ReplLanguage::Python),
];

fn all_fields(worker: &mut Worker<'_>) -> Check {
    for request in
        [&b"{\"code\": \"\", \"seq\": 1}"[..], b"{\"op\": \"info\"}", b"{\"op\": \"reset\"}", b"{}", b"no"]
    {
        let response = worker.send_for_response(request)?;
        names(
            &format!("fields of the response to {}", String::from_utf8_lossy(request)),
            &FIELDS,
            &response,
        )?;
        fields(&json!({"protocol": 1}), &response)?;
    }
    Ok(())
}

fn is_well_typed(response: &Value) -> bool {
    let is_text = |name: &str| response[name].is_string();
    let is_null_or = |name: &str, is: fn(&Value) -> bool| response[name].is_null() || is(&response[name]);
    let one_of =
        |name: &str, names: &[&str]| response[name].as_str().is_some_and(|text| names.contains(&text));
    is_text("stdout")
        && is_text("stderr")
        && is_null_or("result", Value::is_string)
        && response["execution_count"].is_u64()
        && response["seq"].is_i64()
        && response["answer"]["ready"].is_boolean()
        && response["answer"]["content"].is_string()
        && response["answer"].as_object().is_some_and(|answer| answer.len() == 2)
        && one_of("outcome", &["ok", "error", "timed_out", "interrupted", "exited", "crashed"])
        && one_of("state", &["kept", "restored", "reset"])
        && response["execution_time"].as_f64().is_some_and(|seconds| seconds >= 0.0)
        && is_null_or("exit_code", Value::is_i64)
        && is_null_or("exception", Value::is_object)
        && is_null_or("truncated", |bytes| {
            ["stdout", "stderr", "result"].iter().all(|name| bytes[name].is_u64())
        })
        && is_null_or("hint", Value::is_string)
}

fn types(worker: &mut Worker<'_>) -> Check {
    let code = worker.code;
    let calls = [
        (code.print("on"), json!({})),
        (code.prints_much.to_owned(), json!({"max_output_bytes": 1000})),
        (code.answers.to_owned(), json!({})),
        (code.sleeps.to_owned(), json!({"timeout": 0.1})),
        (code.ends_its_interpreter.to_owned(), json!({})),
    ];
    for (code, more) in calls {
        let response = worker.call_with(&code, more)?;
        that(is_well_typed(&response), "fields of the types in the table", &response)?;
    }
    Ok(())
}

fn status(worker: &mut Worker<'_>) -> Check {
    fields(&json!({"status": "ok", "outcome": "ok"}), &worker.call(&worker.code.print("on"))?)?;
    let stopped = worker.call_with(worker.code.sleeps, json!({"timeout": 0.1}))?;
    fields(&json!({"status": "error", "outcome": "timed_out"}), &stopped)?;
    fields(&json!({"status": "error", "outcome": "error"}), &worker.send_for_response(b"{}")?)
}

fn execution_count(worker: &mut Worker<'_>) -> Check {
    for count in 1..4 {
        fields(&json!({"execution_count": count}), &worker.call(&worker.code.print("on"))?)?;
        // Neither is a call.
        fields(&json!({"execution_count": count}), &worker.request(json!({"op": "info"}))?)?;
        worker.send_for_response(b"{}")?;
    }
    Ok(())
}

fn answer(worker: &mut Worker<'_>) -> Check {
    let empty = json!({"answer": {"ready": false, "content": ""}});
    let set = json!({"answer": {"ready": true, "content": "forty-two"}});
    fields(&empty, &worker.call(&worker.code.print("on"))?)?;
    fields(&set, &worker.call(worker.code.answers)?)?;
    fields(&set, &worker.call(&worker.code.print("on"))?)
}

fn execution_time(worker: &mut Worker<'_>) -> Check {
    let response = worker.call(worker.code.sleeps_a_second)?;
    let seconds = response["execution_time"].as_f64().unwrap_or_default();
    that((1.0..60.0).contains(&seconds), "a second or little more", seconds)
}

fn state_is_kept(worker: &mut Worker<'_>) -> Check {
    fields(&json!({"outcome": "ok", "state": "kept"}), &worker.call(worker.code.keeps)?)?;
    fields(&json!({"stdout": "[value]", "state": "kept"}), &worker.call(worker.code.shows_kept)?)
}

fn interpreter_ends(worker: &mut Worker<'_>) -> Check {
    let expected = match worker.code.language {
        ReplLanguage::Bash => json!({"status": "error", "outcome": "exited", "exit_code": 3}),
        ReplLanguage::Python => json!({"status": "error", "outcome": "crashed", "state": "reset"}),
    };
    let response = worker.call(worker.code.ends_its_interpreter)?;
    fields(&expected, &response)?;
    that(response["hint"].is_string(), "a hint that says what happened", &response)?;
    worker.still_works()
}

fn exit_code(worker: &mut Worker<'_>) -> Check {
    for (code, expected) in [(":", 0), ("(exit 7)", 7), ("kill -9 $BASHPID & wait $!", 137)] {
        fields(&json!({"outcome": "ok", "state": "kept", "exit_code": expected}), &worker.call(code)?)?;
    }
    fields(&json!({"outcome": "exited", "exit_code": 137}), &worker.call("kill -9 $$")?)
}

fn one_stream(worker: &mut Worker<'_>) -> Check {
    let response = worker.call("echo out; echo err >&2; echo out")?;
    let expected = json!({"stdout": "out\nerr\nout\n", "stderr": "", "result": null, "exception": null});
    fields(&expected, &response)
}

fn result(worker: &mut Worker<'_>) -> Check {
    fields(&json!({"result": "[1, 'two']", "stdout": "", "exit_code": null}), &worker.call("[1, 'two']")?)?;
    fields(&json!({"result": null}), &worker.call("x = 1")?)?;
    fields(&json!({"result": null}), &worker.call("None")?)
}

fn exception(worker: &mut Worker<'_>) -> Check {
    let response = worker.call("raise ValueError('seven')")?;
    let exception = json!({"type": "ValueError", "message": "seven"});
    fields(&json!({"outcome": "error", "state": "kept", "exception": exception}), &response)?;
    let traceback = response["result"].as_str().unwrap_or_default();
    let is_traceback =
        traceback.starts_with("Traceback") && traceback.trim_end().ends_with("ValueError: seven");
    that(is_traceback, "a traceback in `result`", &response)?;
    fields(&json!({"outcome": "ok", "exception": null}), &worker.call("1")?)
}

fn two_streams(worker: &mut Worker<'_>) -> Check {
    let response = worker.call("import sys\nprint('out')\nprint('err', file=sys.stderr)")?;
    fields(&json!({"stdout": "out\n", "stderr": "err\n"}), &response)
}
