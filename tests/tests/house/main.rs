//! Checks of the sources themselves.

mod circles;
