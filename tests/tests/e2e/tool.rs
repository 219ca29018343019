//! `rlm_env::tool`: a session as a tool. Every outcome is a value, and the next call works.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::protocol::{Answer, State};
use rlm_env::tool::{CallValue, ToolCall, ToolFailure, ToolReply, ToolResult, WhenBusy};
use rlm_env::{ReplLanguage, SessionConfig, SessionTool, SessionToolConfig};
use rlm_tests::{Place, children, default_python, program, until};
use serde_json::json;

fn config(place: &Place, language: ReplLanguage) -> SessionToolConfig {
    let mut env =
        vec![("PATH".into(), "/usr/bin:/bin".into()), ("RLM_PYTHON".into(), default_python().into())];
    env.extend(place.mark().map(|(name, value)| (name.into(), value.into())));
    let session =
        SessionConfig { env, ..SessionConfig::new(program(language.worker_name()), place.path("work")) };
    SessionToolConfig::new(language, session, place.path("tmp"))
}

fn bash(place: &Place) -> SessionTool {
    SessionTool::new(config(place, ReplLanguage::Bash))
}

/// A place, and a bash session there.
fn placed() -> (Place, SessionTool) {
    let place = Place::new();
    let tool = bash(&place);
    (place, tool)
}

fn python(place: &Place) -> SessionTool {
    SessionTool::new(config(place, ReplLanguage::Python))
}

/// The session's guard process: the one whose parent does not belong to the session.
fn worker(place: &Place) -> Pid {
    let all = place.processes();
    let of_others: Vec<Pid> = all.iter().flat_map(|(pid, _)| children(*pid)).collect();
    all.iter().map(|(pid, _)| *pid).find(|pid| !of_others.contains(pid)).unwrap()
}

async fn wait_for(path: PathBuf) {
    until(&format!("{} exists", path.display()), || path.exists()).await;
}

#[track_caller]
fn value(reply: ToolReply) -> CallValue {
    match reply.result {
        ToolResult::Ok(value) => value,
        ToolResult::Failed(failure) => panic!("{failure:?}"),
    }
}

#[track_caller]
fn failure(reply: ToolReply) -> ToolFailure {
    match reply.result {
        ToolResult::Ok(value) => panic!("{value:?}"),
        ToolResult::Failed(failure) => failure,
    }
}

fn limited(code: &str, timeout: Duration) -> ToolCall {
    ToolCall { timeout: Some(timeout), ..ToolCall::from(code) }
}

#[tokio::test]
async fn a_call_returns_a_value_and_the_next_one_builds_on_it() {
    let (place, tool) = placed();
    assert_eq!(place.processes(), [], "nothing starts before the first call");
    let first = tool.call("x=1; echo hi; RLM_CONTENT=done; false").await;
    assert_eq!(first.text, "hi\n[exit status 1]");
    let first = value(first);
    let expected = json!({
        "stdout": "hi\n", "stderr": "", "result": null, "exception": null, "success": false, "completed": true, "exit_code": 1,
        "execution_time": first.execution_time, "timed_out": false, "interrupted": false, "truncated": null,
        "state": "kept", "answer": {"ready": false, "content": "done"}, "hint": null,
    });
    assert_eq!(serde_json::to_value(&first).unwrap(), expected);
    assert_eq!(
        value(tool.call("echo $x $PWD").await).stdout,
        format!("1 {}\n", place.path("work").display())
    );
    tool.close().await;
    assert!(failure(tool.call("echo").await).error.contains("closed"));
}

#[tokio::test]
async fn python_gives_values_and_exceptions() {
    let place = Place::new();
    let tool = python(&place);
    let reply = tool.call("import sys; print('err', file=sys.stderr); x = 2; x ** 10").await;
    assert_eq!(reply.text, "stderr:\nerr\nOut[1]: 1024");
    let reply = value(reply);
    assert_eq!((reply.result.as_deref(), reply.success, reply.exit_code), (Some("1024"), true, None));
    let raised = value(tool.call("1 / 0").await);
    assert_eq!(raised.exception.unwrap().kind, "ZeroDivisionError");
    assert!(!raised.success && raised.result.unwrap().starts_with("Traceback"));
    assert_eq!(value(tool.call("x").await).result.as_deref(), Some("2"));
    tool.close().await;
}

#[tokio::test]
async fn a_time_limit_keeps_state_and_output() {
    let place = Place::new();
    for (tool, code, check) in [
        (bash(&place), "x=1; echo begun; sleep 1000", "echo $x"),
        (python(&place), "x = 1; print('begun')\nwhile True: pass", "print(x)"),
    ] {
        let stopped = value(tool.call(limited(code, Duration::from_millis(300))).await);
        assert_eq!((stopped.timed_out, stopped.success, stopped.state), (true, false, State::Kept));
        assert!(stopped.stdout.starts_with("begun\n"), "{}", stopped.stdout);
        assert_eq!(value(tool.call(check).await).stdout, "1\n");
        // Longer than any clock can hold: no limit, and no panic.
        assert_eq!(value(tool.call(limited(check, Duration::MAX)).await).stdout, "1\n");
        tool.close().await;
    }
}

#[tokio::test]
async fn an_abandoned_call_is_interrupted_and_the_session_goes_on() {
    let place = Place::new();
    for (tool, code, check) in [
        (bash(&place), "x=1; touch begun; sleep 1000; x=2", "echo $x; rm begun"),
        (
            python(&place),
            "import os, time\nx = 1\nopen('begun', 'w').close()\ntime.sleep(1000)",
            "print(x); os.remove('begun')",
        ),
    ] {
        tokio::select! {
            reply = tool.call(limited(code, Duration::from_secs(1000))) => panic!("{reply:?}"),
            () = wait_for(place.file("begun")) => {}
        }
        let next = value(tool.call(limited(check, Duration::from_secs(1000))).await);
        assert_eq!((next.stdout.as_str(), next.state, next.hint), ("1\n", State::Kept, None));
        tool.close().await;
    }
}

#[tokio::test]
async fn the_next_call_reports_the_effect_of_a_cancelled_call_on_the_state() {
    let (place, tool) = placed();
    // Ignores every signal that it can: the shell itself has to be killed.
    let code = "trap '' INT TERM HUP; touch begun; while :; do :; done";
    tokio::select! {
        reply = tool.call(limited(code, Duration::from_secs(1000))) => panic!("{reply:?}"),
        () = wait_for(place.file("begun")) => {}
    }
    let next = value(tool.call("echo on").await);
    assert_eq!(next.stdout, "on\n");
    assert_ne!((next.state, &next.hint), (State::Kept, &None));
    tool.close().await;
}

#[tokio::test]
async fn calls_are_served_in_the_order_in_which_they_were_made() {
    let (place, tool) = placed();
    let calls = (0..100).map(|number| {
        let tool = &tool;
        async move { value(tool.call(format!("echo {number} >>order; wc -l <order").as_str()).await).stdout }
    });
    let outputs = join_all(calls).await;
    let expected: Vec<_> = (1..=100).map(|line| format!("{line}\n")).collect();
    assert_eq!(outputs, expected);
    let order = std::fs::read_to_string(place.path("work/order")).unwrap();
    assert_eq!(order, (0..100).map(|number| format!("{number}\n")).collect::<String>());
    tool.close().await;
}

#[tokio::test]
async fn a_busy_session_says_so() {
    let place = Place::new();
    let tool = Arc::new(SessionTool::new(SessionToolConfig {
        max_waiting: 1,
        ..config(&place, ReplLanguage::Bash)
    }));
    let call = |code: &'static str, when_busy| {
        let tool = Arc::clone(&tool);
        tokio::spawn(async move { tool.call(ToolCall { when_busy, ..ToolCall::from(code) }).await })
    };
    let running = call("touch begun; until [ -e go ]; do sleep 0.01; done", WhenBusy::Wait);
    wait_for(place.file("begun")).await;
    let refused = failure(call("echo", WhenBusy::Refuse).await.unwrap());
    assert_eq!(refused.error, "the session is busy with 1 other call");
    let waiting = call("echo waited", WhenBusy::Wait);
    let full = failure(call("echo", WhenBusy::Wait).await.unwrap());
    assert_eq!(full.error, "the session is busy with 2 other calls");
    assert!(full.hint.starts_with("Nothing was run."), "{}", full.hint);
    std::fs::write(place.path("work/go"), "").unwrap();
    assert!(value(running.await.unwrap()).success);
    assert_eq!(value(waiting.await.unwrap()).stdout, "waited\n");
    let alone = value(call("echo alone", WhenBusy::Refuse).await.unwrap());
    assert_eq!(alone.stdout, "alone\n");
    tool.close().await;
}

#[tokio::test]
async fn abandoned_calls_do_not_make_a_session_busy() {
    let place = Place::new();
    let tool = Arc::new(SessionTool::new(SessionToolConfig {
        max_waiting: 1,
        ..config(&place, ReplLanguage::Bash)
    }));
    let call = |code: &'static str| {
        let tool = Arc::clone(&tool);
        tokio::spawn(async move { tool.call(code).await })
    };
    let running = call("touch begun; until [ -e go ]; do sleep 0.01; done");
    wait_for(place.file("begun")).await;
    for _ in 0..10 {
        tokio::select! {
            biased;
            reply = tool.call("touch bad") => panic!("{reply:?}"),
            () = std::future::ready(()) => {}
        }
    }
    let last = call("ls");
    tokio::task::yield_now().await;
    std::fs::write(place.path("work/go"), "").unwrap();
    assert!(value(running.await.unwrap()).success);
    assert_eq!(value(last.await.unwrap()).stdout, "begun  go\n");
    tool.close().await;
}

#[tokio::test]
async fn code_over_the_limit_is_refused_and_code_of_the_limit_runs() {
    let (_place, tool) = placed();
    let fits = format!("echo fits #{}", "x".repeat((1 << 20) - 11));
    let refused = failure(tool.call(format!("{fits}x").as_str()).await);
    assert_eq!(refused.error, "the code has 1,048,577 bytes, the limit is 1,048,576 bytes");
    assert_eq!(value(tool.call(fits.as_str()).await).stdout, "fits\n");
    tool.close().await;
}

#[tokio::test]
async fn long_output_is_cut_and_the_code_can_read_the_whole() {
    let (_place, tool) = placed();
    let reply = tool.call("seq 200000").await;
    let cut = value(reply.clone());
    assert!(cut.stdout.starts_with("1\n2\n") && cut.stdout.ends_with("\n200000\n"));
    let whole: usize = (1..=200_000).map(|number: u32| number.to_string().len() + 1).sum();
    let stdout = cut.truncated.unwrap().stdout.unwrap();
    assert_eq!(stdout.omitted_bytes as usize, whole - (512 << 10));
    let file = stdout.file.unwrap();
    assert!(cut.stdout.contains(&format!("the whole is in {file}")) && reply.text.contains(&file));
    let part = value(tool.call(format!("sed -n '100000,100001p' {file}").as_str()).await);
    assert_eq!(part.stdout, "100000\n100001\n");
    // More than even the worker returns.
    let lost = value(tool.call("head -c 20000000 /dev/zero | tr '\\0' x").await);
    assert!(lost.truncated.unwrap().stdout.unwrap().lost_bytes > 3_000_000);
    tool.close().await;
    assert!(!Path::new(&file).exists());
}

#[tokio::test]
async fn a_worker_killed_between_calls_is_replaced_and_the_loss_is_reported_once() {
    for (language, check) in
        [(ReplLanguage::Bash, "echo on${x-}"), (ReplLanguage::Python, "print('on'); assert 'x' not in dir()")]
    {
        let place = Place::new();
        let tool = SessionTool::new(config(&place, language));
        assert!(value(tool.call("x=1").await).success);
        let worker = worker(&place);
        for pid in children(worker).into_iter().chain([worker]) {
            kill(pid, Signal::SIGKILL).unwrap();
        }
        let next = tool.call(check).await;
        assert!(next.text.contains("The session was lost before this call"), "{}", next.text);
        let next = value(next);
        assert_eq!((next.stdout.as_str(), next.state, next.success), ("on\n", State::Reset, true));
        assert!(next.hint.unwrap().contains("the worker died"));
        let later = value(tool.call("x=2").await);
        assert_eq!((later.state, later.hint), (State::Kept, None));
        tool.close().await;
    }
}

#[tokio::test]
async fn one_half_of_a_worker_killed_between_calls_is_enough_for_another_worker() {
    for (language, is_guard) in [ReplLanguage::Bash, ReplLanguage::Python]
        .into_iter()
        .flat_map(|language| [(language, true), (language, false)])
    {
        let place = Place::new();
        let tool = SessionTool::new(config(&place, language));
        assert!(value(tool.call("x=1").await).success);
        let guard = worker(&place);
        let [server] = children(guard)[..] else { panic!("{:?}", children(guard)) };
        kill(if is_guard { guard } else { server }, Signal::SIGKILL).unwrap();
        let is_dead = || place.processes().iter().all(|(pid, _)| *pid != guard);
        until("the process that was started is dead", is_dead).await;
        let next = value(tool.call("x=2").await);
        assert_eq!((next.state, next.success), (State::Reset, true), "{next:?}");
        assert!(next.hint.unwrap().contains("the worker died"));
        tool.close().await;
        // The processes that the first one leaves behind take a moment to end.
        until("every process is gone", || place.processes().is_empty()).await;
    }
}

#[tokio::test]
async fn a_worker_that_dies_in_a_call_fails_that_call_and_no_other() {
    let (_place, tool) = placed();
    let died = failure(tool.call("kill -9 $PPID; sleep 1000").await);
    assert!(died.error.starts_with("the session died while the code ran: the worker died"), "{died:?}");
    let next = value(tool.call("echo on").await);
    assert_eq!((next.stdout.as_str(), next.state), ("on\n", State::Reset));
    tool.close().await;
}

#[tokio::test]
async fn a_session_that_damages_its_control_directory_is_replaced() {
    let (place, tool) = placed();
    assert_eq!(value(tool.call("echo on").await).stdout, "on\n");
    let [dir] = &std::fs::read_dir(place.path("tmp")).unwrap().flatten().collect::<Vec<_>>()[..] else {
        panic!()
    };
    let control = dir.path().join("control");
    let damage =
        format!("rm -r {0}; mkdir {0}; mkfifo {0}/rlm_history.jsonl; kill -9 $PPID", control.display());
    failure(tool.call(damage.as_str()).await);
    assert!(!tool.script().await.is_ok(), "a FIFO is no history, and nobody waits for it");
    assert_eq!(value(tool.call("echo on").await).stdout, "on\n");
    assert!(tool.script().await.is_ok());
    tool.close().await;
}

#[tokio::test]
async fn a_worker_that_cannot_start_is_tried_twice() {
    let place = Place::new();
    let worker = place.path("worker");
    // The first start fails, and so does each later one while `broken` exists.
    let script = format!(
        "#!/bin/sh\ncd {0}\necho >>starts\n[ $(wc -l <starts) = 1 ] && exit 7\n[ -e broken ] && exit 7\nexec {1} \"$@\"\n",
        place.path("tmp").parent().unwrap().display(),
        program("rlm-worker-bash").display()
    );
    rlm_tests::write_program(&worker, &script);
    let mut config = config(&place, ReplLanguage::Bash);
    config.session.worker = worker;
    let tool = SessionTool::new(config.clone());
    assert_eq!(value(tool.call("echo on").await).stdout, "on\n");
    tool.close().await;
    std::fs::write(place.path("broken"), "").unwrap();
    let tool = SessionTool::new(config.clone());
    let failed = failure(tool.call("echo on").await);
    assert!(
        failed.error.starts_with(
            "the session cannot be started: the worker ended before it was ready (exit status: 7)"
        ),
        "{failed:?}"
    );
    assert_eq!(std::fs::read_to_string(place.path("starts")).unwrap().lines().count(), 4);
    std::fs::remove_file(place.path("broken")).unwrap();
    assert_eq!(value(tool.call("echo on").await).stdout, "on\n");
    tool.close().await;
    config.session.worker = "/does/not/exist".into();
    let tool = SessionTool::new(config.clone());
    let failed = failure(tool.call("echo").await);
    tool.close().await;
    assert_eq!(
        failed.error,
        "the session cannot be started: cannot start the worker /does/not/exist: No such file or directory (os error 2)"
    );
    config.dir = "/does/not/exist".into();
    let failed = failure(SessionTool::new(config).call("echo").await);
    assert_eq!(
        failed.error,
        "the session cannot be started: cannot make a directory in /does/not/exist: No such file or directory (os error 2)"
    );
}

#[tokio::test]
async fn a_reset_starts_over_and_waits_its_turn() {
    let (_place, tool) = placed();
    assert!(tool.reset().await.is_ok(), "a session that has not started is fresh");
    let (first, reset, after) = tokio::join!(
        tool.call("x=1; RLM_CONTENT=answer; echo $x"),
        tool.reset(),
        tool.call("echo ${x-unset}"),
    );
    assert_eq!(value(first).stdout, "1\n");
    assert!(reset.is_ok());
    let after = value(after);
    assert_eq!((after.stdout.as_str(), after.state), ("unset\n", State::Kept));
    assert_eq!(after.answer, Answer::default());
    tool.close().await;
}

#[tokio::test]
async fn a_reset_fails_without_its_directory() {
    let (place, tool) = placed();
    assert_eq!(value(tool.call("x=1; echo $x").await).stdout, "1\n");
    std::fs::remove_dir_all(place.path("work")).unwrap();
    let ToolResult::Failed(failure) = tool.reset().await else { panic!() };
    assert!(failure.error.starts_with("the session cannot be started: "), "{failure:?}");
    std::fs::create_dir(place.path("work")).unwrap();
    assert!(tool.reset().await.is_ok());
    let work = place.path("work");
    assert_eq!(value(tool.call("echo ${x-unset} $PWD").await).stdout, format!("unset {}\n", work.display()));
    tool.close().await;
}

#[tokio::test]
async fn a_time_limit_of_zero_is_a_limit() {
    let place = Place::new();
    let endless = ["while :; do :; done", "while True: pass"];
    for (tool, code) in [bash(&place), python(&place)].into_iter().zip(endless) {
        let stopped = value(tool.call(limited(code, Duration::ZERO)).await);
        assert_eq!((stopped.timed_out, stopped.state), (true, State::Kept), "{stopped:?}");
        tool.close().await;
    }
}

#[tokio::test]
async fn code_that_the_worker_refuses_is_a_failure() {
    let place = Place::new();
    let config = SessionToolConfig { max_code_bytes: usize::MAX, ..config(&place, ReplLanguage::Bash) };
    let tool = SessionTool::new(config);
    let refused = failure(tool.call(format!("#{}", "x".repeat(16 << 20)).as_str()).await);
    assert!(refused.error.contains("16777216"), "{refused:?}");
    assert!(refused.hint.starts_with("Nothing was run."), "{refused:?}");
    assert_eq!(value(tool.call("echo on").await).stdout, "on\n");
    tool.close().await;
}

#[tokio::test]
async fn a_session_that_removes_its_private_directory_gets_another_one() {
    let (place, tool) = placed();
    value(tool.call("echo on").await);
    // It depends on the worker's timing whether this call is answered.
    drop(tool.call(format!("rm -r {}/*", place.path("tmp").display()).as_str()).await);
    let next = value(tool.call("echo on; seq 200000").await);
    assert_eq!(next.state, State::Reset);
    assert!(Path::new(&next.truncated.unwrap().stdout.unwrap().file.unwrap()).exists());
    tool.close().await;
}

#[tokio::test]
async fn a_session_that_stops_its_own_worker_is_replaced_and_ended() {
    let place = Place::new();
    let mut config = config(&place, ReplLanguage::Bash);
    config.session.margin = Duration::from_millis(100);
    let tool = SessionTool::new(config);
    let code = "nohup setsid sleep 1000 >/dev/null 2>&1 & read -r _ _ _ guard _ </proc/$PPID/stat; kill -STOP $guard $PPID; sleep 1000";
    let stopped = value(tool.call(limited(code, Duration::from_millis(100))).await);
    assert_eq!((stopped.timed_out, stopped.state), (true, State::Reset), "{stopped:?}");
    assert_eq!(value(tool.call("echo on").await).stdout, "on\n");
    tool.close().await;
}

#[tokio::test]
async fn the_script_has_the_code_that_ran() {
    let (_place, tool) = placed();
    let ToolResult::Ok(none) = tool.script().await else { panic!() };
    assert_eq!(none.script, "");
    tool.call("x=1").await;
    tool.call(limited("sleep 1000", Duration::from_millis(100))).await;
    tool.call("echo $x").await;
    let ToolResult::Ok(script) = tool.script().await else { panic!() };
    assert!(script.script.contains("\nx=1\n") && script.script.contains("\n# sleep 1000\n"), "{script:?}");
    tool.close().await;
}

#[test]
fn closing_or_dropping_in_the_middle_of_a_call_leaves_nothing() {
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for is_closed in [true, false] {
            let tool = Arc::new(bash(&place));
            let running = Arc::clone(&tool);
            let call = "nohup sleep 1000 >/dev/null 2>&1 & touch begun; sleep 1000";
            let call = tokio::spawn(async move { running.call(call).await });
            wait_for(place.file("begun")).await;
            if is_closed {
                tool.close().await;
                assert_eq!(failure(call.await.unwrap()).error, "the session is closed");
            } else {
                call.abort();
                drop((call.await, tool));
            }
            until("every process is gone", || place.processes().is_empty()).await;
            std::fs::remove_file(place.path("work/begun")).unwrap();
        }
        // A call that is running when the runtime ends.
        let tool = bash(&place);
        tokio::spawn(async move { tool.call("touch begun; sleep 1000").await });
        wait_for(place.file("begun")).await;
    });
    drop(runtime);
}
