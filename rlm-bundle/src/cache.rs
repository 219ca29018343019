//! The directory where the programs are unpacked, once for each bundle.
//!
//! `BASE/KEY` has the programs of one bundle for one kind of system. It is made under another name and renamed, so it is whole. Its file `.used` says
//! in which boot of the system that was: what was written before a loss of power may be missing, so in the next boot each file is
//! checked once. The file's time is that of the last start, by which old ones are removed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::geteuid;
use rlm_bundle::Bundle;

use crate::unpack::{self, Sums, check_own};
use crate::{memory, python};

/// The variable that names the directory, instead of those below.
const CACHE_DIR: &str = "RLM_CACHE_DIR";

/// The file that marks a whole directory: a line with the boot, then the sums of the files.
const USED: &str = ".used";

/// The time after which programs that nobody started are removed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// How often the time of the last start is written.
const USE_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// How long another process that unpacks the same is waited for. It takes half a second, unless it is stopped.
const LOCK_LIMIT: Duration = Duration::from_secs(20);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Where the programs are.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub(crate) directory: PathBuf,
    pub(crate) is_in_memory: bool,
}

/// The directories that come into question.
#[derive(Debug)]
pub(crate) struct Cache {
    /// The best first.
    bases: Vec<PathBuf>,
    /// True: the user has named the only one.
    is_given: bool,
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

    /// The programs of the bundle. Unpacks them into the first directory that takes them, if none has them.
    pub(crate) fn find(&self, bundle: &mut Bundle) -> Result<Unpacked, String> {
        let in_cache = |directory| Unpacked { directory, is_in_memory: false };
        let digest = bundle.digest.clone();
        let has_it = |base: &PathBuf| {
            let base = check(base).ok()?;
            let directory = base.join(name(&digest, &base));
            is_whole(&directory).then_some(directory)
        };
        if let Some(directory) = self.bases.iter().find_map(has_it) {
            return Ok(in_cache(directory));
        }
        let mut reasons = Vec::new();
        for base in &self.bases {
            match make(base).and_then(|base| fill(&base, &name(&digest, &base), bundle)) {
                Ok(directory) => return Ok(in_cache(directory)),
                Err(error) => reasons.push(format!("{}: {error}", base.display())),
            }
        }
        if !self.is_given {
            match memory::unpack(bundle) {
                Ok(directory) => return Ok(Unpacked { directory, is_in_memory: true }),
                Err(error) => reasons.push(format!("memory: {error}")),
            }
        }
        Err(format!(
            "no directory can hold its programs: {}: set {CACHE_DIR} to one with 150 MB free, on a file system \
             from which programs can be started",
            reasons.join("; ")
        ))
    }
}

/// The name of the programs' directory. The Python in it may hold its path, and depends on the system.
fn name(digest: &str, base: &Path) -> String {
    format!("{digest}-{}", python::system(base))
}

/// Makes a base directory, if it is not there. The mode of one that is there stays.
fn make(base: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    check(base)
}

/// The whole path of a base directory, from which only our own programs can be started.
fn check(base: &Path) -> io::Result<PathBuf> {
    let base = base.canonicalize()?;
    check_own(&base)?;
    if statvfs(&base)?.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(io::Error::other("programs cannot be started from there (noexec)"));
    }
    Ok(base)
}

/// Reports whether the directory has all that was unpacked, and notes that it is used.
fn is_whole(directory: &Path) -> bool {
    if check_own(directory).is_err() {
        return false;
    }
    let used = directory.join(USED);
    let Ok(text) = fs::read_to_string(&used) else { return false };
    let Some((boot, sums)) = text.split_once('\n') else { return false };
    if boot != this_boot() {
        if !Sums::read(sums).is_some_and(|sums| sums.fit(directory)) {
            return false;
        }
        // If it cannot be written, the next start checks again.
        _ = write_used(directory, sums);
    }
    let age = used.metadata().and_then(|metadata| metadata.modified()).map(age);
    if age.is_ok_and(|age| age > USE_INTERVAL) {
        // A read-only cache is removed by whoever made it.
        _ = File::options().append(true).open(&used).and_then(|file| file.set_modified(SystemTime::now()));
    }
    true
}

fn write_used(directory: &Path, sums: &str) -> io::Result<()> {
    let aside = directory.join(format!("{USED}-{}", std::process::id()));
    fs::write(&aside, format!("{}\n{sums}", this_boot()))?;
    fs::rename(&aside, directory.join(USED))
}

fn this_boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn age(time: SystemTime) -> Duration {
    time.elapsed().unwrap_or_default()
}

/// Unpacks the bundle, unless another process has done it meanwhile.
fn fill(base: &Path, name: &str, bundle: &mut Bundle) -> io::Result<PathBuf> {
    let lock = lock(&base.join(format!(".{name}.lock")));
    let directory = base.join(name);
    if is_whole(&directory) {
        return Ok(directory);
    }
    let half = format!(".{name}-");
    for left in names(base).filter(|left| left.starts_with(&half) && lock.is_some()) {
        let left = base.join(left);
        // Of a process that was killed, or of one that did not wait for the lock any longer and still unpacks.
        if File::open(&left).is_ok_and(|left| Flock::lock(left, FlockArg::LockExclusiveNonblock).is_ok()) {
            _ = fs::remove_dir_all(left);
        }
    }
    // Process ids are not enough: several systems may share the directory.
    let moment = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let aside = base.join(format!("{half}{}-{moment}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&aside)?;
    let _in_work = Flock::lock(File::open(&aside)?, FlockArg::LockExclusiveNonblock);
    let unpacked = unpack::unpack(bundle, &aside, &directory).and_then(|sums| {
        write_used(&aside, &sums.to_string())?;
        if is_whole(&directory) {
            // Another process was faster.
            return fs::remove_dir_all(&aside);
        }
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::rename(&aside, &directory)
    });
    if let Err(error) = unpacked {
        _ = fs::remove_dir_all(&aside);
        // Or is so in this very moment.
        return if is_whole(&directory) { Ok(directory) } else { Err(error) };
    }
    remove_old(base, name);
    Ok(directory)
}

/// Waits for the lock. None if it cannot be had: then two processes may unpack at once, which costs time alone.
fn lock(path: &Path) -> Option<Flock<File>> {
    let mut file = File::options().create(true).truncate(false).write(true).open(path).ok()?;
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

/// Removes the programs of other bundles that nobody has started for long and nobody runs.
fn remove_old(base: &Path, ours: &str) {
    for name in names(base).filter(|name| name.len() == ours.len() && name != ours) {
        let directory = base.join(&name);
        let used = directory.join(USED).metadata().and_then(|metadata| metadata.modified());
        if used.is_ok_and(|used| age(used) > KEPT) && !is_running(&directory) {
            _ = fs::remove_dir_all(&directory);
            _ = fs::remove_file(base.join(format!(".{name}.lock")));
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
