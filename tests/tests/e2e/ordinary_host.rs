//! An independent host in Python drives the worker over the FIFOs.

use std::process::Command;

use rlm_tests::{program, repository};

#[test]
fn a_thousand_calls_of_an_ordinary_host() {
    let script = repository().join("tests/ordinary_host.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(program("rlm-worker-bash"))
        .arg(repository().join("rlm-core/src"))
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
