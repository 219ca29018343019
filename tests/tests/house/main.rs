//! Checks of the sources themselves.

mod circles;
mod promises;
mod sentences;
