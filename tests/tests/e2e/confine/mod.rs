//! Confinement: what a session reaches, what it keeps, how it ends, and what is said where it cannot be had.

mod attempts;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Uid, chown, getuid};
use rlm_core::protocol::ConfinementLevel;
use rlm_tests::{Setup, Worker, is_over, program, wait_until, write_program};
use serde_json::json;

/// An ordinary user's number.
const USER: u32 = 40_113;

/// Who starts a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The user of the tests.
    Self_,
    Root,
    /// An ordinary user, where the tests run as root.
    Ordinary,
}

impl Who {
    fn all() -> Vec<Self> {
        if getuid().is_root() { vec![Self::Root, Self::Ordinary] } else { vec![Self::Self_] }
    }

    /// Makes it the owner.
    fn own(self, paths: &[PathBuf]) {
        for path in paths.iter().filter(|_| self == Self::Ordinary) {
            chown(path, Some(Uid::from_raw(USER)), Some(Gid::from_raw(USER))).unwrap();
        }
    }

    fn become_it(self, command: &mut Command) -> &mut Command {
        match self {
            Self::Ordinary => command.uid(USER).gid(USER),
            _ => command,
        }
    }

    /// A worker of this user.
    fn setup(self, setup: Setup, name: &str, place: &tempfile::TempDir) -> Setup {
        if self != Self::Ordinary {
            return setup;
        }
        let path = place.path().join("worker");
        let worker = program(name);
        write_program(
            &path,
            &format!(
                "#!/bin/sh\nexec setpriv --reuid={USER} --regid={USER} --clear-groups {} \"$@\"\n",
                worker.display()
            ),
        );
        setup.program(path).prepare(|control| {
            let dir = control.path().parent().unwrap();
            Self::Ordinary.own(&[control.path().to_owned(), dir.join("rlm_fs"), dir.to_owned()]);
            Self::Ordinary.own(&[control.path().join("rlm_context.json")]);
        })
    }
}

/// A Python session at this level.
fn confined(who: Who, level: &str) -> Worker {
    let place = tempfile::tempdir().unwrap();
    let setup =
        Setup::python_at("/usr/bin/python3".as_ref()).env("RLM_CONFINE", level).env("KEY", "c0ffee-token");
    who.setup(setup, "rlm-worker-python", &place).start()
}

#[test]
fn a_confined_session_says_so_and_has_what_code_needs() {
    let mut worker = Setup::bash().env("RLM_CONFINE", "full").start();
    assert_eq!(worker.info().confinement.level, ConfinementLevel::Full);
    let log = fs::read_to_string(worker.control.log_file()).unwrap();
    assert!(log.contains("the session is confined: namespaces, "), "{log}");
    assert_eq!(worker.output("pwd -P"), format!("{}\n", worker.fs_root().display()));
    for (code, expected) in [
        ("tty; test -t 0 && stty size", "/dev/pts/0\n24 80\n"),
        ("sleep 100 & kill %1; wait %1; echo $?", "143"),
        (
            "echo $HOME; touch ~/a /var/tmp/c /dev/shm/d; ls /tmp/a /dev/shm /var/tmp | tr '\\n' ' '",
            "/tmp /tmp/a /dev/shm: d /var/tmp: c",
        ),
        ("git init -q . 2>&1 && git status --short | wc -l", "0\n"),
        ("echo 'int main(){return 7;}' >a.c && gcc a.c -o a && ./a; echo $?", "7\n"),
        ("kill -9 1; kill -TERM 1; kill -INT 1; kill -9 $PPID; echo here", "here\n"),
    ] {
        let output = worker.call(code);
        let tidy = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(tidy(&output.stdout).ends_with(&tidy(expected)), "{code}: {output:?}");
    }
    worker.end();
    let mut worker = confined(Who::Self_, "full");
    for (code, expected) in [
        ("import multiprocessing as m; pool = m.Pool(2); pool.map(abs, [-1, 2])", "[1, 2]"),
        ("m.get_context('forkserver').Pool(1).map(abs, [-3])", "[3]"),
        ("import asyncio; asyncio.run(asyncio.sleep(0, 'slept'))", "'slept'"),
        (
            "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); c.send(b'x')",
            "1",
        ),
        ("import sqlite3; sqlite3.connect('a.db').execute('select 6 * 7').fetchone()", "(42,)"),
    ] {
        assert_eq!(worker.value(code), expected, "{code}");
    }
    worker.end();
}

#[test]
fn nothing_is_left_whoever_is_killed() {
    let code = "nohup sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 & (trap '' TERM HUP INT; sleep 1000 & wait) & (sleep 1000 &)";
    for _ in 0..10 {
        for killed in 0..3 {
            let mut worker = Setup::bash().env("RLM_CONFINE", "full").start();
            worker.call(code);
            assert!(worker.processes().len() >= 5, "{:?}", worker.processes());
            let (guard, server) = (worker.pid(), worker.server());
            for pid in [guard, server]
                .iter()
                .enumerate()
                .filter(|(at, _)| killed == 2 || *at == killed)
                .map(|(_, pid)| *pid)
            {
                kill(pid, Signal::SIGKILL).unwrap();
            }
            worker.wait();
            wait_until("all are gone", || worker.processes().is_empty() && is_over(server));
        }
    }
}

#[test]
fn what_cannot_be_had_is_said() {
    // Nobody below this one may make user namespaces.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("worker");
    let worker = program("rlm-worker-bash");
    let text = format!(
        "#!/bin/sh\nexec unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec {} \"$@\"' sh \"$@\"\n",
        worker.display()
    );
    write_program(&path, &text);
    let control = place.path().join("control");
    fs::create_dir(&control).unwrap();
    fs::write(control.join("rlm_context.json"), json!({"fs_root": place.path()}).to_string()).unwrap();
    let refused = |level: &str| {
        Command::new(&path)
            .arg("--control-dir")
            .arg(&control)
            .env("RLM_CONFINE", level)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let full = refused("full");
    let words = String::from_utf8_lossy(&full.stderr).into_owned();
    let expected = "RLM_CONFINE=full cannot be had here: clone: ENOSPC: No space left on device (user.max_user_namespaces is 0, or reached); \
                    try takes what can be had, off does without";
    assert!(words.contains(expected), "{words}");
    assert_eq!(full.status.code(), Some(3), "{words}");
    let wrong = refused("ful");
    let words = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        words.contains("environment variable RLM_CONFINE is \"ful\", expected off, full or try"),
        "{words}"
    );
    let all = Command::new(&worker)
        .arg("--control-dir")
        .arg(&control)
        .env("RLM_CONFINE", "full")
        .env("RLM_CONFINE_READ", "/")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(all.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&all.stderr).contains("sharing /, which is all of the host: EINVAL"),
        "{all:?}"
    );
    let mut worker = Setup::bash().program(path).env("RLM_CONFINE", "try").start();
    assert_eq!(worker.info().confinement.level, ConfinementLevel::Off);
    let log = fs::read_to_string(worker.control.log_file()).unwrap();
    assert!(log.contains("the session is not confined: clone: ENOSPC"), "{log}");
    assert_eq!(worker.output("echo here"), "here\n");
    worker.end();
}
