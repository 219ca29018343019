//! `rlm conformance`: our workers keep the protocol, and a worker that does not is found out.

use std::collections::BTreeMap;

use rlm_tests::{Place, default_python, program, repository};
use serde_json::Value;

/// The cases that ran, by name, and the exit status. Nothing is left.
fn conformance(options: &[&str], worker: &[&str]) -> (BTreeMap<String, Value>, Option<i32>) {
    let place = Place::new();
    let output = place
        .rlm(&["conformance", "--json"])
        .args(options)
        .arg("--")
        .args(worker)
        .args(["--control-dir", "{dir}"])
        .output()
        .unwrap();
    place.assert_nothing_left();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let lines = output.stdout.split_inclusive(|byte| *byte == b'\n');
    let cases = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let cases = cases.map(|case| (case["id"].as_str().unwrap().to_owned(), case)).collect();
    (cases, output.status.code())
}

fn keeps_every_promise(worker: &str, skipped: usize) {
    let (cases, status) = conformance(&["--timeout", "60"], &[program(worker).to_str().unwrap()]);
    let failed: Vec<_> = cases.values().filter(|case| case["result"] == "failed").collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(status, Some(0));
    assert!(cases.len() > 90, "{}", cases.len());
    assert_eq!(cases.values().filter(|case| case["result"] == "skipped").count(), skipped);
}

#[test]
fn the_bash_worker_keeps_every_promise() {
    keeps_every_promise("rlm-worker-bash", 3);
}

#[test]
fn the_python_worker_keeps_every_promise() {
    keeps_every_promise("rlm-worker-python", 2);
}

/// Runs a case against the small worker with a defect.
fn with_defect(defect: &str, case: &str) -> (Value, Option<i32>) {
    let (python, script) = (default_python(), repository().join("tests/fake_worker.py"));
    let worker = [python.to_str().unwrap(), script.to_str().unwrap(), defect];
    // A worker that hangs takes all of the time.
    let limit = if defect == "hangs" { "1" } else { "60" };
    let options = ["--language", "bash", "--filter", case, "--timeout", limit];
    let (mut cases, status) = conformance(&options, &worker);
    (cases.remove(case).unwrap(), status)
}

#[test]
fn a_worker_with_a_defect_fails_in_the_case_for_it() {
    for (defect, case, seen) in [
        ("wrong-seq", "requests/seq-is-echoed", "seq: Number(1)"),
        ("no-newline", "reading/a-newline-ends-it", "None"),
        ("two-documents", "reading/opened-before-the-request", "trailing characters"),
        ("missing-field", "responses/all-fields-always", "fields of the response to"),
        ("leaves-a-process", "endings/shutdown-leaves-nothing", "\"sleep\""),
        ("public-fifos", "files/fifos-are-private", "rlm_cmd: \"644\""),
        ("keeps-the-ready-flag", "files/ready-flag", "rlm_ready is there"),
        ("wrong-status", "endings/sigterm-with-an-unread-response", "exit status: 0"),
        ("hangs", "requests/unknown-fields", "nothing within the case's 1 s"),
    ] {
        let (sound, status) = with_defect("none", case);
        assert_eq!((&sound["result"], status), (&"passed".into(), Some(0)), "{sound:#}");
        let (broken, status) = with_defect(defect, case);
        assert_eq!((&broken["result"], status), (&"failed".into(), Some(1)), "{defect}: {broken:#}");
        assert!(broken["seen"].as_str().unwrap().contains(seen), "{defect}: {broken:#}");
    }
}

#[test]
fn a_worker_of_an_unknown_language_is_checked_without_code() {
    let place = Place::new();
    let fake = repository().join("tests/fake_worker.py");
    let mut command = place.rlm(&["conformance", "--filter", "requests/", "--"]);
    command.arg(default_python()).arg(fake).args(["none", "--control-dir", "{dir}"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("ok      requests/seq-is-echoed\n"), "{text}");
    let skipped = "skipped requests/timeout: the worker's language is not known: give --language\n";
    assert!(text.contains(skipped), "{text}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("rlm: the worker's language is not known: expected a JSON text in `result`"),
        "{said}"
    );
    place.assert_nothing_left();
}

#[test]
fn the_command_line_of_the_suite_is_checked() {
    let place = Place::new();
    for (args, expected) in [
        (&["--", "worker", "--control-dir", "here"][..], "the command has no `{dir}`"),
        (&["--filter", "dance", "--", "worker", "{dir}"], "no case has `dance` in its name: see --list"),
        (&[], "required arguments were not provided"),
    ] {
        let output = place.rlm(&["conformance"]).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{said}");
        assert_eq!(output.status.code(), Some(2));
    }
    let output = place.rlm(&["conformance", "--list", "--filter", "seq-is-echoed"]).output().unwrap();
    let listed = "requests/seq-is-echoed\n    echoed in the response (Requests)\n";
    assert_eq!((String::from_utf8_lossy(&output.stdout).as_ref(), output.status.code()), (listed, Some(0)));
    place.assert_nothing_left();
}
