//! The directory of a session in a saved file: a tar archive, compressed by zstd.
//!
//! It is unpacked into an empty directory alone. Each entry lies in a directory that the archive itself has made there, so no path and
//! no link leads out of it; links are kept as they are. What is neither a file, a directory nor a link is left out.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use nix::libc;
use tar::{Archive, Builder, EntryType, Header};

use crate::saved::Directory;

/// Fast, and half the size or less for text.
const LEVEL: i32 = 3;

/// Writes a directory to a file, without one directory in it. Returns what it has; names of what it lacks go to `left_out`.
pub(super) fn pack(
    root: &Path,
    without: &Path,
    to: &File,
    left_out: &mut BTreeMap<String, String>,
) -> io::Result<Directory> {
    let mut archive = Builder::new(zstd::Encoder::new(to, LEVEL)?);
    let mut packed = Directory::default();
    let mut todo = vec![PathBuf::new()];
    while let Some(below) = todo.pop() {
        for entry in fs::read_dir(root.join(&below))? {
            let path = below.join(entry?.file_name());
            let full = root.join(&path);
            if full == without {
                continue;
            }
            let metadata = full.symlink_metadata()?;
            let kind = metadata.file_type();
            let mut header = Header::new_gnu();
            header.set_metadata(&metadata);
            if kind.is_dir() {
                archive.append_data(&mut header, &path, io::empty())?;
                todo.push(path);
            } else if kind.is_symlink() {
                archive.append_link(&mut header, &path, fs::read_link(&full)?)?;
            } else if kind.is_file() {
                let file = OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                    .open(&full);
                let file = match file {
                    Ok(file) => file,
                    Err(error) => {
                        left_out.insert(format!("file {}", path.display()), error.to_string());
                        continue;
                    }
                };
                // A file that changes meanwhile has the size that was written to the archive.
                let content = file.take(metadata.len()).chain(io::repeat(0)).take(metadata.len());
                archive.append_data(&mut header, &path, content)?;
                packed.bytes += metadata.len();
            } else {
                left_out
                    .insert(format!("file {}", path.display()), "it is a socket, pipe or device".to_owned());
                continue;
            }
            packed.entries += 1;
        }
    }
    archive.into_inner()?.finish()?;
    Ok(packed)
}

/// Unpacks a directory into one that is empty: all of it, or nothing.
pub(super) fn unpack(from: &mut File, root: &Path, promised: &Directory) -> io::Result<()> {
    if fs::read_dir(root)?.next().is_some() {
        let fault = format!(
            "the file has a directory of its own, and {} is not empty: use an empty one",
            root.display()
        );
        return Err(io::Error::other(fault));
    }
    from.rewind()?;
    let unpacked = unpack_into(from, root, promised);
    if unpacked.is_err() {
        empty(root);
    }
    unpacked
}

/// Removes what is in a directory.
pub(in crate::worker) fn empty(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // What cannot be removed stays.
        let _removed = if is_dir { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
    }
}

fn unpack_into(from: &File, root: &Path, promised: &Directory) -> io::Result<()> {
    let refuse =
        |path: &Path, fault: &str| Err(io::Error::other(format!("entry {} {fault}", path.display())));
    let mut archive = Archive::new(zstd::Decoder::new(from)?);
    let mut made = HashSet::from([PathBuf::new()]);
    let mut modes = Vec::new();
    let mut unpacked = Directory::default();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let path: PathBuf = path.components().collect();
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || !path.parent().is_some_and(|parent| made.contains(parent)) {
            return refuse(&path, "is not in a directory of the archive");
        }
        let (header, full) = (entry.header().clone(), root.join(&path));
        let mode = Permissions::from_mode(header.mode()? & 0o777);
        unpacked.entries += 1;
        unpacked.bytes += if header.entry_type() == EntryType::Regular { header.size()? } else { 0 };
        if unpacked.entries > promised.entries || unpacked.bytes > promised.bytes {
            return refuse(&path, "is more than the file says that it has");
        }
        match header.entry_type() {
            EntryType::Directory => {
                fs::create_dir(&full)?;
                modes.push((full, mode));
                made.insert(path);
            }
            EntryType::Regular => {
                let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&full)?;
                io::copy(&mut entry, &mut file)?;
                file.set_modified(UNIX_EPOCH + Duration::from_secs(header.mtime()?))?;
                file.set_permissions(mode)?;
            }
            EntryType::Symlink => match entry.link_name()? {
                Some(target) => symlink(target, &full)?,
                None => return refuse(&path, "is a link to nothing"),
            },
            _ => return refuse(&path, "is neither a file, a directory nor a link"),
        }
    }
    // A directory may be one in which nothing can be made.
    modes.into_iter().rev().try_for_each(|(full, mode)| fs::set_permissions(full, mode))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn archive(entries: &[(&str, EntryType, &str)]) -> File {
        let file = tempfile::tempfile().unwrap();
        let mut archive = Builder::new(zstd::Encoder::new(&file, LEVEL).unwrap());
        for (path, kind, text) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o4644);
            header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            let data = if *kind == EntryType::Regular { text.as_bytes() } else { b"" };
            header.set_size(data.len() as u64);
            if *kind == EntryType::Symlink {
                header.set_link_name_literal(text).unwrap();
            }
            header.set_cksum();
            archive.append(&header, data).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap().flush().unwrap();
        file
    }

    #[test]
    fn nothing_is_made_outside_of_the_directory_and_no_device_in_it() {
        let (link, file, dir) = (EntryType::Symlink, EntryType::Regular, EntryType::Directory);
        let hostile: [&[(&str, EntryType, &str)]; 8] = [
            &[("../out", file, "x")],
            &[("/tmp/out", file, "x")],
            &[("d", dir, ""), ("d/../../out", file, "x")],
            &[("l", link, "/tmp"), ("l/out", file, "x")],
            &[("l", link, ".."), ("l", file, "x")],
            &[("f", file, "x"), ("dev", EntryType::Char, "")],
            &[("f", file, "x"), ("hard", EntryType::Link, "/etc/passwd")],
            &[("f", file, "x"), ("large", file, "0123456789")],
        ];
        for entries in hostile {
            let place = tempfile::tempdir().unwrap();
            let root = place.path().join("root");
            fs::create_dir(&root).unwrap();
            let promised = Directory { entries: 9, bytes: 5 };
            unpack(&mut archive(entries), &root, &promised).unwrap_err();
            assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "{entries:?}");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{entries:?}");
        }
    }

    #[test]
    fn a_directory_is_unpacked_as_it_was_packed() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("sub/control")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("sub/file"), "text").unwrap();
        fs::set_permissions(from.join("sub/file"), Permissions::from_mode(0o4751)).unwrap();
        symlink("/nowhere", from.join("link")).unwrap();
        nix::unistd::mkfifo(&from.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::set_permissions(from.join("sub"), Permissions::from_mode(0o555)).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        let mut left_out = BTreeMap::new();
        let packed = pack(&from, &from.join("sub/control"), &file, &mut left_out).unwrap();
        assert_eq!(packed, Directory { entries: 3, bytes: 4 });
        assert_eq!(left_out.keys().collect::<Vec<_>>(), ["file fifo"]);
        unpack(&mut file, &to, &packed).unwrap();
        assert_eq!(fs::read(to.join("sub/file")).unwrap(), b"text");
        assert_eq!(fs::metadata(to.join("sub/file")).unwrap().permissions().mode() & 0o7777, 0o751);
        assert_eq!(fs::metadata(to.join("sub")).unwrap().permissions().mode() & 0o777, 0o555);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/nowhere"));
        assert_eq!(fs::read_dir(to.join("sub")).unwrap().count(), 1);
        unpack(&mut file, &to, &packed).unwrap_err();
        fs::set_permissions(from.join("sub"), Permissions::from_mode(0o755)).unwrap();
    }
}
