//! Text for people and models: shortened texts, numbers, lists.

use std::borrow::Cow;

/// A text of at most this many characters, with `…` in place of the rest.
#[must_use]
pub fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A text of at most this many bytes, cut between characters, with `…` in place of the rest.
#[must_use]
pub fn cut_to_bytes(text: &str, bytes: usize) -> String {
    match text.len() > bytes {
        true => format!("{}…", &text[..text.floor_char_boundary(bytes)]),
        false => text.to_owned(),
    }
}

/// The first and the last bytes of a longer text, this many of each, and how much is left out between them.
#[must_use]
pub fn without_middle(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= 2 * bytes {
        return text.into();
    }
    let head = text[..text.floor_char_boundary(bytes)].trim_end_matches('\n');
    let tail = text[text.ceil_char_boundary(text.len() - bytes)..].trim_start_matches('\n');
    let left_out = size((text.len() - head.len() - tail.len()) as u64);
    format!("{head}\n… {left_out} left out …\n{tail}").into()
}

/// The words of a text on one line.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `1,234,567`
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 file`, `1,200 files`, `2 directories`. The noun must have a regular plural.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    let count = grouped(number);
    match noun.strip_suffix('y') {
        _ if number == 1 => format!("{count} {noun}"),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{count} {stem}ies"),
        _ => format!("{count} {noun}s"),
    }
}

/// A number of bytes in a unit of a power of 1000: `312 B`, `4.2 kB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "kB", "MB", "GB", "TB", "PB"] {
        // From here on the amount would round to 1000.
        if amount < 999.95 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1000.0;
    }
    format!("{amount:.1} EB")
}

/// A duration in seconds as text: `3 ms`, `1.2 s`, `4 min 10 s`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    if seconds < 0.0995 {
        // A sum of nothing is -0.0, which is shown as 0.
        format!("{:.0} ms", seconds.max(0.0) * 1000.0 + 0.0)
    } else if seconds < 119.95 {
        format!("{seconds:.1} s")
    } else {
        let whole = seconds.round() as u64;
        format!("{} min {} s", grouped(whole / 60), whole % 60)
    }
}

/// The first `most` names: `a, b, c`, with `and 4 more` for the others. `none` for an empty list.
pub fn listed<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let shown: Vec<_> = names.iter().take(most).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(most) {
        _ if names.is_empty() => "none".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {} more", shown.join(", "), grouped(more as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let whole = "é".repeat(100);
        assert_eq!(without_middle(&whole, 100), whole);
        let long = format!("é{whole}\nlast\n");
        let short = without_middle(&long, 100);
        assert!(short.starts_with("éé") && short.ends_with("é\nlast\n"), "{short}");
        assert_eq!(short.lines().nth(1).unwrap(), "… 8 B left out …");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!([cut("aéb", 3), cut("aéb", 2), cut("", 0)], ["aéb", "aé…", ""]);
        assert_eq!(
            [cut_to_bytes("aéb", 4), cut_to_bytes("aéb", 2), cut_to_bytes("é", 0)],
            ["aéb", "a…", "…"]
        );
        assert_eq!(one_line(" a\n\t b "), "a b");
    }

    #[test]
    fn numbers_are_grouped_and_nouns_follow_them() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let counts =
            [(0, "turn"), (1, "file"), (1200, "file"), (1, "directory"), (2, "directory"), (2, "day")];
        assert_eq!(
            counts.map(|(number, noun)| counted(number, noun)),
            ["0 turns", "1 file", "1,200 files", "1 directory", "2 directories", "2 days"]
        );
    }

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(
            [0, 999, 1000, 4190, 999_949, 999_950, 1_000_000_000, u64::MAX].map(size),
            ["0 B", "999 B", "1.0 kB", "4.2 kB", "999.9 kB", "1.0 MB", "1.0 GB", "18.4 EB"]
        );
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(
            [-1.0, 0.0, 0.0034, 0.5, 9.96, 119.0, 250.0, 7261.0].map(duration),
            ["0 ms", "0 ms", "3 ms", "0.5 s", "10.0 s", "119.0 s", "4 min 10 s", "121 min 1 s"]
        );
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(listed::<&str>(&[], 2), "none");
        assert_eq!(listed(&["a", "b"], 2), "a, b");
        assert_eq!(listed(&["a", "b", "c"], 2), "a, b and 1 more");
    }
}
