//! `reset`, `set` and `info`.

use rlm_env::ReplLanguage;
use serde_json::{Value, json};

use super::super::check::{Check, fault, fields, names, same, that};
use super::super::host::Worker;
use super::{Case, case, plain};

pub(super) const RESET: &[Case] = &[
    case("reset/starts-over", "a new interpreter in `fs_root`", reset_starts_over),
    case("reset/answer-is-empty", "an empty answer", reset_empties_the_answer),
    case(
        "reset/ends-what-the-session-started",
        "Ends everything that the session started, background jobs too",
        reset_ends_processes,
    ),
    plain("reset/response", "The response has outcome `ok`, state `reset`", reset_response),
    case("reset/is-not-counted", "`execution_count` goes on and does not count it.", reset_is_not_counted),
];

pub(super) const SET: &[Case] = &[
    case("set/values-arrive", "Sets variables in the session", values_arrive),
    case("set/all-or-none", "all of them, or none if one cannot be set", all_or_none),
    case("set/values-are-not-evaluated", "Values are never evaluated", values_are_not_evaluated),
    case("set/nothing-else-changes", "not `execution_count`, not the answer", set_changes_nothing_else),
    plain("set/size-limit", "A value may have 1 MiB of JSON text", set_size_limit),
    plain("set/depth-limit", "and 100 levels", set_depth_limit),
];

pub(super) const INFO: &[Case] = &[
    plain("info/fields", "`result` is a JSON text.", info_fields),
    case("info/changes-nothing", "Nothing in the session is asked or changed.", info_changes_nothing),
];

/// The description of a session.
pub(in super::super) fn info(worker: &mut Worker<'_>) -> Check<Value> {
    let response = worker.request(json!({"op": "info"}))?;
    let text = response["result"].as_str().unwrap_or_default();
    serde_json::from_str(text)
        .or_else(|error| fault("a JSON text in `result`", format_args!("{error} in {response}")))
}

fn reset_starts_over(worker: &mut Worker<'_>) -> Check {
    worker.call(worker.code.keeps)?;
    fields(&json!({"stdout": "[value]"}), &worker.call(worker.code.shows_kept)?)?;
    let before = info(worker)?;
    worker.request(json!({"op": "reset"}))?;
    fields(&json!({"stdout": "[]"}), &worker.call(worker.code.shows_kept)?)?;
    let after = info(worker)?;
    same("cwd", &before["cwd"], &after["cwd"])?;
    that(before["pid"] != after["pid"], "another interpreter", &after["pid"])
}

fn reset_empties_the_answer(worker: &mut Worker<'_>) -> Check {
    worker.call(worker.code.answers)?;
    let empty = json!({"answer": {"ready": false, "content": ""}});
    fields(&empty, &worker.request(json!({"op": "reset"}))?)?;
    fields(&empty, &worker.call(&worker.code.print("on"))?)
}

fn reset_ends_processes(worker: &mut Worker<'_>) -> Check {
    let sleeps = |worker: &Worker<'_>| worker.process_names().iter().filter(|name| *name == "sleep").count();
    worker.call(worker.code.leaves_a_process)?;
    worker.wait_for("a process in the background", |worker| sleeps(worker) == 1)?;
    worker.request(json!({"op": "reset"}))?;
    same("processes that the session had started, after `reset`", &0, &sleeps(worker))
}

fn reset_response(worker: &mut Worker<'_>) -> Check {
    let expected = json!({"status": "ok", "outcome": "ok", "state": "reset", "stdout": "", "stderr": ""});
    fields(&expected, &worker.request(json!({"op": "reset"}))?)
}

fn reset_is_not_counted(worker: &mut Worker<'_>) -> Check {
    worker.still_works()?;
    fields(&json!({"execution_count": 1}), &worker.request(json!({"op": "reset"}))?)?;
    fields(&json!({"execution_count": 2}), &worker.call(&worker.code.print("on"))?)
}

fn values_arrive(worker: &mut Worker<'_>) -> Check {
    for text in ["it's $5", "\u{e9}\u{1f600}", "two\nlines", "a\tb\\c \"d\" `e`", ""] {
        let set = worker.request(json!({"op": "set", "variables": {"question": text}}))?;
        fields(&json!({"status": "ok", "outcome": "ok", "state": "kept"}), &set)?;
        fields(&json!({"stdout": format!("[{text}]")}), &worker.call(&worker.code.show("question"))?)?;
    }
    let set = worker.request(json!({"op": "set", "variables": {"number": 42, "list": [1, 2]}}))?;
    fields(&json!({"outcome": "ok"}), &set)?;
    fields(&json!({"stdout": "[42]"}), &worker.call(&worker.code.show("number"))?)
}

fn all_or_none(worker: &mut Worker<'_>) -> Check {
    worker.call(worker.code.keeps)?;
    let refused = worker.request(json!({"op": "set", "variables": {"kept": "changed", "not a name": 1}}))?;
    super::input::must_be_refused(&refused, "not a name")?;
    fields(&json!({"stdout": "[value]"}), &worker.call(worker.code.shows_kept)?)
}

fn values_are_not_evaluated(worker: &mut Worker<'_>) -> Check {
    let value = match worker.code.language {
        ReplLanguage::Bash => "$(: >evaluated)`: >evaluated`",
        ReplLanguage::Python => "{open('evaluated', 'w')}",
    };
    worker.request(json!({"op": "set", "variables": {"question": value}}))?;
    fields(&json!({"stdout": format!("[{value}]")}), &worker.call(&worker.code.show("question"))?)?;
    that(!worker.stand.file("evaluated").exists(), "a value that is not evaluated", "it was evaluated")
}

fn set_changes_nothing_else(worker: &mut Worker<'_>) -> Check {
    let before = worker.call(worker.code.answers)?;
    let set = worker.request(json!({"op": "set", "variables": {"a": 1}}))?;
    let expected =
        json!({"execution_count": 1, "answer": before["answer"], "stdout": "", "stderr": "", "result": null});
    fields(&expected, &set)?;
    fields(&json!({"execution_count": 2}), &worker.call(&worker.code.print("on"))?)
}

fn set_size_limit(worker: &mut Worker<'_>) -> Check {
    for (bytes, is_refused) in [(1 << 20, false), ((1 << 20) + 1, true)] {
        // Two of the bytes are quotation marks.
        let variables = json!({"large": "x".repeat(bytes - 2)});
        let response = worker.request(json!({"op": "set", "variables": variables}))?;
        match is_refused {
            true => super::input::must_be_refused(&response, "large")?,
            false => fields(&json!({"outcome": "ok", "hint": null}), &response)?,
        }
    }
    Ok(())
}

fn set_depth_limit(worker: &mut Worker<'_>) -> Check {
    let nested = |levels| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let request = format!(r#"{{"op": "set", "seq": 7, "variables": {{"deep": {}}}}}"#, nested(101));
    worker.send(request.as_bytes())?;
    super::input::must_be_refused(&worker.response_to(7)?, "deep")
}

fn info_fields(worker: &mut Worker<'_>) -> Check {
    let info = info(worker)?;
    let mut expected = vec![
        "language",
        "version",
        "worker_version",
        "protocol",
        "uptime",
        "calls",
        "memory_bytes",
        "cwd",
        "pid",
        "answer_ready",
        "limits",
        "usage",
    ];
    // Only the built-in Python, and a confined session, have these.
    expected.extend(info.get("builtin").map(|_| "builtin"));
    expected.extend(info.get("confinement").map(|_| "confinement"));
    names("fields of `info`", &expected, &info)?;
    fields(&json!({"protocol": 1, "calls": 0, "answer_ready": false}), &info)?;
    let is_well_typed = ["language", "version", "worker_version"].iter().all(|name| info[name].is_string())
        && info["uptime"].as_f64().is_some_and(|seconds| seconds >= 0.0)
        && info.get("builtin").is_none_or(|is_builtin| is_builtin == true)
        && info["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 0)
        && (info["cwd"].is_string() || info["cwd"].is_null())
        && (info["pid"].as_i64().is_some_and(|pid| pid > 0) || info["pid"].is_null());
    that(is_well_typed, "fields of the types in the table", &info)
}

fn info_changes_nothing(worker: &mut Worker<'_>) -> Check {
    worker.call(worker.code.answers)?;
    let response = worker.request(json!({"op": "info"}))?;
    let expected =
        json!({"status": "ok", "outcome": "ok", "state": "kept", "execution_count": 1, "stdout": ""});
    fields(&expected, &response)?;
    fields(&json!({"calls": 1, "answer_ready": true}), &info(worker)?)?;
    fields(&json!({"execution_count": 2}), &worker.call(&worker.code.print("on"))?)?;
    super::history::lines(worker.stand, 2).map(drop)
}
