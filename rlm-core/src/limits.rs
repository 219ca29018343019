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

/// Largest value of one variable of op `set`, in bytes of JSON text without white space. Larger data belongs into files.
pub const MAX_VARIABLE_BYTES: usize = 1 << 20;

/// How deep a variable of op `set` may be nested: what every JSON parser reads, in the history too.
pub const MAX_VARIABLE_DEPTH: usize = 100;

/// How much of the variables of one op `set` the history keeps, in bytes of JSON text.
pub const MAX_HISTORY_VARIABLES_BYTES: usize = 1 << 20;

/// How long an interpreter may take until it can take a call. Milliseconds, unless hundreds start at once.
pub const START_LIMIT: Duration = Duration::from_secs(30);

/// How long a session may need for variables, where its own limit for calls is not shorter: it needs a moment, unless a trap
/// or a signal handler of its own keeps it busy.
pub const SET_LIMIT: Duration = Duration::from_secs(30);

/// A worker has answered `reset`, `set` and `info` after this time: an interpreter may have to be ended and started first.
pub const OPERATION_LIMIT: Duration = Duration::from_secs(100);

/// A worker that got SIGTERM has ended, with all that it started, after this time.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// Time limit of a root-tool call without `RLM_SUB_LLM_TIMEOUT`.
pub const DEFAULT_ROOT_TOOL_TIMEOUT: Duration = Duration::from_secs(300);
