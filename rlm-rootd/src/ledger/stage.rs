//! How far the request of a reservation is.

/// The stage of a reservation, which says what it costs if it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its request was not sent: nothing.
    Held,
    /// Its request was sent, and may have cost all of it.
    Sent,
    /// It is settled or given back.
    Ended,
}
