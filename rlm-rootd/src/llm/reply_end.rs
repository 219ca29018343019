//! Why replies end.

use ReplyEnd::{BadCall, Cut, Done, Failed, Filtered, Paused, Refused, WindowFull};

/// The beginnings of finish reasons in lower case: servers write them in either case and add details, such as
/// `content_filter: PROHIBITED_CONTENT`. Gemini's own names come through proxies (<https://ai.google.dev/api/generate-content>).
const ENDS: &[(&str, ReplyEnd)] = &[
    ("length", Cut),
    // Anthropic and Gemini.
    ("max_tokens", Cut),
    ("max_output_tokens", Cut),
    // Mistral (mistralai/client-python, `ChatCompletionChoice.finish_reason`).
    ("model_length", Cut),
    ("model_context_window_exceeded", WindowFull),
    // MiMo's `repetition_truncation` (XiaomiMiMo/MiMo#98), and vLLM's `repetition` (BerriAI/litellm#27101).
    ("repetition", Cut),
    ("content_filter", Filtered),
    ("safety", Filtered),
    ("image_safety", Filtered),
    ("recitation", Filtered),
    ("prohibited_content", Filtered),
    ("blocklist", Filtered),
    ("spii", Filtered),
    // Bedrock (aws-samples/bedrock-access-gateway passes it on): the text is that of the guardrail.
    ("guardrail_intervened", Filtered),
    // Z.ai (<https://docs.z.ai/api-reference/llm/chat-completion>).
    ("sensitive", Filtered),
    ("refusal", Refused),
    // Gemini: `function_call_filter: MALFORMED_FUNCTION_CALL`, in a choice without a message.
    ("function_call_filter", BadCall),
    ("malformed_function_call", BadCall),
    ("unexpected_tool_call", BadCall),
    ("pause_turn", Paused),
    // OpenRouter and vLLM.
    ("error", Failed),
    // Z.ai.
    ("network_error", Failed),
    // DeepSeek (<https://api-docs.deepseek.com/api/create-chat-completion>).
    ("insufficient_system_resource", Failed),
    // vLLM (`FinishReason`) and SGLang (`FINISH_ABORT`).
    ("abort", Failed),
];

/// Why a reply has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyEnd {
    /// The reply is complete, or its reason is not known.
    Done,
    /// The limit of tokens was reached.
    Cut,
    /// The model's context window was full.
    WindowFull,
    /// A content filter of the server cut the reply.
    Filtered,
    /// The model refused.
    Refused,
    /// The model wrote a call that the server could not read; the next sample may be right.
    BadCall,
    /// The server wants the conversation once more, to go on with the same reply.
    Paused,
    /// The server failed within the reply, or interrupted it.
    Failed,
}

impl ReplyEnd {
    /// The end that a finish reason tells.
    #[must_use]
    pub fn of(finish_reason: Option<&str>) -> Self {
        let reason = finish_reason.unwrap_or_default().as_bytes();
        let begins_with = |beginning: &str| {
            reason
                .get(..beginning.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
        };
        ENDS.iter().find(|(beginning, _)| begins_with(beginning)).map_or(Done, |(_, end)| *end)
    }

    /// True for a reply that is cut off at a limit.
    #[must_use]
    pub fn is_cut(self) -> bool {
        matches!(self, Cut | WindowFull)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_known_by_its_beginning_in_any_case() {
        for (reason, end) in [
            ("stop", Done),
            ("tool_calls", Done),
            ("", Done),
            ("length", Cut),
            ("MAX_TOKENS", Cut),
            ("model_length", Cut),
            ("repetition_truncation", Cut),
            ("model_context_window_exceeded", WindowFull),
            ("SAFETY", Filtered),
            ("content_filter: PROHIBITED_CONTENT", Filtered),
            ("refusal", Refused),
            ("function_call_filter: MALFORMED_FUNCTION_CALL", BadCall),
            ("MALFORMED_FUNCTION_CALL", BadCall),
            ("pause_turn", Paused),
            ("error", Failed),
            ("network_error", Failed),
            ("insufficient_system_resource", Failed),
            ("abort", Failed),
            ("sensitive", Filtered),
            ("GUARDRAIL_INTERVENED", Filtered),
            ("lengthé", Cut),
            ("lengt", Done),
        ] {
            assert_eq!(ReplyEnd::of(Some(reason)), end, "{reason}");
        }
        assert_eq!(ReplyEnd::of(None), Done);
    }
}
