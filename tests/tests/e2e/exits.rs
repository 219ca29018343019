//! The shell ends: the call says so, and the next one runs in a new shell.

use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::Worker;

const REMEMBER: &str = "x='it'\\''s'; declare -A m=([k]=v); arr=(1 '2 3'); export ex=1; readonly ro=5; f() { echo \"f $x\"; }; \
    alias hi='echo aliased'; shopt -s extglob; set -o pipefail -u; umask 027; mkdir -p sub; cd sub; set -- p 'q r'; \
    RLM_CONTENT=answer RLM_READY=yes";
const RECALL: &str = "f\nhi\necho \"${m[k]} ${arr[1]} $ro $# $2 $RLM_CONTENT $(umask) ${PWD##*/}\"; bash -c 'echo $ex'; \
    shopt -q extglob && [[ $- == *u* ]] && [[ -o pipefail ]] && echo options";
const RECALLED: &str = "f it's\naliased\nv 2 3 5 2 q r answer 0027 sub\n1\noptions\n";

fn ended(response: &Response, state: State, exit_code: i32) {
    assert_eq!(
        (response.outcome, response.state, response.exit_code),
        (Outcome::Exited, state, Some(exit_code)),
        "{response:?}"
    );
    let hint = response.hint.as_deref().unwrap_or_default();
    assert!(hint.starts_with(&format!("the shell ended with status {exit_code}; ")), "{hint}");
    assert_eq!((response.answer.ready, response.answer.content.as_str()), (true, "answer"));
}

#[track_caller]
fn check_restored(code: &str, printed: &str, exit_code: i32) {
    let mut worker = Worker::bash();
    worker.output(REMEMBER);
    let response = worker.call(code);
    ended(&response, State::Restored, exit_code);
    assert_eq!(response.stdout, printed, "{code:?}");
    assert_eq!(worker.output(RECALL), RECALLED, "after {code:?}");
    worker.end();
}

#[test]
fn exit_hands_everything_on() {
    check_restored("exit 3", "exit\n", 3);
}

#[test]
fn errexit_hands_everything_on_but_itself() {
    check_restored("set -e; echo before; false; echo never", "before\n", 1);
    let mut worker = Worker::bash();
    worker.call("set -e; x=1; false");
    assert_eq!(worker.output("echo $x; false; echo on $-"), "1\non himBs\n");
    worker.end();
}

#[test]
fn exit_in_a_function_hands_everything_on() {
    check_restored("die() { exit 9; }; die", "exit\n", 9);
}

#[test]
fn a_hangup_hands_everything_on() {
    check_restored("kill -HUP $$; sleep 5", "", 129);
}

#[test]
fn changes_of_the_last_call_are_handed_on_too() {
    let mut worker = Worker::bash();
    worker.call("late=1; cd /; RLM_CONTENT=late; exit 1");
    let response = worker.call("echo $late $PWD");
    assert_eq!((response.stdout.as_str(), response.answer.content.as_str()), ("1 /\n", "late"));
    worker.end();
}

#[test]
fn an_exit_trap_of_the_users_runs_and_everything_is_handed_on() {
    let mut worker = Worker::bash();
    worker.output("x=1; trap 'echo bye $?' EXIT");
    let response = worker.call("exit 4");
    assert_eq!((response.stdout.as_str(), response.state), ("exit\nbye 4\n", State::Restored));
    assert_eq!(worker.output("echo $x; trap -p"), "1\n");
    worker.end();
}

#[test]
fn an_exit_trap_and_the_exit_in_one_call() {
    let mut worker = Worker::bash();
    worker.output("x=1; RLM_CONTENT=answer; RLM_READY=1");
    let response = worker.call("trap 'echo bye' EXIT; exit 5");
    assert_eq!((response.stdout.as_str(), response.outcome), ("exit\nbye\n", Outcome::Exited));
    assert_eq!(worker.output("echo $RLM_CONTENT"), "answer\n");
    worker.end();
}

#[test]
fn exec_replaces_the_shell() {
    let mut worker = Worker::bash();
    worker.output(REMEMBER);
    let response = worker.call("exec echo replaced");
    ended(&response, State::Reset, 0);
    assert_eq!(response.stdout, "replaced\n");
    assert_eq!(worker.output("echo ${PWD##*/} $RLM_CONTENT ${x-gone}"), "sub answer gone\n");
    worker.end();
}

#[test]
fn a_killed_shell_is_replaced() {
    let mut worker = Worker::bash();
    worker.output(REMEMBER);
    let response = worker.call("echo last; kill -9 $$; sleep 100");
    ended(&response, State::Reset, 137);
    assert_eq!(response.stdout, "last\n");
    assert_eq!(worker.output("echo ${PWD##*/} $RLM_CONTENT"), "sub answer\n");
    worker.end();
}

#[test]
fn a_shell_that_closed_its_output_before_it_ended() {
    let mut worker = Worker::bash();
    worker.output("x=1");
    let response = worker.call("exec 1>&- 2>&-; exit");
    assert_eq!((response.outcome, response.state), (Outcome::Exited, State::Restored));
    assert_eq!(worker.output("echo on $x"), "on 1\n");
    worker.end();
}

#[test]
fn a_shell_killed_between_calls_is_noticed_and_replaced() {
    let mut worker = Worker::bash();
    worker.output("RLM_CONTENT=answer; RLM_READY=1");
    let shell = worker.interpreter();
    nix::sys::signal::kill(shell, nix::sys::signal::Signal::SIGKILL).unwrap();
    rlm_tests::wait_until("the shell is reaped", || rlm_tests::children(worker.server()).is_empty());
    let response = worker.call("echo on $RLM_CONTENT");
    assert_eq!(
        (response.outcome, response.state, response.stdout.as_str()),
        (Outcome::Ok, State::Reset, "on answer\n")
    );
    assert!(response.hint.unwrap().starts_with("since the last call the shell ended with status 137; "));
    worker.end();
}

/// The kernel has not reported its death when the request arrives, so it goes to the dead shell, which may still take
/// it.
#[test]
fn a_shell_that_is_killed_right_before_a_request_runs_its_code_once_or_says_that_it_did_not() {
    let mut worker = Worker::bash();
    let mut rounds = 0;
    for _ in 0..20 {
        worker.output("kept=1");
        nix::sys::signal::kill(worker.interpreter(), nix::sys::signal::Signal::SIGKILL).unwrap();
        let response = worker.call("echo ${kept-gone}; echo ran >>rounds");
        assert_eq!(response.state, State::Reset, "{response:?}");
        let hint = response.hint.unwrap_or_default();
        match response.outcome {
            Outcome::Ok => {
                assert!(hint.starts_with("since the last call the shell ended with status 137; "), "{hint}");
                assert_eq!(response.stdout, "gone\n");
                rounds += 1;
            }
            outcome => {
                assert_eq!(outcome, Outcome::Exited);
                assert!(hint.starts_with("the shell ended with status 137; "), "{hint}");
            }
        }
    }
    assert_eq!(worker.output("touch rounds; wc -l <rounds"), format!("{rounds}\n"));
    worker.end();
}

#[test]
fn background_jobs_outlive_the_shell_and_still_print() {
    let mut worker = Worker::bash();
    worker.output("mkfifo gate; (trap '' HUP; read x <gate; echo survivor; : >printed) &");
    worker.call("exit");
    std::fs::write(worker.fs_root().join("gate"), "go\n").unwrap();
    worker.wait_for_file("printed");
    assert!(worker.call("echo next").stdout.contains("survivor\n"));
    worker.end();
}

#[test]
fn many_exits_in_a_row() {
    let mut worker = Worker::bash();
    for round in 0..20 {
        let response = worker.call(&format!("n=$((n+1)); exit {round}"));
        assert_eq!((response.state, response.exit_code), (State::Restored, Some(round)), "{response:?}");
    }
    assert_eq!(worker.output("echo $n"), "20\n");
    worker.end();
}

#[test]
fn a_large_state_is_handed_on() {
    let mut worker = Worker::bash();
    worker.output("big=$(head -c 5000000 /dev/zero | tr '\\0' x)");
    assert_eq!(worker.call("exit").state, State::Restored);
    assert_eq!(worker.output("echo ${#big}"), "5000000\n");
    worker.end();
}

#[test]
fn code_that_mentions_traps_hands_everything_on() {
    let mut worker = Worker::bash();
    worker.output("x=1");
    let response =
        worker.call("y=2; RLM_CONTENT=answer; trap 'echo usr' USR1; echo caught in a trap here; exit 3");
    assert_eq!(
        (response.state, response.answer.content.as_str()),
        (State::Restored, "answer"),
        "{response:?}"
    );
    assert_eq!(worker.output("echo $x $y"), "1 2\n");
    // The user's EXIT trap in the same call replaces ours: the state before the call is handed on.
    let response = worker.call("z=3; trap 'echo bye' EXIT; exit 4");
    assert_eq!((response.state, response.stdout.as_str()), (State::Restored, "exit\nbye\n"), "{response:?}");
    assert_eq!(worker.output("echo $x $y [$z] $RLM_CONTENT"), "1 2 [] answer\n");
    worker.end();
}

#[test]
fn a_root_that_is_removed_does_not_end_the_worker() {
    let mut worker = Worker::bash();
    let response = worker.call("rm -rf \"$PWD\"; exit");
    assert_eq!(response.outcome, Outcome::Exited, "{response:?}");
    assert_eq!(worker.output("echo on"), "on\n");
    worker.end();
}

#[test]
fn a_shell_that_ends_between_calls_hands_on_a_large_state() {
    let mut worker = Worker::bash();
    worker.output("big=$(head -c 1000000 /dev/zero | tr '\\0' x)");
    let shell = worker.interpreter();
    nix::sys::signal::kill(shell, nix::sys::signal::Signal::SIGHUP).unwrap();
    rlm_tests::wait_until("the shell is reaped", || rlm_tests::children(worker.server()).is_empty());
    let response = worker.call("echo ${#big}");
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Restored), "{response:?}");
    assert_eq!(response.stdout, "1000000\n");
    worker.end();
}

#[test]
fn a_real_time_signal_has_its_number_too() {
    let mut worker = Worker::bash();
    assert_eq!(worker.call("kill -40 $$; sleep 5").exit_code, Some(168));
    worker.end();
}

#[test]
fn a_time_limit_that_meets_the_exit_loses_nothing() {
    let mut worker = Worker::bash();
    worker.output("for i in {1..3000}; do printf -v a$i %0500d 1; done");
    for round in 0..30 {
        let limit = f64::from(round + 1) * 0.0007;
        let response = worker.call_with("exit 3", serde_json::json!({"timeout": limit}));
        // The limit may pass when bash has printed `exit` but not exited: then the old shell goes on.
        assert_ne!(response.state, State::Reset, "limit {limit}: {response:?}");
        assert_eq!(worker.output("echo ${#a3000}"), "500\n", "limit {limit}");
    }
    worker.end();
}
