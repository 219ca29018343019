//! Walks through the files below a directory, in order.
//!
//! Directories are listed through their descriptors, sorted by the bytes of names, and links are not followed. Leaves
//! out what the `.gitignore` files of the context exclude, the files of version control, and a rollout's conversation.
//! Rules from elsewhere (the host's, those of directories above the context) do not count.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use rlm_core::dirfd::{Directory, Entry, Kind};

use super::context::{Context, is_gone};
use super::rules::{IgnoreRules, Ignored, is_version_control};
use super::stop::{Stop, Stopped};

/// The conversation of a rollout, which the host writes into the directory. Not part of the context.
pub const TRANSCRIPT: &str = ".messages";

/// Largest depth of directories that are walked.
pub(super) const MAX_DEPTH: usize = 100;

/// A file that a walk has found. It may have been removed since.
#[derive(Clone, Debug)]
pub(super) struct FoundFile {
    /// Path relative to the context.
    pub(super) path: PathBuf,
    pub(super) directory: Arc<Directory>,
}

impl FoundFile {
    pub(super) fn name(&self) -> &OsStr {
        self.path.file_name().expect("a file has a name")
    }
}

/// A walk. Yields only regular files.
#[derive(Debug)]
pub(super) struct Walk {
    levels: Vec<Level>,
    stop: Stop,
    /// Number of directories that could not be read.
    pub(super) unread: u64,
}

#[derive(Debug)]
struct Level {
    directory: Arc<Directory>,
    path: PathBuf,
    entries: vec::IntoIter<Entry>,
    rules: IgnoreRules,
}

impl Walk {
    /// Starts a walk at a relative path.
    pub(super) fn new(
        context: &Context,
        directory: Arc<Directory>,
        path: &Path,
        stop: &Stop,
    ) -> io::Result<Self> {
        let rules = rules_above(context, path);
        let mut walk = Self { levels: Vec::new(), stop: stop.clone(), unread: 0 };
        walk.enter(directory, path.to_owned(), rules)?;
        Ok(walk)
    }

    /// The next file; None at the end.
    pub(super) fn next(&mut self) -> Result<Option<FoundFile>, Stopped> {
        while let Some(level) = self.levels.last_mut() {
            self.stop.check()?;
            let Some(entry) = level.entries.next() else {
                self.levels.pop();
                continue;
            };
            let path = level.path.join(&entry.name);
            match entry.kind {
                Kind::File if !is_left_out(&level.rules, &path, false) => {
                    return Ok(Some(FoundFile { path, directory: level.directory.clone() }));
                }
                Kind::Directory if !is_left_out(&level.rules, &path, true) => {
                    let rules = level.rules.clone();
                    let entered = level.directory.directory(&entry.name);
                    let entered = entered.and_then(|directory| self.enter(Arc::new(directory), path, rules));
                    self.unread += u64::from(entered.is_err_and(|error| !is_gone(&error)));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn enter(&mut self, directory: Arc<Directory>, path: PathBuf, above: IgnoreRules) -> io::Result<()> {
        if self.levels.len() >= MAX_DEPTH {
            return Err(io::Error::other("too deep"));
        }
        let entries = sorted(&directory)?;
        let names = entries.iter().map(|entry| entry.name.as_os_str());
        let rules = above.with_own_among(names, &directory, &path);
        self.levels.push(Level { directory, path, entries: entries.into_iter(), rules });
        Ok(())
    }
}

/// The entries of a directory, sorted.
pub(super) fn sorted(directory: &Directory) -> io::Result<Vec<Entry>> {
    let mut entries = directory.entries()?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// The rules for the entries of a directory.
pub(super) fn rules_of(context: &Context, directory: &Directory, path: &Path) -> IgnoreRules {
    rules_above(context, path).with_own(directory, path)
}

/// True if a walk leaves an entry out.
pub(super) fn is_left_out(rules: &IgnoreRules, path: &Path, is_directory: bool) -> bool {
    (path.as_os_str() == TRANSCRIPT && !is_directory)
        || path.file_name().is_some_and(is_version_control)
        || rules.decide(path, is_directory) == Ignored::Yes
}

/// The rules of the directories above a path; none if one of them is gone.
fn rules_above(context: &Context, path: &Path) -> IgnoreRules {
    let mut rules = IgnoreRules::default();
    let (mut directory, mut at) = (context.root.clone(), PathBuf::new());
    for name in path {
        rules = rules.with_own(&directory, &at);
        let Ok(below) = directory.directory(name) else { return IgnoreRules::default() };
        directory = Arc::new(below);
        at.push(name);
    }
    rules
}
