//! Names that were meant, perhaps.

use std::path::Path;

use super::context::{Context, shown};
use super::fault::Fault;
use super::stop::Stop;
use super::walk::Walk;

/// Files that are looked at.
const MAX_FILES: usize = 10_000;

/// How like a name must be, from 0 to 1.
const LIKENESS: f64 = 0.8;

/// Names in a hint.
const MAX_NAMES: usize = 3;

/// Longest name that is compared, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The paths in the context that are most like one that is not there: of the same name elsewhere, or spelt otherwise.
pub(super) fn nearest(context: &Context, path: &str, stop: &Stop) -> Result<Vec<String>, Fault> {
    let wanted = Path::new(path).file_name().map_or_else(String::new, |name| shown(Path::new(name)));
    let mut likely = Likely::new(&wanted);
    let Ok(mut walk) = Walk::new(context, context.root.clone(), Path::new(""), stop) else {
        return Ok(Vec::new());
    };
    for _ in 0..MAX_FILES {
        let Some(found) = walk.next()? else { break };
        likely.consider(&found.name().to_string_lossy(), || shown(&found.path));
        for above in found.path.ancestors().skip(1) {
            if let Some(name) = above.file_name() {
                likely.consider(&name.to_string_lossy(), || shown(above));
            }
        }
    }
    Ok(likely.names())
}

/// The names that are most like one.
#[derive(Debug)]
pub(super) struct Likely<'a> {
    wanted: &'a str,
    names: Vec<(f64, String)>,
}

impl<'a> Likely<'a> {
    pub(super) fn new(wanted: &'a str) -> Self {
        Self { wanted, names: Vec::new() }
    }

    /// Takes a name into account; `whole` is what is told of it.
    pub(super) fn consider(&mut self, name: &str, whole: impl FnOnce() -> String) {
        if self.wanted.is_empty() || self.wanted.len().max(name.len()) > MAX_NAME_BYTES {
            return;
        }
        let likeness = strsim::jaro_winkler(&self.wanted.to_lowercase(), &name.to_lowercase());
        if likeness < LIKENESS {
            return;
        }
        let place = self.names.partition_point(|(held, _)| *held >= likeness);
        if place >= MAX_NAMES {
            return;
        }
        let whole = whole();
        if !self.names.iter().any(|(_, held)| *held == whole) {
            self.names.insert(place, (likeness, whole));
            self.names.truncate(MAX_NAMES);
        }
    }

    pub(super) fn names(self) -> Vec<String> {
        self.names.into_iter().map(|(_, name)| name).collect()
    }
}
