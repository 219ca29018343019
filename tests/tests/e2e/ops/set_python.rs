//! Variables of a namespace: Python's own values, whatever the cells have done.

use std::cell::RefCell;

use nix::sys::signal::{Signal, kill};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rlm_core::limits::MAX_VARIABLE_BYTES;
use rlm_core::protocol::{Outcome, State};
use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{Setup, Worker, pythons};
use serde_json::{Value, json};

use super::{SEQ, ask, ask_as, set, set_is_refused};

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |float| float.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "['\"\\\\\\n{}$`%\u{1}\u{7f}\u{1b}\u{2028}é😀]{0,8}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|map| Value::from(map.into_iter().collect::<serde_json::Map<_, _>>())),
        ]
    })
}

#[test]
fn values_survive_the_round_trip() {
    let worker = RefCell::new(Worker::python());
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let checked = runner.run(&(values(), any::<String>()), |(value, text)| {
        let worker = &mut *worker.borrow_mut();
        set(worker, json!({"v": value, "t": text}));
        let back: Value =
            serde_json::from_str(&worker.output("import json; print(json.dumps([v, t]))")).unwrap();
        prop_assert_eq!(back, json!([value, text]));
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn values_are_those_of_json_loads_in_every_python() {
    let digits = format!("-{}", "1234567890".repeat(1000));
    let texts = [
        "null",
        "true",
        "1",
        "-0",
        "0",
        "999999999999999999",
        "-1000000000000000000",
        "9223372036854775808",
        "1.0",
        "-0.0",
        "1e3",
        "1E400",
        "-1e400",
        "5e-324",
        "1e-400",
        "0.1",
        r#""""#,
        r#""\ud800 \udc00\ud800""#,
        r#""\ud83d\ude00\u0000\u007f""#,
        r#""é\n""#,
        "[]",
        "{}",
        r#"[1, [2.5, {"a": [null]}]]"#,
        r#"{"b": 1, "a": {"b": []}, "b": 2, "": 0, "\udc80": "x"}"#,
        &digits,
    ];
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        worker.value("import json, sys; getattr(sys, 'set_int_max_str_digits', lambda n: n)(0)");
        let all = texts.join(", ");
        let request = format!(r#"{{"op": "set", "seq": {SEQ}, "variables": {{"values": [{all}]}}}}"#);
        // The same text as a string, for Python's own parser.
        assert_eq!(ask_as(&worker, &request).outcome, Outcome::Ok);
        set(&worker, json!({"text": format!("[{all}]")}));
        assert_eq!(
            worker.value("repr(values) == repr(json.loads(text)), len(values)"),
            format!("(True, {})", texts.len())
        );
        worker.value("getattr(sys, 'set_int_max_str_digits', lambda n: n)(640)");
        assert_eq!(ask_as(&worker, &request).outcome, Outcome::Ok, "whatever Python's limit on digits is");
        assert_eq!(worker.value("values[-1] % 10**9"), (1_000_000_000 - 234_567_890).to_string());
    }
}

#[test]
fn the_largest_values() {
    let mut worker = Worker::python();
    let text = "x".repeat(MAX_VARIABLE_BYTES - 2);
    let list: Vec<usize> = (0..100_000).collect();
    let request = format!(
        r#"{{"op": "set", "seq": {SEQ}, "variables": {{"s": "{text}", "l": {}, "n": {}, "deep": {}1{}}}}}"#,
        json!(list),
        "7".repeat(100_000),
        "[".repeat(100),
        "]".repeat(100)
    );
    assert_eq!(ask_as(&worker, &request).outcome, Outcome::Ok);
    assert_eq!(
        worker.value("len(s), sum(l), n == (10**100_000 - 1) // 9 * 7"),
        "(1048574, 4999950000, True)"
    );
    let response = ask(&worker, json!({"op": "set", "variables": {"fits": 1, "big": format!("{text}x")}}));
    assert_eq!((response.outcome, response.state), (Outcome::Error, State::Kept));
    assert!(response.hint.unwrap().starts_with("variable `big` has 1048577 bytes of JSON"));
    assert_eq!(worker.value("'fits' in dir()"), "False");
}

#[test]
fn one_refused_variable_sets_none() {
    let endpoint = ExistingEndpoint::start();
    for python in pythons() {
        let mut worker = endpoint.tools_for(Setup::python_at(&python)).start();
        worker.value("a = 'old'; before = sorted(dir())");
        for (name, fault) in [
            ("answer", "variable `answer` cannot be set: the answer can only be set by a cell"),
            ("ａnswer", "the answer can only be set by a cell"),
            ("extra_data", "it is reserved by the session"),
            ("fs_metadata", "it is reserved by the session"),
            ("llm_batch", "it is a root tool"),
            ("__builtins__", "it is reserved by Python"),
            ("__debug__", "it is reserved by Python"),
            ("__name__", "it is reserved by Python"),
            ("", "it is not a valid variable name in Python"),
            ("class", "it is not a valid variable name"),
            ("None", "it is not a valid variable name"),
            ("1a", "it is not a valid variable name"),
            ("a b", "it is not a valid variable name"),
            ("a.b", "it is not a valid variable name"),
            ("a\n", "it is not a valid variable name"),
            ("x;import os", "it is not a valid variable name"),
            ("a #", "it is not a valid variable name"),
        ] {
            set_is_refused(&worker, &json!({"a": "new", name: 1, "zz": 1}), fault);
        }
        assert_eq!(worker.value("a, before == sorted(set(dir()) - {'before'})"), "('old', True)");
        // Names are normalised as in code, whatever characters spell them.
        set(&worker, json!({"ﬁ": 1, "größe": 2, "match": 3, "_": 4, "list": 5, "ℌ": 6}));
        assert_eq!(worker.value("fi, ﬁ, größe, match, _, list, H"), "(1, 1, 2, 3, 4, 5, 6)");
    }
}

#[test]
fn variables_are_set_whatever_the_cells_have_done() {
    for state in [
        "import builtins\nfor name in list(vars(builtins)):\n    if name != 'Exception': delattr(builtins, name)",
        "import sys\nsys.modules.clear(); sys.meta_path.clear(); sys.path.clear()",
        "import sys, json\nsys.modules['json'] = sys.modules['_json'] = None; json.loads = None",
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
        "import os\nfor fd in range(3): os.close(fd)",
        "import sys\nsys.settrace(lambda *a: 1/0); sys.setprofile(lambda *a: 1/0)",
        "import sys; sys.setrecursionlimit(50)",
        "import warnings, gc; warnings.simplefilter('error'); gc.set_threshold(1)",
        "from __future__ import annotations",
        "import threading, itertools\nthreading.Thread(target=lambda: [None for _ in itertools.count()], daemon=True).start()",
    ] {
        let mut worker = Worker::python();
        worker.call(state);
        let response = ask(&worker, json!({"op": "set", "variables": {"x": [1, {"k": "é"}], "y": 1.5}}));
        assert_eq!(response.outcome, Outcome::Ok, "{state:?}: {response:?}");
        let response = worker.call("x, y");
        let shown = response.result.unwrap_or_default();
        assert!(shown == "([1, {'k': 'é'}], 1.5)" || response.exception.is_some(), "{state:?}: {shown}");
    }
}

#[test]
fn old_values_may_run_finalizers() {
    let mut worker = Worker::python();
    worker.value("import time\nclass A:\n    def __del__(self): print('gone'); 1/0\nx = A(); y = A(); answer['content'] = 'kept'");
    let response = set(&worker, json!({"x": 1, "y": 2}));
    assert_eq!(response.answer.content, "kept");
    let response = worker.call("x, y");
    assert_eq!((response.result.as_deref(), response.stdout.as_str()), (Some("(1, 2)"), "gone\ngone\n"));
    assert_eq!(response.stderr.matches("ZeroDivisionError").count(), 2, "{}", response.stderr);
    worker.value("import os\nclass B:\n    def __del__(self): os.fork()\nx = B()");
    set(&worker, json!({"x": 3}));
    assert_eq!(worker.value("x"), "3");
    worker.value("class C:\n    def __del__(self): os._exit(7)\nx = C()");
    let response = ask(&worker, json!({"op": "set", "variables": {"x": 4}}));
    assert_eq!((response.outcome, response.state), (Outcome::Crashed, State::Reset), "{response:?}");
    assert!(response.hint.unwrap().starts_with("the interpreter ended with status 7; "));
    set(&worker, json!({"x": 5}));
    assert_eq!(worker.value("x"), "5");
}

#[test]
fn an_interpreter_busy_with_a_signal_handler_is_replaced_at_the_limit() {
    let mut worker = Setup::python().env("RLM_EXEC_TIMEOUT", 0.5).start();
    worker.value("import signal\ndef spin(*_):\n    open('busy', 'w').close()\n    while True: pass\nsignal.signal(signal.SIGUSR1, spin)");
    kill(worker.interpreter(), Signal::SIGUSR1).unwrap();
    worker.wait_for_file("busy");
    let response = ask(&worker, json!({"op": "set", "variables": {"x": 1}}));
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Reset), "{response:?}");
    assert!(response.hint.unwrap().ends_with("; nothing was set"));
    set(&worker, json!({"x": 2}));
    assert_eq!(worker.value("x"), "2");
}

#[test]
fn memory_that_runs_out_sets_nothing() {
    let mut worker = Worker::python();
    worker.value("import resource; old = 1; resource.setrlimit(resource.RLIMIT_DATA, (100 << 20, 100 << 20)); kept = bytearray(70 << 20)");
    let list = json!(vec![1.5; 200_000]);
    let request =
        json!({"op": "set", "variables": {"a": list, "b": list, "c": list, "d": list, "e": list, "old": 2}});
    let response = ask(&worker, request);
    if response.outcome == Outcome::Error {
        assert!(response.hint.unwrap().contains("MemoryError"));
        assert_eq!(worker.value("old, 'a' in dir()"), "(1, False)");
    } else {
        assert_eq!(
            (response.outcome, response.state),
            (Outcome::Crashed, State::Reset),
            "{:?}",
            response.hint
        );
    }
    set(&worker, json!({"old": 3}));
    assert_eq!(worker.value("old"), "3");
}
