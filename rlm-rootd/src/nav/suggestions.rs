//! Suggestions for names that do not exist.

use std::path::Path;

use super::context::{Context, shown};
use super::fault::Fault;
use super::stop::Stop;
use super::walk::Walk;

/// Number of files whose names are compared.
const MAX_FILES: usize = 10_000;

/// Least similarity of a suggestion, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.8;

/// Largest number of names in a hint.
const MAX_NAMES: usize = 3;

/// Longest name that is compared, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The paths in the context that are most similar to a missing one: with the same name elsewhere, or a similar
/// spelling.
pub(super) fn similar_paths(context: &Context, path: &str, stop: &Stop) -> Result<Vec<String>, Fault> {
    let wanted = Path::new(path).file_name().map_or_else(String::new, |name| shown(Path::new(name)));
    let mut suggestions = Suggestions::new(&wanted);
    let Ok(mut walk) = Walk::new(context, context.root.clone(), Path::new(""), stop) else {
        return Ok(Vec::new());
    };
    for _ in 0..MAX_FILES {
        let Some(found) = walk.next()? else { break };
        suggestions.consider(&found.name().to_string_lossy(), || shown(&found.path));
        for above in found.path.ancestors().skip(1) {
            if let Some(name) = above.file_name() {
                suggestions.consider(&name.to_string_lossy(), || shown(above));
            }
        }
    }
    Ok(suggestions.names())
}

/// The names most similar to a wanted one.
#[derive(Debug)]
pub(super) struct Suggestions<'a> {
    wanted: &'a str,
    names: Vec<(f64, String)>,
}

impl<'a> Suggestions<'a> {
    pub(super) fn new(wanted: &'a str) -> Self {
        Self { wanted, names: Vec::new() }
    }

    /// Adds `whole` as a suggestion if the name is similar.
    pub(super) fn consider(&mut self, name: &str, whole: impl FnOnce() -> String) {
        if self.wanted.is_empty() || self.wanted.len().max(name.len()) > MAX_NAME_BYTES {
            return;
        }
        let similarity = strsim::jaro_winkler(&self.wanted.to_lowercase(), &name.to_lowercase());
        if similarity < MIN_SIMILARITY {
            return;
        }
        let place = self.names.partition_point(|(held, _)| *held >= similarity);
        if place >= MAX_NAMES {
            return;
        }
        let whole = whole();
        if !self.names.iter().any(|(_, held)| *held == whole) {
            self.names.insert(place, (similarity, whole));
            self.names.truncate(MAX_NAMES);
        }
    }

    pub(super) fn names(self) -> Vec<String> {
        self.names.into_iter().map(|(_, name)| name).collect()
    }
}
