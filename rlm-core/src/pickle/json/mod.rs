//! JSON encoding and decoding of values.
//!
//! JSON is decoded straight to values, with the same limits as pickles: `serde_json`'s own tree takes 72 bytes for each
//! value, turns large ints into floats and refuses lone surrogates.

mod read;
mod write;

pub use read::JsonError;
