//! Forms of calls and thoughts, each with its source.

mod calls;
mod hostile;
mod thoughts;
mod values;

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
    // DeepSeek V3.2 or V4 without the section: sgl-project/sglang#40236.
    "<｜DSML｜invoke name=\"call_bash_repl\">\n<｜DSML｜parameter name=\"code\" string=\"true\">ls</｜DSML｜parameter>\n\
     </｜DSML｜invoke>",
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
