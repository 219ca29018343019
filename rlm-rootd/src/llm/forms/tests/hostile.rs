//! Texts of any form: none panics, takes long or makes up a call.

use super::super::marks::{MESSAGE_ENDS, NAMES, THOUGHTS};
use super::super::scanner::CALLS;
use super::*;

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
                drop((super::super::thoughts(text), written_calls(text), arguments(text).ok()));
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
fn a_line_may_begin_with_any_number_of_list_marks() {
    for mark in ["- ", "* ", "1. ", "-\t"] {
        let text = mark.repeat(500_000) + "[TOOL_CALLS]f{}";
        assert_eq!(written_calls(&text).len(), 1, "{mark:?}");
        assert_eq!(fenced(&text, &["bash"], &[]), Fenced::Nothing);
    }
}
