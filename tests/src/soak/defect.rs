//! Broken promises.

use std::fmt;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The class of the promise.
    pub class: Class,
    /// The response that came, and the one that was expected.
    pub what: String,
}

/// The kind of a broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// No response in time.
    Wedge,
    /// The worker ended by itself, or takes no request.
    WorkerDied,
    /// A response that is no JSON, lacks a field, answers another request or comes twice.
    Damaged,
    /// An outcome, exit code, exception or hint that does not fit.
    WrongEnding,
    /// A part of the output is missing, added or different.
    WrongOutput,
    /// The answer is not the one that the code set.
    WrongAnswer,
    /// State was lost, and no response said so.
    SilentLoss,
    /// State was lost where the documentation promises that it is kept or restored.
    BrokenPromise,
    /// Something outlives the worker.
    LeftBehind,
    /// The worker's memory or descriptors grow.
    Growth,
    /// A rollout's result, stop reason or trajectory does not fit.
    Rollout,
}

impl Defect {
    pub(crate) fn new(class: Class, what: String) -> Self {
        Self { class, what }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.what)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wedge => "wedge",
            Self::WorkerDied => "worker died",
            Self::Damaged => "damaged response",
            Self::WrongEnding => "wrong ending",
            Self::WrongOutput => "wrong output",
            Self::WrongAnswer => "wrong answer",
            Self::SilentLoss => "lost without being told",
            Self::BrokenPromise => "lost where kept or restored is promised",
            Self::LeftBehind => "left behind",
            Self::Growth => "growth",
            Self::Rollout => "rollout",
        })
    }
}

/// True if the text begins and ends as another one does.
pub(super) fn is_excerpt(whole: &str, excerpt: &str) -> bool {
    const SURE: usize = 32;
    let (whole, excerpt) = (whole.as_bytes(), excerpt.as_bytes());
    excerpt.len() >= 2 * SURE
        && whole[..SURE] == excerpt[..SURE]
        && whole[whole.len() - SURE..] == excerpt[excerpt.len() - SURE..]
}

/// The beginning of a value's debug form.
pub(super) fn cut(value: &(impl std::fmt::Debug + ?Sized)) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
