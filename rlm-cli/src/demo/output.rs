//! Standard output of the demo.

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use rlm_core::text::counted;
use rlm_env::rollout::Metrics;

/// Standard output. If it cannot be written, the rollout continues.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// The first error.
    failed: Mutex<Option<io::Error>>,
}

impl Output {
    pub(super) fn print(&self, line: &str) {
        if let Err(error) = writeln!(io::stdout().lock(), "{line}") {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// The first error of printing. A reader that closed the pipe is not an error.
    pub(super) fn failure(&self) -> Option<io::Error> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }
}

/// The metrics, one per line.
pub(super) fn metrics(metrics: &Metrics) -> String {
    let requests = counted(metrics.sub_llm_call_count, "request");
    let batches = counted(metrics.sub_llm_batch_count, "call");
    let tokens = counted(metrics.sub_llm_prompt_tokens + metrics.sub_llm_completion_tokens, "token");
    let children: u64 = metrics.depths.values().map(|of_depth| of_depth.rollouts).sum();
    let children = match metrics.depths.len() {
        0 => String::new(),
        levels => format!("rollouts below it        {children}, {levels} levels deep\n"),
    };
    format!(
        "{children}turns of the root model  {}\n\
         calls of the session     {}, {:.1} ms each on average\n\
         sub-LLM                  {requests} by {batches} of llm_batch, {tokens}\n\
         the whole rollout        {:.2} s",
        metrics.root_llm_turns,
        metrics.repl_call_count,
        metrics.repl_mean_time_seconds * 1e3,
        metrics.total_time_seconds
    )
}
