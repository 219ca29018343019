//! Replies that servers stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_rootd::{
    Budget, ChatReply, ChatRequest, HttpModel, Key, Ledger, Models, ModelsConfig, RootModel as _,
};
use rlm_tests::scripted_model::{Gate, Request, Rule, ScriptedModel};
use serde_json::{Value as Json, json};

use super::{ask_one, setup, soon};

/// The text of these events.
pub(super) fn text_of(events: &[Json]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// A reply of this stream.
pub(super) fn stream(text: &str) -> Rule {
    Rule::any().body(text).header("content-type", "text/event-stream; charset=utf-8")
}

/// A reply of these events.
fn events(events: &[Json]) -> Rule {
    stream(&text_of(events))
}

pub(super) fn piece(text: &str) -> Json {
    json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

fn streams(request: &Request) -> bool {
    request.body["stream"] == true
}

/// The answer to a prompt, and the requests that it took.
async fn answer(rules: impl IntoIterator<Item = Rule>) -> (String, Vec<Request>) {
    answer_of(rules, Duration::from_millis(500)).await
}

/// As [`answer`], with this limit of a silence.
pub(super) async fn answer_of(
    rules: impl IntoIterator<Item = Rule>,
    timeout: Duration,
) -> (String, Vec<Request>) {
    let model = ScriptedModel::start(rules);
    let sub_llm = setup(&model).with(|it| it.config.timeout = timeout).start();
    (ask_one(&sub_llm, "p").await, model.finish())
}

/// The reply of a root model, asked for in pieces or whole.
pub(super) async fn reply(base_url: &str, stream: bool) -> ChatReply {
    let config = ModelsConfig { stream, ..ModelsConfig::new(base_url, "m") };
    let ledger = Arc::new(Ledger::new(<_>::default(), <_>::default()));
    let question = [json!({"role": "user", "content": "?"}).into()];
    let http = HttpModel::new(Arc::new(Models::new(config).unwrap()));
    http.complete(ChatRequest::new(&question, soon(), &ledger)).await.unwrap()
}

#[tokio::test]
async fn a_reply_is_the_same_in_pieces_and_whole() {
    let call = |id: &str, code: &str| {
        let arguments = json!({ "code": code }).to_string();
        json!({"id": id, "type": "function", "function": {"name": "call_bash_repl", "arguments": arguments}})
    };
    let messages = [
        json!({"role": "assistant", "content": "Zwölf Boxkämpfer, 人工智能"}),
        json!({"role": "assistant", "content": null, "tool_calls": [call("a", "ls -l"), call("b", ":")]}),
        json!({"role": "assistant", "content": "So:", "reasoning_content": "Hm, hm.", "tool_calls": [call("a", "")]}),
    ];
    for message in messages {
        let model = ScriptedModel::start([Rule::any().message(message.clone()).usage(70, 7).in_pieces()]);
        let base_url = model.base_url();
        let (streamed, mut whole) = (reply(&base_url, true).await, reply(&base_url, false).await);
        assert!(streamed.request_id.is_some() && streamed.request_id != whole.request_id);
        whole.request_id.clone_from(&streamed.request_id);
        assert_eq!(streamed, whole);
        assert_eq!(streamed.message, message);
        assert_eq!((streamed.usage.completion_tokens, streamed.usage.is_estimated), (7, false));
        let asked: Vec<_> =
            model.finish().iter().map(|request| request.body["stream_options"].clone()).collect();
        assert_eq!(asked, [json!({"include_usage": true}), Json::Null]);
    }
}

#[tokio::test]
async fn the_time_limit_is_on_silence() {
    // Some hundred bytes, for which a whole reply would have to be longer under way than the limit.
    let slow = Rule::any().slowly(Duration::from_millis(2)).reply(&"x".repeat(100)).in_pieces();
    let (text, requests) = answer([slow.clone()]).await;
    assert_eq!((text.len(), requests.len()), (100, 1));
    let stalled = Rule::any().in_halves(&Gate::shut()).in_pieces();
    let (text, requests) = answer([stalled.clone().once(), Rule::any().reply("late").in_pieces()]).await;
    assert_eq!((text.as_str(), requests.len()), ("late", 2));
    let (text, requests) = answer([stalled]).await;
    assert_eq!((text.as_str(), requests.len()), ("! no answer within 0.5 s", 2));
    // A whole reply has the limit of a whole request, whatever keeps the connection open before it.
    let blank = Rule::any().slowly(Duration::from_millis(2)).body(" ".repeat(1000));
    let (text, requests) = answer([blank]).await;
    assert_eq!((text.as_str(), requests.len()), ("! no answer within 0.5 s", 2));
}

#[tokio::test]
async fn a_stream_that_breaks_is_asked_for_again() {
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let failing =
        |code: Json| events(&[piece("a"), json!({"error": {"message": "overloaded", "code": code}})]);
    for broken in [
        Rule::any().cut().in_pieces(),
        events(&[]),
        events(&[piece("a")]),
        events(&[piece("a"), json!({"choices": []})]),
        failing(json!(503)),
        failing(json!(429)),
        failing(json!("server_error")),
        Rule::any().body("data: {\n\n").header("content-type", "text/event-stream"),
        Rule::any().body("nonsense\n\n").header("content-type", "text/event-stream"),
    ] {
        let (text, requests) = answer([broken.clone().once(), Rule::any().in_pieces()]).await;
        assert_eq!((text.as_str(), requests.len()), ("re: p", 2), "{broken:?}");
        assert!(requests.iter().all(streams), "{broken:?}");
    }
    let error = |rule: Rule| async { answer([rule]).await.0 };
    assert_eq!(error(failing(json!(503))).await, "! the model's server answered 503: overloaded");
    assert_eq!(error(failing(json!("503"))).await, "! the model's server answered 503: overloaded");
    assert_eq!(error(failing(json!("x"))).await, "! the model's server answered 503: overloaded");
    let broken = "! the connection to the model's server broke: the stream ended before the reply";
    assert_eq!(error(events(&[piece("a")])).await, broken);
    // LiteLLM writes a code as a text.
    for code in [json!(400), json!("400")] {
        let refused = events(&[piece("a"), json!({"error": {"message": "refused", "code": code}})]);
        let (text, requests) = answer([refused]).await;
        assert_eq!((text.as_str(), requests.len()), ("! the model's server answered 400: refused", 1));
    }
    // What a server sends after the end of a choice changes nothing.
    assert_eq!(error(events(&[piece("a"), end])).await, "a");
}

#[tokio::test]
async fn a_reply_that_is_far_longer_than_its_bound_is_cut_and_charged() {
    let endless: Vec<Json> = (0..1000).map(|_| piece(&"x".repeat(100))).collect();
    let model = ScriptedModel::start([events(&endless)]);
    let budget = Budget { tokens: Some(100_000), ..Budget::default() };
    let sub_llm = setup(&model)
        .with(|it| {
            it.budget = budget;
            it.options.default_max_tokens = 20;
        })
        .start();
    let error = "! the model's reply is malformed: it is far longer than the 20 tokens that were asked for, which the server ignores";
    assert_eq!(ask_one(&sub_llm, "p").await, error);
    assert!(sub_llm.ledger().snapshot().used.completion_tokens > 500);
    assert_eq!(model.finish().len(), 1);
}

#[tokio::test]
async fn a_reply_that_does_not_end_is_charged_by_what_came_of_it() {
    let (words, gate) = ("word ".repeat(300), Gate::shut());
    let in_halves = || Rule::any().reply(&words).in_pieces().in_halves(&gate);
    let cut = Rule::any().reply(&words).in_pieces().cut().once();
    let ended = events(&[piece(&words[..words.len() / 2])]).once();
    for (rules, seconds) in [
        (vec![ended, Rule::any().usage(10, 5)], 60.0),
        (vec![cut, Rule::any()], 60.0),
        (vec![in_halves()], 1.0),
    ] {
        for completion_tokens in [None, Some(20_000)] {
            let model = ScriptedModel::start(rules.clone());
            let sub_llm = setup(&model).with(|it| it.budget.completion_tokens = completion_tokens).start();
            let deadline = Instant::now() + Duration::from_secs_f64(seconds);
            let answer = sub_llm.batch(vec!["p".to_owned()], deadline).await.remove(0);
            let used = sub_llm.ledger().snapshot().used;
            assert!((100..400).contains(&used.completion_tokens), "{used:?} for {answer:?}");
            assert_eq!(used.calls, model.finish().len() as u64);
        }
    }
    // Nobody waits for it any more.
    let model = ScriptedModel::start([in_halves()]);
    let sub_llm = setup(&model).start();
    let asking = sub_llm.batch(vec!["p".to_owned()], soon());
    assert!(tokio::time::timeout(Duration::from_secs(1), asking).await.is_err());
    let used = sub_llm.ledger().snapshot().used;
    assert!((100..400).contains(&used.completion_tokens) && used.prompt_tokens > 0, "{used:?}");
    drop(model);
}

#[tokio::test]
async fn what_was_told_of_the_usage_of_a_reply_that_does_not_end_counts() {
    let details = json!({"cached_tokens": 1000});
    let mut begun = piece("word");
    begun["usage"] =
        json!({"prompt_tokens": 4000, "completion_tokens": 60, "prompt_tokens_details": details});
    let model = ScriptedModel::start([events(&[begun]).once(), Rule::any().status(400, "no")]);
    let sub_llm = setup(&model).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "! the model's server answered 400: no");
    let used = sub_llm.ledger().snapshot().used;
    assert_eq!((used.prompt_tokens, used.cached_tokens, used.completion_tokens), (4000, 1000, 60));
    drop(model);
}

#[tokio::test]
async fn what_becomes_of_a_stream_behind_the_end_of_its_reply_does_not_matter() {
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}});
    let whole: String = [piece("a"), end, usage].iter().map(|event| format!("data: {event}\n\n")).collect();
    let with =
        |rest: &str| Rule::any().body(whole.clone() + rest).header("content-type", "text/event-stream");
    let comment = format!(": {}\n\n", "x".repeat(whole.len()));
    for rule in [
        // Half of its bytes come, with all of the reply, and then the connection breaks, or stays open, with comments or without.
        with(&comment).cut(),
        with(&comment).in_halves(&Gate::shut()),
        with(&": ping\n\n".repeat(2000)).slowly(Duration::from_millis(2)),
        // Pieces that say nothing new.
        with(&format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {}}]})).repeat(400))
            .slowly(Duration::from_millis(2)),
        with("data: {\"error\": {\"message\": \"gone\", \"code\": 502}}\n\n"),
        with("data: {\n\n"),
    ] {
        let started = Instant::now();
        let model = ScriptedModel::start([rule.clone()]);
        let sub_llm = setup(&model).start();
        assert_eq!(ask_one(&sub_llm, "p").await, "a", "{rule:?}");
        let used = sub_llm.ledger().snapshot();
        assert_eq!((used.used.prompt_tokens, used.used.completion_tokens), (10, 5), "{rule:?}");
        assert!(started.elapsed() < Duration::from_secs(15), "{rule:?}");
        assert_eq!(model.finish().len(), 1, "{rule:?}");
    }
}

#[tokio::test]
async fn a_reason_before_more_text_does_not_end_a_reply() {
    let reasoned = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 10, "completion_tokens": 5}});
    let (text, requests) = answer([events(&[reasoned("a"), reasoned("b")])]).await;
    assert_eq!((text.as_str(), requests.len()), ("ab", 1));
    // A connection that breaks behind more text has cut the reply.
    let cut: String =
        ["a", "b", &"c".repeat(500)].map(|text| format!("data: {}\n\n", reasoned(text))).concat();
    let cut = Rule::any().body(cut).header("content-type", "text/event-stream").cut();
    let (text, requests) = answer([cut.once(), Rule::any().in_pieces()]).await;
    assert_eq!((text.as_str(), requests.len()), ("re: p", 2));
}

#[tokio::test]
async fn a_stream_that_ends_in_order_with_its_usage_needs_no_reason() {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}});
    let whole = events(&[piece("a"), usage.clone()]);
    let (text, requests) = answer([whole]).await;
    assert_eq!((text.as_str(), requests.len()), ("a", 1));
    let comment = format!(": {}\n\n", "x".repeat(500));
    let body = format!("data: {}\n\ndata: {usage}\n\n{comment}", piece("a"));
    let cut = Rule::any().body(body).header("content-type", "text/event-stream").cut();
    let (text, requests) = answer([cut.once(), Rule::any().in_pieces()]).await;
    assert_eq!((text.as_str(), requests.len()), ("re: p", 2));
}

#[tokio::test]
async fn a_whole_reply_is_read_whatever_its_type_says() {
    let reply = json!({"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 10, "completion_tokens": 5}});
    for rest in ["", "\n\ndata: [DONE]\n\n"] {
        for kind in ["text/event-stream", "application/json"] {
            let rule = Rule::any().body(format!("\n{reply}{rest}")).header("content-type", kind);
            let (text, requests) = answer([rule]).await;
            assert_eq!((text.as_str(), requests.len()), ("a", 1), "{kind} {rest:?}");
        }
    }
    let error = json!({"error": {"message": "busy", "code": 503}});
    let rule = Rule::any().body(error.to_string()).header("content-type", "text/event-stream");
    assert_eq!(answer([rule]).await.0, "! the model's server answered 503: busy");
}

#[tokio::test]
async fn an_error_without_a_code_within_a_stream_is_a_failure_of_the_server() {
    let aborted = || events(&[piece("a"), json!({"error": {"message": "The operation was aborted"}})]).once();
    let model = ScriptedModel::start([aborted(), aborted(), aborted(), Rule::any().in_pieces()]);
    let sub_llm = setup(&model).with(|it| it.config.retries.max = 3).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "re: p");
    let told = answer([events(&[json!({"error": {"message": "The operation was aborted"}})])]).await.0;
    assert_eq!(told, "! the model's server answered 500: The operation was aborted");
    // A call that the server could not read is sampled once more.
    let unread = events(&[json!({"error": {"message": "no", "code": "tool_use_failed"}})]);
    let (_, requests) = answer([unread]).await;
    assert_eq!(requests.len(), 2);
}

#[tokio::test]
async fn a_stream_is_known_by_its_first_bytes_whatever_its_type_says() {
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    for begin in ["", "event: message\n"] {
        let body = format!("{begin}data: {}\n\ndata: {end}\n\ndata: [DONE]\n\n", piece("a"));
        let rule = Rule::any().body(body).header("content-type", "text/plain; charset=utf-8");
        let (text, requests) = answer([rule]).await;
        assert_eq!((text.as_str(), requests.len()), ("a", 1));
    }
}

#[tokio::test]
async fn an_error_within_a_stream_costs_the_prompt_and_what_came_before_it() {
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 3});
    let error = json!({"message": "upstream", "code": 502});
    for (last, prompt, completion) in [
        (json!({"error": error, "choices": []}), None, 4),
        (json!({"error": error, "usage": usage}), Some(20), 3),
    ] {
        let model = ScriptedModel::start([events(&[piece("abcdef"), last])]);
        let sub_llm = setup(&model).with(|it| {
            it.config.retries.max = 0;
            it.budget.completion_tokens = Some(10_000);
        });
        let sub_llm = sub_llm.start();
        assert_eq!(ask_one(&sub_llm, "p").await, "! the model's server answered 502: upstream");
        let snapshot = sub_llm.ledger().snapshot();
        assert_eq!(snapshot.used.completion_tokens, completion);
        let prompt_tokens = snapshot.used.prompt_tokens;
        assert!(prompt.map_or(prompt_tokens < 100, |told| prompt_tokens == told), "{snapshot:?}");
    }
}

#[tokio::test]
async fn without_usage_replies_are_asked_for_whole_so_that_the_bill_is_exact() {
    let model = ScriptedModel::start([Rule::on("1").without_usage().in_pieces(), Rule::any().in_pieces()]);
    let sub_llm = setup(&model).start();
    assert_eq!([ask_one(&sub_llm, "1").await, ask_one(&sub_llm, "2").await], ["re: 1", "re: 2"]);
    let used = sub_llm.ledger().snapshot().used;
    assert!(used.tokens > 15, "the first is estimated: {used:?}");
    assert_eq!(model.finish().iter().map(streams).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test]
async fn a_server_that_loses_arguments_in_streams_is_asked_for_whole_replies() {
    // vllm-project/vllm#31501 and #45256.
    for arguments in ["", "{}", "{\"code\": \"ls\""] {
        let call = |arguments: &str| json!({"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
        let choice =
            json!({"index": 0, "delta": {"tool_calls": [call(arguments)]}, "finish_reason": "tool_calls"});
        let streamed = json!({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 9}});
        let whole = json!({"role": "assistant", "content": null, "tool_calls": [call("{\"code\": \"ls\"}")]});
        let whole = json!({"choices": [{"message": whole, "finish_reason": "tool_calls"}]}).to_string();
        let model = ScriptedModel::start([
            Rule::any().body(text_of(&[streamed])).header("content-type", "text/event-stream").times(2),
            Rule::any().body(whole),
        ]);
        let http = HttpModel::new(Arc::new(Models::new(ModelsConfig::new(model.base_url(), "m")).unwrap()));
        let ledger = Arc::new(Ledger::new(<_>::default(), <_>::default()));
        let question = [json!({"role": "user", "content": "?"}).into()];
        let parameters =
            json!({"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]});
        let tools = [json!({"type": "function", "function": {"name": "f", "parameters": parameters}})];
        let mut came = Vec::new();
        for _ in 0..3 {
            let mut request = ChatRequest::new(&question, soon(), &ledger);
            request.tools = &tools;
            let reply = http.complete(request).await.unwrap();
            came.push(reply.message["tool_calls"][0]["function"]["arguments"].clone());
        }
        assert_eq!(came, [arguments, arguments, "{\"code\": \"ls\"}"]);
        let asked: Vec<_> = model.finish().iter().map(streams).collect();
        assert_eq!(asked, [true, true, false], "{arguments}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_asked_for_whole_replies() {
    let refusal = Rule::any().status(400, "Streaming is not supported by this model").once();
    let model = ScriptedModel::start([refusal, Rule::any()]);
    let sub_llm = setup(&model).start();
    assert_eq!([ask_one(&sub_llm, "1").await, ask_one(&sub_llm, "2").await], ["re: 1", "re: 2"]);
    assert_eq!(sub_llm.ledger().snapshot().used.calls, 2);
    assert_eq!(model.finish().iter().map(streams).collect::<Vec<_>>(), [true, false, false]);
    let (text, requests) = answer([Rule::any().status(400, "Invalid JSON in input stream")]).await;
    assert_eq!(text, "! the model's server answered 400: Invalid JSON in input stream");
    assert_eq!(requests.len(), 1);
}

#[tokio::test]
async fn further_headers_are_sent_and_their_values_are_secrets() {
    let model = ScriptedModel::start([Rule::any().status(401, "who is sk-very-secret?")]);
    let sub_llm = setup(&model)
        .with(|it| {
            it.config.key = Some(Key::new("unused"));
            let headers = [("api-key", "sk-very-secret"), ("Authorization", "Basic abc"), ("X-Title", "rlm")];
            it.config.headers = headers.map(|(name, value)| (name.to_owned(), Key::new(value))).into();
        })
        .start();
    assert!(!format!("{sub_llm:?}").contains("very-secret"));
    assert_eq!(ask_one(&sub_llm, "p").await, "! the model's server answered 401: who is [key]?");
    let request = model.finish().remove(0);
    let sent = ["api-key", "authorization", "x-title"].map(|name| request.header(name).to_owned());
    assert_eq!(sent, ["sk-very-secret", "Basic abc", "rlm"]);
}
