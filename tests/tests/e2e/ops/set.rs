//! Setting variables, in every language.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::signal::Signal;
use rlm_core::protocol::{Outcome, State};
use serde_json::json;

use super::{SEQ, ask};
use crate::languages::{Language, end_interpreter, in_both_languages};

in_both_languages!(a_dead_interpreter_is_replaced_first_and_a_hint_says_so, an_interrupt_does_not_stop_a_set,);

fn a_dead_interpreter_is_replaced_first_and_a_hint_says_so(language: Language) {
    let mut worker = language.start();
    worker.output(language.pick("x=old; RLM_CONTENT=answer", "x = 1; answer['content'] = 'answer'"));
    end_interpreter(&worker, Signal::SIGKILL);
    let response = ask(&worker, json!({"op": "set", "variables": {"y": 1}}));
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Reset), "{response:?}");
    let end = language.pick("the shell ended with status 137; ", "the interpreter was ended by SIGKILL; ");
    assert!(response.hint.unwrap().starts_with(&format!("since the last call {end}")));
    assert_eq!(response.answer.content, "answer");
    let show = language
        .pick("echo ${x-gone} $y $RLM_CONTENT", "print(globals().get('x', 'gone'), y, answer['content'])");
    assert_eq!(worker.output(show), "gone 1 answer\n");
}

/// The interrupts arrive at any stage of the request: nothing reports its progress.
fn an_interrupt_does_not_stop_a_set(language: Language) {
    let mut worker = language.start();
    // These variables keep a shell busy for a good part of a second.
    let map: BTreeMap<String, usize> = (0..60_000).map(|number| (format!("k{number}"), number)).collect();
    let request = json!({"op": "set", "seq": SEQ, "variables": {"m": map, "z": 1}});
    worker.send(request.to_string().as_bytes());
    let (count, pause) = language.pick((200, 5), (20, 1));
    for _ in 0..count {
        worker.signal(Signal::SIGINT);
        std::thread::sleep(Duration::from_millis(pause));
    }
    let response = worker.receive();
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{response:?}");
    assert_eq!(worker.output(language.pick("echo ${#m[@]} $z", "print(len(m), z)")), "60000 1\n");
}
