//! Bounds of confined sessions: one that takes all that it can get harms no other, and goes on.

use rlm_core::protocol::{Limit, Outcome};
use rlm_tests::{Setup, Worker, skipped};

use serde_json::json;

use super::{Who, bash_at, can_have, confined, levels};
use crate::ops::ask;

/// Starts more processes than a session may have, and prints how many there were.
const MANY: &str = "import os, signal
pids = []
try:
    while len(pids) < 1400:
        pid = os.fork()
        if not pid: signal.pause()
        pids.append(pid)
except BlockingIOError: pass
for pid in pids: os.kill(pid, 9); os.waitpid(pid, 0)
print(len(pids))";

/// Starts as many processes as a session may have, which stay until they are ended, and then makes the file `full`.
const ALL: &str = "python3 -c '
import os, signal
try:
    while os.fork(): pass
except BlockingIOError: open(\"full\", \"w\")
signal.pause()' & until [[ -e full ]]; do :; done";

/// True if something limits the processes of this session to this number; if not, the session has said so.
fn has_bound(worker: &Worker, count: u64) -> bool {
    let Limit { value, mechanism } = worker.info().limits.processes.unwrap();
    assert_eq!(value, count);
    let none = format!("the limit of {count} processes (RLM_LIMIT_PROCESSES) has no effect here");
    let told = worker.log().contains(&none);
    assert_eq!(told, mechanism.is_none(), "{}", worker.log());
    if mechanism.is_none() {
        skipped("nothing limits the processes of such a session here");
    }
    mechanism.is_some()
}

#[test]
fn a_confined_session_has_as_many_processes_as_it_says() {
    for level in levels() {
        for who in Who::all() {
            let mut worker = confined(who, level);
            if has_bound(&worker, 1024) {
                let count: u64 = worker.output(MANY).trim().parse().unwrap();
                // The first 300 ids of a namespace are used once.
                assert!((1000..=1324).contains(&count), "{count} at {level} for {who:?}");
                assert_eq!(worker.value("6 * 7"), "42");
            }
        }
    }
}

#[test]
fn a_session_without_a_process_left_answers_and_its_shell_is_replaced() {
    if !can_have("full") {
        return;
    }
    let mut worker = Setup::bash().env("RLM_CONFINE", "full").env("RLM_LIMIT_PROCESSES", 100).start();
    if !has_bound(&worker, 100) {
        return;
    }
    worker.output(&format!("kept=1; {ALL}"));
    // The response waits for its reader.
    for call in 0..20 {
        worker.send_call(&format!("builtin printf x > call{call}"), json!({}));
        worker.wait_for_file(&format!("call{call}"));
        assert_eq!(worker.receive().outcome, Outcome::Ok);
    }
    let response = worker.call("builtin exit 3");
    let hint = response.hint.unwrap();
    assert!(hint.starts_with("the shell ended with status 3; a new shell has its variables"), "{hint}");
    assert!(
        hint.ends_with(". All that ran in the background was ended: it left no process for a new one"),
        "{hint}"
    );
    assert_eq!(worker.output("/bin/echo $kept"), "1\n");
}

#[test]
fn a_fork_bomb_harms_no_other_session_and_a_reset_ends_it() {
    if !can_have("full") {
        return;
    }
    let mut other = bash_at("full");
    // With the default, tests beside this one would have to wait for a thousand processes.
    let mut worker = Setup::bash().env("RLM_CONFINE", "full").env("RLM_LIMIT_PROCESSES", 200).start();
    if !has_bound(&worker, 200) {
        return;
    }
    worker.call("kept=1; bomb() { bomb | bomb & }; bomb");
    for _ in 0..50 {
        assert_eq!(other.output("/bin/echo 7"), "7\n");
    }
    let response = worker.call("builtin echo \"kept is $kept\"");
    assert!(response.stdout.contains("kept is 1\n"), "{response:?}");
    let response = ask(&worker, json!({"op": "reset"}));
    assert_eq!((response.outcome, response.hint), (Outcome::Ok, None));
    assert_eq!(worker.output("/bin/echo 7"), "7\n");
}
