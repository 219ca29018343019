//! One log line and one count for each request.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::metrics::Route;
use crate::rootd::Shared;

/// The status of a request whose caller went away.
const CANCELLED: u16 = 499;

/// A request's line in the log. On drop, it is written and the request is counted; without a status, as [`CANCELLED`].
pub(super) struct Record {
    shared: Arc<Shared>,
    id: u64,
    began: Instant,
    route: OnceLock<Route>,
    rollout: OnceLock<String>,
    tool: OnceLock<String>,
    status: OnceLock<u16>,
}

impl Record {
    pub(super) fn begin(shared: Arc<Shared>) -> Self {
        static REQUESTS: AtomicU64 = AtomicU64::new(1);
        Self {
            shared,
            id: REQUESTS.fetch_add(1, Relaxed),
            began: Instant::now(),
            route: OnceLock::new(),
            rollout: OnceLock::new(),
            tool: OnceLock::new(),
            status: OnceLock::new(),
        }
    }

    pub(super) fn set_route(&self, route: Route) {
        self.route.get_or_init(|| route);
    }

    /// Names a rollout that exists and whose secret was presented: no stranger's text enters the log.
    pub(super) fn set_rollout(&self, id: &str) {
        self.rollout.get_or_init(|| id.to_owned());
    }

    /// Names a tool that exists.
    pub(super) fn set_tool(&self, name: &str) {
        self.tool.get_or_init(|| name.to_owned());
    }

    pub(super) fn set_status(&self, status: u16) {
        self.status.get_or_init(|| status);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let route = self.route.get().copied().unwrap_or(Route::Unknown);
        let status = self.status.get().copied().unwrap_or(CANCELLED);
        self.shared.metrics.request(route, status, took);
        tracing::info!(
            id = self.id,
            route = route.name(),
            rollout = self.rollout.get().map(String::as_str),
            tool = self.tool.get().map(String::as_str),
            status,
            ms = took.as_micros() as f64 / 1000.0,
            "request"
        );
    }
}
