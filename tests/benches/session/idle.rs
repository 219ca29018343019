//! What a session costs while it does nothing.

use std::fs;
use std::time::Duration;

use nix::unistd::Pid;
use rlm_tests::{Worker, wait_until};

use crate::host::PlainHost;
use crate::table::{Limit, Table};

/// How long a worker is watched doing nothing.
const WATCHED: Duration = Duration::from_secs(2);

/// Calls before that, so that the session is one in use.
const CALLS: usize = 100;

pub(crate) fn bench(table: &mut Table) {
    let worker = Worker::bash();
    let mut host = PlainHost::new(&worker.control);
    for _ in 0..CALLS {
        host.exchange(br#"{"code": ":", "seq": 1}"#);
        host.response();
    }
    let both = [worker.pid(), worker.server()];
    memory(table, "private memory of an idle worker", both, worker.interpreter());

    for pid in both {
        wait_until("the worker sleeps", || status(pid, "State:").starts_with('S'));
    }
    let before = both.map(wake_ups);
    // This is what is measured: the time in which nothing should happen.
    std::thread::sleep(WATCHED);
    let after = both.map(wake_ups);
    let [first, second] = [after[0] - before[0], after[1] - before[1]];
    table.row(
        "wake-ups of an idle worker in 2 s",
        "",
        &format!("{first} + {second}"),
        "",
        &Limit::AtMost(0.0).judge((first + second) as f64, ""),
    );

    host.exchange(br#"{"code": "head -c 16000000 /dev/zero | tr '\\0' x", "seq": 1}"#);
    assert_eq!(host.response().stdout.len(), 16_000_000);
    memory(table, "private memory after a call with 16 MB of output", both, worker.interpreter());
    worker.end();
}

fn memory(table: &mut Table, what: &str, both: [Pid; 2], shell: Pid) {
    let [first, second] = both.map(private_kib);
    table.row(
        what,
        &format!("its bash {} KiB", private_kib(shell)),
        &format!("{first} + {second} = {} KiB", first + second),
        "",
        &Limit::AtMost(2048.0).judge((first + second) as f64, " KiB"),
    );
}

/// Memory that a process shares with nobody.
fn private_kib(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let lines =
        text.lines().filter(|line| line.starts_with("Private_Clean:") || line.starts_with("Private_Dirty:"));
    lines.map(|line| line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

/// How often the threads of a process have waited for something so far.
fn wake_ups(pid: Pid) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    assert_eq!(threads.count(), 1, "an idle worker has no helpers");
    status(pid, "voluntary_ctxt_switches:").parse().unwrap()
}

fn status(pid: Pid, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(field));
    value.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
}
