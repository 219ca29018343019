//! Values to JSON and back.
//!
//! JSON is read straight into values, bounded as pickles are: `serde_json`'s own tree takes 72 bytes for each value, makes
//! floats of large ints and refuses half a surrogate pair.

mod read;
mod write;

pub use read::JsonError;
