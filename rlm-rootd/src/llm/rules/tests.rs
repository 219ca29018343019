//! Patterns, kinds of errors, and what is learned from them.

use serde_json::json;

use super::*;

/// The rules that are learned from errors about a request, one after another.
fn learned(errors: &[&str], fields: Json, replies: &[Json]) -> Rules {
    let fields = fields.as_object().unwrap().clone();
    let messages: Vec<ChatMessage> = replies.iter().cloned().map(Into::into).collect();
    let refused = Refused { messages: &messages, fields: &fields, streams: true };
    let mut rules = Rules::default();
    for error in errors {
        assert!(rules.learn(400, error, refused).is_some(), "{error}");
        assert_eq!(rules.learn(400, error, refused), None, "nothing is learned twice from {error}");
    }
    rules
}

#[test]
fn a_star_stands_for_any_text() {
    let cases = [
        ("a.b", "a.b", true),
        ("a.b", "a.bc", false),
        ("*.b", "a.b", true),
        ("*.b", "b", false),
        ("a*", "a", true),
        ("a.*.rep.b", "a.us.rep.b", true),
        ("a.*.rep.b", "a.rep.b", false),
        ("*é*b", "aéxbb", true),
    ];
    for (pattern, text, fits) in cases {
        assert_eq!(is_like(pattern, text), fits, "{pattern} {text}");
    }
}

#[test]
fn the_name_of_the_bound_is_learned_once() {
    let error = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    let fields = json!({"max_tokens": 7});
    assert_eq!(learned(&[error], fields, &[]).bound.as_deref(), Some("max_completion_tokens"));
    let error = r#"{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],"msg":"Extra inputs are not permitted"}]}"#;
    let fields = json!({"max_completion_tokens": 7});
    assert_eq!(learned(&[error], fields, &[]).bound.as_deref(), Some("max_tokens"));
    for error in [
        "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for m",
        "max_tokens is too large: 16384. This model supports at most 8192 completion tokens, whereas you provided 16384.",
        "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window`",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]",
        "The parameter `max_tokens` specified in the request are not valid: integer above maximum value, expected a value <= 8192, but got 16384 instead. Request id: 0",
        "Unable to submit request because it has a maxOutputTokens value of 16384 but the supported range is from 1 (inclusive) to 8193 (exclusive).",
        "The maximum tokens you requested exceeds the model limit of 8192. Try again with a maximum tokens value that is lower than 8192.",
        "too many tokens: max tokens must be less than or equal to 8192, the maximum output for this model - received 16384.",
    ] {
        assert_eq!(
            learned(&[error], json!({"max_tokens": 16384}), &[]).longest_completion,
            Some(8192),
            "{error}"
        );
    }
}

#[test]
fn rules_of_a_user_name_what_they_can_change() {
    for (rules, error) in [
        (json!({"bound": "max_toks"}), "`bound`: expected max_tokens or max_completion_tokens"),
        (json!({"omit": ["messages"]}), "`omit`: each request sets its own `messages`"),
        (json!({"add": {"model": "m"}}), "`add`: each request sets its own `model`"),
    ] {
        assert_eq!(rules.to_string().parse::<ServerRules>().unwrap_err(), error);
    }
}

#[test]
fn nothing_is_learned_from_what_refuses_no_field() {
    let reply = json!({"role": "assistant", "content": "a", "reasoning": "hm", "anthropic": {"content": []}});
    let messages = [reply.into()];
    let fields = json!({"max_completion_tokens": 60000}).as_object().unwrap().clone();
    let refused = Refused { messages: &messages, fields: &fields, streams: true };
    for (status, error) in [
        (500, "An unexpected error occurred in the reasoning parser; please retry"),
        (500, "An unexpected error occurred. Please include the request ID req_1 in your message."),
        (500, "Internal server error: unexpected. See https://status.anthropic.com"),
        (400, "{\"error\": {\"message\": \"reasoning effort 'max' is not supported by this model\"}}"),
        (400, "An unknown error: please include the request ID"),
        (400, "max_completion_tokens of 60000 is not allowed for this model: the most is 8192"),
    ] {
        assert_eq!(Rules::default().learn(status, error, refused), None, "{error}");
    }
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calls: ChatMessage = json!({"role": "assistant", "content": null, "tool_calls": [call]}).into();
    let calls = Refused { messages: &[calls], ..refused };
    for error in [
        "Invalid prompt: none of this content is fine. Please try again with different content.",
        "'content' of nonetheless odd kind",
    ] {
        assert_eq!(Rules::default().learn(400, error, calls), None, "{error}");
    }
    let groq = "'messages.1' : property 'reasoning' is unsupported";
    assert!(Rules::default().learn(400, groq, refused).is_some());
}

#[test]
fn a_refusal_to_stream_names_the_stream() {
    for (error, is_one) in [
        ("Unsupported value: 'stream' does not support true with this model.", true),
        ("Streaming is not supported by this model", true),
        ("streaming is disabled for this endpoint", true),
        ("Invalid JSON in input stream", false),
        ("upstream: not supported", false),
    ] {
        assert_eq!(refuses_stream(error), is_one, "{error}");
    }
}

#[test]
fn fields_that_we_add_are_left_out_where_they_are_refused() {
    let errors = [
        "property 'stream_options' is unsupported, did you mean 'stream'?",
        r#"{"error":{"message":"Encrypted content is not supported with this model.","param":"include"}}"#,
        "Extra inputs are not permitted, field: 'return_token_ids'",
    ];
    assert_eq!(learned(&errors, json!({}), &[]).omit, ["stream_options", "include", "return_token_ids"]);
    let mut rules = Rules::default();
    let fields = json!({"logprobs": true, "temperature": 0.2}).as_object().unwrap().clone();
    let refused = Refused { messages: &[], fields: &fields, streams: false };
    for of_the_user in [
        "logprobs is not supported",
        "Unsupported parameter: 'temperature' is not supported with this model.",
    ] {
        assert_eq!(rules.learn(400, of_the_user, refused), None, "{of_the_user}");
    }
}

#[test]
fn fields_and_forms_of_replies_are_learned() {
    let call =
        |id: &str, arguments: &str| json!({"id": id, "function": {"name": "f", "arguments": arguments}});
    let reply = json!({
        "role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [call("a", "{}"), call("", "{}")],
        "anthropic": {"content": []},
    });
    let learned = |error: &str| learned(&[error], json!({}), std::slice::from_ref(&reply));
    let groq = "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning' is unsupported)]";
    assert_eq!(learned(groq).omit_from_replies, ["reasoning"]);
    let foreign = learned("messages.1: thinking is bound to a different conversation");
    assert_eq!((foreign.foreign_replies.len(), foreign.omit_from_replies.len()), (1, 0));
    let null = "Invalid 'content': 'content' field must be a string or an array of objects.";
    assert_eq!(learned(null).null_content, Some(NullContent::Empty));
    assert_eq!(learned("invalid message content type: <nil>").null_content, Some(NullContent::Empty));
    // Calls without arguments may have an empty text, and words about them are too many to know.
    for arguments in ["", "{\"cut"] {
        let reply = json!({"role": "assistant", "content": null, "tool_calls": [call("a", arguments)]});
        for error in [
            "Assistant tool call function.arguments must be valid JSON.",
            "The arguments to a tool_call with ID 'a' are not a valid JSON string",
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
            "Error in message 1",
        ] {
            let rules = self::learned(&[error], json!({}), std::slice::from_ref(&reply));
            assert_eq!(rules.arguments, Some(ArgumentsForm::Json), "{error}");
        }
    }
    assert!(learned("messages[2].tool_calls[1].id: field required").fill_ids);
    let named = json!({"role": "assistant", "content": "", "tool_calls": [
        {"id": "chatcmpl-tool-1", "function": {"name": "functions.f", "arguments": "{}"}},
    ]});
    for error in [
        // Mistral, and servers with its tokenizer (jundot/omlx#1995, ml-explore/mlx-lm#1375).
        "Tool call id was chatcmpl-tool-1 but must be a-z, A-Z, 0-9, with a length of 9.",
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40",
    ] {
        let rules = self::learned(&[error], json!({}), std::slice::from_ref(&named));
        assert_eq!(rules, Rules { new_ids: true, ..Rules::default() }, "{error}");
    }
    for error in [
        "Invalid 'messages[2].tool_calls[0].function.name': string does not match pattern.",
        "Value at 'messages.2.member.content.1.member.toolUse.name' failed to satisfy constraint",
        "messages.1.content.0.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ] {
        let rules = self::learned(&[error], json!({}), std::slice::from_ref(&named));
        assert_eq!(rules, Rules { plain_names: true, ..Rules::default() }, "{error}");
    }
    let no_calls = "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead.";
    let silent = json!({"role": "assistant", "content": "a", "tool_calls": []});
    let expected = Rules { omit_empty_calls: true, ..Rules::default() };
    assert_eq!(self::learned(&[no_calls], json!({}), std::slice::from_ref(&silent)), expected);
    let answer = json!({"role": "tool", "tool_call_id": "a", "content": ""});
    for words in [
        "* GenerateContentRequest.contents[2].parts[0].function_response.name: Name cannot be empty.",
        "Tool message must have a 'name' field.",
        "Request contains an invalid argument.",
    ] {
        assert!(self::learned(&[words], json!({}), std::slice::from_ref(&answer)).name_answers, "{words}");
    }
    assert_eq!(learned("Unexpected role 'user' after role 'tool'").user_after_tool.as_deref(), Some("Ok."));
    // Forms of conversations that chat templates want.
    let conversation = ["system", "user", "user", "tool", "user"].map(|role| json!({"role": role}));
    let alternate = "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...";
    let messages = conversation.map(ChatMessage::from);
    let refused = Refused { messages: &messages, fields: &Map::new(), streams: false };
    let mut rules = Rules::default();
    for error in [alternate, alternate, "System role not supported"] {
        assert!(rules.learn(500, error, refused).is_some(), "{error}");
    }
    assert!(rules.join_users && rules.user_after_tool.is_some() && rules.system_as_user);
    assert_eq!(rules.learn(500, alternate, refused), None);
    // Over chat completions, what is signed or encrypted stands in fields of replies and of their calls.
    let signed = json!({"google": {"thought_signature": "S"}});
    let call = json!({"id": "c", "function": {"name": "f", "arguments": "{}", "provider_specific_fields": {}},
        "extra_content": signed});
    let reply = json!({"role": "assistant", "content": "a", "reasoning": "hm", "reasoning_details": [], "tool_calls": [call]});
    for error in [
        "messages.7.content.2: Invalid signature in thinking block",
        "Corrupted thought signature.",
        "The encrypted content gAAA could not be verified.",
    ] {
        let rules = self::learned(&[error], json!({}), std::slice::from_ref(&reply));
        let sent = rules.without_foreign_reasoning(&reply.clone().into()).unwrap();
        let call = json!({"id": "c", "function": {"name": "f", "arguments": "{}"}});
        assert_eq!(*sent, json!({"role": "assistant", "content": "a", "tool_calls": [call]}), "{error}");
        // The reasoning of a later reply is the model's own.
        let later = json!({"role": "assistant", "content": "b", "reasoning": "hm"}).into();
        assert_eq!(rules.without_foreign_reasoning(&later), None);
    }
    // A field that must come back is not one that is refused.
    let mut rules = Rules::default();
    let messages =
        [ChatMessage::from(json!({"role": "assistant", "content": "a", "reasoning_content": "hm"}))];
    let refused = Refused { messages: &messages, fields: &Map::new(), streams: false };
    let missing = "The `reasoning_content` in the thinking mode must be passed back to the API.";
    assert_eq!(rules.learn(400, missing, refused), None);
}

#[test]
fn a_server_that_refuses_later_reasoning_too_gets_none_but_for_anthropics() {
    let fields = Map::new();
    let refusals = |field: &str, error: &str| {
        let mut rules = Rules::default();
        let mut messages: Vec<ChatMessage> = Vec::new();
        for text in ["a", "b"] {
            messages
                .push(json!({"role": "assistant", "content": text, field: [{"type": "reasoning"}]}).into());
            let refused = Refused { messages: &messages, fields: &fields, streams: true };
            assert!(rules.learn(400, error, refused).is_some());
            assert_eq!(rules.learn(400, error, refused), None);
        }
        assert_eq!(rules.foreign_replies.len(), 2);
        rules.omits_of_replies(field)
    };
    let gone = "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.";
    // The first refusal in another conversation is not one of this one.
    let mut rules = Rules::default();
    for text in ["a", "b"] {
        let reply = json!({"role": "assistant", "content": text, "responses": [{"type": "reasoning"}]});
        let refused = Refused { messages: &[reply.into()], fields: &fields, streams: true };
        assert!(rules.learn(400, gone, refused).is_some());
    }
    assert!(!rules.omits_of_replies("responses"));
    assert!(refusals("responses", gone));
    let signature = "messages.1.content.0: Invalid `signature` in `thinking` block";
    assert!(refusals("reasoning_details", signature) && !refusals("anthropic", signature));
    // The newest one is left where others may be meant.
    let fields_of = |text: &str| json!({"role": "assistant", "content": text, "anthropic": {"content": [{"type": "thinking"}]}});
    let messages = ["a", "b", "c"].map(|text| ChatMessage::from(fields_of(text)));
    let refused = Refused { messages: &messages, fields: &fields, streams: true };
    let mut rules = Rules::default();
    for count in [2, 3] {
        assert!(rules.learn(400, signature, refused).is_some());
        assert_eq!(rules.foreign_replies.len(), count);
    }
    assert_eq!(rules.learn(400, signature, refused), None);
}

#[test]
fn replies_of_other_models_get_the_reasoning_that_a_server_wants() {
    let calls = json!([{"id": "c", "function": {"name": "f", "arguments": "{}"}}]);
    let reply = json!({"role": "assistant", "content": "", "tool_calls": calls});
    for error in [
        // DeepSeek and Kimi.
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
    ] {
        let rules = learned(&[error], json!({}), std::slice::from_ref(&reply));
        assert_eq!(rules, Rules { fill_reasoning: true, ..Rules::default() }, "{error}");
    }
}

#[test]
fn replies_that_say_nothing_are_left_out_once_a_request_with_one_is_refused() {
    let replies = ["", " \n"].map(|text| json!({"role": "assistant", "content": text, "reasoning": "hm"}));
    let null = json!({"role": "assistant", "content": null});
    let words = [
        "Assistant message must have either content or tool_calls, but not none.",
        "GenerateContentRequest.contents[1].parts: contents.parts must not be empty.",
        "messages.1: The final block in an assistant message cannot be `thinking`.",
        "Invalid API parameter, please check the documentation.",
    ];
    for (error, reply) in words.iter().zip(replies.iter().chain([&null, &null])) {
        let expected = Rules { omit_empty_replies: true, ..Rules::default() };
        assert_eq!(learned(&[error], json!({}), std::slice::from_ref(reply)), expected, "{error}");
    }
    let messages = [ChatMessage::from(null)];
    let refused = Refused { messages: &messages, fields: &Map::new(), streams: true };
    for (status, error) in [
        (500, words[3]),
        (400, "This model's maximum context length is 8192 tokens"),
        (400, "Your credit balance is too low to access the Anthropic API."),
    ] {
        assert_eq!(Rules::default().learn(status, error, refused), None, "{error}");
    }
    let said = [json!({"role": "assistant", "content": "a"}), json!({"role": "user", "content": ""})];
    let messages = said.map(ChatMessage::from);
    assert_eq!(Rules::default().learn(400, words[3], Refused { messages: &messages, ..refused }), None);
}

#[test]
fn a_server_is_known_by_its_host_its_owner_or_its_name() {
    let bound = |rules: Rules| rules.bound;
    let completion = Some("max_completion_tokens".to_owned());
    assert_eq!(bound(Rules::of_host("api.openai.com", "gpt-5")), completion);
    assert_eq!(bound(Rules::of_host("my.openai.azure.com", "gpt-5")), completion);
    assert_eq!(Rules::of_host("api.openai.com.evil.org", "gpt-5"), Rules::default());
    assert_eq!(Rules::of_host("api.anthropic.com", "m").api, Some(Api::Anthropic));
    assert_eq!(bound(Rules::of_host("localhost:11434", "m")), Some("max_tokens".to_owned()));
    assert_eq!(Rules::of_owner("sglang", "m").arguments, Some(ArgumentsForm::Json));
    assert_eq!(
        Rules::named("openrouter", "anthropic/claude").unwrap().add["cache_control"]["type"],
        "ephemeral"
    );
    assert!(Rules::named("openrouter", "m").unwrap().add.is_empty());
    let dashscope = Rules::named("dashscope", "m").unwrap();
    for limit in ["code: insufficient_quota", "Throttling.AllocationQuota"] {
        assert_eq!(dashscope.pause_after(limit), Some(Duration::from_secs(20)), "{limit}");
    }
    for other in ["Arrearage", "AllocationQuota.FreeTierOnly"] {
        assert_eq!(dashscope.pause_after(other), None, "{other}");
    }
    let per_minute = "Tokens per minute limit exceeded - too many tokens processed.";
    assert!(Rules::named("cerebras", "m").unwrap().pause_after(per_minute).is_some());
    assert!(Rules::named("nobody", "m").unwrap_err().contains("expected one of openai, azure, "));
}

#[test]
fn texts_of_errors_say_what_they_are_about() {
    use ErrorKind::{BadCall, ContextFull, NoCredit, NoTools, OtherWire, Overloaded};
    for (text, kind) in [
        ("This model's maximum context length is 8192 tokens", ContextFull),
        ("prompt is too long: 213462 tokens > 200000 maximum", ContextFull),
        ("Input length (9000 tokens) exceeds the maximum allowed length (8187 tokens).", ContextFull),
        ("max_tokens must be at least 1, got -808.", ContextFull),
        ("The decoder prompt (length 9) is longer than the maximum model length of 8.", ContextFull),
        ("total message size 2100954 exceeds limit 2097152", ContextFull),
        ("prompt token count of 138898 exceeds the limit of 64000", ContextFull),
        ("Input validation error: `inputs` must have less than 4096 tokens. Given: 4545", ContextFull),
        (
            "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs.",
            ContextFull,
        ),
        ("too many tokens: total number of tokens in the prompt cannot exceed 4081", ContextFull),
        ("Failed to get response from provider", Overloaded),
        (
            r#"{"error":{"code":400,"message":"Provider returned error","metadata":{"raw":"ERROR"}}}"#,
            Overloaded,
        ),
        ("registry.ollama.ai/library/x does not support tools", NoTools),
        ("Overloaded", Overloaded),
        ("Your credit balance is too low to access the Anthropic API.", NoCredit),
        ("code tool_use_failed: Failed to call a function", BadCall),
        ("To use function tools, use /v1/responses or set reasoning_effort", OtherWire),
        ("Function tools with reasoning_effort are not supported for m. Please use /v1/responses", OtherWire),
    ] {
        let kinds = [ContextFull, NoCredit, NoTools, Overloaded, BadCall, OtherWire]
            .into_iter()
            .filter(|kind| kind.is_of(text));
        assert_eq!(kinds.collect::<Vec<_>>(), [kind], "{text}");
    }
    let limit =
        "Request too large for model m on tokens per minute (TPM): Limit 12000; maximum context length";
    assert!(!ContextFull.is_of(limit));
    assert!(!ContextFull.is_of("too many tokens: max tokens must be less than or equal to 4096"));
}

#[test]
fn a_text_that_refuses_tools_names_them_beside_words_that_refuse() {
    for text in [
        "tools is not supported in this model. For a list of supported models, refer to https://a.org",
        "`tool calling` is not supported with this model",
        "litellm.UnsupportedParamsError: x does not support parameters: ['tools'], for model=m",
        "deepinfra error: Tool calling is not supported for model: mistralai/Mistral-Small-24B-Instruct-2501",
        "model features function calling not support",
        "Function call is not supported for this model.",
        "Unsupported tool_call_parser: None",
        "This model doesn't support tool use.",
        "Function calling is not enabled for models/gemma-3-27b-it",
        "No endpoints found that support tool use",
    ] {
        assert!(ErrorKind::NoTools.is_of(text), "{text}");
        // The words are not cut off.
        let long = format!("{}{text}", "é. ".repeat(200));
        assert!(ErrorKind::NoTools.is_of(&long[telling_part(&long).unwrap()..]), "{text}");
    }
    for text in [
        "Unsupported parameter: 'parallel_tool_calls'",
        "This functionality is not supported",
        "The model is not supported. Tools are documented at https://a.org",
        "image input is not supported, whatever this request of yours asks of the model or of any of its tools",
        "messages: unexpected `tool_use_id` found in `tool_result` blocks",
        "Invalid schema for function 'f': In context=(), object schema missing properties",
    ] {
        assert!(!ErrorKind::NoTools.is_of(text), "{text}");
    }
}
