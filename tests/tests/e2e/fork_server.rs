//! Sessions that come from a fork server are what they are without one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::protocol::{Outcome, State};
use rlm_core::worker::descendants;
use rlm_env::ForkServer;
use rlm_tests::{
    AT_ONCE, Setup, Worker, children, default_python, is_over, open_descriptors, program, pythons, scaled,
    shell_status, wait_until,
};
use serde_json::json;

/// Code that starts programs which end late, by force alone, or as orphans.
pub(crate) const PROGRAMS: &str = "import subprocess\n\
    for command in ('sleep 1000', 'trap \"\" HUP TERM; sleep 1000 & wait', '(setsid sleep 1000 &)'):\n\
    \x20   subprocess.Popen(['sh', '-c', command])";

/// A fork server, which must end at the end of a test, and sessions of the same Python.
pub(crate) struct Forks {
    server: Option<ForkServer>,
    python: PathBuf,
}

impl Forks {
    pub(crate) fn of(python: &Path, preload: &[&str]) -> Self {
        let server = start(python, &[], preload).unwrap();
        Self { server: Some(server), python: python.to_owned() }
    }

    fn new() -> Self {
        Self::of(&default_python(), &[])
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.server.as_ref().unwrap().pid().cast_signed())
    }

    fn setup(&self) -> Setup {
        let (name, value) = self.server.as_ref().unwrap().variable();
        Setup::python_at(&self.python).env(name.to_str().unwrap(), value.to_str().unwrap())
    }

    /// A session that comes from the fork server.
    pub(crate) fn start(&self) -> Worker {
        let worker = self.setup().start();
        self.assert_forked(&worker);
        worker
    }

    fn assert_forked(&self, worker: &Worker) {
        let parent = descendants::stat_fields(worker.server(), [4]).map(|[parent]| parent);
        assert_eq!(parent, Some(self.pid().as_raw() as u64), "{}", worker.log());
    }
}

impl Drop for Forks {
    fn drop(&mut self) {
        if let Some(server) = self.server.take().filter(|_| !std::thread::panicking()) {
            let pid = Pid::from_raw(server.pid().cast_signed());
            drop(server);
            wait_until("the fork server ends after its last session", || is_over(pid));
        }
    }
}

fn start(
    python: &Path,
    variables: &[(&str, &str)],
    preload: &[&str],
) -> Result<ForkServer, rlm_env::ForkServerError> {
    let path = ("PATH", "/usr/local/bin:/usr/bin:/bin");
    let python = ("RLM_PYTHON", python.to_str().unwrap());
    let variables = [path, ("LANG", "C.UTF-8"), python].into_iter().chain(variables.iter().copied());
    let variables: Vec<_> = variables.map(|(name, value)| (name.into(), value.into())).collect();
    ForkServer::start(&program("rlm-worker-python"), &variables, preload)
}

/// The reason in the log of a session that had to be started.
fn why_started(worker: &Worker) -> String {
    let log = worker.log();
    let (_, why) = log.split_once("without the fork server: ").unwrap_or_else(|| panic!("{log}"));
    why.lines().next().unwrap().to_owned()
}

#[test]
fn every_python_has_sessions_that_are_what_they_always_were() {
    const FACTS: &str = "import sys, os, signal, gc, threading; (sys.argv, sys.flags, sys.path, sys.executable, sys.prefix, \
        sys.stdout.encoding, sys.stdout.line_buffering, sys.stdout.seekable(), sys.stdin.isatty(), __name__, \
        sorted(globals()), gc.isenabled(), gc.get_threshold(), threading.active_count(), os.getcwd() == os.environ['PWD'], \
        os.getpid() == os.getsid(0), sorted(os.environ), os.listdir('/proc/self/fd'), os.umask(18), \
        [(n, signal.getsignal(n)) for n in (1, 2, 3, 13, 15, 17, 25)], signal.pthread_sigmask(signal.SIG_BLOCK, []), \
        [line for line in open('/proc/self/status') if line[:4] in ('SigP', 'SigB', 'SigI', 'SigC', 'CapE', 'NoNe', 'Cpus')])";
    for python in pythons() {
        let forks = Forks::of(&python, &[]);
        let (mut forked, mut started) = (forks.start(), Setup::python_at(&python).start());
        assert_eq!(forked.value(FACTS), started.value(FACTS), "{}", python.display());
        let (mine, others) = (forked.info(), started.info());
        assert_eq!((mine.version, mine.language), (others.version, others.language));
        forked.call("x = 1; import os, sys; print('out'); print('err', file=sys.stderr)");
        let response = forked.call("os.write(1, b'raw\\n'); os.system('echo sub'); x");
        assert_eq!((response.stdout.as_str(), response.result.as_deref()), ("raw\nsub\n", Some("1")));
        let response = forked.call_with("while True: pass", json!({"timeout": 0.1}));
        assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept));
        let response = forked.call("os._exit(3)");
        assert_eq!((response.outcome, response.state), (Outcome::Crashed, State::Reset));
        let server = forked.server();
        assert_eq!(forked.value("import os; 'x' in globals(), os.getppid()"), format!("(False, {server})"));
        forked.end();
        started.end();
    }
}

#[test]
fn nothing_of_one_session_is_in_another() {
    let forks = Forks::new();
    let secret = format!("secret-{}", std::process::id());
    let with_secret = || {
        let secret =
            [("RLM_INTERCEPTION_SECRET", &secret), ("RLM_PASS_ENV", &"OWN".to_owned()), ("OWN", &secret)];
        secret.into_iter().fold(forks.setup(), |setup, (name, value)| setup.env(name, value)).start()
    };
    let first = with_secret();
    forks.assert_forked(&first);
    first.end();
    let second = with_secret();
    let mut other = forks.start();
    let found = other.value(
        "import os, re\n\
         wanted = 'terces'[::-1].encode() + b'-' + b'%d'\n\
         def memory():\n\
         \x20   with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:\n\
         \x20       for line in maps:\n\
         \x20           begin, end = (int(n, 16) for n in line.split()[0].split('-'))\n\
         \x20           if line.split()[1][0] == 'r' and '[v' not in line:\n\
         \x20               memory.seek(begin); yield memory.read(end - begin)\n\
         pattern = re.compile(rb's(?:ecret)-[0-9]+')\n\
         [part for block in memory() for part in pattern.findall(block)], 'OWN' in os.environ, b'OWN' in open('/proc/self/environ', 'rb').read()",
    );
    assert_eq!(found, "([], False, False)");
    let mut second = second;
    assert_eq!(second.value("import os; os.environ['OWN']"), format!("'{secret}'"));
    second.end();
    other.end();
}

#[test]
fn sessions_differ_in_what_is_random() {
    let forks = Forks::of(&default_python(), &["random", "uuid", "tempfile"]);
    let code = "import sys, random, uuid, secrets, tempfile, os; assert {'uuid', 'tempfile'} <= set(sys.modules); \
                random.random(), uuid.uuid4(), uuid.uuid1(), secrets.token_hex(), next(tempfile._get_candidate_names())";
    let (mut one, mut other) = (forks.start(), forks.start());
    let values = [one.value(code), other.value(code)]
        .map(|value| value.split(", ").map(str::to_owned).collect::<Vec<_>>());
    for (one, other) in values[0].iter().zip(&values[1]) {
        assert_ne!(one, other);
    }
    one.end();
    other.end();
}

#[test]
fn a_session_goes_on_after_the_fork_server_was_killed_and_the_next_starts_without() {
    let forks = Forks::new();
    let mut worker = forks.start();
    worker.value("x = 1");
    kill(forks.pid(), Signal::SIGKILL).unwrap();
    wait_until("it is dead", || is_over(forks.pid()));
    assert_eq!(worker.value("x"), "1");
    assert_eq!(worker.call("import os; os._exit(1)").state, State::Reset);
    assert_eq!(worker.value("1 + 1"), "2");
    let mut next = forks.setup().start();
    assert_eq!(why_started(&next), "it does not run");
    assert_eq!(next.value("2 + 2"), "4");
    next.end();
    worker.end();
}

#[test]
fn nothing_is_left_whoever_is_killed_or_stopped() {
    let forks = Forks::new();
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let mut worker = forks.start();
        worker.value(PROGRAMS);
        kill(worker.server(), signal).unwrap();
        assert_eq!(shell_status(worker.wait()), 128 + signal as i32);
        worker.assert_nothing_left();
        let (mut worker, other) = (forks.start(), forks.start());
        worker.value(PROGRAMS);
        worker.signal(signal);
        worker.wait();
        wait_until("nothing is left", || worker.processes().is_empty());
        other.end();
    }
    let mut worker = forks.start();
    let response = worker.call("import os, signal; os.kill(os.getppid(), signal.SIGSTOP); 1");
    assert_eq!(response.result.as_deref(), Some("1"));
    worker.end();
    let mut worker = forks.start();
    worker.value(PROGRAMS);
    worker.send(br#"{"shutdown": true}"#);
    assert_eq!(shell_status(worker.wait()), 0);
    worker.assert_nothing_left();
}

#[test]
fn a_fork_server_outlives_its_owner_until_its_last_session_has_ended() {
    let mut forks = Forks::new();
    let mut worker = forks.start();
    let pid = forks.pid();
    let (name, value) = forks.server.as_ref().unwrap().variable();
    forks.server = None;
    let setup = Setup::python_at(&forks.python).env(name.to_str().unwrap(), value.to_str().unwrap());
    let next = setup.start();
    assert_eq!(why_started(&next), "it does not run");
    next.end();
    worker.value("import subprocess; program = subprocess.Popen(['sh', '-c', '(setsid sleep 1000 &)'])");
    kill(worker.server(), Signal::SIGKILL).unwrap();
    worker.wait();
    worker.assert_nothing_left();
    wait_until("it ends", || is_over(pid));
}

#[test]
fn two_hundred_sessions_come_from_one_fork_server_at_once() {
    let forks = Forks::new();
    let begin = open_descriptors(forks.pid());
    std::thread::scope(|scope| {
        for number in 0..scaled(200, 60) {
            let forks = &forks;
            scope.spawn(move || {
                let mut worker =
                    forks.setup().env("RLM_PASS_ENV", "RLM_TEST_MARK NUMBER").env("NUMBER", number).start();
                forks.assert_forked(&worker);
                let number = number.to_string();
                assert_eq!(worker.value("import os; int(os.environ['NUMBER'])"), number);
                worker.end();
            });
        }
    });
    assert!(open_descriptors(forks.pid()) <= begin);
    assert_eq!(children(forks.pid()), []);
}

#[test]
fn a_session_that_cannot_come_from_it_is_started_and_says_why() {
    let forks = Forks::new();
    let why = |setup: Setup| {
        let mut worker = setup.start();
        assert_eq!(worker.value("1 + 1"), "2");
        let why = why_started(&worker);
        worker.end();
        why
    };
    let locale = why(forks.setup().env("LC_ALL", "C"));
    assert_eq!(locale, "it was started with another value of LC_ALL");
    let confined = why(forks.setup().env("RLM_CONFINE", "try"));
    assert_eq!(confined, "the session is confined, and has namespaces or rules of its own");
    let half = "x".repeat(120 << 10);
    let large = why(forks.setup().env("RLM_PASS_ENV", "ONE OTHER").env("ONE", &half).env("OTHER", &half));
    assert_eq!(large, "the environment is too large to be passed to it");
    if let [_, other, ..] = &*pythons() {
        let (name, value) = forks.server.as_ref().unwrap().variable();
        let setup = Setup::python_at(other).env(name.to_str().unwrap(), value.to_str().unwrap());
        let expected = format!("its Python is {}, not {}", forks.python.display(), other.display());
        assert_eq!(why(setup), expected);
    }
}

/// A virtual environment of the default Python, with these modules.
fn environment_with(modules: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let made =
        Command::new(default_python()).args(["-I", "-m", "venv", "--without-pip"]).arg(dir.path()).status();
    assert!(made.unwrap().success());
    for (name, text) in modules {
        fs::write(site_packages(dir.path()).join(name), text).unwrap();
    }
    let python = dir.path().join("bin/python3");
    (dir, python)
}

fn site_packages(environment: &Path) -> PathBuf {
    let lib = fs::read_dir(environment.join("lib")).unwrap().next().unwrap().unwrap();
    lib.path().join("site-packages")
}

#[test]
fn modules_are_imported_once_for_all_sessions() {
    let text = "import os; pid = os.getpid(); print('imported')";
    let (_dir, python) = environment_with(&[("counted.py", text)]);
    let forks = Forks::of(&python, &["counted", "json.tool"]);
    for _ in 0..2 {
        let mut worker = forks.start();
        assert_eq!(worker.value("'counted' in globals(), 'json' in globals()"), "(False, False)");
        let response = worker.call("import counted; counted.pid");
        assert_eq!((response.stdout.as_str(), response.result), ("", Some(forks.pid().to_string())));
        worker.end();
    }
}

#[test]
fn a_module_that_cannot_be_imported_or_forked_is_named() {
    let modules = [
        ("broken.py", "print('some words')\nraise ValueError('no')"),
        (
            "threads.py",
            "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        ),
        ("exits.py", "import sys; sys.exit(7)"),
        ("dies.py", "import os; os._exit(7)"),
        ("opens.py", "file = open('/etc/passwd')"),
        (
            "programs.py",
            "import subprocess; program = subprocess.Popen(['sleep', '1000']); print(program.pid)",
        ),
    ];
    let (_dir, python) = environment_with(&modules);
    let why = |module: &str| start(&python, &[], &["json", module]).unwrap_err().to_string();
    let prefix = "rlm-worker-python: the fork server cannot start: ";
    assert_eq!(
        why("absent"),
        format!("{prefix}cannot import absent: ModuleNotFoundError: No module named 'absent'")
    );
    assert_eq!(
        why("broken"),
        format!("{prefix}cannot import broken: ValueError: no; it printed:\nsome words")
    );
    assert_eq!(
        why("threads"),
        format!("{prefix}threads starts threads when it is imported, and a fork would not have them")
    );
    let opens = "opens leaves files or connections open (/etc/passwd) when it is imported, and a fork would not have them";
    assert_eq!(why("opens"), format!("{prefix}{opens}"));
    let programs =
        "programs starts programs when it is imported, and a fork would not have them; it printed:\n";
    let told = why("programs");
    let program = told.strip_prefix(&format!("{prefix}{programs}")).unwrap_or_else(|| panic!("{told}"));
    assert!(is_over(Pid::from_raw(program.parse().unwrap())));
    assert_eq!(why("exits"), format!("{prefix}cannot import exits: SystemExit: 7"));
    assert_eq!(why("dies"), "the fork server ended before it was ready (exit status: 7)");
}

#[test]
fn what_is_installed_is_seen_by_the_next_session() {
    let (dir, python) = environment_with(&[("before.py", "version = 1")]);
    let forks = Forks::of(&python, &["before"]);
    let mut first = forks.start();
    first.value("import before; x = before.version");
    let pid = forks.pid();
    let packages = site_packages(dir.path());
    fs::write(packages.join("before.py"), "version = 22").unwrap();
    fs::write(packages.join("later.py"), "version = 3").unwrap();
    let mut next = forks.setup().start();
    let why = why_started(&next);
    assert_eq!(why, format!("{} has changed since it was started, and it starts anew", packages.display()));
    let code = "import before, later; before.version, later.version";
    assert_eq!(next.value(code), "(22, 3)");
    next.end();
    let mut last = forks.start();
    assert_eq!((last.value(code), forks.pid()), ("(22, 3)".to_owned(), pid));
    assert_eq!(first.value("x"), "1");
    // The one that started anew still cleans up after the first session.
    first.value("import subprocess; program = subprocess.Popen(['sh', '-c', '(setsid sleep 1000 &)'])");
    kill(first.server(), Signal::SIGKILL).unwrap();
    assert_eq!(shell_status(first.wait()), 128 + Signal::SIGKILL as i32);
    first.assert_nothing_left();
    last.end();
    // Other files in a directory of modules are no modules.
    fs::write(packages.join("result.json"), "{}").unwrap();
    forks.start().end();
    // An upgrade may take the module away for a moment.
    fs::remove_file(packages.join("before.py")).unwrap();
    let why = || {
        let worker = forks.setup().start();
        let why = why_started(&worker);
        worker.end();
        why
    };
    assert!(why().ends_with("and it starts anew"));
    let fault =
        "it could not start anew: cannot import before: ModuleNotFoundError: No module named 'before'";
    assert_eq!([why(), why()], [fault, fault]);
    let descriptors = open_descriptors(pid);
    fs::write(packages.join("before.py"), "version = 4").unwrap();
    assert!(why().ends_with("and it starts anew"));
    let mut last = forks.start();
    assert_eq!(last.value(code), "(4, 3)");
    last.end();
    wait_until("it has the descriptors from before", || open_descriptors(pid) <= descriptors);
    // Without its environment it starts no more sessions, and cleans up after those that it has.
    let mut last = forks.start();
    last.value("import subprocess; program = subprocess.Popen(['sh', '-c', '(setsid sleep 1000 &)'])");
    fs::remove_dir_all(dir.path().join("lib")).unwrap();
    fs::remove_file(&python).unwrap();
    let (name, value) = forks.server.as_ref().unwrap().variable();
    let next = Setup::python().env(name.to_str().unwrap(), value.to_str().unwrap()).start();
    assert!(why_started(&next).ends_with("has changed since it was started"), "{}", next.log());
    next.end();
    kill(last.server(), Signal::SIGKILL).unwrap();
    last.wait();
    last.assert_nothing_left();
}

#[test]
fn modules_may_print_set_variables_and_change_signals() {
    let text = "import os, signal\nprint('x' * 200_000)\nos.environ.update(SET='yes', OMP_NUM_THREADS='1', LANG='xx')\n\
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.umask(0o77)\n\
        os.register_at_fork(after_in_parent=lambda: print('y' * 5000, flush=True))";
    let (_dir, python) = environment_with(&[("changes.py", text)]);
    let forks = Forks::of(&python, &["changes"]);
    for _ in 0..20 {
        let mut worker = forks.start();
        let response = worker.call("import os; os.environ['SET'], os.environ['LANG'], os.umask(0)");
        assert_eq!(
            (response.stdout.as_str(), response.result.as_deref()),
            ("", Some("('yes', 'C.UTF-8', 18)"))
        );
        worker.end();
    }
}

#[test]
fn a_fork_server_that_is_stopped_keeps_no_session_from_its_end() {
    let forks = Forks::new();
    let mut worker = forks.start();
    kill(forks.pid(), Signal::SIGSTOP).unwrap();
    assert_eq!(worker.value("1 + 1"), "2");
    let begun = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(shell_status(worker.wait()), 128 + Signal::SIGTERM as i32);
    assert!(begun.elapsed() < AT_ONCE * 4, "{:?}", begun.elapsed());
    let next = forks.setup().start();
    assert_eq!(why_started(&next), "it has not answered for 3 s");
    next.end();
    kill(forks.pid(), Signal::SIGCONT).unwrap();
    forks.start().end();
}

#[test]
fn a_session_has_checkpoints_limits_and_a_log_as_without() {
    let forks = Forks::new();
    let mut worker = forks.setup().env("RLM_CHECKPOINT", 1).env("RLM_LIMIT_FILE_SIZE", 4096).start();
    forks.assert_forked(&worker);
    worker.value("x = 1");
    let response = worker.call("import os; os._exit(1)");
    assert_eq!(response.state, State::Restored, "{response:?}");
    assert_eq!(worker.value("x"), "1");
    let response = worker.call("open('large', 'wb').write(bytes(10_000))");
    assert_eq!(response.exception.unwrap().message, "[Errno 27] File too large");
    let limits = worker.value("import resource; resource.getrlimit(resource.RLIMIT_FSIZE)");
    assert_eq!(limits, "(4096, 4096)");
    worker.end();
    // An interrupt is for the call that runs, and is not kept for the next.
    let mut worker = forks.start();
    worker.signal(Signal::SIGINT);
    assert_eq!(worker.value("1 + 1"), "2");
    worker.send_call("open('begun', 'w').close()\nwhile True: pass", json!({}));
    worker.wait_for_file("begun");
    worker.signal(Signal::SIGINT);
    assert_eq!(worker.receive().outcome, Outcome::Interrupted);
    worker.end();
}
