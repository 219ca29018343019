//! Python functions, with an endpoint like those of existing hosts.

use rlm_core::protocol::State;
use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{Setup, Worker, pythons};

use super::start;

fn for_both(test: impl Fn(&mut Worker, &str)) {
    super::for_both(Setup::python, test);
}

/// Runs a cell that must raise `RuntimeError`, and returns its message.
fn failure(worker: &mut Worker, code: &str) -> String {
    let response = worker.call(code);
    let exception = response.exception.unwrap_or_else(|| panic!("{code} does not raise"));
    assert_eq!((response.state, exception.kind.as_str()), (State::Kept, "RuntimeError"), "{exception:?}");
    exception.message
}

#[test]
fn results_are_native_values() {
    for_both(|worker, serialization| {
        let is_json = serialization == "json";
        assert_eq!(worker.value("give('str'), give('none')"), "('text', None)");
        let dict = if is_json {
            "{'b': [1, 2.5, None], 'a': 'é', '3': True}"
        } else {
            "{'b': [1, 2.5, None], 'a': 'é', 3: True}"
        };
        assert_eq!(worker.value("give('dict')"), dict);
        assert_eq!(worker.value("give('tuple')"), if is_json { "[1, [2, 'x']]" } else { "(1, (2, 'x'))" });
        // A value that JSON cannot hold arrives as its repr.
        let bytes =
            if is_json { r#"("b'\\x00\\xffab'", '{1}', 'nan')"# } else { r"(b'\x00\xffab', {1}, nan)" };
        assert_eq!(worker.value("give('bytes'), give('set'), give('nan')"), bytes);
        assert_eq!(worker.value("give('big') == 2**100, len(give('long'))"), "(True, 10000000)");
        assert_eq!(worker.value("llm_batch(['a', '[1]'])"), "['reply to a', 'reply to [1]']");
        assert_eq!(worker.output("x = llm_batch(prompts=['a'])"), "llm_batch: 1 call(s)\n");
    });
}

#[test]
fn results_of_every_pickle_protocol_are_read_by_every_python() {
    let endpoint = ExistingEndpoint::start();
    for python in pythons() {
        let mut worker = endpoint.tools_for(Setup::python_at(&python)).start();
        assert_eq!(
            worker.value("all(protocol(n, kind) == give(kind) for n in range(6) for kind in ['dict', 'bytes', 'set', 'tuple', 'big', 'surrogate'])"),
            "True"
        );
    }
}

#[test]
fn arguments_come_as_they_were_given() {
    for_both(|worker, serialization| {
        assert_eq!(
            worker.value(r#"echo('1e3', True, '-x', '--json', [1], '', 'a\n"b\'', k=None)"#),
            r#"[['1e3', True, '-x', '--json', [1], '', 'a\n"b\''], {'k': None}]"#
        );
        assert_eq!(worker.value("size('x' * 2**20), echo(2**100) == [[2**100], {}]"), "(1048576, True)");
        if serialization == "pickle" {
            assert_eq!(worker.value("echo((1, b'x', {2}), float('inf'))"), "[[(1, b'x', {2}), inf], {}]");
        } else {
            let response = worker.call("echo(float('nan'))");
            assert_eq!(response.exception.unwrap().kind, "ValueError");
            let exception = worker.call("echo([{1}])").exception.unwrap();
            assert_eq!(exception.message, "a set cannot be sent as JSON");
        }
    });
}

#[test]
fn errors_are_raised_where_the_cell_called() {
    for_both(|worker, _| {
        assert_eq!(failure(worker, "fail('it broke')"), "it broke");
        // A reply of status 200, as some endpoints send for an error.
        assert_eq!(failure(worker, "fail_softly('it broke')"), "it broke");
        assert_eq!(failure(worker, "missing()"), "Tool 'missing' not found");
        let response = worker.call("def f():\n    return fail('deep')\n\nf()");
        assert_eq!(
            response.result.unwrap(),
            "Traceback (most recent call last):\n  File \"<cell 4>\", line 4, in <module>\n    f()\n  File \"<cell 4>\", line 2, in f\n    return fail('deep')\n           ^^^^^^^^^^^^\nRuntimeError: deep"
        );
        assert_eq!(worker.value("1"), "1");
    });
}

#[test]
fn an_answer_that_asks_for_more_than_data_is_refused() {
    let endpoint = ExistingEndpoint::start();
    let mut worker = start(Setup::python(), &endpoint, "pickle");
    assert_eq!(
        failure(&mut worker, "hostile()"),
        "the answer to hostile cannot be read: global os.system is refused in a result: only plain data is read"
    );
    assert_eq!(worker.value("import os; os.listdir('.')"), "[]");
    let read = |worker: &mut Worker, pickle: &str| {
        let message = failure(worker, &format!("hostile({pickle}.hex())"));
        message.strip_prefix("the answer to hostile cannot be read: pickle, ").unwrap().to_owned()
    };
    // Nine bytes for a memo of 2^28 entries.
    assert_eq!(
        read(&mut worker, r"b'\x80\x04Nr\xff\xff\xff\x0f.'"),
        "byte 3: memo index 268435455 over the limit of 3"
    );
    assert_eq!(
        read(&mut worker, r"b'c__builtin__\nset\n.'"),
        "byte 17: class set as a value refused: only plain data is read"
    );
}

#[test]
fn functions_work_wherever_python_runs() {
    for_both(|worker, _| {
        assert_eq!(
            worker.value("give, give.__module__, give.__name__"),
            worker.value("give, '__main__', 'give'")
        );
        let threads = "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(50) as pool:\n    replies = list(pool.map(echo, range(50)))\nreplies == [[[n], {}] for n in range(50)]";
        assert_eq!(worker.value(threads), "True");
        // The tool is called from a thread that outlives its cell, and from child processes with connections of their own.
        worker.output("import threading\nthread = threading.Thread(target=lambda: replies.append(give('str')))\nthread.start()");
        assert_eq!(worker.value("thread.join(); replies[-1]"), "'text'");
        let children = "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(4) as pool:\n    found = pool.map(give, ['str'] * 8)\nfound, give('str')";
        assert_eq!(
            worker.value(children),
            "(['text', 'text', 'text', 'text', 'text', 'text', 'text', 'text'], 'text')"
        );
        // Whatever a cell does to Python.
        worker.output("import builtins, sys, base64, json, pickle, io\nfor module in (base64, json, pickle, io):\n    vars(module).clear()\nbuiltins.print = builtins.isinstance = None");
        assert_eq!(worker.value("give('bytes') is not None and llm_batch(['a'])"), "['reply to a']");
    });
}

#[test]
fn an_endpoint_that_is_gone_is_an_error_and_one_that_comes_back_is_found() {
    let endpoint = ExistingEndpoint::start();
    let mut worker = endpoint.tools_for(Setup::python()).start();
    assert_eq!(worker.value("give('str')"), "'text'");
    drop(endpoint);
    let message = failure(&mut worker, "give('str')");
    assert!(message.starts_with("cannot reach the root-tool endpoint http://127.0.0.1:"), "{message}");
}
