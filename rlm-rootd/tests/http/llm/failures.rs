//! Failures of requests to models, and retries.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rlm_rootd::{Api, Key, SubCallError};
use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};
use serde_json::{Value as Json, json};

use super::{ask, ask_one, echoes, prompts, setup, soon};

#[tokio::test]
async fn one_that_fails_leaves_the_others_alone() {
    let model = ScriptedModel::start([Rule::on("p3.").status(400, "bad  prompt"), Rule::any()]);
    let sub_llm = setup(&model).start();
    let mut expected = echoes(10);
    expected[3] = "! the model's server answered 400: bad prompt".to_owned();
    assert_eq!(ask(&sub_llm, prompts(10)).await, expected);
    // The model was not asked again, and the requests cost nothing.
    assert_eq!(model.finish().len(), 10);
    assert_eq!(sub_llm.ledger().snapshot().used.calls, 9);
}

#[tokio::test]
async fn all_may_fail() {
    let model = ScriptedModel::start([Rule::any().status(500, "no")]);
    let sub_llm = setup(&model).start();
    let answers = ask(&sub_llm, prompts(10)).await;
    assert_eq!(answers, vec!["! the model's server answered 500: no"; 10]);
    // Each request was sent three times, under one name.
    let requests = model.finish();
    assert_eq!(requests.len(), 30);
    let ids: HashSet<_> = requests.iter().map(|request| request.header("x-request-id")).collect();
    assert_eq!(ids.len(), 10);
    assert_eq!(sub_llm.ledger().snapshot().used.calls, 0);
}

/// A reply whose choice has this finish reason and these fields.
fn ends_with(reason: &str, fields: &str) -> Rule {
    Rule::any().body(format!(r#"{{"choices": [{{{fields}, "finish_reason": "{reason}"}}]}}"#))
}

/// An error in a stream.
fn in_stream(error: &Json) -> Rule {
    Rule::any().body(format!("data: {error}\n\n")).header("content-type", "text/event-stream")
}

/// A refusal with this body.
fn refused(body: &str) -> Rule {
    Rule::any().status(400, "").body(body)
}

#[tokio::test]
async fn passing_failures_are_tried_again() {
    for rule in [
        Rule::any().status(429, "slow down"),
        Rule::any().status(408, "too slow"),
        Rule::any().status(409, "locked"),
        Rule::any().status(425, "too early"),
        Rule::any().status(503, "busy"),
        // Groq, where its flex tier is full.
        Rule::any().status(498, "").body(r#"{"error": {"message": "full", "code": "capacity_exceeded"}}"#),
        // OpenRouter, and Cloudflare's AI Gateway, where the server behind fails.
        refused(r#"{"error": {"message": "Provider returned error", "code": 502}}"#),
        refused(
            r#"{"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "ERROR"}}}"#,
        ),
        refused(r#"{"error": [{"code": 2005, "message": "Failed to get response from provider"}]}"#),
        // MiniMax.
        Rule::any().body(r#"{"choices": null, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}"#),
        // A failed response of OpenAI repeats the request and the reply.
        Rule::any().body(
            r#"{"status": "failed", "error": {"code": "server_error", "message": "Sorry."}, "instructions": "insufficient_quota.log",
            "output": [{"content": "the context window has insufficient balance, try again in 100s"}]}"#,
        ),
        Rule::any().hang_up(),
        Rule::any().cut(),
        Rule::any().body("{\"choices\": ["),
        Rule::any().body("{\"choices\": []}"),
        Rule::any().message(json!({"role": "assistant", "content": null})),
        Rule::any().reply(" \n"),
        ends_with("error", r#""message": {"content": "half"}, "error": {"code": 502, "message": "down"}"#),
        ends_with("error", r#""message": {"content": "half"}"#),
        Rule::any()
            .body("{\"choices\": [{\"finish_reason\": \"function_call_filter: MALFORMED_FUNCTION_CALL\"}]}"),
    ] {
        let model = ScriptedModel::start([rule.clone().once(), Rule::any()]);
        let sub_llm = setup(&model).start();
        assert_eq!(ask_one(&sub_llm, "p").await, "re: p", "{rule:?}");
        assert_eq!(model.finish().len(), 2, "{rule:?}");
        let snapshot = sub_llm.ledger().snapshot();
        assert_eq!(snapshot.reserved.calls, 0);
    }
}

#[tokio::test]
async fn another_sample_is_asked_for_with_another_idempotency_key() {
    for (rule, is_another) in [
        (Rule::any().status(503, "busy"), false),
        (Rule::any().hang_up(), false),
        (Rule::any().body("{\"choices\": []}"), true),
        (Rule::any().reply(" \n"), true),
    ] {
        let model = ScriptedModel::start([rule.clone().once(), Rule::any()]);
        assert_eq!(ask_one(&setup(&model).start(), "p").await, "re: p");
        let [first, second] = &model.finish()[..] else { panic!("{rule:?}") };
        let id = first.header("x-request-id");
        assert_eq!([first.header("idempotency-key"), second.header("x-request-id")], [id, id]);
        assert_eq!(second.header("idempotency-key") != id, is_another, "{rule:?}");
    }
}

#[tokio::test]
async fn other_failures_are_not() {
    for (status, error) in
        [(400, "no"), (401, "who?"), (404, "no such model"), (422, "what?"), (307, "elsewhere")]
    {
        let rule = Rule::any().status(status, error).header("location", "http://127.0.0.1:9/");
        let model = ScriptedModel::start([rule]);
        let sub_llm = setup(&model).start();
        let expected = format!("! the model's server answered {status}: {error}");
        assert_eq!(ask_one(&sub_llm, "p").await, expected);
        assert_eq!(model.finish().len(), 1);
    }
}

#[tokio::test]
async fn refusals_with_the_status_of_a_passing_failure_are_not_either() {
    let quota =
        json!({"error": {"message": "You exceeded your current quota.", "code": "insufficient_quota"}});
    let no_quota = "429: You exceeded your current quota. (the account has no credit)";
    for (rule, told) in [
        (Rule::any().status(429, "").body(quota.to_string()), no_quota),
        (Rule::any().status(500, "image input is not supported"), "500: image input is not supported"),
        (Rule::any().status(500, "tools param requires --jinja"), "500: tools param requires --jinja"),
        (Rule::any().status(500, "Unsupported tool_call_parser: x"), "500: Unsupported tool_call_parser: x"),
        (Rule::any().status(500, "exceeds the context size"), "500: exceeds the context size"),
        (
            refused(
                r#"{"error": {"message": "no", "code": 502, "metadata": {"raw": "exceeds the context size"}}}"#,
            ),
            "400: no: exceeds the context size",
        ),
        (
            Rule::any().body(r#"{"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}"#),
            "402: insufficient balance (the account has no credit)",
        ),
    ] {
        let model = ScriptedModel::start([rule]);
        let answer = ask_one(&setup(&model).start(), "p").await;
        assert_eq!(answer, format!("! the model's server answered {told}"));
        assert_eq!(model.finish().len(), 1, "{told}");
    }
}

#[tokio::test]
async fn a_limit_that_passes_at_this_server_is_waited_for() {
    let quota = json!({"error": {"message": "no", "code": "insufficient_quota"}});
    let throttled = json!({"code": "Throttling.AllocationQuota", "message": "Allocated quota exceeded."});
    for rule in
        [Rule::any().status(429, "").body(quota.to_string()), in_stream(&quota), in_stream(&throttled)]
    {
        let model = ScriptedModel::start([rule.once(), Rule::any()]);
        let sub_llm = setup(&model).with(|it| {
            it.config.server = Some("dashscope".to_owned());
            // Shorter waits than those of the table.
            let limits = ["insufficient_quota", "throttling.allocationquota"];
            it.config.rules.passing_errors.extend(limits.map(|limit| (limit.to_owned(), 1)));
        });
        assert_eq!(ask_one(&sub_llm.start(), "p").await, "re: p");
        let [first, second] = &model.finish()[..] else { panic!("more or fewer than two requests") };
        assert!((second.at - first.at).as_millis() >= 1000);
    }
}

#[tokio::test]
async fn a_free_tier_that_is_used_up_is_not_a_limit_that_passes() {
    let error =
        json!({"error": {"message": "Disable the free tier.", "code": "AllocationQuota.FreeTierOnly"}});
    for (rule, status) in
        [(Rule::any().status(403, "").body(error.to_string()), 403), (in_stream(&error), 402)]
    {
        let model = ScriptedModel::start([rule]);
        let sub_llm = setup(&model).with(|it| it.config.server = Some("dashscope".to_owned())).start();
        let told = format!(
            "! the model's server answered {status}: Disable the free tier. (the account has no credit)"
        );
        assert_eq!(ask_one(&sub_llm, "p").await, told);
        assert_eq!(model.finish().len(), 1);
    }
}

#[tokio::test]
async fn a_completion_is_as_long_as_the_account_can_pay() {
    let error = json!({"error": {"message": "This request requires more credits, or fewer max_tokens. You requested up to 64000 \
        tokens, but can only afford 2666.", "code": 402}});
    for (bound, sent) in
        [(None, vec![json!(null), json!(2666)]), (Some(64000), vec![json!(64000), json!(2666)])]
    {
        let refused = Rule::any().status(402, "").body(error.to_string()).once();
        let model = ScriptedModel::start([refused, Rule::any()]);
        let sub_llm = setup(&model).with(|it| {
            it.options.sampling.extend(bound.map(|bound| ("max_tokens".to_owned(), bound.into())));
        });
        assert_eq!(ask_one(&sub_llm.start(), "p").await, "re: p");
        let requests = model.finish();
        assert_eq!(
            requests.iter().map(|request| request.body["max_tokens"].clone()).collect::<Vec<_>>(),
            sent
        );
    }
}

#[tokio::test]
async fn unusable_replies_are_named() {
    let no_text = json!({"role": "assistant", "content": null});
    for (rule, error, count) in [
        (
            // The text of the reply may be reasoning.
            Rule::any().body("{\"choices\": [{\"message\": {\"reasoning\": \"hm"),
            "the model's reply is malformed: EOF while parsing a string at line 1 column 42",
            2,
        ),
        (
            Rule::any().body("no"),
            "the model's reply is malformed: expected ident at line 1 column 2 in \"no\"",
            2,
        ),
        (Rule::any().body("<html>"), "the model's reply is malformed: an HTML page", 2),
        (Rule::any().body("{}"), "the model's reply is malformed: it has no choices", 2),
        (Rule::any().body("[]"), "the model's reply is malformed: it has no choices", 2),
        (Rule::any().body("5"), "the model's reply is malformed: it has no choices", 2),
        (
            Rule::any().body("[{\"error\": {\"code\": 400, \"message\": \"no such model\"}}]"),
            "the model's server answered 400: no such model",
            1,
        ),
        (Rule::any().body("{\"choices\": []}"), "the model's reply is malformed: its choices are empty", 2),
        (
            Rule::any().body("{\"choices\": [{\"message\": 3}]}"),
            "the model's reply is malformed: its choice has no message",
            2,
        ),
        (Rule::any().body("{\"choices\": [{}]}"), "the model returned no text", 2),
        (
            Rule::any().body("{\"choices\": [{\"finish_reason\": \"content_filter: PROHIBITED_CONTENT\"}]}"),
            "the model refused: a content filter of the server cut the reply",
            1,
        ),
        (
            Rule::any().body("{\"choices\": [{\"finish_reason\": \"MALFORMED_FUNCTION_CALL\"}]}"),
            "the model's reply is malformed: the server could not read the call in it",
            2,
        ),
        (
            ends_with(
                "error",
                r#""error": {"code": 502, "message": "Provider error", "metadata": {"raw": "down"}}"#,
            ),
            "the model's server answered 502: Provider error: down",
            3,
        ),
        (
            ends_with("error", r#""message": {"content": "half"}"#),
            "the model's server answered 500: the reply ended with \"error\"",
            3,
        ),
        (
            ends_with("insufficient_system_resource", r#""message": {"content": "half"}"#),
            "the model's server answered 500: the reply ended with \"insufficient_system_resource\"",
            3,
        ),
        (
            ends_with("sensitive", r#""message": {"content": ""}"#),
            "the model refused: a content filter of the server cut the reply",
            1,
        ),
        (Rule::any().body("{\"error\": {\"message\": \"no\"}}"), "the model's reply is malformed: no", 2),
        (Rule::any().message(no_text.clone()), "the model returned no text", 2),
        (Rule::any().reply(""), "the model returned no text", 2),
        (
            Rule::any().message(json!({"content": 5})),
            "the model's reply is malformed: its content is not text",
            2,
        ),
        (Rule::any().message(json!({"content": null, "refusal": "never"})), "the model refused: never", 1),
        (
            Rule::any()
                .body(json!({"choices": [{"message": no_text, "finish_reason": "length"}]}).to_string()),
            "the model returned no text: it reached the limit of its tokens",
            1,
        ),
    ] {
        let model = ScriptedModel::start([rule]);
        let sub_llm = setup(&model).start();
        assert_eq!(ask_one(&sub_llm, "p").await, format!("! {error}"));
        assert_eq!(model.finish().len(), count, "{error}");
    }
}

#[tokio::test]
async fn a_reply_with_half_a_surrogate_pair_is_read_and_paid_for_once() {
    let body = r#"{"choices": [{"message": {"role": "assistant", "content": "a\ud800b"}}]}"#;
    let model = ScriptedModel::start([Rule::any().body(body)]);
    let sub_llm = setup(&model).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "a\u{fffd}b");
    assert_eq!(model.finish().len(), 1);
}

#[tokio::test]
async fn text_in_parts_is_joined() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let model = ScriptedModel::start([Rule::any().message(json!({"content": parts}))]);
    assert_eq!(ask_one(&setup(&model).start(), "p").await, "ab");
}

#[tokio::test]
async fn a_server_is_waited_for_as_long_as_it_asks() {
    let told = json!({"error": {"message": "Rate limit reached. Please try again in 500ms.", "code": 429}});
    let event = format!("data: {told}\n\n");
    for (rule, least, most) in [
        (Rule::any().status(429, "wait").header("retry-after", "1"), 1000, 30_000),
        (Rule::any().status(429, "Please try again in 500ms."), 500, 30_000),
        (Rule::any().body(event).header("content-type", "text/event-stream"), 500, 30_000),
        // A header comes before the text.
        (Rule::any().status(429, "Please try again in 40s.").header("retry-after", "0"), 0, 20_000),
    ] {
        let model = ScriptedModel::start([rule.once(), Rule::any()]);
        let sub_llm = setup(&model).start();
        assert_eq!(ask_one(&sub_llm, "p").await, "re: p");
        let requests = model.finish();
        let pause = (requests[1].at - requests[0].at).as_millis();
        assert!((least..most).contains(&pause), "{pause} ms, expected {least} to {most}");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_longer_than_there_is_time_is_not_waited_for() {
    let model = ScriptedModel::start([Rule::any().status(429, "wait").header("retry-after", "3600")]);
    let sub_llm = setup(&model).start();
    let started = Instant::now();
    let results = sub_llm.batch(prompts(1), soon()).await;
    assert!(started.elapsed() < Duration::from_secs(30));
    let Err(SubCallError::MustWait { status: 429, message, wait, left }) = &results[0] else {
        panic!("{results:?}");
    };
    assert_eq!(message, "wait");
    assert!(*wait >= Duration::from_secs(3600) && *left <= Duration::from_secs(60));
    assert_eq!(
        SubCallError::MustWait {
            status: 429,
            message: "wait".to_owned(),
            wait: Duration::from_secs(3600),
            left: Duration::from_secs(59),
        }
        .to_string(),
        "the model's server answered 429 and asks to wait 3600 s, but only 59 s are left: wait"
    );
    assert_eq!(model.finish().len(), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_each_time_is_an_error() {
    for (rule, error) in [
        (Rule::any().hang_up(), "! the connection to the model's server broke: "),
        (Rule::any().cut(), "! the connection to the model's server broke: "),
    ] {
        let model = ScriptedModel::start([rule]);
        let sub_llm = setup(&model).start();
        let answer = ask_one(&sub_llm, "p").await;
        assert!(answer.starts_with(error) && answer.len() > error.len(), "{answer}");
        assert!(!answer.contains("127.0.0.1"), "{answer}");
        // A lost request may have been charged.
        let used = sub_llm.ledger().snapshot();
        assert_eq!((used.used.calls, used.usage_estimated), (3, true));
        assert_eq!(model.finish().len(), 3);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_costs_nothing() {
    let model = ScriptedModel::start([]);
    let setup = setup(&model);
    assert!(model.finish().is_empty());
    let sub_llm = setup.start();
    let answer = ask_one(&sub_llm, "p").await;
    assert!(answer.starts_with("! the model's server cannot be reached: "), "{answer}");
    assert!(answer.contains("refused"), "{answer}");
    assert_eq!(sub_llm.ledger().snapshot().used.calls, 0);
}

#[tokio::test]
async fn a_slow_body_is_waited_for() {
    let gate = Gate::shut();
    let slow = Rule::on("slow").slowly(Duration::from_millis(1));
    let model = ScriptedModel::start([slow, Rule::any().in_halves(&gate)]);
    let sub_llm = setup(&model).start();
    assert_eq!(ask_one(&sub_llm, "slow").await, "re: slow");
    let asked = tokio::spawn(async move { ask_one(&sub_llm, "p").await });
    model.wait_for_requests(2).await;
    gate.open();
    assert_eq!(asked.await.unwrap(), "re: p");
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_given_up_and_made_again() {
    let never = Gate::shut();
    for rule in [Rule::any().after(&never), Rule::any().in_halves(&never)] {
        let model = ScriptedModel::start([rule.once(), Rule::any()]);
        let sub_llm = setup(&model).with(|it| it.config.timeout = Duration::from_millis(500)).start();
        assert_eq!(ask_one(&sub_llm, "p").await, "re: p");
        assert_eq!(sub_llm.ledger().snapshot().used.calls, 2);
    }
    let model = ScriptedModel::start([Rule::any().after(&never)]);
    let sub_llm = setup(&model).with(|it| it.config.timeout = Duration::from_millis(100)).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "! no answer within 0.1 s");
    assert_eq!(model.finish().len(), 2);
}

#[tokio::test]
async fn a_header_for_the_key_that_is_refused_too_is_taken_back() {
    let reply = json!({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let refused = Rule::any().status(401, "invalid key").times(2);
    let model = ScriptedModel::start([refused, Rule::any().body(reply.to_string())]);
    let sub_llm = setup(&model)
        .with(|it| {
            it.config.api = Some(Api::Anthropic);
            it.config.key = Some(Key::new("sk-of-the-test"));
        })
        .start();
    assert_eq!(ask_one(&sub_llm, "p").await, "! the model's server answered 401: invalid key");
    assert_eq!(ask_one(&sub_llm, "p").await, "a");
    let by_own_header =
        model.finish().iter().map(|request| !request.header("x-api-key").is_empty()).collect::<Vec<_>>();
    assert_eq!(by_own_header, [true, false, true]);
}

#[tokio::test]
async fn a_server_that_lowers_its_limit_each_time_is_not_asked_for_ever() {
    let refusals = (0..40).map(|at| {
        let said =
            format!("max_tokens is too large. This model supports at most {} completion tokens", 9000 - at);
        Rule::any().status(400, &said).once()
    });
    let model = ScriptedModel::start(refusals);
    let sub_llm = setup(&model).start();
    assert!(ask_one(&sub_llm, "p").await.contains("supports at most"));
    assert_eq!(model.finish().len(), 17);
}
