//! How much the system prompt explains to root models.

/// How much the system prompt explains.
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
