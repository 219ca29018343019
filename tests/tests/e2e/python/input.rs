//! Nobody types: a read from standard input gets end of file at once.

use rlm_core::protocol::{Outcome, State};
use rlm_tests::Worker;

use super::raises;
use crate::languages::Expected::Raises;
use crate::languages::sessions;

sessions! { Python:
    // Promise: What reads standard input gets end of file.
    input_raises_eof_error {
        "input()" => Raises("EOFError"),
        "x = 1\ntry: input('name? ')\nexcept EOFError: pass" => "name? ",
        "import sys; sys.stdin.close()" => "",
        "input()" => Raises("EOFError"),
        "import os; os.close(0)" => "",
        "input()" => Raises("EOFError"),
        "sys.stdin = None" => "",
        "input()" => Raises("EOFError"),
        "del sys.stdin" => "",
        "input()" => Raises("EOFError"),
        "x" => "1",
    }
    reads_are_empty {
        "import os, sys" => "",
        "sys.stdin.read(), sys.stdin.readline(), list(sys.stdin), os.read(0, 9), open(0, closefd=False).read()" =>
            "('', '', [], b'', '')",
        "sys.stdin.isatty(), sys.stdin.fileno()" => "(False, 0)",
    }
    programs_read_end_of_file_too {
        "import subprocess\nsubprocess.run(['cat'], capture_output=True)" =>
            "CompletedProcess(args=['cat'], returncode=0, stdout=b'', stderr=b'')",
        "subprocess.run(['sh', '-c', 'read x; echo $?']); None" => "1\n",
    }
    no_terminal_can_be_opened {
        "open('/dev/tty')" => Raises("OSError"),
        "import getpass; getpass.getpass()" => Raises("EOFError"),
    }
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
}

#[test]
fn an_inner_interpreter_ends() {
    let mut worker = Worker::python();
    let response = worker.call("import code; code.interact()");
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{response:?}");
    assert_eq!(worker.value("1 + 1"), "2");
}
