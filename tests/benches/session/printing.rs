//! Python cells that print a lot, against the same statements in a Python whose standard output is a plain pipe.

use std::cell::RefCell;
use std::fmt;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use criterion::{Criterion, Throughput};
use rlm_core::limits::DEFAULT_MAX_OUTPUT_BYTES;
use rlm_tests::Worker;

use crate::host::PlainHost;
use crate::language::Language;
use crate::subject::{Effort, Subject, measure};
use crate::table::{Limit, Table};

const MIB: usize = 1 << 20;
const LARGE: usize = 64 * MIB;

/// More than any program here prints.
const EVERYTHING: usize = 100 * MIB;

/// A program that prints, in one call.
struct Program {
    name: &'static str,
    /// Runs once, before anything is timed.
    preparation: &'static str,
    /// Prints; one line of source.
    printing: &'static str,
    bytes: usize,
}

const ONE_PRINT: Program = Program {
    name: "64 MiB in one print",
    preparation: "text = 'x' * ((64 << 20) - 1)",
    printing: "print(text)",
    bytes: LARGE,
};

const LINES: Program = Program {
    name: "64 MiB in lines of 1 KiB",
    preparation: "line = 'x' * 1023",
    printing: "for _ in range(64 << 10): print(line)",
    bytes: LARGE,
};

const SHORT_PRINTS: Program = Program {
    name: "500,000 short prints",
    preparation: "",
    printing: "for _ in range(500_000): print('short')",
    bytes: 3_000_000,
};

/// Buffering of the output of a bare Python.
#[derive(Clone, Copy)]
enum Buffering {
    /// Python's default if standard output is a pipe.
    ByBlock,
    /// Line by line, as in a session, so that output is visible immediately.
    ByLine,
}

impl fmt::Display for Buffering {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ByBlock => "buffered by block",
            Self::ByLine => "buffered by line",
        })
    }
}

pub(crate) fn bench(criterion: &mut Criterion, table: &mut Table, python: &Language) {
    let worker = python.worker();
    let mut session = PrintingSession::new(&worker);
    for (program, buffering) in
        [(ONE_PRINT, Buffering::ByBlock), (LINES, Buffering::ByBlock), (LINES, Buffering::ByLine)]
    {
        throughput(
            criterion,
            table,
            &mut BarePrinter::start(python, &program, buffering),
            &mut session,
            &program,
        );
    }
    let mut bare = BarePrinter::start(python, &SHORT_PRINTS, Buffering::ByLine);
    session.prepare(&SHORT_PRINTS);
    let subjects = [
        Subject::timed("bare reader", || bare.print()),
        Subject::timed("one call", || session.print(&SHORT_PRINTS, DEFAULT_MAX_OUTPUT_BYTES)),
    ];
    let [floor, call] = measure(criterion, SHORT_PRINTS.name, &effort(SHORT_PRINTS.bytes), subjects);
    let what = format!("Python: {}, against a bare reader of a pipe, {}", SHORT_PRINTS.name, bare.buffering);
    table.times(&what, floor, call, Limit::AtMost(1.5));
    worker.end();
}

fn throughput(
    criterion: &mut Criterion,
    table: &mut Table,
    bare: &mut BarePrinter,
    session: &mut PrintingSession,
    program: &Program,
) {
    session.prepare(program);
    let session = RefCell::new(session);
    let group = format!("{}, {}", program.name, bare.buffering);
    let subjects = [
        Subject::timed("bare reader", || bare.print()),
        Subject::repeated("one call, until it has printed", || {
            session.borrow_mut().print(program, DEFAULT_MAX_OUTPUT_BYTES);
            Duration::from_secs_f64(session.borrow().host.response().execution_time)
        }),
        Subject::timed("one call, 16 MiB returned", || {
            session.borrow_mut().print(program, DEFAULT_MAX_OUTPUT_BYTES);
        }),
        Subject::timed("one call, all returned", || session.borrow_mut().print(program, EVERYTHING)),
    ];
    let [floor, printed, cut, whole] = measure(criterion, &group, &effort(program.bytes), subjects);
    let rate = |time: Duration| (program.bytes / MIB) as f64 / time.as_secs_f64();
    for (until, call) in
        [("until the worker has it", printed), ("16 MiB returned", cut), ("all returned", whole)]
    {
        let ratio = rate(call) / rate(floor);
        table.row(
            &format!(
                "Python: {}, {until}, against a bare reader of a pipe, {}",
                program.name, bare.buffering
            ),
            &format!("{:.0} MiB/s", rate(floor)),
            &format!("{:.0} MiB/s", rate(call)),
            &format!("{ratio:.2}"),
            &Limit::AtLeast(0.9).judge(ratio, ""),
        );
    }
}

fn effort(bytes: usize) -> Effort {
    Effort {
        criterion: Duration::from_millis(2000),
        rounds: 7,
        runs: 1,
        throughput: Some(Throughput::Bytes(bytes as u64)),
    }
}

/// A session that prints on request.
struct PrintingSession {
    host: PlainHost,
}

impl PrintingSession {
    fn new(worker: &Worker) -> Self {
        Self { host: PlainHost::new(&worker.control) }
    }

    fn prepare(&mut self, program: &Program) {
        self.host.call(program.preparation);
    }

    /// Prints from the request to the last byte of the response.
    fn print(&mut self, program: &Program, limit: usize) {
        let request = format!(r#"{{"code": "{}", "seq": 1, "max_output_bytes": {limit}}}"#, program.printing);
        let response = self.host.exchange(request.as_bytes());
        let expected = program.bytes.min(limit);
        assert!(
            response.len() > expected,
            "{}",
            String::from_utf8_lossy(&response[..response.len().min(1000)])
        );
    }
}

/// A running Python that prints on request.
struct BarePrinter {
    child: Child,
    orders: ChildStdin,
    printed: ChildStdout,
    buffering: Buffering,
    buffer: Vec<u8>,
    bytes: usize,
}

impl BarePrinter {
    fn start(python: &Language, program: &Program, buffering: Buffering) -> Self {
        let Program { preparation, printing, bytes, .. } = *program;
        let reconfigure = match buffering {
            Buffering::ByBlock => "",
            Buffering::ByLine => "sys.stdout.reconfigure(line_buffering=True)",
        };
        let code = format!(
            "import sys\n{reconfigure}\n{preparation}\nwhile sys.stdin.read(1):\n    {printing}\n    sys.stdout.flush()",
        );
        let mut command = python.bare_command(&code);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, printed) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, orders, printed, buffering, buffer: vec![0; 64 << 10], bytes }
    }

    /// Prints from the request to the last byte of output.
    fn print(&mut self) {
        self.orders.write_all(b"x").unwrap();
        let mut missing = self.bytes;
        while missing > 0 {
            match self.printed.read(&mut self.buffer).unwrap() {
                0 => panic!("the bare Python ended"),
                count => missing -= count,
            }
        }
    }
}

impl Drop for BarePrinter {
    fn drop(&mut self) {
        // If it died, its reader has already failed.
        let _died_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}
