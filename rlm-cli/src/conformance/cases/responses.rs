//! The fields of responses.

use rlm_env::ReplLanguage;
use serde_json::{Value, json};

use super::super::check::{Check, fields, names, that};
use super::super::host::Stand;
use super::{Case, Needs, case, plain};

const SECTION: &str = "Responses";

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
    plain("responses/all-fields-always", SECTION, "All fields, always:", all_fields),
    case("responses/types", SECTION, "what the call printed", types),
    case("responses/status", SECTION, "`\"ok\"` if `outcome` is `\"ok\"`, otherwise `\"error\"`", status),
    case("responses/execution-count", SECTION, "calls executed so far, including this one", execution_count),
    case("responses/answer", SECTION, "the answer after this call", answer),
    case("responses/execution-time", SECTION, "wall clock", execution_time),
    case("responses/state-is-kept", SECTION, "what is left of the session", state_is_kept),
    case("responses/an-interpreter-that-ends", SECTION, "how the call ended", interpreter_ends),
    Case {
        id: "responses/bash-exit-code",
        section: SECTION,
        promise: "bash: status of the last command, or of the shell if it ended (128 + N for signal N)",
        needs: Needs::Only(ReplLanguage::Bash),
        run: exit_code,
    },
    Case {
        id: "responses/bash-is-one-stream",
        section: SECTION,
        promise: "for bash, everything that a person would see at the terminal",
        needs: Needs::Only(ReplLanguage::Bash),
        run: one_stream,
    },
    Case {
        id: "responses/python-result",
        section: SECTION,
        promise: "Python: the repr of the last expression's value, or the traceback",
        needs: Needs::Only(ReplLanguage::Python),
        run: result,
    },
    Case {
        id: "responses/python-exception",
        section: SECTION,
        promise: "Python: what the cell raised",
        needs: Needs::Only(ReplLanguage::Python),
        run: exception,
    },
    Case {
        id: "responses/python-two-streams",
        section: SECTION,
        promise: "what the call printed",
        needs: Needs::Only(ReplLanguage::Python),
        run: two_streams,
    },
];

fn all_fields(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
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

fn types(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let code = stand.code;
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

fn status(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    fields(&json!({"status": "ok", "outcome": "ok"}), &worker.call(&stand.code.print("on"))?)?;
    let stopped = worker.call_with(stand.code.sleeps, json!({"timeout": 0.1}))?;
    fields(&json!({"status": "error", "outcome": "timed_out"}), &stopped)?;
    fields(&json!({"status": "error", "outcome": "error"}), &worker.send_for_response(b"{}")?)
}

fn execution_count(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    for count in 1..4 {
        fields(&json!({"execution_count": count}), &worker.call(&stand.code.print("on"))?)?;
        // Neither is a call.
        fields(&json!({"execution_count": count}), &worker.request(json!({"op": "info"}))?)?;
        worker.send_for_response(b"{}")?;
    }
    Ok(())
}

fn answer(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let empty = json!({"answer": {"ready": false, "content": ""}});
    let set = json!({"answer": {"ready": true, "content": "forty-two"}});
    fields(&empty, &worker.call(&stand.code.print("on"))?)?;
    fields(&set, &worker.call(stand.code.answers)?)?;
    fields(&set, &worker.call(&stand.code.print("on"))?)
}

fn execution_time(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let response = worker.call(stand.code.sleeps_a_second)?;
    let seconds = response["execution_time"].as_f64().unwrap_or_default();
    that((1.0..60.0).contains(&seconds), "a second or little more", seconds)
}

fn state_is_kept(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    fields(&json!({"outcome": "ok", "state": "kept"}), &worker.call(stand.code.keeps)?)?;
    fields(&json!({"stdout": "[value]", "state": "kept"}), &worker.call(stand.code.shows_kept)?)
}

fn interpreter_ends(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let expected = match stand.code.language {
        ReplLanguage::Bash => json!({"status": "error", "outcome": "exited", "exit_code": 3}),
        ReplLanguage::Python => json!({"status": "error", "outcome": "crashed", "state": "reset"}),
    };
    let response = worker.call(stand.code.ends_its_interpreter)?;
    fields(&expected, &response)?;
    that(response["hint"].is_string(), "a hint that says what happened", &response)?;
    worker.still_works()
}

fn exit_code(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    for (code, expected) in [(":", 0), ("(exit 7)", 7), ("kill -9 $BASHPID & wait $!", 137)] {
        fields(&json!({"outcome": "ok", "state": "kept", "exit_code": expected}), &worker.call(code)?)?;
    }
    fields(&json!({"outcome": "exited", "exit_code": 137}), &worker.call("kill -9 $$")?)
}

fn one_stream(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let response = worker.call("echo out; echo err >&2; echo out")?;
    let expected = json!({"stdout": "out\nerr\nout\n", "stderr": "", "result": null, "exception": null});
    fields(&expected, &response)
}

fn result(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    fields(&json!({"result": "[1, 'two']", "stdout": "", "exit_code": null}), &worker.call("[1, 'two']")?)?;
    fields(&json!({"result": null}), &worker.call("x = 1")?)?;
    fields(&json!({"result": null}), &worker.call("None")?)
}

fn exception(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let response = worker.call("raise ValueError('seven')")?;
    let exception = json!({"type": "ValueError", "message": "seven"});
    fields(&json!({"outcome": "error", "state": "kept", "exception": exception}), &response)?;
    let traceback = response["result"].as_str().unwrap_or_default();
    let is_traceback =
        traceback.starts_with("Traceback") && traceback.trim_end().ends_with("ValueError: seven");
    that(is_traceback, "a traceback in `result`", &response)?;
    fields(&json!({"outcome": "ok", "exception": null}), &worker.call("1")?)
}

fn two_streams(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let response = worker.call("import sys\nprint('out')\nprint('err', file=sys.stderr)")?;
    fields(&json!({"stdout": "out\n", "stderr": "err\n"}), &response)
}
