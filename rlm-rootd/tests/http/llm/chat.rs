//! Chat requests that are passed on.

use std::sync::Arc;
use std::time::Instant;

use rlm_rootd::Recorder;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::json;

use super::{Memory, setup, soon};

#[tokio::test]
async fn a_chat_request_is_forwarded_to_the_model() {
    let recorder = Arc::new(Memory::default());
    let tool_calls = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c0"}]});
    let model = ScriptedModel::start([Rule::any().message(tool_calls.clone())]);
    let sub_llm = setup(&model)
        .with(|it| {
            it.options.sampling.insert("temperature".to_owned(), json!(0.5));
            it.options.sampling.insert("top_p".to_owned(), json!(0.9));
            it.options.system_prompt = Some("Not for the proxy.".to_owned());
            it.options.recorder = Some(Arc::clone(&recorder) as Arc<dyn Recorder>);
        })
        .start();
    let request = json!({
        "model": "huge",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0,
        "stream": false,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "_batch_id": "b1",
        "_request_id": "r1",
    });
    let answer = sub_llm.chat(request, soon()).await.unwrap();
    assert_eq!(answer["choices"][0]["message"], tool_calls);
    assert_eq!(answer["usage"]["total_tokens"], 15);
    let request = model.finish().remove(0);
    assert_eq!(request.header("x-request-id"), "r1");
    assert_eq!(
        request.body,
        json!({
            "model": "small",
            "messages": [{"role": "user", "content": "hi"}],
            "temperature": 0,
            "top_p": 0.9,
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {"name": "f"}}],
        })
    );
    assert_eq!(sub_llm.ledger().snapshot().used.tokens, 15);
    let records = recorder.0.lock().unwrap();
    assert_eq!((records[0].batch_id.as_str(), records[0].request_id.as_str()), ("b1", "r1"));
}

#[tokio::test]
async fn a_chat_request_that_fails_has_a_status() {
    let messages = json!([{"role": "user", "content": "hi"}]);
    // The status and the words of the model's server, and our status.
    let statuses = [(400, "too long", 400), (401, "bad key", 502), (429, "slow down", 429), (500, "oh", 502)];
    let rules = statuses.map(|(status, said, _)| Rule::on(status.to_string()).status(status, said));
    let others = [Rule::on("html").body("<html>"), Rule::on("hang up").hang_up(), Rule::any()];
    let model = ScriptedModel::start(rules.into_iter().chain(others));
    let sub_llm = setup(&model).start();
    let chat = async |prompt: &str| {
        let request = json!({"messages": [{"role": "user", "content": prompt}]});
        let error = sub_llm.chat(request, soon()).await.unwrap_err();
        (error.status(), error.to_string())
    };
    for (status, said, ours) in statuses {
        let expected = (ours, format!("the model's server answered {status}: {said}"));
        assert_eq!(chat(&status.to_string()).await, expected);
    }
    assert_eq!(chat("html").await.0, 502);
    assert_eq!(chat("hang up").await.0, 502);
    for (request, error) in [
        (json!([]), "the request must be a JSON object"),
        (json!({}), "messages are missing"),
        (json!({"messages": "hi"}), "messages must be a list"),
        (json!({"messages": []}), "messages must not be empty"),
        (
            json!({"messages": messages, "stream": true}),
            "stream is not supported: leave it out, or set it to false",
        ),
        (
            json!({"messages": messages, "_request_id": "a b"}),
            "_request_id must be a str of 1 to 128 printable ASCII characters without blanks",
        ),
    ] {
        let refused = sub_llm.chat(request, soon()).await.unwrap_err();
        assert_eq!((refused.status(), refused.to_string().as_str()), (400, error));
    }
    let late = sub_llm.chat(json!({"messages": messages}), Instant::now()).await.unwrap_err();
    assert_eq!(late.status(), 504);
    let sub_llm = setup(&model).with(|it| it.budget.calls = Some(0)).start();
    let poor = sub_llm.chat(json!({"messages": messages}), soon()).await.unwrap_err();
    assert_eq!((poor.status(), poor.to_string().as_str()), (402, "budget exhausted: 0 of 0 calls are left"));
}

#[tokio::test]
async fn the_choices_that_a_chat_request_asks_for_are_all_within_the_budget() {
    let model = ScriptedModel::start([Rule::any()]);
    let sub_llm = setup(&model).with(|it| it.budget.completion_tokens = Some(1000)).start();
    let request = |choices: u64| json!({"messages": [{"content": "hi"}], "max_tokens": 400, "n": choices});
    sub_llm.chat(request(2), soon()).await.unwrap();
    let error = sub_llm.chat(request(3), soon()).await.unwrap_err().to_string();
    assert_eq!(error, "budget exhausted: the call may need 1200 completion tokens, 995 of 1000 are left");
    assert_eq!(model.finish().len(), 1);
}
