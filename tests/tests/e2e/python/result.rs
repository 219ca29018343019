//! The value of a cell's last expression is its result.

use rlm_core::protocol::{Outcome, State, Truncated};
use rlm_tests::Worker;
use serde_json::json;

use super::raises;

#[test]
fn the_result_is_the_repr_of_the_last_expression() {
    let mut worker = Worker::python();
    let cases = [
        ("1 + 1", Some("2")),
        ("'text'", Some("'text'")),
        ("1; 2", Some("2")),
        ("x = 1", None),
        ("x = 1;", None),
        ("x", Some("1")),
        ("x  # a comment\n\n# another", Some("1")),
        ("None", None),
        ("print", Some("<built-in function print>")),
        ("(1 +\n 2\n)", Some("3")),
        ("[\n  1,\n  2,\n]\n", Some("[1, 2]")),
        ("\"\"\"two\nlines\"\"\"", Some("'two\\nlines'")),
        ("class A:\n    x = 1\nA.x", Some("1")),
        ("if x:\n    5", None),
        ("for i in range(3):\n    i", None),
        ("i", Some("2")),
        ("lambda: 1, ...", None),
        ("", None),
        ("# a comment", None),
        ("x\r\nx + 1\r\n", Some("2")),
        ("'é 🎉'", Some("'é 🎉'")),
    ];
    for (code, result) in cases {
        let response = worker.call(code);
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{code:?}: {response:?}");
        assert_eq!((response.stdout.as_str(), response.stderr.as_str()), ("", ""), "{code:?}");
        if code.starts_with("lambda") {
            assert!(response.result.unwrap().starts_with("(<function <lambda> at 0x"));
        } else {
            assert_eq!(response.result.as_deref(), result, "{code:?}");
        }
    }
}

#[test]
fn a_repr_runs_as_part_of_its_cell() {
    let mut worker = Worker::python();
    worker.output(
        "class R:\n    def __init__(self, act): self.act = act\n    def __repr__(self): return self.act()",
    );
    let response = worker.call("R(lambda: print('printed') or 'shown')");
    assert_eq!((response.stdout.as_str(), response.result.as_deref()), ("printed\n", Some("shown")));
    let traceback = raises(&mut worker, "R(lambda: 1 / 0)", "ZeroDivisionError").result.unwrap();
    assert!(traceback.contains("File \"<cell 1>\", line 3, in __repr__\n"), "{traceback}");
    raises(&mut worker, "R(exit)", "SystemExit");
    raises(&mut worker, "R(lambda: 5)", "TypeError");
    assert_eq!(worker.value("R(lambda: 'still here')"), "still here");
}

#[test]
fn a_long_result_keeps_head_and_tail() {
    let mut worker = Worker::python();
    let response = worker.call_with("'a' * 50_000_000 + 'z'", json!({"max_output_bytes": 1000}));
    let dropped = 50_000_003 - 1000;
    assert_eq!(response.truncated, Some(Truncated { result: dropped, ..Truncated::default() }));
    let result = response.result.unwrap();
    assert!(result.starts_with("'aaa") && result.ends_with("aaaz'"), "{result}");
    assert!(result.contains(&format!("\n[{dropped} bytes of output dropped here]\n")), "{result}");
    assert!(result.len() < 1100);
    let response = worker.call_with("'a' * 50_000_000", json!({"max_output_bytes": 60_000_000}));
    assert_eq!((response.result.unwrap().len(), response.truncated), (50_000_002, None));
}

#[test]
fn a_long_result_is_not_copied_whole() {
    let mut worker = Worker::python();
    worker.output(
        "import resource\n\
         peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n\
         text = 'é' * 50_000_000\n\
         class R:\n    def __repr__(self): return text\n\
         before = peak()",
    );
    let response = worker.call_with("R()", json!({"max_output_bytes": 1000}));
    assert_eq!(response.truncated, Some(Truncated { result: 100_000_000 - 1000, ..Truncated::default() }));
    let result = response.result.unwrap();
    assert!(result.starts_with("ééé") && result.ends_with("ééé"), "{result}");
    let grown: u64 = worker.value("peak() - before").parse().unwrap();
    assert!(grown < 50, "{grown} MB for 100 MB of text");
}

#[test]
fn lone_surrogates_are_replaced() {
    let mut worker = Worker::python();
    assert_eq!(worker.value("'\\ud800'"), "'\\ud800'");
    worker.output("class R:\n    def __repr__(self): return 'a\\ud800b \\ud83c\\udf89'");
    assert_eq!(worker.value("R()"), "a\u{fffd}b 🎉");
    let response = raises(&mut worker, "raise ValueError('a\\udcffb')", "ValueError");
    assert_eq!(response.exception.unwrap().message, "a\u{fffd}b");
    assert!(response.result.unwrap().ends_with("ValueError: a\u{fffd}b"));
}
