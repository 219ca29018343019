//! One line in the log, and one count, for each request.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::metrics::Route;
use crate::rootd::Shared;

/// The status that stands for a caller that went away.
const CANCELLED: u16 = 499;

/// What is known of a request. When it is dropped the request has ended; without [`Record::answered`], unanswered.
pub(crate) struct Record {
    shared: Arc<Shared>,
    id: u64,
    began: Instant,
    pub(crate) route: OnceLock<Route>,
    /// Only one that exists, and whose secret was presented: nothing that a stranger chose enters the log.
    pub(crate) rollout: OnceLock<String>,
    /// Only one that exists.
    pub(crate) tool: OnceLock<String>,
    status: OnceLock<u16>,
}

impl Record {
    pub(crate) fn begin(shared: Arc<Shared>) -> Self {
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

    pub(crate) fn answered(&self, status: u16) {
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
