//! The fields of requests.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::check::{Check, fields, same, that};
use super::super::host::{Stand, Worker};
use super::{Case, case, case_on_stand, plain};

pub(super) const SECTION: &str = "Requests";

/// Longest time from the time limit of a call to its response.
const STOP_LIMIT: Duration = Duration::from_secs(5);

const ONE_CALL: &str = "Variables whose names begin with `__rlm_icpt_` last for one call: after the next `\"execute\"`, \
                        however it ends, they are gone.";

pub(super) const CASES: &[Case] = &[
    plain("requests/seq-is-echoed", "echoed in the response", seq_is_echoed),
    plain("requests/seq-can-be-missing", "the request's, or -1 if it could not be read", seq_is_missing)
        .of("Responses"),
    case("requests/execute-is-the-default", "string, `\"execute\"` when absent", execute_is_default),
    plain("requests/unknown-fields", "Unknown fields are ignored.", unknown_fields),
    case("requests/timeout", "time limit of this call", timeout),
    case_on_stand(
        "requests/timeout-of-the-environment",
        "by default `RLM_EXEC_TIMEOUT`, or none",
        default_timeout,
    ),
    case_on_stand("requests/timeout-before-the-environment", "time limit of this call", own_timeout),
    case("requests/max-output-bytes", "bound on the output returned per stream", max_output_bytes),
    case_on_stand(
        "requests/max-output-bytes-of-the-environment",
        "by default `RLM_MAX_OUTPUT_BYTES`, or 16 MiB",
        default_max_output_bytes,
    ),
    case(
        "requests/max-output-bytes-at-least-256",
        "at least 256, and smaller ones count as 256",
        least_max_output_bytes,
    ),
    case("requests/nothing-is-truncated-by-default", "or 16 MiB", no_truncation),
    plain("requests/null-is-absent", "number of seconds above 0, or null", null_is_absent),
    case("requests/source-in-the-history", "The history has both.", source).of("Intercepted calls"),
    case("requests/one-call-variables", ONE_CALL, one_call_variables).of("Intercepted calls"),
];

fn seq_is_echoed(worker: &mut Worker<'_>) -> Check {
    for seq in [0, 1, -5, 9_007_199_254_740_993, i64::MIN, i64::MAX] {
        worker.send(json!({"op": "info", "seq": seq}).to_string().as_bytes())?;
        worker.response_to(seq)?;
    }
    Ok(())
}

fn seq_is_missing(worker: &mut Worker<'_>) -> Check {
    let response = worker.send_for_response(br#"{"op": "info"}"#)?;
    fields(&json!({"seq": -1, "status": "ok"}), &response)
}

fn execute_is_default(worker: &mut Worker<'_>) -> Check {
    for more in [json!({}), json!({"op": "execute"})] {
        let response = worker.call_with(&worker.code.print("on"), more)?;
        fields(&json!({"outcome": "ok", "stdout": "on\n"}), &response)?;
    }
    Ok(())
}

fn unknown_fields(worker: &mut Worker<'_>) -> Check {
    let request = json!({"op": "info", "colour": "blue", "deep": {"list": [1, {"a": null}]}, "empty": ""});
    fields(&json!({"outcome": "ok", "hint": null}), &worker.request(request)?)
}

/// Runs code that sleeps, and checks that it was stopped and that the state is kept.
fn must_time_out(worker: &mut Worker<'_>, more: Value) -> Check {
    worker.call(worker.code.keeps)?;
    let begun = Instant::now();
    let response = worker.call_with(worker.code.sleeps, more)?;
    let took = begun.elapsed();
    fields(&json!({"status": "error", "outcome": "timed_out", "state": "kept"}), &response)?;
    that(
        took < STOP_LIMIT,
        "a response soon after the time limit of 0.3 s",
        format_args!("it took {took:?}"),
    )?;
    fields(&json!({"stdout": "[value]"}), &worker.call(worker.code.shows_kept)?)
}

fn timeout(worker: &mut Worker<'_>) -> Check {
    must_time_out(worker, json!({"timeout": 0.3}))
}

fn default_timeout(stand: &Stand<'_>) -> Check {
    must_time_out(&mut stand.start_with(&[("RLM_EXEC_TIMEOUT", "0.3")])?, json!({}))
}

fn own_timeout(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start_with(&[("RLM_EXEC_TIMEOUT", "0.3")])?;
    let response = worker.call_with(stand.code.sleeps_a_second, json!({"timeout": 60}))?;
    fields(&json!({"outcome": "ok", "stdout": "done\n"}), &response)
}

/// Checks an output of 100,000 characters that was cut to 1000.
fn must_be_cut(response: &Value) -> Check {
    fields(&json!({"outcome": "ok", "state": "kept"}), response)?;
    let stdout = response["stdout"].as_str().unwrap_or_default();
    // A line in the text says what was dropped.
    that(
        stdout.len() <= 1000 + 200,
        "at most 1000 bytes and a line that says so",
        format_args!("{} bytes", stdout.len()),
    )?;
    let is_whole = stdout.starts_with("head") && stdout.ends_with("tail");
    that(is_whole, "the beginning and the end of the output", stdout)?;
    let dropped = response["truncated"]["stdout"].as_u64().unwrap_or_default();
    let left = stdout.bytes().filter(|byte| *byte == b'x').count() as u64 + 8;
    that(
        dropped >= 99_000 && dropped + left <= 100_100,
        "the number of dropped bytes in `truncated.stdout`",
        format_args!("{dropped} dropped, {left} left of 100000"),
    )?;
    that(stdout.contains(&dropped.to_string()), format_args!("a line that says {dropped}"), stdout)
}

fn max_output_bytes(worker: &mut Worker<'_>) -> Check {
    must_be_cut(&worker.call_with(worker.code.prints_much, json!({"max_output_bytes": 1000}))?)?;
    fields(&json!({"truncated": null}), &worker.call(&worker.code.print("on"))?)
}

fn default_max_output_bytes(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start_with(&[("RLM_MAX_OUTPUT_BYTES", "1000")])?;
    must_be_cut(&worker.call(stand.code.prints_much)?)
}

fn least_max_output_bytes(worker: &mut Worker<'_>) -> Check {
    // Smaller bounds count as 256.
    for bytes in [0, 255, 256] {
        let response = worker.call_with(worker.code.prints_much, json!({"max_output_bytes": bytes}))?;
        fields(&json!({"outcome": "ok"}), &response)?;
        let length = response["stdout"].as_str().map_or(0, str::len);
        that(
            (200..500).contains(&length),
            "256 bytes and a line that says so",
            format_args!("{length} bytes"),
        )?;
    }
    Ok(())
}

fn no_truncation(worker: &mut Worker<'_>) -> Check {
    let response = worker.call(worker.code.prints_much)?;
    fields(&json!({"truncated": null}), &response)?;
    same("bytes of stdout", &100_000, &response["stdout"].as_str().map_or(0, str::len))
}

fn null_is_absent(worker: &mut Worker<'_>) -> Check {
    let request =
        json!({"op": "execute", "code": "", "source": null, "timeout": null, "max_output_bytes": null});
    fields(&json!({"outcome": "ok", "hint": null}), &worker.request(request)?)
}

fn source(worker: &mut Worker<'_>) -> Check {
    let source = format!("{} ", worker.code.print("on"));
    let response = worker.call_with(&worker.code.print("on"), json!({"source": source}))?;
    fields(&json!({"outcome": "ok", "stdout": "on\n"}), &response)?;
    worker.call(&worker.code.print("off"))?;
    let lines = super::history::lines(worker.stand, 2)?;
    fields(&json!({"code": worker.code.print("on"), "source": source}), &lines[0])?;
    that(lines[1].get("source").is_none(), "no `source` in the line of a call without one", &lines[1])
}

fn one_call_variables(worker: &mut Worker<'_>) -> Check {
    const NAME: &str = "__rlm_icpt_0a1b2c3d_1";
    let set = worker.request(json!({"op": "set", "variables": {NAME: "once", "kept": "always"}}))?;
    fields(&json!({"outcome": "ok"}), &set)?;
    fields(&json!({"stdout": "[once]"}), &worker.call(&worker.code.show(NAME))?)?;
    let response = worker.call(&worker.code.show(NAME))?;
    let stdout = response["stdout"].as_str().unwrap_or_default();
    that(!stdout.contains("once"), format_args!("{NAME} is gone in the second call"), &response)?;
    fields(&json!({"stdout": "[always]"}), &worker.call(&worker.code.show("kept"))?)
}
