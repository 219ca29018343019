//! The history: the requests, so that they can be repeated, and a digest of each output.

use std::fs;
use std::process::Command;

use rlm_core::limits::MAX_HISTORY_VARIABLES_BYTES;
use rlm_core::protocol::{HistoryEntry, Operation, Outcome, State};
use rlm_tests::{Worker, default_python};
use serde_json::{Value, json};

use super::{SEQ, ask, ask_as, reset, set};

fn history(worker: &Worker) -> Vec<HistoryEntry> {
    let text = fs::read_to_string(worker.control.history_file()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The digest as `docs/protocol.md` describes it, computed by another program.
const DIGEST: &str = "import hashlib, json, sys; r = json.load(sys.stdin); \
    parts = [r[name].encode() for name in ('stdout', 'stderr', 'result') if r[name] is not None]; \
    print(hashlib.sha256(b'\\xff'.join(parts)).hexdigest()[:16], sum(map(len, parts)))";

fn digest_by_python(response: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("response");
    fs::write(&file, response).unwrap();
    let output = Command::new(default_python())
        .args(["-c", DIGEST])
        .stdin(fs::File::open(file).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_digest_matches_the_response() {
    let bash = ["", "echo é; echo err >&2", "printf '\\377\\0'", "head -c 100000 /dev/zero", "exit 1"];
    let python = [
        "",
        "1",
        "''",
        "import sys; print('é\\ud800'); print('err', file=sys.stderr); 'x'",
        "1/0",
        "print('x' * 100000)",
    ];
    for (mut worker, codes) in [(Worker::bash(), &bash[..]), (Worker::python(), &python[..])] {
        for code in codes {
            worker.send_call(code, json!({"max_output_bytes": 1000}));
            let response = worker.receive_bytes();
            let entry = history(&worker).pop().unwrap();
            let told = format!("{} {}", entry.output_digest.unwrap(), entry.output_bytes);
            assert_eq!(told, digest_by_python(&response), "{code:?}");
            assert_eq!((entry.op, entry.code.as_str(), entry.variables), (Operation::Execute, *code, None));
        }
    }
}

#[test]
fn resets_and_variables_are_lines_among_the_calls() {
    for mut worker in [Worker::bash(), Worker::python()] {
        worker.call("x=1");
        // The history has one line for a request, even if that is written on several.
        let request = format!(
            "{{\n \"op\": \"set\", \"seq\": {SEQ}, \"variables\": {{\"a\": [ 1.0,\n 12345678901234567890123 ], \"b\": \"\\u00e9 \\n\"}}}}"
        );
        assert_eq!(ask_as(&worker, &request).outcome, Outcome::Ok);
        ask(&worker, json!({"op": "set", "variables": {"a": 1, "1": 1}}));
        ask(&worker, json!({"op": "info"}));
        reset(&worker);
        worker.call("");
        let told = history(&worker);
        let ops: Vec<(Operation, i64, Outcome, State)> =
            told.iter().map(|entry| (entry.op, entry.seq, entry.outcome, entry.state)).collect();
        assert_eq!(
            ops,
            [
                (Operation::Execute, 1, Outcome::Ok, State::Kept),
                (Operation::Set, SEQ, Outcome::Ok, State::Kept),
                (Operation::Set, SEQ, Outcome::Error, State::Kept),
                (Operation::Reset, SEQ, Outcome::Ok, State::Reset),
                (Operation::Execute, 2, Outcome::Ok, State::Kept),
            ]
        );
        let variables = serde_json::to_string(told[1].variables.as_ref().unwrap()).unwrap();
        assert_eq!(variables, "{\"a\":[1.0,12345678901234567890123],\"b\":\"\\u00e9 \\n\"}");
        assert!(told[1].code.is_empty() && told[1].variables_omitted.is_empty());
        let lines = fs::read_to_string(worker.control.history_file()).unwrap();
        let reset: Value = serde_json::from_str(lines.lines().nth(3).unwrap()).unwrap();
        assert_eq!((&reset["op"], reset.get("variables")), (&json!("reset"), None));
    }
}

#[test]
fn variables_over_the_limit_are_listed_by_name() {
    let worker = Worker::python();
    let half = "x".repeat(MAX_HISTORY_VARIABLES_BYTES / 2);
    set(&worker, json!({"a": half, "b": half, "c": 1}));
    let entry = history(&worker).pop().unwrap();
    let kept: Vec<&str> = entry.variables.as_ref().unwrap().keys().map(String::as_str).collect();
    assert_eq!((kept, entry.variables_omitted), (vec!["a", "c"], vec!["b".to_owned()]));
}
