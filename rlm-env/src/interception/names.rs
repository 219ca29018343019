//! Names of the variables that hold the results of intercepted calls.

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
