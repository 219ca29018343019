//! The entries of a trajectory assembled into rollouts, turns, calls and sub-calls.

mod read;
mod rollout;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use rlm_env::trajectory::{Entry, Event, images_dir};

pub(super) use self::rollout::{
    Batch, Call, End, ModelCall, Output, Prompt, Rollout, Start, Step, Thought, Turn,
};
use crate::text::Lengths;

/// The rollouts of a file, in the order of their first entries.
#[derive(Debug, Default)]
pub(super) struct Rollouts {
    pub(super) list: Vec<Rollout>,
    /// Number of rollouts that are left out before the first one.
    skipped: usize,
    /// The index of each rollout in the list, by id.
    places: HashMap<String, usize>,
    /// The first rollout with a question, by the question's hash.
    questions: HashMap<u64, usize>,
    lengths: Lengths,
    /// The directory with the images of the file; empty if they are read from elsewhere.
    images: PathBuf,
    /// The number of entries.
    pub(super) stamp: u64,
}

impl Rollouts {
    /// No rollouts of a file yet; None stands for standard input.
    pub(super) fn new(file: Option<&Path>, lengths: Lengths) -> Self {
        // The images of a linked file lie beside the link's target.
        let whole = file.map(|file| file.canonicalize().unwrap_or_else(|_| file.to_owned()));
        Self { lengths, images: whole.as_deref().map(images_dir).unwrap_or_default(), ..Self::default() }
    }

    /// Counts a rollout that is left out.
    pub(super) fn skip_one(&mut self) {
        if self.list.is_empty() {
            self.skipped += 1;
        }
    }

    /// Adds the next entry.
    pub(super) fn add(&mut self, entry: Entry) {
        let lengths = self.lengths;
        let begins_anew =
            |rollout: &Rollout| matches!(entry.event, Event::RolloutStarted(_)) && rollout.start.is_some();
        self.stamp += 1;
        let place = self.places.get(&entry.rollout).copied();
        let place = match place.filter(|place| !begins_anew(&self.list[*place])) {
            Some(place) => place,
            None => {
                // The last attempt with an id so far counts.
                let parent = match &entry.event {
                    Event::RolloutStarted(started) => started.parent.as_ref(),
                    _ => None,
                };
                let parent = parent.and_then(|parent| self.places.get(parent).copied());
                let mut rollout = Rollout::new(&entry, self.skipped + self.list.len(), parent);
                rollout.images.clone_from(&self.images);
                rollout.parent_turn = parent.and_then(|parent| {
                    let (parent, id) = (&self.list[parent], rollout.parent_call.as_deref()?);
                    parent.place_of_call(Some(id)).map(|(turn, _)| parent.turns[turn].number)
                });
                self.list.push(rollout);
                self.places.insert(entry.rollout.clone(), self.list.len() - 1);
                self.list.len() - 1
            }
        };
        let rollout = &mut self.list[place];
        rollout.stamp = self.stamp;
        // Scoring is not a part of the rollout's time.
        if !matches!(entry.event, Event::RolloutScored(_)) {
            rollout.last = rollout.last.max(entry.time);
        }
        if let Event::RolloutStarted(started) = &entry.event {
            rollout.asks = *self.questions.entry(hash(&started.question)).or_insert(rollout.at);
        }
        rollout.add(entry.time, entry.event, lengths);
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A rollout in its tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    pub(super) rollout: &'a Rollout,
    /// The number of rollouts above it that are in the file.
    pub(super) level: usize,
}

impl Rollouts {
    /// The rollouts in the order of a tree: those that a rollout has started follow it.
    pub(super) fn in_tree_order(&self) -> Vec<Node<'_>> {
        let mut of_parent: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut left = Vec::new();
        for (at, rollout) in self.list.iter().enumerate().rev() {
            match rollout.parent {
                Some(parent) => of_parent.entry(parent).or_default().push(at),
                None => left.push((at, Node { rollout, level: 0 })),
            }
        }
        let mut ordered = Vec::with_capacity(self.list.len());
        while let Some((at, node)) = left.pop() {
            ordered.push(node);
            let below = |at| (at, Node { rollout: &self.list[at], level: node.level + 1 });
            left.extend(of_parent.remove(&at).into_iter().flatten().map(below));
        }
        ordered
    }
}
