//! Shell functions, with an endpoint like those of existing hosts.

use rlm_core::protocol::{Outcome, State};
use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{Setup, Worker};

use super::start;

fn for_both(test: impl Fn(&mut Worker, &str)) {
    super::for_both(Setup::bash, test);
}

#[test]
fn results_are_printed() {
    for_both(|worker, serialization| {
        assert_eq!(worker.output("give str; give newline"), "text\ntext\n");
        assert_eq!(worker.output("give dict"), "{\"b\": [1, 2.5, null], \"a\": \"\\u00e9\", \"3\": true}\n");
        assert_eq!(worker.output("give list; give tuple"), "[1, \"two\", false]\n[1, [2, \"x\"]]\n");
        assert_eq!(worker.output("give bytes; give set; give none"), "b'\\x00\\xffab'\n{1}\nnull\n");
        let nan = if serialization == "json" { "nan\n" } else { "NaN\n" };
        assert_eq!(worker.output("give nan"), nan);
        assert_eq!(worker.output("give long | wc -c"), "10000001\n");
        assert_eq!(worker.output("give str --json-output"), "\"text\"\n");
        assert_eq!(worker.output("echo_=1; echo 1"), "[[1], {}]\n");
        assert_eq!(
            worker.output(r#"echo --json '{"args": [1], "kwargs": {"lines": true}}'"#),
            "a line\n[[1], {\"lines\": true}]\n"
        );
    });
}

#[test]
fn results_of_every_pickle_protocol_are_read() {
    let endpoint = ExistingEndpoint::start();
    let mut worker = start(Setup::bash(), &endpoint, "pickle");
    for protocol in 0..=5 {
        assert_eq!(
            worker.output(&format!(
                "protocol {protocol} dict; protocol {protocol} bytes; protocol {protocol} big"
            )),
            "{\"b\": [1, 2.5, null], \"a\": \"\\u00e9\", \"3\": true}\nb'\\x00\\xffab'\n1267650600228229401496703205376\n"
        );
    }
    assert_eq!(
        worker.output("give surrogate"),
        "a\u{fffd}\n".replace('\u{fffd}', "a\u{fffd}").replace("aa", "a")
    );
}

#[test]
fn arguments_come_as_they_were_given() {
    for_both(|worker, _| {
        assert_eq!(
            worker.output("echo 1e3 true -- -x --json '[1]' '' $'a\\n\"b\\''"),
            "[[1000.0, true, \"-x\", \"--json\", [1], \"\", \"a\\n\\\"b'\"], {}]\n"
        );
        assert_eq!(worker.output("echo --str 1e3 '[1]'"), "[[\"1e3\", \"[1]\"], {}]\n");
        assert_eq!(
            worker.output(r#"echo --json '{"a": 1}'; echo '{"a": 1}'"#),
            "[[], {\"a\": 1}]\n[[{\"a\": 1}], {}]\n"
        );
        assert_eq!(worker.output(r#"printf '{"kwargs": {"a": [1]}}' | echo"#), "[[], {\"a\": [1]}]\n");
        assert_eq!(worker.output("echo; echo </dev/null"), "[[], {}]\n[[], {}]\n");
        // One MiB: by file, by standard input, and on the command line, where the kernel takes no more than 128 KiB.
        worker.output("head -c 1048576 /dev/zero | tr '\\0' x >big");
        assert_eq!(worker.output("size @big"), "1048576\n");
        assert_eq!(worker.output("size \"$(<big)\""), "1048576\n");
        assert_eq!(worker.output("set -a; size \"$(<big)\"; set +a"), "1048576\n");
        assert_eq!(
            worker.output("llm_batch <big | wc -c; llm_batch --file big \"$(<big)\" | wc -c"),
            "1048586\n2097172\n"
        );
        assert_eq!(worker.output("{ printf '[\"'; cat big; printf '\"]'; } | size --json"), "1048576\n");
    });
}

#[test]
fn llm_batch_takes_text_and_prints_only_the_replies() {
    for_both(|worker, _| {
        assert_eq!(worker.output("llm_batch a '[1]' '- b'"), "reply to a\nreply to [1]\nreply to - b\n");
        assert_eq!(worker.output("printf 'a\\n\\nb\\n' | llm_batch --lines"), "reply to a\nreply to b\n");
        assert_eq!(worker.output("llm_batch --json '[\"a\", \"b\"]'"), "reply to a\nreply to b\n");
        assert_eq!(worker.output("printf '{\"prompts\": [\"a\"]}' | llm_batch --json"), "reply to a\n");
        assert_eq!(worker.output("echo_=; printf 'a\\nb' | llm_batch"), "reply to a\nb\n");
        // One newline at the end of the text is not a part of the prompt.
        for (text, reply) in
            [("a\\n", "reply to a"), ("a\\n\\n", "reply to a\\n"), ("\\na\\n", "reply to \\na")]
        {
            let json = worker.output(&format!("printf '{text}' | llm_batch --json-output"));
            assert_eq!(json, format!("[\"{reply}\"]\n"));
        }
        assert_eq!(worker.output("llm_batch a b --json-output"), "[\"reply to a\", \"reply to b\"]\n");
        let response = worker.call("llm_batch </dev/null");
        assert_eq!(
            response.stdout,
            "Error: llm_batch: no prompt: give prompts as arguments, or one on standard input\n"
        );
        assert_eq!(response.exit_code, Some(1));
        assert_eq!(worker.output("llm_batch; builtin echo $?").lines().last(), Some("1"));
    });
}

#[test]
fn errors_are_named_and_have_a_status() {
    for_both(|worker, _| {
        assert_eq!(worker.output("fail 'it broke'; builtin echo $?"), "Error: it broke\n1\n");
        // A reply of status 200, as some endpoints send for an error.
        assert_eq!(worker.output("fail_softly 'it broke'; builtin echo $?"), "Error: it broke\n1\n");
        assert_eq!(worker.output("fail 'it broke' 2>/dev/null || builtin echo no"), "no\n");
        assert_eq!(worker.output("missing; builtin echo $?"), "Error: Tool 'missing' not found\n1\n");
        assert_eq!(
            worker.output("echo -x; builtin echo $?"),
            "echo: unknown option -x; put -- before an argument that begins with -; see echo --help\n2\n"
        );
        let text = worker.output("builtin echo nope | echo; builtin echo $?");
        assert_eq!(text, "Error: the payload is not JSON: expected ident at line 1 column 2: \"nope\"\n1\n");
        assert_eq!(
            worker.output("echo @nothing; builtin echo $?"),
            "Error: argument 1: cannot read the file nothing: No such file or directory (os error 2); put -- before an argument that begins with @\n1\n"
        );
        assert!(worker.output("echo --help").contains("Usage: echo [OPTION]"));
        assert_eq!(
            worker.output("(RLM_INTERCEPTION_SECRET=wrong echo 1); builtin echo $?"),
            "Error: Unauthorized\n1\n"
        );
    });
}

#[test]
fn an_answer_that_asks_for_more_than_data_is_refused() {
    let endpoint = ExistingEndpoint::start();
    let mut worker = start(Setup::bash(), &endpoint, "pickle");
    let text = worker.output("hostile; ls");
    assert!(text.contains("Error: the answer to hostile cannot be read: result is refused: "), "{text}");
    assert!(text.contains("os.system") && !text.contains("owned\n"), "{text}");
}

#[test]
fn functions_work_wherever_a_shell_runs() {
    for_both(|worker, _| {
        assert_eq!(worker.output("(give str); x=$(give str); builtin echo \"<$x>\""), "text\n<text>\n");
        assert_eq!(worker.output("give long | head -c 3; builtin echo"), "xxx\n");
        assert_eq!(worker.output("bash -c 'give str'; bash -c 'bash -c \"give str\"'"), "text\ntext\n");
        assert_eq!(
            worker.output("printf '1\\n2\\n' | xargs -n 1 rlm-root-tool echo"),
            "[[1], {}]\n[[2], {}]\n"
        );
        worker.output("printf 'a\\nb\\n' >lines");
        assert_eq!(
            worker.output("while read -r line; do echo \"$line\"; done <lines"),
            "[[\"a\"], {}]\n[[\"b\"], {}]\n"
        );
        assert_eq!(worker.output("set -eu; give str; set +eu; IFS=x; give str; unset IFS"), "text\ntext\n");
        // The tool is called from a background job, and fifty times at once.
        assert_eq!(worker.output("give str >out & wait $!; cat out").lines().last(), Some("text"));
        let many = "( for i in {1..50}; do echo $i >out.$i & done; wait ); cat out.{1..50}";
        let expected: String = (1..=50).map(|at| format!("[[{at}], {{}}]\n")).collect();
        assert_eq!(worker.output(many), expected);
    });
}

#[test]
fn a_new_shell_has_the_tools_too() {
    for_both(|worker, _| {
        worker.output("unset -f give");
        let response = worker.call("exit");
        assert_eq!((response.outcome, response.state), (Outcome::Exited, State::Restored));
        assert_eq!(worker.output("give str"), "text\n");
    });
}

#[test]
fn an_endpoint_that_is_gone_or_speaks_in_chunks() {
    let endpoint = ExistingEndpoint::start();
    let mut worker = endpoint.tools_for(Setup::bash()).start();
    assert_eq!(
        worker.output("(RLM_ROOT_TOOL_URL+=/chunked; give dict)"),
        "{\"b\": [1, 2.5, null], \"a\": \"\\u00e9\", \"3\": true}\n"
    );
    let port = endpoint.url().split(['/', ':']).nth(4).unwrap().to_owned();
    drop(endpoint);
    assert_eq!(
        worker.output("give str; builtin echo $?"),
        format!(
            "Error: cannot reach the root-tool endpoint http://127.0.0.1:{port}: Connection refused (os error 111)\n1\n"
        )
    );
}
