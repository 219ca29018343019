//! The error for a part of the confinement that a host refuses.

use std::borrow::Cow;

use nix::errno::Errno;

use crate::sys;

/// A part of the confinement that this host does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {errno}{}", self.cause())]
pub struct Failed {
    /// The system call, and its purpose.
    pub call: Cow<'static, str>,
    /// The system's error.
    pub errno: Errno,
}

impl Failed {
    /// The path of the host that the failure is about, if the path is to blame and not the host.
    pub(in super::super) fn path(&self) -> Option<&str> {
        let is_of_path = matches!(self.errno, Errno::ELOOP | Errno::ENOENT | Errno::ENOTDIR);
        self.call.strip_prefix("mount of ").filter(|path| is_of_path && path.starts_with('/'))
    }

    /// The likely cause on this host.
    fn cause(&self) -> &'static str {
        match (&*self.call, self.errno) {
            ("clone", Errno::ENOSPC) => " (user.max_user_namespaces is 0, or reached)",
            ("clone", Errno::EPERM | Errno::EACCES) => {
                " (the filter of a container, or a setting of the kernel, refuses user namespaces)"
            }
            ("clone", Errno::EINVAL | Errno::ENOSYS) => " (the kernel does not have all of these namespaces)",
            (call, Errno::EPERM | Errno::EACCES) if call.starts_with("mount of proc") => {
                " (parts of /proc are hidden, as in containers)"
            }
            // The failed mount of a path of the host is about the path.
            (call, _) if call.starts_with("mount of /") => "",
            (call, Errno::EPERM | Errno::EACCES)
                if call.starts_with("mount") || call.starts_with("write") =>
            {
                " (AppArmor, as on Ubuntu, allows user namespaces only to programs with a profile)"
            }
            (call, Errno::ENOSYS) if call.starts_with("mount_setattr") => " (the kernel is older than 5.12)",
            (call, Errno::EOPNOTSUPP) if call.starts_with("landlock") => {
                " (Landlock 6 is needed, of Linux 6.12, and not switched off at the start of the system)"
            }
            _ => "",
        }
    }

    pub(in super::super) fn to_bytes(&self) -> Vec<u8> {
        format!("{} {}", self.errno as i32, self.call).into_bytes()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (errno, call) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        Some(Self { call: call.to_owned().into(), errno: Errno::from_raw(errno.parse().ok()?) })
    }
}

/// The failure of a call.
pub(super) fn failed(call: &'static str) -> impl Fn(Errno) -> Failed {
    move |errno| Failed { call: call.into(), errno }
}

pub(super) fn failed_io(call: &'static str) -> impl Fn(std::io::Error) -> Failed {
    move |error| Failed { call: call.into(), errno: sys::errno_of(&error) }
}
