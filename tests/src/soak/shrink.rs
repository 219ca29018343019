//! Finds a short list of calls that still breaks the same promise.

use std::time::{Duration, Instant};

use super::defect::Class;
use super::frame::Frame;
use super::session::Means;
use super::step::{Reading, Step};

/// Bounds of a search.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of runs in the search.
    pub runs: usize,
    /// Number of times that a list is tried before it counts as harmless: many defects are races.
    pub repetitions: usize,
    /// Number of runs of the shortest list that tell how often it fails.
    pub trials: usize,
    /// Time after which the search ends.
    pub time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { runs: 300, repetitions: 3, trials: 10, time: Duration::from_secs(90) }
    }
}

/// The shortest list that was found.
#[derive(Clone, Debug)]
pub struct Shortest {
    /// The calls in the list.
    pub steps: Vec<Step>,
    /// Number of runs in which it failed, and number of runs.
    pub failures: (usize, usize),
}

/// Removes pieces of a list of calls for as long as it breaks a promise of this class.
#[must_use]
pub fn shrink(means: &Means, frame: &Frame, steps: &[Step], class: Class, bounds: Bounds) -> Shortest {
    let deadline = Instant::now() + bounds.time;
    let mut runs = 0;
    let mut fails = |steps: &[Step], times: usize| {
        (0..times).any(|_| {
            let may_run = runs < bounds.runs && Instant::now() < deadline;
            runs += 1;
            may_run && is_broken(means, frame, steps, class)
        })
    };
    let mut steps = steps.to_vec();
    // Removes large pieces first and single calls last, from the end of the list to its beginning.
    let mut size = steps.len().div_ceil(2);
    while size > 0 {
        let mut end = steps.len();
        while end > 0 {
            let start = end.saturating_sub(size);
            let mut shorter = steps.clone();
            shorter.drain(start..end);
            if !shorter.is_empty() && fails(&shorter, bounds.repetitions) {
                steps = shorter;
            }
            end = start;
        }
        size /= 2;
    }
    let mut plain = steps.clone();
    for step in &mut plain {
        (step.reading, step.disturbance) = (Reading::default(), None);
    }
    if plain != steps && fails(&plain, bounds.repetitions) {
        steps = plain;
    }
    let failures = (0..bounds.trials).filter(|_| is_broken(means, frame, &steps, class)).count();
    Shortest { steps, failures: (failures, bounds.trials) }
}

fn is_broken(means: &Means, frame: &Frame, steps: &[Step], class: Class) -> bool {
    means.replay(frame, steps).defect.is_some_and(|defect| defect.class == class)
}
