//! `--events`: everything that happens, as lines for a program that drives the command.

use std::io::{BufRead as _, BufReader};
use std::process::Command;

use nix::sys::signal::Signal;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use rlm_tests::{Place, wait_until};
use serde_json::{Value, json};

use super::{answering, ask, asking, bash, calling, shown, start, text};

fn lines(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The kinds of the events of a rollout, in their order.
fn kinds<'a>(lines: &'a [Value], rollout: &str) -> Vec<&'a str> {
    let of_rollout = lines.iter().filter(|line| line["rollout"] == rollout);
    of_rollout.map(|line| line["event"].as_str().unwrap()).collect()
}

#[test]
fn lines_are_the_trajectory_and_then_the_result() {
    let (place, model) = start([answering("42")]);
    let output = ask(&place, &model, &["run", "--events", "--trajectory", "t.jsonl", "Why?"]);
    let (out, words, status) = shown(&output);
    assert_eq!((words, status), ("", Some(0)));
    let mut found = lines(out);
    let result = found.pop().unwrap();
    assert_eq!(found, lines(&place.read("t.jsonl")), "the rest is the trajectory");
    assert_eq!(kinds(&found, found[0]["rollout"].as_str().unwrap()).last(), Some(&"rollout_ended"));
    assert_eq!((&result["event"], &result["rollout"]), (&json!("result"), &found[0]["rollout"]));
    let result = &result["result"];
    assert_eq!((&result["answer"], &result["question"]), (&json!("42"), &json!("Why?")));
}

#[test]
fn a_batch_has_events_and_results_also_those_that_it_skips() {
    let place = Place::new();
    place.write("q.jsonl", "{\"question\": \"a?\", \"id\": \"a\"}\n{\"question\": \"b?\", \"id\": \"b\"}\n");
    let run = |questions: &str| {
        let model = ScriptedModel::start([answering("1")]);
        let args = ["run", "--events", "--questions", questions, "--results", "r.jsonl", "--resume"];
        let output = ask(&place, &model, &args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (lines(text(&output.stdout)), model.finish().len())
    };
    place.write("one.jsonl", "{\"question\": \"a?\", \"id\": \"a\"}\n");
    let (found, requests) = run("one.jsonl");
    assert_eq!((kinds(&found, "a-1").last(), requests), (Some(&"result"), 1));
    let (found, requests) = run("q.jsonl");
    assert_eq!((kinds(&found, "a-1"), requests), (vec!["result"], 1));
    assert_eq!(found[0]["result"]["answer"], "1");
    assert_eq!(
        (kinds(&found, "b-1").first(), kinds(&found, "b-1").last()),
        (Some(&"rollout_started"), Some(&"result"))
    );
    // Without a file, results are events alone.
    let model = ScriptedModel::start([answering("1")]);
    let output = ask(&place, &model, &["run", "--events", "--questions", "q.jsonl"]);
    let found = lines(text(&output.stdout));
    assert_eq!(found.iter().filter(|line| line["event"] == "result").count(), 2);
    assert!(found.iter().all(|line| line["rollout"].is_string()));
}

#[test]
fn what_a_server_adds_to_a_reply_is_in_the_trajectory() {
    let message = calling("call_bash_repl", "RLM_CONTENT=$(llm_batch '[\"sub\"]') RLM_READY=1");
    let body = |message: Value, token: u32| {
        json!({
            "id": "x", "object": "chat.completion", "prompt_token_ids": [1, 2], "prompt_logprobs": null,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "token_ids": [token],
                         "logprobs": {"content": []}, "stop_reason": null}],
            "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3},
        })
        .to_string()
    };
    let (place, model) = start([
        Rule::on("sub").body(body(json!({"role": "assistant", "content": "one"}), 7)).once(),
        Rule::any().body(body(message, 3)),
    ]);
    let output = ask(&place, &model, &["run", "--events", "Why?"]);
    let found = lines(text(&output.stdout));
    let extra = |event: &str| found.iter().find(|line| line["event"] == event).unwrap()["extra"].clone();
    let expected =
        |token| json!({"token_ids": [token], "logprobs": {"content": []}, "prompt_token_ids": [1, 2]});
    assert_eq!(extra("model_call"), expected(3));
    assert_eq!(extra("sub_call"), expected(7));
    // A server that adds nothing.
    let model = ScriptedModel::start([answering("1")]);
    let output = ask(&place, &model, &["run", "--events", "Why?"]);
    let found = lines(text(&output.stdout));
    assert_eq!(found.iter().find(|line| line["event"] == "model_call").unwrap()["extra"], Value::Null);
}

#[test]
fn without_a_reader_or_its_host_the_command_ends_in_the_middle_of_a_call() {
    let place = Place::new();
    let started = place.file("started");
    for dies in ["host", "reader"] {
        let model = ScriptedModel::start([bash(&format!(": >{}; sleep 1000", started.display()))]);
        let mut host = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut command = asking(&place, &model, &["run", "--events", "Why?"]);
        let mut child = command.env("RLM_HOST_PID", host.id().to_string()).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        reader.read_line(&mut String::new()).unwrap();
        wait_until("the code runs", || started.exists());
        match dies {
            "host" => host.kill().unwrap(),
            _ => drop(reader),
        }
        assert_eq!(child.wait().unwrap().code(), Some(3), "{dies}");
        // Killing a host that is already dead has no effect.
        host.kill().unwrap();
        host.wait().unwrap();
        std::fs::remove_file(&started).unwrap();
    }
}

#[test]
fn a_reader_that_does_not_read_keeps_no_rollout_and_no_signal() {
    let place = Place::new();
    let ended = place.file("t.jsonl");
    let model =
        ScriptedModel::start([bash("head -c 300000 /dev/zero | tr '\\0' x; RLM_CONTENT=1 RLM_READY=1")]);
    let mut child =
        asking(&place, &model, &["run", "--events", "--trajectory", "t.jsonl", "Why?"]).spawn().unwrap();
    let unread = child.stdout.take().unwrap();
    let is_over = || std::fs::read_to_string(&ended).is_ok_and(|text| text.contains("\"rollout_ended\""));
    wait_until("the rollout has ended", is_over);
    rlm_tests::signal(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    drop(unread);
}

#[test]
fn the_model_may_be_on_a_socket() {
    let place = Place::new();
    let url = "http+unix://%2Fnowhere%2Fmodel.sock/v1";
    let server = ["run", "--events", "--model", "m", "--base-url", url];
    let args = [&server[..], &["--timeout", "1", "--context", "", "Why?"]].concat();
    let output = place.rlm(&args).output().unwrap();
    let found = lines(text(&output.stdout));
    let error = found.last().unwrap()["result"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("No such file or directory"), "{error}");
}
