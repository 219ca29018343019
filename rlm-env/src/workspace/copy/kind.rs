//! What may be copied: files and directories alone.

use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt;

use nix::sys::stat::SFlag;

use super::PathFn;
use crate::workspace::context::ContextError;

/// What something is that could be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Dir,
    Symlink,
    Special(&'static str),
}

pub(super) fn kind_of_mode(mode: u32) -> Kind {
    match SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => Kind::File,
        SFlag::S_IFDIR => Kind::Dir,
        SFlag::S_IFLNK => Kind::Symlink,
        SFlag::S_IFIFO => Kind::Special("FIFO"),
        SFlag::S_IFSOCK => Kind::Special("socket"),
        SFlag::S_IFBLK => Kind::Special("block device"),
        SFlag::S_IFCHR => Kind::Special("character device"),
        _ => Kind::Special("file of an unknown kind"),
    }
}

pub(super) fn kind_of(metadata: &Metadata) -> Kind {
    kind_of_mode(metadata.permissions().mode())
}

pub(super) fn refuse_special(path: &PathFn<'_>, kind: Kind) -> Result<(), ContextError> {
    match kind {
        Kind::File => Ok(()),
        Kind::Dir => Err(ContextError::Special { path: path(), kind: "directory in a file's place" }),
        Kind::Symlink => Err(ContextError::Symlink(path())),
        Kind::Special(kind) => Err(ContextError::Special { path: path(), kind }),
    }
}
