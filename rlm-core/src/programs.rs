//! The directory with the programs, and the Python that may be in it.

use std::io;
use std::path::{Path, PathBuf};

/// The word that stands for the built-in Python, in place of a path.
pub const BUILTIN: &str = "builtin";

/// The oldest CPython that can run the cells: 3.10.
const OLDEST_MINOR: u32 = 10;

/// The directory of the programs: `given` (the value of [`BIN_DIR`](crate::env::BIN_DIR)), or that of the running one.
///
/// It is absolute: sessions have directories of their own.
///
/// # Errors
/// The path of the running program, or the current directory, cannot be found.
pub fn directory(given: Option<&Path>) -> io::Result<PathBuf> {
    match given {
        Some(given) => std::path::absolute(given),
        None => Ok(std::env::current_exe()?.parent().unwrap_or(Path::new("/")).to_owned()),
    }
}

/// The Python beside the programs, if there is one.
#[must_use]
pub fn builtin_python(programs: &Path) -> Option<PathBuf> {
    Some(programs.join("python/bin/python3")).filter(|python| python.is_file())
}

/// The built-in Python, if it is needed: `on_path`, the `python3` on `PATH`, is missing or older than 3.10. Its age is read off the
/// name that it links to, such as `python3.9` or `platform-python3.6`.
#[must_use]
pub fn needed_builtin(programs: &Path, on_path: Option<&Path>) -> Option<PathBuf> {
    let is_too_old = |python: &Path| {
        let program = python.canonicalize().ok()?;
        let (_, version) = program.file_name()?.to_str()?.split_once("python3.")?;
        let digits = version.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(version.len());
        Some(version[..digits].parse::<u32>().ok()? < OLDEST_MINOR)
    };
    match on_path {
        Some(python) if is_too_old(python) != Some(true) => None,
        _ => builtin_python(programs),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_directory_is_absolute() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(directory(Some(Path::new("target/release"))).unwrap(), here.join("target/release"));
        assert_eq!(directory(Some(Path::new("/opt"))).unwrap(), Path::new("/opt"));
        assert!(directory(None).unwrap().is_absolute());
    }

    #[test]
    fn the_builtin_python_stands_in_for_one_that_is_missing_or_too_old() {
        let dir = tempfile::tempdir().unwrap();
        let (programs, python) =
            (dir.path().join("programs"), dir.path().join("programs/python/bin/python3"));
        let on_path = |name: &str| {
            let [program, link] = [name, "python3"].map(|name| dir.path().join(name));
            fs::write(&program, "").unwrap();
            drop(fs::remove_file(&link));
            symlink(program, &link).unwrap();
            link
        };
        assert_eq!(needed_builtin(&programs, None), None, "there is none");
        fs::create_dir_all(python.parent().unwrap()).unwrap();
        fs::write(&python, "").unwrap();
        assert_eq!(needed_builtin(&programs, None), Some(python.clone()));
        for name in ["python3.9", "python3.9-dbg", "python3.6m", "platform-python3.6"] {
            assert_eq!(needed_builtin(&programs, Some(&on_path(name))), Some(python.clone()), "{name}");
        }
        for name in ["python3.10", "python3.13", "python3.13-dbg", "python-of-mine", "python3.x", "pypy3.9"] {
            assert_eq!(needed_builtin(&programs, Some(&on_path(name))), None, "{name}");
        }
    }
}
