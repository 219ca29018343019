//! A namespace that goes on in another worker, object by object, in every Python.

use std::time::Instant;

use nix::sys::signal::Signal;
use rlm_core::protocol::{Outcome, State};
use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{AT_ONCE, Setup, Worker, pythons};
use serde_json::json;

use super::{ask_for, load, load_is_refused, place, save};

#[test]
fn objects_of_every_kind_go_on_and_share_what_they_shared() {
    for python in pythons() {
        let (_dir, file) = place();
        let mut old = Setup::python_at(&python).start();
        old.output(include_str!("objects.py"));
        let left_out = save(&old, &file);
        for name in ["g (TypeError: ", "lock (TypeError: ", "fh (TypeError: "] {
            assert!(left_out.contains(name), "{python:?}: {left_out}");
        }
        let mut new = Setup::python_at(&python).start();
        assert_eq!(load(&new, &file), "", "{python:?}");
        assert_eq!(new.output(include_str!("objects_again.py")), "", "{python:?}");
        let found = new.call("raiser()").result.unwrap();
        assert!(
            found.contains("\n  File \"<cell 1>\", line ") && found.contains("raise ValueError(\"boom\")"),
            "{found}"
        );
        let source =
            new.output("import inspect; print(inspect.getsource(Point.norm), inspect.getsource(Base))");
        assert!(source.contains("self.x**2") && source.contains("registry = []"), "{source}");
    }
}

#[test]
fn what_cannot_be_saved_is_left_out_and_named() {
    for python in pythons() {
        let (_dir, file) = place();
        let mut old = Setup::python_at(&python).start();
        old.call(include_str!("odd_objects.py"));
        save(&old, &file);
        let header = rlm_core::saved::Saved::open(&file).unwrap().header().clone();
        let names: Vec<&str> = header.contents.left_out.keys().map(String::as_str).collect();
        let expected = [
            "cls_with_bad",
            "coro",
            "deep",
            "evil",
            "ex",
            "fc",
            "fr",
            "gg",
            "ld",
            "loc",
            "mem",
            "mv",
            "sk",
            "tb",
            "th",
        ];
        assert_eq!(names, expected, "{python:?}");
        assert_eq!(header.contents.left_out["evil"], "RuntimeError: no way");
        let mut new = Setup::python_at(&python).start();
        load(&new, &file);
        assert_eq!(new.output(include_str!("odd_objects_again.py")), "", "{python:?}");
    }
}

#[test]
fn another_minor_version_is_asked_for() {
    let (_dir, file) = place();
    let all = pythons();
    let [first, .., last] = &all[..] else { return };
    let mut old = Setup::python_at(first).start();
    old.output("x = 1");
    save(&old, &file);
    let mut new = Setup::python_at(last).start();
    new.output("y = 2");
    let version = old.info().version;
    let minor = version.rsplit_once('.').unwrap().0.to_owned();
    load_is_refused(&new, &file, &format!("load it in a session with Python {minor}"));
    assert_eq!(new.value("y, 'x' in globals()"), "(2, False)");
}

#[test]
fn a_module_that_is_not_there_is_left_out_and_named() {
    let (_dir, file) = place();
    let mut old = Worker::python();
    old.output("open('mine.py', 'w').write('class C: pass\\ndef f(): return 1')\nimport mine, json\nfrom mine import C, f\nx = C(); both = [x, 1]; y = 3");
    save(&old, &file);
    let mut new = Worker::python();
    let hint = load(&new, &file);
    for name in ["mine (ModuleNotFoundError: No module named 'mine')", "C (", "f (", "x ("] {
        assert!(hint.contains(name), "{hint}");
    }
    assert_eq!(
        new.value("y, 'mine' in globals(), 'f' in globals(), both[1], json.dumps(1)"),
        "(3, False, False, 1, '1')"
    );
    let found = new.call("both[0].attribute").exception.unwrap();
    assert!(found.message.contains("is not here: ModuleNotFoundError: No module named 'mine'"), "{found:?}");
}

#[test]
fn root_tools_are_those_of_the_new_host() {
    let (_dir, file) = place();
    let (old_endpoint, new_endpoint) = (ExistingEndpoint::start(), ExistingEndpoint::start());
    let mut old = Setup::python()
        .env("RLM_ROOT_TOOL_URL", old_endpoint.url())
        .env("RLM_ROOT_TOOL_NAMES", r#"["add", "gone"]"#)
        .start();
    old.output("held = [add, gone]; mine = add\ndef use(): return add(1, 2)");
    save(&old, &file);
    let mut new = Setup::python()
        .env("RLM_ROOT_TOOL_URL", new_endpoint.url())
        .env("RLM_ROOT_TOOL_NAMES", r#"["add"]"#)
        .start();
    let hint = load(&new, &file);
    assert!(hint.contains("gone (this host does not give it)"), "{hint}");
    assert_eq!(new.value("held[0] is add is mine, 'gone' in globals()"), "(True, False)");
    let found = new.call("held[1]()").exception.unwrap();
    assert_eq!(
        (found.kind.as_str(), found.message.contains("gone is not here")),
        ("NameError", true),
        "{found:?}"
    );
}

#[test]
fn a_save_that_does_not_end_is_stopped_and_the_session_goes_on() {
    let (_dir, file) = place();
    let mut worker = Setup::python().env("RLM_EXEC_TIMEOUT", 0.5).start();
    let slow = "import time\nclass Slow:\n    def __reduce__(self):\n        open('busy', 'w').close()\n        BODY\nslow = Slow(); x = 1";
    for body in ["time.sleep(1000)", "while True: pass"] {
        worker.output(&slow.replace("BODY", body));
        let response = ask_for(&worker, "save", &file);
        assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept), "{response:?}");
        assert_eq!(worker.value("x"), "1");
        assert!(!file.exists());
    }
    worker.output("import os; os.remove('busy')");
    let mut worker = Worker::python();
    worker.output(&slow.replace("BODY", "time.sleep(1000)"));
    worker.send(json!({"op": "save", "file": file, "seq": 9}).to_string().as_bytes());
    worker.wait_for_file("busy");
    let begun = Instant::now();
    worker.signal(Signal::SIGINT);
    let response = worker.receive();
    assert!(begun.elapsed() < AT_ONCE);
    assert_eq!((response.outcome, response.state), (Outcome::Interrupted, State::Kept), "{response:?}");
    assert_eq!(worker.value("x"), "1");
}

#[test]
fn a_load_that_fails_half_way_leaves_nothing() {
    let failing = [
        ("raise KeyError('half way')", "late cannot be made again: KeyError: 'half way'"),
        ("import os; os.abort()", "was ended by SIGABRT"),
        ("import os; os._exit(3)", "ended with status 3"),
        ("import os, time; os.system('sleep 1000 &'); raise SystemExit(1)", "SystemExit"),
    ];
    for (body, fault) in failing {
        let (_dir, file) = place();
        let mut old = Worker::python();
        old.output(&format!(
            "early = 1\nclass C:\n    def __setstate__(self, state):\n        {body}\nlate = C(); late.x = 1"
        ));
        save(&old, &file);
        let mut new = Worker::python();
        new.output("import threading; mine = threading.Lock()");
        let interpreter = new.interpreter();
        load_is_refused(&new, &file, fault);
        assert_eq!(new.interpreter(), interpreter);
        assert_eq!(
            new.value("'early' in globals(), 'late' in globals(), mine.locked()"),
            "(False, False, False)"
        );
    }
}
