//! The output of a cell: all of it, in order, whichever way it is written.

use rlm_core::protocol::{Outcome, Response};
use rlm_tests::Worker;

/// Runs a cell that must succeed, and checks its output.
#[track_caller]
fn check(worker: &mut Worker, code: &str, stdout: &str, stderr: &str) {
    let response = worker.call(code);
    assert_eq!(response.outcome, Outcome::Ok, "{code:?}: {response:?}");
    assert_eq!((response.stdout.as_str(), response.stderr.as_str()), (stdout, stderr), "{code:?}");
}

#[test]
fn every_way_to_write_is_seen() {
    let mut worker = Worker::python();
    worker.output("import ctypes, os, subprocess, sys, threading, warnings\nlibc = ctypes.CDLL(None)");
    let cases = [
        ("print('a', 1)", "a 1\n", ""),
        ("print('no newline', end='')", "no newline", ""),
        ("print('é 🎉')", "é 🎉\n", ""),
        ("n = sys.stdout.write('written')", "written", ""),
        ("n = sys.stdout.buffer.write(b'bytes')", "bytes", ""),
        ("n = os.write(1, b'descriptor')", "descriptor", ""),
        ("n = os.write(2, b'descriptor')", "", "descriptor"),
        ("run = subprocess.run('echo out; echo err >&2', shell=True)", "out\n", "err\n"),
        ("status = os.system('printf system')", "system", ""),
        ("n = libc.puts(b'puts')", "puts\n", ""),
        ("n = libc.printf(b'printf')", "printf", ""),
        ("print('err', file=sys.stderr)", "", "err\n"),
        ("n = sys.stderr.write('half')", "", "half"),
        ("print('x', file=open('/dev/stdout', 'w'))", "x\n", ""),
        ("sys.displayhook(5)", "5\n", ""),
        (
            "thread = threading.Thread(target=print, args=['of a thread']); thread.start(); thread.join()",
            "of a thread\n",
            "",
        ),
    ];
    for (code, stdout, stderr) in cases {
        check(&mut worker, code, stdout, stderr);
    }
    check(
        &mut worker,
        "warnings.warn('careful')",
        "",
        "<cell 18>:1: UserWarning: careful\n  warnings.warn('careful')\n",
    );
}

#[test]
fn a_logger_set_up_in_an_earlier_cell_goes_on() {
    let mut worker = Worker::python();
    worker.output(
        "import logging\nlogging.basicConfig(level=logging.INFO, format='%(levelname)s %(message)s')",
    );
    worker.output("log = logging.getLogger('mine')");
    for _ in 0..2 {
        check(&mut worker, "log.info('hello')", "", "INFO hello\n");
    }
    check(
        &mut worker,
        "import io, sys\nsys.stderr = io.StringIO(); log.info('past it')",
        "",
        "INFO past it\n",
    );
    check(&mut worker, "import os; os.close(2)", "", "");
    check(&mut worker, "log.info('back')", "", "INFO back\n");
}

#[test]
fn lines_keep_their_order() {
    let mut worker = Worker::python();
    worker.output("import os, subprocess, sys");
    let code = "
for i in range(100):
    print('print', i)
    os.write(1, b'write\\n')
    if i % 10 == 0: subprocess.run(['echo', 'echo'])
    print('err', i, file=sys.stderr)
    os.write(2, b'err\\n')
";
    let echo = |i| if i % 10 == 0 { "echo\n" } else { "" };
    let stdout: String = (0..100).map(|i| format!("print {i}\nwrite\n{}", echo(i))).collect();
    let stderr: String = (0..100).map(|i| format!("err {i}\nerr\n")).collect();
    check(&mut worker, code, &stdout, &stderr);
}

#[test]
fn streams_are_restored_whatever_a_cell_does_to_them() {
    let mut worker = Worker::python();
    worker.output("import io, os, sys");
    let tampering = [
        "sys.stdout.close(); sys.stderr.close()",
        "sys.__stdout__.close(); sys.__stderr__.close()",
        "os.close(1); os.close(2)",
        "os.closerange(0, 3)",
        "sys.stdout = sys.stderr = io.StringIO()",
        "sys.stdout = sys.stderr = None",
        "sys.stdout = sys.stderr = 5",
        "del sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__",
        "sys.stdout.reconfigure(encoding='latin-1', errors='strict'); sys.stderr.reconfigure(encoding='utf-16')",
        "sys.stdout.reconfigure(line_buffering=False); sys.stderr.reconfigure(line_buffering=False)",
        "sys.stdout.reconfigure(write_through=True)",
        "buffers = sys.stdout.detach(), sys.stderr.detach()",
        "sys.stdout.buffer.close(); sys.stderr.buffer.close()",
        "sys.stdout.buffer.detach()",
        "null = os.open(os.devnull, os.O_WRONLY); os.dup2(null, 1); os.dup2(null, 2); os.close(null)",
        "os.dup2(1, 2)",
        "os.set_blocking(1, False); os.set_blocking(2, False)",
        "file = open('elsewhere', 'w'); os.dup2(file.fileno(), 1); sys.stdout = file; print('not here')",
    ];
    for code in tampering {
        let response = worker.call(code);
        assert_eq!(response.outcome, Outcome::Ok, "{code}: {response:?}");
        assert_eq!(response.stdout, "", "{code}");
        let code_after =
            "print('é\\ud800'); n = os.write(1, b'b\\n'); print('c'); print('err', file=sys.stderr)";
        let Response { stdout, stderr, outcome, .. } = worker.call(code_after);
        assert_eq!(
            (outcome, stdout.as_str(), stderr.as_str()),
            (Outcome::Ok, "é\\ud800\nb\nc\n", "err\n"),
            "{code}"
        );
        assert_eq!(worker.value("os.get_blocking(1), os.get_blocking(2)"), "(True, True)", "{code}");
        assert_eq!(worker.value("sys.__stdout__ is sys.stdout, sys.stdout.fileno()"), "(True, 1)", "{code}");
    }
}

#[test]
fn captured_output_is_not_printed() {
    let mut worker = Worker::python();
    let code = "import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as captured: print('inside')
print('outside')
captured.getvalue()";
    let response = worker.call(code);
    assert_eq!((response.stdout.as_str(), response.result.as_deref()), ("outside\n", Some("'inside\\n'")));
}

#[test]
fn any_text_and_any_bytes_arrive() {
    let mut worker = Worker::python();
    worker.output("import os, sys");
    check(&mut worker, "print('nul\\0 \\x1b[31m \\r\\t')", "nul\0 \x1b[31m \r\t\n", "");
    check(
        &mut worker,
        "print('\\ud800 \\udcff'); print('\\udc80', file=sys.stderr)",
        "\\ud800 \\udcff\n",
        "\\udc80\n",
    );
    check(&mut worker, "n = os.write(1, b'\\xff\\xfe ok \\xc3')", "\u{fffd}\u{fffd} ok \u{fffd}", "");
    let code = "for _ in range(50):\n    for byte in '🎉'.encode(): n = os.write(1, bytes([byte]))";
    check(&mut worker, code, &"🎉".repeat(50), "");
}

#[test]
fn streams_that_a_cell_wraps_lose_nothing() {
    let mut worker = Worker::python();
    worker.output("import io, os, sys");
    for wrapped in [
        "io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')",
        "io.TextIOWrapper(open(1, 'wb', closefd=False))",
        "open(1, 'w')",
        "os.fdopen(sys.stdout.fileno(), 'w', 1)",
        "io.TextIOWrapper(os.fdopen(1, 'wb', 0), write_through=True)",
    ] {
        assert_eq!(worker.output(&format!("sys.stdout = {wrapped}; print('in')")), "in\n", "{wrapped}");
        assert_eq!(worker.output("print('next'); os.write(1, b'raw\\n')"), "next\nraw\n", "{wrapped}");
        let code = format!(
            "sys.stderr = {}; print('in', file=sys.stderr)",
            wrapped.replace("stdout", "stderr").replace('1', "2")
        );
        assert_eq!(worker.call(&code).stderr, "in\n", "{code}");
        assert_eq!(worker.call("print('next', file=sys.stderr)").stderr, "next\n", "{code}");
    }
    let tee = "class Tee:
    def __init__(self, to): self.to, self.held = to, ''
    def write(self, text): self.held += text
    def flush(self): self.to.write(self.held); self.held = ''; self.to.flush()
sys.stdout = Tee(sys.stdout); print('held')";
    assert_eq!(worker.output(tee), "held\n");
    assert_eq!(worker.output("print('next')"), "next\n");
}
