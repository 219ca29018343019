//! Texts that are calls, and texts that only look so.

use super::*;

#[test]
fn every_form_is_one_call() {
    for text in CALLS_OF_LS.iter().chain(CALLS_WITH_PREFIXES) {
        let calls = written_calls(text);
        assert_eq!(calls.len(), 1, "{text}");
        assert_eq!(tool_named(&calls[0].name, &["call_bash_repl"]), Some("call_bash_repl"), "{text}");
        assert_eq!(calls[0].arguments, CODE, "{text}");
        // Behind thoughts and text, and among other calls.
        let text = format!("<think>```\n<tool_call></think>\nI look.\n{text}\n{text}");
        assert_eq!(written_calls(&text).len(), 2, "{text}");
        assert_eq!(written_calls(&without_thoughts(&text)).len(), 2, "{text}");
    }
    for text in CALLS_OF_LS {
        assert_eq!(written_calls(text), [call("call_bash_repl", CODE)], "{text}");
    }
}

#[test]
fn several_calls_stand_in_one_mark() {
    let expected = [call("a", r#"{"x":1}"#), call("b", "{}")];
    for text in [
        r#"<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call> <tool_call>{"name": "b"}</tool_call>"#,
        r#"<tool_call>{"name": "a", "arguments": {"x": 1}}<tool_call>{"name": "b"}"#,
        r#"[TOOL_CALLS][{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": {}}]"#,
        r#"[TOOL_CALLS]a[ARGS]{"x":1}[TOOL_CALLS]b[ARGS]{}"#,
        r#"<|python_tag|>{"name": "a", "parameters": {"x": 1}}; {"name": "b", "parameters": {}}"#,
        r#"<function_calls><invoke name="a">{"x":1}</invoke><invoke name="b"></invoke></function_calls>"#,
        r#"<tool_call><function=a>{"x":1}</function><function=b></function></tool_call>"#,
    ] {
        assert_eq!(written_calls(text), expected, "{text}");
    }
    let glm = "<tool_call>look\n</tool_call>\n<tool_call>list_all</tool_call>";
    assert_eq!(written_calls(glm), [call("look", "{}"), call("list_all", "{}")]);
}

#[test]
fn what_is_not_a_call_is_text() {
    for text in [
        r#"{"name": "f", "arguments": {}}"#,
        "[f(code='ls')]",
        "<|python_tag|>print(1)",
        "<tool_call>",
        "<tool_call>do it now</tool_call>",
        "<tool_call></tool_call>",
        r#"<tool_call>{"name": "f", "arguments": {"code": "l"#,
        r#"<tool_call>{"arguments": {}}</tool_call>"#,
        r#"<tool_call>{"name": "f", "arguments": {}, "parameters": {}}</tool_call>"#,
        "<tool_call><function=f><parameter=code>ls</tool_call>",
        "<tool_call><function=f><parameter=code>ls</parameter></tool_call>",
        "<tool_call><function=f><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>",
        "<tool_call>f<arg_key>code</arg_key><arg_value>ls</arg_value>",
        "[TOOL_CALLS] are the mark of Mistral",
        "<|channel|>commentary to=functions.f<|message|>{\"code\": \"l",
        "Write `<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>` to call.",
        "It writes `<|start|>assistant<|channel|>commentary to=functions.f<|message|>{\"code\": \"ls\"}<|call|>` then.",
        "> ```\n> [TOOL_CALLS]f{\"code\":\"ls\"}\n> ```",
        "<|channel|>final<|message|>It writes `<|channel|>commentary to=functions.f<|message|>{\"code\": \"ls\"}<|call|>` then.",
        "<|channel|>final<|message|>So:\n```\n<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}\n```\n<|end|>",
        "<|channel|>analysis<|message|>So:\n```\n<|channel|>commentary to=functions.f<|message|>{}\n```\n<|end|>",
        "<|channel|>analysis<|message|>So:\n> <|channel|>commentary to=functions.f<|message|>{}\n<|end|>",
        "It is `` `<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>` `` then.",
        "- ```xml\n  <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n  ```\n",
        "10) ```\n    - ```\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n    ```\n",
        "1. > [TOOL_CALLS]f{\"code\":\"ls\"}",
        "1. - > [TOOL_CALLS]f{\"code\":\"ls\"}",
        "- - ```\n    <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n    ```\n",
        "> <think>hm</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
        "> <|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>",
        "> <|channel|>commentary to=functions.f<|message|>{\"code\": \"ls\"}<|call|>",
        "```xml\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n```\n",
        "````\n```\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n```\n````\n",
        "The log has `x = <tool_call>{\"name\": \"f\"}</tool_call> ` in it.",
        "Not ``<tool_call>{\"name\": \"f\"}</tool_call>``, and not `a <tool_call>{\"name\": \"f\"}</tool_call>`.",
        "~~~\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n```\n~~~\n",
        "<think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
        "[TOOL_CALLS] I <think> of <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> [1]",
        "<function=f><parameter=a>1 <think> 2</parameter> <tool_call>{\"name\": \"f\"}</tool_call>",
    ] {
        assert_eq!(written_calls(text), [], "{text}");
    }
}

#[test]
fn calls_beside_code_spans_are_calls() {
    let call_of =
        |code: &str| format!("<tool_call>{{\"name\": \"f\", \"arguments\": \"{code}\"}}</tool_call>");
    for text in [
        format!("I run `f`: {}, then `g`.", call_of("`a`")),
        format!("1. ```bash\n   ls\n   ```\n\n{}", call_of("")),
        format!("It has a ` in it. {}", call_of("")),
        format!("So:\n```json\n{{}}\n```{}", call_of("`a`")),
        format!("It has a ` in it.\n{} `", call_of("")),
        format!("{}{}{} `f`", call_of("```"), call_of("a"), call_of("`b`")),
    ] {
        assert_eq!(written_calls(&text).len(), text.matches("<tool_call>").count(), "{text}");
    }
}

#[test]
fn a_quotation_in_a_harmony_message_ends_with_it() {
    let call = "<|start|>assistant<|channel|>commentary to=functions.f <|message|>{}<|call|>";
    for channel in ["analysis", "commentary"] {
        let text = format!("<|channel|>{channel}<|message|>You said:\n> do it<|end|>{call}");
        assert_eq!(written_calls(&text).len(), 1, "{text}");
    }
}

#[test]
fn cut_texts_make_no_new_calls() {
    for text in CALLS_OF_LS.iter().chain(CALLS_WITH_PREFIXES) {
        let calls = written_calls(text);
        for (at, _) in text.char_indices() {
            let found = written_calls(&text[..at]);
            assert!(found.is_empty() || found == calls, "{}", &text[..at]);
        }
    }
}

#[test]
fn names_have_prefixes_and_suffixes() {
    let names = ["call_bash_repl", "look", "look:1", "functions.look"];
    for (written, tool) in [
        ("look", Some("look")),
        (" look\n", Some("look")),
        ("look:1", Some("look:1")),
        ("functions.look", Some("functions.look")),
        // Kimi: SGLang's kimik2_detector.py. gpt-oss and later models: https://github.com/tontinton/maki/pull/518.
        ("functions.call_bash_repl", Some("call_bash_repl")),
        ("functions.call_bash_repl:0", Some("call_bash_repl")),
        ("call_bash_repl:12", Some("call_bash_repl")),
        // Gemini: https://github.com/tya5/reyn/issues/1989, https://github.com/bayesimpact/bayes-platform/pull/731.
        ("default_api.call_bash_repl", Some("call_bash_repl")),
        ("default_api:call_bash_repl", Some("call_bash_repl")),
        // https://github.com/anomalyco/opencode/pull/50438.
        ("tools.call_bash_repl", Some("call_bash_repl")),
        // Harmony: https://github.com/vllm-project/vllm/issues/32587, https://github.com/pydantic/pydantic-ai/pull/7168.
        ("call_bash_repl<|channel|>commentary", Some("call_bash_repl")),
        ("functions.call_bash_repl <|constrain|>json", Some("call_bash_repl")),
        ("look<|channel|>commentary", Some("look")),
        // Two tools fit.
        ("functions.look:1", None),
        ("call_bash_rep", None),
        ("Call_bash_repl", None),
        ("my.call_bash_repl", None),
        ("call_bash_repl:a", None),
        ("", None),
    ] {
        assert_eq!(tool_named(written, &names), tool, "{written}");
    }
    assert_eq!(tool_named("functions.a", &["a", "a"]), Some("a"));
}
