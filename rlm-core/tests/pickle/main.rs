//! Pickles, against real CPython, serde-pickle and hostile senders.

mod fixtures;
mod hostile;
mod memory;
mod properties;
mod python;
mod round_trip;
mod speed;
