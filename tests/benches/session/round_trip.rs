//! The round trip of a minimal call.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use nix::unistd::Pid;
use rlm_core::protocol::Outcome;
use rlm_env::session::{OutputObserver, OutputStream};
use rlm_env::{Session, SessionConfig};
use tokio::runtime::Runtime;

use crate::fifo_floor::{FifoFloor, RESPONSE_BYTES};
use crate::host::PlainHost;
use crate::language::Language;
use crate::placement::Apart;
use crate::subject::{Effort, Subject, measure};
use crate::table::{Limit, Table};

const EFFORT: Effort =
    Effort { criterion: Duration::from_millis(1000), rounds: 10, runs: 200, throughput: None };

/// The limit on the ratio to the floor, for two cores: on one core, where the system may put both sides of the floor, a
/// wake-up costs half as much.
fn limit_on_two_cores(language: &Language) -> Limit {
    match language {
        Language::Bash(_) => Limit::Aim(3.0, 6.0),
        Language::Python(_) => Limit::AtMost(3.0),
    }
}

pub(crate) fn bench(criterion: &mut Criterion, table: &mut Table, languages: &[Language]) {
    for language in languages {
        bench_placed(criterion, table, language, None);
    }
    if let Some(apart) = Apart::new() {
        for language in languages {
            bench_placed(criterion, table, language, Some(&apart));
        }
    } else {
        table.row("round trip, host and worker on two cores", "", "this machine has one core", "", "");
    }
}

fn bench_placed(criterion: &mut Criterion, table: &mut Table, language: &Language, apart: Option<&Apart>) {
    let peer = FifoFloor::start();
    let worker = language.worker();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fs_root = tempfile::tempdir().unwrap();
    let start = |output| {
        let config = SessionConfig { output, ..language.session_config(&fs_root) };
        RefCell::new(runtime.block_on(Session::start(config)).unwrap())
    };
    let (session, watched) = (start(None), start(Some(Arc::new(Unshown))));
    if let Some(apart) = apart {
        let [session_pid, watched_pid] =
            [&session, &watched].map(|session| Pid::from_raw(i32::try_from(session.borrow().pid()).unwrap()));
        for pid in [peer.pid(), worker.pid(), session_pid, watched_pid] {
            apart.move_peer(pid);
        }
    }
    let (place, limit) = if apart.is_some() {
        ("on two cores", limit_on_two_cores(language))
    } else {
        ("unpinned", Limit::None)
    };

    let code = language.least_call();
    let mut floor_host = PlainHost::new(&peer.control);
    let mut worker_host = PlainHost::new(&worker.control);
    let mut seq = 0;
    let subjects = [
        Subject::timed("fifo floor", || {
            let response = floor_host.exchange(br#"{"code": ":", "seq": 1000}"#);
            assert_eq!(response.len(), RESPONSE_BYTES);
        }),
        Subject::new("plain host", |count| {
            let one = |_| {
                seq += 1;
                let begun = Instant::now();
                worker_host.exchange(format!(r#"{{"code": "{code}", "seq": {seq}}}"#).as_bytes());
                begun.elapsed()
            };
            let times = (0..count).map(one).collect();
            assert_eq!(worker_host.response().seq, seq);
            times
        }),
        Subject::new("rlm-env session", |count| {
            session_calls(&runtime, &mut session.borrow_mut(), code, count)
        }),
        Subject::new("rlm-env session, watched", |count| {
            session_calls(&runtime, &mut watched.borrow_mut(), code, count)
        }),
    ];
    let [floor, plain, by_session, by_watched] =
        measure(criterion, &format!("round trip in {}, {place}", language.name()), &EFFORT, subjects);
    let what = format!("{}: round trip of `{code}`", language.name());
    table.times(&format!("{what}, plain host, {place}"), floor, plain, limit);
    table.times(&format!("{what}, `rlm-env` session, {place}"), floor, by_session, limit);
    let what = format!("{what}, output watched as it comes, beside the same not watched, {place}");
    table.times(&what, by_session, by_watched, Limit::AtMost(1.2));
    worker.end();
    for session in [session, watched] {
        runtime.block_on(session.into_inner().close()).unwrap();
    }
}

/// Takes the output of calls, and shows it nowhere.
#[derive(Debug)]
struct Unshown;

impl OutputObserver for Unshown {
    fn output(&self, _stream: OutputStream, _text: &str) {}
}

fn session_calls(runtime: &Runtime, session: &mut Session, code: &str, count: u64) -> Vec<Duration> {
    runtime.block_on(async {
        let mut times = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            let response = session.execute(code).await.unwrap();
            times.push(begun.elapsed());
            assert_eq!(response.outcome, Outcome::Ok);
        }
        times
    })
}
