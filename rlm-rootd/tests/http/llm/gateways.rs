//! Replies and errors in the forms of gateways and of older servers.

use std::time::Duration;

use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::{Value as Json, json};

use super::{ask_one, setup};

/// A reply of this stream.
fn stream(text: &str) -> Rule {
    Rule::any().body(text).header("content-type", "text/event-stream")
}

/// The events of these pieces.
fn events(pieces: &[Json]) -> String {
    pieces.iter().map(|piece| format!("data: {piece}\n\n")).collect()
}

fn piece(text: &str) -> Json {
    json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

fn last() -> Json {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
}

/// The answer to a prompt, and the number of requests that it took.
async fn answer(rule: Rule) -> (String, usize) {
    let model = ScriptedModel::start([rule]);
    let sub_llm = setup(&model).with(|it| it.config.timeout = Duration::from_millis(200)).start();
    let answer = ask_one(&sub_llm, "p").await;
    (answer, model.finish().len())
}

#[track_caller]
fn check(answered: (String, usize), expected: &str, requests: usize) {
    assert_eq!((answered.0.as_str(), answered.1), (expected, requests));
}

#[tokio::test]
async fn comments_do_not_keep_a_silent_reply_waiting_for_ever() {
    let rule = stream(&": PROCESSING\n\n".repeat(100_000)).slowly(Duration::from_millis(1));
    check(answer(rule).await, "! no answer within 0.4 s", 2);
}

#[tokio::test]
async fn errors_in_a_stream_are_seen_in_each_form() {
    let said = "This model's maximum context length is 8192 tokens";
    let llama = format!(
        "{}error: {{\"code\": 400, \"message\": {said:?}}}\n\ndata: [DONE]\n\n",
        events(&[piece("half")])
    );
    let deepinfra = events(&[
        piece("half"),
        json!({"choices": null, "error_type": "BadRequestError", "error_message": said}),
    ]);
    for text in [llama, deepinfra + "data: [DONE]\n\n"] {
        check(answer(stream(&text)).await, &format!("! the model's server answered 400: {said}"), 1);
    }
    // One without words, beside a choice, is none.
    for empty in [json!({"message": "", "type": "", "code": null}), json!({}), json!("")] {
        let [mut first, mut second] = [piece("whole"), last()];
        (first["error"], second["error"]) = (empty.clone(), empty);
        check(answer(stream(&events(&[first, second]))).await, "whole", 1);
    }
    let empty = json!({"choices": [], "error": {"message": "Insufficient credits", "code": 402}});
    let expected = "! the model's server answered 402: Insufficient credits (the account has no credit)";
    check(answer(Rule::any().body(empty.to_string())).await, expected, 1);
}

#[tokio::test]
async fn an_event_may_end_with_the_stream_or_have_two_pieces() {
    let text = events(&[piece("whole"), last()]);
    check(answer(stream(text.trim_end())).await, "whole", 1);
    check(
        answer(stream(&format!("data: {}{}\n\n{}", piece("who"), piece("le"), events(&[last()])))).await,
        "whole",
        1,
    );
    // One that is cut off is no end.
    let cut = &text[..text.len() - 6];
    check(
        answer(stream(cut)).await,
        "! the connection to the model's server broke: the stream ended before the reply",
        3,
    );
}
