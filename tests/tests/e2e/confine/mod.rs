//! Confinement: what a session reaches, what it keeps, how it ends, and what is said where it cannot be had.

mod attempts;
mod bounds;
mod paths;
mod refusals;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, chown, getuid};
use rlm_core::protocol::ConfinementLevel;
use rlm_core::worker::descendants::{self, BootTime};
use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{Setup, Worker, is_over, program, skipped, wait_until, write_program};
use serde_json::json;

/// An ordinary user's number.
const USER: u32 = 40_113;

/// The user who starts a worker.
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

    /// Makes this user the owner.
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

/// True if this host allows the level; if not, says why.
pub(crate) fn can_have(level: &str) -> bool {
    let output = Command::new(program("rlm")).args(["exec", "--confine", level, ":"]).output().unwrap();
    if !output.status.success() {
        skipped(String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

/// The levels of confinement that this host allows.
fn levels() -> impl Iterator<Item = &'static str> {
    ["full", "landlock"].into_iter().filter(|level| can_have(level))
}

/// `rlm exec` at this level, in this directory.
fn exec(level: &str, dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program("rlm"));
    command.args(["exec", "--confine", level]).args(args).current_dir(dir);
    command
}

/// A bash session at this level.
fn bash_at(level: &str) -> Worker {
    Setup::bash().env("RLM_CONFINE", level).start()
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
    if !can_have("full") {
        return;
    }
    let mut worker = bash_at("full");
    assert_eq!(worker.info().confinement.level, ConfinementLevel::Full);
    let log = worker.log();
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
fn a_session_without_namespaces_has_most_of_it() {
    if !can_have("landlock") {
        return;
    }
    let mut worker = bash_at("landlock");
    assert_eq!(worker.info().confinement.level, ConfinementLevel::Landlock);
    let tmp = worker.control.tmp_dir();
    for (code, expected) in [
        ("tty >/dev/null && test -t 0 && stty size", "24 80"),
        ("sleep 100 & kill %1; wait %1; echo $?", "143"),
        ("touch ~/a $(mktemp) && ls ~ | wc -l", "2"),
        ("touch /tmp/a 2>&1", "touch: cannot touch '/tmp/a': Permission denied"),
        ("wc -c <<END\n$(head -c 200000 /dev/zero | tr '\\0' x)\nEND", "200001"),
        ("echo 'int main(){return 7;}' >a.c && gcc a.c -o a && ./a; echo $?", "7"),
        ("git init -q . 2>&1 && git status --short | wc -l", "2"),
    ] {
        let output = worker.call(code);
        assert!(output.stdout.trim_end().ends_with(expected), "{code}: {output:?}");
    }
    assert_eq!(worker.output("echo $TMPDIR $HOME"), format!("{0} {0}\n", tmp.display()));
    worker.call("kill -9 $$");
    assert_eq!(worker.output("echo again"), "again\n");
    worker.end();
    let mut worker = confined(Who::Self_, "landlock");
    for (code, expected) in [
        ("import asyncio; asyncio.run(asyncio.sleep(0, 'slept'))", "'slept'"),
        ("import sqlite3; sqlite3.connect('a.db').execute('select 6 * 7').fetchone()", "(42,)"),
        ("import subprocess; subprocess.run(['echo', 'x'], capture_output=True).stdout", "b'x\\n'"),
        ("import tempfile; len(tempfile.TemporaryFile().read())", "0"),
    ] {
        assert_eq!(worker.value(code), expected, "{code}");
    }
    worker.end();
    assert!(!tmp.exists(), "the worker removes it");
}

// Promise: Background, `nohup`, `setsid`, double-forked: when the worker ends, every process ends, no matter which one was killed.
#[test]
fn nothing_is_left_whoever_is_killed() {
    if !can_have("full") {
        return;
    }
    let code = "nohup sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 & (trap '' TERM HUP INT; sleep 1000 & wait) & (sleep 1000 &)";
    for _ in 0..10 {
        let either_or_both: [fn(Pid, Pid) -> Vec<Pid>; 3] =
            [|guard, _| vec![guard], |_, server| vec![server], |guard, server| vec![guard, server]];
        for killed in either_or_both {
            let mut worker = bash_at("full");
            worker.call(code);
            assert!(worker.processes().len() >= 5, "{:?}", worker.processes());
            let (guard, server) = (worker.pid(), worker.server());
            for pid in killed(guard, server) {
                kill(pid, Signal::SIGKILL).unwrap();
            }
            worker.wait();
            wait_until("all are gone", || worker.processes().is_empty() && is_over(server));
        }
    }
}

// Promise: `--confine full` leaves a session its own directory, the system's programs and its endpoint, without root or containers.
#[test]
fn the_endpoint_is_reached_at_each_level() {
    let endpoint = ExistingEndpoint::start();
    for level in levels() {
        for serialization in ["pickle", "json"] {
            let tools_for = |setup: Setup| {
                let setup = endpoint.tools_for(setup).env("RLM_CONFINE", level);
                setup.env("RLM_ROOT_TOOL_SERIALIZATION", serialization).start()
            };
            let mut bash = tools_for(Setup::bash());
            assert_eq!(bash.output("give str; give long | wc -c"), "text\n10000001\n");
            bash.end();
            let mut python = tools_for(Setup::python());
            assert_eq!(python.value("give('str'), len(give('long'))"), "('text', 10000000)");
            python.end();
        }
    }
}

#[test]
fn empty_files_in_tmp_are_bounded_too() {
    if !can_have("full") {
        return;
    }
    let mut worker = Setup::bash().env("RLM_CONFINE", "full").env("RLM_CONFINE_TMP", 1 << 20).start();
    let made = worker.output("for i in {1..3000}; do : >/tmp/$i || break; done 2>/dev/null; ls /tmp | wc -l");
    assert!(made.trim().parse::<u32>().unwrap() < 1100, "{made}");
    worker.end();
}

#[test]
fn what_the_host_has_few_of_and_what_it_tells_root_stay_the_hosts() {
    if !can_have("full") {
        return;
    }
    let mut worker = confined(Who::Self_, "full");
    let code = "\
import ctypes, os
libc = ctypes.CDLL(None)
watchers = [fd for fd in (libc.inotify_init() for _ in range(100)) if fd >= 0]
len(watchers)";
    assert!(worker.value(code).parse::<u32>().unwrap() <= 32, "the user has few for all of the host");
    let watches = "\
for at in range(9000): open(f'/tmp/{at}', 'w').close()
sum(libc.inotify_add_watch(watchers[0], b'/tmp/%d' % at, 2) > 0 for at in range(9000))";
    assert!(worker.value(watches).parse::<u32>().unwrap() <= 8192);
    let timers = "\
made = ctypes.c_void_p()
sum(libc.timer_create(0, None, ctypes.byref(made)) == 0 for _ in range(2000))";
    assert!(worker.value(timers).parse::<u32>().unwrap() <= 1024);
    // Code can work in a directory whose group is handed down.
    let shared = "\
os.mkdir('shared'); os.mkdir('shared/in', 0o2775)
import shutil; shutil.copytree('shared', 'copy'); os.path.isdir('copy/in')";
    assert_eq!(worker.value(shared), "True");
    for name in ["keys", "key-users", "pagetypeinfo", "slabinfo", "timer_list", "vmallocinfo"] {
        let there = fs::read(format!("/proc/{name}")).is_ok_and(|text| !text.is_empty());
        let read = format!("open('/proc/{name}').read()");
        assert!(!there || worker.value(&read) == "''", "{name}");
    }
    worker.end();
}

#[test]
fn what_the_host_left_open_is_closed() {
    for level in levels() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("worker");
        let worker = program("rlm-worker-bash");
        write_program(&path, &format!("#!/bin/sh\nexec {} \"$@\" 7</ 8>>/etc/hostname\n", worker.display()));
        let mut worker = Setup::bash().program(path).env("RLM_CONFINE", level).start();
        let open = worker.output("readlink /proc/$PPID/fd/*");
        assert!(open.lines().all(|path| path != "/" && path != "/etc/hostname"), "{level}: {open}");
        assert!(open.contains("pipe:"), "{open}");
        worker.end();
    }
}

#[test]
fn two_hundred_sessions_at_once_leave_nothing() {
    if !can_have("full") {
        return;
    }
    let start = || bash_at("full");
    let mut workers: Vec<_> = thread::scope(|scope| {
        let starts: Vec<_> = (0..200).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let namespaces: Vec<_> = workers.iter().map(|worker| namespace_of(worker.server()).unwrap()).collect();
    assert!(!namespaces.contains(&namespace_of(Pid::this()).unwrap()));
    let paths: Vec<_> = workers.iter().map(Worker::fs_root).collect();
    thread::scope(|scope| {
        for worker in &mut workers {
            scope.spawn(|| assert_eq!(worker.output("sleep 1000 & echo here | cat"), "[1] 3\nhere\n"));
        }
    });
    let all_started = BootTime::now();
    thread::scope(|scope| {
        for worker in workers {
            scope.spawn(|| worker.end());
        }
    });
    let all =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    // The kernel gives the number of a namespace that is gone to a new one, such as another test's.
    let is_old = |pid: &Pid| !descendants::started_since(*pid, all_started);
    let is_left = |pid: &Pid| namespace_of(*pid).is_some_and(|namespace| namespaces.contains(&namespace));
    let left: Vec<_> = all.map(Pid::from_raw).filter(|pid| is_old(pid) && is_left(pid)).collect();
    assert_eq!(left, []);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!paths.iter().any(|path| mounts.contains(path.to_str().unwrap())), "{mounts}");
}

/// The mount namespace of a process. None: it has ended, or belongs to another user.
fn namespace_of(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}
