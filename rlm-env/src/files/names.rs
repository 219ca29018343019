//! Names of files for display.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A name or path with every character visible. Escapes backslashes, control characters and characters that change how
/// others are displayed; bytes that are not UTF-8 become `\xNN`.
pub(crate) fn shown(name: impl AsRef<OsStr>) -> String {
    pieces(name.as_ref()).concat()
}

/// As [`shown`], with at most this many characters: longer names are cut in the middle, never inside an escape.
pub(crate) fn shown_short(name: impl AsRef<OsStr>, limit: usize) -> String {
    let pieces = pieces(name.as_ref());
    let length = |piece: &String| piece.chars().count();
    if pieces.iter().map(length).sum::<usize>() <= limit {
        return pieces.concat();
    }
    let half = limit.saturating_sub(1) / 2;
    let fitting = |pieces: &mut dyn Iterator<Item = &String>| {
        let mut left = half;
        pieces.take_while(|piece| left.checked_sub(length(piece)).map(|rest| left = rest).is_some()).count()
    };
    let head = fitting(&mut pieces.iter());
    let tail = fitting(&mut pieces.iter().rev());
    format!("{}…{}", pieces[..head].concat(), pieces[pieces.len() - tail..].concat())
}

/// The characters, each in its displayed form.
fn pieces(name: &OsStr) -> Vec<String> {
    let mut pieces = Vec::new();
    for chunk in name.as_bytes().utf8_chunks() {
        pieces.extend(chunk.valid().chars().map(|character| {
            if character == '\\' || is_hidden(character) {
                character.escape_default().to_string()
            } else {
                character.to_string()
            }
        }));
        pieces.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    pieces
}

/// True for control characters, line separators, and characters of no width or that change the direction of text.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        let name = OsStr::from_bytes(b"a b\n\x1b[31m\xff\xe2\x80\xae\xc3\xa9'\\");
        assert_eq!(shown(name), "a b\\n\\u{1b}[31m\\xff\\u{202e}é'\\\\");
    }

    #[test]
    fn long_names_are_cut_in_the_middle_and_between_escapes() {
        assert_eq!(shown_short("0123456789", 10), "0123456789");
        assert_eq!(shown_short("0123456789a", 9), "0123…789a");
        assert_eq!(shown_short("012\n\n\n\n456", 9), "012…456");
        assert_eq!(shown_short("\n\n\n\n\n\n", 9), "\\n\\n…\\n\\n");
    }
}
