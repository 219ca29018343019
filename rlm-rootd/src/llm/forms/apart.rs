//! Texts of replies whose thoughts came apart from them.

use super::fences::Fence;
use super::marks::THOUGHTS;
use super::scanner::{NEAR_BYTES, Scanner, opening_length};

/// True if a text begins with the mark of a thought.
pub(super) fn begins_with_thought(text: &str) -> bool {
    let text = text.trim_start();
    let near = text[..text.floor_char_boundary(NEAR_BYTES)].to_ascii_lowercase();
    THOUGHTS.iter().any(|(open, _)| opening_length(&near, &open.to_ascii_lowercase()).is_some())
}

/// The text behind a closing mark outside of blocks, with no opening mark before it.
pub(super) fn behind_thought(text: &str) -> Option<&str> {
    // Most texts have no closing mark, nor does any of these begin without one of these characters.
    if !text.contains(['<', '[', '◁']) {
        return None;
    }
    let scanner = Scanner::new(text);
    let (mut begin, mut block) = (0, None);
    for line in text.split_inclusive('\n') {
        let end = begin + line.len();
        match (block, Fence::of(line)) {
            (None, Some(fence)) => block = Some(fence),
            (Some(open), Some(fence)) if fence.closes(open) => block = None,
            (None, None) => {
                if let Some(mark) = scanner.closing_mark(begin, line, None) {
                    return Some(&text[mark.end..]);
                }
                if scanner.has_opening_mark(begin..end) {
                    return None;
                }
            }
            (Some(_), _) => {}
        }
        begin = end;
    }
    None
}
