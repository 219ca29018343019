//! Nobody types: a read from standard input gets end of file at once.

use rlm_core::protocol::{Outcome, State};
use rlm_tests::Worker;

use super::raises;

#[test]
fn input_raises_eof_error() {
    let mut worker = Worker::python();
    raises(&mut worker, "input()", "EOFError");
    assert_eq!(raises(&mut worker, "input('name? ')", "EOFError").stdout, "name? ");
    worker.output("x = 1");
    for code in
        ["import sys; sys.stdin.close()", "import os; os.close(0)", "sys.stdin = None", "del sys.stdin"]
    {
        worker.output(code);
        raises(&mut worker, "input()", "EOFError");
    }
    assert_eq!(worker.value("x"), "1");
    worker.end();
}

#[test]
fn reads_are_empty() {
    let mut worker = Worker::python();
    let code = "import os, sys
sys.stdin.read(), sys.stdin.readline(), list(sys.stdin), os.read(0, 9), open(0, closefd=False).read()";
    assert_eq!(worker.value(code), "('', '', [], b'', '')");
    assert_eq!(worker.value("sys.stdin.isatty(), sys.stdin.fileno()"), "(False, 0)");
    worker.end();
}

#[test]
fn programs_read_end_of_file_too() {
    let mut worker = Worker::python();
    let code = "import subprocess\nsubprocess.run(['cat'], capture_output=True)";
    assert_eq!(worker.value(code), "CompletedProcess(args=['cat'], returncode=0, stdout=b'', stderr=b'')");
    assert_eq!(worker.output("subprocess.run(['sh', '-c', 'read x; echo $?']); None"), "1\n");
    worker.end();
}

#[test]
fn a_debugger_quits_at_its_prompt() {
    let mut worker = Worker::python();
    for code in [
        "x = 5\nbreakpoint()\nx",
        "import pdb\npdb.set_trace()\nx",
        "def f():\n    breakpoint()\n    return 1\nf()",
    ] {
        let response = raises(&mut worker, code, "BdbQuit");
        assert!(response.stdout.ends_with("(Pdb) \n"), "{:?}", response.stdout);
        assert_eq!(worker.value("import sys\nx, sys.gettrace()"), "(5, None)");
    }
    worker.end();
}

#[test]
fn no_terminal_can_be_opened() {
    let mut worker = Worker::python();
    raises(&mut worker, "open('/dev/tty')", "OSError");
    raises(&mut worker, "import getpass; getpass.getpass()", "EOFError");
    let response = worker.call("import code; code.interact()");
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{response:?}");
    assert_eq!(worker.value("1 + 1"), "2");
    worker.end();
}
