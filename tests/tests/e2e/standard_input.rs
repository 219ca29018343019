//! Standard input is a terminal at which nobody types: a program that reads it gets end of file.

use rlm_core::protocol::{Outcome, State};
use rlm_tests::Worker;
use serde_json::json;

use crate::languages::sessions;

// Promise: What reads standard input gets end of file.
#[test]
fn programs_that_read_end_by_themselves_in_good_time() {
    let mut worker = Worker::bash();
    for (code, printed) in [
        ("cat; echo $?", "0\n"),
        ("read x; echo $? [$x]", "1 []\n"),
        ("cat; cat; read x; cat /dev/tty; echo after", "after\n"),
        ("while read line; do echo $line; done; echo done", "done\n"),
        ("bash -c 'cat; echo inner'; sh -c 'read x; echo $?'", "inner\n1\n"),
        ("select x in a b; do echo $x; done; echo out", "1) a\n2) b\n#? \nout\n"),
        ("read -s -p 'password: ' x </dev/tty; echo \"[$?]\"", "password: [1]\n"),
        ("stty -a | grep -o ' icanon'", " icanon\n"),
        ("command -v python3 >/dev/null && python3 -q; bash --norc -i; echo out", "out\n"),
    ] {
        let response = worker.call_with(code, json!({"timeout": 20}));
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{code:?}: {response:?}");
        assert!(response.execution_time < 1.0, "{code:?} took {} s", response.execution_time);
        // An interactive interpreter may say more.
        let is_whole =
            response.stdout == printed || code.contains(" -i") && response.stdout.ends_with(printed);
        assert!(is_whole, "{code:?}: {:?}", response.stdout);
    }
}

sessions! { Bash:
    it_is_a_real_terminal {
        "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; tty | grep -c /dev/pts/; stty size; echo $TERM" =>
            "all\n1\n24 80\ndumb\n",
    }
    an_unread_end_of_file_is_not_left_for_later {
        // Long enough for an end of file to be pending.
        "sleep 0.12" => "",
        "read -t 0; echo $?" => "1\n",
    }
}

#[test]
fn a_background_reader_is_stopped_as_at_a_terminal() {
    let mut worker = Worker::bash();
    worker.output("cat & pid=$!; until [[ $(ps -o state= $pid) == T ]]; do sleep 0.01; done");
    let jobs = worker.output("jobs");
    assert!(jobs.contains("Stopped"), "{jobs}");
}
