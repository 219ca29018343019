//! The shell ends: the call says so, and the next one runs in a new shell.

use nix::sys::signal::{Signal, kill};
use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::{Setup, Worker, default_python, shell_status};
use serde_json::json;

use crate::languages::{Language, cases, draft, end_interpreter, in_both_languages, sessions};

in_both_languages!(an_interpreter_killed_between_calls_is_noticed_and_replaced);

const REMEMBER: &str = "x='it'\\''s'; declare -A m=([k]=v); arr=(1 '2 3'); export ex=1; readonly ro=5; f() { echo \"f $x\"; }; \
    alias hi='echo aliased'; shopt -s extglob; set -o pipefail -u; umask 027; mkdir -p sub; cd sub; set -- p 'q r'; \
    RLM_CONTENT=answer RLM_READY=yes";
const RECALL: &str = "f\nhi\necho \"${m[k]} ${arr[1]} $ro $# $2 $RLM_CONTENT $(umask) ${PWD##*/}\"; bash -c 'echo $ex'; \
    shopt -q extglob && [[ $- == *u* ]] && [[ -o pipefail ]] && echo options";
/// The end of the hint, and of the last line of the output, if the state is lost.
const NOTHING_ELSE: &str = "a new shell has its working directory and answer, but nothing else";
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
}

cases! { check_restored:
    // Promise: `exit`, `set -e` and `kill -9 $$` end the call, and the next one runs in a new shell with the state that the old one could save.
    exit_hands_everything_on("exit 3", "exit\n", 3)
    // Promise: `exit`, `set -e` and `kill -9 $$` end the call, and the next one runs in a new shell with the state that the old one could save.
    errexit_hands_everything_on("set -e; echo before; false; echo never", "before\n", 1)
    exit_in_a_function_hands_everything_on("die() { exit 9; }; die", "exit\n", 9)
    a_hangup_hands_everything_on("kill -HUP $$; sleep 5", "", 129)
    a_restored_state_adds_nothing_to_the_output("printf part; exit 3", "partexit\n", 3)
}

#[test]
fn output_says_on_a_line_of_its_own_that_the_state_is_lost() {
    for (code, printed, exit_code) in [
        ("exec echo replaced", "replaced\n", 0),
        ("echo last; kill -9 $$; sleep 100", "last\n", 137),
        ("kill -9 $$", "", 137),
        ("printf part; kill -9 $$", "part\n", 137),
        ("echo; kill -9 $$", "\n", 137),
    ] {
        let mut worker = Worker::bash();
        worker.output(REMEMBER);
        let response = worker.call(code);
        ended(&response, State::Reset, exit_code);
        let lost = format!("the shell ended with status {exit_code}; {NOTHING_ELSE}");
        assert_eq!(response.hint.as_ref(), Some(&lost), "{code:?}");
        assert_eq!(response.stdout, format!("{printed}{lost}\n"), "{code:?}");
        assert_eq!(worker.output("echo ${PWD##*/} $RLM_CONTENT ${x-gone} $#"), "sub answer gone 0\n");
    }
}

sessions! { Bash:
    errexit_itself_is_not_handed_on {
        "set -e; x=1; false" => State::Restored,
        "echo $x; false; echo on $-" => "1\non himBs\n",
    }
    changes_of_the_last_call_are_handed_on_too {
        "late=1; cd /; RLM_CONTENT=late; exit 1" => State::Restored,
        "echo $late $PWD" => "1 /\n",
        ":" => draft("late"),
    }
    an_exit_trap_of_the_users_runs_and_everything_is_handed_on {
        "x=1; trap 'echo bye $?' EXIT" => "",
        "exit 4" => (State::Restored, "exit\nbye 4\n"),
        "echo $x; trap -p" => "1\n",
    }
    an_exit_trap_and_the_exit_in_one_call {
        "x=1; RLM_CONTENT=answer; RLM_READY=1" => "",
        "trap 'echo bye' EXIT; exit 5" => (State::Restored, "exit\nbye\n"),
        "echo $RLM_CONTENT" => "answer\n",
    }
    a_shell_that_closed_its_output_before_it_ended {
        "x=1" => "",
        "exec 1>&- 2>&-; exit" => State::Restored,
        "echo on $x" => "on 1\n",
    }
    a_large_state_is_handed_on {
        "big=$(head -c 5000000 /dev/zero | tr '\\0' x)" => "",
        "exit" => State::Restored,
        "echo ${#big}" => "5000000\n",
    }
    code_that_mentions_traps_hands_everything_on {
        "x=1" => "",
        "y=2; RLM_CONTENT=answer; trap 'echo usr' USR1; echo caught in a trap here; exit 3" => State::Restored,
        "echo $x $y" => "1 2\n",
        // The user's EXIT trap in the same call replaces ours: the state before the call is handed on.
        "z=3; trap 'echo bye' EXIT; exit 4" => (State::Restored, "exit\nbye\n"),
        "echo $x $y [$z] $RLM_CONTENT" => "1 2 [] answer\n",
    }
    a_shell_that_ends_in_the_middle_of_the_driver_hands_everything_on {
        "x=1; set -- a b; __rlm_n=1 __rlm_o=x __rlm_e=1; exit 3" => State::Restored,
        "echo $x $#; declare -p | grep ' __rlm'" => "1 2\n",
    }
    a_root_that_is_removed_does_not_end_the_worker {
        "rm -rf \"$PWD\"; exit" => State::Restored,
        "echo on" => "on\n",
    }
    a_shell_ignores_termination_after_a_call_with_traps {
        "trap 'echo usr' USR1" => "",
        "kill -TERM $$; echo alive" => "alive\n",
        "exit" => State::Restored,
        "trap 'echo usr' USR1" => "",
        "kill -TERM $$; echo alive" => "alive\n",
        "exit" => State::Restored,
    }
}

fn an_interpreter_killed_between_calls_is_noticed_and_replaced(language: Language) {
    let mut worker = language.start();
    let keep =
        ("kept=1; RLM_CONTENT=answer RLM_READY=1", "kept = 1; answer.update(content='answer', ready=True)");
    worker.output(language.pick(keep.0, keep.1));
    end_interpreter(&worker, Signal::SIGKILL);
    let show = language.pick("echo ${kept-gone} $RLM_CONTENT", "'kept' in dir(), answer['content']");
    let response = worker.call(show);
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Reset), "{response:?}");
    let hint = response.hint.unwrap();
    let end = language.pick("the shell ended with status 137; ", "the interpreter was ended by SIGKILL; ");
    assert!(hint.starts_with(&format!("since the last call {end}")), "{hint}");
    assert!(hint.ends_with(language.pick(NOTHING_ELSE, "")), "{hint}");
    let shown = response.stdout + &response.result.unwrap_or_default();
    assert_eq!(shown, language.pick(format!("gone answer\n{hint}\n"), format!("{hint}\n(False, 'answer')")));
    assert!(response.answer.ready && response.answer.content == "answer", "{:?}", response.answer);
}

/// The kernel has not reported its death when the request arrives, so it goes to the dead shell, which may still take
/// it.
#[test]
fn a_shell_that_is_killed_right_before_a_request_runs_its_code_once_or_says_that_it_did_not() {
    let mut worker = Worker::bash();
    let mut rounds = 0;
    for _ in 0..20 {
        worker.output("kept=1");
        kill(worker.interpreter(), Signal::SIGKILL).unwrap();
        let response = worker.call("echo ${kept-gone}; echo ran >>rounds");
        assert_eq!(response.state, State::Reset, "{response:?}");
        let hint = response.hint.unwrap_or_default();
        match response.outcome {
            Outcome::Ok => {
                assert!(hint.starts_with("since the last call the shell ended with status 137; "), "{hint}");
                assert_eq!(response.stdout, format!("gone\n{hint}\n"));
                rounds += 1;
            }
            outcome => {
                assert_eq!(outcome, Outcome::Exited);
                assert!(hint.starts_with("the shell ended with status 137; "), "{hint}");
            }
        }
    }
    assert_eq!(worker.output("touch rounds; wc -l <rounds"), format!("{rounds}\n"));
}

#[test]
fn background_jobs_outlive_the_shell_and_still_print() {
    let mut worker = Worker::bash();
    worker.output("mkfifo gate; (trap '' HUP; read x <gate; echo survivor; : >printed) &");
    worker.call("exit");
    std::fs::write(worker.fs_root().join("gate"), "go\n").unwrap();
    worker.wait_for_file("printed");
    assert!(worker.call("echo next").stdout.contains("survivor\n"));
}

#[test]
fn many_exits_in_a_row() {
    let mut worker = Worker::bash();
    for round in 0..20 {
        let response = worker.call(&format!("n=$((n+1)); exit {round}"));
        assert_eq!((response.state, response.exit_code), (State::Restored, Some(round)), "{response:?}");
    }
    assert_eq!(worker.output("echo $n"), "20\n");
}

// Promise: `exit`, `set -e` and `kill -9 $$` end the call, and the next one runs in a new shell with the state that the old one could save.
#[test]
fn a_state_from_before_the_call_is_called_so() {
    let mut worker = Worker::bash();
    worker.output("x=1");
    for code in ["x=2; trap '' INT; kill -9 $$", "x=2; trap 'echo bye' EXIT; exit 4"] {
        let response = worker.call(code);
        assert_eq!((response.outcome, response.state), (Outcome::Exited, State::Restored), "{response:?}");
        let hint = response.hint.unwrap();
        assert!(hint.contains("options, working directory and answer from before the call"), "{hint}");
        assert_eq!(worker.output("echo $x"), "1\n");
    }
    let hint = worker.call("x=2; exit").hint.unwrap();
    assert!(!hint.contains("before"), "{hint}");
}

#[test]
fn a_shell_that_was_replaced_and_ends_in_the_next_call_has_lost_its_state() {
    let mut worker = Worker::bash();
    worker.output("x=1");
    end_interpreter(&worker, Signal::SIGKILL);
    let response = worker.call("y=2; exit 12");
    assert_eq!(
        (response.outcome, response.state, response.exit_code),
        (Outcome::Exited, State::Reset, Some(12)),
        "{response:?}"
    );
    let hint = response.hint.unwrap();
    let told = format!(
        "since the last call the shell ended with status 137; {NOTHING_ELSE}; the shell ended with status 12; "
    );
    assert!(hint.starts_with(&told), "{hint}");
    assert!(response.stdout.ends_with(&format!("{hint}\n")), "{:?}", response.stdout);
    assert_eq!(worker.output("echo ${x-gone} $y"), "gone 2\n");
}

#[test]
fn an_interpreter_that_is_killed_while_it_starts_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let program = |interpreter: &std::path::Path| {
        let wrapper = dir.path().join("interpreter");
        let text = format!(
            "#!/bin/sh\nfor kill in {0}/1 {0}/2 {0}/3; do rm $kill 2>/dev/null && kill -9 $$; done\nexec {1} \"$@\"\n",
            dir.path().display(),
            interpreter.display()
        );
        rlm_tests::write_program(&wrapper, &text);
        wrapper
    };
    let arm =
        |kills: &[&str]| kills.iter().for_each(|kill| std::fs::write(dir.path().join(kill), "").unwrap());
    let bash = program("/bin/bash".as_ref());
    let mut worker = Setup::bash().env("RLM_BASH", bash.display()).start();
    worker.output("x=1");
    arm(&["1", "2"]);
    assert_eq!(worker.call("exit").state, State::Restored);
    assert_eq!(worker.output("echo $x"), "1\n");
    // The state may be what cannot be started with.
    arm(&["1", "2", "3"]);
    assert_eq!(worker.call("exit").state, State::Reset);
    worker.end();

    let mut worker = Setup::python_at(&program(&default_python())).start();
    arm(&["1", "2"]);
    assert_eq!(worker.call("import os; os._exit(1)").state, State::Reset);
    assert_eq!(worker.output("print(1)"), "1\n");
    arm(&["1", "2", "3"]);
    worker.send_call("import os; os._exit(1)", json!({}));
    assert_eq!(shell_status(worker.wait()), 3);
    let log = std::fs::read_to_string(worker.control.log_file()).unwrap();
    assert!(log.contains("interpreter ended with status 137 before it was ready"), "{log}");
    worker.assert_nothing_left();
}

/// The state does not fit into a pipe, so the shell is still handing it on when the next request comes.
#[test]
fn a_shell_that_ends_just_before_a_call_hands_everything_on() {
    let mut worker = Worker::bash();
    worker.output("RLM_CONTENT=$(head -c 100000 /dev/zero | tr '\\0' z); x=1");
    for _ in 0..10 {
        kill(worker.interpreter(), Signal::SIGHUP).unwrap();
        // The worker may have read the request, and says then that the shell has ended.
        let response = worker.call("echo $x ${#RLM_CONTENT}");
        assert_eq!(response.state, State::Restored, "{response:?}");
        assert_eq!(worker.output("echo $x ${#RLM_CONTENT}"), "1 100000\n");
    }
}

#[test]
fn a_shell_that_ends_between_calls_hands_on_a_large_state() {
    let mut worker = Worker::bash();
    worker.output("big=$(head -c 1000000 /dev/zero | tr '\\0' x)");
    end_interpreter(&worker, Signal::SIGHUP);
    let response = worker.call("echo ${#big}");
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Restored), "{response:?}");
    assert_eq!(response.stdout, "1000000\n");
}

#[test]
fn a_real_time_signal_has_its_number_too() {
    let mut worker = Worker::bash();
    assert_eq!(worker.call("kill -40 $$; sleep 5").exit_code, Some(168));
}

/// Bash leaves out an EXIT trap if the interrupt comes in the microseconds before the trap's first command. That loss is told,
/// and rare.
#[test]
fn a_time_limit_that_meets_the_exit_loses_nothing_unless_it_comes_right_before_the_trap() {
    const SET: &str = "for i in {1..3000}; do printf -v a$i %0500d 1; done";
    let mut worker = Worker::bash();
    worker.output(SET);
    let mut losses = Vec::new();
    for round in 0..30 {
        let limit = f64::from(round + 1) * 0.0007;
        let response = worker.call_with("exit 3", serde_json::json!({"timeout": limit}));
        // The limit may pass when bash has printed `exit` but not exited: then the old shell goes on.
        if response.state == State::Reset {
            assert!(response.hint.is_some_and(|hint| hint.contains(NOTHING_ELSE)), "limit {limit}");
            losses.push(limit);
            worker.output(SET);
        }
        assert_eq!(worker.output("echo ${#a3000}"), "500\n", "limit {limit}");
    }
    assert!(losses.len() <= 1, "{losses:?}");
}

/// A fork has the traps of the shell until it removes them, which this one never comes to.
#[test]
fn a_fork_does_not_hand_on_its_older_state() {
    let mut worker = Worker::bash();
    worker.output("mkfifo gate; sleep \"$(cat gate)\" & :");
    worker.output("w=later");
    assert!(worker.output("kill -HUP $!; wait $!; w=latest; echo $?").contains("Hangup"));
    assert_eq!(worker.call("exit 1").state, State::Restored);
    assert_eq!(worker.output("echo $w"), "latest\n");
    worker.output("sleep \"$(cat gate)\" & :");
    let response = worker.call("kill -HUP $!; wait $!; kill -9 $$");
    assert_eq!((response.outcome, response.state), (Outcome::Exited, State::Reset), "{response:?}");
    assert_eq!(worker.output("echo [$w]"), "[]\n");
}

/// Every token and marker of the driver, and those of the reports of the first calls.
const TOKENS: [&str; 23] = [
    "|", "B", "E", "t", "s", "c", "X", "Y", "V", "F", "N", "P", "A", "L", "S", "B2", "E2", "B3", "E3", "B4",
    "E4", "B5", "E5",
];

#[test]
fn no_value_is_taken_for_a_token_of_the_driver() {
    let mut worker = Worker::bash();
    for token in TOKENS {
        let change = r#"
            a=(1 "$t" 3); declare -A m=(["$t"]=$t); eval "f() { echo '$t'; }"; alias tok="echo '$t'"
            set -- "$t" 2 "$t"; mkdir -p ~/rlm_fs/"$t"; cd ~/rlm_fs/"$t"
            RLM_CONTENT=$t RLM_READY=$t PS1=$t; trap ": '$t'" EXIT"#;
        worker.output(&format!("t='{token}'{change}"));
        let recall = r#"echo "${a[1]} ${m[$t]} $1 $3 $# ${PWD##*/} $RLM_CONTENT $RLM_READY"; f; tok"#;
        let recalled =
            format!("{token} {token} {token} {token} 3 {token} {token} {token}\n{token}\n{token}\n");
        assert_eq!(worker.output(recall), recalled);
        let trap = format!(r"trap -- ': '\''{token}'\''' EXIT");
        assert_eq!(worker.output("echo $PS1; trap"), format!("{token}\n{trap}\n"));
        let response = worker.call("exit 1");
        assert_eq!((response.outcome, response.state), (Outcome::Exited, State::Restored), "{token}");
        assert_eq!(response.answer.content, token);
        assert_eq!(worker.output(recall), recalled, "restored");
    }
}

#[test]
fn an_answer_that_looks_like_a_token_does_not_lose_the_state_of_a_new_session() {
    for token in TOKENS {
        for name in ["RLM_CONTENT", "RLM_READY", "PWD"] {
            let mut worker = Worker::bash();
            worker.output(&format!("v=1; {name}='{token}'"));
            let response = worker.call("exit 1");
            assert_eq!(
                (response.outcome, response.state),
                (Outcome::Exited, State::Restored),
                "{name}={token}: {response:?}"
            );
            assert_eq!(worker.output("echo $v"), "1\n");
        }
    }
}

#[test]
fn a_restored_shell_has_nothing_of_the_driver() {
    let mut worker = Worker::bash();
    for change in ["x=1", "exec </dev/null", "readonly PS1=p"] {
        worker.output(change);
        assert_eq!(worker.call("exit").state, State::Restored);
        assert_eq!(worker.output("declare -p | grep ' __rlm'; declare -F"), "", "{change}");
    }
    worker.output("x=2; exec </dev/null");
    end_interpreter(&worker, Signal::SIGHUP);
    let response = worker.call("echo $x; declare -p | grep ' __rlm'; [ -t 0 ] && echo terminal");
    assert_eq!((response.state, response.stdout.as_str()), (State::Restored, "2\nterminal\n"));
}
