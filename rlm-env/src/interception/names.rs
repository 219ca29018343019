//! Names of the variables that hold intercepted values.

/// What every such name begins with. Code in the session may not use a name that begins so.
pub(crate) const RESERVED_PREFIX: &str = "__rlm_icpt_";

/// Names the variables of one session: `__rlm_icpt_<8 hex digits of the session>_<counter>`. No name comes twice.
#[derive(Debug)]
pub(crate) struct VariableNames {
    session: u32,
    taken: u64,
}

impl VariableNames {
    /// The names of this session; the counter begins at 1.
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
