//! The marks around thoughts and calls.

/// Marks around thoughts: those of SGLang's `reasoning_parser.py` and Open WebUI's `middleware.py`. Those in lower case are read in
/// any, and tags may have attributes.
pub(super) const THOUGHTS: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<think:opensource>", "</think:opensource>"),
    ("<unused94>thought", "<unused95>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<mm:think>", "</mm:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
];

/// Marks around thoughts that are also names of types and of elements, as in `Vec<Thought>`: they are read as they are here, at the
/// beginning of a line outside of blocks.
pub(super) const NAMES: &[(&str, &str)] =
    &[("<thought>", "</thought>"), ("<reason>", "</reason>"), ("<reasoning>", "</reasoning>")];

/// The mark before a call of DeepSeek V3.2 and V4.
pub(super) const DSML_INVOKE: &str = "<｜DSML｜invoke name=\"";

/// Marks that may follow the end of a parameter's value. Elsewhere, the same mark belongs to the value.
pub(super) const AFTER_VALUES: &[(&str, &[&str])] = &[
    ("</parameter>", &["<parameter=", "</function>", "<parameter name=", "</invoke>"]),
    ("</｜DSML｜parameter>", &["<｜DSML｜parameter name=", "</｜DSML｜invoke>"]),
    ("</arg_value>", &["<arg_key>", "</tool_call>", "\\n<arg_key>", "\\n</tool_call>"]),
];

/// Marks that end a harmony message. The last two begin the next one.
pub(super) const MESSAGE_ENDS: [&str; 5] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"];
