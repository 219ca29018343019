//! The log, on standard error. A client that does not read it loses lines, but delays nothing.

use std::time::Duration;

use anyhow::Context;
use rlm_rootd::LogLines;
use tracing_subscriber::EnvFilter;

/// Most lines that wait to be written.
const LINES: usize = 1024;

/// Time for the last lines to be written at the end.
pub(crate) const LAST_LINES: Duration = Duration::from_millis(200);

/// Starts the log, with a filter as in `RUST_LOG`.
pub(crate) fn start(filter: &str) -> anyhow::Result<LogLines> {
    let filter =
        EnvFilter::try_new(filter).with_context(|| format!("cannot use the log filter `{filter}`"))?;
    let lines = LogLines::start(LINES).context("cannot start the log")?;
    let writer = lines.writer();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    Ok(lines)
}
