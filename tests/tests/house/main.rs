//! Checks of the sources themselves.

mod circles;
mod sentences;
