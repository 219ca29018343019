//! Many sessions at once.

use std::fs;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use nix::unistd::Pid;
use rlm_core::protocol::Outcome;
use rlm_env::Session;
use rlm_tests::children;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::language::Language;
use crate::subject::{Effort, Subject, measure};
use crate::table::{Limit, Table};

const SESSIONS: usize = 50;
const CALLS: usize = 20;
const ALL_CALLS: f64 = (SESSIONS * CALLS) as f64;

/// Number of repetitions while processor times are measured.
const WATCHED_RUNS: u32 = 10;

const EFFORT: Effort = Effort {
    criterion: Duration::from_millis(2000),
    rounds: 10,
    runs: 1,
    throughput: Some(Throughput::Elements((SESSIONS * CALLS) as u64)),
};

pub(crate) fn bench(criterion: &mut Criterion, table: &mut Table) {
    let mut one_thread = Crowd::start(Builder::new_current_thread().enable_all().build().unwrap());
    let mut two_threads =
        Crowd::start(Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());
    let mut lone = Crowd::of(1, Builder::new_current_thread().enable_all().build().unwrap());
    let subjects = [
        Subject::timed("a session alone, 1000 calls", || lone.call_all(SESSIONS * CALLS)),
        Subject::timed("50 sessions, current_thread", || one_thread.call_all(CALLS)),
        Subject::timed("50 sessions, 2 threads", || two_threads.call_all(CALLS)),
    ];
    let [alone, one, two] = measure(criterion, "many sessions", &EFFORT, subjects);
    let rate = |time: Duration| ALL_CALLS / time.as_secs_f64();
    for (time, what) in [(one, "tokio current_thread"), (two, "tokio with 2 threads")] {
        table.row(
            &format!("50 sessions × 20 calls at once, {what}, against one session alone"),
            &format!("{:.0}/s", rate(alone)),
            &format!("{:.0}/s", rate(time)),
            &format!("{:.2}", rate(time) / rate(alone)),
            &Limit::AtLeast(5000.0).judge(rate(time), "/s"),
        );
    }
    let (name, faster) =
        if one < two { ("current_thread", &mut one_thread) } else { ("2 threads", &mut two_threads) };
    let shares = faster.processor_shares();
    table.row(&format!("where the processors are meanwhile ({name})"), "", &shares, "", "");
    for crowd in [one_thread, two_threads, lone] {
        crowd.close();
    }
}

/// Sessions on a runtime.
struct Crowd {
    runtime: Runtime,
    sessions: Vec<Session>,
    _fs_root: TempDir,
}

impl Crowd {
    fn start(runtime: Runtime) -> Self {
        Self::of(SESSIONS, runtime)
    }

    fn of(count: usize, runtime: Runtime) -> Self {
        let bash = Language::bash();
        let fs_root = tempfile::tempdir().unwrap();
        let sessions = runtime.block_on(async {
            let mut sessions = Vec::new();
            for _ in 0..count {
                sessions.push(Session::start(bash.session_config(&fs_root)).await.unwrap());
            }
            sessions
        });
        Self { runtime, sessions, _fs_root: fs_root }
    }

    /// Has every session make its calls, all at once.
    fn call_all(&mut self, calls: usize) {
        let sessions = std::mem::take(&mut self.sessions);
        self.sessions = self.runtime.block_on(async {
            let running: Vec<_> =
                sessions.into_iter().map(|session| tokio::spawn(call_often(session, calls))).collect();
            let mut sessions = Vec::new();
            for task in running {
                sessions.push(task.await.unwrap());
            }
            sessions
        });
    }

    /// Shares of the machine's processor time: host, workers, shells, and the rest.
    fn processor_shares(&mut self) -> String {
        let workers: Vec<Pid> = self
            .sessions
            .iter()
            .map(|session| Pid::from_raw(i32::try_from(session.pid()).unwrap()))
            .collect();
        let servers: Vec<Pid> = workers.iter().flat_map(|pid| children(*pid)).collect();
        let shells: Vec<Pid> = servers.iter().flat_map(|pid| children(*pid)).collect();
        let parts = [vec![Pid::this()], [workers, servers].concat(), shells];
        let used = || parts.each_ref().map(|pids| pids.iter().map(processor_time).sum::<Duration>());
        let (before, begun) = (used(), Instant::now());
        for _ in 0..WATCHED_RUNS {
            self.call_all(CALLS);
        }
        let whole = begun.elapsed() * std::thread::available_parallelism().unwrap().get() as u32;
        let after = used();
        let [host, workers, shells] =
            [0, 1, 2].map(|at| 100.0 * (after[at] - before[at]).as_secs_f64() / whole.as_secs_f64());
        let rest = 100.0 - host - workers - shells;
        format!("host {host:.0} %, workers {workers:.0} %, shells {shells:.0} %, idle or other {rest:.0} %")
    }

    fn close(self) {
        self.runtime.block_on(async {
            for session in self.sessions {
                session.close().await.unwrap();
            }
        });
    }
}

async fn call_often(mut session: Session, calls: usize) -> Session {
    for _ in 0..calls {
        let response = session.execute(":").await.unwrap();
        assert_eq!(response.outcome, Outcome::Ok);
    }
    session
}

/// Processor time of a process so far, with nanosecond precision.
fn processor_time(pid: &Pid) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let times = threads.map(|thread| {
        let text = fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
        Duration::from_nanos(text.split_ascii_whitespace().next().unwrap().parse().unwrap())
    });
    times.sum()
}
