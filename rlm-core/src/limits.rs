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

/// A worker that got SIGTERM has ended, with all that it started, after this time.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// Time limit of a root-tool call without `RLM_SUB_LLM_TIMEOUT`.
pub const DEFAULT_ROOT_TOOL_TIMEOUT: Duration = Duration::from_secs(300);
