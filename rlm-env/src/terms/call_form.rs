//! The forms in which a root model writes its code.

/// How a root model has its code run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallForm {
    /// It calls a tool.
    #[default]
    Tool,
    /// It writes the code in a fenced block, for models that cannot call tools.
    Fenced,
}
