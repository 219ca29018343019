//! Python sessions that are forked into others.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::protocol::{Outcome, State};
use rlm_core::worker::descendants::stat_fields;
use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{
    AT_ONCE, Setup, Worker, default_python, is_over, open_descriptors, pythons, scaled, shell_status,
    wait_until,
};
use serde_json::json;

use crate::confine::can_have;
use crate::fork_server::{Forks, PROGRAMS};
use crate::languages::Language;

fn branch(worker: &mut Worker) -> Worker {
    worker.branch(Setup::python())
}

/// The process above the server of a branch.
fn above(branch: &Worker) -> Pid {
    let [parent] = stat_fields(branch.server(), [4]).unwrap();
    Pid::from_raw(i32::try_from(parent).unwrap())
}

/// The reason why there is no branch now.
fn refusal(worker: &mut Worker) -> String {
    let (_, response) = worker.leave_branch(json!({}));
    assert_eq!((response.outcome, response.state), (Outcome::Error, State::Kept), "{response:?}");
    response.hint.unwrap()
}

/// Waits for the end of a worker whose branches go on.
fn end_before_branches(mut worker: Worker) -> Worker {
    worker.signal(Signal::SIGTERM);
    assert_eq!(shell_status(worker.wait()), 128 + Signal::SIGTERM as i32);
    worker
}

#[test]
fn every_python_branches_with_all_that_is_in_its_memory() {
    const STATE: &str = "import sys, os, signal, gc, asyncio, sqlite3, threading, warnings, decimal\n\
        def count():\n\
        \x20   yield from range(9)\n\
        lines, lock, loop_lock = count(), threading.Lock(), asyncio.Lock()\n\
        next(lines); lock.acquire()\n\
        db = sqlite3.connect(':memory:'); _ = db.execute('create table t (a)')\n\
        await asyncio.sleep(0)\n\
        os.mkdir('sub'); os.chdir('sub'); _ = os.umask(0o27), os.nice(1)\n\
        file = open('file', 'w+'); _ = file.write('abc'); file.flush()\n\
        handled = []; _ = signal.signal(signal.SIGUSR1, lambda *_: handled.append(1)), signal.signal(signal.SIGCHLD, lambda *_: None)\n\
        os.environ['OWN'] = '1'; decimal.getcontext().prec = 3; gc.disable()\n\
        answer['content'] = 'so'; same = answer";
    const FACTS: &str = "(next(lines), lock.locked(), answer, same is answer, db.execute('select count(*) from t').fetchall(), \
        asyncio.run(asyncio.sleep(0, 5)), os.getcwd() == os.path.join(extra_data, 'sub'), oct(os.umask(0o27)), os.nice(0), \
        file.tell(), os.getpid() == os.getsid(0), threading.active_count(), os.environ['OWN'], sorted(globals()), \
        os.kill(os.getpid(), signal.SIGUSR1), handled, [signal.getsignal(n) for n in (1, 2, 3, 10, 13, 15, 17, 25)], \
        signal.pthread_sigmask(signal.SIG_BLOCK, []), gc.isenabled(), decimal.getcontext().prec, sys.stdout.isatty(), \
        [line for line in open('/proc/self/status') if line[:4] in ('Name', 'SigP', 'SigB', 'SigI', 'SigC', 'NoNe', 'Cpus')])";
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        worker.value(STATE);
        let mut forked = worker.branch(Setup::python_at(&python));
        let mut second = forked.branch(Setup::python_at(&python));
        let facts = worker.value(FACTS);
        for branch in [&mut forked, &mut second] {
            assert_eq!(branch.value(FACTS), facts, "{}", python.display());
            let kept = "t = asyncio.create_task(asyncio.sleep(0, 6)); await t, await asyncio.sleep(0, 7)";
            assert_eq!(branch.value(kept), "(6, 7)");
            let info = branch.info();
            assert_eq!((info.calls, info.pid), (3, Some(branch.interpreter().as_raw())));
            let history = fs::read_to_string(branch.control.history_file()).unwrap();
            let lines: Vec<serde_json::Value> =
                history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let codes: Vec<&str> = lines.iter().map(|line| line["code"].as_str().unwrap()).collect();
            assert_eq!(codes, [STATE, FACTS, kept]);
        }
        // Each goes on alone.
        forked.value("x = 1; file.write('d'), file.flush()");
        assert_eq!(second.value("'x' in globals(), file.tell()"), "(False, 3)");
        assert_eq!(worker.value("'x' in globals(), file.tell()"), "(False, 3)");
        let response = forked.call("print('out'); print('err', file=sys.stderr); os.system('echo sub')");
        assert_eq!((response.stdout.as_str(), response.stderr.as_str()), ("out\nsub\n", "err\n"));
        let response = forked.call_with("while True: pass", json!({"timeout": 0.1}));
        assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept));
        second.end();
        forked.end();
        worker.end();
    }
}

#[test]
fn connections_are_closed_and_files_are_opened_anew() {
    let mut worker = Worker::python();
    worker.value(
        "import os, socket, tempfile, subprocess, select, errno\n\
         near, far = socket.socketpair(); into, out = os.pipe(); names = tempfile.TemporaryFile('w+'); names.write('abc'); names.flush()\n\
         dir = os.open('.', os.O_RDONLY); null = open('/dev/null', 'w'); kept = open('kept', 'w+'); kept.write('kept'); kept.flush()\n\
         moved = open('moved', 'w'); os.rename('moved', 'elsewhere'); gone = open('gone', 'w'); os.remove('gone'); open('gone', 'w').close()\n\
         program = subprocess.Popen(['sleep', '1000']); before = sorted(map(int, os.listdir('/proc/self/fd')))[:-1]",
    );
    let mut forked = branch(&mut worker);
    assert_eq!(forked.value("sorted(map(int, os.listdir('/proc/self/fd')))[:-1] == before"), "True");
    assert_eq!(forked.value("near.recv(9), os.read(into, 9)"), "(b'', b'')");
    assert_eq!(
        forked.value(
            "names.seek(0), names.read(), os.listdir(dir) != [], null.write('x'), kept.tell(), program.poll()"
        ),
        "(0, 'abc', True, 1, 4, 0)"
    );
    let raises = |worker: &mut Worker, code: &str, kind: &str| {
        let response = worker.call(code);
        assert_eq!(response.exception.map(|exception| exception.kind).as_deref(), Some(kind), "{code}");
    };
    raises(&mut forked, "near.send(b'x')", "BrokenPipeError");
    // A file that has another name now is the same file, and one that was removed is not the one in its place.
    assert_eq!(forked.value("moved.write('x'), moved.flush(), open('elsewhere').read()"), "(1, None, 'x')");
    assert_eq!(forked.value("gone.write('x'), gone.flush(), os.path.getsize('gone')"), "(1, None, 0)");
    assert_eq!(worker.value("names.tell()"), "3", "each has a place of its own");
    assert_eq!(worker.value("near.send(b'x'), far.recv(9), program.poll()"), "(1, b'x', None)");
    let (_, response) = worker.leave_branch(json!({}));
    assert!(response.hint.unwrap().contains("(sleep) (it is a running program)"));
    forked.end();
    worker.end();
}

#[test]
fn nothing_is_left_and_nobody_else_is_harmed_whoever_ends_or_is_killed() {
    let works = |worker: &mut Worker| assert_eq!(worker.value("x"), "1");
    let origin = || {
        let mut worker = Worker::python();
        worker.value("x = 1");
        let (first, second) = (branch(&mut worker), branch(&mut worker));
        (worker, first, second)
    };
    // The origin.
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for of_server in [false, true] {
            let (mut worker, mut first, mut second) = origin();
            worker.value(PROGRAMS);
            let mut third = branch(&mut first);
            let own = [worker.server(), worker.interpreter()];
            kill(if of_server { own[0] } else { worker.pid() }, signal).unwrap();
            worker.wait();
            wait_until("the origin has ended", || own.into_iter().all(is_over));
            [&mut first, &mut second, &mut third].into_iter().for_each(works);
            // What the branches start is theirs.
            first.value(PROGRAMS);
            first.end();
            [&mut second, &mut third].into_iter().for_each(works);
            second.end();
            third.end();
            worker.assert_nothing_left();
        }
    }
    // A branch: its guard, its server, and the process above that.
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let victims: [fn(&Worker) -> Pid; 2] = [Worker::pid, Worker::server];
        for victim in victims {
            let (mut worker, mut first, mut second) = origin();
            first.value(PROGRAMS);
            let over = above(&first);
            kill(victim(&first), signal).unwrap();
            assert_eq!(shell_status(first.wait()), 128 + signal as i32);
            // It has cleaned up then.
            wait_until("the process above the branch has ended", || is_over(over));
            [&mut worker, &mut second].into_iter().for_each(works);
            second.end();
            worker.end();
        }
    }
    let (mut worker, mut first, second) = origin();
    let over = above(&first);
    kill(over, Signal::SIGKILL).unwrap();
    wait_until("it is dead", || is_over(over));
    [&mut worker, &mut first].into_iter().for_each(works);
    first.value("import subprocess; program = subprocess.Popen(['sleep', '1000'])");
    first.end();
    // Stopped, it keeps nobody from ending.
    let over = above(&second);
    kill(over, Signal::SIGSTOP).unwrap();
    second.signal(Signal::SIGTERM);
    let mut second = second;
    second.wait();
    kill(over, Signal::SIGCONT).unwrap();
    works(&mut worker);
    worker.end();
}

#[test]
fn what_ends_the_programs_of_a_session_does_not_end_its_branches() {
    let mut worker = Setup::python().env("RLM_CHECKPOINT", 1).start();
    worker.value("x = 1; import os");
    let mut forked = worker.branch(Setup::python().env("RLM_CHECKPOINT", 1));
    // There is no child of the session to wait for.
    let response = worker.call("os.wait()");
    assert_eq!(response.exception.unwrap().kind, "ChildProcessError");
    assert_eq!(worker.call("os._exit(3)").state, State::Restored);
    assert_eq!(worker.call("while True: os.killpg(0, 9)").state, State::Reset);
    worker.send(json!({"op": "reset", "seq": 0}).to_string().as_bytes());
    assert_eq!(worker.receive().outcome, Outcome::Ok);
    assert_eq!(forked.value("x"), "1");
    // It has checkpoints of its own, and begins anew without any state.
    let response = forked.call("x = 2; os._exit(3)");
    assert_eq!(response.state, State::Restored, "{response:?}");
    assert_eq!(forked.value("x"), "1");
    let mut second = worker.branch(Setup::python());
    second.call("y = 1; answer['content'] = 'so'");
    assert_eq!(second.call("import os; os._exit(3)").state, State::Reset);
    assert_eq!(second.value("'y' in globals(), answer['content']"), "(False, 'so')");
    second.end();
    forked.end();
    worker.end();
}

#[test]
fn a_hundred_branches_of_one_session() {
    let mut worker = Worker::python();
    worker.value("x = list(range(1000))");
    let begin = open_descriptors(worker.server());
    let mut branches: Vec<Worker> = (0..scaled(100, 30)).map(|_| branch(&mut worker)).collect();
    let server = worker.server();
    wait_until("the worker has closed what it opened", || open_descriptors(server) <= begin);
    for (number, branch) in branches.iter_mut().enumerate() {
        assert_eq!(branch.value(&format!("x.append({number}); len(x), x[-1]")), format!("(1001, {number})"));
    }
    let begun = std::time::Instant::now();
    let worker = end_before_branches(worker);
    assert!(begun.elapsed() < AT_ONCE, "its end took {:?}", begun.elapsed());
    branches.into_iter().for_each(Worker::end);
    worker.assert_nothing_left();
}

#[test]
fn what_cannot_branch_says_why_and_goes_on() {
    let mut worker = Worker::python();
    worker.value(
        "import threading, asyncio; stop = threading.Event(); threading.Thread(target=stop.wait).start()",
    );
    assert_eq!(refusal(&mut worker), "a thread that a cell started is alive, and a copy would not have it");
    worker.value("stop.set(); [t.join() for t in threading.enumerate()[1:]]; t = asyncio.create_task(asyncio.sleep(1000))");
    assert_eq!(refusal(&mut worker), "a task that a cell started is not done");
    worker.value("t.cancel(); await asyncio.sleep(0); import sqlite3; db = sqlite3.connect('db'); db.execute('create table t (a)')");
    worker.value("_ = db.execute('begin exclusive')");
    assert_eq!(refusal(&mut worker), "a file is locked for writing, as by an open transaction of a database");
    worker.value("db.commit()");
    let database = worker.fs_root().join("db");
    let expected = format!("a database of SQLite is open, {}, and would not survive it", database.display());
    assert_eq!(refusal(&mut worker), expected);
    // A thread that Python does not know of.
    let thread = "db.close(); import ctypes; c = ctypes.CDLL(None); c.pthread_create(ctypes.byref(ctypes.c_void_p()), None, c.pause, None)";
    let mut with_thread = Worker::python();
    with_thread.value(&thread["db.close(); ".len()..]);
    assert_eq!(refusal(&mut with_thread), "threads of a library are alive, and a copy would not have them");
    with_thread.end();
    worker.value("db.close()");
    branch(&mut worker).end();
    worker.value("import resource; resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))");
    // Root may fork all the same.
    let (_, response) = worker.leave_branch(json!({}));
    assert!(response.outcome == Outcome::Ok || response.hint.unwrap().contains("could not be copied"));
    worker.end();

    let mut bash = Worker::bash();
    assert_eq!(refusal(&mut bash), "the shell cannot be forked");
    assert_eq!(bash.output("echo 1"), "1\n");
    bash.end();
    let refuses = |name: &str, value: &str, why: &str| {
        let mut worker = Setup::python().env(name, value).start();
        assert_eq!(refusal(&mut worker), why);
        assert_eq!(worker.value("1 + 1"), "2");
        worker.end();
    };
    refuses("RLM_LIMIT_CPU", "1000", "the session has limits, and a copy would count towards them");
    refuses("RLM_FS_JAIL", "1", "the session has RLM_FS_JAIL, which is for its own directory alone");
    for level in ["full", "landlock"].into_iter().filter(|level| can_have(level)) {
        let why = "the session is confined, and a copy would share its namespaces and rules";
        refuses("RLM_CONFINE", level, why);
    }
}

#[test]
fn a_request_or_a_worker_without_a_branch_is_an_error() {
    let mut worker = Worker::python();
    let ask = |name: serde_json::Value| {
        worker.send(json!({"op": "branch", "seq": 0, "name": name}).to_string().as_bytes());
        let response = worker.receive();
        assert_eq!((response.outcome, response.state), (Outcome::Error, State::Kept));
        response.hint.unwrap()
    };
    assert_eq!(ask(json!(null)), "field `name` is null, expected a name of 1 to 107 bytes");
    assert!(ask(json!("x".repeat(108))).ends_with("expected a name of 1 to 107 bytes"));
    let (name, response) = worker.leave_branch(json!({}));
    assert_eq!(response.outcome, Outcome::Ok);
    let again = |name: &str| {
        worker.send(json!({"op": "branch", "seq": 0, "name": name}).to_string().as_bytes());
        worker.receive().hint.unwrap()
    };
    assert_eq!(again(&name), format!("the name {name} is in use"));
    // A branch that no worker has taken is its origin's.
    worker.end();
    let refused = |env: &[(&str, &str)]| Language::Python.refuses_to_start(env);
    let log = refused(&[("RLM_BRANCH_NAME", &name)]);
    assert!(
        log.contains("the session cannot begin as a branch: it does not run; a branch takes one worker"),
        "{log}"
    );
    let log = refused(&[("RLM_BRANCH_NAME", &name), ("RLM_CONFINE", "try")]);
    assert!(log.contains("cannot begin as a branch: the session is confined"), "{log}");
    let log = Language::Bash.refuses_to_start(&[("RLM_BRANCH_NAME", &name)]);
    assert!(log.contains("cannot begin as a branch: the worker cannot be forked"), "{log}");
}

#[test]
fn a_branch_with_a_copy_of_the_directory_has_the_files_of_the_copy() {
    let mut worker = Worker::python();
    worker.value(
        "import os; os.mkdir('sub'); os.chdir('sub'); log = open('../log', 'a'); log.write('a'); log.flush()\n\
         read = open('../log'); read.read(1); dir = os.open('.', os.O_RDONLY); outside = open('/etc/passwd')",
    );
    let (name, response) = worker.leave_branch(json!({"directory": true}));
    assert_eq!(response.outcome, Outcome::Ok, "{response:?}");
    let mut forked = Setup::python().env("RLM_BRANCH_NAME", name).start();
    let place = "log.write('b'), log.flush(), read.read(), os.path.samestat(os.stat('.'), os.fstat(dir)), \
                 os.getcwd() == extra_data + '/sub' == os.environ['PWD'], outside.read(4)";
    assert_eq!(forked.value(place), "(1, None, 'b', True, True, 'root')");
    let text = |worker: &Worker| fs::read_to_string(worker.fs_root().join("log")).unwrap();
    assert_eq!((text(&worker), text(&forked)), ("a".to_owned(), "ab".to_owned()));
    // A directory that is not empty stays as it is.
    let (name, response) = worker.leave_branch(json!({"directory": true}));
    assert_eq!(response.outcome, Outcome::Ok);
    let log = Language::Python.refuses_to_start(&[("RLM_BRANCH_NAME", &name)]);
    assert!(log.contains("is not empty"), "{log}");
    forked.end();
    worker.end();
}

#[test]
fn a_branch_has_the_guard_rails_of_its_origin() {
    let rails = |modules: &str| Setup::python().env("RLM_DISALLOWED_MODULES", modules);
    let mut worker = rails("json").start();
    let mut forked = worker.branch(rails("json"));
    assert_eq!(forked.call("import json").exception.unwrap().kind, "ImportError");
    forked.end();
    let (name, _) = worker.leave_branch(json!({}));
    let other = [("RLM_BRANCH_NAME", &*name), ("RLM_DISALLOWED_MODULES", "csv")];
    let log = Language::Python.refuses_to_start(&other);
    assert!(log.contains("a branch has the guard rails of its origin: RLM_DISALLOWED_MODULES"), "{log}");
    worker.end();
}

#[test]
fn root_tools_of_a_branch_are_those_of_its_own_host() {
    let (one, other) = (ExistingEndpoint::start(), ExistingEndpoint::start());
    let with = |endpoint: &ExistingEndpoint| endpoint.tools_for(Setup::python());
    let mut worker = with(&one).start();
    worker.value("import os; alias = [echo]; url = os.environ['RLM_ROOT_TOOL_URL']");
    let mut forked = worker.branch(with(&other));
    assert_eq!(forked.value("os.environ['RLM_ROOT_TOOL_URL'] == url, alias[0] is echo"), "(False, True)");
    drop(one);
    assert_eq!(forked.value("alias[0](5), echo(6)"), "([[5], {}], [[6], {}])");
    forked.end();
    worker.end();
    drop(other);
}

#[test]
fn a_session_of_a_fork_server_branches_too() {
    let forks = Forks::of(&default_python(), &["json.tool"]);
    let mut worker = forks.start();
    worker.value("x = 1; import sys");
    let mut forked = branch(&mut worker);
    worker.value("import subprocess; program = subprocess.Popen(['sh', '-c', '(setsid sleep 1000 &)'])");
    kill(worker.server(), Signal::SIGKILL).unwrap();
    worker.wait();
    assert_eq!(forked.value("x, 'json.tool' in sys.modules"), "(1, True)");
    // It ends after its last session, and a branch is none of them.
    drop(forks);
    assert_eq!(forked.value("x"), "1");
    forked.end();
    worker.assert_nothing_left();
}
