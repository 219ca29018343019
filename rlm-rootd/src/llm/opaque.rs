//! Removes signatures and encrypted reasoning from the texts of servers: errors quote requests, and go into logs.

use std::ops::Range;
use std::sync::LazyLock;

use regex_automata::meta::Regex;

/// A field by whose name its text is a signature, or encrypted: in JSON, in JSON that is a text in JSON, and in Python's form.
/// A value that is cut off may lack its closing quote.
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    let names = "signature|thought_signature|thoughtSignature|encrypted_content|reasoning_signature|reasoning_opaque|data";
    let before = format!(r#"["'](?:{names})\\*["']\s*:\s*\\*"#);
    let value = r#"(?:"([^"]+?)\\*(?:"|\z)|'([^']+?)\\*(?:'|\z))"#;
    Regex::new(&format!("{before}{value}")).expect("the pattern is valid")
});

/// Letters, digits and the signs of base64 without a gap, which may be a signature whatever the name of their field.
static LONG: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[A-Za-z0-9+/_=-]{80,}").expect("the pattern is valid"));

/// The text in place of a signature.
const GAP: &str = "[signature]";

/// The text without the signatures and the encrypted reasoning in it.
pub(super) fn without_signatures(text: &str) -> String {
    let named =
        NAMED.captures_iter(text).filter_map(|found| found.get_group(1).or_else(|| found.get_group(2)));
    let text = with_gaps(text, named.map(|value| value.range()));
    let long =
        LONG.find_iter(&text).map(|found| found.range()).filter(|run| is_signature(&text[run.clone()]));
    with_gaps(&text, long)
}

/// The text with gaps in place of these parts.
fn with_gaps(text: &str, parts: impl Iterator<Item = Range<usize>>) -> String {
    let (mut kept, mut end) = (String::with_capacity(text.len()), 0);
    for part in parts {
        kept.push_str(&text[end..part.start]);
        kept.push_str(GAP);
        end = part.end;
    }
    kept + &text[end..]
}

/// True for a long run with digits and capitals. Words and paths lack these, or are shorter.
fn is_signature(run: &str) -> bool {
    run.contains(|letter: char| letter.is_ascii_digit())
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
