//! The answer, which is alone on standard output, and the inputs of a rollout.

use std::path::Path;
use std::process::Stdio;

use rlm_env::{RolloutResult, StopReason};
use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::{Value, json};

use super::{answering, ask, asking, bash, shown, start, text};

#[test]
fn the_answer_goes_to_standard_output_and_nothing_else_does() {
    let (place, model) = start([answering("\"$(wc -l <numbers.txt) lines\"")]);
    place.write("numbers.txt", "one\ntwo\n");
    let output = ask(&place, &model, &["run", "--context", "numbers.txt", "How many lines?"]);
    assert_eq!(shown(&output), ("2 lines\n", "", Some(0)));
    let requests = model.finish();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].header("authorization"), "", "there is no key");
}

#[test]
fn python_standard_input_a_key_and_sampling_reach_the_rollout() {
    let code = "answer['content'] = open('context.txt').read().upper()\nanswer['ready'] = True";
    let (place, model) = start([Rule::any().calls("call_python_repl", code)]);
    let mut command = asking(
        &place,
        &model,
        &["run", "--python", "--context", "-", "--sampling", "{\"top_p\": 0.5}", "Shout."],
    );
    let mut child = command.env("OPENAI_API_KEY", "k1").stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"quiet").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(shown(&output), ("QUIET\n", "", Some(0)));
    let requests = model.finish();
    assert_eq!(requests[0].header("authorization"), "Bearer k1");
    assert_eq!((&requests[0].body["model"], &requests[0].body["top_p"]), (&json!("root"), &json!(0.5)));
}

#[test]
fn code_reaches_the_sub_llm_and_tools_from_a_file() {
    let place = Place::new();
    place.write(
        "tools.toml",
        "[[tool]]\nname = \"count\"\ndescription = \"Counts bytes.\"\ncommand = [\"wc\", \"-c\"]\n",
    );
    place.write(
        "prices.toml",
        "[models.root]\nprompt = 1\ncompletion = 1\n[models.small]\nprompt = 1\ncompletion = 1\n",
    );
    let code = "RLM_CONTENT=\"$(llm_batch 'which colour?'), $(count)\" RLM_READY=1";
    let model = ScriptedModel::start([Rule::on("which colour?").reply("blue"), bash(code)]);
    let args = ["run", "--sub-model", "small", "--sub-sampling", "{\"top_p\": 0.5}", "--tools", "tools.toml"];
    let budget = ["--budget-usd", "1", "--prices", "prices.toml", "--json", "Say."];
    let output = ask(&place, &model, &[&args[..], &budget].concat());
    let result: RolloutResult = serde_json::from_slice(&output.stdout).unwrap();
    let answer = result.answer.as_deref().unwrap_or_default();
    assert!(answer.starts_with("blue, ") && answer.len() > "blue, ".len(), "{answer}");
    let metrics = &result.metrics;
    assert_eq!((metrics.sub_llm_call_count, metrics.root_tool_calls["count"]), (1, 1));
    assert!(metrics.cost_usd.is_some_and(|cost| cost > 0.0), "{metrics:?}");
    let requests = model.finish();
    let sub = requests.iter().find(|request| request.body["model"] == "small").unwrap();
    assert_eq!(sub.body["top_p"], 0.5);
    assert_eq!(sub.body["messages"][0]["role"], "system", "the sub-LLM is told what it is");
}

#[test]
fn a_session_does_not_get_to_see_the_key() {
    let (place, model) =
        start([bash("RLM_CONTENT=$(env; cat /proc/[0-9]*/environ 2>&1 | tr '\\0' '\\n')\nRLM_READY=1")]);
    let output =
        asking(&place, &model, &["run", "Which key?"]).env("RLM_API_KEY", "k1-secret").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let seen = text(&output.stdout);
    let (own, all) = seen.split_once("\n_=").expect("`env` ends with its own name");
    assert!(own.contains("HOME=") && !own.contains("k1-secret"), "{own}");
    // Root may read any process.
    assert!(nix::unistd::geteuid().is_root() || !all.contains("k1-secret"), "{all}");
    assert_eq!(model.finish()[0].header("authorization"), "Bearer k1-secret");
}

#[test]
fn the_best_answer_so_far_comes_with_the_reason_on_standard_error() {
    let (place, model) = start([bash("RLM_CONTENT=perhaps")]);
    let output = ask(&place, &model, &["run", "--max-turns", "2", "Why?"]);
    let words = "rlm: no final answer: all turns are used up (--max-turns); the answer so far is printed\n";
    assert_eq!(shown(&output), ("perhaps\n", words, Some(1)));
    assert_eq!(model.finish().len(), 2);
}

#[test]
fn json_is_the_whole_result_on_one_line() {
    let (place, model) = start([answering("'a\nb'")]);
    let output = ask(&place, &model, &["run", "--json", "Why?"]);
    let result: RolloutResult =
        serde_json::from_str(text(&output.stdout).strip_suffix('\n').unwrap()).unwrap();
    assert_eq!((result.answer.as_deref(), result.stop_reason), (Some("a\nb"), StopReason::Answered));
    assert_eq!((result.metrics.root_llm_turns, result.metrics.repl_call_count), (1, 1));
}

#[test]
fn a_trajectory_and_the_directory_are_kept_on_demand() {
    let (place, model) = start([bash(":> made; RLM_CONTENT=done RLM_READY=1")]);
    let args = ["run", "--trajectory", "t.jsonl", "--keep", "kept", "Why?"];
    let output = ask(&place, &model, &args);
    let (answer, words, status) = shown(&output);
    assert_eq!((answer, status), ("done\n", Some(0)), "{words}");
    let dir = words.trim().strip_prefix("rlm: the rollout's directory is ").unwrap();
    assert!(Path::new(dir).starts_with(place.file("kept").canonicalize().unwrap()));
    assert!(Path::new(dir).join("rlm_fs/made").exists(), "{dir}");
    let events: Vec<Value> =
        place.read("t.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.first().unwrap()["event"], "rollout_started");
    assert_eq!(events.last().unwrap()["event"], "rollout_ended");
}
