//! Landlock: a second wall, which holds if a hole in the first one was found; or, without namespaces, the first one.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, NetPort, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, Scope, path_beneath_rules,
};
use nix::errno::Errno;
use nix::libc;

use super::failed::Failed;

/// The newest version whose rights are asked for; older kernels give what they have.
const NEWEST: ABI = ABI::V6;

/// The oldest version that is a wall by itself: signals pass through older ones.
const OLDEST_ALONE: u32 = 6;

/// Asks for the version instead of rules.
const VERSION: libc::c_ulong = 1;

/// Directories in which every session may write. `/proc` need not be one: a process needs no right to change its own files there.
const WRITABLE: [&str; 3] = ["/tmp", "/var/tmp", "/dev"];

/// Files of `/dev` that can be read and written if the host's `/dev` is shared. A terminal that a process opens lies in `pts`.
const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// Puts this process, and all that it starts, under rules behind a root of its own: everything can be read, and these paths
/// written. Returns the version of Landlock; None if the kernel has no Landlock.
pub(super) fn apply(write: &[PathBuf]) -> Result<Option<u32>, Failed> {
    let Some(version) = version() else { return Ok(None) };
    let rules = || -> Result<_, RulesetError> {
        let writable = write.iter().map(PathBuf::as_path).chain(WRITABLE.map(Path::new));
        files()?
            .scope(Scope::AbstractUnixSocket)?
            .scope(Scope::Signal)?
            .create()?
            .add_rules(path_beneath_rules(["/"], AccessFs::from_read(NEWEST)))?
            .add_rules(path_beneath_rules(writable, AccessFs::from_all(NEWEST)))
    };
    enter(rules()).map(|()| Some(version))
}

/// Puts this process, and all that it starts, under rules that are the wall: these paths can be read, those written, and this port
/// reached. Returns the version of Landlock.
pub(super) fn apply_alone(read: &[PathBuf], write: &[PathBuf], port: Option<u16>) -> Result<u32, Failed> {
    let version = version().unwrap_or_default();
    if version < OLDEST_ALONE {
        return Err(Failed { call: "landlock_create_ruleset".into(), errno: Errno::EOPNOTSUPP });
    }
    let rules = || -> Result<_, RulesetError> {
        let writable = write.iter().map(PathBuf::as_path).chain(DEVICES.map(Path::new));
        files()?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::AbstractUnixSocket)?
            .scope(Scope::Signal)?
            .create()?
            .add_rules(path_beneath_rules(read, AccessFs::from_read(NEWEST)))?
            .add_rules(path_beneath_rules(writable, AccessFs::from_all(NEWEST)))?
            .add_rules(port.map(|port| Ok::<_, RulesetError>(NetPort::new(port, AccessNet::ConnectTcp))))
    };
    enter(rules()).map(|()| version)
}

fn files() -> Result<Ruleset, RulesetError> {
    Ruleset::default().handle_access(AccessFs::from_all(NEWEST))
}

fn enter(rules: Result<RulesetCreated, RulesetError>) -> Result<(), Failed> {
    match rules.and_then(RulesetCreated::restrict_self) {
        Ok(_status) => Ok(()),
        Err(_error) => Err(Failed { call: "landlock_restrict_self".into(), errno: Errno::last() }),
    }
}

/// The version of Landlock that the kernel has.
fn version() -> Option<u32> {
    // SAFETY: without a structure, the call returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    Errno::result(version).ok().and_then(|version| u32::try_from(version).ok())
}
