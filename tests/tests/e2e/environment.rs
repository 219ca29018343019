//! The session's environment is built from an allow-list; the worker's settings come from its own.

use rlm_core::protocol::Outcome;
use rlm_tests::{Setup, Worker};
use serde_json::json;

#[test]
fn keys_of_the_host_do_not_reach_the_session() {
    let mut worker = Setup::bash()
        .env("OPENAI_API_KEY", "sk-secret")
        .env("TZ", "UTC")
        .env("LC_TIME", "C")
        .env("RLM_SUB_MODEL", "small")
        .env("RLM_EXEC_TIMEOUT", "30")
        .env("EDITOR", "vi")
        .start();
    let names = "env | cut -d= -f1 | sort | tr '\\n' ' '";
    assert_eq!(
        worker.output(names),
        "GIT_PAGER HOME LANG LC_TIME MANPAGER PAGER PATH PWD RLM_SUB_MODEL RLM_TEST_MARK SHLVL TERM TZ _ "
    );
    assert_eq!(worker.output("echo $PAGER $TERM $SHLVL; set | grep -c secret"), "cat dumb 1\n0\n");
}

#[test]
fn a_session_without_a_locale_of_its_host_has_utf_8() {
    let mut worker = Setup::bash().env("LANG", "").start();
    assert_eq!(worker.output("touch é.txt; ls; x=日本; echo ${#x}"), "é.txt\n2\n");
    let mut worker = Setup::bash().env("LANG", "C").start();
    assert_eq!(worker.output("x=日本; echo ${#x}"), "6\n");
}

#[test]
fn pages_of_man_are_plain_text() {
    let mut worker = Worker::bash();
    assert_eq!(worker.output(r"printf 'N\bNA\bAM\bM _\bx\n' | eval $MANPAGER"), "NAM x\n");
}

#[test]
fn lines_of_windows_run() {
    let mut worker = Worker::bash();
    assert_eq!(worker.output("if true; then\r\n  cat <<E\r\nhi\r\nE\r\nfi\r\necho there"), "hi\nthere\n");
}

#[test]
fn a_terminal_that_a_program_left_raw_ends_no_later_input() {
    let mut worker = Worker::bash();
    worker.output("python3 -c 'import tty; tty.setraw(0)'; stty -isig");
    let response =
        worker.call_with("read x; echo $?; cat; stty -a | grep -o ' -\\?icanon'", json!({"timeout": 20}));
    assert_eq!(response.stdout, "1\n icanon\n");
}

/// The shell opens descriptors of the server's by its directory in `/proc`, so code can read the server's memory, too.
#[test]
fn keys_of_the_host_are_not_in_the_memory_of_the_worker() {
    let search = r#"python3 -c '
import re, sys
server = f"/proc/{sys.argv[1]}"
print(re.findall(b"sk-[s]ecret", open(f"{server}/environ", "rb").read()))
memory = open(f"{server}/mem", "rb")
for part in open(f"{server}/maps"):
    start, end = (int(place, 16) for place in part.split()[0].split("-"))
    try:
        memory.seek(start)
        print(re.findall(b"sk-[s]ecret", memory.read(end - start)))
    except (OSError, ValueError):
        pass
' $PPID | grep -c secret"#;
    let key = || Setup::bash().env("OPENAI_API_KEY", "sk-secret");
    for (setup, is_there) in [(key(), false), (key().env("RLM_PASS_ENV", "OPENAI_API_KEY"), true)] {
        let mut worker = setup.start();
        assert_eq!(worker.call(search).stdout != "0\n", is_there);
    }
}

#[test]
fn the_terminal_is_what_the_host_asked_for() {
    let mut worker =
        Setup::bash().env("RLM_TERM", "xterm").env("RLM_COLUMNS", "132").env("RLM_ROWS", "50").start();
    assert_eq!(worker.output("echo $TERM; stty size; tput cols"), "xterm\n50 132\n132\n");
}

#[test]
fn limits_come_from_the_environment() {
    let mut worker = Setup::bash().env("RLM_EXEC_TIMEOUT", "0.2").env("RLM_MAX_OUTPUT_BYTES", "300").start();
    assert_eq!(worker.call("sleep 100").outcome, Outcome::TimedOut);
    let limited = worker.call_with("seq 1000", json!({"timeout": 20}));
    assert_eq!(limited.truncated.unwrap().stdout, 3893 - 300);
}

#[test]
fn signals_have_their_default_handling() {
    let mut worker = rlm_tests::Worker::bash();
    assert_eq!(worker.output("bash -c 'yes | head -n 1'; bash -c 'trap'"), "y\n");
    assert_eq!(
        worker.output("grep -E 'Sig(Blk|Ign)' /proc/self/status"),
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
    );
}
