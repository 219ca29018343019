//! Thoughts among the text.

use super::*;

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
        (
            "It writes `<|channel|>analysis<|message|>hm<|end|>` first.",
            "It writes `<|channel|>analysis<|message|>hm<|end|>` first.",
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
        // LongCat and Hunyuan: ml-explore/mlx-lm, mlx_lm/tokenizer_utils.py.
        ("<longcat_think>hm</longcat_think>Yes", "Yes", Some("hm")),
        ("<think:opensource>hm</think:opensource>Yes", "Yes", Some("hm")),
        // MedGemma: https://github.com/ollama/ollama/issues/15754.
        ("<unused94>thought\nhm<unused95>Yes", "Yes", Some("hm")),
        // Apertus: ggml-org/llama.cpp, common/chat.cpp.
        ("<|inner_prefix|>hm<|inner_suffix|>Yes", "Yes", Some("hm")),
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
