//! Scores of a batch: comparisons, programs, accuracy, pass@k.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use rlm_tests::scripted_model::{Rule, ScriptedModel};
use rlm_tests::{Place, wait_until};
use serde_json::{Value, json};

use super::{answering, ask, bash, start, text};

/// Runs a batch of `q.jsonl` whose results go to `r.jsonl`: the exit status, and what it says.
fn run(place: &Place, model: &ScriptedModel, more: &[&str]) -> (Option<i32>, String) {
    let args = ["run", "--questions", "q.jsonl", "--results", "r.jsonl"];
    let output = ask(place, model, &[&args[..], more].concat());
    (output.status.code(), text(&output.stderr).to_owned())
}

/// Score and reason of each result.
fn scores(place: &Place) -> BTreeMap<String, (Option<Value>, String)> {
    let lines = place.read("r.jsonl");
    let results = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let score = |result: Value| {
        let reason = result["score_error"].as_str().unwrap_or_default().to_owned();
        (result["id"].as_str().unwrap().to_owned(), (result.get("score").cloned(), reason))
    };
    results.map(score).collect()
}

/// A program in the working directory that scores.
fn scorer(place: &Place, code: &str) {
    place.write("scorer", &format!("#!/bin/bash\n{code}\n"));
    std::fs::set_permissions(place.file("scorer"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn expected_answers_are_scored_and_never_reach_the_model() {
    let place = Place::new();
    place.write(
        "q.jsonl",
        "{\"question\": \"capital?\", \"id\": \"a\", \"expected\": [\"SECRET-X\", \"new  YORK\"], \"metadata\": \"SECRET-Y\"}\n\
         {\"question\": \"stuck?\", \"id\": \"b\", \"expected\": \"SECRET-Z\"}\n\
         {\"question\": \"free?\", \"id\": \"c\"}\n",
    );
    let looks = "set; grep -r SECRET- . \"$RLM_MESSAGES\"; RLM_CONTENT=' New York' RLM_READY=1";
    let model = ScriptedModel::start([
        Rule::on("stuck").reply("no idea"),
        Rule::on("no code").reply("none"),
        bash(looks),
    ]);
    let more = ["--trajectory", "t.jsonl", "--keep", "kept", "--score", "exact"];
    let (status, words) = run(&place, &model, &more);
    assert_eq!(status, Some(1), "{words}");
    assert!(words.contains("\nrlm: accuracy 0.500 of 2 scores\n"), "{words}");
    let expected = [("a-1", Some(json!(1.0))), ("b-1", Some(json!(0.0))), ("c-1", None)];
    assert_eq!(scores(&place), expected.map(|(id, score)| (id.to_owned(), (score, String::new()))).into());
    let results = place.read("r.jsonl");
    assert!(results.contains("\"expected\":[\"SECRET-X\",\"new  YORK\"]"), "{results}");
    for request in model.finish() {
        let seen = request.body.to_string();
        assert!(!["SECRET-X", "SECRET-Y", "SECRET-Z"].iter().any(|secret| seen.contains(secret)), "{seen}");
    }
    let mut dirs = vec![place.file("kept")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.is_file() {
                let held = std::fs::read_to_string(&path).unwrap();
                assert!(!held.contains("SECRET-X"), "{}", path.display());
            }
        }
    }
    let mut scored: Vec<Value> = place
        .read("t.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|entry| entry["event"] == "rollout_scored")
        .map(|entry| json!([entry["rollout"], entry["score"], entry["error"]]))
        .collect();
    scored.sort_by_key(|entry| entry[0].to_string());
    assert_eq!(scored, [json!(["a-1", 1.0, null]), json!(["b-1", 0.0, null])]);
    for secret in ["SECRET-X", "SECRET-Y", "SECRET-Z"] {
        assert!(!place.read("t.jsonl").contains(secret));
    }
}

#[test]
fn without_a_flag_only_questions_with_an_expected_answer_are_scored() {
    let (place, model) = start([answering("7")]);
    place.write("q.jsonl", "{\"question\": \"a?\", \"expected\": 7}\n{\"question\": \"b?\"}\n");
    let (status, words) = run(&place, &model, &[]);
    assert_eq!(status, Some(0), "{words}");
    let expected = [("1-1", Some(json!(1.0))), ("2-1", None)];
    assert_eq!(scores(&place), expected.map(|(id, score)| (id.to_owned(), (score, String::new()))).into());

    place.write("q.jsonl", "{\"question\": \"b?\"}\n");
    let (status, words) = run(&place, &model, &["--score", "contains"]);
    let why = "rlm: --score: no question has `expected`: add it to the questions, or give --score command:PROGRAM\n";
    assert_eq!((status, words.as_str()), (Some(2), why));
}

#[test]
fn accuracy_and_pass_at_k_are_of_the_whole_batch() {
    let place = Place::new();
    place.write(
        "q.jsonl",
        "{\"question\": \"a?\", \"expected\": 1200}\n{\"question\": \"b?\", \"expected\": 3}\n",
    );
    // One attempt in four is right, of the first question only.
    let right = Rule::on("a?").calls("call_bash_repl", "RLM_CONTENT='about 1,200.0 EUR' RLM_READY=1");
    let model = ScriptedModel::start([right.once(), answering("5")]);
    let more = ["--attempts", "4", "--jobs", "1", "--score", "number"];
    let (status, words) = run(&place, &model, &more);
    assert_eq!(status, Some(0), "{words}");
    let line = "\nrlm: accuracy 0.125 of 8 scores, pass@1 0.125, pass@2 0.250, pass@4 0.500\n";
    assert!(words.contains(line), "{words}");
    // The results from before count.
    let kept: String = place.read("r.jsonl").lines().take(7).map(|line| format!("{line}\n")).collect();
    place.write("r.jsonl", &kept);
    let (status, words) = run(&place, &model, &[&more[..], &["--resume"]].concat());
    assert_eq!(status, Some(0), "{words}");
    assert!((words + "\n").contains(line), "the result is scored as before");
}

#[test]
fn a_program_scores_and_its_failures_end_nothing_but_the_score() {
    let (place, model) = start([answering("'an answer'")]);
    let questions = ["yes", "no", "half", "fails", "raises", "much", "deaf"];
    let lines = questions
        .map(|id| format!("{}\n", json!({"question": format!("{id}?"), "id": id, "metadata": {"n": 1}})));
    place.write("q.jsonl", &lines.concat());
    scorer(
        &place,
        "sleep 1000 & echo $! >> pids\n\
         case $(tee -a seen) in\n\
         *'\"id\":\"yes-1\"'*) exit 0;;\n\
         *'\"id\":\"no-1\"'*) exit 1;;\n\
         *'\"id\":\"half-1\"'*) echo ' 0.5';;\n\
         *'\"id\":\"fails-1\"'*) echo 'went wrong' >&2; exit 3;;\n\
         *'\"id\":\"raises-1\"'*) echo 'Error: x' >&2; exit 1;;\n\
         *'\"id\":\"much-1\"'*) echo 7;;\n\
         *) kill -9 $$;;\n\
         esac",
    );
    let (status, words) = run(&place, &model, &["--jobs", "1", "--score", "command:./scorer"]);
    assert_eq!(status, Some(0), "{words}");
    assert!(words.contains("\nrlm: accuracy 0.500 of 3 scores, 4 results could not be scored\n"), "{words}");
    let null = Some(Value::Null);
    let expected = [
        ("yes-1", Some(json!(1.0)), ""),
        ("no-1", Some(json!(0.0)), ""),
        ("half-1", Some(json!(0.5)), ""),
        ("fails-1", null.clone(), "the program failed: exit status: 3: went wrong"),
        ("raises-1", null.clone(), "the program failed: exit status: 1: Error: x"),
        ("much-1", null.clone(), "the program printed \"7\", expected a number from 0 to 1"),
        ("deaf-1", null, "the program failed: signal: 9 (SIGKILL)"),
    ];
    let expected = expected.map(|(id, score, reason)| (id.to_owned(), (score, reason.to_owned())));
    assert_eq!(scores(&place), expected.into());
    let first = "{\"id\":\"yes-1\",\"question\":\"yes?\",\"answer\":\"an answer\",\"expected\":null,\"metadata\":{\"n\":1}}";
    assert!(place.read("seen").starts_with(first), "{}", place.read("seen"));
    // What the program started has ended with it.
    for pid in place.read("pids").lines() {
        let process = std::path::Path::new("/proc").join(pid);
        wait_until("the process has ended", || {
            std::fs::read_to_string(process.join("cmdline")).map_or(true, |line| !line.starts_with("sleep\0"))
        });
    }
}
