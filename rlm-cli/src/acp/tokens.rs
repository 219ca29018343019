//! The tokens of a reply, for trainers.

use rlm_env::trajectory::ModelCall;
use serde_json::{Map, Value as Json};

/// The key of the tokens in `_meta`.
pub(super) const KEY: &str = "rlm/tokens-v1";

/// Places of the ids of tokens: vLLM and Fireworks, SGLang.
const PLACES: [(&str, &[&str]); 2] = [
    ("prompt_token_ids", &["/prompt_token_ids", "/sglext/input_ids"]),
    ("token_ids", &["/token_ids", "/response_token_ids", "/sglext/output_ids/0"]),
];

/// Places of the log probability of each token.
const LOGPROBS: [&str; 2] = ["/logprobs/content", "/logprobs/token_logprobs"];

/// The tokens of a reply, as far as its server told them: `request_id`, `is_summary`, `prompt_token_ids`, `token_ids`, `logprobs`.
/// None: of neither kind.
pub(super) fn of_call(call: &ModelCall) -> Option<Json> {
    let extra = call.extra.as_ref()?;
    let first = |places: &[&str]| places.iter().find_map(|place| extra.pointer(place));
    let mut tokens = Map::new();
    for (name, places) in PLACES {
        if let Some(ids) = first(places).filter(|ids| is_told(ids)) {
            tokens.insert(name.to_owned(), ids.clone());
        }
    }
    if let Some(Json::Array(logprobs)) = first(&LOGPROBS) {
        let number = |token: &Json| token.get("logprob").unwrap_or(token).clone();
        tokens.insert("logprobs".to_owned(), logprobs.iter().map(number).collect());
    } else if let Some(sentence) = extra.get("logprobs").filter(|logprobs| logprobs.is_string()) {
        tokens.insert("logprobs".to_owned(), sentence.clone());
    }
    if tokens.is_empty() {
        return None;
    }
    tokens.insert("is_summary".to_owned(), call.is_summary.into());
    tokens.insert("request_id".to_owned(), call.request_id.clone().into());
    Some(tokens.into())
}

/// True for a list of ids, and for the sentence in place of one that is too long.
fn is_told(ids: &Json) -> bool {
    ids.is_array() || ids.is_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(extra: Json) -> Option<Json> {
        let call = json!({
            "turn": 1, "is_summary": false, "model": "m", "prompt_tokens": 1, "completion_tokens": 1, "usage_estimated": false,
            "cost_usd": null, "attempts": 1, "seconds": 0.0, "error": null, "extra": extra, "request_id": "r",
        });
        of_call(&serde_json::from_value(call).unwrap())
    }

    #[test]
    fn tokens_have_one_form_whatever_the_server() {
        let expected = json!({
            "prompt_token_ids": [1, 2], "token_ids": [3], "logprobs": [-0.5], "is_summary": false, "request_id": "r",
        });
        let logprobs = json!({"content": [{"token": "a", "logprob": -0.5, "top_logprobs": []}]});
        let vllm = json!({"prompt_token_ids": [1, 2], "token_ids": [3], "logprobs": logprobs});
        assert_eq!(of(vllm), Some(expected.clone()));
        let sglang = json!({"sglext": {"input_ids": [1, 2], "output_ids": [[3]]}, "logprobs": logprobs});
        assert_eq!(of(sglang), Some(expected));
        let too_long = json!({"token_ids": [3], "logprobs": "left out: …"});
        assert_eq!(of(too_long).unwrap()["logprobs"], "left out: …");
        assert_eq!(of(json!({"system_fingerprint": "f"})), None);
    }
}
