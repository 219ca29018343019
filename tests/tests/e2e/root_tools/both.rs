//! Calls of root tools in both languages.

use nix::sys::signal::Signal;
use rlm_core::protocol::{Outcome, State};
use rlm_tests::endpoint::ExistingEndpoint;
use serde_json::json;

use super::start;
use crate::languages::{Language, in_both_languages};
use crate::limits::run_out_of_time;

in_both_languages!(
    an_interrupt_or_the_time_limit_ends_a_call_of_a_tool,
    a_tool_that_does_not_answer_in_time_is_an_error,
);

fn an_interrupt_or_the_time_limit_ends_a_call_of_a_tool(language: Language) {
    let mut endpoint = ExistingEndpoint::start();
    let mut worker = start(language.setup(), &endpoint, "pickle");
    worker.output("x=1");
    // Calls of threads end with the cell that waits for them.
    let threads = "import threading
def call():
    try: ended.append(hang())
    except KeyboardInterrupt: ended.append('interrupted')
ended, threads = [], [threading.Thread(target=call) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()";
    for (code, count) in language.pick(&[("hang", 1)][..], &[("hang()", 1), (threads, 4)]) {
        worker.send_call(code, json!({}));
        endpoint.wait_for_hanging_calls(*count);
        worker.signal(Signal::SIGINT);
        let response = worker.receive();
        assert_eq!((response.outcome, response.state), (Outcome::Interrupted, State::Kept), "{response:?}");
    }
    if language == Language::Python {
        // Before 3.13, `join` takes a thread for ended once it was interrupted.
        let ended = worker.output("import time\nwhile len(ended) < 4: time.sleep(0.001)\nprint(ended)");
        assert_eq!(ended, format!("{:?}\n", ["interrupted"; 4]).replace('"', "'"));
    }
    assert_eq!(run_out_of_time(&mut worker, language.pick("hang", "hang()"), 0.3).state, State::Kept);
    assert_eq!(
        worker.output(language.pick("builtin echo $x; give str", "print(x); print(give('str'))")),
        "1\ntext\n"
    );
}

fn a_tool_that_does_not_answer_in_time_is_an_error(language: Language) {
    let endpoint = ExistingEndpoint::start();
    let mut worker = endpoint.tools_for(language.setup()).env("RLM_SUB_LLM_TIMEOUT", "0.3").start();
    let call = "try: hang()\nexcept RuntimeError as error: print('Error:', error)\nprint(1)";
    let printed = worker.output(language.pick("hang; builtin echo $?", call));
    assert_eq!(printed, "Error: hang: no answer within 0.3 s\n1\n");
}

#[test]
fn names_that_cannot_be_functions_are_refused_at_start() {
    let list =
        "environment variable RLM_ROOT_TOOL_NAMES is \"[\\\"a b\\\"]\", expected a JSON list of identifiers";
    for (language, name, fault) in [
        (Language::Python, "class", "cannot be a function: it is a keyword of Python"),
        (Language::Python, "answer", "cannot be a function: the session already uses this name"),
        (Language::Bash, "while", "cannot be a shell function: it is a keyword of bash"),
        (Language::Bash, "a b", list),
    ] {
        let (url, names) = ("http://127.0.0.1:1/", json!([name]).to_string());
        let said = language.refuses_to_start(&[("RLM_ROOT_TOOL_URL", url), ("RLM_ROOT_TOOL_NAMES", &names)]);
        let named = format!("root tool \"{name}\" of RLM_ROOT_TOOL_NAMES ");
        assert!(said.contains(fault) && (fault == list || said.contains(&named)), "{said}");
    }
}
