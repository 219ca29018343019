//! A call of `:`, there and back.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use criterion::Criterion;
use nix::unistd::Pid;
use rlm_core::protocol::Outcome;
use rlm_env::Session;
use rlm_tests::Worker;
use tokio::runtime::Runtime;

use crate::fifo_floor::{FifoFloor, RESPONSE_BYTES};
use crate::host::{PlainHost, session_config};
use crate::placement::Apart;
use crate::subject::{Effort, Subject, measure};
use crate::table::{Limit, Table};

const EFFORT: Effort =
    Effort { criterion: Duration::from_millis(1000), rounds: 10, runs: 200, throughput: None };

/// The limit on the ratio to the floor. It is meant for two cores: the system may put both sides of the floor on one
/// core, where a wake-up costs half as much.
const LIMIT_ON_TWO_CORES: Limit = Limit::Aim(3.0, 6.0);

pub(crate) fn bench(criterion: &mut Criterion, table: &mut Table) {
    bench_placed(criterion, table, None);
    if let Some(apart) = Apart::new() {
        bench_placed(criterion, table, Some(&apart));
    } else {
        table.row("round trip, host and worker on two cores", "", "this machine has one core", "", "");
    }
}

fn bench_placed(criterion: &mut Criterion, table: &mut Table, apart: Option<&Apart>) {
    let peer = FifoFloor::start();
    let worker = Worker::bash();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fs_root = tempfile::tempdir().unwrap();
    let session = RefCell::new(runtime.block_on(Session::start(session_config(&fs_root))).unwrap());
    if let Some(apart) = apart {
        let session_pid = Pid::from_raw(i32::try_from(session.borrow().pid()).unwrap());
        for pid in [peer.pid(), worker.pid(), session_pid] {
            apart.move_peer(pid);
        }
    }
    let (place, limit) =
        if apart.is_some() { ("on two cores", LIMIT_ON_TWO_CORES) } else { ("unpinned", Limit::None) };

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
                worker_host.exchange(format!(r#"{{"code": ":", "seq": {seq}}}"#).as_bytes());
                begun.elapsed()
            };
            let times = (0..count).map(one).collect();
            assert_eq!(worker_host.response().seq, seq);
            times
        }),
        Subject::new("rlm-env session", |count| session_calls(&runtime, &mut session.borrow_mut(), count)),
    ];
    let [floor, plain, by_session] = measure(criterion, &format!("round trip, {place}"), &EFFORT, subjects);
    table.times(&format!("round trip, plain host, {place}"), floor, plain, limit);
    table.times(&format!("round trip, `rlm-env` session, {place}"), floor, by_session, limit);
    worker.end();
    runtime.block_on(session.into_inner().close()).unwrap();
}

fn session_calls(runtime: &Runtime, session: &mut Session, count: u64) -> Vec<Duration> {
    runtime.block_on(async {
        let mut times = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            let response = session.execute(":").await.unwrap();
            times.push(begun.elapsed());
            assert_eq!(response.outcome, Outcome::Ok);
        }
        times
    })
}
