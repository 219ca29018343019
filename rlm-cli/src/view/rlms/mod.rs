//! Files of RLMLogger, of the package rlms: read as trajectories, and written from them.
//!
//! The form is that of rlms 0.1.3 (`rlm/logger/rlm_logger.py`, `rlm/core/types.py`): a line `metadata`, then a line
//! `iteration` for each reply of the root model, with its code blocks, their results, and the sub-calls of each.

mod read;
mod write;

pub(super) use self::read::Reader;
pub(super) use self::write::write;

/// Reports whether a file that begins with these bytes is one of RLMLogger. Trajectories begin in another way.
pub(super) fn begins(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"{\"type\"")
}
