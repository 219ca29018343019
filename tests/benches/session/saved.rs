//! The time to save a session, and to go on with it in another worker.

use std::path::Path;
use std::time::{Duration, Instant};

use rlm_core::protocol::Outcome;
use rlm_tests::Worker;
use serde_json::json;

use crate::table::{Limit, Table, time};

/// Values of about 10 MB, pickled: rows as of a table, and lines of a text.
const VALUES: &str = "rows = [{'id': i, 'name': f'name {i}', 'tags': ['a', f'b{i}'], 'score': i * 0.5} for i in range(90_000)]\n\
                      text = [f'line {i} of a longer document, as a model reads it' for i in range(90_000)]";

/// The same values through `pickle` alone, and a file.
const PICKLE: &str = "import pickle, time\n\
    def timed(do):\n    begun = time.perf_counter(); do(); return time.perf_counter() - begun\n\
    def dump():\n    with open('plain', 'wb') as file: pickle.dump({'rows': rows, 'text': text}, file, 5)\n\
    def load():\n    with open('plain', 'rb') as file: pickle.load(file)\n\
    print(timed(dump), timed(load))";

/// Shells: with 100 variables and 20 functions, with 1,000 variables, and with arrays of 5,000 elements.
const SHELLS: [(&str, &str); 3] = [
    (
        "a bash session",
        "for ((i = 0; i < 100; i++)); do declare v$i=\"value $i\"; done; a=({1..100}); declare -A m=([k]=v); \
         for ((i = 0; i < 20; i++)); do eval \"f$i() { echo \\$1; }\"; done; shopt -s extglob",
    ),
    ("one with 1,000 variables", "for ((i = 0; i < 1000; i++)); do declare v$i=\"value $i\"; done"),
    (
        "one with an array of 5,000 elements",
        "for ((i = 0; i < 5000; i++)); do a[i]=\"line $i of a text\"; done",
    ),
];

/// Number of rounds, whose median counts.
const ROUNDS: usize = 9;

/// Longest time to save or load a bash session.
const BASH_LIMIT: Duration = Duration::from_millis(20);

pub(crate) fn bench(table: &mut Table) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("session");
    let mut worker = Worker::python();
    worker.output(VALUES);
    let mut samples = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        let plain = worker.output(PICKLE);
        let plain = plain.split_whitespace().map(|seconds| Duration::from_secs_f64(seconds.parse().unwrap()));
        let ours = [pass(&worker, "save", &file), pass(&Worker::python(), "load", &file)];
        for (samples, sample) in samples.iter_mut().zip(plain.chain(ours)) {
            samples.push(sample);
        }
    }
    let [dump, plain_load, save, load] = samples.map(median);
    let megabytes = std::fs::metadata(&file).unwrap().len() / 1_000_000;
    table.times(
        &format!("save {megabytes} MB of Python, against `pickle.dump`"),
        dump,
        save,
        Limit::AtMost(1.5),
    );
    table.times("load them in another worker, against `pickle.load`", plain_load, load, Limit::AtMost(1.5));

    for (what, code) in SHELLS {
        let mut worker = Worker::bash();
        worker.output(code);
        let rounds =
            (0..ROUNDS).map(|_| (pass(&worker, "save", &file), pass(&Worker::bash(), "load", &file)));
        let (save, load): (Vec<_>, Vec<_>) = rounds.unzip();
        for (how, took) in [("save", median(save)), ("load", median(load))] {
            let limit =
                Limit::AtMost(BASH_LIMIT.as_secs_f64() * 1000.0).judge(took.as_secs_f64() * 1000.0, " ms");
            table.row(&format!("{how} {what}"), "", &time(took), "", &limit);
        }
    }
}

/// The time of a request.
fn pass(worker: &Worker, op: &str, file: &Path) -> Duration {
    let begun = Instant::now();
    worker.send(json!({"op": op, "file": file, "seq": 0}).to_string().as_bytes());
    let response = worker.receive();
    let took = begun.elapsed();
    assert_eq!(response.outcome, Outcome::Ok, "{response:?}");
    took
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    samples[samples.len() / 2]
}
