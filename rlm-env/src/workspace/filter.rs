//! The filter of a context: what copies of its directories leave out.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rlm_core::dirfd::Directory;
use rlm_rootd::nav::{IgnoreRules, Ignored, InvalidPattern, is_version_control};

use crate::terms::LeftOutReason;

/// Files that copies of a context's directories leave out. A path of the context itself is always copied.
#[derive(Clone, Debug)]
pub struct ContextFilter {
    gitignore: bool,
    exclude: IgnoreRules,
}

impl ContextFilter {
    /// With `gitignore`, leaves out the files that `.gitignore` files in a directory exclude, and the files of version control,
    /// such as `.git`. `exclude` has patterns in the syntax of `.gitignore`, relative to the top of each directory. They override
    /// those of files: one with `!` includes what a file excludes.
    ///
    /// # Errors
    /// The first pattern that is not valid.
    pub fn new(gitignore: bool, exclude: &[impl AsRef<str>]) -> Result<Self, InvalidPattern> {
        Ok(Self { gitignore, exclude: IgnoreRules::of_patterns(exclude)? })
    }

    /// The rules for the entries of a directory, given those for the directory above. `path` is the path of the directory from
    /// the top, and `names` are the names of its entries.
    pub(super) fn rules<'a>(
        &self,
        above: IgnoreRules,
        directory: &Directory,
        path: &Path,
        names: impl Iterator<Item = &'a OsStr>,
    ) -> IgnoreRules {
        if self.gitignore { above.with_own_among(names, directory, path) } else { above }
    }

    /// The reason to leave an entry out, if there is one. `path` makes its path from the top.
    pub(super) fn reason(
        &self,
        rules: &IgnoreRules,
        name: &OsStr,
        path: impl FnOnce() -> PathBuf,
        is_directory: bool,
    ) -> Option<LeftOutReason> {
        let by_name = (self.gitignore && is_version_control(name)).then_some(LeftOutReason::Gitignore);
        if self.exclude.is_empty() && rules.is_empty() {
            return by_name;
        }
        let path = path();
        match self.exclude.decide(&path, is_directory) {
            Ignored::Yes => Some(LeftOutReason::Exclude),
            Ignored::No => None,
            Ignored::Undecided if rules.decide(&path, is_directory) == Ignored::Yes => {
                Some(LeftOutReason::Gitignore)
            }
            Ignored::Undecided => by_name,
        }
    }
}

/// A filter with `gitignore` and without patterns.
impl Default for ContextFilter {
    fn default() -> Self {
        Self { gitignore: true, exclude: IgnoreRules::default() }
    }
}
