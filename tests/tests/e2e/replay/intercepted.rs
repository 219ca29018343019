//! Sessions in which the host ran code that differs from the code as written.

use rlm_core::protocol::Outcome;
use rlm_tests::{Place, Setup, Worker, program};
use serde_json::json;

use super::{ask, command, keep, replays_alike, run, script_of, seen, session, shown, worker};

/// Sets the values of the calls, and runs the code that has names in their place.
fn intercepted(
    worker: &mut Worker,
    seq: i64,
    values: serde_json::Value,
    code: &str,
    source: &str,
) -> rlm_core::protocol::Response {
    let names: Vec<String> = values.as_object().unwrap().keys().cloned().collect();
    assert_eq!(ask(worker, seq, json!({"op": "set", "variables": values})).outcome, Outcome::Ok);
    assert!(names.iter().all(|name| code.contains(name)));
    worker.call_with(code, json!({"source": source}))
}

#[test]
fn they_are_replayed_and_extracted_with_the_values_of_their_calls() {
    let place = Place::new();
    for (language, calls) in [
        (
            "python",
            [
                ("info = __rlm_icpt_0a1b2c3d_1\nprint(info['é'])", "info = nav_info()\nprint(info['é'])"),
                (
                    "info = __rlm_icpt_0a1b2c3d_2; 1 / info['zero']",
                    "info = nav_info(1, '2'); 1 / info['zero']",
                ),
                (
                    "x = __rlm_icpt_0a1b2c3d_3; answer['content'] = str(x)\nx",
                    "x = nav_info(\n); answer['content'] = str(x)\nx",
                ),
            ],
        ),
        (
            "bash",
            [
                ("info=$__rlm_icpt_0a1b2c3d_1\necho \"$info\"", "info=$(nav_info)\necho \"$info\""),
                ("info=$__rlm_icpt_0a1b2c3d_2; (exit 3)", "info=$(nav_info 1 '2'); (exit 3)"),
                ("x=$__rlm_icpt_0a1b2c3d_3; RLM_CONTENT=$x", "x=$(nav_info\n); RLM_CONTENT=$x"),
            ],
        ),
    ] {
        let mut worker = worker(language);
        let values = match language {
            "python" => [json!({"é": "it's\n$5"}), json!({"zero": 0}), json!([1.0, null])],
            _ => [json!("it's\n$5"), json!(0), json!("last")],
        };
        let mut responses = Vec::new();
        for (number, (value, (code, source))) in (1..).zip(values.into_iter().zip(calls)) {
            let values = json!({format!("__rlm_icpt_0a1b2c3d_{number}"): value});
            responses.push(intercepted(&mut worker, 900 + number, values, code, source));
        }
        let kept = keep(&place, &worker);
        worker.end();
        replays_alike(&place, &kept, &[], 6);
        let script = script_of(&place, &kept, &[]);
        assert_eq!(shown(&run(&place, &script)), (seen(&responses).as_str(), "", Some(0)), "{script}");
        for (at, (code, source)) in calls.into_iter().enumerate() {
            for line in source.lines() {
                assert!(script.contains(&format!("# {line}\n")), "{line:?} is not in {script}");
            }
            let is_left_out = language == "python" && at == 1;
            let first = code.lines().next().unwrap();
            assert_eq!(script.contains(first), !is_left_out, "{code:?}: {script}");
        }
    }
}

#[test]
fn functions_that_set_the_answer_are_restored() {
    let place = Place::new();
    let calls = [
        "def f(x):\n    own = [x]\n    FINAL_VAR('own')\nf(1); print(answer)",
        "del answer; FINAL(2.50); print(answer)",
        "answer['ready'] = False; FINAL_VAR(' \"answer\" '); print(answer)",
        "FINAL_VAR('missing')",
        "total = 'last'; FINAL_VAR('total')",
    ];
    let setup = Setup::python().env("RLM_FINAL_FUNCTIONS", "1");
    let (kept, responses) = session(&place, setup, &[], &calls);
    assert_eq!(responses[4].answer.content, "last");
    replays_alike(&place, &kept, &[], 5);
    let script = script_of(&place, &kept, &[]);
    assert_eq!(shown(&run(&place, &script)), (seen(&responses).as_str(), "", Some(0)), "{script}");
    // A session without them is replayed without them, whatever the host's variables say.
    let (kept, responses) =
        session(&place, Setup::python(), &[], &["FINAL(1)", "FINAL = print; FINAL('own')"]);
    assert_eq!(responses[0].outcome, Outcome::Error);
    let mut command = command(&place, &program("rlm"));
    let replayed = command.env("RLM_FINAL_FUNCTIONS", "1").arg("replay").arg(&kept).output().unwrap();
    assert_eq!(shown(&replayed), ("equal: 2 calls\n", "", Some(0)));
}

#[test]
fn the_history_has_the_code_that_ran_and_its_source() {
    for (language, code, source) in
        [("python", "x = __rlm_icpt_1", "x = f()"), ("bash", "x=$__rlm_icpt_1", "x=$(f)")]
    {
        let mut worker = worker(language);
        intercepted(&mut worker, 900, json!({"__rlm_icpt_1": 1}), code, source);
        worker.call_with("", json!({"source": null}));
        let history = std::fs::read_to_string(worker.control.history_file()).unwrap();
        let lines: Vec<serde_json::Value> =
            history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["variables"], json!({"__rlm_icpt_1": 1}));
        assert_eq!((&lines[1]["code"], &lines[1]["source"]), (&json!(code), &json!(source)));
        assert_eq!((lines[0].get("source"), lines[2].get("source")), (None, None));
        worker.end();
    }
}
