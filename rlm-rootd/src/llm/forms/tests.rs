//! Forms of calls and thoughts, each with its source.

use super::scanner::{CALLS, MESSAGE_ENDS, NAMES, THOUGHTS};
use super::*;

const CODE: &str = r#"{"code":"ls"}"#;

/// Texts that are calls of `call_bash_repl` with the code `ls`.
const CALLS_OF_LS: &[&str] = &[
    // Hermes: vllm-project/vllm, vllm/tool_parsers/hermes_tool_parser.py.
    r#"<tool_call>{"name": "call_bash_repl", "arguments": {"code": "ls"}}</tool_call>"#,
    "<tool_call>\n{\"name\": \"call_bash_repl\", \"arguments\": {\"code\": \"ls\"}}\n</tool_call>",
    // Without the closing tag at the end: the same file, `<tool_call>(.*)`.
    r#"<tool_call>{"name": "call_bash_repl", "arguments": {"code": "ls"}}"#,
    // Arguments as JSON text, Granite 4: https://github.com/vllm-project/vllm/pull/54964.
    r#"<tool_call>{"name": "call_bash_repl", "arguments": "{\"code\":\"ls\"}"}</tool_call>"#,
    // LongCat: sgl-project/sglang, python/sglang/srt/function_call/longcat_detector.py.
    "<longcat_tool_call>\n{\"name\": \"call_bash_repl\", \"arguments\": {\"code\": \"ls\"}}\n</longcat_tool_call>",
    // Qwen3-Coder: vllm-project/vllm, vllm/tool_parsers/qwen3coder_tool_parser.py.
    "<tool_call>\n<function=call_bash_repl>\n<parameter=code>\nls\n</parameter>\n</function>\n</tool_call>",
    // Without the opening tag: https://github.com/ollama/ollama/issues/16686.
    "I look.\n\n<function=call_bash_repl>\n<parameter=code>\nls\n</parameter>\n</function>\n</tool_call>",
    // Llama 3.1's custom calls: https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1.
    r#"<function=call_bash_repl>{"code":"ls"}</function>"#,
    // Seed-OSS: vllm-project/vllm, vllm/tool_parsers/seed_oss_tool_parser.py.
    "<seed:tool_call>\n<function=call_bash_repl>\n<parameter=code>ls</parameter>\n</function>\n</seed:tool_call>",
    // GLM-4.5 and 4.6: sgl-project/sglang, python/sglang/srt/function_call/glm4_moe_detector.py.
    "<tool_call>call_bash_repl\n<arg_key>code</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
    // With backslashes for line breaks: https://github.com/sgl-project/sglang/pull/12456.
    r"<tool_call>call_bash_repl\n<arg_key>code</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
    // GLM-4.7 and 5: sgl-project/sglang, python/sglang/srt/function_call/glm47_moe_detector.py.
    "<tool_call>call_bash_repl<arg_key>code</arg_key><arg_value>ls</arg_value></tool_call>",
    // Mistral before and from tokenizer 11 on: vllm-project/vllm, vllm/tool_parsers/mistral_tool_parser.py.
    r#"[TOOL_CALLS] [{"name": "call_bash_repl", "arguments": {"code": "ls"}}]"#,
    r#"[TOOL_CALLS]call_bash_repl{"code":"ls"}"#,
    r#"[TOOL_CALLS]call_bash_repl[ARGS]{"code":"ls"}"#,
    // Tokenizer 11: mistralai/mistral-common, src/mistral_common/tokens/tokenizers/instruct.py.
    r#"[TOOL_CALLS]call_bash_repl[CALL_ID]a1b2c3d4e[ARGS]{"code":"ls"}"#,
    // DeepSeek V3 and R1: sgl-project/sglang, python/sglang/srt/function_call/deepseekv3_detector.py.
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>call_bash_repl\n```json\n{\"code\":\"ls\"}\n```\
     <｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    // DeepSeek V3.1: the same folder, deepseekv31_detector.py.
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>call_bash_repl<｜tool▁sep｜>{\"code\":\"ls\"}<｜tool▁call▁end｜>",
    // DeepSeek V3.2, three of its forms: the same folder, deepseekv32_detector.py.
    "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"call_bash_repl\">\n<｜DSML｜parameter name=\"code\" \
     string=\"true\">ls</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "<｜DSML｜function_calls><｜DSML｜invoke name=\"call_bash_repl\">{\"code\":\"ls\"}</｜DSML｜invoke>",
    "<function_calls>\n<invoke name=\"call_bash_repl\">\n<parameter name=\"code\" string=\"true\">ls</parameter>\n\
     </invoke>\n</function_calls>",
    // DeepSeek V4: vllm-project/vllm, vllm/tool_parsers/deepseekv4_tool_parser.py.
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"call_bash_repl\">\n<｜DSML｜parameter name=\"code\" \
     string=\"true\">ls</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    // MiniMax M2: sgl-project/sglang, python/sglang/srt/function_call/minimax_m2.py.
    "<minimax:tool_call>\n<invoke name=\"call_bash_repl\">\n<parameter name=\"code\">ls</parameter>\n</invoke>\n\
     </minimax:tool_call>",
    // Llama 3: sgl-project/sglang, python/sglang/srt/function_call/llama32_detector.py.
    r#"<|python_tag|>{"type": "function", "name": "call_bash_repl", "parameters": {"code": "ls"}}"#,
    // Cohere: the same folder, cohere_command4_detector.py.
    "<|START_ACTION|>[\n{\"tool_call_id\": \"0\", \"tool_name\": \"call_bash_repl\", \"parameters\": \
     {\"code\": \"ls\"}}\n]<|END_ACTION|>",
];

/// Calls of `call_bash_repl` by names that need `tool_named`.
const CALLS_WITH_PREFIXES: &[&str] = &[
    // Kimi K2: https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/docs/tool_call_guidance.md.
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.call_bash_repl:0<|tool_call_argument_begin|>\
     {\"code\":\"ls\"}<|tool_call_end|><|tool_calls_section_end|>",
    // gpt-oss: https://github.com/openai/harmony/blob/main/docs/format.md, "Receiving tool calls".
    "<|channel|>analysis<|message|>Need ls.<|end|><|start|>assistant<|channel|>commentary \
     to=functions.call_bash_repl <|constrain|>json<|message|>{\"code\":\"ls\"}<|call|>",
    "<|start|>assistant to=functions.call_bash_repl<|channel|>commentary json<|message|>{\"code\":\"ls\"}",
    // On the analysis channel: https://github.com/openvinotoolkit/model_server/pull/3863.
    "<|channel|>analysis to=functions.call_bash_repl code<|message|>{\"code\":\"ls\"}<|call|>",
];

fn call(name: &str, arguments: &str) -> WrittenCall {
    WrittenCall { name: name.to_owned(), arguments: arguments.to_owned() }
}

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
        format!("It has a ` in it. {}", call_of("")),
        format!("It has a ` in it.\n{} `", call_of("")),
        format!("{}{}{} `f`", call_of("```"), call_of("a"), call_of("`b`")),
    ] {
        assert_eq!(written_calls(&text).len(), text.matches("<tool_call>").count(), "{text}");
    }
}

#[test]
fn thoughts_are_taken_out() {
    for (text, rest, thought) in [
        ("No thought, x < y and [1].", "No thought, x < y and [1].", None),
        ("<think>hm</think>Yes", "Yes", Some("hm")),
        ("<think>a</think>b\n<think>c</think>\nd", "b\n\nd", Some("a\n\nc")),
        ("<think></think>Yes", "Yes", None),
        // Not closed.
        ("Well.\n<think>```bash\nls\n```", "Well.\n", Some("```bash\nls\n```")),
        // Opened by the prompt: DeepSeekR1Detector in SGLang's python/sglang/srt/parser/reasoning_parser.py.
        ("hm</think>Yes", "Yes", Some("hm")),
        ("a</think>b</think>c", "c", Some("a</think>b")),
        ("a</think>b<think>c</think>d", "b\nd", Some("a\n\nc")),
        (
            "<think>use <think> and </think> here</think>Yes",
            "Yes",
            Some("<think>use <think> and </think> here"),
        ),
        // Blocks in thoughts are thoughts, also those left open.
        (
            "<think>\n```bash\nrm x\n```\n</think>\n```bash\nls\n```",
            "```bash\nls\n```",
            Some("```bash\nrm x\n```"),
        ),
        (
            "I try\n```bash\nrm x\n</think>\n```bash\nls\n```",
            "```bash\nls\n```",
            Some("I try\n```bash\nrm x"),
        ),
        // The mark behind the closing fence of a block, and at either end of a line of an open one.
        ("I try\n```bash\nrm x\n```</think>\nYes", "Yes", Some("I try\n```bash\nrm x\n```")),
        ("I try\n~~~bash\nrm x\n~~~~ </think>Use `x`", "Use `x`", Some("I try\n~~~bash\nrm x\n~~~~")),
        ("```bash\nrm x </think>\nYes", "Yes", Some("```bash\nrm x")),
        ("```bash\nI don't know.</think>\nYes", "Yes", Some("```bash\nI don't know.")),
        ("```bash\nrm x\n</think>```bash\nls\n```", "```bash\nls\n```", Some("```bash\nrm x")),
        // Code has it in the middle of a line, in quotes, or behind an opening mark.
        ("```bash\nx </think> y\n```", "```bash\nx </think> y\n```", None),
        ("```bash\nx='a\nb' y='</think>\n'\n```", "```bash\nx='a\nb' y='</think>\n'\n```", None),
        ("```xml\n<think>hm</think>\n```", "```xml\n<think>hm</think>\n```", None),
        // Between two code spans, a mark is none of them.
        ("Maybe `ls`</think>`pwd` it is.", "`pwd` it is.", Some("Maybe `ls`")),
        ("Maybe `ls</think>\n`pwd` it is.", "`pwd` it is.", Some("Maybe `ls")),
        ("Use `a </think> b` and `<think> c`.", "Use `a </think> b` and `<think> c`.", None),
        // Any letter case, and attributes.
        ("<THINK>hm</THINK>Yes", "Yes", Some("hm")),
        ("<Thinking>hm</thinking>Yes", "Yes", Some("hm")),
        ("hm</Think>Yes", "Yes", Some("hm")),
        ("<think lang=\"en\">hm</think>Yes", "Yes", Some("hm")),
        ("<THINKING a='1' b=\"2\">\nhm", "", Some("hm")),
        (
            "Vec<Thinker>, <think of it>, [think] and <thinker a=1>",
            "Vec<Thinker>, <think of it>, [think] and <thinker a=1>",
            None,
        ),
        // Names of types and elements are marks at the beginning of a line alone, as they are written, and never in blocks.
        ("Well.\n<reasoning>hm</reasoning>Yes", "Well.\nYes", Some("hm")),
        ("<think>a</think><reason>b</reason>Yes", "Yes", Some("a\n\nb")),
        ("hm\n</thought>\nYes", "Yes", Some("hm")),
        ("a Vec<Thought>, an Option<Reason>", "a Vec<Thought>, an Option<Reason>", None),
        ("a Vec<Thinking>, Promise<Think>", "a Vec<Thinking>, Promise<Think>", None),
        ("<order><reason>late</reason></order>", "<order><reason>late</reason></order>", None),
        ("{\"html\": \"<reason>x</reason>\"}", "{\"html\": \"<reason>x</reason>\"}", None),
        ("1: a\n2: see </reason> in line 9\n", "1: a\n2: see </reason> in line 9\n", None),
        ("<Reasoning>\nhm", "<Reasoning>\nhm", None),
        ("```bash\nx='\n</thought>'\n```", "```bash\nx='\n</thought>'\n```", None),
        ("```bash\nls # ends a </reasoning>\n```", "```bash\nls # ends a </reasoning>\n```", None),
        // A fence behind a thought begins a line.
        ("Now<think>hm</think>```bash\nls\n```", "Now\n```bash\nls\n```", Some("hm")),
        // Marks in the code of blocks and in backquotes are text.
        ("```python\nprint('<think>')\n```", "```python\nprint('<think>')\n```", None),
        ("```python\nprint('</think>')\n```", "```python\nprint('</think>')\n```", None),
        ("```\n<think>\nhm\n</think>\n```\n", "```\n<think>\nhm\n</think>\n```\n", None),
        // https://github.com/nesquena/hermes-webui/issues/2152.
        (
            "Use `<think>` to start and `</think>` to end.",
            "Use `<think>` to start and `</think>` to end.",
            None,
        ),
        // Other marks. `<thinking>`, `<reasoning>` and others: Open WebUI, backend/open_webui/utils/middleware.py.
        ("<thinking>hm</thinking>Yes", "Yes", Some("hm")),
        ("<reasoning>hm</reasoning>Yes", "Yes", Some("hm")),
        ("<reason>hm</reason>Yes", "Yes", Some("hm")),
        ("<|begin_of_thought|>hm<|end_of_thought|>Yes", "Yes", Some("hm")),
        // https://github.com/HKUDS/nanobot/pull/2991.
        ("<thought>hm</thought>Yes", "Yes", Some("hm")),
        // Magistral, Kimi, Gemma 4, MiniMax M3, Cohere, Kimi K3: SGLang's reasoning_parser.py.
        ("[THINK]hm[/THINK]Yes", "Yes", Some("hm")),
        ("◁think▷hm◁/think▷Yes", "Yes", Some("hm")),
        ("<|channel>thought\nhm<channel|>Yes", "Yes", Some("hm")),
        ("<mm:think>hm</mm:think>Yes", "Yes", Some("hm")),
        ("<|START_THINKING|>hm<|END_THINKING|>Yes", "Yes", Some("hm")),
        ("<|open|>think<|sep|>hm<|close|>think<|sep|>Yes", "Yes", Some("hm")),
        // Seed-OSS: vllm-project/vllm, vllm/tool_parsers/seed_oss_tool_parser.py.
        ("<seed:think>hm</seed:think>Yes", "Yes", Some("hm")),
        // gpt-oss: https://github.com/openai/harmony/blob/main/docs/format.md.
        (
            "<|channel|>analysis<|message|>hm<|end|>\n<|start|>assistant<|channel|>final<|message|>Yes<|return|>",
            "Yes",
            Some("hm"),
        ),
        (
            "<|channel|>analysis<|message|>hm<|start|>assistant<|channel|>commentary<|message|>Plan<|end|>\
             <|start|>assistant<|channel|>final<|message|>```bash\nls\n```<|return|>",
            "Plan\n```bash\nls\n```",
            Some("hm"),
        ),
        ("<|channel|>analysis<|message|>hm", "", Some("hm")),
        ("```\n<|channel|>analysis<|message|>hm\n```", "```\n<|channel|>analysis<|message|>hm\n```", None),
    ] {
        assert_eq!(without_thoughts(text), rest, "{text}");
        assert_eq!(thoughts(text).as_deref(), thought, "{text}");
    }
    assert!(matches!(without_thoughts("Yes"), Cow::Borrowed("Yes")));
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
    let code = |code: &str| Fenced::Code(code.to_owned());
    let other = |tag: &str| Fenced::OtherLanguage(tag.to_owned());
    for (text, expected) in [
        (
            "First\n```bash\nls\n```\nthen\n````sh\necho '```'\n```\n````\n```python\n1\n```\n",
            code("ls\necho '```'\n```\n"),
        ),
        ("```bash\r\nls\r\n```\r\n", code("ls\n")),
        ("  ``` Bash \n  ls\n  ```", code("  ls\n")),
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
fn every_mark_begins_with_one_of_three_characters() {
    let thoughts = || THOUGHTS.iter().chain(NAMES);
    let opening = thoughts().map(|(open, _)| open).chain(CALLS.iter().map(|(open, ..)| open));
    let all = opening.chain(thoughts().map(|(_, close)| close)).chain(&MESSAGE_ENDS);
    assert!(all.into_iter().all(|mark| mark.starts_with(['<', '[', '◁'])));
}

#[test]
fn no_text_panics() {
    let thoughts = THOUGHTS
        .iter()
        .chain(NAMES)
        .map(|(open, close)| format!("{open}a`{close}`b{close}{open}c\n```sh\n{close}\nd"));
    let marks = CALLS.iter().map(|(open, close, _)| format!("{open} é {{[ {close}{close}{open}"));
    let samples = CALLS_OF_LS
        .iter()
        .chain(CALLS_WITH_PREFIXES)
        .map(|text| format!("ä`{text}`\n```bash\n{text}\n```\n{text}"));
    for text in samples.chain(thoughts).chain(marks) {
        for (at, _) in text.char_indices() {
            for text in [&text[..at], &text[at..]] {
                let rest = without_thoughts(text);
                assert_eq!(without_thoughts(&rest), rest, "{text}");
                drop((super::thoughts(text), written_calls(text), arguments(text).ok()));
                drop((fenced(text, &["bash"], &["python"]), tool_named(text, &["bash"])));
            }
        }
    }
}

#[test]
fn hostile_texts_end_without_a_call_of_another_name() {
    // In quadratic time, these would take hours, and the test runner would end them.
    let parameter = "<tool_call><function=f><parameter=a>";
    let patterns = [
        "<",
        "<tool_call>",
        "<t",
        "`",
        "```\n",
        "\n",
        "◁",
        "[TOOL_CALLS]",
        "[TOOL_CALLS][",
        "[TOOL_CALLS][{\"name\":\"",
        "<tool_call>{",
        "<tool_call>{\"",
        "<tool_call>{\"a\":\"",
        "<tool_call>{\"a\\\":",
        "<tool_call>\n",
        "<think>",
        "</think>",
        "<think></think>",
        "```<think></think>",
        "`<think>`",
        "```sh\n</think>\n",
        "```sh\n\"</think>\n",
        "```</think>",
        "~~~\n",
        "`<tool_call>{\"name\":\"f\"}</tool_call>",
        "`</think>",
        "<think a",
        "<think a=",
        "<reason>\n",
        "</reason>\n",
        "<|channel|>",
        "<|start|>",
        "<|channel|>final<|message|>",
        "<|channel|>analysis<|message|>",
        "<|channel|>x to=f<|message|>",
        "<|message|>",
        "<function=f>",
        parameter,
        "</parameter>",
        "<tool_call>f<arg_key>a</arg_key><arg_value>",
        "<minimax:tool_call><invoke name=\"a\">",
        "<function_calls><invoke name=\"a\"><parameter name=\"a\">",
        "<|tool_call_begin|>f<|tool_call_argument_begin|>",
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>",
        "<tool_call>{\"name\":\"f\"}",
        "<|python_tag|>{\"name\":\"f\"};",
    ];
    let mut texts: Vec<_> =
        patterns.iter().map(|pattern| pattern.repeat((1 << 17) / pattern.len())).collect();
    texts.extend(["<", "<tool_call>"].map(|pattern| pattern.repeat((1 << 20) / pattern.len())));
    texts.push(parameter.repeat(1 << 12) + &"</parameter>x".repeat(1 << 14));
    texts.push(parameter.repeat(1 << 12) + "</parameter>" + &"<parameter=a>x</parameter>".repeat(1 << 13));
    texts.push("<tool_call>{\"name\": \"".to_owned() + &"<tool_call>\\\"".repeat(1 << 14));
    for text in texts {
        let beginning = &text[..text.floor_char_boundary(60)];
        let calls = written_calls(&text);
        assert!(calls.iter().all(|call| call.name.starts_with('f')), "{beginning}: {:?}", calls.first());
    }
}

#[test]
fn large_code_is_read() {
    let code = "\n".repeat(1 << 20);
    let text = format!("<tool_call>{{\"name\": \"f\", \"arguments\": {{\"code\": \"{code}\"}}}}</tool_call>");
    let calls = written_calls(&text);
    assert_eq!(arguments(&calls[0].arguments).unwrap()["code"], code);
}
