//! Arguments and code as they are written.

use super::*;

#[test]
fn values_are_as_written() {
    let qwen = |value: &str| {
        let text =
            format!("<tool_call><function=f><parameter=code>{value}</parameter></function></tool_call>");
        let calls = written_calls(&text);
        assert_eq!(calls.len(), 1, "{text}");
        arguments(&calls[0].arguments).unwrap()["code"].as_str().unwrap().to_owned()
    };
    for (written, value) in [
        ("\n  if x:\n    y\n", "  if x:\n    y"),
        ("\r\nls\r\n", "ls"),
        ("\n\nls\n\n", "\nls\n"),
        ("", ""),
        ("3", "3"),
        ("null", "null"),
        (r#"{"a": 1}"#, r#"{"a": 1}"#),
        ("print('</parameter>')", "print('</parameter>')"),
        (
            "print('<think>', '</function>', '</tool_call>')",
            "print('<think>', '</function>', '</tool_call>')",
        ),
        ("```bash\nls\n```", "```bash\nls\n```"),
        (
            "print('<tool_call>{\"name\": \"a\"}</tool_call>')",
            "print('<tool_call>{\"name\": \"a\"}</tool_call>')",
        ),
    ] {
        assert_eq!(qwen(written), value);
    }
    // DeepSeek says which values are JSON.
    let deepseek = "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"n\" string=\"false\">3\
                    </｜DSML｜parameter><｜DSML｜parameter name=\"s\" string=\"true\">\n3</｜DSML｜parameter></｜DSML｜invoke>";
    assert_eq!(written_calls(deepseek), [call("f", r#"{"n":3,"s":"\n3"}"#)]);
    // Marks in the strings of JSON are text.
    let hermes =
        r#"<tool_call>{"name": "f", "arguments": {"code": "echo '</tool_call><think>```'"}}</tool_call>"#;
    assert_eq!(written_calls(hermes), [call("f", r#"{"code":"echo '</tool_call><think>```'"}"#)]);
    assert_eq!(thoughts(hermes), None);
    // Raw line breaks in strings.
    let raw = "<tool_call>{\"name\": \"f\", \"arguments\": {\"code\": \"ls\n\tpwd\"}}</tool_call>";
    assert_eq!(written_calls(raw), [call("f", r#"{"code":"ls\n\tpwd"}"#)]);
}

#[test]
fn faulty_arguments_between_marks_are_a_call() {
    // Faulty JSON is kept, so that the model reads of its fault, as with vLLM's mistral_tool_parser.py.
    let faulty = r#"{"code": "echo "hi""}"#;
    for text in [
        format!("<|tool_call_begin|>f:0<|tool_call_argument_begin|>{faulty}<|tool_call_end|>"),
        format!("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{faulty}<｜tool▁call▁end｜>"),
        format!("<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{faulty}\n```<｜tool▁call▁end｜>"),
        format!("<|channel|>commentary to=functions.f<|message|>{faulty}<|call|>"),
    ] {
        let calls = written_calls(&text);
        assert_eq!(calls.len(), 1, "{text}");
        assert_eq!(tool_named(&calls[0].name, &["f"]), Some("f"));
        assert_eq!(calls[0].arguments, faulty);
    }
}

#[test]
fn arguments_are_lenient_json() {
    let code = |code: &str| Ok(Map::from_iter([("code".to_owned(), Json::from(code))]));
    assert_eq!(arguments(r#"{"code": "ls\n"}"#), code("ls\n"));
    assert_eq!(arguments(" \n"), Ok(Map::new()));
    // Raw control characters: https://github.com/MoonshotAI/kimi-cli/pull/1460.
    assert_eq!(arguments("{\n\t\"code\": \"a\n\tb\r\n\\\"c\\\"\"}\n"), code("a\n\tb\r\n\"c\""));
    // Doubled: https://github.com/livekit/agents/pull/5409, https://github.com/tailcallhq/forgecode/pull/2764.
    assert_eq!(arguments(r#""{\"code\": \"ls\"}""#), code("ls"));
    assert_eq!(arguments("\"{\\\"code\\\": \\\"l\ns\\\"}\""), code("l\ns"));
    for text in ["[1]", "3", "null", r#""ls""#, r#""""#, r#""[1]""#] {
        assert_eq!(arguments(text), Err(ArgumentsFault::NotAnObject), "{text}");
    }
    for (text, error) in [
        (r#"{"code": "ls"#, "EOF while parsing a string at line 1 column 12"),
        (
            "{\"code\": \"a\nb\"} and",
            "control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0",
        ),
        ("{\"code\": \"a \\\nb\"}", "invalid escape at line 2 column 0"),
        ("{'code': 1}", "key must be a string at line 1 column 2"),
        ("ls", "expected value at line 1 column 1"),
        (
            "{\"code\": \"\u{1}\"}",
            "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 11",
        ),
    ] {
        assert_eq!(arguments(text), Err(ArgumentsFault::NotJson(error.to_owned())), "{text}");
    }
    assert!(matches!(arguments(&"[".repeat(1 << 20)), Err(ArgumentsFault::NotJson(_))));
}

#[test]
fn fenced_blocks_are_code_of_one_language() {
    let read = |text: &str| fenced(text, &["bash", "sh"], &["python", "py"]);
    // Blocks of a list's items, whose code stands behind their marks.
    for text in [
        "1. ```bash\n   if a; then\n     b\n   fi\n   ```\n",
        "- Do:\n  ```bash\n  if a; then\n    b\n  fi\n  ```\n",
    ] {
        assert_eq!(read(text), Fenced::Code("if a; then\n  b\nfi\n".to_owned()), "{text}");
    }
    let code = |code: &str| Fenced::Code(code.to_owned());
    let other = |tag: &str| Fenced::OtherLanguage(tag.to_owned());
    for (text, expected) in [
        (
            "First\n```bash\nls\n```\nthen\n````sh\necho '```'\n```\n````\n```python\n1\n```\n",
            code("ls\necho '```'\n```\n"),
        ),
        ("```bash\r\nls\r\n```\r\n", code("ls\n")),
        ("  ``` Bash \n  ls\n  ```", code("ls\n")),
        ("no code, and `ls` alone", Fenced::Nothing),
        ("```\nls\n```", Fenced::Nothing),
        ("```json\n{}\n```", Fenced::Nothing),
        ("```bash\nls\n```\n```bash\nls", Fenced::Open),
        ("```python\n1\n```\n```py\n2\n```", other("python")),
        ("```Py\n1", other("py")),
        ("```bash\n```", code("")),
        ("```ls```\n```bash\nls\n```", code("ls\n")),
        ("~~~bash\nls\n```\n~~~", code("ls\n```\n")),
        ("```bash\nls\n~~~\n```", code("ls\n~~~\n")),
        ("~~~markdown\n```bash\nls\n```\n~~~\n", Fenced::Nothing),
        ("~~bash\nls\n~~", Fenced::Nothing),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn large_code_is_read() {
    let code = "\n".repeat(1 << 20);
    let text = format!("<tool_call>{{\"name\": \"f\", \"arguments\": {{\"code\": \"{code}\"}}}}</tool_call>");
    let calls = written_calls(&text);
    assert_eq!(arguments(&calls[0].arguments).unwrap()["code"], code);
}
