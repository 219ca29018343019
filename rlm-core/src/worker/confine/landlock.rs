//! Landlock: a second wall, which holds where a hole in the first one was found.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
    path_beneath_rules,
};
use nix::errno::Errno;
use nix::libc;

use super::Failed;

/// The newest version whose rights are asked for; older kernels give what they have.
const NEWEST: ABI = ABI::V6;

/// Asks for the version instead of rules.
const VERSION: libc::c_ulong = 1;

/// Directories of every session in which it may write. `/proc` is none: what a process may change of itself there needs no right.
const WRITABLE: [&str; 3] = ["/tmp", "/var/tmp", "/dev"];

/// Puts this process, and all that it starts, under rules: everything can be read, and these paths written. Returns the version of
/// Landlock; None: the kernel has none.
pub(super) fn apply(write: &[PathBuf]) -> Result<Option<u32>, Failed> {
    // SAFETY: without a structure, the call returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    let Ok(version) = Errno::result(version) else { return Ok(None) };
    let restricted = || -> Result<_, RulesetError> {
        let writable = write.iter().map(PathBuf::as_path).chain(WRITABLE.map(Path::new));
        Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .scope(Scope::AbstractUnixSocket)?
            .scope(Scope::Signal)?
            .create()?
            .add_rules(path_beneath_rules(["/"], AccessFs::from_read(NEWEST)))?
            .add_rules(path_beneath_rules(writable, AccessFs::from_all(NEWEST)))?
            .restrict_self()
    };
    match restricted() {
        Ok(_status) => Ok(u32::try_from(version).ok()),
        Err(_error) => Err(Failed { call: "landlock_restrict_self".into(), errno: Errno::last() }),
    }
}
