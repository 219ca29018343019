//! One build serves every CPython from 3.10 on.

use std::path::Path;

use rlm_core::protocol::Answer;
use rlm_tests::{Setup, pythons};

use super::{raises, traceback};

#[test]
fn every_python_of_this_machine_keeps_the_promises() {
    for python in pythons() {
        check(&python);
    }
}

fn check(python: &Path) {
    let mut worker = Setup::python_at(python).start();
    assert_eq!(worker.value("x = 20\nx + 1"), "21", "{python:?}");
    assert_eq!(worker.value("x"), "20");

    worker.output("def f(n):\n    return 1 / n");
    let found = traceback(&mut worker, "x = 1\nf(0)", "ZeroDivisionError");
    assert!(
        found.starts_with(
            "Traceback (most recent call last):\n  File \"<cell 4>\", line 2, in <module>\n    f(0)\n"
        ),
        "{found}"
    );
    assert!(found.contains("\n  File \"<cell 3>\", line 2, in f\n    return 1 / n\n"), "{found}");
    assert!(found.ends_with("\nZeroDivisionError: division by zero"), "{found}");

    // Code that `exec` runs has no source, and must not be shown another's.
    let found = traceback(&mut worker, "exec('x = 1\\n1 / 0')", "ZeroDivisionError");
    assert!(
        found.ends_with("\n  File \"<string>\", line 2, in <module>\nZeroDivisionError: division by zero"),
        "{found}"
    );
    let found = traceback(&mut worker, "x = 1\nbreak", "SyntaxError");
    assert!(found.starts_with("  File \"<cell 6>\", line 2\n    break\n    ^^^^"), "{found}");

    let plain = "class Plain:\n    field = 1\n";
    let decorated = "class Decorated:\n    @deco\n    def method(self):\n        pass\n";
    worker.output(
        "import functools, inspect
def deco(f):
    @functools.wraps(f)
    def wrapper(*args):
        return f(*args)
    return wrapper",
    );
    worker.output(plain);
    worker.output(decorated);
    worker.output("class Plainer:\n    other = 2");
    for (name, source) in [("Plain", plain), ("Decorated", decorated)] {
        worker.output(&format!("source = inspect.getsource({name})"));
        assert_eq!(worker.output("print(source, end='')"), source, "{python:?}");
    }

    let code = "import asyncio
async def f():
    await asyncio.sleep(0)
    return 7
task = asyncio.create_task(f())";
    worker.output(code);
    assert_eq!(worker.value("await task"), "7", "{python:?}");
    worker.output("from __future__ import annotations");
    assert_eq!(worker.value("def f(a: Unknown): pass\nf.__annotations__"), "{'a': 'Unknown'}");

    let response = worker.call(
        "import os, sys
print('é\\ud800'); os.write(1, b'b\\n'); print('e', file=sys.stderr)
sys.stdout.close()",
    );
    assert_eq!((response.stdout.as_str(), response.stderr.as_str()), ("é\\ud800\nb\n", "e\n"), "{python:?}");
    assert_eq!(worker.output("print('again')"), "again\n");
    raises(&mut worker, "input()", "EOFError");
    raises(&mut worker, "exit()", "SystemExit");
    raises(&mut worker, "def f(): f()\nf()", "RecursionError");
    assert_eq!(
        worker.value(
            "import ssl, sqlite3, ctypes, multiprocessing as mp
by = 2
def double(n): return n * by
with mp.get_context('spawn').Pool(1) as pool, mp.get_context('forkserver').Pool(1) as other:
    doubled = pool.map(double, [1]) + other.map(double, [2])
doubled"
        ),
        "[2, 4]"
    );
    let answer = worker.call("answer = {'ready': 1, 'content': b'bytes'}").answer;
    assert_eq!(answer, Answer { ready: true, content: "bytes".to_owned() });
}
