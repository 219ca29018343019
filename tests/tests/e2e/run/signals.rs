//! Interrupts and other signals.

use std::process::Child;

use nix::sys::signal::Signal;
use rlm_env::StopReason;
use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};
use rlm_tests::{Place, signal};

use super::{answering, ask, asking, bash, results, text};

/// Starts the command, and waits until its rollout runs code.
fn start_and_wait(place: &Place, model: &ScriptedModel, args: &[&str]) -> Child {
    let child = asking(place, model, args).spawn().unwrap();
    rlm_tests::wait_until("the code runs", || place.file("started").exists());
    child
}

/// Code that creates a file, and waits for another one.
fn waiting(place: &Place) -> Rule {
    let (started, go) = (place.file("started"), place.file("go"));
    let code = format!(
        "RLM_CONTENT=partial\n: >{}; until [ -e {} ]; do read -t 0.01 < <(sleep 9); done",
        started.display(),
        go.display()
    );
    bash(&code)
}

#[test]
fn a_first_interrupt_ends_after_the_call_and_gives_the_answer_so_far() {
    let place = Place::new();
    let model = ScriptedModel::start([waiting(&place)]);
    let mut child = start_and_wait(&place, &model, &["run", "Why?"]);
    signal(&child, Signal::SIGINT);
    let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut words = String::new();
    std::io::BufRead::read_line(&mut errors, &mut words).unwrap();
    assert_eq!(words, "rlm: stopping after the running call; Ctrl-C again ends at once\n");
    place.write("go", "");
    std::io::Read::read_to_string(&mut errors, &mut words).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        words.ends_with("rlm: no final answer: it was stopped; the answer so far is printed\n"),
        "{words}"
    );
    assert_eq!((text(&output.stdout), output.status.code()), ("partial\n", Some(1)));
    assert_eq!(model.finish().len(), 1);
}

#[test]
fn signals_end_the_rollout_at_once_and_leave_nothing() {
    for (signals, status) in [
        (&[Signal::SIGTERM][..], 143),
        (&[Signal::SIGHUP], 129),
        (&[Signal::SIGQUIT], 131),
        (&[Signal::SIGINT, Signal::SIGINT], 130),
    ] {
        let place = Place::new();
        let model = ScriptedModel::start([waiting(&place)]);
        let mut child = start_and_wait(&place, &model, &["run", "Why?"]);
        let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
        for (at, each) in signals.iter().enumerate() {
            signal(&child, *each);
            if at + 1 < signals.len() {
                std::io::BufRead::read_line(&mut errors, &mut String::new()).unwrap();
            }
        }
        assert_eq!(child.wait().unwrap().code(), Some(status), "{signals:?}");
    }
}

#[test]
fn a_request_that_a_signal_ends_is_in_the_trajectory_with_its_cost() {
    let place = Place::new();
    let model = ScriptedModel::start([Rule::any().after(&Gate::shut())]);
    let child = asking(&place, &model, &["run", "--trajectory", "t.jsonl", "Why?"]).spawn().unwrap();
    rlm_tests::wait_until("the request comes", || !model.requests().is_empty());
    signal(&child, Signal::SIGTERM);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(143));
    let trajectory = place.read("t.jsonl");
    let lines = trajectory.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let calls: Vec<_> = lines.filter(|line| line["event"] == "model_call").collect();
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((&call["error"], &call["usage_estimated"]), (&"cancelled".into(), &true.into()), "{call}");
    assert!(call["prompt_tokens"].as_u64() > Some(100), "{call}");
}

#[test]
fn an_interrupted_batch_can_be_resumed() {
    let place = Place::new();
    place.write("q.jsonl", "{\"question\": \"one?\"}\n{\"question\": \"two?\"}\n");
    let args = ["run", "--questions", "q.jsonl", "--jobs", "1", "--results", "r.jsonl"];
    let model = ScriptedModel::start([waiting(&place)]);
    let child = start_and_wait(&place, &model, &args);
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143));
    let words = text(&output.stderr);
    assert!(words.contains("rlm: 1 rollout: 0 answered, 1 cancelled, 1 not started\n"), "{words}");
    assert_eq!(results(&place.read("r.jsonl"))["1-1"].0, StopReason::Cancelled);

    let model = ScriptedModel::start([answering("yes")]);
    let output = ask(&place, &model, &[&args[..], &["--resume"]].concat());
    let words = text(&output.stderr);
    assert!(words.starts_with("rlm: 1 result is removed from r.jsonl, and run again\n"), "{words}");
    assert_eq!(output.status.code(), Some(0), "{words}");
    let answered =
        |id: &str| results(&place.read("r.jsonl"))[id] == (StopReason::Answered, Some("yes".to_owned()));
    assert!(answered("1-1") && answered("2-1"));
}
