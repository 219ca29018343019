//! The documents of the FIFO protocol, version 1.
//!
//! The host writes one request and reads exactly one response before it writes the next. A request that cannot be
//! understood gets a response too, with status `error` and the fault in `hint`; it never ends the worker. Unknown
//! fields are ignored in both directions. Within a version, fields are only ever added; a change of meaning takes a new
//! [`PROTOCOL_VERSION`].
//!
//! These types are for the wire only: nothing else in the project is serialised through them.

mod confinement;
mod history;
mod info;
mod request;
mod response;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::confinement::{Confine, Confinement, ConfinementLevel};
pub use self::history::{HistoryEntry, HistorySession, Operation};
pub use self::info::{Info, Limit, Limits, Mechanism, Usage};
pub use self::request::{BadRequest, Execute, ONE_CALL_PREFIX, Request, name_excerpt};
pub use self::response::{Answer, Exception, Outcome, Response, State, Status, Truncated};

/// The protocol version, sent in every response as `protocol`.
///
/// * 1: the first version.
pub const PROTOCOL_VERSION: u32 = 1;

/// The `seq` of a response to a request whose own `seq` could not be read.
pub const UNKNOWN_SEQ: i64 = -1;

/// The time for which the clock of the running call has stood still, since the call began. The clock stands still while the
/// host works for the call within a limit of its own, so that the call's limit is for its own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallClock {
    /// Seconds until `since`.
    pub stood_still: f64,
    /// Time since which the clock stands still, in seconds of `CLOCK_MONOTONIC`. None: the clock runs.
    pub since: Option<f64>,
}

impl CallClock {
    /// The time that it has stood still, if it is now so late on `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn until(&self, now: Duration) -> Duration {
        let now = self.since.map_or(0.0, |since| (now.as_secs_f64() - since).max(0.0));
        Duration::try_from_secs_f64(self.stood_still + now).unwrap_or_default()
    }
}

/// The document in `rlm_context.json`, written by the host before the worker starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// The session's working directory.
    pub fs_root: std::path::PathBuf,
    /// The host's information about the files there; passed on to Python sessions, not interpreted.
    #[serde(default)]
    pub fs_metadata: Value,
    /// Directories outside `fs_root` that a file-system jail leaves accessible.
    #[serde(default)]
    pub allowed_paths: Vec<std::path::PathBuf>,
}

/// The words that can complete code that is being typed: `result` of the response to op `complete`, as JSON text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completions {
    /// Offset in the code, in bytes, of the part that a candidate replaces. The part ends where the code ends.
    pub start: usize,
    /// Names, without duplicates and in order; a directory ends in `/`.
    pub candidates: Vec<String>,
}

impl Completions {
    /// The JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a number and strings can be written as JSON")
    }
}

#[cfg(test)]
mod tests;
