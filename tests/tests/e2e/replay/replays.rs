//! Replays of sessions.

use std::fs;

use rlm_core::protocol::Outcome;
use rlm_tests::{Place, Setup};
use serde_json::json;

use super::{ask, keep, replay, replays_alike, run, script_of, session, shown, text, worker};

const BASH: [&str; 6] = [
    "pwd; wc -l <data.txt",
    "x=$(head -n 1 data.txt); echo \"$x\"; (exit 3)",
    "exit 4",
    "cat $PWD/missing",
    "echo 'open",
    "RLM_CONTENT=\"first: $x\" RLM_READY=1",
];

const PYTHON: [&str; 6] = [
    "import os, sys\nrows = open('data.txt').read().split()",
    "print(os.getcwd()); print('err', file=sys.stderr); extra_data",
    "rows[0]",
    "1/0",
    "os._exit(3)",
    "answer['content'] = open('data.txt').read(); answer['ready'] = True",
];

#[test]
fn a_replay_is_green_until_an_input_changes_and_then_names_the_call() {
    let place = Place::new();
    for (setup, codes, changed, diff) in
        [(Setup::bash(), BASH, "2", "    three\n"), (Setup::python(), PYTHON, "3", "    'three'\n")]
    {
        let (kept, _) = session(&place, setup, &[("data.txt", "one\ntwo\n")], &codes);
        let empty = replay(&place, &kept, &[]);
        let (_, hint, status) = shown(&empty);
        assert_eq!(
            (hint.contains("--context or --workdir gives it the files"), status),
            (true, Some(1)),
            "{hint}"
        );
        place.write("data.txt", "one\ntwo\n");
        replays_alike(&place, &kept, &["--context", "data.txt"], 6);
        place.write("data.txt", "three\ntwo\n");
        let different = replay(&place, &kept, &["--context", "data.txt"]);
        let (stdout, stderr, status) = shown(&different);
        assert_eq!((stderr, status), ("", Some(1)), "{stdout}");
        assert!(stdout.starts_with(&format!("call {changed} is different:\n  | ")), "{stdout}");
        assert!(stdout.contains(diff), "{stdout}");
        assert!(
            stdout.contains(
                "\nthe final answer is different:\n  answer:\n    --- recorded\n    +++ replayed\n"
            ),
            "{stdout}"
        );
        assert!(
            stdout.ends_with(&format!("\ndifferent: the final answer, call {changed} of 6\n")),
            "{stdout}"
        );
    }
}

#[test]
fn stopped_calls_are_stopped_again() {
    let place = Place::new();
    for (language, sleep, begin) in [
        ("bash", "echo $RANDOM; sleep 1000", "touch on; sleep 1000"),
        (
            "python",
            "import random, time; print(random.random()); time.sleep(1000)",
            "open('on', 'w'); import time; time.sleep(1000)",
        ),
    ] {
        let mut worker = worker(language);
        assert_eq!(worker.call_with(sleep, json!({"timeout": 0.3})).outcome, Outcome::TimedOut);
        worker.send_call(begin, json!({}));
        worker.wait_for_file("on");
        worker.signal(nix::sys::signal::Signal::SIGINT);
        assert_eq!(worker.receive().outcome, Outcome::Interrupted);
        assert_eq!(ask(&worker, 900, json!({"op": "set", "variables": {"x": 1}})).outcome, Outcome::Ok);
        assert_eq!(ask(&worker, 901, json!({"op": "reset"})).outcome, Outcome::Ok);
        let kept = keep(&place, &worker);
        worker.end();
        replays_alike(&place, &kept, &[], 4);
        let history = kept.join("rlm_history.jsonl");
        let quick =
            fs::read_to_string(&history).unwrap().replace("sleep 1000", ":").replace("time.sleep(1000)", "0");
        fs::write(&history, quick).unwrap();
        let different = replay(&place, &kept, &[]);
        let (stdout, _, status) = shown(&different);
        assert_eq!(status, Some(1));
        assert!(stdout.contains("  outcome: was timed_out, is ok\n"), "{stdout}");
        assert!(stdout.contains("  outcome: was interrupted, is ok\n"), "{stdout}");
    }
}

#[test]
fn a_workdir_is_used_in_place_and_a_context_is_copied() {
    let place = Place::new();
    let (kept, _) =
        session(&place, Setup::bash(), &[("data.txt", "1\n")], &["cat data.txt > copy.txt; cat copy.txt"]);
    let root = place.file("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("data.txt"), "1\n").unwrap();
    replays_alike(&place, &kept, &["--context", "root"], 1);
    assert!(!root.join("copy.txt").exists());
    replays_alike(&place, &kept, &["--workdir", "root"], 1);
    assert!(root.join("copy.txt").exists());
}

#[test]
fn the_calls_of_each_worker_start_in_a_new_session() {
    let place = Place::new();
    let mut worker = rlm_tests::Worker::bash();
    worker.call("x=1; echo kept > file");
    let first = fs::read_to_string(worker.control.history_file()).unwrap();
    worker.end();
    let mut worker = rlm_tests::Worker::bash();
    fs::write(worker.fs_root().join("file"), "kept\n").unwrap();
    let response = worker.call("echo \"${x-unset} $(cat file)\"");
    assert_eq!(response.stdout, "unset kept\n");
    let second = fs::read_to_string(worker.control.history_file()).unwrap();
    worker.end();
    let history = place.write("history.jsonl", &(first + &second));
    replays_alike(&place, &history, &[], 2);
    let script = script_of(&place, &history, &[]);
    assert_eq!(shown(&run(&place, &script)), ("unset kept\n", "", Some(0)), "{script}");
}

#[test]
fn options_must_fit_the_session() {
    let place = Place::new();
    let (kept, _) = session(&place, Setup::bash(), &[], &["echo a"]);
    let refusal = |more: &[&str]| {
        let refused = replay(&place, &kept, more);
        assert_eq!(text(&refused.stdout), "");
        (text(&refused.stderr).to_owned(), refused.status.code())
    };
    let (error, status) = refusal(&["--python"]);
    assert_eq!(
        (error.as_str(), status),
        ("rlm: the session is a bash session: leave --python out\n", Some(2))
    );
    let (error, status) = refusal(&["--language", "python"]);
    assert!(error.ends_with("is a bash session, not python\n") && status == Some(2), "{error}");
    let (error, status) = refusal(&["--rollout", "x"]);
    assert!(
        error.ends_with("is a history, which has no rollouts: omit --rollout\n") && status == Some(2),
        "{error}"
    );
    let (error, status) = refusal(&["--workdir", "missing"]);
    assert!(
        error.starts_with("rlm: cannot use the working directory missing: ") && status == Some(2),
        "{error}"
    );
    let (error, status) = refusal(&["--context", "missing"]);
    assert!(error.contains("missing") && status == Some(3), "{error}");
    let (error, status) = refusal(&["--recorded", "missing"]);
    assert!(error.starts_with("rlm: cannot read the recording missing: ") && status == Some(3), "{error}");
    place.write("there", "");
    let (error, status) = refusal(&["--record", "there"]);
    assert_eq!(
        (error.as_str(), status),
        ("rlm: there exists already: remove it, or record to another file\n", Some(2))
    );
    assert_eq!(refusal(&["--record", "a", "--recorded", "b"]).1, Some(2));
    assert_eq!(refusal(&["--workdir", "a", "--context", "b"]).1, Some(2));
}
