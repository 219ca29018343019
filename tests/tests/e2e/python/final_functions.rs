//! `FINAL` and `FINAL_VAR`, in sessions that have them.

use rlm_core::protocol::{Answer, Outcome, State};
use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{Setup, Worker, pythons};
use serde_json::json;

use super::{raises, traceback};
use crate::languages::Language;
use crate::ops::{ask, reset, set, set_is_refused};

fn start() -> Worker {
    Setup::python().env("RLM_FINAL_FUNCTIONS", "1").start()
}

/// Runs a cell that must succeed, and returns the answer if it is ready.
#[track_caller]
fn answer(worker: &mut Worker, code: &str) -> String {
    let response = worker.call(code);
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{code}: {response:?}");
    assert_eq!((response.result.as_deref(), response.answer.ready), (None, true), "{code}: {response:?}");
    response.answer.content
}

#[test]
fn they_set_the_answer_in_every_python() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).env("RLM_FINAL_FUNCTIONS", "true").start();
        for (code, content) in [
            ("FINAL('é\\n')", "é\n"),
            ("FINAL(value=1.50)", "1.5"),
            ("FINAL(None)", "None"),
            ("total = {'a': [1]}; FINAL_VAR('total')", "{'a': [1]}"),
            ("FINAL_VAR(name=' \"total\" ')", "{'a': [1]}"),
            ("FINAL_VAR(\"'total'\\n\"); FINAL_VAR('`total`')", "{'a': [1]}"),
            ("def f(x):\n    own = x\n    FINAL_VAR('own')\nf(7)", "7"),
            ("[FINAL(x) for x in range(3)] and None", "2"),
            ("FINAL_VAR('total') or FINAL(FINAL('x'))", "None"),
            ("class Text(str): pass\nFINAL(Text('text'))", "text"),
            ("del answer\nFINAL(1)", "1"),
            ("answer = '42'\nFINAL_VAR('answer')", "42"),
            ("answer = [1]; FINAL(2); assert answer == {'content': '2', 'ready': True}", "2"),
            ("kept = answer; FINAL(3); assert kept is answer and answer['content'] == '3'", "3"),
            ("answer = {'content': 'text', 'ready': False}; FINAL_VAR('answer')", "text"),
            ("FINAL('first'); last = 'the cell goes on'; FINAL(last)", "the cell goes on"),
            ("import asyncio\nasync def g():\n    FINAL('awaited')\nawait g()", "awaited"),
        ] {
            assert_eq!(answer(&mut worker, code), content, "{python:?}: {code}");
            worker.output("answer['ready'] = False");
        }
    }
}

#[test]
fn their_errors_show_no_frame_of_ours() {
    let mut worker = start();
    worker.output("total_sum = 1; totals = 2; number = 3");
    let cell = |number: u64, line: &str| {
        format!(
            "Traceback (most recent call last):\n  File \"<cell {number}>\", line 1, in <module>\n    {line}\n"
        )
    };
    for (number, (code, fault)) in (2..).zip([
        (
            "FINAL_VAR('totl_sum')",
            "NameError: FINAL_VAR finds no variable named 'totl_sum': did you mean 'total_sum' or 'totals', or write \
             FINAL(value) for a value",
        ),
        (
            "FINAL_VAR(' zzz ')",
            "NameError: FINAL_VAR finds no variable named 'zzz': assign it first, or write FINAL(value) for a value",
        ),
        (
            "FINAL_VAR([1])",
            "TypeError: FINAL_VAR takes the name of a variable as a string, not list: write FINAL_VAR(\"name\"), or \
             FINAL(value) for the value itself",
        ),
        ("FINAL()", "TypeError: FINAL() takes exactly one argument (0 given)"),
        ("FINAL(1, 2)", "TypeError: FINAL() takes exactly one argument (2 given)"),
        ("FINAL_VAR(value=1)", "TypeError: FINAL_VAR() takes its argument as FINAL_VAR(name)"),
    ]) {
        let kind = fault.split_once(':').unwrap().0;
        let shown = traceback(&mut worker, code, kind);
        let without_carets: String = shown
            .lines()
            .filter(|line| !line.trim().chars().all(|c| "^~".contains(c)))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(without_carets, format!("{}{fault}\n", cell(number, code)));
    }
    // An exception while the text is made is the cell's own.
    let odd = "class Odd:\n    def __str__(self):\n        return 1 / 0  # here\nFINAL(Odd())";
    let shown = traceback(&mut worker, odd, "ZeroDivisionError");
    assert!(
        shown.contains("line 4, in <module>\n") && shown.contains("in __str__\n    return 1 / 0  # here\n"),
        "{shown}"
    );
    assert_eq!(shown.matches("  File ").count(), 2, "{shown}");
    let response = raises(&mut worker, &format!("FINAL_VAR('{}')", "é".repeat(1000)), "NameError");
    let message = response.exception.unwrap().message;
    assert!(message.contains(&format!("'{}…'", "é".repeat(80))), "{message}");
    assert_eq!(response.answer, Answer::default());
}

#[test]
fn they_belong_to_the_session() {
    let mut worker = start();
    assert_eq!(
        worker.value("import inspect; str(inspect.signature(FINAL)), FINAL_VAR.__name__"),
        "('(value)', 'FINAL_VAR')"
    );
    set_is_refused(&worker, &json!({"FINAL_VAR": 1}), "it is a function that sets the answer");
    assert_eq!(worker.value("FINAL = 1; del FINAL_VAR; FINAL"), "1");
    reset(&worker);
    assert_eq!(answer(&mut worker, "x = 'again'; FINAL_VAR('x')"), "again");
    // An interpreter that replaces a dead one has them too.
    worker.call("import os; os._exit(1)");
    assert_eq!(answer(&mut worker, "FINAL('after')"), "after");
}

#[test]
fn without_the_flag_they_do_not_exist() {
    for setup in [
        Setup::python(),
        Setup::python().env("RLM_FINAL_FUNCTIONS", "0"),
        Setup::python().env("RLM_FINAL_FUNCTIONS", ""),
    ] {
        let mut worker = setup.start();
        for code in ["FINAL(1)", "FINAL_VAR('answer')"] {
            raises(&mut worker, code, "NameError");
        }
        set(&worker, json!({"FINAL": 1}));
        assert_eq!(worker.value("FINAL"), "1");
    }
    let mut bash = Setup::bash().env("RLM_FINAL_FUNCTIONS", "1").start();
    assert_eq!(bash.output("type FINAL 2>/dev/null; echo $?"), "1\n");
    assert_eq!(ask(&bash, json!({"op": "info"})).outcome, Outcome::Ok);
}

#[test]
fn a_bad_flag_and_a_tool_of_the_same_name_are_refused() {
    let refusal = |flag| {
        Language::Python.refuses_to_start(&[
            ("RLM_FINAL_FUNCTIONS", flag),
            ("RLM_ROOT_TOOL_URL", "http://127.0.0.1:1/"),
            ("RLM_ROOT_TOOL_NAMES", r#"["FINAL"]"#),
        ])
    };
    let bad = refusal("yes");
    let fault = "environment variable RLM_FINAL_FUNCTIONS is \"yes\", expected 1, true, 0 or false";
    assert!(bad.contains(fault), "{bad}");
    let taken = refusal("1");
    let fault = "root tool \"FINAL\" of RLM_ROOT_TOOL_NAMES cannot be a function: RLM_FINAL_FUNCTIONS defines \
                 a function of this name";
    assert!(taken.contains(fault), "{taken}");
    // Without the flag a tool may have the name.
    let endpoint = ExistingEndpoint::start();
    let mut worker = endpoint.tools_for(Setup::python()).env("RLM_ROOT_TOOL_NAMES", r#"["FINAL"]"#).start();
    assert_eq!(worker.value("FINAL.__doc__"), "'The root tool FINAL: it runs on the host.'");
}
