//! `--answer-schema`, and answers that are empty.

use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::json;

use super::{answering, ask, bash, shown, start, text};

const SCHEMA: &str = r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}"#;

#[test]
fn an_answer_that_does_not_fit_is_given_back() {
    let (place, model) = start([
        Rule::on("/n: \"x\" is not of type \"integer\"")
            .calls("call_bash_repl", "RLM_CONTENT='{\"n\": 3}'; RLM_READY=1"),
        bash("RLM_CONTENT='{\"n\": \"x\"}'; RLM_READY=1"),
    ]);
    place.write("answer.json", SCHEMA);
    let args = ["run", "--answer-schema", "answer.json", "How many?"];
    let output = ask(&place, &model, &args);
    assert_eq!(shown(&output), ("{\"n\": 3}\n", "", Some(0)));
    let requests = model.finish();
    assert_eq!(requests.len(), 2);
    assert!(requests[0].body["messages"][0]["content"].as_str().unwrap().contains("\"required\": [\n"));

    let model = ScriptedModel::start([bash("RLM_CONTENT=no RLM_READY=1")]);
    let output = ask(&place, &model, &[&args[..], &["--max-turns", "3", "--json"]].concat());
    let (line, words, status) = shown(&output);
    assert_eq!(status, Some(1), "{words}");
    assert!(
        line.contains("\"answer\":\"no\",\"answer_ready\":false,\"stop_reason\":\"max_turns\""),
        "{line}"
    );
    assert_eq!(model.finish().len(), 3);
}

#[test]
fn a_schema_that_cannot_be_used_is_refused_by_its_file() {
    let (place, model) = start([]);
    place.write("broken.json", "{");
    place.write("wrong.json", "{\"type\": \"objekt\"}");
    nix::unistd::mkfifo(&place.file("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (file, message) in [
        ("fifo", "fifo: the answer's schema is not in a regular file"),
        ("none.json", "the answer's schema cannot be read from none.json: No such file"),
        ("broken.json", "broken.json: it is not JSON: EOF"),
        ("wrong.json", "wrong.json: it is not a valid JSON schema: "),
    ] {
        let output = ask(&place, &model, &["run", "--answer-schema", file, "Why?"]);
        let (_, words, status) = shown(&output);
        assert_eq!(status, Some(2), "{words}");
        assert!(words.starts_with(&format!("rlm: {message}")), "{words}");
    }
}

#[test]
fn an_empty_answer_is_given_back_once() {
    let place = Place::new();
    for (second, answer) in [("RLM_CONTENT=7; RLM_READY=1", "7\n"), ("RLM_READY=1", "\n")] {
        let again = super::calling("call_bash_repl", second);
        let model =
            ScriptedModel::start([Rule::on("The answer is empty").message(again), bash("RLM_READY=1")]);
        let output = ask(&place, &model, &["run", "Why?"]);
        assert_eq!((text(&output.stdout), output.status.code()), (answer, Some(0)));
        assert_eq!(model.finish().len(), 2);
    }
}

#[test]
fn a_schema_that_cannot_be_checked_in_time_holds_up_nothing() {
    let place = Place::new();
    let mut places = json!({"a0": {"type": "integer"}});
    for number in 1..36 {
        let before = json!({"$ref": format!("#/$defs/a{}", number - 1)});
        places[format!("a{number}")] = json!({"anyOf": [{"allOf": [before, {"type": "string"}]}, before]});
    }
    place.write("answer.json", &json!({"$defs": places, "$ref": "#/$defs/a35"}).to_string());
    let model = ScriptedModel::start([answering("3").times(2)]);
    let args = ["run", "--answer-schema", "answer.json", "--max-turns", "2", "--timeout", "60", "How many?"];
    let output = ask(&place, &model, &args);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let requests = model.finish();
    let last =
        requests[1].body["messages"].as_array().unwrap().iter().map(ToString::to_string).collect::<String>();
    assert!(last.contains("it could not be checked within 5 s"), "{last}");
}
