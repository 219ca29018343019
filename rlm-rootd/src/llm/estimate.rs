//! Estimates of the number of tokens in a text.
//!
//! Tokenizers differ, and we have none. The weights here are meant to be too high: a token per three letters or blanks
//! (English has about four), one per digit and sign, two per three bytes of any other script.

use serde_json::{Map, Value as Json};

/// Tokens that a chat template may add to each message, and to a request.
pub(super) const PER_MESSAGE: u64 = 8;

/// Fields of a message that hold a reply as it came over another interface than chat completions.
pub(super) const NATIVE: [&str; 2] = ["anthropic", "responses"];

/// The reply as it came over another interface, if a message holds one.
pub(super) fn native(message: &Json) -> Option<&Json> {
    NATIVE.iter().find_map(|field| message.get(field))
}

/// Tokens of an image, whatever its size: servers scale large ones down, and 4,784 are the most of Anthropic's models.
const IMAGE_TOKENS: u64 = 5000;

/// Bytes of a text with as many tokens as an image.
const IMAGE_BYTES: u64 = 4 * IMAGE_TOKENS;

/// Tokens of a text.
pub(super) fn text_tokens(text: &str) -> u64 {
    let sixths: u64 = text
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b' ' | b'\n' | b'\t' | b'\r' => 2,
            0x80.. => 4,
            _ => 6,
        })
        .sum();
    sixths.div_ceil(6)
}

/// Tokens that a message adds to a prompt.
pub(super) fn message_tokens(message: &Json) -> u64 {
    // A reply that is kept in its own form is sent in that form.
    json_tokens(native(message).unwrap_or(message)) + PER_MESSAGE
}

fn json_tokens(json: &Json) -> u64 {
    match json {
        _ if image_url(json).is_some_and(is_data_url) => IMAGE_TOKENS,
        Json::Null | Json::Bool(_) => 1,
        Json::Number(number) => text_tokens(&number.to_string()),
        Json::String(text) => text_tokens(text),
        Json::Array(items) => items.iter().map(|item| json_tokens(item) + 1).sum(),
        Json::Object(fields) => fields_tokens(fields),
    }
}

pub(super) fn fields_tokens(fields: &Map<String, Json>) -> u64 {
    fields.iter().map(|(name, value)| text_tokens(name) + json_tokens(value) + 2).sum()
}

/// The URL of a content part, if that is an image.
fn image_url(part: &Json) -> Option<&str> {
    part.get("image_url").filter(|_| part["type"] == "image_url")?.get("url")?.as_str()
}

/// The URLs of the images in a message.
pub fn image_urls(message: &Json) -> impl Iterator<Item = &str> {
    message.get("content").and_then(Json::as_array).into_iter().flatten().filter_map(image_url)
}

/// True if a URL holds the data itself.
#[must_use]
pub fn is_data_url(url: &str) -> bool {
    url.starts_with("data:")
}

/// Bytes of a message as it is sent, in which an image counts as a text of as many tokens.
pub(super) fn text_bytes(message: &Json, sent: &str) -> u64 {
    let (mut bytes, mut images) = (sent.len(), 0);
    for url in image_urls(message).filter(|url| is_data_url(url)) {
        bytes -= url.len();
        images += 1;
    }
    bytes as u64 + images * IMAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn letters_count_least_and_signs_most() {
        assert_eq!(text_tokens("The quick brown fox jumps over the lazy dog"), 15);
        assert_eq!(text_tokens("3.14159"), 7);
        assert_eq!(text_tokens("人工智能"), 8);
        assert_eq!(text_tokens(""), 0);
        assert_eq!(message_tokens(&json!({"role": "user", "content": "hi"})), 20);
    }

    #[test]
    fn an_image_counts_alike_whatever_its_size() {
        let message = |data: usize| {
            let url = format!("data:image/png;base64,{}", "A".repeat(data));
            json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
        };
        let tokens = [0, 4_000_000].map(|data| message_tokens(&message(data)));
        assert_eq!(tokens[0], tokens[1]);
        assert!((IMAGE_TOKENS..IMAGE_TOKENS + 50).contains(&tokens[0]), "{tokens:?}");
        let bytes = [0, 4_000_000].map(|data| text_bytes(&message(data), &message(data).to_string()));
        assert_eq!(bytes[0], bytes[1]);
    }
}
