//! Unpacking, and the sums by which it is checked later.

use std::fmt::{self, Write as _};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rlm_bundle::Bundle;

use crate::python;

/// The entries of an unpacked directory: what a loss of power takes is missing, empty or zero. A line for each, `KIND CRC BYTES PATH`, and
/// a last one with the sum of these lines.
#[derive(Debug)]
pub(crate) struct Sums(String);

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    Link,
    /// A file that can be started.
    Program,
    File,
}

/// An entry's kind, and the size and the CRC-32 of its content: that of a link is its target.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    kind: Kind,
    bytes: u64,
    crc: u32,
}

impl Sums {
    fn new(entries: &[(PathBuf, Entry)]) -> Self {
        let mut lines = String::new();
        for (path, Entry { kind, bytes, crc }) in entries {
            writeln!(lines, "{} {crc:08x} {bytes} {}", kind.letter(), path.display())
                .expect("a string takes all");
        }
        lines.push_str(&Self::last_line(&lines));
        Self(lines)
    }

    /// Takes what `Display` wrote, if it is whole.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let end = text.strip_suffix('\n')?.rfind('\n')? + 1;
        (text[end..] == Self::last_line(&text[..end])).then(|| Self(text.to_owned()))
    }

    fn last_line(lines: &str) -> String {
        format!("end {:08x}\n", crc32fast::hash(lines.as_bytes()))
    }

    fn entries(&self) -> impl Iterator<Item = (&Path, Entry)> {
        self.0.lines().filter_map(|line| {
            let mut parts = line.splitn(4, ' ');
            let kind = Kind::of_letter(parts.next()?)?;
            let crc = u32::from_str_radix(parts.next()?, 16).ok()?;
            let bytes = parts.next()?.parse().ok()?;
            Some((Path::new(parts.next()?), Entry { kind, bytes, crc }))
        })
    }

    /// Reports whether all is as it was.
    pub(crate) fn fit(&self, directory: &Path) -> bool {
        self.entries().all(|(path, entry)| Entry::of(&directory.join(path)).is_ok_and(|same| same == entry))
    }

    /// Reports whether the programs are there, with the right sizes. It takes no time.
    pub(crate) fn have_programs(&self, directory: &Path) -> bool {
        let mut programs = self.entries().filter(|(_, entry)| entry.kind == Kind::Program);
        programs.all(|(path, entry)| {
            let found = directory.join(path).symlink_metadata();
            found.is_ok_and(|found| Kind::of(&found) == entry.kind && found.len() == entry.bytes)
        })
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Kind {
    const ALL: [Self; 4] = [Self::Directory, Self::Link, Self::Program, Self::File];

    fn of(metadata: &fs::Metadata) -> Self {
        match metadata.file_type() {
            kind if kind.is_dir() => Self::Directory,
            kind if kind.is_symlink() => Self::Link,
            _ => Self::of_mode(metadata.permissions().mode()),
        }
    }

    fn of_mode(mode: u32) -> Self {
        if mode & 0o100 == 0 { Self::File } else { Self::Program }
    }

    fn letter(self) -> &'static str {
        match self {
            Self::Directory => "d",
            Self::Link => "l",
            Self::Program => "x",
            Self::File => "f",
        }
    }

    fn of_letter(letter: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.letter() == letter)
    }
}

impl Entry {
    fn of(path: &Path) -> io::Result<Self> {
        let kind = Kind::of(&path.symlink_metadata()?);
        Self::copied(kind, &mut *content(kind, path)?, &mut io::sink())
    }

    /// Copies the content of an entry.
    fn copied(kind: Kind, from: &mut dyn Read, to: &mut dyn Write) -> io::Result<Self> {
        let (mut buffer, mut bytes, mut crc) = (vec![0; 256 << 10], 0, crc32fast::Hasher::new());
        loop {
            let count = from.read(&mut buffer)?;
            if count == 0 {
                return Ok(Self { kind, bytes, crc: crc.finalize() });
            }
            crc.update(&buffer[..count]);
            to.write_all(&buffer[..count])?;
            bytes += count as u64;
        }
    }
}

/// The content by which an entry is checked.
fn content(kind: Kind, path: &Path) -> io::Result<Box<dyn Read>> {
    Ok(match kind {
        Kind::Directory => Box::new(io::empty()),
        Kind::Link => Box::new(io::Cursor::new(path.read_link()?.as_os_str().as_bytes().to_owned())),
        Kind::Program | Kind::File => Box::new(File::open(path)?),
    })
}

/// Unpacks all into an empty directory, which will be renamed to `destination`.
pub(crate) fn unpack(bundle: &mut Bundle, directory: &Path, destination: &Path) -> io::Result<Sums> {
    let mut entries = Vec::new();
    bundle.entries(|name, entry| {
        let path = directory.join(&name);
        let unpacked = match entry.header().entry_type() {
            tar::EntryType::Directory => {
                fs::create_dir(&path)?;
                Entry::of(&path)?
            }
            tar::EntryType::Symlink => {
                let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link without a target"))?;
                symlink(target, &path)?;
                Entry::of(&path)?
            }
            _ => {
                let mode = entry.header().mode()?;
                let mut file = File::create_new(&path)?;
                let copied = Entry::copied(Kind::of_mode(mode), entry, &mut file)?;
                file.set_permissions(Permissions::from_mode(mode))?;
                copied
            }
        };
        entries.push((name, unpacked));
        Ok(())
    })?;
    if let Some(settled) = python::settle(directory, destination)? {
        entries.retain(|(name, _)| *name != settled && directory.join(name).symlink_metadata().is_ok());
        let entry = Entry::of(&directory.join(&settled))?;
        entries.push((settled, entry));
    }
    Ok(Sums::new(&entries))
}
