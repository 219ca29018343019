//! Whatever the shell prints through its pipes: no panic; and a report or a state that ends it is read with exactly its values,
//! whatever they are and whatever an interrupt has left before it.

#![no_main]
#![allow(dead_code, reason = "the worker uses all of it")]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[path = "../../rlm-worker-bash/src/driver/legend.rs"]
mod legend;
mod driver {
    pub(crate) use super::legend;
}
#[path = "../../rlm-worker-bash/src/report.rs"]
mod report;

use driver::legend::{BAR, BEGIN, END, STATE, STATE_END};
use report::{Marks, Report, complete};

const KEY: &str = "0f1e2d3c";

#[derive(Arbitrary, Debug)]
struct Input {
    before: Vec<u8>,
    quiet: Vec<u8>,
    nonce: u32,
    status: u8,
    options: Vec<u8>,
    cwd: Vec<u8>,
    ready: Vec<u8>,
    content: Vec<u8>,
    state: Vec<u8>,
}

fuzz_target!(|input: Input| {
    let marks = Marks { key: KEY.to_owned(), exit_hook: "HOOK".to_owned() };
    let mut report = Report::default();
    marks.read_quiet(&input.quiet, &mut report);
    let _any = (complete(&input.before), marks.snapshot(&input.before), marks.has_begun(&input.before));

    // A variable holds no NUL, and nobody guesses the key.
    let is_value =
        |value: &Vec<u8>| !value.contains(&0) && memchr::memmem::find(value, KEY.as_bytes()).is_none();
    let Input { before, nonce, status, options, cwd, ready, content, state, .. } = input;
    if ![&options, &cwd, &ready, &content, &state].into_iter().all(is_value) {
        return;
    }
    let text = |text: String| text.into_bytes();
    let record = |tokens: &[Vec<u8>]| [tokens.join(&0), vec![0]].concat();
    let end = record(&[
        text(BAR.to_owned()),
        text(format!("{BEGIN}{nonce}")),
        text(status.to_string()),
        Vec::new(),
        text(BAR.to_owned()),
        options.clone(),
        Vec::new(),
        Vec::new(),
        Vec::new(),
        Vec::new(),
        cwd.clone(),
        ready.clone(),
        content.clone(),
        text(format!("{END}{nonce}")),
    ]);
    // The end of a token that an interrupt cut short.
    let (found, report) = complete(&[&before[..], b"\0", &end].concat()).expect("it is complete");
    assert_eq!((found, report.user.status), (nonce.into(), status.into()));
    assert_eq!((&report.user.options, &report.cwd), (&options, &cwd));
    assert_eq!((&report.ready, &report.content), (&ready, &content));

    let handed_on = record(&[
        Vec::new(),
        text(format!("{STATE}{KEY}")),
        text("1".to_owned()),
        options.clone(),
        cwd.clone(),
        ready.clone(),
        content.clone(),
        state.clone(),
        text(format!("{STATE_END}{KEY}")),
    ]);
    let all = [&before[..], &handed_on].concat();
    let snapshot = marks.snapshot(&all).expect("it is complete");
    assert!(marks.ends_with_state(&all) && marks.holds_state(&all) && !snapshot.is_early);
    assert_eq!((snapshot.options, snapshot.cwd), (options, cwd));
    assert_eq!((snapshot.ready, snapshot.content, snapshot.state), (ready, content, state));
});
