//! The stage of a reservation's request.

/// The stage of a reservation, which says what it costs if it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The request was not sent, and has cost nothing.
    Held,
    /// The request was sent, and may have cost all that is reserved.
    Sent,
    /// The reservation is settled or given back.
    Ended,
}
