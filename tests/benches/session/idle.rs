//! The cost of a session while it does nothing, and after long use.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::unistd::Pid;
use rlm_tests::{Worker, wait_until};

use crate::host::PlainHost;
use crate::language::Language;
use crate::table::{Limit, Table};

/// Time for which an idle worker is watched.
const WATCHED: Duration = Duration::from_secs(2);

/// Calls before that, so that the session has been used.
const CALLS: usize = 100;

/// Calls of a session that has been used for a long time.
const MANY_CALLS: usize = 10_000;

/// Cells of those calls, in turn. None defines a class: the sources of the latest classes are kept on purpose.
const CELLS: [&str; 4] = ["1+1", "print('a line')", "def f(): return g\\nf", "1/0"];

pub(crate) fn bench(table: &mut Table, languages: &[Language]) {
    for language in languages {
        bench_language(table, language);
    }
}

fn bench_language(table: &mut Table, language: &Language) {
    // Two workers of each kind: memory that the kernel could share between sessions must not count for either.
    let workers = [language.worker(), language.worker()];
    let bare = [BareInterpreter::start(language), BareInterpreter::start(language)];
    let mut hosts = workers.each_ref().map(|worker| PlainHost::new(&worker.control));
    for host in &mut hosts {
        for _ in 0..CALLS {
            host.call(language.least_call());
        }
    }
    let ([worker, other], [host, _]) = (workers, &mut hosts);
    let name = language.name();
    memory(table, &format!("{name}: private memory of an idle worker"), &worker);
    let [floor, interpreter] = [bare[0].pid(), worker.interpreter()].map(private_kib);
    let (limit, ratio) = (interpreter_limit(language), interpreter as f64 / floor as f64);
    table.row(
        &format!("{name}: private memory of the interpreter, against a bare one"),
        &format!("{floor} KiB"),
        &format!("{interpreter} KiB"),
        &format!("{ratio:.2}"),
        &limit.judge(ratio, ""),
    );
    watch(table, name, [worker.pid(), worker.server(), worker.interpreter()]);

    host.call(match language {
        Language::Bash(_) => r"head -c 16000000 /dev/zero | tr '\\0' x",
        Language::Python(_) => "print('x' * 16_000_000, end='')",
    });
    assert_eq!(host.response().stdout.len(), 16_000_000);
    memory(table, &format!("{name}: private memory after a call with 16 MB of output"), &worker);
    if let Language::Python(_) = language {
        growth(table, name, &other, &mut hosts[1]);
    }
    for worker in [worker, other] {
        worker.end();
    }
}

fn interpreter_limit(language: &Language) -> Limit {
    match language {
        Language::Bash(_) => Limit::None,
        Language::Python(_) => Limit::AtMost(1.3),
    }
}

/// Counts the wake-ups of processes that should sleep.
fn watch(table: &mut Table, name: &str, pids: [Pid; 3]) {
    for pid in pids {
        wait_until("the session sleeps", || status(pid, "State:").starts_with('S'));
    }
    let before = pids.map(wake_ups);
    // The measurement: a time in which nothing should happen.
    std::thread::sleep(WATCHED);
    let after = pids.map(wake_ups);
    let [guard, server, interpreter] = [0, 1, 2].map(|at| after[at] - before[at]);
    table.row(
        &format!("{name}: wake-ups in 2 s, worker and interpreter"),
        "",
        &format!("{guard} + {server}, {interpreter}"),
        "",
        &Limit::AtMost(0.0).judge((guard + server + interpreter) as f64, ""),
    );
}

/// Measures the growth of a session's memory with use.
fn growth(table: &mut Table, name: &str, worker: &Worker, host: &mut PlainHost) {
    let mut run = |calls: usize| {
        for at in 0..calls {
            host.exchange(format!(r#"{{"code": "{}", "seq": 1}}"#, CELLS[at % CELLS.len()]).as_bytes());
        }
        [both(worker).map(private_kib).iter().sum(), private_kib(worker.interpreter())]
    };
    let before: [u64; 2] = run(CALLS);
    let after: [u64; 2] = run(MANY_CALLS - CALLS);
    for (at, what) in ["worker", "interpreter"].into_iter().enumerate() {
        let percent = 100.0 * (after[at] as f64 / before[at] as f64 - 1.0);
        table.row(
            &format!("{name}: private memory of the {what} after 10,000 cells, against 100"),
            &format!("{} KiB", before[at]),
            &format!("{} KiB", after[at]),
            &format!("{percent:+.1} %"),
            &Limit::AtMost(5.0).judge(percent, " %"),
        );
    }
}

fn memory(table: &mut Table, what: &str, worker: &Worker) {
    let [guard, server] = both(worker).map(private_kib);
    table.row(
        what,
        &format!("its interpreter {} KiB", private_kib(worker.interpreter())),
        &format!("{guard} + {server} = {} KiB", guard + server),
        "",
        &Limit::AtMost(2048.0).judge((guard + server) as f64, " KiB"),
    );
}

/// The worker's own processes.
fn both(worker: &Worker) -> [Pid; 2] {
    [worker.pid(), worker.server()]
}

/// An interpreter that has done nothing, and waits.
struct BareInterpreter {
    child: Child,
}

impl BareInterpreter {
    fn start(language: &Language) -> Self {
        let code = match language {
            Language::Bash(_) => "echo; read",
            Language::Python(_) => "print(flush=True); input()",
        };
        let mut command = language.bare_command(code);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let bare = Self { child };
        wait_until("the interpreter sleeps", || status(bare.pid(), "State:").starts_with('S'));
        bare
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }
}

impl Drop for BareInterpreter {
    fn drop(&mut self) {
        // If it died, it has no memory to measure, which was noticed.
        let _died_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Private memory of a process.
fn private_kib(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let lines =
        text.lines().filter(|line| line.starts_with("Private_Clean:") || line.starts_with("Private_Dirty:"));
    lines.map(|line| line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

/// Number of times that the threads of a process have waited so far.
fn wake_ups(pid: Pid) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    assert_eq!(threads.count(), 1, "an idle session has no helpers");
    status(pid, "voluntary_ctxt_switches:").parse().unwrap()
}

fn status(pid: Pid, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(field));
    value.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
}
