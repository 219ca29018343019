//! Answers in `\boxed{…}`.

/// The content of the last `\boxed{…}` with balanced braces. Escaped braces do not count.
pub(super) fn last_boxed(text: &str) -> Option<&str> {
    const OPENING: &str = r"\boxed{";
    text.rmatch_indices(OPENING).find_map(|(start, _)| {
        let inside = &text[start + OPENING.len()..];
        Some(&inside[..closing_brace(inside)?])
    })
}

fn closing_brace(inside: &str) -> Option<usize> {
    let mut depth = 1;
    let mut is_escaped = false;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::last_boxed;

    #[test]
    fn the_last_balanced_box_counts() {
        assert_eq!(last_boxed(r"so \boxed{1}, no: \boxed{\frac{1}{2}}."), Some(r"\frac{1}{2}"));
        assert_eq!(last_boxed(r"\boxed{ä { b } c}"), Some("ä { b } c"));
        assert_eq!(last_boxed(r"\boxed{\{1, 2\}}"), Some(r"\{1, 2\}"));
        assert_eq!(last_boxed(r"\boxed{whole} and \boxed{cut o{ff}"), Some("whole"));
        assert_eq!(last_boxed(r"\boxed{}"), Some(""));
        assert_eq!(last_boxed("none"), None);
        assert_eq!(last_boxed(r"\boxed{"), None);
    }
}
