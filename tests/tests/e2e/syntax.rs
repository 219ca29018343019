//! Code of every shape.

use rlm_core::protocol::Outcome;
use rlm_tests::Worker;

#[track_caller]
fn check(code: &str, output: &str) {
    let mut worker = Worker::bash();
    assert_eq!(worker.output(code), output, "{code:?}");
    assert_eq!(worker.output("echo next"), "next\n", "after {code:?}");
    worker.end();
}

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
    worker.end();
}

#[test]
fn the_lines_before_a_syntax_error_have_run() {
    check("echo one\necho two; fi", "one\nbash: syntax error near unexpected token `fi'\n");
}

#[test]
fn break_continue_return_and_local_at_top_level_are_bash_errors() {
    check("break", "bash: break: only meaningful in a `for', `while', or `until' loop\n");
    check("continue", "bash: continue: only meaningful in a `for', `while', or `until' loop\n");
    check("return", "bash: return: can only `return' from a function or sourced script\n");
    check("local x=1", "bash: local: can only be used in a function\n");
}

#[test]
fn empty_code_and_comments_do_nothing() {
    for code in ["", " \n\t\n", "# only a comment", "\n\n# x\n"] {
        check(code, "");
    }
}

#[test]
fn odd_bytes_are_handled_as_in_bash() {
    check("-x 2>/dev/null; echo \"[$?]\"", "[127]\n");
    check("--help 2>/dev/null; echo \"[$?]\"", "[127]\n");
    check("echo a\tb", "a b\n");
    check("echo 'a\tb'", "a\tb\n");
    check("echo a\0b", "ab\n");
    check("echo back \\", "back \\\n");
    check("echo a\n\\\n", "a\n");
    check("\\\n", "");
    check("echo 'cr'\r\n", "cr\r\n");
    check("echo a!b !$ !!", "a!b !$ !!\n");
    check("echo é 日本 🎉", "é 日本 🎉\n");
}

#[test]
fn a_script_of_a_megabyte_runs() {
    let mut code = String::from("n=0\n");
    while code.len() < 1 << 20 {
        code.push_str("n=$((n+1)) # counting, counting, counting, counting, counting\n");
    }
    let lines = code.lines().count() - 1;
    code.push_str("echo $n\n");
    check(&code, &format!("{lines}\n"));
}

#[test]
fn a_line_of_two_hundred_kilobytes_runs() {
    check(&format!("x='{}'; echo ${{#x}}", "y".repeat(200_000)), "200000\n");
}

#[test]
fn here_documents_work() {
    check(
        "x=1\ncat <<EOF\n$x \"q'\nEOF\ncat <<'EOF' | tr a-z A-Z\n$x\nlower\nEOF\necho end",
        "1 \"q'\n$X\nLOWER\nend\n",
    );
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
        assert_eq!(
            (response.outcome, response.state),
            (Outcome::Ok, rlm_core::protocol::State::Kept),
            "{code:?}: {response:?}"
        );
        assert!(response.stdout.starts_with("bash: "), "{code:?}: {response:?}");
        assert_eq!(worker.output("[[ $x == 1 ]] && echo yes; jobs -r | wc -l"), "yes\n1\n", "after {code:?}");
    }
    worker.end();
}
