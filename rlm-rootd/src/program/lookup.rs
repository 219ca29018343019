//! The places of programs, and the part of the environment that they see.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Variables that every program gets if they are set.
const ENVIRONMENT: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// All variables of a process, by name.
pub(crate) type Variables = BTreeMap<OsString, OsString>;

/// The variables that every program gets.
pub(crate) fn usual_variables(environment: &Variables) -> Variables {
    let usual = ENVIRONMENT.iter().filter_map(|name| environment.get_key_value(OsStr::new(name)));
    usual.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Finds a program: a path with a slash is relative to `dir`; a name is looked up on PATH. The error says that it does not exist.
pub(crate) fn find(program: &str, dir: &Path, environment: &Variables) -> Result<PathBuf, String> {
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let path = Some(dir.join(program)).filter(is_program);
        return path.ok_or_else(|| format!("{program} is not a program"));
    }
    let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str).unwrap_or_default();
    let mut places = std::env::split_paths(path).map(|dir| dir.join(program));
    places.find(is_program).ok_or_else(|| format!("no program {program} on PATH"))
}
