//! Replies and errors in the forms of gateways and of older servers.

use std::time::Duration;

use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::{Value as Json, json};

use super::streams::{answer_of, piece, reply, stream, text_of};

fn last() -> Json {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
}

/// The answer to a prompt, and the number of requests that it took.
async fn answer(rule: Rule) -> (String, usize) {
    let (answer, requests) = answer_of([rule], Duration::from_millis(200)).await;
    (answer, requests.len())
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
        text_of(&[piece("half")])
    );
    let deepinfra = text_of(&[
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
        check(answer(stream(&text_of(&[first, second]))).await, "whole", 1);
    }
    let empty = json!({"choices": [], "error": {"message": "Insufficient credits", "code": 402}});
    let expected = "! the model's server answered 402: Insufficient credits (the account has no credit)";
    check(answer(Rule::any().body(empty.to_string())).await, expected, 1);
}

#[tokio::test]
async fn an_event_may_end_with_the_stream_or_have_two_pieces() {
    let text = text_of(&[piece("whole"), last()]);
    check(answer(stream(text.trim_end())).await, "whole", 1);
    check(
        answer(stream(&format!("data: {}{}\n\n{}", piece("who"), piece("le"), text_of(&[last()])))).await,
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

#[tokio::test]
async fn calls_in_a_second_choice_are_those_of_the_first_that_ends_with_calls() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let choices = |field: &str, reason: &str, calls: Json| {
        let text = json!({"role": "assistant", "content": "I run it."});
        let second = json!({"role": "assistant", "content": null, "tool_calls": calls});
        [
            json!({"index": 0, field: text, "finish_reason": reason}),
            json!({"index": 1, field: second, "finish_reason": "tool_calls"}),
        ]
    };
    for (reason, has_calls) in [("tool_calls", true), ("stop", false)] {
        let mut numbered = call.clone();
        numbered["index"] = 0.into();
        let pieces = choices("delta", reason, json!([numbered])).map(|choice| json!({"choices": [choice]}));
        let whole = json!({"choices": choices("message", reason, json!([call]))});
        for rule in [stream(&(text_of(&pieces) + "data: [DONE]\n\n")), Rule::any().body(whole.to_string())] {
            let model = ScriptedModel::start([rule]);
            let message = reply(&model.base_url(), true).await.message;
            assert_eq!(message["content"], "I run it.");
            let calls = message.get("tool_calls").filter(|calls| !calls.is_null());
            assert_eq!(calls, has_calls.then(|| json!([call])).as_ref(), "{reason}");
            drop(model.finish());
        }
    }
}

#[tokio::test]
async fn comments_as_data_are_left_out() {
    let text = format!("data: : PROCESSING\n\n{}", text_of(&[piece("whole"), last()]));
    check(answer(stream(&text)).await, "whole", 1);
}
