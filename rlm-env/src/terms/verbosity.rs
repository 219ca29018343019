//! The extent of the explanations in the system prompt of root models.

/// The extent of the explanations in the system prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// Rules only, for models that were trained on them.
    Light,
    /// Rules with reasons.
    #[default]
    Medium,
    /// Rules with reasons and worked examples.
    Heavy,
}

named!(Verbosity, UnknownVerbosity, "verbosity", { Light = "light", Medium = "medium", Heavy = "heavy" });
