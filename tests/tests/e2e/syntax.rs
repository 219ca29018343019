//! Code of every shape.

use rlm_core::protocol::{Outcome, State};
use rlm_tests::Worker;

use crate::languages::calls;

// Promise: An open quote is a syntax error at once.
#[test]
fn incomplete_code_is_an_error_at_once() {
    let mut worker = Worker::bash();
    let cases = [
        ("echo \"open", "bash: unexpected EOF while looking for matching `\"'\n"),
        ("echo 'open", "bash: unexpected EOF while looking for matching `''\n"),
        ("echo $(open", "bash: unexpected EOF while looking for matching `)'\n"),
        ("echo `open", "bash: unexpected EOF while looking for matching ``'\n"),
        ("if true", "bash: syntax error: unexpected end of file\n"),
        ("if true; then echo a", "bash: syntax error: unexpected end of file\n"),
        ("for x in a | b", "bash: syntax error near unexpected token `|'\n"),
        ("for x in a b", "bash: syntax error: unexpected end of file\n"),
        ("while true; do", "bash: syntax error: unexpected end of file\n"),
        ("case x in", "bash: syntax error: unexpected end of file\n"),
        ("f() {", "bash: syntax error: unexpected end of file\n"),
        ("f()", "bash: syntax error: unexpected end of file\n"),
        ("x=(a | ", "bash: syntax error near unexpected token `|'\n"),
        ("( echo | cat", "bash: syntax error: unexpected end of file\n"),
        ("echo a |", "bash: syntax error: unexpected end of file\n"),
        ("echo a &&", "bash: syntax error: unexpected end of file\n"),
        ("fi", "bash: syntax error near unexpected token `fi'\n"),
        ("echo a | | b", "bash: syntax error near unexpected token `|'\n"),
    ];
    for (code, message) in cases {
        let response = worker.call(code);
        assert_eq!((response.stdout.as_str(), response.outcome), (message, Outcome::Ok), "{code:?}");
        assert_ne!(response.exit_code, Some(0), "{code:?}");
        assert_eq!(worker.output("echo $(echo next) \"q\" 'q'"), "next q q\n", "after {code:?}");
    }
    let here = worker.call("cat <<EOF\nline");
    assert!(here.stdout.ends_with("delimited by end-of-file (wanted `EOF')\nline\n"), "{here:?}");
    let here = worker.call("cat <<EOF | cat\nline");
    assert!(here.stdout.ends_with("(wanted `EOF')\nline\n"), "{here:?}");
    assert_eq!(worker.output("echo still here"), "still here\n");
}

/// Each piece of code, and what it prints, in a session of its own, which goes on.
#[test]
fn code_of_every_shape() {
    let mut script = String::from("n=0\n");
    while script.len() < 1 << 20 {
        script.push_str("n=$((n+1)) # counting, counting, counting, counting, counting\n");
    }
    let lines = format!("{}\n", script.lines().count() - 1);
    script.push_str("echo $n\n");
    let long_line = format!("x='{}'; echo ${{#x}}", "y".repeat(200_000));
    for (code, output) in [
        // The lines before a syntax error have run.
        ("echo one\necho two; fi", "one\nbash: syntax error near unexpected token `fi'\n"),
        ("break", "bash: break: only meaningful in a `for', `while', or `until' loop\n"),
        ("continue", "bash: continue: only meaningful in a `for', `while', or `until' loop\n"),
        ("return", "bash: return: can only `return' from a function or sourced script\n"),
        ("local x=1", "bash: local: can only be used in a function\n"),
        ("", ""),
        (" \n\t\n", ""),
        ("# only a comment", ""),
        ("\n\n# x\n", ""),
        ("-x 2>/dev/null; echo \"[$?]\"", "[127]\n"),
        ("--help 2>/dev/null; echo \"[$?]\"", "[127]\n"),
        ("echo a\tb", "a b\n"),
        ("echo 'a\tb'", "a\tb\n"),
        ("echo a\0b", "ab\n"),
        ("echo back \\", "back \\\n"),
        ("echo a\n\\\n", "a\n"),
        ("\\\n", ""),
        ("echo 'cr'\r\n", "cr\r\n"),
        ("echo a!b !$ !!", "a!b !$ !!\n"),
        ("echo é 日本 🎉", "é 日本 🎉\n"),
        (
            "x=1\ncat <<EOF\n$x \"q'\nEOF\ncat <<'EOF' | tr a-z A-Z\n$x\nlower\nEOF\necho end",
            "1 \"q'\n$X\nLOWER\nend\n",
        ),
        (&script, &lines),
        (&long_line, "200000\n"),
    ] {
        let mut worker = Worker::bash();
        calls(&mut worker, &[(code, output), ("echo next", "next\n")]);
    }
}

#[test]
fn a_broken_condition_is_only_a_syntax_error() {
    let mut worker = Worker::bash();
    worker.output("x=1; mkfifo gate; cat gate >/dev/null &");
    for code in [
        "[[ a",
        "[[ $x == \"a\" ] && echo b",
        "if [[ -f x ; then echo; fi",
        "eval \"[[ a\"",
        "[[ a b c ]]",
        "[[ ( a ]]",
    ] {
        let response = worker.call(code);
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{code:?}: {response:?}");
        assert!(response.stdout.starts_with("bash: "), "{code:?}: {response:?}");
        assert_eq!(worker.output("[[ $x == 1 ]] && echo yes; jobs -r | wc -l"), "yes\n1\n", "after {code:?}");
    }
}
