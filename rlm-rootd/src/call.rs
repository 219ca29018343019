//! One call of a root tool, from its arguments to its result. Calls over HTTP and calls from this process both come here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_core::root_tool::{Call, Reply, ToolResult};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use crate::error::CallError;
use crate::metrics::{Metrics, Outcome};
use crate::offload::value_bytes;
use crate::paid::Receipt;
use crate::rollout::{MAX_TOOL_TIME_LIMIT, Rollout, RolloutTool};
use crate::rootd::{Rootd, Shared};
use crate::signature::shortened;

/// A result over this many bytes is one of the few large ones that its rollout may have at once.
const LARGE_RESULT_BYTES: usize = 1 << 20;

impl Rootd {
    /// Calls a tool of a rollout from this process, as code in its session would over HTTP: it waits for a place among the
    /// rollout's calls, the arguments are checked, the call is counted, and it ends at the time limit or with the rollout.
    /// Dropping the future cancels the call. Results that are paid for have a receipt, to be signed once the code has them.
    ///
    /// # Errors
    /// [`CallError`], in the words that code in the session would get.
    pub async fn call(&self, id: &str, call: Call) -> Result<(Reply, Option<Receipt>), CallError> {
        let rollout = self.0.rollout(id).ok_or(CallError::NoRollout)?;
        let tool = rollout.tool(&call.tool)?;
        let _place = rollout.place().await?;
        // Nothing is decoded or encoded here.
        let checked = async { tool.tool.check(&call).map(|()| call).map_err(CallError::Arguments) };
        let called = rollout.call(&self.0, tool, checked, Ok).await?;
        Ok((called.reply, called.receipt))
    }
}

impl Rollout {
    /// The tool of this name.
    pub(crate) fn tool(&self, name: &str) -> Result<&RolloutTool, CallError> {
        self.tools.iter().find(|entry| entry.tool.name() == name).ok_or_else(|| {
            let names: Vec<_> = self.tools.iter().map(|entry| entry.tool.name()).collect();
            let tools = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            CallError::NoTool { tool: shortened(name), tools }
        })
    }

    /// Decodes and checks a call, runs the tool and encodes the reply. The call is counted, and ends at the time limit or with
    /// the rollout. The caller holds a [place](Self::place).
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        shared: &Shared,
        entry: &RolloutTool,
        decode_and_check: impl Future<Output = Result<Call, CallError>>,
        encode: impl FnOnce(Reply) -> Result<T, CallError> + Send + 'static,
    ) -> Result<Called<T>, CallError> {
        let count = CallCount::begin(self, entry, &shared.metrics);
        let limit = self.time_limit(entry);
        let deadline = Instant::now() + limit;
        let steps = async {
            let (reply, receipt) = self.run(entry, decode_and_check.await?, limit, deadline).await?;
            let bytes = reply_bytes(&reply);
            let mut large = None;
            if bytes > LARGE_RESULT_BYTES {
                large = self.large_results.clone().acquire_owned().await.ok();
            }
            let reply =
                shared.large_work.run_in_turn(&self.large_turn, bytes, move || encode(reply)).await??;
            Ok(Called { reply, receipt, large })
        };
        let result = tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(CallError::Ended),
            result = steps => result,
        };
        count.end(result.as_ref().err());
        result
    }

    fn time_limit(&self, entry: &RolloutTool) -> Duration {
        entry.tool.time_limit().map_or(self.tool_time_limit, |limit| limit.min(MAX_TOOL_TIME_LIMIT))
    }

    /// Runs a tool with arguments that are checked, until the deadline.
    async fn run(
        &self,
        entry: &RolloutTool,
        call: Call,
        limit: Duration,
        deadline: Instant,
    ) -> Result<(Reply, Option<Receipt>), CallError> {
        let tool = entry.tool.name();
        match timeout_at(deadline.into(), entry.tool.call(call, deadline)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                let error = CallError::from(error);
                // The error's text comes from the tool and its arguments, which do not belong in the log.
                tracing::debug!(tool, outcome = ?error.outcome(), "tool failed");
                Err(error)
            }
            Err(_late) => Err(CallError::TimedOut {
                tool: tool.to_owned(),
                seconds: ((limit.as_secs_f64() * 1e3).round() / 1e3).to_string(),
            }),
        }
    }
}

/// A call that has a reply.
pub(crate) struct Called<T> {
    pub(crate) reply: T,
    /// A receipt for results that are paid for.
    pub(crate) receipt: Option<Receipt>,
    /// The permit of a large result, to be kept as long as the result.
    pub(crate) large: Option<OwnedSemaphorePermit>,
}

/// Approximate bytes of a reply, counted up to those of a large result.
fn reply_bytes(reply: &Reply) -> usize {
    let result = match &reply.result {
        ToolResult::Value(value) => value_bytes([value], LARGE_RESULT_BYTES),
        ToolResult::Repr(text) => text.len(),
    };
    result + reply.print_lines.iter().map(String::len).sum::<usize>()
}

/// Counts a call when it ends: as cancelled if this is dropped before [`Self::end`].
struct CallCount<'a> {
    rollout: &'a Rollout,
    entry: &'a RolloutTool,
    metrics: &'a Arc<Metrics>,
    began: Instant,
    outcome: Outcome,
}

impl<'a> CallCount<'a> {
    fn begin(rollout: &'a Rollout, entry: &'a RolloutTool, metrics: &'a Arc<Metrics>) -> Self {
        rollout.count_begin();
        Self { rollout, entry, metrics, began: Instant::now(), outcome: Outcome::Cancelled }
    }

    fn end(mut self, error: Option<&CallError>) {
        self.outcome = error.map_or(Outcome::Ok, CallError::outcome);
    }
}

impl Drop for CallCount<'_> {
    fn drop(&mut self) {
        self.rollout.count_end();
        self.entry.calls.add(self.outcome);
        self.metrics.call(self.outcome, self.began.elapsed());
    }
}
