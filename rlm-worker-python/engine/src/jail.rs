//! The jail: Python code cannot reach files outside some directories. Best effort, by audit events: it does not see the
//! files that C code and other programs open, nor `os.stat`, which raises no event.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use nix::libc;
use pyo3::exceptions::PyPermissionError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCFunction, PyDict, PyString, PyTuple};

/// Files that every program may open.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Data outside the library that the library reads.
const LIBRARY_DATA: &str = "/usr/share/zoneinfo";

/// Most symbolic links that are followed before the path counts as a loop; Linux has the same limit.
const MAX_LINKS: usize = 40;

thread_local! {
    /// The directory descriptor of the current `os.open`: the one event that does not include it.
    static OPEN_DIR_FD: Cell<Option<i32>> = const { Cell::new(None) };
}

/// One path among the arguments of an audit event.
struct PathArgument {
    path: usize,
    dir_fd: Option<usize>,
    /// True if the event is about the target of a link, not about the link itself.
    follows: bool,
    access: Access,
}

enum Access {
    Read,
    Write,
    /// The event depends on the flags in this argument.
    Flags(usize),
}

const fn arg(path: usize, dir_fd: Option<usize>, follows: bool, access: Access) -> PathArgument {
    PathArgument { path, dir_fd, follows, access }
}

/// The audit events that name files, with the positions of their paths: see "Audit events table" in the documentation
/// of the Python library.
const EVENTS: &[(&str, &[PathArgument])] = &[
    ("open", &[arg(0, None, true, Access::Flags(2))]),
    ("os.listdir", &[arg(0, None, true, Access::Read)]),
    ("os.scandir", &[arg(0, None, true, Access::Read)]),
    ("os.chdir", &[arg(0, None, true, Access::Read)]),
    ("os.getxattr", &[arg(0, None, true, Access::Read)]),
    ("os.listxattr", &[arg(0, None, true, Access::Read)]),
    ("os.truncate", &[arg(0, None, true, Access::Write)]),
    ("os.setxattr", &[arg(0, None, true, Access::Write)]),
    ("os.removexattr", &[arg(0, None, true, Access::Write)]),
    ("os.chmod", &[arg(0, Some(2), true, Access::Write)]),
    ("os.chown", &[arg(0, Some(3), true, Access::Write)]),
    ("os.utime", &[arg(0, Some(3), true, Access::Write)]),
    ("os.mkdir", &[arg(0, Some(2), false, Access::Write)]),
    ("os.remove", &[arg(0, Some(1), false, Access::Write)]),
    ("os.rmdir", &[arg(0, Some(1), false, Access::Write)]),
    ("os.symlink", &[arg(1, Some(2), false, Access::Write)]),
    ("os.rename", &[arg(0, Some(2), false, Access::Write), arg(1, Some(3), false, Access::Write)]),
    ("os.link", &[arg(0, Some(2), true, Access::Read), arg(1, Some(3), false, Access::Write)]),
    ("sqlite3.connect", &[arg(0, None, true, Access::Write)]),
];

struct Jail {
    /// Paths that may be read and written.
    open: Vec<PathBuf>,
    /// Paths that may only be read.
    library: Vec<PathBuf>,
}

/// Confines the process, for the rest of its life, to these paths and the interpreter's own library.
pub(crate) fn install(py: Python<'_>, paths: &[PathBuf]) -> PyResult<()> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let sys = py.import("sys")?;
    let mut library: Vec<PathBuf> = Vec::new();
    for entry in sys.getattr("path")?.try_iter()? {
        let entry = entry?.extract::<PathBuf>()?;
        // An empty entry means the working directory, which is accessible anyway.
        library.extend(Some(entry).filter(|entry| entry.is_absolute()).and_then(|entry| real(&entry)));
    }
    library.extend(real(Path::new(LIBRARY_DATA)));
    let open = paths.iter().map(PathBuf::as_path).chain(DEVICES.iter().map(Path::new));
    let jail = Jail { open: open.filter_map(real).collect(), library };
    let watch = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
        jail.check(arguments)
    };
    sys.call_method1("addaudithook", (PyCFunction::new_closure(py, None, None, watch)?,))?;
    track_dir_fd(py)
}

/// Wraps `os.open` to record its `dir_fd` in [`OPEN_DIR_FD`].
fn track_dir_fd(py: Python<'_>) -> PyResult<()> {
    let os = py.import("os")?;
    let original = os.getattr("open")?.unbind();
    let open = move |arguments: &Bound<'_, PyTuple>, keywords: Option<&Bound<'_, PyDict>>| {
        let dir_fd = keywords.and_then(|keywords| keywords.get_item("dir_fd").ok().flatten());
        let outer = OPEN_DIR_FD.replace(dir_fd.and_then(|dir_fd| dir_fd.extract().ok()));
        let opened = original.call(arguments.py(), arguments, keywords);
        OPEN_DIR_FD.set(outer);
        opened
    };
    let open = PyCFunction::new_closure(py, Some(c"open"), None, open)?;
    os.getattr("supports_dir_fd")?.call_method1("add", (&open,))?;
    os.setattr("open", &open)?;
    py.import("posix")?.setattr("open", open)
}

impl Jail {
    /// Refuses an event that names a file outside the jail.
    fn check(&self, arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
        let event = arguments.get_item(0)?;
        let Ok(event) = event.extract::<&str>() else { return Ok(()) };
        let Some((_, arguments_with_paths)) = EVENTS.iter().find(|(name, _)| *name == event) else {
            return Ok(());
        };
        let arguments = arguments.get_item(1)?.cast_into::<PyTuple>()?;
        for path_argument in *arguments_with_paths {
            let Some(path) = arguments.get_item(path_argument.path).ok().and_then(|path| file_path(&path))
            else {
                // This is a descriptor, or not a path at all: the file was checked when it was opened.
                continue;
            };
            let number =
                |at: usize| arguments.get_item(at).ok().and_then(|value| value.extract::<i32>().ok());
            let dir_fd = path_argument.dir_fd.and_then(number).or(OPEN_DIR_FD.get()).filter(|fd| *fd >= 0);
            let writes = match path_argument.access {
                Access::Read => false,
                Access::Write => true,
                Access::Flags(at) => number(at).is_some_and(|flags| {
                    flags & (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) != 0
                }),
            };
            if !self.allows(&path, dir_fd, path_argument.follows, writes) {
                let message = format!("Access outside working directory is blocked: {}", path.display());
                return Err(PyPermissionError::new_err(message));
            }
        }
        Ok(())
    }

    fn allows(&self, path: &Path, dir_fd: Option<i32>, follows: bool, writes: bool) -> bool {
        if path.as_os_str().is_empty() || path == Path::new(":memory:") {
            // The kernel refuses an empty path, and `:memory:` is not a file.
            return true;
        }
        let base = match dir_fd {
            Some(fd) => fs::read_link(format!("/proc/self/fd/{fd}")),
            None => std::env::current_dir(),
        };
        let Some(real) = base.ok().and_then(|base| resolve(&base.join(path), follows)) else { return false };
        let within = |dirs: &[PathBuf]| dirs.iter().any(|dir| real.starts_with(dir));
        within(&self.open) || !writes && within(&self.library)
    }
}

/// The target of an absolute path, through symbolic links and `..`, even if it does not exist yet. None for a loop.
fn resolve(path: &Path, follows: bool) -> Option<PathBuf> {
    let mut todo: Vec<OsString> = path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = todo.pop() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => real = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(real.pop()),
            Some(Component::Normal(name)) => {
                real.push(name);
                let is_last = todo.is_empty();
                if let Ok(target) = fs::read_link(&real)
                    && (follows || !is_last)
                {
                    links += 1;
                    if links > MAX_LINKS {
                        return None;
                    }
                    real.pop();
                    todo.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
                }
            }
            _ => {}
        }
    }
    Some(real)
}

/// A path as the system sees it; None for anything else, such as a descriptor.
fn file_path(value: &Bound<'_, PyAny>) -> Option<PathBuf> {
    // SAFETY: a live object; the call returns a new reference, or null with an exception.
    let path = unsafe { Bound::from_owned_ptr_or_opt(value.py(), ffi::PyOS_FSPath(value.as_ptr())) };
    let path = path.or_else(|| {
        drop(PyErr::take(value.py()));
        None
    })?;
    let bytes = match path.cast::<PyString>() {
        Ok(text) => {
            // SAFETY: a live string; the call returns a new reference to bytes, or null with an exception.
            let bytes = unsafe {
                Bound::from_owned_ptr_or_opt(value.py(), ffi::PyUnicode_EncodeFSDefault(text.as_ptr()))
            };
            bytes.or_else(|| {
                drop(PyErr::take(value.py()));
                None
            })?
        }
        Err(_) => path.clone(),
    };
    let bytes = bytes.cast::<PyBytes>().ok()?.as_bytes().to_vec();
    Some(PathBuf::from(OsString::from_vec(bytes)))
}
