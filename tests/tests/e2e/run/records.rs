//! Recorded runs: `rlm runs`, and `rlm view` without a file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel};

use super::{answering, ask, asking, shown, start, text};

fn run(place: &Place, args: &[&str]) {
    let model = ScriptedModel::start([answering("42").usage(100, 5)]);
    let output = ask(place, &model, &[&["run"], args].concat());
    assert_eq!(shown(&output), ("42\n", "", Some(0)));
}

fn listed(place: &Place) -> Vec<String> {
    let output = place.rlm(&["runs"]).output().unwrap();
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn viewed(place: &Place, args: &[&str]) -> String {
    let output = place.rlm(&[&["view"], args].concat()).output().unwrap();
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
    text(&output.stdout).to_owned()
}

#[test]
fn every_run_is_recorded_listed_and_shown() {
    let place = Place::new();
    assert_eq!(listed(&place), [""; 0]);
    run(&place, &["--id", "first", "How\nmany?"]);
    run(&place, &["Which one?"]);
    let lines = listed(&place);
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("run-") && lines[0].ends_with("  Which one?"), "{lines:?}");
    assert!(lines[1].starts_with("first ") && lines[1].contains("  answered       1 turn, "), "{lines:?}");
    assert!(lines[1].ends_with("  How many?"), "{lines:?}");
    assert!(viewed(&place, &[]).contains("Which one?"));
    assert!(viewed(&place, &["first"]).contains("first"));
    // They are the user's alone.
    let runs = place.path("home").join(".local/state/rlm/runs");
    assert_eq!(runs.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    // An id that is given again stands for the later run.
    run(&place, &["--id", "first", "Again?"]);
    assert_eq!(listed(&place).len(), 2);
    assert!(viewed(&place, &[]).contains("Again?") && !viewed(&place, &["first"]).contains("many?"));
}

#[test]
fn a_run_that_was_killed_has_a_record_and_a_batch_has_one() {
    let (place, model) = start([answering("42").times(2)]);
    place.write("q.jsonl", "{\"question\": \"one?\"}\n{\"question\": \"two?\"}\n");
    let output = ask(&place, &model, &["run", "--questions", "q.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = listed(&place);
    assert!(
        lines.len() == 1 && lines[0].contains("2 of 2 answered 2 turns") && lines[0].ends_with("one?"),
        "{lines:?}"
    );
    let gate = rlm_tests::scripted_model::Gate::shut();
    let model = ScriptedModel::start([Rule::any().after(&gate)]);
    let mut killed = asking(&place, &model, &["run", "--id", "killed", "Why?"]).spawn().unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(model.wait_for_requests(1));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let lines = listed(&place);
    assert!(lines[0].starts_with("killed ") && lines[0].ends_with("  not ended"), "{lines:?}");
    assert!(viewed(&place, &[]).contains("Why?"));
    gate.open();
    rlm_tests::wait_until("its session has ended", || place.processes().is_empty());
    // The next one removes what it left.
    run(&place, &["Why?"]);
}

#[test]
fn records_are_bounded_and_can_be_left_out() {
    let place = Place::new();
    for id in ["a", "b", "c"] {
        run(&place, &["--max-recorded-runs", "2", "--id", id, "Why?"]);
    }
    let ids =
        || listed(&place).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(), ["c", "b"]);
    let runs = place.path("home").join(".local/state/rlm/runs");
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 4);
    run(&place, &["--no-record", "Why?"]);
    run(&place, &["--max-recorded-runs", "0", "Why?"]);
    assert_eq!(ids(), ["c", "b"]);
    let output = place
        .rlm(&["run", "--id", "../x", "--model", "m", "--base-url", "http://127.0.0.1:1/v1", "Why?"])
        .output();
    let output = output.unwrap();
    let words = "rlm: --id `../x`: expected 1 to 128 of a-z, A-Z, 0-9, `_`, `-` and `.`\n";
    assert_eq!(shown(&output), ("", words, Some(2)));
}

#[test]
fn a_running_run_keeps_its_record_and_others_leave_nothing() {
    let place = Place::new();
    let gate = rlm_tests::scripted_model::Gate::shut();
    let slow = ScriptedModel::start([answering("42").after(&gate)]);
    let running = asking(&place, &slow, &["run", "--id", "long", "Why?"]).spawn().unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(slow.wait_for_requests(1));
    let runs = place.path("home").join(".local/state/rlm/runs");
    // Not ours, and the rest of a record.
    let others = ["notes.txt", "a b.jsonl", "pipe.jsonl", "rest.json"].map(|name| runs.join(name));
    fs::write(&others[0], "mine").unwrap();
    fs::write(&others[1], "mine").unwrap();
    nix::unistd::mkfifo(&others[2], nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(&others[3], "{}").unwrap();
    for id in ["a", "b", "c"] {
        run(&place, &["--max-recorded-runs", "1", "--id", id, "Why?"]);
    }
    assert!(viewed(&place, &["long"]).contains("Why?") && viewed(&place, &[]).contains("rollout c "));
    gate.open();
    assert_eq!(text(&running.wait_with_output().unwrap().stdout), "42\n");
    assert!(others[..3].iter().all(|file| file.exists()) && !others[3].exists());
    let ids: Vec<_> = listed(&place).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(ids, ["long", "c"]);
    let output = place.rlm(&["view", "nothing"]).output().unwrap();
    let words = "rlm: nothing: there is no such file, and no run of this id: `rlm runs` lists them\n";
    assert_eq!(shown(&output), ("", words, Some(3)));
}

#[test]
fn a_run_that_cannot_be_recorded_goes_on() {
    let (place, model) = start([answering("42")]);
    fs::write(place.path("home").join(".local"), "a file").unwrap();
    let output = ask(&place, &model, &["run", "Why?"]);
    let (answer, words, status) = shown(&output);
    assert_eq!((answer, status), ("42\n", Some(0)));
    assert!(
        words.starts_with("rlm: the run is not recorded in /") && words.contains("/.local/state/rlm/runs: "),
        "{words}"
    );
    for command in ["runs", "view"] {
        let output = place.rlm(&[command]).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert!(text(&output.stderr).starts_with("rlm: cannot read /"), "{output:?}");
    }
}
