//! Rules of `.gitignore` files: they exclude files that do not belong to a directory's project.
//!
//! Only the files below the directory that is read count: not the host's, nor those of directories above it.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rlm_core::dirfd::Directory;

use super::context::open_file;

/// Directories of version control, or files that point to one. Their contents are not part of the project.
const VERSION_CONTROL: [&str; 4] = [".git", ".hg", ".jj", ".svn"];

/// The name of a file with rules.
pub(super) const GITIGNORE: &str = ".gitignore";

/// Largest `.gitignore` file in bytes.
const MAX_RULES_BYTES: u64 = 64 << 10;

/// The rules of a directory, and of those above it.
#[derive(Clone, Debug, Default)]
pub struct IgnoreRules(Option<Arc<Level>>);

#[derive(Debug)]
struct Level {
    own: Gitignore,
    above: IgnoreRules,
}

/// The decision of rules on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// A rule excludes the path.
    Yes,
    /// A rule with `!` includes the path.
    No,
    /// No rule matches.
    Undecided,
}

/// A pattern that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern `{pattern}` is not valid: {reason}")]
pub struct InvalidPattern {
    /// The pattern.
    pub pattern: String,
    /// Why the pattern is not valid.
    pub reason: String,
}

impl IgnoreRules {
    /// The rules of patterns in the syntax of `.gitignore`, for paths relative to the directory that they are for.
    ///
    /// # Errors
    /// The first pattern that is not valid.
    pub fn of_patterns(patterns: &[impl AsRef<str>]) -> Result<Self, InvalidPattern> {
        let mut builder = GitignoreBuilder::new("");
        for pattern in patterns.iter().map(AsRef::as_ref) {
            let invalid = |error: ignore::Error| {
                let reason = match error {
                    ignore::Error::Glob { err, .. } => err,
                    other => other.to_string(),
                };
                InvalidPattern { pattern: pattern.to_owned(), reason }
            };
            builder.add_line(None, pattern).map_err(invalid)?;
        }
        Ok(Self::default().below(builder))
    }

    /// These rules, and before them those of the directory at this relative path, if it has rules that can be read.
    #[must_use]
    pub fn with_own(self, directory: &Directory, path: &Path) -> Self {
        let Some(text) = rules_text(directory) else { return self };
        let mut builder = GitignoreBuilder::new(path);
        let text = String::from_utf8_lossy(&text);
        for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
            // Git ignores invalid lines too.
            let _is_no_rule = builder.add_line(None, &with_literal_braces(line)).is_err();
        }
        self.below(builder)
    }

    /// Like [`Self::with_own`], for a directory whose entries have these names.
    #[must_use]
    pub fn with_own_among<'a>(
        self,
        mut names: impl Iterator<Item = &'a OsStr>,
        directory: &Directory,
        path: &Path,
    ) -> Self {
        if names.any(|name| name == GITIGNORE) { self.with_own(directory, path) } else { self }
    }

    /// True if there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The decision on a path: that of the lowest directory with a rule that matches.
    #[must_use]
    pub fn decide(&self, path: &Path, is_directory: bool) -> Ignored {
        let mut rules = self;
        while let Some(level) = &rules.0 {
            match level.own.matched(path, is_directory) {
                Match::Ignore(_) => return Ignored::Yes,
                Match::Whitelist(_) => return Ignored::No,
                Match::None => rules = &level.above,
            }
        }
        Ignored::Undecided
    }

    fn below(self, builder: GitignoreBuilder) -> Self {
        match builder.build() {
            Ok(own) if !own.is_empty() => Self(Some(Arc::new(Level { own, above: self }))),
            _ => self,
        }
    }
}

/// True for a name that belongs to version control.
#[must_use]
pub fn is_version_control(name: &OsStr) -> bool {
    VERSION_CONTROL.iter().any(|held| name == *held)
}

/// A line in which braces stand for themselves, as in git; for globs they are alternatives.
fn with_literal_braces(line: &str) -> String {
    let mut literal = String::with_capacity(line.len());
    let (mut is_escaped, mut is_class) = (false, false);
    for c in line.chars() {
        let is_brace = matches!(c, '{' | '}') && !is_escaped && !is_class;
        if is_brace {
            literal.push('\\');
        }
        literal.push(c);
        is_class = if is_class { c != ']' } else { c == '[' && !is_escaped };
        is_escaped = c == '\\' && !is_escaped;
    }
    literal
}

fn rules_text(directory: &Directory) -> Option<Vec<u8>> {
    let open = open_file(directory, OsStr::new(GITIGNORE)).ok()??;
    let mut text = Vec::new();
    open.file.take(MAX_RULES_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_decide_on_paths_and_a_later_one_comes_first() {
        let rules =
            IgnoreRules::of_patterns(&["*.csv", "/data/", "a/b", "!keep.csv", "# a comment", ""]).unwrap();
        let decide = |path: &str, is_directory| rules.decide(Path::new(path), is_directory);
        for (path, is_directory, expected) in [
            ("x/y.csv", false, Ignored::Yes),
            ("keep.csv", false, Ignored::No),
            ("data", true, Ignored::Yes),
            ("data", false, Ignored::Undecided),
            ("x/data", true, Ignored::Undecided),
            ("a/b", false, Ignored::Yes),
            ("x/a/b", false, Ignored::Undecided),
        ] {
            assert_eq!(decide(path, is_directory), expected, "{path}");
        }
        assert!(IgnoreRules::of_patterns(&[""; 0]).unwrap().is_empty());
    }

    #[test]
    fn an_invalid_pattern_is_named() {
        let error = IgnoreRules::of_patterns(&["a", "[z-a]"]).unwrap_err();
        assert_eq!(error.to_string(), "the pattern `[z-a]` is not valid: invalid range; 'z' > 'a'");
    }

    #[test]
    fn a_file_is_read_as_git_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".gitignore"), "\u{feff}/first\n{a,b}\n\\{c\\}\n[{]d\n").unwrap();
        let rules = IgnoreRules::default().with_own(&Directory::at_path(dir.path()).unwrap(), Path::new(""));
        let is_left_out = |path: &str| matches!(rules.decide(Path::new(path), false), Ignored::Yes);
        assert_eq!(
            ["first", "a", "b", "{a,b}", "{c}", "{d"].map(is_left_out),
            [true, false, false, true, true, true]
        );
    }
}
