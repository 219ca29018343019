//! The findings of checks.

/// The result of one check: what was found, or an error.
pub(super) type Found = Result<String, String>;

/// Results of checks, by name.
pub(super) type Lines = Vec<(&'static str, Found)>;
