//! `rlm_env::Session`: one worker, seen from its host.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::protocol::{Answer, Outcome, State};
use rlm_env::{Call, Session, SessionConfig, SessionError};
use rlm_tests::{AT_ONCE, is_over, program, until, wait_until};

use crate::languages::Language;

/// The configuration of a bash session.
fn config() -> SessionConfig {
    Language::Bash.session_config(std::env::temp_dir())
}

fn limited(code: &str, timeout: Duration) -> Call {
    Call { timeout: Some(timeout), ..Call::from(code) }
}

fn is_alive(pid: u32) -> bool {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), None).is_ok()
}

#[tokio::test]
async fn calls_build_on_each_other_and_close_leaves_nothing() {
    for language in [Language::Bash, Language::Python] {
        let mut session = Session::start(language.session_config(std::env::temp_dir())).await.unwrap();
        let (pid, dir) = (session.pid(), session.control_dir().to_owned());
        session.execute("x=1").await.unwrap();
        for seq in 0..200 {
            let code = language.pick("echo $x ?", "print(x, ?)").replace('?', &seq.to_string());
            assert_eq!(session.execute(code.as_str()).await.unwrap().stdout, format!("1 {seq}\n"));
        }
        session.close().await.unwrap();
        assert!(!is_alive(pid) && !dir.exists());
    }
}

#[tokio::test]
async fn a_python_session_is_stopped_replaced_and_restarted() {
    let mut session = Session::start(Language::Python.session_config(std::env::temp_dir())).await.unwrap();
    let (pid, dir) = (session.pid(), session.control_dir().to_owned());
    let response = session.execute(limited("while True: pass", Duration::from_millis(100))).await.unwrap();
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept));
    let response = session.execute("import os; os._exit(1)").await.unwrap();
    assert_eq!((response.outcome, response.state), (Outcome::Crashed, State::Reset));
    assert_eq!(response.result, None, "the hint is told once");
    session.execute("x = 1; answer['content'] = 'of the worker before'").await.unwrap();
    session.restart().await.unwrap();
    let response = session.execute("'x' in dir()").await.unwrap();
    assert_eq!(response.result.as_deref(), Some("False"));
    assert_eq!(response.answer, Answer::default(), "a restart loses the answer");
    let pid_now = session.pid();
    session.close().await.unwrap();
    assert!(!is_alive(pid) && !is_alive(pid_now) && !dir.exists());
}

#[tokio::test]
async fn dropping_a_session_leaves_nothing() {
    let mut session = Session::start(config()).await.unwrap();
    let (pid, dir) = (session.pid(), session.control_dir().to_owned());
    let response = session.execute("nohup sleep 1000 >/dev/null 2>&1 & echo $!").await.unwrap();
    let job: u32 = response.stdout.lines().last().unwrap().parse().unwrap();
    assert!(is_alive(job));
    drop(session);
    assert!(!is_alive(pid) && !is_alive(job) && !dir.exists());
}

#[tokio::test]
async fn the_time_limit_is_the_workers() {
    let mut session =
        Session::start(SessionConfig { exec_timeout: Some(Duration::from_millis(200)), ..config() })
            .await
            .unwrap();
    let response = session.execute("x=1; sleep 1000").await.unwrap();
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept));
    let response = session.execute(limited("sleep 0.3; echo $x", Duration::from_secs(20))).await.unwrap();
    assert_eq!(response.stdout, "1\n");
    session.close().await.unwrap();
}

#[tokio::test]
async fn an_interrupt_ends_the_call_and_keeps_the_session() {
    let mut session = Session::start(config()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let code = format!("x=1; echo partial; : >{}; sleep 1000", started.display());
    let runs = until("the call runs", || started.exists());
    let response = session.execute_until(code.as_str(), runs).await.unwrap();
    assert_eq!((response.outcome, response.state), (Outcome::Interrupted, State::Kept));
    assert_eq!(session.execute("echo $x").await.unwrap().stdout, "1\n");
    // At once: the interrupt may arrive before the worker has read the request.
    let response = session.execute_until("sleep 1000", std::future::ready(())).await.unwrap();
    assert_eq!(response.outcome, Outcome::Interrupted);
    session.close().await.unwrap();
}

#[tokio::test]
async fn the_death_of_the_worker_is_seen_at_once() {
    let mut session = Session::start(config()).await.unwrap();
    let begun = Instant::now();
    let error =
        session.execute(limited("kill -9 $PPID; sleep 1000", Duration::from_secs(600))).await.unwrap_err();
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!(matches!(&error, SessionError::Died { status, .. } if status == "exit status: 137"), "{error}");
    // The session stays dead, and says so at once, until it is restarted.
    let error = session.execute("echo on").await.unwrap_err();
    assert!(matches!(error, SessionError::Died { .. }), "{error}");
    session.restart().await.unwrap();
    assert_eq!(session.execute("echo on").await.unwrap().stdout, "on\n");
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_dies_while_idle_is_seen_at_the_next_call() {
    let mut session = Session::start(config()).await.unwrap();
    let pid = Pid::from_raw(i32::try_from(session.pid()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    wait_until("the worker is dead", || is_over(pid));
    let error = session.execute(limited("echo on", Duration::from_secs(600))).await.unwrap_err();
    assert!(
        matches!(&error, SessionError::Died { log_tail, .. } if log_tail.ends_with("ended by SIGTERM")),
        "{error}"
    );
    assert!(session.close().await.is_err(), "a dead worker did not end as it should");
}

#[tokio::test]
async fn a_response_for_a_call_that_was_given_up_is_discarded_and_reported() {
    let mut session = Session::start(config()).await.unwrap();
    let given_up =
        tokio::time::timeout(Duration::from_millis(100), session.execute("sleep 0.4; echo old")).await;
    assert!(given_up.is_err());
    let response = session.execute("echo new").await.unwrap();
    assert_eq!(response.stdout, "new\n");
    assert_eq!(session.stale_responses(), [1]);
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_call_given_up_in_the_middle_of_its_request_does_not_break_the_wire() {
    let mut session = Session::start(config()).await.unwrap();
    let large = format!("x='{}'; echo ${{#x}}", "y".repeat(1 << 20));
    let first = tokio::time::timeout(Duration::ZERO, session.execute(large.as_str())).await;
    assert!(first.is_err());
    assert_eq!(session.execute("echo ${#x}").await.unwrap().stdout, format!("{}\n", 1 << 20));
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_does_not_answer_is_replaced() {
    // The second start is a program that reports that it is ready, and then does nothing.
    let dir = tempfile::tempdir().unwrap();
    let (script, starts) = (dir.path().join("worker"), dir.path().join("starts"));
    let text = format!(
        "#!/bin/sh
echo $$ >>{starts}
[ $(wc -l <{starts}) = 2 ] || exec {real} \"$@\"
rm -f \"$2/rlm_cmd\" \"$2/rlm_res\"
mkfifo \"$2/rlm_cmd\" \"$2/rlm_res\"
exec <>\"$2/rlm_cmd\"
echo ready
exec sleep 1000
",
        starts = starts.display(),
        real = program("rlm-worker-bash").display()
    );
    rlm_tests::write_program(&script, &text);
    let config = SessionConfig { worker: script, margin: Duration::from_millis(300), ..config() };
    let mut session = Session::start(config).await.unwrap();
    session.execute("RLM_CONTENT=answer").await.unwrap();
    session.restart().await.unwrap();
    let mute = session.pid();
    let response = session.execute(limited("echo on", Duration::from_millis(200))).await.unwrap();
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Reset), "{response:?}");
    assert_eq!(response.answer.content, "answer");
    assert_eq!(session.execute("echo on").await.unwrap().stdout, "on\n");
    assert!(!is_alive(mute), "the old worker is left");
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_cannot_start_says_why() {
    let error =
        Session::start(SessionConfig { worker: "/does/not/exist".into(), ..config() }).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start the worker /does/not/exist");
    let error =
        Session::start(SessionConfig { fs_root: "/does/not/exist".into(), ..config() }).await.unwrap_err();
    assert!(error.to_string().contains("in /does/not/exist: No such file or directory"), "{error}");
}

#[tokio::test]
async fn two_hundred_sessions_at_once() {
    // In a process of its own: it counts this process's descriptors.
    if !rlm_tests::is_alone(concat!(module_path!(), "::two_hundred_sessions_at_once")) {
        return;
    }
    let count_descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count_descriptors();
    let starts: Vec<_> = (0..200).map(|_| tokio::spawn(Session::start(config()))).collect();
    let mut sessions = Vec::new();
    for start in starts {
        sessions.push(start.await.unwrap().unwrap());
    }
    let pids: Vec<u32> = sessions.iter().map(Session::pid).collect();
    let calls: Vec<_> = sessions
        .into_iter()
        .enumerate()
        .map(|(number, mut session)| {
            tokio::spawn(async move {
                session.execute(format!("x={number}").as_str()).await.unwrap();
                for _ in 0..5 {
                    assert_eq!(session.execute("echo $x").await.unwrap().stdout, format!("{number}\n"));
                }
                session.close().await.unwrap();
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    wait_until("every worker is gone", || !pids.iter().any(|pid| is_alive(*pid)));
    assert_eq!(count_descriptors(), before);
}
