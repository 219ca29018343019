//! Files and directories that a copy of a context leaves out.

use serde::{Deserialize, Serialize};

/// The files and directories that a copy of a context left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// The reason.
    pub reason: LeftOutReason,
    /// Number of them. A directory counts once, with everything in it.
    pub count: u64,
    /// Paths of the first ones, as they would be in the working directory. Those of directories end with `/`.
    pub names: Vec<String>,
}

/// Why a copy of a context leaves something out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LeftOutReason {
    /// A `.gitignore` file excludes it, or it belongs to version control.
    Gitignore,
    /// A pattern of the filter excludes it.
    Exclude,
    /// A symbolic link, whose target may be outside the context.
    SymbolicLink,
    /// A socket, a FIFO or a device.
    Special,
}

/// Number of names that are kept for each reason.
const NAMES: usize = 3;

impl LeftOut {
    /// Adds one to the list, which is in the order of reasons. The name is made only if it is kept.
    pub(crate) fn add(all: &mut Vec<Self>, reason: LeftOutReason, name: impl FnOnce() -> String) {
        let at = all.binary_search_by_key(&reason, |left_out| left_out.reason).unwrap_or_else(|at| {
            all.insert(at, Self { reason, count: 0, names: Vec::new() });
            at
        });
        let left_out = &mut all[at];
        left_out.count += 1;
        if left_out.names.len() < NAMES {
            left_out.names.push(name());
        }
    }
}
