//! Every limit of the wire, with its unit and reason.

use std::time::Duration;

/// Largest request document in bytes. Beyond it the worker answers with an error and reads on.
pub const MAX_REQUEST_BYTES: usize = 16 << 20;

/// Default bound, in bytes, on the output that one call may return per stream; head and tail are kept beyond it.
pub const DEFAULT_MAX_OUTPUT_BYTES: usize = 16 << 20;

/// Smallest output bound that a host can set: below it a truncation notice would be longer than the text.
pub const MIN_MAX_OUTPUT_BYTES: usize = 256;

/// Longest time limit that a host can set, one year. A larger one is taken as "no limit".
pub const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Largest value of one variable of op `set`, in bytes of JSON text without white space. Larger data belongs in files.
pub const MAX_VARIABLE_BYTES: usize = 1 << 20;

/// Deepest nesting of a variable of op `set`: every JSON parser can read it, in the history too.
pub const MAX_VARIABLE_DEPTH: usize = 100;

/// Most JSON text of the variables of one op `set` that the history keeps, in bytes.
pub const MAX_HISTORY_VARIABLES_BYTES: usize = 1 << 20;

/// Longest time from the start of an interpreter until it can take a call. It takes milliseconds unless hundreds start
/// at once.
pub const START_LIMIT: Duration = Duration::from_secs(30);

/// Longest time that a session may take to receive variables, unless its own limit for calls is shorter. It takes a
/// moment unless a trap or a signal handler of the session keeps it busy.
pub const SET_LIMIT: Duration = Duration::from_secs(30);

/// Longest time that a session may look for completions.
pub const COMPLETE_LIMIT: Duration = Duration::from_secs(1);

/// Longest time a worker takes to answer `reset`, `set`, `complete` and `info`: it may have to end an interpreter and start another
/// first.
pub const OPERATION_LIMIT: Duration = Duration::from_secs(100);

/// Longest time from a SIGTERM to a worker until the worker and everything it started have ended.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// Time limit of a root-tool call without `RLM_SUB_LLM_TIMEOUT`.
pub const DEFAULT_ROOT_TOOL_TIMEOUT: Duration = Duration::from_secs(300);

/// The memory of an interpreter above which no checkpoint is taken, in bytes, unless the host says otherwise.
const CHECKPOINT_BYTES: u64 = 256 << 20;

/// Values of `RLM_CHECKPOINT`.
pub const CHECKPOINT_EXPECTED: &str = "1, true, 0, false, or most bytes of memory, such as 256M";

/// A value of `RLM_CHECKPOINT`: most memory of an interpreter of which a checkpoint is taken, in bytes. Outer None: it has no meaning.
/// Inner None: there are no checkpoints.
#[must_use]
pub fn checkpoint_bytes(text: &str) -> Option<Option<u64>> {
    match text {
        "1" | "true" => return Some(Some(CHECKPOINT_BYTES)),
        "0" | "false" => return Some(None),
        _ => {}
    }
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes > 1).then_some(Some(bytes))
}
