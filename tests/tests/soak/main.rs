//! A short soak in every run of the tests, and proof that the soak itself can find and shrink a defect.
//!
//! The long ones are runs of the program: `cargo run --release -p rlm-tests --bin soak -- --help`.

use std::time::Duration;

use rlm_tests::soak::{
    Bounds, Class, Disturbance, Effect, End, Frame, Language, Means, Plan, Reading, Request, Step, lines,
    parse, shrink,
};
use rlm_tests::{PATIENCE, default_python};
use serde_json::json;

fn means() -> Means {
    Means { python: default_python(), patience: PATIENCE }
}

fn plan(language: Language) -> Plan {
    Plan {
        calls: 0,
        seed: 30,
        // A test of every run must not depend on the moment of a signal.
        disturbs: false,
        saves: 3,
        languages: vec![language],
        jobs: 2,
        rollouts: 0,
        means: means(),
        bounds: Bounds { runs: 20, trials: 3, ..Bounds::default() },
    }
}

/// Runs a plan, and checks that no promise was broken.
fn run(plan: &Plan) {
    let report = plan.run(|_| {});
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}\n{report}", findings.join("\n"));
    assert!(report.calls >= plan.calls && report.rollouts == plan.rollouts, "{report}");
}

#[test]
fn bash_sessions_of_random_code_keep_every_promise() {
    run(&Plan { calls: 1200, ..plan(Language::Bash) });
}

#[test]
fn python_sessions_of_random_code_keep_every_promise() {
    run(&Plan { calls: 1200, ..plan(Language::Python) });
}

#[test]
fn saved_bash_sessions_of_random_code_go_on_with_all_that_is_promised() {
    run(&Plan { calls: 240, saves: 30, ..plan(Language::Bash) });
}

#[test]
fn saved_python_sessions_of_random_code_go_on_with_all_that_is_promised() {
    run(&Plan { calls: 240, saves: 30, ..plan(Language::Python) });
}

#[test]
fn rollouts_of_random_replies_end_as_they_must() {
    run(&Plan { rollouts: 12, languages: vec![Language::Bash, Language::Python], ..plan(Language::Bash) });
}

/// A call that takes what the model expects of it, instead of what the code does.
fn call(kind: &str, code: &str, effects: Vec<Effect>) -> Step {
    Step {
        effects,
        ..serde_json::from_value(json!({
            "kind": kind,
            "request": {"Document": {"code": code}},
            "endings": [{"outcome": "ok", "state": "kept"}],
        }))
        .unwrap()
    }
}

fn frame() -> Frame {
    Frame { language: Language::Bash, end: End::Term, seed: 1 }
}

/// Calls without a defect, among which one is planted.
fn harmless(number: usize) -> Vec<Step> {
    let step = |at: usize| {
        let effects = vec![Effect::Set("v2".to_owned(), at.to_string()), Effect::Show("v2".to_owned())];
        let step = call("harmless", &format!("v2={at}; echo $v2"), effects);
        Step { reading: if at.is_multiple_of(2) { Reading::Early } else { Reading::Forked }, ..step }
    };
    (0..number).map(step).collect()
}

#[test]
fn a_planted_loss_is_found_and_shrunk_to_the_two_calls_that_show_it() {
    let mut steps = harmless(20);
    // The model takes the call for an assignment in the shell itself.
    steps.insert(3, call("planted", "(v1=lost)", vec![Effect::Set("v1".to_owned(), "lost".to_owned())]));
    steps.insert(17, call("show", "echo ${v1-gone}", vec![Effect::Show("v1".to_owned())]));
    let run = means().replay(&frame(), &steps);
    let defect = run.defect.unwrap();
    assert_eq!((defect.class, run.steps.len()), (Class::SilentLoss, 18), "{defect}");
    let bounds = Bounds { time: 10 * PATIENCE, ..Bounds::default() };
    let shortest = shrink(&means(), &frame(), &run.steps, defect.class, bounds);
    let kinds: Vec<&str> = shortest.steps.iter().map(|step| step.kind.as_str()).collect();
    assert_eq!((kinds, shortest.failures), (vec!["planted", "show"], (10, 10)));
    // The report has everything that a replay needs.
    let (frame, steps) = parse(&lines(&frame(), &shortest.steps)).unwrap();
    assert_eq!(steps, shortest.steps);
    assert_eq!(means().replay(&frame, &steps).defect.unwrap().class, Class::SilentLoss);
}

#[test]
fn every_class_of_planted_defect_in_a_call_is_told_from_the_others() {
    let ended = |outcome: &str, state: &str| {
        serde_json::from_value(json!([{"outcome": outcome, "state": state}])).unwrap()
    };
    let set = Effect::Set("v1".to_owned(), "x".to_owned());
    let cases = [
        (Class::WrongOutput, call("", "echo a", vec![Effect::Print("b\n".to_owned())])),
        (Class::WrongAnswer, call("", "RLM_CONTENT=a", vec![Effect::Content("b".to_owned())])),
        (Class::WrongEnding, Step { endings: ended("timed_out", "kept"), ..call("", ":", vec![]) }),
        (
            Class::BrokenPromise,
            Step { endings: ended("exited", "restored"), ..call("", "kill -9 $$", vec![]) },
        ),
        (Class::BrokenPromise, call("", "v1=x; exec true", vec![set])),
        (Class::Damaged, Step { request: Request::Bytes("hello".to_owned(), 5), ..call("", "", vec![]) }),
        (Class::WorkerDied, call("", "kill -9 $PPID; sleep 600", vec![])),
    ];
    for (class, step) in cases {
        let defect = means().replay(&frame(), std::slice::from_ref(&step)).defect.unwrap();
        assert_eq!(defect.class, class, "{step:?}: {defect}");
    }
}

#[test]
fn a_call_without_a_response_in_time_is_a_wedge() {
    let steps = [call("wedge", "sleep 600", vec![])];
    let hasty = Means { patience: Duration::from_millis(300), ..means() };
    for reading in [Reading::Blocking, Reading::Early, Reading::Late, Reading::Forked] {
        let steps = steps.clone().map(|step| Step { reading, ..step });
        assert_eq!(hasty.replay(&frame(), &steps).defect.unwrap().class, Class::Wedge);
    }
}

#[test]
fn a_disturbance_is_no_defect() {
    let steps = [Disturbance::Interrupt(0), Disturbance::KillBefore(9), Disturbance::Kill(9, 100)]
        .map(|disturbance| Step {
            disturbance: Some(disturbance),
            ..call("disturbed", "sleep 0.01; echo on", vec![])
        })
        .map(|step| Step { is_output_free: true, ..step });
    let defect = means().replay(&frame(), &steps).defect;
    assert_eq!(defect, None);
}
