//! The files of the working directory as resources.
//!
//! A path is opened name by name, and no symbolic link is followed. So nothing outside the directory is read or listed,
//! even while a session renames and replaces its files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use rlm_core::dirfd::{Directory, Entry, Kind};

/// Files on a page of the list.
const PAGE: usize = 200;

/// Most files in the list, and most directories that are searched. Files beyond can still be read.
const MAX_LISTED: usize = 10_000;

/// The files below a directory.
#[derive(Clone, Debug)]
pub(super) struct Files {
    root: PathBuf,
    max_bytes: u64,
}

/// A file in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileEntry {
    /// The path relative to the directory.
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("{} is outside the working directory {}", path.display(), root.display())]
    Outside { path: PathBuf, root: PathBuf },
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("{} is a symbolic link, or below one: links are not followed", .0.display())]
    Link(PathBuf),
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("{} has {bytes} bytes, the limit is {limit} bytes: read parts of it with the tool `bash`", path.display())]
    TooLarge { path: PathBuf, bytes: u64, limit: u64 },
    #[error("cannot read {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Files {
    /// The files below a directory, whose path has no symbolic link in it.
    pub(super) fn new(root: PathBuf, max_bytes: u64) -> Self {
        Self { root, max_bytes }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A page of the sorted list: the files after `after`, and true if more follow. Names that begin with a dot are left
    /// out, as are directories that cannot be read. Blocks.
    pub(super) fn list(&self, after: Option<&Path>) -> (Vec<FileEntry>, bool) {
        let mut all = self.walk();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        let from = after.map_or(0, |after| all.partition_point(|listed| listed.path.as_path() <= after));
        let page: Vec<_> = all[from..].iter().take(PAGE).cloned().collect();
        let has_more = from + page.len() < all.len();
        (page, has_more)
    }

    fn walk(&self) -> Vec<FileEntry> {
        let (mut files, mut searched) = (Vec::new(), 0);
        let mut paths = vec![PathBuf::new()];
        while let Some(path) = paths.pop() {
            searched += 1;
            let opened = self.open_root().and_then(|root| root.directory_below(&path));
            let Ok(directory) = opened else { continue };
            for Entry { name, kind } in directory.entries().into_iter().flatten().flatten() {
                if name.as_bytes().starts_with(b".") || files.len() >= MAX_LISTED {
                    continue;
                }
                let path = path.join(&name);
                match kind {
                    Kind::File => {
                        let Ok(metadata) = directory.metadata_of(&name) else { continue };
                        files.push(FileEntry { path, bytes: metadata.len() });
                    }
                    Kind::Directory if searched + paths.len() < MAX_LISTED => paths.push(path),
                    _ => {}
                }
            }
        }
        files
    }

    fn open_root(&self) -> io::Result<Directory> {
        match (self.root.parent(), self.root.file_name()) {
            (Some(above), Some(name)) => Directory::at_path(above)?.directory(name),
            _ => Directory::at_path(&self.root),
        }
    }

    /// The bytes of a file. Blocks.
    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>, ReadError> {
        let io_error = |source: io::Error| ReadError::Io { path: path.to_owned(), source };
        let file = self.open(path)?;
        let metadata = file.metadata().map_err(io_error)?;
        if !metadata.is_file() {
            return Err(ReadError::NotAFile(path.to_owned()));
        }
        let too_large = |bytes| ReadError::TooLarge { path: path.to_owned(), bytes, limit: self.max_bytes };
        if metadata.len() > self.max_bytes {
            return Err(too_large(metadata.len()));
        }
        let mut bytes = Vec::new();
        // The file may grow while it is read, and files in /proc have no length.
        file.take(self.max_bytes + 1).read_to_end(&mut bytes).map_err(io_error)?;
        if bytes.len() as u64 > self.max_bytes {
            return Err(too_large(bytes.len() as u64));
        }
        Ok(bytes)
    }

    fn open(&self, path: &Path) -> Result<File, ReadError> {
        let outside = || ReadError::Outside { path: path.to_owned(), root: self.root.clone() };
        let below = path.strip_prefix(&self.root).map_err(|_not_below| outside())?;
        if below.components().any(|component| !matches!(component, Component::Normal(_))) {
            return Err(outside());
        }
        if below.as_os_str().is_empty() {
            return Err(ReadError::NotAFile(path.to_owned()));
        }
        let opened = self.open_root().and_then(|root| root.file_below(below));
        opened.map_err(|source| match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ENAMETOOLONG) => ReadError::Missing(path.to_owned()),
            Some(Errno::ELOOP | Errno::ENOTDIR) => ReadError::Link(path.to_owned()),
            Some(Errno::ENXIO) => ReadError::NotAFile(path.to_owned()),
            _ => ReadError::Io { path: path.to_owned(), source },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    fn files() -> (tempfile::TempDir, Files) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("root");
        fs::create_dir_all(root.join("sub/deep")).unwrap();
        fs::write(root.join("sub/deep/b.txt"), "bb").unwrap();
        fs::write(root.join("a.txt"), "a").unwrap();
        fs::write(root.join(".hidden"), "h").unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        symlink("../secret", root.join("link")).unwrap();
        symlink("..", root.join("up")).unwrap();
        (dir, Files::new(root, 4))
    }

    #[test]
    fn files_are_listed_and_links_are_not() {
        let (_dir, files) = files();
        let listed = |path: &str, bytes| FileEntry { path: path.into(), bytes };
        assert_eq!(files.list(None), (vec![listed("a.txt", 1), listed("sub/deep/b.txt", 2)], false));
        assert_eq!(files.list(Some(Path::new("a.txt"))), (vec![listed("sub/deep/b.txt", 2)], false));
    }

    /// Directories that become links at every moment.
    #[test]
    fn nothing_outside_is_listed_whatever_becomes_of_directories() {
        let (dir, files) = files();
        let (root, outside) = (files.root().to_owned(), dir.path().join("outside/deep"));
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("b.txt"), "outside").unwrap();
        let (listed, is_done) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    fs::rename(root.join("sub"), root.join(".sub")).unwrap();
                    symlink("../outside", root.join("sub")).unwrap();
                    fs::remove_file(root.join("sub")).unwrap();
                    fs::rename(root.join(".sub"), root.join("sub")).unwrap();
                }
            });
            for _ in 0..5000 {
                let (all, _) = files.list(None);
                listed.fetch_add(all.iter().filter(|listed| listed.bytes == 7).count(), Ordering::Relaxed);
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert_eq!(listed.into_inner(), 0);
    }

    #[test]
    fn pages_follow_each_other() {
        let (_dir, files) = files();
        for number in 0..PAGE {
            fs::write(files.root().join(format!("n{number:03}")), "").unwrap();
        }
        let (first, has_more) = files.list(None);
        assert_eq!((first.len(), has_more), (PAGE, true));
        let (second, has_more) = files.list(first.last().map(|listed| listed.path.as_path()));
        let paths: Vec<_> = second.iter().map(|listed| listed.path.to_str().unwrap()).collect();
        assert_eq!((paths, has_more), (vec!["n199", "sub/deep/b.txt"], false));
    }

    #[test]
    fn only_regular_files_of_the_directory_are_read() {
        let (dir, files) = files();
        let root = files.root().to_owned();
        assert_eq!(files.read(&root.join("sub/deep/b.txt")).unwrap(), b"bb");
        assert_eq!(files.read(&root.join(".hidden")).unwrap(), b"h");
        nix::unistd::mkfifo(&root.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::write(root.join("large"), "12345").unwrap();
        let refusal = |path: &Path| files.read(path).unwrap_err();
        assert!(matches!(
            refusal(&dir.path().canonicalize().unwrap().join("secret")),
            ReadError::Outside { .. }
        ));
        assert!(matches!(refusal(&root.join("sub/../../secret")), ReadError::Outside { .. }));
        assert!(matches!(refusal(Path::new("/etc/passwd")), ReadError::Outside { .. }));
        assert!(matches!(refusal(&root.join("link")), ReadError::Link(_)));
        assert!(matches!(refusal(&root.join("up/secret")), ReadError::Link(_)));
        assert!(matches!(refusal(&root.join("none")), ReadError::Missing(_)));
        assert!(matches!(refusal(&root.join("sub")), ReadError::NotAFile(_)));
        assert!(matches!(refusal(&root), ReadError::NotAFile(_)));
        assert!(matches!(refusal(&root.join("fifo")), ReadError::NotAFile(_)));
        let large = refusal(&root.join("large")).to_string();
        assert!(
            large.ends_with("large has 5 bytes, the limit is 4 bytes: read parts of it with the tool `bash`"),
            "{large}"
        );
    }
}
