//! Removes signatures and encrypted reasoning from the texts of servers: errors quote requests, and go into logs.

/// Names of fields whose text is a signature, or encrypted.
const NAMES: [&str; 7] = [
    "signature",
    "thought_signature",
    "thoughtSignature",
    "encrypted_content",
    "reasoning_signature",
    "reasoning_opaque",
    "data",
];

/// Letters without a gap that are taken for a signature, whatever the name of their field.
const LONG: usize = 80;

/// The text in place of a signature.
const GAP: &str = "[signature]";

/// The text without the signatures and the encrypted reasoning in it.
pub(super) fn without_signatures(text: &str) -> String {
    without_long_runs(&without_named(text))
}

/// Leaves out the texts of fields by their names, in JSON, in JSON that is a text in JSON, and in Python's form.
fn without_named(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, value, after)) = next_named(rest) {
        kept.push_str(before);
        kept.push_str(if value.is_empty() { "" } else { GAP });
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// The text up to the first value with one of the names, the value, and what follows.
fn next_named(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let (at, name) = NAMES
            .iter()
            .filter_map(|name| text[from..].find(name).map(|at| (from + at, *name)))
            .min_by_key(|(at, name)| (*at, usize::MAX - name.len()))?;
        let after = at + name.len();
        if let Some(value) = value_at(text, at, after) {
            let end = value_end(text, value);
            return Some((&text[..value], &text[value..end], &text[end..]));
        }
        from = after;
    }
}

/// The start of a value's text after its name: both are in quotes, which may be escaped, with a colon between them.
fn value_at(text: &str, name: usize, after: usize) -> Option<usize> {
    let is_quote = |letter: char| letter == '"' || letter == '\'';
    if !text[..name].ends_with(is_quote) {
        return None;
    }
    let rest = text[after..].trim_start_matches('\\').strip_prefix(is_quote)?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let rest = rest.trim_start_matches('\\').strip_prefix(is_quote)?;
    Some(text.len() - rest.len())
}

/// The end of the value that begins here: its closing quote, or the end of the text.
fn value_end(text: &str, begin: usize) -> usize {
    let quote = text[..begin].chars().next_back().unwrap_or('"');
    let found = text[begin..].find(quote).map_or(text.len(), |at| begin + at);
    begin + text[begin..found].trim_end_matches('\\').len()
}

/// Leaves out long runs of letters, digits and the signs of base64.
fn without_long_runs(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "+/_-=".contains(letter);
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(begin) = rest.find(is_part) {
        let length = rest[begin..].find(|letter| !is_part(letter)).unwrap_or(rest.len() - begin);
        let run = &rest[begin..begin + length];
        kept.push_str(&rest[..begin]);
        kept.push_str(if is_signature(run) { GAP } else { run });
        rest = &rest[begin + length..];
    }
    kept.push_str(rest);
    kept
}

/// True for a long run with digits and capitals. Words and paths lack these, or are shorter.
fn is_signature(run: &str) -> bool {
    run.len() >= LONG
        && run.contains(|letter: char| letter.is_ascii_digit())
        && run.contains(|letter: char| letter.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn signatures_are_left_out_in_every_form_of_a_quotation() {
        let request = json!({"messages": [{"content": [
            {"type": "thinking", "thinking": "hm", "signature": "SECRET"},
            {"type": "redacted_thinking", "data": "SECRET=="},
        ]}, {"encrypted_content": "SECRET", "extra_content": {"google": {"thought_signature": "SECRET"}}}]});
        let once = request.to_string();
        let twice = json!({"error": {"message": format!("cannot read {once}")}}).to_string();
        let python = once.replace('"', "'").replace(':', ": ");
        let cut = "{\"signature\": \"SECRETSECR";
        for text in [&once, &twice, &python, cut] {
            let kept = without_signatures(text);
            assert!(!kept.contains("SECRE") && kept.contains(GAP), "{kept}");
        }
        assert!(without_signatures(&twice).contains("hm"));
        assert_eq!(
            without_signatures("messages.1.signature: Field required"),
            "messages.1.signature: Field required"
        );
        assert_eq!(
            without_signatures("{\"data\": [1], \"signature\": \"\"}"),
            "{\"data\": [1], \"signature\": \"\"}"
        );
    }

    #[test]
    fn a_long_run_of_letters_is_one_and_words_are_not() {
        let run = "Er0aB9+/".repeat(12);
        assert_eq!(
            without_signatures(&format!("Invalid signature {run} in block")),
            format!("Invalid signature {GAP} in block")
        );
        for plain in [
            "x".repeat(200),
            "an ordinary sentence of some length, about max_tokens: 32000 > 8192".to_owned(),
        ] {
            assert_eq!(without_signatures(&plain), plain);
        }
    }
}
