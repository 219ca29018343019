//! An independent host in Python drives the worker over the FIFOs.

use std::process::Command;

use rlm_tests::{program, repository};

use crate::confine::can_have;

#[test]
fn a_thousand_calls_of_an_ordinary_host() {
    drives_a_worker("off");
}

#[test]
fn an_ordinary_host_drives_a_confined_worker_unchanged() {
    ["full", "landlock"].into_iter().filter(|level| can_have(level)).for_each(drives_a_worker);
}

fn drives_a_worker(confine: &str) {
    let script = repository().join("tests/ordinary_host.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(program("rlm-worker-bash"))
        .arg(repository().join("rlm-core/src"))
        .env("RLM_CONFINE", confine)
        .output()
        .expect("python3 is needed for this test");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "1000 calls, none lost, none out of step\n",
        "{errors}"
    );
}
