//! A bash call that prints a lot.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use nix::pty::openpty;
use nix::sys::termios::{LocalFlags, OutputFlags, SetArg, tcgetattr, tcsetattr};
use rlm_tests::Worker;

use crate::host::PlainHost;
use crate::language::Language;
use crate::subject::{Effort, Subject, measure};
use crate::table::{Limit, Table, time};

const MIB: usize = 1 << 20;
const SMALL: usize = 16 * MIB;
const LARGE: usize = 64 * MIB;

const EFFORT: Effort = Effort {
    criterion: Duration::from_millis(2000),
    rounds: 5,
    runs: 1,
    throughput: Some(Throughput::Bytes(LARGE as u64)),
};

pub(crate) fn bench(criterion: &mut Criterion, table: &mut Table) {
    let worker = Worker::bash();
    let mut host = PlainHost::new(&worker.control);
    let subjects = [
        Subject::timed("64 MiB, bare reader", || read_from_terminal(LARGE)),
        Subject::timed("64 MiB, one call", || call(&mut host, LARGE)),
    ];
    let [floor, large] = measure(criterion, "output", &EFFORT, subjects);
    let rate = |time: Duration| (LARGE / MIB) as f64 / time.as_secs_f64();
    let ratio = rate(large) / rate(floor);
    table.row(
        "bash: 64 MiB of output in one call, against a bare reader of the terminal",
        &format!("{:.0} MiB/s", rate(floor)),
        &format!("{:.0} MiB/s", rate(large)),
        &format!("{ratio:.2}"),
        &Limit::AtLeast(0.7).judge(ratio, ""),
    );

    let small = Effort { throughput: Some(Throughput::Bytes(SMALL as u64)), ..EFFORT };
    let subject = [Subject::timed("16 MiB, one call", || call(&mut host, SMALL))];
    let [small] = measure(criterion, "output", &small, subject);
    let ratio = large.as_secs_f64() / small.as_secs_f64();
    let about = Limit::AtMost(5.0).judge(ratio, "");
    table.row(
        "bash: 64 MiB of output, against 16 MiB",
        &time(small),
        &time(large),
        &format!("{ratio:.2}"),
        &about,
    );
    worker.end();
}

/// A command that prints several times as fast as a terminal.
fn producer(bytes: usize) -> String {
    format!(r"head -c {bytes} /dev/zero | tr '\\0' x")
}

fn call(host: &mut PlainHost, bytes: usize) {
    let request =
        format!(r#"{{"code": "{}", "seq": 1, "max_output_bytes": {}}}"#, producer(bytes), 100 * MIB);
    let response = host.exchange(request.as_bytes());
    assert!(response.len() > bytes, "{}", String::from_utf8_lossy(&response[..response.len().min(1000)]));
}

/// Reads the producer's output from a terminal that is set up like a session's.
fn read_from_terminal(bytes: usize) {
    let terminal = openpty(None, None).unwrap();
    let mut settings = tcgetattr(&terminal.slave).unwrap();
    settings.local_flags.remove(LocalFlags::ECHO);
    settings.output_flags.remove(OutputFlags::ONLCR);
    tcsetattr(&terminal.slave, SetArg::TCSANOW, &settings).unwrap();
    let code = producer(bytes).replace(r"\\", r"\");
    let mut command = Language::bash().bare_command(&code);
    let mut child = command.stdin(Stdio::null()).stdout(terminal.slave).spawn().unwrap();
    // `command` holds the other end of the terminal until it is dropped.
    drop(command);
    let mut master = File::from(terminal.master);
    let mut buffer = vec![0; 64 << 10];
    let mut missing = bytes;
    while missing > 0 {
        missing -= master.read(&mut buffer).unwrap();
    }
    assert!(child.wait().unwrap().success());
}
