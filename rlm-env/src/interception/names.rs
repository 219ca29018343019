//! Names of variables: those that hold the results of intercepted calls, and those that corrections propose.

use std::collections::HashSet;

/// Prefix of every such name. Code in the session must not use names with this prefix.
pub(crate) const RESERVED_PREFIX: &str = "__rlm_icpt_";

/// Generates the variables of one session: `__rlm_icpt_<8 hex digits of the session>_<counter>`, each name once.
#[derive(Debug)]
pub(crate) struct VariableNames {
    session: u32,
    taken: u64,
}

impl VariableNames {
    /// Starts with counter 1.
    #[must_use]
    pub(crate) fn new(session: u32) -> Self {
        Self { session, taken: 0 }
    }

    /// The next name.
    pub(crate) fn take(&mut self) -> String {
        self.taken += 1;
        format!("{RESERVED_PREFIX}{:08x}_{}", self.session, self.taken)
    }
}

/// The names that corrections may propose.
pub(super) struct FreeNames {
    /// Every word of the code, the tools, and the names proposed so far.
    taken: HashSet<String>,
}

impl FreeNames {
    pub(super) fn of(code: &str, tools: &[&str]) -> Self {
        let words = code.split(|char: char| !char.is_alphanumeric() && char != '_');
        Self { taken: words.chain(tools.iter().copied()).map(str::to_owned).collect() }
    }

    /// This name, with a number if it is taken.
    pub(super) fn free(&self, name: &str) -> String {
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
        candidates.find(|candidate| !self.taken.contains(candidate)).expect("the numbers do not end")
    }

    /// A new name for a tool's value: `info` of `nav_info`, if that is a name.
    pub(super) fn take_for(&mut self, tool: &str, is_name: impl Fn(&str) -> bool) -> String {
        let last = tool.rsplit('_').next().unwrap_or(tool);
        let name = match is_name(last) && last != tool {
            true => self.free(last),
            false => self.free(&format!("{tool}_value")),
        };
        self.taken.insert(name.clone());
        name
    }
}
