//! Messages of OpenAI's harmony format.

use super::fences::{Fence, open_quotes};
use super::marks::MESSAGE_ENDS;

/// The length of the harmony message that begins a text: up to the mark of its end, or that of another message. Marks in fenced blocks, in
/// code spans and in quotations are text, unless a message begins behind them.
pub(super) fn message_length(text: &str) -> usize {
    let (mut begin, mut block) = (0, None);
    for line in text.split_inclusive('\n') {
        let fence = Fence::of(line);
        let is_code = block.is_some() || fence.is_some() || line.trim_start().starts_with('>');
        let last_quote = line.rfind('`').unwrap_or(0);
        let (mut counted, mut quotes) = (0, 0);
        for (place, _) in line.match_indices("<|") {
            let is_here = |mark: &&str| line[place..].starts_with(*mark);
            let Some(mark) = MESSAGE_ENDS.into_iter().find(is_here) else { continue };
            (counted, quotes) = (place, open_quotes(&line[counted..place], quotes));
            let is_quoted = is_code || quotes > 0 && place < last_quote;
            let behind = text[begin + place + mark.len()..].trim_start();
            if !is_quoted || behind.is_empty() || behind.starts_with("<|start|>") {
                return begin + place;
            }
        }
        block = match (block, fence) {
            (Some(open), Some(fence)) if fence.closes(open) => None,
            (None, fence) => fence,
            (open, _) => open,
        };
        begin += line.len();
    }
    text.len()
}
