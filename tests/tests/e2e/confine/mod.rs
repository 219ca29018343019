//! Confinement: what a session reaches, what it keeps, how it ends, and what is said where it cannot be had.

mod attempts;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, chown, getuid};
use rlm_core::protocol::ConfinementLevel;
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
fn a_session_without_namespaces_has_most_of_it() {
    if !can_have("landlock") {
        return;
    }
    let mut worker = Setup::bash().env("RLM_CONFINE", "landlock").start();
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

#[test]
fn nothing_is_left_whoever_is_killed() {
    if !can_have("full") {
        return;
    }
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
fn the_endpoint_is_reached_at_each_level() {
    let endpoint = ExistingEndpoint::start();
    for level in ["full", "landlock"].into_iter().filter(|level| can_have(level)) {
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
fn paths_that_are_shared_stay_as_they_are_on_the_host() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("work/sub")).unwrap();
    fs::create_dir(path("outside")).unwrap();
    for file in ["work/data", "outside/file", "work/sub/inner"] {
        fs::write(path(file), "precious").unwrap();
    }
    std::os::unix::fs::symlink(path("outside"), path("work/link")).unwrap();
    std::os::unix::fs::symlink("/", path("all")).unwrap();
    let text = |name: &str| path(name).to_string_lossy().into_owned();
    let (data, inner, file, sub) =
        (text("work/data"), text("work/sub/inner"), text("outside/file"), text("work/sub"));
    std::os::unix::fs::symlink("/proc", path("proc")).unwrap();
    fs::create_dir(path("tmp")).unwrap();
    let proc = text("proc");
    let (through, all, missing) = (text("work/link/file"), text("all"), text("missing"));
    for level in ["full", "landlock"].into_iter().filter(|level| can_have(level)) {
        for (flags, code, expected) in [
            (vec!["--confine-read", &data], "cat data", "precious"),
            (vec!["--confine-write", &file, "--confine-write", &file], &format!("cat {file}"), "precious"),
            (vec!["--confine-read", &sub, "--confine-read", &inner], "cat sub/inner", "precious"),
            (
                vec!["--confine-read", "/etc/passwd", "--confine-read", "/etc/localtime"],
                "head -c 5 /etc/passwd",
                "root:",
            ),
            (vec!["--confine-read", "/tmp", "--workdir", &sub], &format!("cat {file}"), "precious"),
            (vec!["--workdir", place.path().to_str().unwrap()], "cat outside/file", "precious"),
        ] {
            let output = Command::new(program("rlm"))
                .args(["exec", "--confine", level])
                .args(flags)
                .arg(code)
                .current_dir(path("work"))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{level}, {code}: {output:?}");
        }
        for (flag, value, words) in [
            ("--confine-read", &*all, "it is all of the host"),
            ("--workdir", "/", "a confined session cannot have /: it is all of the host"),
            ("--confine-write", "/proc/self", "it has a /proc, a /sys and a /dev of its own"),
            ("--confine-write", &proc, "it has a /proc, a /sys and a /dev of its own"),
            ("--confine-write", "/dev/shm/..", "it has a /proc, a /sys and a /dev of its own"),
            ("--workdir", place.path().to_str().unwrap(), "its control directory "),
            ("--confine-read", &through, "it lies behind a link in "),
            ("--confine-read", &missing, "RLM_CONFINE_READ names "),
        ] {
            let output = Command::new(program("rlm"))
                .args(["exec", "--confine", level, flag, value, "echo here"])
                .env("TMPDIR", path("tmp"))
                .current_dir(path("work"))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains(words) && output.stdout.is_empty(), "{level}, {value}: {output:?}");
        }
        for file in ["work/data", "outside/file", "work/sub/inner"] {
            assert_eq!(fs::read(path(file)).unwrap(), b"precious", "{level}: {file}");
        }
    }
}

#[test]
fn what_can_only_be_read_stays_so_in_a_directory_that_code_can_write() {
    if !can_have("full") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("real/work/env/tools")).unwrap();
    fs::create_dir(path("other")).unwrap();
    std::os::unix::fs::symlink("real", path("home")).unwrap();
    std::os::unix::fs::symlink(path("other"), path("real/link")).unwrap();
    let file = path("real/work/env/tools/f");
    fs::write(&file, "precious").unwrap();
    let write = "echo evil > env/tools/f; rm env/tools/f; chmod 777 env/tools";
    let replace = "mv env moved; mv env/tools env/t; mkdir -p env/tools; echo evil > env/tools/f";
    let text = |name: &str| path(name).to_string_lossy().into_owned();
    let rlm = program("rlm").to_string_lossy().into_owned();
    let exec = |directory: &str, read: &str, code: &str| {
        let mut command = Command::new(&rlm);
        command.args(["exec", "--confine-read", read, code]).current_dir(path(directory));
        command.env("RLM_CONFINE", "full");
        command
    };
    // A directory that the system has is another one where code can write.
    let in_system = |code: &str| {
        let mount = "mount --bind \"$1\" /usr/src && cd /usr/src/work && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", mount, "sh", &text("real"), &rlm, "exec", "--confine", "full"]);
        command.args(["--confine-read", "/usr/src/work/env/tools", code]);
        command
    };
    for code in [write, replace] {
        let mut commands = vec![
            exec("real/work", &text("real/work/env/tools"), code),
            exec("real/work", &text("home/work/env/tools"), code),
            exec("home/work", &text("home/work/env/../env/tools"), code),
        ];
        // A shared path lies in another one that can be written: it is used by another name, and from within.
        for (directory, shared, place) in [
            ("real", "real/work", "real/work"),
            ("real/work", "home", "home/work"),
            ("real/work", "real/work/env", "real/work"),
            ("other", "home/work", "home/work"),
        ] {
            let code = format!("cd {} && {{ {code}; }}", text(place));
            let mut command = exec(directory, &text("real/work/env/tools"), &code);
            command.args(["--confine-write", &text(shared)]);
            commands.push(command);
        }
        let is_root = nix::unistd::geteuid().is_root();
        commands.extend(is_root.then(|| in_system(code)));
        for mut command in commands {
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("Read-only file") || said.contains("busy"), "{command:?}: {output:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "precious", "{command:?}: {output:?}");
            assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o777, 0o755, "{command:?}");
        }
    }
    // However a path is written.
    let mut worker = Setup::bash()
        .env("RLM_CONFINE", "full")
        .env("RLM_CONFINE_WRITE", format!("{}////./real/work//./", place.path().display()))
        .env("RLM_CONFINE_READ", text("real/work/env/tools"))
        .start();
    worker.call(&format!("cd {}/work; {write}; {replace}; echo mine > new", text("real")));
    worker.end();
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(fs::read_to_string(path("real/work/new")).unwrap(), "mine\n");
    // A link that leads to what is shared is there.
    std::os::unix::fs::symlink(path("real/work/env"), path("other/link")).unwrap();
    let output = exec("other", &text("other/link/tools"), "cat link/tools/f")
        .args(["--confine-read", &text("real/work/env")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "precious", "{output:?}");
    // Nobody can write where our programs are.
    let output = Command::new(&rlm)
        .args(["exec", "--confine=full", "echo here"])
        .env("RLM_BIN_DIR", Path::new(&rlm).parent().unwrap())
        .current_dir(Path::new(&rlm).parent().unwrap())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("its own programs"), "{output:?}");
    // A link that leads to what is not shared is an error of its path, also where less would do.
    for level in ["full", "try"] {
        let mut command = exec("real/work", &text("real"), "echo here");
        let output =
            command.args(["--confine-read", &text("real/link")]).env("RLM_CONFINE", level).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(3), &b""[..]), "{output:?}");
        assert!(said.contains("cannot have ") && said.contains("it lies behind a link"), "{said}");
    }
}

#[test]
fn of_a_python_no_more_is_shared_than_is_pythons() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    // Something that looks like a Python's directory, with a secret beside its library.
    fs::create_dir_all(path("tree/lib/python3.11")).unwrap();
    fs::create_dir_all(path("tree/bin")).unwrap();
    fs::create_dir_all(path("venv/bin")).unwrap();
    fs::create_dir(path("work")).unwrap();
    fs::write(path("tree/lib/python3.11/os.py"), "").unwrap();
    fs::write(path("tree/secret"), "c0ffee").unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3", path("venv/bin/python3")).unwrap();
    fs::write(path("venv/pyvenv.cfg"), format!("home = {}\n", path("tree/bin").display())).unwrap();
    let code = format!("open({:?}).read()", path("tree/secret"));
    for level in ["full", "landlock"].into_iter().filter(|level| can_have(level)) {
        for python in ["--python=/bin/python3".to_owned(), format!("--python={}", path("venv").display())] {
            let output = Command::new(program("rlm"))
                .args(["exec", "--confine", level, &python, "1 + 1", &code, "open('/etc/shadow').read()"])
                .env_remove("HOME")
                .current_dir(path("work"))
                .output()
                .unwrap();
            let shown = format!("{output:?}");
            assert!(!shown.contains("c0ffee") && !shown.contains("root:"), "{level}, {python}: {shown}");
            assert!(
                python.contains("venv") || output.stdout.starts_with(b"2\n"),
                "{level}, {python}: {shown}"
            );
        }
    }
}

#[test]
fn an_environment_in_the_working_directory_is_used_if_its_python_can_be_read_anyway() {
    let place = tempfile::tempdir().unwrap();
    for level in ["full", "landlock"].into_iter().filter(|level| can_have(level)) {
        for (python, words) in [
            ("/usr/bin/python3", "work/.venv"),
            (
                "/etc/hostname",
                "which code can write; if that leads where it should, add --confine-read /etc/hostname",
            ),
        ] {
            let work = tempfile::Builder::new().prefix("work").tempdir_in(&place).unwrap();
            let work = work.path().join("work");
            fs::create_dir_all(work.join(".venv/bin")).unwrap();
            fs::write(work.join(".venv/pyvenv.cfg"), "home = /usr/bin\n").unwrap();
            std::os::unix::fs::symlink(python, work.join(".venv/bin/python3")).unwrap();
            let output = Command::new(program("rlm"))
                .args(["exec", "--confine", level, "--python=.venv", "import sys; sys.prefix"])
                .current_dir(&work)
                .output()
                .unwrap();
            let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(shown.contains(words), "{level}, {python}: {shown}");
        }
    }
}

#[test]
fn what_code_has_put_in_the_way_of_the_answer_does_not_keep_it_from_being_saved() {
    for obstacle in ["ln -s /nonexistent", "mkdir", "mkfifo"] {
        let mut worker = Setup::bash().start();
        let control = worker.control.path().display().to_string();
        worker.output(&format!("{obstacle} {control}/rlm_answer.json.new"));
        assert_eq!(worker.output("RLM_CONTENT=kept; echo on"), "on\n", "{obstacle}");
        assert_eq!(fs::read_to_string(worker.control.answer_file()).unwrap().matches("kept").count(), 1);
        worker.end();
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
fn links_in_the_control_directory_lead_nobody_outside() {
    for level in ["full", "landlock"].into_iter().filter(|level| can_have(level)) {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        fs::write(&victim, "as it was").unwrap();
        let mut worker = Setup::bash().env("RLM_CONFINE", level).start();
        worker.send(br#"{"op": "a\nb", "seq": 1}"#);
        worker.receive();
        let log = fs::read_to_string(worker.control.log_file()).unwrap();
        assert!(log.contains("unknown op `a b`") && log.lines().count() == 2, "{log}");
        let control = worker.control.path().display().to_string();
        worker.output(&format!("ln -sf {} {control}/rlm_worker.log", victim.display()));
        kill(worker.server(), Signal::SIGKILL).unwrap();
        worker.wait();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        let log = fs::read_to_string(worker.control.log_file()).unwrap();
        assert!(log.contains("the serving process was ended by SIGKILL"), "{log}");
    }
}

#[test]
fn what_the_host_left_open_is_closed() {
    for level in ["full", "landlock"].into_iter().filter(|level| can_have(level)) {
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
    let start = || Setup::bash().env("RLM_CONFINE", "full").start();
    let workers: Vec<_> = thread::scope(|scope| {
        let starts: Vec<_> = (0..200).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let namespaces: Vec<_> = workers.iter().map(|worker| namespace_of(worker.server())).collect();
    assert!(namespaces.iter().all(|namespace| *namespace != namespace_of(Pid::this())));
    let paths: Vec<_> = workers.iter().map(Worker::fs_root).collect();
    thread::scope(|scope| {
        for mut worker in workers {
            scope.spawn(move || {
                assert_eq!(worker.output("sleep 1000 & echo here | cat"), "[1] 3\nhere\n");
                worker.end();
            });
        }
    });
    let all =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let left: Vec<_> =
        all.map(Pid::from_raw).filter(|pid| namespaces.contains(&namespace_of(*pid))).collect();
    assert_eq!(left, []);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!paths.iter().any(|path| mounts.contains(path.to_str().unwrap())), "{mounts}");
}

/// The mount namespace of a process. None: it has ended, or belongs to another user.
fn namespace_of(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

/// A host on which each of these calls fails with an error, where its first argument has the flags.
fn without_calls(calls: &[(i64, u32, i32)]) -> String {
    let calls: Vec<_> =
        calls.iter().map(|(number, flags, errno)| format!("({number}, {flags}, {errno})")).collect();
    format!(
        "#!/usr/bin/python3
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0)]
for number, flags, errno in [{}]:
    test = [(0x20, 0, 0, 16), (0x45, 0, 1, flags), (6, 0, 0, 0x50000 | errno), (0x20, 0, 0, 0)] if flags else [(6, 0, 0, 0x50000 | errno)]
    code += [(0x15, 0, len(test), number), *test]
code.append((6, 0, 0, 0x7fff0000))
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *one) for one in code))
count = len(code) // 8
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0
assert prctl(22, 2, ctypes.create_string_buffer(struct.pack('HP', count, ctypes.addressof(code)))) == 0
os.execv(WORKER, [WORKER, *sys.argv[1:]])
",
        calls.join(", ")
    )
}

#[test]
fn a_host_that_lacks_something_is_named_and_try_takes_what_there_is() {
    if !(can_have("full") && can_have("landlock")) {
        return;
    }
    let no_namespaces = (libc::SYS_clone, 0x1000_0000, libc::EPERM);
    let no_landlock = (libc::SYS_landlock_create_ruleset, 0, libc::ENOSYS);
    let no_setattr = (libc::SYS_mount_setattr, 0, libc::ENOSYS);
    let filtered = "clone: EPERM: Operation not permitted (the filter of a container, or a setting of the kernel, refuses user namespaces)";
    let hidden =
        "mount of proc: EPERM: Operation not permitted (parts of /proc are hidden, as in containers)";
    let old = "mount_setattr: ENOSYS: Function not implemented (the kernel is older than 5.12)";
    let without = "landlock_create_ruleset: EOPNOTSUPP: Operation not supported on transport endpoint (Landlock 6 is needed, of Linux 6.12, and not switched off at the start of the system)";
    let is_root = getuid().is_root();
    let mask =
        "#!/bin/sh\nexec unshare -m sh -c 'mount -t tmpfs none /proc/bus && exec WORKER \"$@\"' sh \"$@\"\n";
    let no_users = "#!/bin/sh\nexec unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec WORKER \"$@\"' sh \"$@\"\n";
    let none = "clone: ENOSPC: No space left on device (user.max_user_namespaces is 0, or reached)";
    use ConfinementLevel::{Full, Landlock, Off};
    for (text, full, landlock, obtained) in [
        (no_users.to_owned(), Some(none), None, Landlock),
        (without_calls(&[no_namespaces]), Some(filtered), None, Landlock),
        (without_calls(&[no_setattr]), Some(old), None, Landlock),
        (without_calls(&[no_landlock]), None, Some(without), Full),
        (without_calls(&[no_namespaces, no_landlock]), Some(filtered), Some(without), Off),
        (mask.to_owned(), Some(hidden), None, Landlock),
    ] {
        if text == mask && !is_root {
            skipped("parts of /proc can be hidden by root alone");
            continue;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("worker");
        write_program(
            &path,
            &text.replace(
                "WORKER",
                &if text.contains("python3") {
                    format!("{:?}", program("rlm-worker-bash"))
                } else {
                    program("rlm-worker-bash").display().to_string()
                },
            ),
        );
        for (level, fails) in [("full", full), ("landlock", landlock)] {
            let Some(why) = fails else { continue };
            let control = place.path().join("control");
            fs::create_dir_all(&control).unwrap();
            fs::create_dir_all(place.path().join("work")).unwrap();
            fs::write(
                control.join("rlm_context.json"),
                json!({"fs_root": place.path().join("work")}).to_string(),
            )
            .unwrap();
            let refused = Command::new(&path)
                .arg("--control-dir")
                .arg(&control)
                .env("RLM_CONFINE", level)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let words = String::from_utf8_lossy(&refused.stderr);
            assert!(words.contains(&format!("RLM_CONFINE={level} cannot be had here: {why}; ")), "{words}");
            assert_eq!(refused.status.code(), Some(3), "{words}");
        }
        let mut worker = Setup::bash().program(path).env("RLM_CONFINE", "try").start();
        assert_eq!(worker.info().confinement.level, obtained);
        let log = fs::read_to_string(worker.control.log_file()).unwrap();
        let expected = match obtained {
            Full => "the session is confined: namespaces, no Landlock, a filter of system calls".to_owned(),
            Landlock => format!("the session is confined: no namespaces ({}), Landlock ", full.unwrap()),
            Off => format!("the session is not confined: {}; {}", full.unwrap(), landlock.unwrap()),
        };
        assert!(log.contains(&expected), "{log}");
        assert_eq!(worker.output("echo here"), "here\n");
        worker.end();
    }
}

#[test]
fn what_cannot_be_asked_for_is_said() {
    let place = tempfile::tempdir().unwrap();
    let worker = program("rlm-worker-bash");
    let control = place.path().join("control");
    fs::create_dir(&control).unwrap();
    fs::create_dir(place.path().join("work")).unwrap();
    fs::write(control.join("rlm_context.json"), json!({"fs_root": place.path().join("work")}).to_string())
        .unwrap();
    let wrong =
        Command::new(&worker).arg("--control-dir").arg(&control).env("RLM_CONFINE", "ful").output().unwrap();
    let words = String::from_utf8_lossy(&wrong.stderr);
    let expected = "environment variable RLM_CONFINE is \"ful\", expected off, full, landlock or try";
    assert!(words.contains(expected), "{words}");
    let refused = |worker: &str, fs_root: &Path, variables: &[(&str, &str)]| {
        let context = json!({"fs_root": fs_root}).to_string();
        fs::write(control.join("rlm_context.json"), context).unwrap();
        let mut command = Command::new(program(worker));
        command.arg("--control-dir").arg(&control).env("RLM_CONFINE", "full").envs(variables.iter().copied());
        let ended = command.current_dir(place.path()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(ended.status.code(), Some(3), "{ended:?}");
        String::from_utf8(ended.stderr).unwrap()
    };
    let work = place.path().join("work");
    let shim = place.path().join("python3");
    write_program(&shim, "#!/bin/sh\nexec /usr/bin/python3 \"$@\"\n");
    let shim = shim.to_str().unwrap();
    let bash = "rlm-worker-bash";
    let tmp = "expected a whole number of bytes from 65536 to 2^60";
    for (words, expected) in [
        (refused(bash, &work, &[("RLM_CONFINE_READ", "/")]), "cannot have /: it is all of the host"),
        (
            refused(bash, &work, &[("RLM_CONFINE_WRITE", "/sys")]),
            "cannot have /sys: it has a /proc, a /sys and",
        ),
        (refused(bash, "work".as_ref(), &[]), "cannot have work: it is no absolute path"),
        (
            refused(bash, &work, &[("RLM_CONFINE_READ", "/usr:/opt"), ("RLM_CONFINE_WRITE", "/opt")]),
            "/opt is in RLM_CONFINE_READ and in RLM_CONFINE_WRITE",
        ),
        (refused(bash, &work, &[("RLM_CONFINE_TMP", "4096")]), tmp),
        (refused(bash, &work, &[("RLM_CONFINE_TMP", "9223372036854775807")]), tmp),
        (refused("rlm-worker-python", &work, &[("RLM_PYTHON", shim)]), "is a script that starts a Python"),
    ] {
        assert!(words.contains(expected), "{words}");
    }
}
