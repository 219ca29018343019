//! While a worker runs, nothing grows.

use std::fs;

use nix::unistd::Pid;
use rlm_tests::{Worker, open_descriptors};

/// Anonymous memory of a process, in KiB: pages of files would count for the only process that maps them at the moment.
fn anonymous_kib(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn ten_thousand_cells_leave_nothing_behind() {
    let mut worker = Worker::python();
    // Cells of every kind: values, functions that replace each other, errors, output, answers, tasks.
    let round = |worker: &mut Worker, count: usize| {
        for at in 0..count {
            let number = worker.call(match at % 6 {
                0 => "1 + 1",
                1 => "def f(n):\n    return [n for _ in range(3)]\nf(2)",
                2 => "1 / 0",
                3 => "print('x' * 100); import sys; print('y', file=sys.stderr)",
                4 => "answer['content'] = 'text' * 100",
                _ => "import asyncio\nawait asyncio.sleep(0)",
            });
            assert!(number.hint.is_none(), "{number:?}");
        }
    };
    round(&mut worker, 600);
    let pids = [worker.server(), worker.interpreter()];
    let before = (pids.map(anonymous_kib), pids.map(open_descriptors));
    round(&mut worker, rlm_tests::scaled(10_000, 2_000));
    let after = (pids.map(anonymous_kib), pids.map(open_descriptors));
    assert_eq!(after.1, before.1, "descriptors");
    for (before, after) in before.0.into_iter().zip(after.0) {
        // Five percent, and the memory that the allocator may hold back at one moment and not at the other.
        assert!(after <= before + before / 20 + 128, "{before} KiB before, {after} KiB after");
    }
}
