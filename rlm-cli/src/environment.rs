//! The environment of this process, read once in `main` and passed down.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::usage::Usage;

/// The variables by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    pub(crate) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self(variables.into_iter().collect())
    }

    /// The environment with another value of a variable.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut variables = self.0.clone();
        variables.insert(name.into(), value.into());
        Self(variables)
    }

    /// The value of a variable, which may be empty.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The value of a variable. An empty one counts as not set.
    pub(crate) fn non_empty(&self, name: &str) -> Option<&OsStr> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// The text of a variable. An empty one counts as not set.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Usage> {
        let Some(value) = self.non_empty(name) else { return Ok(None) };
        value.to_str().map(Some).ok_or_else(|| Usage::new(format!("{name} is not UTF-8")))
    }

    /// True for a terminal that can only print lines.
    pub(crate) fn is_dumb(&self) -> bool {
        self.get("TERM").is_some_and(|term| term == "dumb")
    }

    /// True if `NO_COLOR` is set.
    pub(crate) fn wants_no_colour(&self) -> bool {
        self.non_empty("NO_COLOR").is_some()
    }

    /// The value of a variable, if it is an absolute path.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// A directory of the user's: the value of a variable, by default this one below the home. None without either.
    pub(crate) fn user_directory(&self, variable: &str, default: &str) -> Option<PathBuf> {
        self.directory(variable).or_else(|| Some(self.directory("HOME")?.join(default)))
    }

    /// The directory for temporary files. An empty `TMPDIR` counts as not set.
    pub(crate) fn temp_dir(&self) -> PathBuf {
        self.non_empty("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
    }

    /// The directory for what is kept from run to run: `$XDG_STATE_HOME/rlm`, by default under `~/.local/state`. None without
    /// a home.
    pub(crate) fn state_dir(&self) -> Option<PathBuf> {
        Some(self.user_directory("XDG_STATE_HOME", ".local/state")?.join("rlm"))
    }

    /// All variables.
    pub(crate) fn variables(&self) -> &BTreeMap<OsString, OsString> {
        &self.0
    }

    /// All variables, as a child process gets them.
    pub(crate) fn to_list(&self) -> Vec<(OsString, OsString)> {
        self.0.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self(variables.iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn an_empty_tmpdir_counts_as_not_set() {
        let dir = |variables: [(&str, &str); 1]| Environment::from(variables).temp_dir();
        assert_eq!(dir([("TMPDIR", "/var/tmp")]), Path::new("/var/tmp"));
        assert_eq!(dir([("TMPDIR", "")]), Path::new("/tmp"));
        assert_eq!(dir([("HOME", "/")]), Path::new("/tmp"));
    }
}
