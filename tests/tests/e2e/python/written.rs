//! Intercepted cells: the code that runs differs from the code as written, which is the one that is shown.

use std::path::Path;

use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::{Setup, Worker, pythons};
use serde_json::json;

use crate::ops::set;

/// The value that the tool `f` of these tests returns.
const VALUE: &str = r#"{"zero": 0, "text": "é"}"#;

/// Cells as written that call `f` where it can be intercepted, each with the text of its calls.
const CELLS: &[(&str, &[&str])] = &[
    ("info = f()\ninfo['text'] / info['zero']", &["f()"]),
    ("a = f(1, 'x', key=[1, -2]); b = 1 / a['zero']; c = 2", &["f(1, 'x', key=[1, -2])"]),
    ("é = f('é😀'); b = [é['zero'], 1 / é['zero']]", &["f('é😀')"]),
    (
        "a = f('''several\n  lines''',\n      1)  # here\nb = (1 +\n     a['text'])\n",
        &["f('''several\n  lines''',\n      1)"],
    ),
    ("a = f (\n)\nb = f()\nraise ValueError(\n    a,\n    b)", &["f (\n)", "f()"]),
    ("a = f()\nif a:\n\tdef g(x):\n\t\treturn x.y.z\n\tg(a)", &["f()"]),
    ("a = f(); assert a['zero'] == 1, f'{a[\"zero\"]!r:>5} {a}'", &["f()"]),
    ("a = f()\nmatch a:\n    case {'zero': int(z)} if z < 1:\n        1 / z", &["f()"]),
    ("a = f()\r\n# \x0c\r\ntry:\r\n    1 / a['zero']\r\nfinally:\r\n    a.b", &["f()"]),
    ("\u{feff}a = f(); 1 / a['zero']", &["f()"]),
    ("a = f(); b = await a['zero']", &["f()"]),
    ("a = f(); return a", &["f()"]),
    ("a = f(); '\\d'\na is 1; 1 / 0", &["f()"]),
    ("a = f(); from __future__ import annotations", &["f()"]),
    (
        "a = f(); import inspect\ndef g(): pass\nclass C:\n    def m(self): 1\n(inspect.getsource(g), a)",
        &["f()"],
    ),
];

/// The code that runs: a variable in place of each call.
fn rewritten(written: &str, calls: &[&str]) -> (String, Vec<String>) {
    let mut code = written.to_owned();
    let names: Vec<String> =
        (1..=calls.len()).map(|number| format!("__rlm_icpt_0a1b2c3d_{number}")).collect();
    for (call, name) in calls.iter().zip(&names) {
        code = code.replacen(call, name, 1);
    }
    (code, names)
}

/// Sets the values of the calls, and runs the code.
fn intercepted(worker: &mut Worker, written: &str, calls: &[&str]) -> Response {
    let (code, names) = rewritten(written, calls);
    assert_ne!(code, written);
    let value: serde_json::Value = serde_json::from_str(VALUE).unwrap();
    set(worker, names.into_iter().map(|name| (name, value.clone())).collect());
    worker.call_with(&code, json!({"source": written}))
}

/// A session in which `f` runs, and one in which its calls must have been intercepted.
fn called_and_intercepted(python: &Path) -> [Worker; 2] {
    [format!("return {VALUE}"), "exit('it was called')".to_owned()].map(|body| {
        let mut worker = Setup::python_at(python).start();
        worker.output(&format!("def f(*args, **kwargs): {body}"));
        worker
    })
}

/// The part of a response that a person sees.
fn shown(response: Response) -> (Outcome, State, String, String, Option<String>) {
    (response.outcome, response.state, response.stdout, response.stderr, response.result)
}

#[test]
fn everything_shown_is_as_if_the_calls_had_run_in_every_python() {
    for python in pythons() {
        let [mut called, mut worker] = called_and_intercepted(&python);
        for (written, calls) in CELLS {
            let expected = shown(called.call(written));
            assert_eq!(shown(intercepted(&mut worker, written, calls)), expected, "{python:?}: {written}");
        }
    }
}

#[test]
fn definitions_keep_their_source_as_written() {
    let mut worker = Worker::python();
    let written = "info = f('a longer call than its name')\ndef g():\n    return info['zero'] / 0\nclass C:\n    x = 1\n";
    let response = intercepted(&mut worker, written, &["f('a longer call than its name')"]);
    assert_eq!(response.outcome, Outcome::Ok, "{response:?}");
    let read = "import inspect, linecache; print(inspect.getsource(g) + inspect.getsource(C) + linecache.getline('<cell 1>', 1), end='')";
    let (_, defined) = written.split_once('\n').unwrap();
    let (first, _) = written.split_once('\n').unwrap();
    assert_eq!(worker.output(read), format!("{defined}{first}\n"));
    let traceback = super::traceback(&mut worker, "g()", "ZeroDivisionError");
    assert!(
        traceback.contains("  File \"<cell 1>\", line 3, in g\n    return info['zero'] / 0\n"),
        "{traceback}"
    );
    assert_eq!(worker.value("[line for line in linecache.cache['<cell 1>'][2]]").matches("rlm").count(), 0);
}

#[test]
fn a_source_that_does_not_match_the_code_is_ignored() {
    let mut worker = Worker::python();
    let deep = format!("x = {}1\n1 / 0", "1 + ".repeat(20_000));
    for (code, source) in [
        ("x = 1; 1 / 0", "x = 1"),
        ("x = 1; 1 / 0", "x = 1; 1 / 0; 2"),
        ("x = 1; 1 / 0", "x = f(2); 1 / 0"),
        ("x = 1; 1 / 0", "x += 1; 1 / 0"),
        ("x = 1; 1 / 0", "\u{feff}"),
        ("x = 1; 1 / 0", ""),
        ("x = [1]; 1 / 0", "x = [1, 2]; 1 / 0"),
        ("x = 1; 1 / 0", "x = 1; 2 / 0"),
        ("x = 1; 1 / 0", "x = 1; 1. / 0"),
        ("x = 1; 1 / 0", "x = True; 1 / 0"),
        ("x = 1; 1 / 0", "x = 1; 1 % 0"),
        ("x = 1; 1 / 0", "y = 1; 1 / 0"),
        ("x = 'a'; 1 / 0", "x = b'a'; 1 / 0"),
        ("x = 1; del x; x = 'b'; x.a", "x = 1; del x; x = 'b'; x.b"),
        ("x = 1; from . import a", "x = 1; from .. import a"),
        ("x = 1; global y, z; 1 / 0", "x = 1; global y, x; 1 / 0"),
        (deep.as_str(), &deep.replacen("1", "f()", 1)),
    ] {
        let mut fresh = Worker::python();
        let plain = fresh.call(code);
        fresh.end();
        let response = worker.call_with(code, json!({"source": source}));
        let number = format!("<cell {}>", response.execution_count);
        let result = response.result.map(|text| text.replace(&number, "<cell 1>"));
        assert_eq!((result, response.stderr), (plain.result, plain.stderr), "{source:?}");
        assert_ne!(worker.value("x"), "", "{source:?}: it did not run");
    }
    let syntax = crate::ops::ask(&worker, json!({"code": "a = (", "source": "a = f()", "op": "execute"}));
    assert_eq!(syntax.exception.unwrap().kind, "SyntaxError");
    let refused = worker.call_with("x", json!({"source": 1}));
    assert_eq!(refused.hint.as_deref(), Some("field `source` is the number 1, expected a string"));
}

/// A source that this Python cannot parse gets this Python's error: the host's parser may know another version.
#[test]
fn a_source_that_cannot_be_parsed_is_an_error_and_nothing_runs() {
    for python in pythons() {
        let mut called = Setup::python_at(&python).start();
        let mut worker = Setup::python_at(&python).start();
        for worker in [&mut called, &mut worker] {
            worker.output("x = 'as it was'");
        }
        for (written, calls) in [
            ("x = f('a long call'); print(x", &["f('a long call')"][..]),
            ("x = f('a long call'); a b", &["f('a long call')"]),
            ("x = f(1,\n  2)\nd = {'k': 1}; x = f'{d['k'}'", &["f(1,\n  2)"]),
            ("x = f('\\N{no such}')", &["f('\\N{no such}')"]),
            ("x = f(\0)", &["f(\0)"]),
        ] {
            let expected = shown(called.call(written));
            assert_eq!(expected.0, Outcome::Error, "{written}");
            assert_eq!(shown(intercepted(&mut worker, written, calls)), expected, "{python:?}: {written}");
            assert_eq!(worker.value("x"), "'as it was'", "{python:?}: {written}");
            called.value("x");
        }
    }
}

#[test]
fn warnings_are_as_if_the_calls_had_run_in_every_python() {
    for python in pythons() {
        let [mut called, mut worker] = called_and_intercepted(&python);
        let cells: &[(&str, &[&str])] = &[
            ("a = f(); '\\d'; a is 1", &["f()"]),
            ("a = f('\\d')", &["f('\\d')"]),
            ("import sys\n'warnings' in sys.modules", &[]),
            ("import warnings; warnings.simplefilter('once')", &[]),
            ("warnings.warn('w', UserWarning)", &[]),
            ("a = f('\\d'); b = '\\w'; a is 1", &["f('\\d')"]),
            ("warnings.warn('w', UserWarning)", &[]),
            ("warnings.simplefilter('default')\nfor _ in 1, 2: warnings.warn('w', UserWarning)", &[]),
            ("def warn(): warnings.warn('of a function')\nwarn()", &[]),
            ("a = f('\\d')\nwarn()", &["f('\\d')"]),
            ("warn(); warnings.filters[:2]", &[]),
            ("warnings.simplefilter('error')", &[]),
            ("a = f('\\d')", &["f('\\d')"]),
            ("a = f(); a is 1", &["f()"]),
            ("a", &[]),
            ("warnings.simplefilter('ignore')", &[]),
            ("a = f('\\d'); '\\d'; len(a)", &["f('\\d')"]),
            ("len(warnings.filters)", &[]),
            ("warnings.filters = None", &[]),
            ("a = f(); 1 / a['zero']", &["f()"]),
        ];
        for (written, calls) in cells {
            let expected = shown(called.call(written));
            let found = if calls.is_empty() {
                worker.call(written)
            } else {
                intercepted(&mut worker, written, calls)
            };
            assert_eq!(shown(found), expected, "{python:?}: {written}");
        }
    }
}

/// Code that is too long to be compared runs with its own positions, and shows the source if the lines are the same.
#[test]
fn the_source_is_compared_up_to_a_length() {
    let mut worker = Worker::python();
    let filler = "x = 1\n".repeat(50_000);
    let shorter = "x = 1\n".repeat(5_000);
    for (written, call, line, text) in [
        (format!("{filler}a = f('é'); 1 / a['zero']"), "f('é')", 50_001, "a = f('é'); 1 / a['zero']"),
        (
            format!("{filler}a = f(\n); 1 / a['zero']"),
            "f(\n)",
            50_001,
            "a = __rlm_icpt_0a1b2c3d_1; 1 / a['zero']",
        ),
        (format!("{shorter}a = f(\n); 1 / a['zero']"), "f(\n)", 5_002, "); 1 / a['zero']"),
    ] {
        let result = intercepted(&mut worker, &written, &[call]).result.unwrap();
        assert!(result.contains(&format!("line {line}, in <module>\n    {text}\n")), "{result}");
    }
    // Comparing it would take far longer than running it.
    let source = "1,\n".repeat(1_000_000);
    let response = worker.call_with("1 / 0", json!({"source": source, "timeout": 20}));
    assert!(response.result.unwrap().contains("\n    1 / 0\n"), "{:?}", response.outcome);
}

#[test]
fn code_of_the_deepest_nesting_keeps_the_positions_of_the_source() {
    let mut worker = Worker::python();
    // Deeper than recursive Python functions could go, but no deeper than a tree of objects may be.
    let nested = (0..90).fold(String::new(), |code, depth| format!("{code}{}if a:\n", " ".repeat(depth)));
    let written = format!("a = f(1,\n  2)\n{nested}{}{}1 / 0", " ".repeat(90), "not ".repeat(100));
    let response = intercepted(&mut worker, &written, &["f(1,\n  2)"]);
    let traceback = response.result.unwrap();
    assert!(
        traceback.starts_with("Traceback (most recent call last):\n  File \"<cell 1>\", line 93, in"),
        "{traceback}"
    );
}

#[test]
fn a_cell_that_is_stopped_shows_its_source_as_written() {
    let mut worker = Worker::python();
    let (code, names) = rewritten("a = f(1,\n 2)\nwhile True:\n    a = 1  # here", &["f(1,\n 2)"]);
    set(&worker, json!({names[0].as_str(): 1}));
    let fields = json!({"source": "a = f(1,\n 2)\nwhile True:\n    a = 1  # here", "timeout": 0.2});
    let response = worker.call_with(&code, fields);
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept), "{response:?}");
    let traceback = response.result.unwrap();
    assert!(
        traceback.contains("line 4, in <module>\n    a = 1  # here\n")
            || traceback.contains("line 3, in <module>\n    while True:\n"),
        "{traceback}"
    );
}
