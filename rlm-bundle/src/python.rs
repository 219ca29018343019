//! The Python in a bundle, which is fitted to the system when it is unpacked: it runs with the C library of the system, so that
//! libraries of the system can be loaded next to it, or with one of its own where that is too old.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The directory of Python.
const PYTHON: &str = "python";

/// The system's loader of programs, which belongs to its C library.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Directories of the system's libraries.
const LIBRARIES: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// The properties of systems and places for which it is fitted differently: a home may be shared by several, and moved. `base` is the
/// directory of the cache.
pub(crate) fn system(base: &Path) -> String {
    let loader = fs::metadata(LOADER).map(|loader| (loader.len(), loader.mtime())).ok();
    let facts = format!("{loader:?} {} {base:?}", has_libgcc());
    format!("{:08x}", crc32fast::hash(facts.as_bytes()))
}

/// Reports whether the system has the library of the C compiler, so that its own is not needed.
fn has_libgcc() -> bool {
    LIBRARIES.iter().any(|directory| Path::new(directory).join("libgcc_s.so.1").exists())
}

/// Fits it to this system, once it is at `destination`. Returns the file that was changed, and leaves out what is not needed.
pub(crate) fn settle(directory: &Path, destination: &Path) -> io::Result<Option<PathBuf>> {
    let python = directory.join(PYTHON);
    if !python.is_dir() {
        return Ok(None);
    }
    let needed = fs::read_to_string(python.join("share/glibc"))?;
    let own_library = Path::new(PYTHON).join("lib/glibc");
    let loader = if system_version() >= version(needed.trim()) {
        fs::remove_dir_all(directory.join(own_library))?;
        PathBuf::from(LOADER)
    } else {
        destination.join(own_library).join("ld-linux-x86-64.so.2")
    };
    let program = Path::new(PYTHON).join("bin/python3.11");
    set_loader(&directory.join(&program), &loader)?;
    if has_libgcc() {
        fs::remove_dir_all(python.join("lib/gcc"))?;
    }
    Ok(Some(program))
}

/// The version of the system's C library. None before 2.33, whose loader does not tell, and without one.
fn system_version() -> Option<(u32, u32)> {
    let told = Command::new(LOADER).arg("--version").stderr(Stdio::null()).output().ok()?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let (_, version_on) = told.split_once("release version ")?;
    version(version_on.split_whitespace().next()?.trim_end_matches('.'))
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Writes the path of the loader into the segment of the program that names it, which has room for long ones.
fn set_loader(program: &Path, loader: &Path) -> io::Result<()> {
    const INTERPRETER: u64 = 3;
    let file = File::options().read(true).write(true).open(program)?;
    let number = |at: u64, bytes: usize| {
        let mut buffer = [0; 8];
        file.read_exact_at(&mut buffer[..bytes], at)?;
        io::Result::Ok(u64::from_le_bytes(buffer))
    };
    // The program headers: 56 bytes each, and in them the kind, the offset, and the size in the file.
    let (headers, count) = (number(32, 8)?, number(56, 2)?);
    for header in (0..count).map(|index| headers + 56 * index) {
        if number(header, 4)? != INTERPRETER {
            continue;
        }
        let (offset, room) = (number(header + 8, 8)?, number(header + 32, 8)?);
        let mut path = loader.as_os_str().as_bytes().to_vec();
        if path.len() as u64 >= room {
            let most = room.saturating_sub(1);
            return Err(io::Error::other(format!("the path of a program may have {most} bytes")));
        }
        path.resize(usize::try_from(room).map_err(io::Error::other)?, 0);
        return file.write_all_at(&path, offset);
    }
    Err(io::Error::other(format!("{} names no loader", program.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(version("2.36") >= version("2.36") && version("2.100") > version("2.36"));
        assert!(version("2.31") < version("2.36") && None < version("2.36"));
        assert!(system_version() >= version("2.33"), "the tests run on a system whose loader tells");
    }
}
