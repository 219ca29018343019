//! The fields of a request beside its messages.

use super::super::request::options;
use super::*;

fn options_of(fields: &Json) -> Json {
    Json::Object(options(fields.as_object().expect("the fields of a test are an object"), 4096))
}

#[test]
fn fields_have_their_names_here() {
    let unchanged = json!({
        "temperature": 0.5, "top_k": 3, "service_tier": "auto", "n": 2, "metadata": {"user_id": "a"}, "max_tokens": 9,
    });
    assert_eq!(options_of(&unchanged), unchanged);
    let thinking = json!({"type": "enabled", "budget_tokens": 32_000});
    assert_eq!(options_of(&json!({"thinking": thinking}))["max_tokens"], 36_096);
    let translated = options_of(&json!({
        "max_tokens": null, "max_completion_tokens": 7, "temperature": null, "stop": ["a", "b"], "user": "ignored",
        "metadata": {"user_id": "a"}, "output_config": {"effort": "low"}, "n": 1, "tools": [], "tool_choice": "auto",
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
    }));
    let expected = json!({
        "metadata": {"user_id": "a"}, "max_tokens": 7, "stop_sequences": ["a", "b"],
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    });
    assert_eq!(translated, expected);
    assert_eq!(options_of(&json!({"response_format": {"type": "json_object"}})), json!({"max_tokens": 4096}));
}

#[test]
fn tools_and_their_choice_are_translated() {
    let native = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 2});
    let mut marked = native.clone();
    marked["cache_control"] = json!({"type": "ephemeral"});
    let strict = json!({"name": "f", "description": null, "strict": true, "parameters": null});
    let tools = json!([marked, {"type": "function", "function": strict}]);
    let options = |mut given: Json| {
        given["tools"] = tools.clone();
        options_of(&given)
    };
    let expected = json!([native, {"name": "f", "strict": true, "input_schema": {"type": "object"}}]);
    assert_eq!(options(json!({}))["tools"], expected);
    let choice = |given: Json| options(given)["tool_choice"].clone();
    assert_eq!(choice(json!({})), Json::Null);
    assert_eq!(choice(json!({"tool_choice": "none", "parallel_tool_calls": false})), json!({"type": "none"}));
    assert_eq!(choice(json!({"tool_choice": "auto", "parallel_tool_calls": true})), json!({"type": "auto"}));
    let single = json!({"type": "auto", "disable_parallel_tool_use": true});
    assert_eq!(choice(json!({"tool_choice": null, "parallel_tool_calls": false})), single);
    let named = json!({"type": "function", "function": {"name": "f"}});
    assert_eq!(choice(json!({"tool_choice": named})), json!({"type": "tool", "name": "f"}));
    for native in [json!({"type": "any"}), json!(3)] {
        assert_eq!(choice(json!({"tool_choice": native, "parallel_tool_calls": null})), native);
    }
}
