//! The log on standard error. Lines are lost while nothing reads it.

use std::io;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::arguments::LogFormat;
use crate::LogLines;

/// Lines that wait to be written.
const LINES: usize = 4096;

/// Time limit at the end for lines to be written.
pub(crate) const LAST_LINES: Duration = Duration::from_secs(1);

/// Starts the log, with a filter as in `RUST_LOG`.
pub(crate) fn start(format: LogFormat, filter: &str) -> io::Result<LogLines> {
    let lines = LogLines::start(LINES)?;
    let writer = lines.writer();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_target(false)
        .with_writer(move || writer.clone());
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(lines)
}
