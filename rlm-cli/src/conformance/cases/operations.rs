//! `reset`, `set` and `info`.

use rlm_env::ReplLanguage;
use serde_json::{Value, json};

use super::super::check::{Check, fault, fields, names, same, that};
use super::super::host::{Stand, Worker};
use super::{Case, case, plain};

pub(super) const CASES: &[Case] = &[
    case("reset/starts-over", "reset", "a new interpreter in `fs_root`", reset_starts_over),
    case("reset/answer-is-empty", "reset", "an empty answer", reset_empties_the_answer),
    case(
        "reset/ends-what-the-session-started",
        "reset",
        "Ends everything that the session started, background jobs too",
        reset_ends_processes,
    ),
    plain("reset/response", "reset", "The response has outcome `ok`, state `reset`", reset_response),
    case(
        "reset/is-not-counted",
        "reset",
        "`execution_count` goes on and does not count it.",
        reset_is_not_counted,
    ),
    case("set/values-arrive", "set", "Sets variables in the session", values_arrive),
    case("set/all-or-none", "set", "all of them, or none if one cannot be set", all_or_none),
    case("set/values-are-not-evaluated", "set", "Values are never evaluated", values_are_not_evaluated),
    case(
        "set/nothing-else-changes",
        "set",
        "not `execution_count`, not the answer",
        set_changes_nothing_else,
    ),
    plain("set/size-limit", "set", "A value may have 1 MiB of JSON text", set_size_limit),
    plain("set/depth-limit", "set", "and 100 levels", set_depth_limit),
    plain("info/fields", "info", "`result` is a JSON text.", info_fields),
    case("info/changes-nothing", "info", "Nothing in the session is asked or changed.", info_changes_nothing),
];

/// The description of a session.
pub(in super::super) fn info(worker: &mut Worker<'_>) -> Check<Value> {
    let response = worker.request(json!({"op": "info"}))?;
    let text = response["result"].as_str().unwrap_or_default();
    serde_json::from_str(text)
        .or_else(|error| fault("a JSON text in `result`", format_args!("{error} in {response}")))
}

fn reset_starts_over(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    worker.call(stand.code.keeps)?;
    fields(&json!({"stdout": "[value]"}), &worker.call(stand.code.shows_kept)?)?;
    let before = info(&mut worker)?;
    worker.request(json!({"op": "reset"}))?;
    fields(&json!({"stdout": "[]"}), &worker.call(stand.code.shows_kept)?)?;
    let after = info(&mut worker)?;
    same("cwd", &before["cwd"], &after["cwd"])?;
    that(before["pid"] != after["pid"], "another interpreter", &after["pid"])
}

fn reset_empties_the_answer(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    worker.call(stand.code.answers)?;
    let empty = json!({"answer": {"ready": false, "content": ""}});
    fields(&empty, &worker.request(json!({"op": "reset"}))?)?;
    fields(&empty, &worker.call(&stand.code.print("on"))?)
}

fn reset_ends_processes(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let sleeps = |worker: &Worker<'_>| worker.process_names().iter().filter(|name| *name == "sleep").count();
    worker.call(stand.code.leaves_a_process)?;
    worker.wait_for("a process in the background", |worker| sleeps(worker) == 1)?;
    worker.request(json!({"op": "reset"}))?;
    same("processes that the session had started, after `reset`", &0, &sleeps(&worker))
}

fn reset_response(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let expected = json!({"status": "ok", "outcome": "ok", "state": "reset", "stdout": "", "stderr": ""});
    fields(&expected, &worker.request(json!({"op": "reset"}))?)
}

fn reset_is_not_counted(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    worker.still_works()?;
    fields(&json!({"execution_count": 1}), &worker.request(json!({"op": "reset"}))?)?;
    fields(&json!({"execution_count": 2}), &worker.call(&stand.code.print("on"))?)
}

fn values_arrive(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    for text in ["it's $5", "\u{e9}\u{1f600}", "two\nlines", "a\tb\\c \"d\" `e`", ""] {
        let set = worker.request(json!({"op": "set", "variables": {"question": text}}))?;
        fields(&json!({"status": "ok", "outcome": "ok", "state": "kept"}), &set)?;
        fields(&json!({"stdout": format!("[{text}]")}), &worker.call(&stand.code.show("question"))?)?;
    }
    let set = worker.request(json!({"op": "set", "variables": {"number": 42, "list": [1, 2]}}))?;
    fields(&json!({"outcome": "ok"}), &set)?;
    fields(&json!({"stdout": "[42]"}), &worker.call(&stand.code.show("number"))?)
}

fn all_or_none(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    worker.call(stand.code.keeps)?;
    let refused = worker.request(json!({"op": "set", "variables": {"kept": "changed", "not a name": 1}}))?;
    super::input::must_be_refused(&refused, "not a name")?;
    fields(&json!({"stdout": "[value]"}), &worker.call(stand.code.shows_kept)?)
}

fn values_are_not_evaluated(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let value = match stand.code.language {
        ReplLanguage::Bash => "$(: >evaluated)`: >evaluated`",
        ReplLanguage::Python => "{open('evaluated', 'w')}",
    };
    worker.request(json!({"op": "set", "variables": {"question": value}}))?;
    fields(&json!({"stdout": format!("[{value}]")}), &worker.call(&stand.code.show("question"))?)?;
    that(!stand.file("evaluated").exists(), "a value that is not evaluated", "it was evaluated")
}

fn set_changes_nothing_else(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let before = worker.call(stand.code.answers)?;
    let set = worker.request(json!({"op": "set", "variables": {"a": 1}}))?;
    let expected =
        json!({"execution_count": 1, "answer": before["answer"], "stdout": "", "stderr": "", "result": null});
    fields(&expected, &set)?;
    fields(&json!({"execution_count": 2}), &worker.call(&stand.code.print("on"))?)
}

fn set_size_limit(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
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

fn set_depth_limit(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let nested = |levels| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let request = format!(r#"{{"op": "set", "seq": 7, "variables": {{"deep": {}}}}}"#, nested(101));
    worker.send(request.as_bytes())?;
    super::input::must_be_refused(&worker.response_to(7)?, "deep")
}

fn info_fields(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    let info = info(&mut worker)?;
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
    // Only the built-in Python has it.
    expected.extend(info.get("builtin").map(|_| "builtin"));
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

fn info_changes_nothing(stand: &Stand<'_>) -> Check {
    let mut worker = stand.start()?;
    worker.call(stand.code.answers)?;
    let response = worker.request(json!({"op": "info"}))?;
    let expected =
        json!({"status": "ok", "outcome": "ok", "state": "kept", "execution_count": 1, "stdout": ""});
    fields(&expected, &response)?;
    fields(&json!({"calls": 1, "answer_ready": true}), &info(&mut worker)?)?;
    fields(&json!({"execution_count": 2}), &worker.call(&stand.code.print("on"))?)?;
    super::history::lines(stand, 2).map(drop)
}
