//! `rlm run --chat`.

use std::io::Write as _;
use std::process::Stdio;

use portable_pty::{PtySize, native_pty_system};
use rlm_tests::scripted_model::Rule;
use rlm_tests::wait_until;
use serde_json::json;

use super::{asking, bash, start, text};
use crate::pty::{Screen, at_pty};

fn rules() -> Vec<Rule> {
    let hello = json!({"role": "assistant", "content": "You are welcome."});
    vec![
        bash("n=6; RLM_CONTENT=$n RLM_READY=1").once(),
        bash("RLM_CONTENT=$((n * 7)) RLM_READY=1").once(),
        Rule::any().message(hello).once(),
    ]
}

#[test]
fn lines_of_standard_input_are_further_questions() {
    for first in [&["How many?"][..], &[]] {
        let (place, model) = start(rules());
        let args = [&["run", "--chat", "--trajectory", "t.jsonl"][..], first].concat();
        let mut command = asking(&place, &model, &args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        if first.is_empty() {
            input.write_all(b"How many?\n").unwrap();
        }
        input.write_all(b"\nAnd seven times?\nThanks.\n").unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "");
        assert_eq!((text(&output.stdout), output.status.code()), ("6\n42\nYou are welcome.\n", Some(0)));
        let last = model.finish()[2].body["messages"].as_array().unwrap().clone();
        assert_eq!(last.last().unwrap()["content"], "Thanks.");
        assert_eq!(place.read("t.jsonl").matches("\"question_ended\"").count(), 3);
    }
}

#[test]
fn at_a_terminal_ctrl_c_ends_a_question_and_ctrl_d_the_chat() {
    let (place, model) = start([
        bash("kept=1; : >\"$RLM_TEST_FILE\"; sleep 600").once(),
        bash("RLM_CONTENT=still-$kept RLM_READY=1").once(),
    ]);
    let started = place.path("started");
    let mut command = asking(&place, &model, &["run", "--chat", "How many?"]);
    command.env("RLM_TEST_FILE", &started).env("RLM_PASS_ENV", "RLM_TEST_FILE");
    let terminal = native_pty_system().openpty(PtySize::default()).unwrap();
    let mut child = terminal.slave.spawn_command(at_pty(&place, &command)).unwrap();
    drop(terminal.slave);
    let mut input = terminal.master.take_writer().unwrap();
    let mut screen = Screen::new(&*terminal.master);
    wait_until("the call runs", || started.exists());
    input.write_all(b"\x03").unwrap();
    screen.expect("interrupting; Ctrl-C again ends the chat");
    screen.expect("\x1b[?2004h");
    input.write_all(b"And now?\r").unwrap();
    screen.expect("still-1");
    screen.expect("\x1b[?2004h");
    input.write_all(b"\x04").unwrap();
    screen.expect("2 turns");
    assert_eq!(child.wait().unwrap().exit_code(), 0);
    drop((input, screen, model));
    std::fs::remove_file(started).unwrap();
}
