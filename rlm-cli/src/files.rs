//! Files that a person names.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Reports whether two paths name one file, which may not exist yet. Terminals and pipes may be shared.
pub(crate) fn is_one_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some((dir.canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => place(one).is_some_and(|one| Some(one) == place(other)),
        _ => false,
    }
}
