//! Plain words: text that bash takes literally, without any expansion.

/// Characters without special meaning to bash anywhere in an unquoted word.
const BARE: &str = "-_./:,%+=@";

/// Why a text is not a list of plain words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotPlain {
    /// The construct that was found.
    pub(super) found: &'static str,
    /// The byte offset of the construct.
    pub(super) at: usize,
    /// The index of the word that has it, from 0.
    pub(super) word: usize,
}

/// The words of a one-line command. Blanks separate words; adjacent quoted and bare pieces are one word.
pub(super) fn words(text: &str) -> Result<Vec<String>, NotPlain> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut rest = text.char_indices();
    let not_plain = |at, word| move |found| NotPlain { found, at, word };
    while let Some((at, char)) = rest.next() {
        match char {
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let piece = word.get_or_insert_default();
                loop {
                    match rest.next() {
                        Some((_, end)) if end == char => break,
                        Some((at, inner)) => {
                            piece.push(quoted(char, inner).map_err(not_plain(at, words.len()))?);
                        }
                        None => return Err(not_plain(at, words.len())("an open quote")),
                    }
                }
            }
            _ => word.get_or_insert_default().push(bare(char).map_err(not_plain(at, words.len()))?),
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(quote: char, char: char) -> Result<char, &'static str> {
    match char {
        '$' if quote == '"' => Err("an expansion ($)"),
        '`' if quote == '"' => Err("a command substitution"),
        '\\' if quote == '"' => Err("a backslash in double quotes"),
        '\n' | '\r' => Err("a line end"),
        char if char.is_control() && char != '\t' => Err("a control character"),
        char => Ok(char),
    }
}

fn bare(char: char) -> Result<char, &'static str> {
    match char {
        '$' => Err("an expansion ($)"),
        '`' => Err("a command substitution"),
        '\\' => Err("a backslash"),
        '*' | '?' | '[' | ']' | '{' | '}' | '~' | '!' | '^' | '#' => {
            Err("an unquoted pattern or special character")
        }
        '<' | '>' => Err("a redirection"),
        ';' | '&' | '|' | '(' | ')' => Err("an unquoted operator"),
        '\n' | '\r' => Err("a line end"),
        char if char.is_ascii_alphanumeric() || BARE.contains(char) => Ok(char),
        _ => Err("an unquoted character that is not ASCII"),
    }
}

/// A single-quoted form of a word that is not plain but is meant literally: a pattern, or a backslash that bash would
/// keep. None if bash would expand the word to something else.
pub(super) fn requoted(written: &str) -> Option<String> {
    let text = match written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inside) => unescaped(inside)?,
        None => {
            (!written.contains(['$', '`', '\\', '"', '{', '~', ' ', '\t'])).then(|| written.to_owned())?
        }
    };
    let has_none = |char: char| char == '\'' || char.is_control() && char != '\t';
    (!text.is_empty() && !text.contains(has_none)).then(|| format!("'{text}'"))
}

/// The value of a double-quoted text if nothing in it is expanded.
fn unescaped(inside: &str) -> Option<String> {
    let mut text = String::with_capacity(inside.len());
    let mut rest = inside.chars().peekable();
    while let Some(char) = rest.next() {
        match char {
            '"' | '`' => return None,
            '$' if rest
                .peek()
                .is_some_and(|next| next.is_alphanumeric() || "_{([@*#?-!$".contains(*next)) =>
            {
                return None;
            }
            '\\' if rest.peek().is_some_and(|next| "$`\"\\".contains(*next)) => text.extend(rest.next()),
            other => text.push(other),
        }
    }
    Some(text)
}

/// True if the rest of a line, after a word, is empty or a comment.
pub(super) fn is_blank_or_comment(text: &str) -> bool {
    let rest = text.trim_start_matches([' ', '\t']);
    rest.is_empty() || rest.len() < text.len() && rest.starts_with('#') && !rest.contains('\r')
}
