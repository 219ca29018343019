//! The kinds of servers' errors, by their words.

use super::{ErrorTexts, TABLE, has_any};

/// Words that refuse tools.
const REFUSING_TOOLS: [&str; 4] = ["not support", "n't support", "unsupported", "not enabled"];

/// Longest distance between words that refuse tools and a word for them, in bytes.
const NEAR_BYTES: usize = 48;

/// The kind of an error, by its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::llm) enum ErrorKind {
    /// The conversation is too long for the model.
    ContextFull,
    /// The error is about something other than the conversation's length, whatever its status says.
    NotContextFull,
    /// The account has nothing left to pay with.
    NoCredit,
    /// The server refuses tools.
    NoTools,
    /// The server refuses images, or the ones that were sent.
    NoImages,
    /// The same request may pass later.
    Overloaded,
    /// The model wrote a call that the server cannot read; the next sample may be right.
    BadCall,
    /// The same request would be right over another interface of the server.
    OtherWire,
}

impl ErrorKind {
    const ALL: [Self; 8] = [
        Self::ContextFull,
        Self::NotContextFull,
        Self::NoCredit,
        Self::NoTools,
        Self::NoImages,
        Self::Overloaded,
        Self::BadCall,
        Self::OtherWire,
    ];

    /// True if an error with this text is of one of the kinds.
    pub(super) fn is_known(text: &str) -> bool {
        Self::ALL.into_iter().any(|kind| kind.is_of(text))
    }

    /// True if an error with this text is of this kind.
    pub(in crate::llm) fn is_of(self, text: &str) -> bool {
        let errors = &TABLE.errors;
        match self {
            Self::ContextFull => has_any(text, &errors.context_full) && !Self::NotContextFull.is_of(text),
            Self::NotContextFull => has_any(text, &errors.not_context_full),
            Self::NoCredit => has_any(text, &errors.no_credit),
            Self::NoTools => {
                let is_refused = has_any(text, &errors.no_tools) || refused_tools(text).is_some();
                is_refused && !Self::OtherWire.is_of(text)
            }
            Self::NoImages => has_any(text, &errors.no_images),
            Self::Overloaded => has_any(text, &errors.overloaded),
            Self::BadCall => has_any(text, &errors.bad_call),
            Self::OtherWire => has_any(text, &errors.other_wire),
        }
    }
}

/// True if an error of this status and text says that the conversation is too long. LiteLLM has a 503 for a prompt that the servers behind
/// it have refused (earendil-works/pi#4563).
pub(in crate::llm) fn is_too_long(status: u16, text: &str) -> bool {
    match status {
        413 => !ErrorKind::NotContextFull.is_of(text),
        400 | 422 | 500 => ErrorKind::ContextFull.is_of(text),
        502 | 503 => ErrorKind::ContextFull.is_of(text) && !ErrorKind::Overloaded.is_of(text),
        _ => false,
    }
}

/// The place of a text's refusal of tools: a word for them stands near one that refuses, in the same sentence.
pub(super) fn refused_tools(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let is_tool = |word: &str| {
        let behind = ["tool", "function"].into_iter().find_map(|name| word.strip_prefix(name));
        behind.is_some_and(|behind| behind.is_empty() || behind == "s" || behind.starts_with('_'))
    };
    let has_tool =
        |part: &str| part.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').any(is_tool);
    let is_refused = |(at, words): &(usize, &str)| {
        let (before, after) = (&text[..*at], &text[at + words.len()..]);
        let before = &before[before.ceil_char_boundary(at.saturating_sub(NEAR_BYTES))..];
        let after = &after[..after.floor_char_boundary(NEAR_BYTES)];
        before.rsplit(". ").next().is_some_and(has_tool) || after.split(". ").next().is_some_and(has_tool)
    };
    let places = REFUSING_TOOLS.iter().flat_map(|words| text.match_indices(words));
    let place = places.filter(is_refused).map(|(at, _)| at).min()?;
    Some(text.floor_char_boundary(place.saturating_sub(NEAR_BYTES)))
}

/// The place of the words by which the kind of an error is known. Overload does not count.
pub(in crate::llm) fn telling_part(text: &str) -> Option<usize> {
    let (errors, text) = (&TABLE.errors, text.to_ascii_lowercase());
    let ErrorTexts { context_full, not_context_full, no_tools, no_images, other_wire, .. } = errors;
    let parts = [context_full, not_context_full, no_tools, no_images, other_wire];
    parts.into_iter().flatten().find_map(|part| text.find(part.as_str())).or_else(|| refused_tools(&text))
}
