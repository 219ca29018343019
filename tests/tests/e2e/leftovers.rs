//! Directories of `rlm` in the directory for temporary files, after it was killed.

use std::io::Write as _;
use std::process::{Child, Stdio};

use rlm_tests::{Place, wait_until};

/// Files in the place's directory for temporary files.
fn left(place: &Place) -> usize {
    std::fs::read_dir(place.path("tmp")).unwrap().count()
}

/// Starts a subcommand, and waits until the session runs a call, which goes on until the file `go` appears.
fn start(place: &Place, subcommand: &str, started: &str) -> Child {
    let code = format!(": >{started}; until [ -e go ]; do sleep 0.01; done");
    let mut command = match subcommand {
        "exec" => place.rlm(&["exec", &code, "echo on"]),
        _ => place.rlm(&[subcommand]),
    };
    let child = command.stdin(Stdio::piped()).spawn().unwrap();
    if subcommand != "exec" {
        writeln!(child.stdin.as_ref().unwrap(), "{code}").unwrap();
    }
    wait_until("the call runs", || place.file(started).exists());
    child
}

#[test]
fn what_a_killed_session_left_is_removed_by_the_next() {
    for subcommand in ["exec", "repl"] {
        let place = Place::new();
        let mut killed = start(&place, subcommand, "started");
        killed.kill().unwrap();
        killed.wait().unwrap();
        wait_until("the worker has ended with its host", || place.processes().is_empty());
        assert_eq!(left(&place), 1, "{subcommand}: a killed process cannot remove its directory");
        let next = place.rlm(&["exec", "echo on"]).output().unwrap();
        assert_eq!((next.stdout.as_slice(), next.stderr.as_slice()), (&b"on\n"[..], &b""[..]));
        place.assert_nothing_left();
    }
}

#[test]
fn sessions_at_once_do_not_remove_the_directories_of_each_other() {
    let place = Place::new();
    let children = ["first", "second"].map(|started| start(&place, "exec", started));
    assert!(place.rlm(&["exec", ":"]).status().unwrap().success());
    assert_eq!(left(&place), 2);
    place.write("go", "");
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"on\n"[..], &b""[..]));
    }
    place.assert_nothing_left();
}
