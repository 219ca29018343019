//! Saved sessions: another worker goes on with one, and a file that cannot be loaded changes nothing.

mod branches;
mod confined;
mod files;
mod namespaces;
mod shells;

use std::fs;
use std::path::{Path, PathBuf};

use rlm_core::protocol::{Answer, HistoryEntry, Operation, Outcome, Response, State};
use rlm_core::saved::Saved;
use rlm_tests::Worker;
use serde_json::json;
use tempfile::TempDir;

use crate::languages::{Language, answer_file, in_both_languages};
use crate::ops::ask;

in_both_languages!(
    another_worker_goes_on_with_the_session,
    a_save_changes_nothing,
    a_load_ends_what_the_session_has_started,
    a_session_is_saved_again_and_again,
    the_directory_goes_along_if_it_is_asked_for,
);

/// A directory for files, and the path of one.
pub(super) fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("session");
    (dir, file)
}

pub(super) fn ask_for(worker: &Worker, op: &str, file: &Path) -> Response {
    ask(worker, json!({"op": op, "file": file}))
}

/// Saves a session, which must succeed. Returns the hint.
#[track_caller]
pub(super) fn save(worker: &Worker, file: &Path) -> String {
    let response = ask_for(worker, "save", file);
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{response:?}");
    response.hint.unwrap_or_default()
}

/// Loads a session, which must succeed. Returns the hint.
#[track_caller]
pub(super) fn load(worker: &Worker, file: &Path) -> String {
    let response = ask_for(worker, "load", file);
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Restored), "{response:?}");
    response.hint.unwrap_or_default()
}

/// Loads a session, which must fail with a hint that contains these words, and leave the session and its processes alone.
#[track_caller]
pub(super) fn load_is_refused(worker: &Worker, file: &Path, fault: &str) {
    // A program that is just being started changes its name.
    let pids = || worker.processes().into_iter().map(|(pid, _)| pid).collect::<Vec<_>>();
    let before = pids();
    let response = ask_for(worker, "load", file);
    assert_eq!((response.outcome, response.state), (Outcome::Error, State::Kept), "{response:?}");
    let hint = response.hint.unwrap_or_default();
    assert!(hint.contains(fault), "{hint}");
    rlm_tests::wait_until("only the session's processes are left", || pids() == before);
}

/// Sets up a session that has a bit of everything.
fn set_up(worker: &mut Worker, language: Language) {
    worker.call(language.pick(
        "mkdir sub; cd sub; n=1; up() { n=$((n + 1)); echo $n; }; RLM_CONTENT='4 2'; RLM_READY=1",
        "import os; os.mkdir('sub'); os.chdir('sub'); n = 1\ndef up():\n    global n\n    n += 1\n    print(n)\n\
         answer['content'] = '4 2'; answer['ready'] = True",
    ));
    assert_eq!(worker.output(language.pick("up", "up()")), "2\n");
}

fn another_worker_goes_on_with_the_session(language: Language) {
    let (_dir, file) = place();
    let mut old = language.start();
    set_up(&mut old, language);
    assert_eq!(save(&old, &file), "");
    let header = Saved::open(&file).unwrap().header().clone();
    assert_eq!((header.language.as_str(), header.execution_count), (language.pick("bash", "python"), 2));
    old.end();

    let mut new = language.start();
    fs::create_dir(new.fs_root().join("sub")).unwrap();
    assert_eq!(load(&new, &file), "");
    let answer = Answer { ready: true, content: "4 2".to_owned() };
    assert_eq!(answer_file(&new), answer);
    let response = new.call(language.pick("up; pwd -P", "up(); print(os.getcwd())"));
    let sub = new.fs_root().join("sub").canonicalize().unwrap();
    assert_eq!(response.stdout, format!("3\n{}\n", sub.display()), "{response:?}");
    assert_eq!((response.execution_count, response.answer, response.state), (3, answer, State::Kept));
    let history = fs::read_to_string(new.control.history_file()).unwrap();
    let history: Vec<HistoryEntry> =
        history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (execute, load) = (Operation::Execute, Operation::Load);
    assert_eq!(history.iter().map(|entry| entry.op).collect::<Vec<_>>(), [execute, execute, load, execute]);
    let root = |at: usize| history[at].session.as_ref().map(|session| session.fs_root.clone());
    assert_ne!(root(0), None);
    assert_eq!(root(2), Some(new.fs_root().display().to_string()));
    // The interpreter is one like any other.
    crate::ops::reset(&new);
    assert_eq!(
        new.output(language.pick("pwd -P", "import os; print(os.getcwd())")).trim_end(),
        sub.parent().unwrap().display().to_string()
    );
}

fn a_save_changes_nothing(language: Language) {
    let (_dir, file) = place();
    let mut worker = language.start();
    set_up(&mut worker, language);
    // Everything that a session can say of itself, but for what changes with every command.
    let probe = language.pick(
        "echo $? \"$@\"; (declare -p; declare -f; trap -p; alias; shopt -p; set +o; jobs -l; echo $! $-; ls /proc/$$/fd) | \
         grep -vE ' (BASH_[A-Z]+|BASHPID|EPOCH[A-Z]+|RANDOM|SRANDOM|SECONDS|LINENO|_|PIPESTATUS)='",
        "import sys\nprint({name: id(value) for name, value in globals().items() if name != '__builtins__'}, sorted(os.listdir('/proc/self/fd')), _)",
    );
    worker.call(language.pick(
        "set -o posix; shopt -u expand_aliases; set -u; set -- 1 '2 3'; alias a=b; sleep 1000 & trap 'echo usr' USR1; \
         trap : DEBUG ERR; declare -A m=([k]=v); PS1='$ '; false",
        "import io, json, threading; held = [threading.Lock()]; 5",
    ));
    worker.call(probe);
    let status =
        |worker: &mut Worker| worker.call(language.pick("(exit 3) | (exit 4)", "'result'")).exit_code;
    let before_status = status(&mut worker);
    let before = worker.call(probe).stdout;
    assert_eq!(status(&mut worker), before_status);
    let hint = save(&worker, &file);
    assert!(hint.contains(language.pick("(sleep)", "held")), "{hint}");
    let after = worker.call(probe).stdout;
    assert_eq!(after, before);
}

fn a_load_ends_what_the_session_has_started(language: Language) {
    let (_dir, file) = place();
    let mut worker = language.start();
    worker.call(language.pick("x=1", "x = 1"));
    save(&worker, &file);
    crate::endings::start_programs(&mut worker, language);
    load(&worker, &file);
    assert_eq!(worker.processes().len(), 3, "{:?}", worker.processes());
    let here = worker.fs_root().display().to_string();
    let show = language.pick("echo $x; jobs; echo \"$PWD\"", "import os; print(x); print(os.getcwd())");
    assert_eq!(worker.output(show), format!("1\n{here}\n"));
}

fn a_session_is_saved_again_and_again(language: Language) {
    let (_dir, file) = place();
    let mut worker = language.start();
    set_up(&mut worker, language);
    save(&worker, &file);
    let first = fs::metadata(&file).unwrap().len();
    for n in 3..8 {
        load(&worker, &file);
        assert_eq!(worker.output(language.pick("up", "up()")), format!("{n}\n"));
        save(&worker, &file);
    }
    // A state does not grow by itself; the history has a line for each call and operation that led to it.
    let saved = Saved::open(&file).unwrap();
    let parts = &saved.header().parts;
    assert!(parts[0].bytes < first + 200, "{first}: {parts:?}");
    let history = tempfile::NamedTempFile::new().unwrap();
    saved.copy_part(rlm_core::saved::HISTORY, history.as_file()).unwrap();
    let history = fs::read_to_string(history.path()).unwrap();
    assert_eq!(history.lines().count(), 2 + 2 * 5, "{history}");
}

fn the_directory_goes_along_if_it_is_asked_for(language: Language) {
    let (_dir, file) = place();
    let mut old = language.start();
    set_up(&mut old, language);
    old.call(language.pick(
        "echo text >file; ln -s /nowhere link; mkfifo fifo",
        "open('file', 'w').write('text\\n'); os.symlink('/nowhere', 'link'); os.mkfifo('fifo')",
    ));
    let response = ask(&old, json!({"op": "save", "file": file, "directory": true}));
    let hint = response.hint.unwrap_or_default();
    assert!(
        response.outcome == Outcome::Ok && hint.contains("file sub/fifo (it is a socket, pipe or device)"),
        "{hint}"
    );
    let mut new = language.start();
    load(&new, &file);
    let show = language.pick(
        "cat file; readlink link; ls -1",
        "print(open('file').read() + os.readlink('link'), *sorted(os.listdir()), sep='\\n')",
    );
    assert_eq!(new.output(show), "text\n/nowhere\nfile\nlink\n");
    // It is for an empty directory alone.
    load_is_refused(&new, &file, "is not empty: use an empty one");
    // A load that fails takes its files away again.
    let whole = fs::read(&file).unwrap();
    let header = Saved::open(&file).unwrap().header().clone();
    let (junk, archive) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let bytes = Saved::open(&file).unwrap().copy_part(rlm_core::saved::DIRECTORY, &archive).unwrap().unwrap();
    let parts = [(rlm_core::saved::STATE, &junk, 0..0), (rlm_core::saved::DIRECTORY, &archive, 0..bytes)];
    rlm_core::saved::write(&file, header, &parts).unwrap();
    let other = language.start();
    load_is_refused(&other, &file, "this session is as it was");
    assert_eq!(fs::read_dir(other.fs_root()).unwrap().count(), 0);
    fs::write(&file, whole).unwrap();
    load(&other, &file);
}
