//! Output of calls as it comes.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rlm_core::protocol::Outcome;
use rlm_env::session::{OutputObserver, OutputStream};
use rlm_env::{Session, SessionConfig};
use rlm_tests::Place;
use tokio::sync::watch;

use crate::languages::Language;

/// Keeps what it sees.
#[derive(Debug)]
struct Watcher {
    seen: watch::Sender<[String; 2]>,
    /// Locked to be slow.
    takes: Mutex<()>,
}

impl OutputObserver for Watcher {
    fn output(&self, stream: OutputStream, text: &str) {
        let _slow = self.takes.lock().unwrap();
        let at = usize::from(stream == OutputStream::Stderr);
        self.seen.send_modify(|seen| seen[at].push_str(text));
    }
}

impl Watcher {
    fn new() -> Arc<Self> {
        Arc::new(Self { seen: watch::Sender::default(), takes: Mutex::default() })
    }

    async fn wait_for(&self, stdout: &str) {
        let mut seen = self.seen.subscribe();
        let waited = seen.wait_for(|seen| seen[0].ends_with(stdout));
        tokio::time::timeout(rlm_tests::PATIENCE, waited).await.expect("it comes").unwrap();
    }

    /// The output that it has seen since it was asked before.
    fn take(&self) -> [String; 2] {
        self.seen.send_replace(<[String; 2]>::default())
    }
}

fn config(language: Language, dir: &std::path::Path, watcher: &Arc<Watcher>) -> SessionConfig {
    SessionConfig { output: Some(watcher.clone()), ..language.session_config(dir) }
}

/// Waits for a file in the session's directory.
const WAIT: [&str; 2] = [
    "until [ -e go ]; do sleep 0.01; done",
    "import os, sys, time\nwhile not os.path.exists('go'): time.sleep(0.01)",
];

#[tokio::test]
async fn it_comes_while_the_call_runs_and_the_response_has_all_of_it() {
    for language in [Language::Bash, Language::Python] {
        let (dir, watcher) = (tempfile::tempdir().unwrap(), Watcher::new());
        let mut session = Session::start(config(language, dir.path(), &watcher)).await.unwrap();
        let [bash, python] = WAIT;
        let code = language.pick(
            format!("printf 'é one'; {bash}; echo ' two'"),
            format!(
                "import sys\nprint('é one', end='', flush=True)\nprint('bad', file=sys.stderr)\n{python}\nprint(' two')"
            ),
        );
        let (response, ()) = tokio::join!(session.execute(code.as_str()), async {
            watcher.wait_for("é one").await;
            std::fs::write(dir.path().join("go"), "").unwrap();
        });
        let response = response.unwrap();
        assert_eq!(response.stdout, "é one two\n");
        assert_eq!(watcher.take(), [response.stdout, response.stderr]);
        // The first byte of one character comes alone, and another character stays incomplete.
        let halves = language.pick(
            "printf '\\xe2'; sleep 0.05; printf '\\x82\\xac\\n\\xe2'",
            "out = os.fdopen(os.dup(1), 'wb', 0)\nout.write(b'\\xe2')\ntime.sleep(0.05)\nout.write(b'\\x82\\xac\\n\\xe2')\nNone",
        );
        let response = session.execute(halves).await.unwrap();
        assert_eq!(response.stdout, "€\n\u{fffd}");
        assert_eq!(watcher.take()[0], response.stdout);
        // A call that is stopped, and a new worker.
        std::fs::remove_file(dir.path().join("go")).unwrap();
        let response = session.execute_until(code.as_str(), watcher.wait_for("é one")).await.unwrap();
        assert_eq!((response.outcome, &watcher.take()[0]), (Outcome::Interrupted, &response.stdout));
        session.restart().await.unwrap();
        session.execute(language.pick("echo hello", "print('hello')")).await.unwrap();
        assert_eq!(watcher.take()[0], "hello\n");
        let control = session.control_dir().to_owned();
        session.close().await.unwrap();
        assert!(!control.exists());
    }
}

#[tokio::test]
async fn what_comes_between_calls_is_the_next_ones() {
    let (dir, watcher) = (tempfile::tempdir().unwrap(), Watcher::new());
    let mut session = Session::start(config(Language::Bash, dir.path(), &watcher)).await.unwrap();
    session.execute(format!("({}; echo late; echo >said) &", WAIT[0]).as_str()).await.unwrap();
    watcher.take();
    std::fs::write(dir.path().join("go"), "").unwrap();
    rlm_tests::wait_until("the job has printed", || dir.path().join("said").exists());
    assert_eq!(watcher.take()[0], "");
    let response = session.execute("echo now").await.unwrap();
    assert!(response.stdout.starts_with("late\n") && response.stdout.contains("now\n"), "{response:?}");
    assert_eq!(watcher.take()[0], response.stdout);
    session.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_is_too_slow_misses_the_end_and_delays_nothing() {
    let (dir, watcher) = (tempfile::tempdir().unwrap(), Watcher::new());
    let control = tempfile::tempdir().unwrap();
    let fifo = control.path().join("rlm_stdout");
    // A host of its own, which does not read.
    let config = SessionConfig {
        control_dir: Some(control.path().to_owned()),
        ..config(Language::Bash, dir.path(), &watcher)
    };
    let mut session = Session::start(config).await.unwrap();
    let slow = watcher.clone();
    let (locked, is_locked) = std::sync::mpsc::channel();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let _slow = slow.takes.lock().unwrap();
        locked.send(()).unwrap();
        wait.recv().unwrap();
    });
    is_locked.recv().unwrap();
    let code = "seq 1000000; echo end >done";
    let running = tokio::spawn(async move {
        let response = session.execute(code).await.unwrap();
        (session, response)
    });
    // The call ends although nothing is taken.
    rlm_tests::wait_until("the call has ended", || dir.path().join("done").exists());
    release.send(()).unwrap();
    holder.join().unwrap();
    let (mut session, response) = running.await.unwrap();
    let [seen, _] = watcher.take();
    assert!(!seen.is_empty() && seen.len() < response.stdout.len() && response.stdout.starts_with(&seen));
    session.execute("echo more").await.unwrap();
    assert_eq!(watcher.take()[0], "more\n");
    // Code that writes there itself, without end, delays no call either.
    let flood = format!("(exec >/dev/null; cat /dev/zero >{} 2>&1) & echo on", fifo.display());
    assert_eq!(session.execute(flood.as_str()).await.unwrap().outcome, Outcome::Ok);
    let response = session.execute("kill %1 2>/dev/null; echo off").await.unwrap();
    assert!(response.stdout.contains("off"), "{response:?}");
    session.close().await.unwrap();
    assert!(!fifo.exists());
}

#[test]
fn exec_prints_it_while_the_call_runs() {
    for (more, wait) in [(&[][..], WAIT[0]), (&["--python"], WAIT[1])] {
        let place = Place::new();
        let is_bash = more.is_empty();
        let code = match is_bash {
            true => format!("echo one; {wait}; echo two"),
            false => format!("print('one')\n{wait}\nprint('two', file=sys.stderr)"),
        };
        let workdir = place.file("");
        let args = [&["exec", "--workdir", workdir.to_str().unwrap()][..], more, &[code.as_str()]].concat();
        let mut command: Command = place.rlm(&args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut begin = [0; 4];
        child.stdout.as_mut().unwrap().read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"one\n");
        place.write("go", "");
        let output = child.wait_with_output().unwrap();
        let rest = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!((rest.as_str(), output.status.code()), ("two\n", Some(0)));
        place.assert_nothing_left();
    }
}
