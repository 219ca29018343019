//! The forms in which a root model writes its code.

/// The way in which a root model has its code run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallForm {
    /// The model calls a tool.
    #[default]
    Tool,
    /// The model writes the code in a fenced block, if it cannot call tools.
    Fenced,
}
