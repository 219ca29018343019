//! Programs in memory, where no directory can hold them: each is an anonymous file that this process, which becomes the program,
//! keeps open, and a link in a directory leads to it. Python is left out.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::geteuid;
use rlm_bundle::Bundle;
use tempfile::TempDir;

use crate::cache::{check_private, hold, lock};

/// Directories in which links can be made though programs cannot be started from them.
const PLACES: [&str; 2] = ["/dev/shm", "/tmp"];

/// The beginning of the name of a directory of links.
const LINKS: &str = "links-";

/// Unpacks the programs. Returns the directory of the links.
pub(crate) fn unpack(bundle: &mut Bundle) -> io::Result<PathBuf> {
    let place = |place: &&str| links_below(Path::new(place)).ok();
    let directory = PLACES
        .iter()
        .find_map(place)
        .ok_or_else(|| io::Error::other(format!("nothing can be written in {}", PLACES.join(" or "))))?;
    bundle.entries(|name, entry| {
        let is_program = name.components().count() == 1 && entry.header().entry_type().is_file();
        if !is_program {
            return Ok(());
        }
        let title = CString::new(name.as_os_str().as_bytes()).map_err(io::Error::other)?;
        // Open in the program that this process becomes, and in those that it starts.
        let file: OwnedFd = memfd_create(title.as_c_str(), MFdFlags::empty())?;
        let mut file = File::from(file);
        io::copy(entry, &mut file)?;
        symlink(format!("/proc/{}/fd/{}", process::id(), file.into_raw_fd()), directory.path().join(&name))
    })?;
    Ok(directory.keep())
}

/// A new directory for this process. Those that no process holds any more are removed.
fn links_below(place: &Path) -> io::Result<TempDir> {
    let base = place.join(format!("rlm-{}", geteuid()));
    DirBuilder::new().recursive(true).mode(0o700).create(&base)?;
    check_private(&base)?;
    // A new directory is not held at once.
    let lock = lock(&base);
    for entry in fs::read_dir(&base)?.flatten() {
        let is_of_links = entry.file_name().as_bytes().starts_with(LINKS.as_bytes());
        if lock.is_some() && is_of_links && hold(&entry.path()).is_ok() {
            _ = fs::remove_dir_all(entry.path());
        }
    }
    let directory = TempDir::with_prefix_in(LINKS, &base)?;
    if let Ok(held) = hold(directory.path()) {
        // Held by the program that this process becomes, and by those that it starts.
        fcntl(&*held, FcntlArg::F_SETFD(FdFlag::empty()))?;
        _ = ManuallyDrop::new(held);
    }
    Ok(directory)
}
