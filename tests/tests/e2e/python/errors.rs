//! An error is a result: the traceback shows the user's frames and lines, and the session goes on.

use rlm_core::protocol::Outcome;
use rlm_tests::{Setup, Worker, pythons};

use super::{raises, traceback};

#[test]
fn a_syntax_error_shows_line_and_caret() {
    let mut worker = Worker::python();
    let cases = [
        (
            "x = = 1",
            "SyntaxError",
            "  File \"<cell 1>\", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax",
        ),
        (
            "if True:\nx",
            "IndentationError",
            "  File \"<cell 2>\", line 2
    x
    ^
IndentationError: expected an indented block after 'if' statement on line 1",
        ),
        (
            "x = 1\n  y = 2",
            "IndentationError",
            "  File \"<cell 3>\", line 2\n    y = 2\nIndentationError: unexpected indent",
        ),
        (
            "x = 1\nreturn x",
            "SyntaxError",
            "  File \"<cell 4>\", line 2\n    return x\n    ^^^^^^^^\nSyntaxError: 'return' outside function",
        ),
        (
            "def f():\n    nonlocal y",
            "SyntaxError",
            "  File \"<cell 5>\", line 2
    nonlocal y
    ^^^^^^^^^^
SyntaxError: no binding for nonlocal 'y' found",
        ),
        (
            "(1,",
            "SyntaxError",
            "  File \"<cell 6>\", line 1\n    (1,\n    ^\nSyntaxError: '(' was never closed",
        ),
    ];
    for (code, kind, expected) in cases {
        assert_eq!(traceback(&mut worker, code, kind), expected);
    }
    let response = raises(&mut worker, "x = = 1", "SyntaxError");
    assert_eq!(response.exception.unwrap().message, "invalid syntax (<cell 7>, line 1)");
}

#[test]
fn a_traceback_begins_in_the_cell_and_shows_lines_of_earlier_cells() {
    let mut worker = Worker::python();
    worker.output("def f():\n    raise KeyError('k')  # here");
    let expected = "Traceback (most recent call last):
  File \"<cell 2>\", line 2, in <module>
    raise_it = f(); x = 1
               ^^^
  File \"<cell 1>\", line 2, in f
    raise KeyError('k')  # here
    ^^^^^^^^^^^^^^^^^^^
KeyError: 'k'";
    let found = traceback(&mut worker, "# A comment.\nraise_it = f(); x = 1", "KeyError");
    assert_eq!(without_marks(&found), without_marks(expected));
    // The last expression is compiled separately, and still has its own line number.
    let found = traceback(&mut worker, "x = 1\n\nf()", "KeyError");
    assert!(found.contains("File \"<cell 3>\", line 3, in <module>\n    f()\n"), "{found}");
}

/// A traceback without the lines that mark a position within a line: they differ between versions.
fn without_marks(traceback: &str) -> String {
    let is_mark = |line: &&str| !line.trim().is_empty() && line.chars().all(|c| " ^~".contains(c));
    traceback.lines().filter(|line| !is_mark(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn chained_exceptions_show_cause_and_context() {
    let mut worker = Worker::python();
    worker.output("def f(): {}['k']");
    let first = |cell| {
        format!(
            "Traceback (most recent call last):
  File \"<cell {cell}>\", line 2, in <module>
    f()
  File \"<cell 1>\", line 1, in f
    def f(): {{}}['k']
KeyError: 'k'

"
        )
    };
    let found = traceback(
        &mut worker,
        "try:\n    f()\nexcept KeyError as error:\n    raise ValueError('v') from error",
        "ValueError",
    );
    let expected = first(2)
        + "The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File \"<cell 2>\", line 4, in <module>
    raise ValueError('v') from error
ValueError: v";
    assert_eq!(without_marks(&found), expected);
    let found =
        traceback(&mut worker, "try:\n    f()\nexcept KeyError as error:\n    1 / 0", "ZeroDivisionError");
    let expected = first(3)
        + "During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File \"<cell 3>\", line 4, in <module>
    1 / 0
ZeroDivisionError: division by zero";
    assert_eq!(without_marks(&found), expected);
    // An exception does not carry over to the next cell.
    let found = traceback(&mut worker, "raise ValueError('alone')", "ValueError");
    assert_eq!(
        without_marks(&found),
        "Traceback (most recent call last):
  File \"<cell 4>\", line 1, in <module>
    raise ValueError('alone')
ValueError: alone"
    );
}

#[test]
fn the_error_of_ipythons_own_syntax_says_what_to_write() {
    let mut worker = Worker::python();
    for (line, instead) in [
        ("!echo don't | wc", "import subprocess; subprocess.run(\"echo don't | wc\", shell=True)"),
        ("names = !ls", "import subprocess; names = subprocess.getoutput('ls')"),
        (
            "%pip install a b",
            "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', 'install', 'a', 'b'])",
        ),
        ("%%bash", "import subprocess; subprocess.run('''...''', shell=True, executable='bash')"),
        ("%cd data", "import os; os.chdir('data')"),
        (
            "!{sys.executable} -m venv x",
            "import subprocess; subprocess.run(f'{sys.executable} -m venv x', shell=True)",
        ),
        ("!echo ${HOME}", "import subprocess; subprocess.run('echo ${HOME}', shell=True)"),
        (
            "pip install a",
            "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', 'install', 'a'])",
        ),
        ("ls -l data", "import subprocess; subprocess.run('ls -l data', shell=True)"),
        ("cd ..", "import os; os.chdir('..')"),
        ("%run a.py", "import runpy; runpy.run_path('a.py', run_name='__main__')"),
        ("%ls", "import subprocess; subprocess.run('ls', shell=True)"),
        ("```python", "nothing: a fence is Markdown's"),
        ("%matplotlib inline", "nothing: leave the line out"),
        ("%unknown 1", "Python: there are no magics"),
        ("str.join?", "help(str.join)"),
        ("??str", "help(str)"),
    ] {
        let response = raises(&mut worker, &format!("x = 1\n{line}\n"), "SyntaxError");
        let expected = format!(". In place of this line, write {instead}");
        let (message, shown) = (response.exception.unwrap().message, response.result.unwrap());
        assert!(message.contains(&expected) && shown.ends_with(&expected), "{message}\n{shown}");
    }
    for python in ["(1\n% 2 3)", "git = 1 2", "x = (1", "cat.x y"] {
        let response = raises(&mut worker, python, "SyntaxError");
        assert!(!response.result.unwrap().contains("In place of this line"), "{python}");
    }
}

#[test]
fn a_warning_of_one_cell_is_shown_in_the_next_one_too() {
    let mut worker = Worker::python();
    for _ in 0..2 {
        assert!(worker.call("import warnings\nwarnings.warn('w')").stderr.contains("UserWarning: w"));
    }
}

#[test]
fn an_exception_group_shows_its_members() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        // Python 3.10 does not have exception groups.
        if worker.value("import sys\nsys.version_info >= (3, 11)") == "True" {
            let code = "raise ExceptionGroup('both', [ValueError(1), TypeError('t')])";
            let response = raises(&mut worker, code, "ExceptionGroup");
            assert_eq!(response.exception.unwrap().message, "both (2 sub-exceptions)");
            let expected = "  + Exception Group Traceback (most recent call last):
  |   File \"<cell 2>\", line 1, in <module>
  |     raise ExceptionGroup('both', [ValueError(1), TypeError('t')])
  | ExceptionGroup: both (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: 1
    +---------------- 2 ----------------
    | TypeError: t
    +------------------------------------";
            assert_eq!(response.result.unwrap(), expected);
        }
    }
}

#[test]
fn an_error_deep_in_a_library_shows_its_frames_and_none_of_ours() {
    let mut worker = Worker::python();
    let found = traceback(&mut worker, "import json\njson.loads('{')", "JSONDecodeError");
    let files: Vec<&str> =
        found.lines().filter_map(|line| line.strip_prefix("  File \"")?.split('"').next()).collect();
    assert_eq!(files[0], "<cell 1>");
    assert_eq!(files.len(), 4, "{found}");
    assert!(files[1..].iter().all(|file| file.contains("/json/")), "{found}");
    let last =
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2";
    assert!(found.ends_with(&format!("{last} (char 1)")), "{found}");
}

#[test]
fn an_await_shows_no_frame_of_the_loop() {
    let mut worker = Worker::python();
    worker.output("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    raise RuntimeError('r')");
    let expected = "Traceback (most recent call last):
  File \"<cell 2>\", line 1, in <module>
    await f()
  File \"<cell 1>\", line 4, in f
    raise RuntimeError('r')
RuntimeError: r";
    assert_eq!(without_marks(&traceback(&mut worker, "await f()", "RuntimeError")), expected);
}

#[test]
fn an_exception_of_an_earlier_cell_brings_no_frame_of_ours_as_a_cause() {
    let mut worker = Worker::python();
    worker.output("old = ValueError('old')\nasync def f():\n    raise old");
    traceback(&mut worker, "await f()", "ValueError");
    let found = traceback(&mut worker, "raise KeyError('new') from old", "KeyError");
    let expected = "Traceback (most recent call last):
  File \"<cell 2>\", line 1, in <module>
    await f()
  File \"<cell 1>\", line 3, in f
    raise old
ValueError: old

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File \"<cell 3>\", line 1, in <module>
    raise KeyError('new') from old
KeyError: 'new'";
    assert_eq!(without_marks(&found), expected);
}

#[test]
fn sources_of_cells_outlive_a_cleared_line_cache() {
    let mut worker = Worker::python();
    worker.output("def f():\n    1 / 0  # here");
    worker.output("import linecache, traceback\nlinecache.clearcache(); linecache.checkcache()");
    let found = traceback(&mut worker, "f()", "ZeroDivisionError");
    assert!(found.contains("  File \"<cell 1>\", line 2, in f\n    1 / 0  # here\n"), "{found}");
    assert_eq!(worker.value("import inspect\ninspect.getsource(f)"), "'def f():\\n    1 / 0  # here\\n'");
}

#[test]
fn a_traceback_without_the_library_shows_no_frame_of_ours() {
    let mut worker = Worker::python();
    worker.output("async def f():\n    1 / 0\nimport traceback\ntraceback.TracebackException = None");
    let expected = "Traceback (most recent call last):
  File \"<cell 2>\", line 1, in <module>
  File \"<cell 1>\", line 2, in f
ZeroDivisionError: division by zero";
    assert_eq!(traceback(&mut worker, "await f()", "ZeroDivisionError"), expected);
}

#[test]
fn unraisable_errors_are_on_stderr() {
    let mut worker = Worker::python();
    let code = "import threading
def f():
    raise OSError('in thread')
thread = threading.Thread(target=f)
thread.start(); thread.join()";
    let response = worker.call(code);
    assert_eq!((response.outcome, response.stdout.as_str()), (Outcome::Ok, ""));
    assert!(response.stderr.starts_with("Exception in thread Thread-"), "{}", response.stderr);
    assert!(response.stderr.contains("  File \"<cell 1>\", line 3, in f\n"), "{}", response.stderr);
    assert!(response.stderr.ends_with("OSError: in thread\n"), "{}", response.stderr);
    let response = worker.call("class A:\n    def __del__(self): raise OSError('in del')\na = A()\ndel a");
    assert_eq!((response.outcome, response.stdout.as_str()), (Outcome::Ok, ""));
    assert!(response.stderr.starts_with("Exception ignored"), "{}", response.stderr);
    assert!(response.stderr.ends_with("OSError: in del\n"), "{}", response.stderr);
}

#[test]
fn nothing_that_a_cell_raises_ends_the_session() {
    let mut worker = Worker::python();
    worker.output("x = 'kept'");
    let cases = [
        ("exit()", "SystemExit", "None"),
        ("quit(3)", "SystemExit", "3"),
        ("import sys; sys.exit('bye')", "SystemExit", "bye"),
        ("raise SystemExit", "SystemExit", ""),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("raise GeneratorExit", "GeneratorExit", ""),
        ("raise StopIteration(4)", "StopIteration", "4"),
        ("raise MemoryError", "MemoryError", ""),
        ("' ' * (1 << 60)", "MemoryError", ""),
        ("def f(): f()\nf()", "RecursionError", "maximum recursion depth exceeded"),
        ("class Own(BaseException): pass\nraise Own('own')", "Own", "own"),
        ("import asyncio\nraise asyncio.CancelledError", "CancelledError", ""),
        ("async def f(): raise SystemExit(3)\nawait f()", "SystemExit", "3"),
        ("async def f(): raise KeyboardInterrupt\nawait f()", "KeyboardInterrupt", ""),
        ("raise 5", "TypeError", "exceptions must derive from BaseException"),
    ];
    for (code, kind, message) in cases {
        let response = raises(&mut worker, code, kind);
        assert_eq!(response.exception.unwrap().message, message, "{code}");
        let traceback = response.result.unwrap();
        assert!(traceback.starts_with("Traceback (most recent call last):\n  File \"<cell "), "{traceback}");
        assert_eq!(worker.value("x"), "'kept'", "{code}");
    }
    assert_eq!(worker.value("import asyncio\nawait asyncio.sleep(0, x)"), "'kept'");
}

#[test]
fn an_exception_that_cannot_be_shown_is_still_named() {
    let mut worker = Worker::python();
    let code =
        "class Mute(Exception):\n    def __str__(self): raise ValueError\n    __repr__ = __str__\nraise Mute";
    let response = raises(&mut worker, code, "Mute");
    assert_eq!(response.exception.unwrap().message, "<Mute that cannot be shown>");
    assert!(response.result.unwrap().contains("  File \"<cell 1>\", line 4, in <module>\n"));
}

#[test]
fn a_nul_does_not_end_the_source() {
    let mut worker = Worker::python();
    worker.output("x = 1");
    let response = worker.call("y = 'a\0b'");
    assert!(
        response
            .exception
            .is_none_or(|exception| ["SyntaxError", "ValueError"].contains(&exception.kind.as_str()))
    );
    let response = worker.call("x\0");
    assert_eq!(response.outcome, Outcome::Error, "{response:?}");
    assert_eq!(worker.value("x"), "1");
}

const TAMPERING: [&str; 12] = [
    "import builtins; builtins.len = None",
    "import json; json.dumps = None",
    "import traceback; traceback.TracebackException = None",
    "import traceback; traceback.TracebackException.format = None",
    "import io; io.open = None",
    "import builtins; builtins.isinstance = builtins.getattr = builtins.str = builtins.compile = None",
    "import builtins; del builtins.print",
    "import linecache; linecache.getlines = None",
    "import linecache; linecache.cache = None",
    "import builtins; builtins.__import__ = None",
    "import sys; sys.path = sys.meta_path = None; sys.modules.clear()",
    "import builtins; builtins.__dict__.clear()",
];

/// Checks that cells have results, and that errors have tracebacks with exception and lines.
#[track_caller]
fn check_tampered(worker: &mut Worker, tampering: &str) {
    assert_eq!(worker.value("6 * 7"), "42", "{tampering}");
    assert_eq!(worker.value("'a' + 'b'"), "'ab'", "{tampering}");
    let found = traceback(worker, "x = 1\nf(0)", "ZeroDivisionError");
    assert!(found.contains("File \"<cell 5>\", line 2, in <module>\n"), "{tampering}: {found}");
    assert!(found.contains("File \"<cell 1>\", line 2, in f\n"), "{tampering}: {found}");
    assert!(found.ends_with("ZeroDivisionError: division by zero"), "{tampering}: {found}");
    let found = traceback(worker, "x = 1\nx = =", "SyntaxError");
    assert!(found.contains("<cell 6>") && found.contains("line 2"), "{tampering}: {found}");
    assert_eq!(worker.value("x"), "1", "{tampering}");
}

#[test]
fn a_cell_that_tampers_with_the_library_harms_only_itself() {
    for tampering in TAMPERING {
        let mut worker = Worker::python();
        worker.output("def f(n):\n    return 1 / n");
        worker.output(tampering);
        check_tampered(&mut worker, tampering);
    }
}

#[test]
fn a_cell_that_tampers_with_all_of_the_library_harms_only_itself() {
    let mut worker = Worker::python();
    worker.output("def f(n):\n    return 1 / n");
    let imports = "import builtins, io, json, linecache, sys, traceback\n";
    let all: Vec<&str> = TAMPERING
        .iter()
        .filter(|tampering| !tampering.contains("TracebackException = None"))
        .flat_map(|tampering| tampering.split("; ").skip(1))
        .collect();
    worker.output(&(imports.to_owned() + &all.join("\n")));
    check_tampered(&mut worker, "all");
}

#[test]
fn lines_are_counted_as_python_counts_them() {
    let mut worker = Worker::python();
    for end in ["\n", "\r\n", "\r"] {
        let code =
            ["s = \"\"\"a", "b\"\"\"", "def f():", "    raise ValueError('here')", "f()", "# not this"]
                .join(end);
        let found = traceback(&mut worker, &code, "ValueError");
        assert!(found.contains("line 5, in <module>\n    f()\n"), "{end:?}: {found}");
        assert!(found.contains("line 4, in f\n    raise ValueError('here')\n"), "{end:?}: {found}");
    }
}

#[test]
fn a_cell_may_contain_whatever_a_file_may() {
    let mut worker = Worker::python();
    assert_eq!(worker.value("\u{feff}x = 5\nx"), "5");
    let sum = vec!["x"; 1200].join(" + ");
    worker.value(&format!("y = {sum}"));
    assert_eq!(worker.value("y"), "6000");
    worker.value("import warnings");
    let warning = worker.call("if x is 5: pass").stderr;
    assert!(warning.contains("SyntaxWarning") && warning.contains("\n  if x is 5: pass\n"), "{warning}");
}

#[test]
fn an_await_that_is_stopped_shows_no_frame_of_ours() {
    let mut worker = Worker::python();
    worker.value("import asyncio\nasync def f():\n    try: await asyncio.sleep(100)\n    finally: 1 / 0");
    let response = worker.call_with("await f()", serde_json::json!({"timeout": 0.1}));
    for text in [response.result.unwrap(), response.stderr] {
        assert!(
            !text.contains("run_async") && !text.contains("run_parts") && !text.contains("<rlm>"),
            "{text}"
        );
    }
}
