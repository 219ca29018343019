//! The limits of a model, as its server lists them.

use serde_json::Value as Json;

/// Places of the size of the context window: OpenRouter, vLLM and SGLang, Groq, Mistral, llama.cpp, Anthropic.
const CONTEXT: [&str; 7] = [
    "/top_provider/context_length",
    "/context_length",
    "/max_model_len",
    "/context_window",
    "/max_context_length",
    "/meta/n_ctx",
    "/max_input_tokens",
];

/// Places of the longest completion: OpenRouter, Groq, Anthropic.
const COMPLETION: [&str; 3] =
    ["/top_provider/max_completion_tokens", "/max_completion_tokens", "/max_tokens"];

/// The limits of a model that its server lists; None where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelLimits {
    /// The size of the context window, in tokens.
    pub context_tokens: Option<u64>,
    /// The longest completion, in tokens.
    pub completion_tokens: Option<u64>,
}

impl ModelLimits {
    /// The limits in the model's entry in `GET /models`.
    pub(super) fn of_entry(entry: &Json) -> Self {
        let first = |places: &[&str]| {
            let mut found = places.iter().filter_map(|place| entry.pointer(place)?.as_u64());
            found.find(|tokens| *tokens > 0)
        };
        Self { context_tokens: first(&CONTEXT), completion_tokens: first(&COMPLETION) }
    }
}

/// True if two names are of the same model: Gemini lists `models/NAME`, Ollama `NAME:latest`.
#[must_use]
pub fn is_same_model(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|name| {
        let name = name.strip_prefix("models/").unwrap_or(name);
        name.strip_suffix(":latest").unwrap_or(name)
    });
    one == other
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_name_them_in_different_places() {
        let limits = |entry| {
            let ModelLimits { context_tokens, completion_tokens } = ModelLimits::of_entry(&entry);
            (context_tokens, completion_tokens)
        };
        assert_eq!(limits(json!({"id": "m", "max_model_len": 32768})), (Some(32768), None));
        assert_eq!(
            limits(json!({"context_length": 200_000, "top_provider":
                {"context_length": 131_072, "max_completion_tokens": 8192}})),
            (Some(131_072), Some(8192))
        );
        assert_eq!(
            limits(json!({"context_length": 8000, "top_provider": {"max_completion_tokens": null}})),
            (Some(8000), None)
        );
        assert_eq!(
            limits(json!({"context_window": 131_072, "max_completion_tokens": 40_960})),
            (Some(131_072), Some(40_960))
        );
        assert_eq!(limits(json!({"meta": {"n_ctx": 4096, "n_ctx_train": 131_072}})), (Some(4096), None));
        let anthropic =
            json!({"id": "m", "type": "model", "max_input_tokens": 200_000, "max_tokens": 64_000});
        assert_eq!(limits(anthropic), (Some(200_000), Some(64_000)));
        assert_eq!(limits(json!({"id": "m", "max_model_len": 0, "context_length": "8k"})), (None, None));
    }
}
