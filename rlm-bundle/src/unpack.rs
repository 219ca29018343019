//! Unpacking, and the sums by which it is checked later.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use rlm_bundle::Bundle;

use crate::python;

/// The size and the CRC-32 of each file: what a loss of power takes is missing or zero.
#[derive(Debug, Default)]
pub(crate) struct Sums(Vec<(PathBuf, u64, u32)>);

impl Sums {
    /// Reads what `Display` wrote.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let sum = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let crc = u32::from_str_radix(parts.next()?, 16).ok()?;
            let bytes = parts.next()?.parse().ok()?;
            Some((parts.next()?.into(), bytes, crc))
        };
        let sums = text.lines().map(sum).collect::<Option<Vec<_>>>()?;
        (!sums.is_empty()).then_some(Self(sums))
    }

    /// Reports whether all files are as they were.
    pub(crate) fn fit(&self, directory: &Path) -> bool {
        self.0.iter().all(|(path, bytes, crc)| {
            let is_same =
                |mut file: File| copy(&mut file, &mut io::sink()).is_ok_and(|sum| sum == (*bytes, *crc));
            File::open(directory.join(path)).is_ok_and(is_same)
        })
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(path, bytes, crc)| writeln!(f, "{crc:08x} {bytes} {}", path.display()))
    }
}

/// Unpacks all into an empty directory, which will be renamed to `destination`.
pub(crate) fn unpack(bundle: &mut Bundle, directory: &Path, destination: &Path) -> io::Result<Sums> {
    let mut sums = Vec::new();
    bundle.entries(|name, entry| {
        let path = directory.join(&name);
        match entry.header().entry_type() {
            tar::EntryType::Directory => fs::create_dir(&path)?,
            tar::EntryType::Symlink => {
                let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link without a target"))?;
                symlink(target, &path)?;
            }
            _ => {
                let mut file = File::create_new(&path)?;
                let (bytes, crc) = copy(entry, &mut file)?;
                file.set_permissions(Permissions::from_mode(entry.header().mode()?))?;
                sums.push((name, bytes, crc));
            }
        }
        Ok(())
    })?;
    if let Some(settled) = python::settle(directory, destination)? {
        let (bytes, crc) = copy(&mut File::open(directory.join(&settled))?, &mut io::sink())?;
        sums.retain(|(name, ..)| *name != settled && directory.join(name).exists());
        sums.push((settled, bytes, crc));
    }
    Ok(Sums(sums))
}

/// Refuses a directory in which another user could put other programs.
pub(crate) fn check_own(directory: &Path) -> io::Result<()> {
    let metadata = directory.symlink_metadata()?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        return Err(io::Error::other("it is not a directory of this user"));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(io::Error::other(format!("other users can write to it (mode {mode:04o})")));
    }
    Ok(())
}

/// Copies, and returns the bytes and their CRC-32.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<(u64, u32)> {
    let (mut buffer, mut bytes, mut crc) = (vec![0; 256 << 10], 0, crc32fast::Hasher::new());
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok((bytes, crc.finalize()));
        }
        crc.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
        bytes += count as u64;
    }
}
