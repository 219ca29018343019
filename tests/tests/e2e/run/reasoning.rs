//! Reasoning, and what signs or encrypts it: where it goes, and who can read what is kept of it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::{Value, json};

use super::{ask, asking, calling, shown, start, text};

/// Never in logs and errors.
const SECRET: &str = "c2VjcmV0LXNpZ25hdHVyZQ";

/// A reply that calls the REPL, with reasoning in many forms.
fn reasoning(code: &str) -> Value {
    let mut message = calling("call_bash_repl", code);
    message["content"] = format!("<think>{SECRET}</think>Now.").into();
    message["reasoning_content"] = SECRET.into();
    message["reasoning_details"] = json!([{"type": "reasoning.encrypted", "data": SECRET}]);
    message["thinking_blocks"] = json!([{"type": "thinking", "thinking": "hm", "signature": SECRET}]);
    message["tool_calls"][0]["extra_content"] = json!({"google": {"thought_signature": SECRET}});
    message
}

fn entries(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn what_a_run_writes_is_for_its_owner_alone() {
    let (place, model) = start([Rule::any().message(reasoning("RLM_CONTENT=42 RLM_READY=1"))]);
    let args = ["run", "--trajectory", "t.jsonl", "--keep", "new/kept", "--id", "one", "Why?"];
    for args in [&args[..], &["run", "--results", "r.jsonl", "Why?"]] {
        let output = ask(&place, &model, args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let runs = place.path("home").join(".local/state/rlm/runs");
    for file in ["t.jsonl", "r.jsonl", "new/kept/one/rlm_messages.jsonl"].map(|name| place.file(name)) {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    for name in ["one.jsonl", "one.json"] {
        assert_eq!(mode(&runs.join(name)), 0o600, "{name}");
    }
    for dir in ["new", "new/kept", "new/kept/one"].map(|name| place.file(name)).iter().chain([&runs]) {
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
    }
    // A reader who has been let in stays so.
    std::fs::set_permissions(place.file("t.jsonl"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let output = ask(&place, &model, &["run", "--trajectory", "t.jsonl", "Why?"]);
    assert_eq!((output.status.code(), mode(&place.file("t.jsonl"))), (Some(0), 0o640));
}

#[test]
fn reasoning_goes_back_to_the_server_and_is_kept_only_where_it_may_be() {
    let place = Place::new();
    for keeps in ["true", "false"] {
        let model = ScriptedModel::start([
            Rule::any().message(reasoning(":")).once(),
            Rule::any().message(reasoning("RLM_CONTENT=$(llm_batch one) RLM_READY=1")).once(),
            Rule::any().message(json!({"role": "assistant", "content": "42", "reasoning": SECRET})).once(),
        ]);
        let (file, keep) = (format!("{keeps}.jsonl"), format!("kept-{keeps}"));
        let args =
            ["run", "--keep-reasoning", keeps, "--trajectory", &file, "--keep", &keep, "--id", "one", "Why?"];
        let output = ask(&place, &model, &args);
        assert_eq!(shown(&output).0, "42\n", "{output:?}");
        let requests = model.finish();
        let back = &requests[1].body["messages"][2];
        assert_eq!(back["reasoning_content"], SECRET);
        assert_eq!(back["tool_calls"][0]["extra_content"]["google"]["thought_signature"], SECRET);
        let (trajectory, kept) = (place.read(&file), place.read(&format!("{keep}/one/rlm_messages.jsonl")));
        let record = place.path("home").join(".local/state/rlm/runs/one.jsonl");
        let record = std::fs::read_to_string(record).unwrap();
        for written in [&trajectory, &kept, &record] {
            assert_eq!(written.contains(SECRET), keeps == "true", "{written}");
        }
        let all = entries(&trajectory);
        let of = |event: &str| all.iter().find(|entry| entry["event"] == event).unwrap();
        let reply = all.iter().find(|entry| entry["kind"] == "reply").unwrap();
        if keeps == "true" {
            assert!(!trajectory.contains("\"left_out\""));
            continue;
        }
        assert_eq!(reply["message"]["content"], "Now.");
        let expected = [
            "content",
            "reasoning_content",
            "reasoning_details",
            "thinking_blocks",
            "tool_calls.extra_content",
        ];
        assert_eq!(reply["left_out"], json!(expected));
        assert_eq!(of("sub_call")["left_out"], json!(["reasoning"]));
        assert_eq!(entries(&kept)[2]["left_out"], json!(expected));
    }
    let model = ScriptedModel::start([]);
    let args = ["run", "--keep-reasoning", "false", "--token-ids", "true", "Why?"];
    let output = ask(&place, &model, &args);
    let expected = "rlm: token_ids (--token-ids): the tokens of a reply tell its reasoning, which keep_reasoning \
                    (--keep-reasoning) leaves out: set one of the two\n";
    assert_eq!(shown(&output), ("", expected, Some(2)));
}

#[test]
fn errors_that_quote_the_request_show_no_signature() {
    let place = Place::new();
    let reply = reasoning(":");
    let signed = json!({"thinking_blocks": reply["thinking_blocks"], "reasoning_details": reply["reasoning_details"],
        "tool_calls": reply["tool_calls"]});
    let model = ScriptedModel::start([
        Rule::any().message(reply).once(),
        Rule::any().status(400, &format!("cannot parse {signed}")),
    ]);
    let mut command = asking(&place, &model, &["run", "--trajectory", "t.jsonl", "Why?"]);
    let output = command.env("RUST_LOG", "trace").env("RLM_LOG", "trace").output().unwrap();
    let (_, errors, status) = shown(&output);
    assert_eq!(status, Some(3), "{output:?}");
    assert!(errors.contains("cannot parse") && errors.contains("[signature]"), "{errors}");
    assert!(!errors.contains(SECRET) && !text(&output.stdout).contains(SECRET), "{errors}");
    let ended = entries(&place.read("t.jsonl")).pop().unwrap();
    assert!(ended["error"].as_str().unwrap().contains("[signature]"), "{ended}");
}
