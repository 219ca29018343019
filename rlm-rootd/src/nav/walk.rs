//! Walks through the files below a directory, in order.
//!
//! Directories are listed through their descriptors, sorted by the bytes of names, and links are not followed. Leaves
//! out what the `.gitignore` files of the context exclude, the files of version control, and a rollout's conversation.
//! Rules from elsewhere (the host's, those of directories above the context) do not count.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rlm_core::dirfd::{Directory, Entry, Kind};

use super::context::{Context, is_gone, open_file};
use super::stop::{Stop, Stopped};

/// Directories of version control, or files that point to one. Their contents are not part of the project.
const VERSION_CONTROL: [&str; 4] = [".git", ".hg", ".jj", ".svn"];

/// The conversation of a rollout, which the host writes into the directory. Not part of the context.
pub const TRANSCRIPT: &str = ".messages";

const GITIGNORE: &str = ".gitignore";

/// Largest `.gitignore` file in bytes.
const MAX_RULES_BYTES: u64 = 64 << 10;

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
    rules: Option<Arc<Rules>>,
}

/// The rules of a directory, and of those above it.
#[derive(Debug)]
pub(super) struct Rules {
    own: Gitignore,
    above: Option<Arc<Self>>,
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
                Kind::File if !is_left_out(level.rules.as_deref(), &path, false) => {
                    return Ok(Some(FoundFile { path, directory: level.directory.clone() }));
                }
                Kind::Directory if !is_left_out(level.rules.as_deref(), &path, true) => {
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

    fn enter(
        &mut self,
        directory: Arc<Directory>,
        path: PathBuf,
        above: Option<Arc<Rules>>,
    ) -> io::Result<()> {
        if self.levels.len() >= MAX_DEPTH {
            return Err(io::Error::other("too deep"));
        }
        let entries = sorted(&directory)?;
        let rules = if entries.iter().any(|entry| entry.name == GITIGNORE) {
            with_own(&directory, &path, above)
        } else {
            above
        };
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
pub(super) fn rules_of(context: &Context, directory: &Directory, path: &Path) -> Option<Arc<Rules>> {
    with_own(directory, path, rules_above(context, path))
}

/// True if a walk leaves an entry out.
pub(super) fn is_left_out(rules: Option<&Rules>, path: &Path, is_directory: bool) -> bool {
    if path.as_os_str() == TRANSCRIPT && !is_directory {
        return true;
    }
    if path.file_name().is_some_and(|name| VERSION_CONTROL.iter().any(|held| name == *held)) {
        return true;
    }
    let mut rules = rules;
    while let Some(Rules { own, above }) = rules {
        match own.matched(path, is_directory) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => rules = above.as_deref(),
        }
    }
    false
}

/// The rules of the directories above a path.
fn rules_above(context: &Context, path: &Path) -> Option<Arc<Rules>> {
    let mut rules = None;
    let (mut directory, mut at) = (context.root.clone(), PathBuf::new());
    for name in path {
        rules = with_own(&directory, &at, rules);
        directory = Arc::new(directory.directory(name).ok()?);
        at.push(name);
    }
    rules
}

/// Adds a directory's own rules, if it has any that can be read.
fn with_own(directory: &Directory, path: &Path, above: Option<Arc<Rules>>) -> Option<Arc<Rules>> {
    let Some(text) = rules_text(directory) else { return above };
    let mut builder = GitignoreBuilder::new(path);
    for line in String::from_utf8_lossy(&text).lines() {
        // Git ignores invalid lines too.
        let _is_no_rule = builder.add_line(None, line).is_err();
    }
    match builder.build() {
        Ok(own) if !own.is_empty() => Some(Arc::new(Rules { own, above })),
        _ => above,
    }
}

fn rules_text(directory: &Directory) -> Option<Vec<u8>> {
    let open = open_file(directory, &OsString::from(GITIGNORE)).ok()??;
    let mut text = Vec::new();
    open.file.take(MAX_RULES_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}
