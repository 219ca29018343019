//! Reasoning, and the other parts of replies besides their texts.

use super::*;

/// Text that only servers may read.
const SECRET: &str = "SECRET-SIGNATURE";

/// Messages of replies as servers give them, each with reasoning that begins "Let me see" and text that nobody may see.
fn replies() -> [Json; 6] {
    let thought = "Let me see.\n\n\tThe \u{1b}[2Jdocs come first, and then everything else that is in the working directory of \
                   this session.\nAt last.";
    let call = json!({
        "id": "call_1", "type": "function", "function": {"name": "call_bash_repl", "arguments": "{\"code\": \"ls\"}"},
        "extra_content": {"google": {"thought_signature": SECRET}},
    });
    [
        json!({"content": "Said.", "reasoning_content": thought, "tool_calls": [call]}),
        json!({"content": "Said.", "reasoning": thought, "reasoning_details": [
            {"type": "reasoning.text", "text": thought, "signature": SECRET},
            {"type": "reasoning.encrypted", "data": SECRET},
        ]}),
        json!({"content": "Said.", "thinking_blocks": [
            {"type": "redacted_thinking", "data": SECRET},
            {"type": "thinking", "thinking": thought, "signature": SECRET},
        ]}),
        json!({"content": [
            {"type": "redacted_thinking", "data": SECRET},
            {"type": "thinking", "thinking": [{"type": "text", "text": thought}], "signature": SECRET},
            {"type": "text", "text": "Said.", "thought_signature": SECRET},
        ]}),
        json!({"content": format!("<think>\n{thought}\n</think>\n\nSaid."), "signature": SECRET}),
        json!({"content": "Said.", "reasoning_content": thought,
            "anthropic": {"content": [{"type": "thinking", "thinking": thought, "signature": SECRET}]},
            "responses": {"output": [{"type": "reasoning", "encrypted_content": SECRET, "summary": []}]},
        }),
    ]
}

/// The beginning of a rollout in which a model gives this reply, and a sub-LLM as well.
fn with_reply(reply: &Json) -> String {
    let parts = ["rollout_started", "model_call", "message", "sub_call"].map(|event| {
        entry(event, |entry| match event {
            "model_call" => entry["reasoning_tokens"] = 30.into(),
            "message" => {
                (entry["turn"], entry["kind"], entry["message"]) = (1.into(), "reply".into(), reply.clone());
            }
            "sub_call" => {
                (entry["call_id"], entry["reply"]) = (Json::Null, reply.clone());
                entry["messages"] = json!([reply, {"role": "user", "content": "Go on."}]);
            }
            _ => {}
        })
    });
    parts.concat()
}

#[test]
fn reasoning_is_folded_wherever_it_is() {
    for reply in replies() {
        let input = with_reply(&reply);
        let shown = short_tree(&input);
        let line = "thought, 30 tokens: Let me see. The ␛[2Jdocs come first, and then…";
        assert!(shown.contains(&format!("\n│  {line}\n│  Said.\n")), "{shown}");
        assert!(
            shown.contains(
                "\n│  │  thought: Let me see. The ␛[2Jdocs come first, and then everything else…\n"
            ),
            "{shown}"
        );
        assert!(shown.contains("812 + 41 (30 reasoning) tokens"), "{shown}");
        assert!(!shown.contains("At last.") && !shown.contains("<think>"), "{shown}");
        let whole = tree(&rollouts(&input, Lengths::default()), false, true);
        assert_eq!(whole.matches("At last.").count(), 2, "{whole}");
        let page = page(&input, ON_A_PAGE);
        let fold = "<details class=\"thought\">\n<summary>thought, 30 tokens: Let me see. The ␛[2Jdocs come first, and \
                    then everything else that is in the wor…</summary>\n<pre class=\"faint\">\nLet me see.";
        assert!(page.contains(fold), "{page}");
        assert_eq!(page.matches("<details class=\"thought\">").count(), 2, "{page}");
        assert_eq!(page.matches("\nSaid.</pre>").count(), 2, "{page}");
        assert_eq!(rows_of(&page)[0]["spent"][0]["reasoning_tokens"], 30);
    }
}

#[test]
fn nobody_sees_signatures_and_encrypted_reasoning() {
    for reply in replies() {
        let input = with_reply(&reply);
        assert!(input.contains(SECRET));
        for (lengths, is_full) in [(IN_TERMINAL, false), (Lengths::default(), true)] {
            let shown = tree(&rollouts(&input, lengths), false, is_full);
            assert!(!shown.contains(SECRET), "{shown}");
            assert!(!page(&input, lengths).contains(SECRET));
        }
        let log = exported(&input, None).unwrap();
        assert!(log.contains("Said.") && !log.contains(SECRET), "{log}");
    }
}

#[test]
fn reasoning_is_found() {
    let rollouts = rollouts(&with_reply(&replies()[0]), Lengths::default());
    assert!(rollouts.list[0].has_words(&["docs".to_owned(), "said.".to_owned()]));
    assert!(!rollouts.list[0].has_words(&[SECRET.to_lowercase()]));
}

#[test]
fn what_was_not_sent_as_it_came_and_unusual_ends_are_shown() {
    let input = entry("rollout_started", |_| {})
        + &entry("model_call", |entry| {
            entry["finish_reason"] = "length".into();
            entry["adapted"] = json!(["`x` of replies is left out: the server\u{1b} refuses <it>"]);
        });
    let shown = short_tree(&input);
    assert!(shown.contains("2 attempts · ended by length\n"), "{shown}");
    let words = "not sent as it came: `x` of replies is left out: the server␛ refuses <it>\n";
    assert!(shown.contains(&format!("│  {words}")), "{shown}");
    let page = page(&input, ON_A_PAGE);
    assert!(page.contains("<p class=\"notice\">not sent as it came: `x` of replies is left out: the server␛ refuses &lt;it&gt;</p>"));
    assert!(page.contains(" · ended by length</span>"));
    assert!(!short_tree(EXAMPLE).contains("ended by"), "they are ordinary");
}
