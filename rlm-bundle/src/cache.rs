//! The directory where the programs are unpacked, once for each bundle.
//!
//! `BASE/KEY` has the programs of one bundle for one kind of system and one place. It is made under another name and renamed, so it is whole. Its
//! file `.used` says in which boot of the system that was: what was written before a loss of power may be missing, so in the next boot
//! each entry is checked once. The file's time is that of the last start, by which old ones are removed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::geteuid;
use rlm_bundle::Bundle;
use tempfile::{NamedTempFile, TempDir};

use crate::unpack::{self, Sums};
use crate::{memory, python};

/// The variable that names the directory, instead of those below.
const CACHE_DIR: &str = "RLM_CACHE_DIR";

/// The file that marks a whole directory: a line with the boot, then the sums of the entries.
const USED: &str = ".used";

/// The file whose lock a process holds while it unpacks.
const LOCK: &str = ".lock";

/// The beginning of the name of a directory that is not whole.
const HALF: &str = ".half-";

/// The time after which programs that nobody started are removed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Least time between two records of the last start.
const USE_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// The longest wait for another process that unpacks, which takes half a second unless it is stopped.
const LOCK_LIMIT: Duration = Duration::from_secs(20);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The directories that come into question.
#[derive(Debug)]
pub(crate) struct Cache {
    /// The best first.
    bases: Vec<PathBuf>,
    /// True: the user has named the only one.
    is_given: bool,
}

/// A place where the programs may be.
#[derive(Debug)]
pub(crate) enum Place<'cache> {
    /// A base directory that may have them.
    Filled(&'cache Path),
    /// A base directory that may take them.
    Empty(&'cache Path),
    /// Anonymous files, without Python.
    Memory,
}

impl Cache {
    /// The cache that the environment's variables say.
    pub(crate) fn new(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        if let Some(given) = variable(CACHE_DIR).filter(|given| !given.is_empty()) {
            return Self { bases: vec![given.into()], is_given: true };
        }
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let in_home = || Some(absolute("HOME")?.join(".cache"));
        let of_user = absolute("XDG_CACHE_HOME").or_else(in_home).map(|cache| cache.join("rlm"));
        let temporary = absolute("TMPDIR").unwrap_or_else(|| "/tmp".into());
        let temporary = temporary.join(format!("rlm-{}", geteuid()));
        Self { bases: of_user.into_iter().chain([temporary]).collect(), is_given: false }
    }

    /// The places to try, in this order: one that has the programs comes before one that would take them.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place<'_>> {
        let bases = || self.bases.iter().map(|base| &**base);
        let memory = (!self.is_given).then_some(Place::Memory);
        bases().map(Place::Filled).chain(bases().map(Place::Empty)).chain(memory)
    }

    /// The advice for a user whose programs no place takes.
    pub(crate) fn advice() -> String {
        format!(
            "set {CACHE_DIR} to a directory of your own, or a new one, with 100 MB free, on a file system from which programs can be \
             started"
        )
    }
}

impl Place<'_> {
    /// The directory of the programs, which are unpacked if that is needed. None where they would have to be unpacked first.
    pub(crate) fn programs(&self, bundle: &mut Bundle) -> io::Result<Option<PathBuf>> {
        match self {
            Place::Filled(base) => {
                let directory = |base: PathBuf| base.join(key(&base, bundle));
                Ok(check_base(base).ok().map(directory).filter(|directory| is_whole(directory)))
            }
            Place::Empty(base) => {
                DirBuilder::new().recursive(true).mode(0o700).create(base)?;
                fill(&check_base(base)?, bundle).map(Some)
            }
            Place::Memory => memory::unpack(bundle).map(Some),
        }
    }
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Filled(base) | Place::Empty(base) => base.display().fmt(f),
            Place::Memory => f.write_str("memory"),
        }
    }
}

/// The name of the directory of the programs. Fitted to the system, Python runs in one place alone.
fn key(base: &Path, bundle: &Bundle) -> String {
    format!("{}-{}", bundle.digest, python::system(base))
}

/// Checks that programs can be started from a base directory, and that they are ours. Returns its canonical path.
fn check_base(base: &Path) -> io::Result<PathBuf> {
    check_private(base)?;
    let base = base.canonicalize()?;
    if base.to_str().is_none() {
        return Err(io::Error::other("its path is not UTF-8, which Python needs"));
    }
    if statvfs(&base)?.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(io::Error::other("programs cannot be started from there (noexec)"));
    }
    Ok(base)
}

/// Refuses a directory in which another user can put programs, or could when it was made.
pub(crate) fn check_private(directory: &Path) -> io::Result<()> {
    let link = directory.symlink_metadata()?;
    let metadata = directory.metadata()?;
    // A link of another user may lead to any directory of this one.
    if [&link, &metadata].iter().any(|metadata| metadata.uid() != geteuid().as_raw()) {
        return Err(io::Error::other("it belongs to another user"));
    }
    let mode = metadata.mode() & 0o7777;
    match metadata.is_dir() {
        false => Err(io::Error::other("it is not a directory")),
        true if mode & 0o022 != 0 => Err(io::Error::other(format!("others can write to it (mode {mode:o})"))),
        true => Ok(()),
    }
}

/// Reports whether the directory has all that was unpacked, and notes that it is used.
fn is_whole(directory: &Path) -> bool {
    let used = directory.join(USED);
    let Ok(text) = check_private(directory).and_then(|()| fs::read_to_string(&used)) else { return false };
    let Some((boot, sums)) = text.split_once('\n') else { return false };
    let Some(sums) = Sums::read(sums) else { return false };
    if boot == this_boot() {
        if !sums.have_programs(directory) {
            return false;
        }
    } else {
        if !sums.fit(directory) {
            return false;
        }
        // If it cannot be written, the next start checks again.
        _ = write_used(directory, &sums);
    }
    let time = used.metadata().and_then(|metadata| metadata.modified());
    // A time to come is wrong.
    if time.is_ok_and(|time| time.elapsed().map_or(true, |age| age > USE_INTERVAL)) {
        // A read-only cache is removed by whoever made it.
        _ = File::options().append(true).open(&used).and_then(|file| file.set_modified(SystemTime::now()));
    }
    true
}

fn write_used(directory: &Path, sums: &Sums) -> io::Result<()> {
    let mut aside = NamedTempFile::with_prefix_in(USED, directory)?;
    write!(aside, "{}\n{sums}", this_boot())?;
    aside.persist(directory.join(USED))?;
    Ok(())
}

fn this_boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Unpacks the bundle, unless another process has done it in between.
fn fill(base: &Path, bundle: &mut Bundle) -> io::Result<PathBuf> {
    let name = key(base, bundle);
    let directory = base.join(&name);
    let lock = lock(base);
    if is_whole(&directory) {
        return Ok(directory);
    }
    for left in names(base).filter(|left| left.starts_with(HALF) && lock.is_some()) {
        let left = base.join(left);
        // Of a process that was killed, or of one that did not wait for the lock any longer and still unpacks.
        if hold(&left).is_ok() {
            _ = fs::remove_dir_all(left);
        }
    }
    let half = || TempDir::with_prefix_in(HALF, base);
    let aside = half()?;
    let _in_work = hold(aside.path());
    let sums = unpack::unpack(bundle, aside.path(), &directory)?;
    write_used(aside.path(), &sums)?;
    // Without the lock, another process may have been faster.
    if fs::rename(aside.path(), &directory).is_err() && !is_whole(&directory) {
        let broken = half()?;
        fs::rename(&directory, broken.path())?;
        fs::rename(aside.path(), &directory)?;
    }
    remove_old(base, &name);
    Ok(directory)
}

/// Waits for the lock of a base directory. None if it cannot be had: then two processes may unpack at once, which costs time alone.
pub(crate) fn lock(base: &Path) -> Option<Flock<File>> {
    let mut file = File::options().create(true).truncate(false).write(true).open(base.join(LOCK)).ok()?;
    let begun = std::time::Instant::now();
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((same, nix::errno::Errno::EWOULDBLOCK)) if begun.elapsed() < LOCK_LIMIT => file = same,
            Err(_) => return None,
        }
        sleep(LOCK_INTERVAL);
    }
}

/// Locks a directory itself, if no other process does. A process id in its name would say less: several systems may share it.
pub(crate) fn hold(directory: &Path) -> io::Result<Flock<File>> {
    let held = Flock::lock(File::open(directory)?, FlockArg::LockExclusiveNonblock);
    held.map_err(|(_, error)| error.into())
}

/// Removes the programs of other bundles that nobody has started for long and nobody runs.
fn remove_old(base: &Path, ours: &str) {
    for name in names(base).filter(|name| name.len() == ours.len() && name != ours) {
        let directory = base.join(&name);
        let used = directory.join(USED).metadata().and_then(|metadata| metadata.modified());
        let is_old = used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age > KEPT));
        if is_old && !is_running(&directory) {
            _ = fs::remove_dir_all(&directory);
        }
    }
}

/// Reports whether a process runs a program below the directory.
fn is_running(directory: &Path) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    processes.flatten().any(|process| {
        fs::read_link(process.path().join("exe")).is_ok_and(|program| program.starts_with(directory))
    })
}

fn names(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}
