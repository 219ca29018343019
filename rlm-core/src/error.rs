//! Error messages.

/// An error with its causes, in one line.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}
