//! The open connections, and which of them has been idle for longest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

/// The open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, State>,
}

#[derive(Debug)]
struct State {
    /// None while a request is worked on and until its response is sent.
    idle_since: Option<Instant>,
    evicted: CancellationToken,
}

impl Connections {
    /// Adds one. It is idle at first.
    pub(crate) fn add(self: &Arc<Self>) -> Arc<Connection> {
        let evicted = CancellationToken::new();
        let mut open = self.open();
        let id = open.next;
        open.next += 1;
        open.connections.insert(id, State { idle_since: Some(Instant::now()), evicted: evicted.clone() });
        Arc::new(Connection { all: self.clone(), id, evicted })
    }

    /// Number of open connections.
    pub(crate) fn count(&self) -> usize {
        self.open().connections.len()
    }

    /// Ends the connection that has been idle for longest, if any is idle.
    pub(crate) fn evict_one(&self) {
        let open = self.open();
        let idle = open.connections.values().filter(|state| !state.evicted.is_cancelled());
        let longest =
            idle.filter_map(|state| Some((state.idle_since?, state))).min_by_key(|(since, _)| *since);
        if let Some((_, state)) = longest {
            state.evicted.cancel();
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection; it is removed on drop.
#[derive(Debug)]
pub(crate) struct Connection {
    all: Arc<Connections>,
    id: u64,
    /// Cancelled when its place is needed.
    pub(crate) evicted: CancellationToken,
}

impl Connection {
    /// It is not idle for as long as this is held.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.set_idle_since(None);
        Busy(self.clone())
    }

    /// Whether no request is worked on.
    pub(crate) fn is_idle(&self) -> bool {
        self.all.open().connections.get(&self.id).is_none_or(|state| state.idle_since.is_some())
    }

    fn set_idle_since(&self, since: Option<Instant>) {
        if let Some(state) = self.all.open().connections.get_mut(&self.id) {
            state.idle_since = since;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.open().connections.remove(&self.id);
    }
}

/// A request is worked on, or its response is not sent yet.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Connection>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set_idle_since(Some(Instant::now()));
    }
}
