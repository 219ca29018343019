//! Recursion: how far rollouts may start others, and the tree that they form.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use rlm_rootd::RootModel;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use super::log::Log;

/// Most children of a tree that run at once, by default.
const MAX_RUNNING: usize = 8;

/// Lets code in a session start rollouts of its own, *children*, by `rlm_query` and `rlm_query_batch`.
#[derive(Clone, Debug)]
pub struct Recursion {
    /// Most levels of children: with 1, children have no children.
    pub max_depth: u32,
    /// The settings of each level below the rollout, that of its children first. Levels beyond the last one are like it. Empty by
    /// default: children are like their parents.
    pub levels: Vec<Level>,
    /// Children of the whole tree that run at once; 8 by default. A child that waits for its own children does not count.
    pub max_running: usize,
    /// The place of the rollout in its tree. None: it is the root.
    node: Option<Node>,
}

/// The settings of children at one depth.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// The model that leads them. None: that of their parents.
    pub model: Option<Arc<dyn RootModel>>,
    /// The names of their root tools, of those that their parents have. None: all.
    pub root_tools: Option<Vec<String>>,
}

/// A rollout in its tree.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Number of rollouts above this one.
    pub(super) depth: u32,
    /// The ids of the rollout that has started this one, and of the call whose code did so.
    pub(super) parent: Option<(String, Option<String>)>,
    /// The digest of the question that the code asked.
    pub(super) query_digest: Option<String>,
    /// The log of the parent, which also counts its children's events.
    pub(super) parent_log: Option<Arc<Log>>,
    /// One permit for each child that may run.
    pub(super) places: Arc<Semaphore>,
    /// The rollout's own place. None for the root.
    pub(super) place: Option<Arc<Place>>,
}

impl Recursion {
    /// Allows this many levels of children.
    #[must_use]
    pub fn new(max_depth: u32) -> Self {
        Self { max_depth, levels: Vec::new(), max_running: MAX_RUNNING, node: None }
    }

    /// The rollout in its tree: the root of a new one, unless it was started by another rollout.
    pub(super) fn node(&self) -> Node {
        self.node.clone().unwrap_or_else(|| Node {
            depth: 0,
            parent: None,
            query_digest: None,
            parent_log: None,
            places: Arc::new(Semaphore::new(self.max_running.clamp(1, Semaphore::MAX_PERMITS))),
            place: None,
        })
    }

    /// The depth of the rollout, and the ids of the rollout and of the call that started it.
    pub(super) fn origin(&self) -> (u32, Option<(String, Option<String>)>) {
        self.node.as_ref().map_or((0, None), |node| (node.depth, node.parent.clone()))
    }

    /// True for a rollout that another one has started.
    pub(super) fn is_of_child(&self) -> bool {
        self.origin().1.is_some()
    }

    pub(super) fn query_digest(&self) -> Option<String> {
        self.node.as_ref()?.query_digest.clone()
    }

    /// The log of the rollout that has started this one.
    pub(super) fn parent_log(&self) -> Option<Arc<Log>> {
        self.node.as_ref()?.parent_log.clone()
    }

    /// The recursion of a child, which is this node.
    pub(super) fn of_child(&self, node: Node) -> Self {
        Self { node: Some(node), ..self.clone() }
    }

    /// The settings of children at this depth.
    pub(super) fn level(&self, depth: u32) -> Option<&Level> {
        let at = usize::try_from(depth).unwrap_or(usize::MAX).saturating_sub(1);
        self.levels.get(at).or(self.levels.last())
    }
}

/// A child's place among those that run. While a child waits for its own children, they have its place: otherwise all places
/// could be held by rollouts that wait.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Semaphore>,
    /// Number of calls that wait for children.
    waiting: AtomicUsize,
    /// The permit of the place. Locked by the one call that waits to have the permit again.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Place {
    /// Waits for a place.
    pub(super) async fn take(places: &Arc<Semaphore>) -> Arc<Self> {
        let permit = places.clone().acquire_owned().await.ok();
        Arc::new(Self { places: places.clone(), waiting: AtomicUsize::new(0), permit: Mutex::new(permit) })
    }

    /// Waits for the place again, if it was given away, unless calls still wait for children.
    pub(super) async fn take_back(&self) {
        let mut permit = self.permit.lock().await;
        if permit.is_none() && self.waiting.load(SeqCst) == 0 {
            *permit = self.places.clone().acquire_owned().await.ok();
        }
    }

    /// Gives the place away until [`Given::take_back`]. If the call is given up, the next turn takes the place back.
    pub(super) async fn give(self: &Arc<Self>) -> Given {
        self.waiting.fetch_add(1, SeqCst);
        let given = Given(self.clone());
        drop(self.permit.lock().await.take());
        given
    }
}

/// A place that was given away.
#[derive(Debug)]
pub(super) struct Given(Arc<Place>);

impl Given {
    /// Waits for a place again, unless other calls of the rollout still wait for children.
    pub(super) async fn take_back(self) {
        let place = self.0.clone();
        drop(self);
        place.take_back().await;
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_whose_call_was_given_up_is_taken_back_before_the_next_turn() {
        let places = Arc::new(Semaphore::new(1));
        let place = Place::take(&places).await;
        assert_eq!(places.available_permits(), 0);
        let (one, other) = (place.give().await, place.give().await);
        assert_eq!(places.available_permits(), 1, "its children have it");
        drop(one);
        place.take_back().await;
        assert_eq!(places.available_permits(), 1, "the other call still waits");
        drop(other);
        place.take_back().await;
        assert_eq!(places.available_permits(), 0);
    }
}
