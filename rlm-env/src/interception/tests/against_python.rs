//! Compares plans with real Python: rewritten code does the same as code that calls functions.

use std::process::Command;

use rlm_core::pickle::Value;

use super::{Plan, TOOLS, planned, python_table};
use crate::terms::ReplLanguage::Python;

/// Runs each snippet twice: with tools as functions that record their arguments, and rewritten with the variables set.
const COMPARE: &str = r#"
import json, sys

def namespace(names):
    kept = {name: repr(value) for name, value in names.items() if not name.startswith("__")}
    return {name: value for name, value in kept.items() if " at 0x" not in value}

for case in json.load(sys.stdin):
    calls, results = [], {}
    def tool(name):
        def call(*args, **kwargs):
            calls.append((name, args, kwargs))
            return [name, len(calls)]
        return call
    original = {name: tool(name) for name in case["tools"]}
    defined = set(original)
    exec(compile(case["code"], "cell", "exec"), original)
    expected = [(name, eval(args), eval(kwargs)) for name, args, kwargs, _ in case["calls"]]
    assert repr(calls) == repr(expected) or calls == expected, (case["code"], calls, expected)
    rewritten = {call[3]: [call[0], at + 1] for at, call in enumerate(case["calls"])}
    exec(compile(case["rewritten"], "cell", "exec"), rewritten)
    one = namespace({name: value for name, value in original.items() if name not in defined})
    two = namespace(rewritten)
    assert one == two, (case["code"], one, two)
print("same")
"#;

fn case(code: &str) -> Option<serde_json::Value> {
    let Plan::Intercepted { calls, code: rewritten } = planned(Python, code) else { return None };
    let calls = calls.into_iter().map(|found| {
        let args = Value::tuple(found.call.args).repr(1 << 20).unwrap();
        let kwargs = Value::from(found.call.kwargs).repr(1 << 20).unwrap();
        let of_eval = |text: String| text.replace("inf", "1e999");
        serde_json::json!([found.call.tool, of_eval(args), of_eval(kwargs), found.variable])
    });
    let calls = calls.collect::<Vec<_>>();
    Some(serde_json::json!({ "tools": TOOLS, "code": code, "calls": calls, "rewritten": rewritten }))
}

#[test]
fn rewritten_code_does_what_the_code_does() {
    let runnable = python_table::TABLE.accepted().map(|(code, _)| code);
    // These need something that is missing here: another module, an object, a running loop, a nonzero divisor, the
    // engine.
    let runnable = runnable.filter(|code| {
        !["import", "f(budget", "match x", "await", "1 / 0", "\u{feff}"]
            .iter()
            .any(|part| code.contains(part))
    });
    let cases = runnable.map(|code| case(&code).unwrap()).collect::<Vec<_>>();
    assert!(cases.len() > 30);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cases.json");
    std::fs::write(&path, serde_json::to_vec(&cases).unwrap()).unwrap();
    let input = std::fs::File::open(&path).unwrap();
    let output = Command::new("python3").args(["-I", "-c", COMPARE]).stdin(input).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout.ends_with(b"\nsame\n"), "{errors}");
}
