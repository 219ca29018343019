//! The root directory of a session: the part of the host's files that it sees.

use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};

use super::failed::{Failed, failed, failed_io};

/// The directory where the new root is built.
const PLACE: &str = "/tmp";

/// The directories of a system's programs and of their files: nothing in `/run` and `/opt`, where the sockets of services lie.
const SYSTEM: [&str; 10] = [
    "usr",
    "bin",
    "sbin",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "nix/store",
    "gnu/store",
    "sys/devices/system/cpu",
];

/// Files of `/etc` that programs read.
const ETC: [&str; 47] = [
    "ImageMagick-6",
    "ImageMagick-7",
    "R",
    "alternatives",
    "bash.bashrc",
    "bash_completion",
    "bash_completion.d",
    "bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "gitconfig",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "login.defs",
    "lsb-release",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Parts of `/proc` that are the kernel's settings.
const PROC_READ_ONLY: [&str; 5] = ["sys", "irq", "bus", "fs", "sysrq-trigger"];

/// Files of `/proc` that tell everyone about a user's keys.
const PROC_OF_KEYS: [&str; 2] = ["key-users", "keys"];

/// Files of `/proc` that tell root about the whole host.
const PROC_OF_ROOT: [&str; 8] = [
    "kcore",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "pagetypeinfo",
    "slabinfo",
    "timer_list",
    "vmallocinfo",
];

/// The paths that a session has, besides those of the system.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    /// Most bytes in each of `/tmp`, `/var/tmp` and `/dev/shm`.
    pub(super) tmp_bytes: u64,
}

/// True for a path below one of the system's directories.
pub(super) fn is_of_system(path: &Path) -> bool {
    SYSTEM.iter().any(|name| path.starts_with(Path::new("/").join(name)))
}

fn is_of_etc(path: &Path) -> bool {
    ETC.iter().any(|name| path.starts_with(Path::new("/etc").join(name)))
}

/// Files of the host that every session can read, where it has no root directory of its own.
pub(super) fn system() -> impl Iterator<Item = PathBuf> {
    let of_etc = ETC.map(|name| Path::new("/etc").join(name));
    SYSTEM.into_iter().chain(["proc"]).map(|name| Path::new("/").join(name)).chain(of_etc)
}

/// A path of the host: a copy of its mount, without the mounts that hide it. The copy is attached to no directory yet.
struct Source {
    path: PathBuf,
    tree: OwnedFd,
    found: FileStat,
    attributes: u64,
    /// True for a path that is there already, and becomes a mount only so that it cannot be renamed.
    is_pin: bool,
}

impl Source {
    /// Opens the path as it is there. None: there is none, or the user may not see it.
    fn open(path: &Path, attributes: u64) -> Option<Self> {
        let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as libc::c_uint;
        let name = c_string(path.as_os_str());
        // SAFETY: the path is live.
        let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, name.as_ptr(), flags) };
        let tree = Errno::result(tree).ok()?;
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        let tree = unsafe { OwnedFd::from_raw_fd(tree as i32) };
        let found = fstat(&tree).ok()?;
        Some(Self { path: path.to_owned(), tree, found, attributes, is_pin: false })
    }

    fn is_directory(&self) -> bool {
        kind(&self.found) == SFlag::S_IFDIR
    }

    fn is_writable(&self) -> bool {
        self.attributes & libc::MOUNT_ATTR_RDONLY == 0
    }
}

/// Mount attributes of paths that the session can read.
const READ: u64 = libc::MOUNT_ATTR_RDONLY | WRITE;

/// Mount attributes of paths that the session can also write.
const WRITE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// Mount attributes of the parts of `/proc` that the session can read.
const PROC: u64 = READ | libc::MOUNT_ATTR_NOEXEC;

/// Mount attributes of devices. They can be written all the same; their modes and times cannot be changed.
const DEVICE: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

/// Makes a new root and enters it. The process must be the first of new namespaces.
pub(super) fn enter(paths: &Paths) -> Result<(), Failed> {
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(failed("mount, to make / private"))?;
    let system = SYSTEM.map(|name| Path::new("/").join(name));
    let etc = ETC.map(|name| Path::new("/etc").join(name));
    let mut links = Vec::new();
    let mut sources = Vec::new();
    for path in system.iter().chain(&etc) {
        match fs::read_link(path) {
            Ok(target) => links.push((path.clone(), target)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => sources.extend(Source::open(path, READ)),
        }
    }
    sources.extend(DEVICES.iter().filter_map(|name| Source::open(&Path::new("/dev").join(name), DEVICE)));
    let mut own = own_sources(paths);
    // A link into a shared path stays a link: programs look for their files beside its target.
    let all: Vec<_> = paths.read.iter().chain(&paths.write).chain(&system).cloned().collect();
    let mut own_links = Vec::new();
    own.retain(|source| match link_into(&source.path, &all) {
        Some(target) if !source.is_directory() => {
            own_links.push((source.path.clone(), target));
            false
        }
        _ => true,
    });

    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), PLACE, Some("tmpfs"), flags, Some("mode=755,size=1m"))
        .map_err(failed("mount of a tmpfs"))?;
    let mut root = Root::open()?;
    for source in &sources {
        root.attach(source, &[])?;
    }
    for (path, target) in &links {
        root.link(path, target)?;
    }
    for name in ["/tmp", "/var/tmp", "/dev/shm"] {
        // A file takes about 1 KiB of the kernel's memory, even an empty one.
        let size = format!("mode=1777,size={},nr_inodes={}", paths.tmp_bytes, paths.tmp_bytes / 1024 + 1);
        root.mount(name, "tmpfs", flags, &size)?;
    }
    let options = "newinstance,ptmxmode=0666,mode=620";
    root.mount("/dev/pts", "devpts", MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, options)?;
    root.mount("/proc", "proc", flags | MsFlags::MS_NOEXEC, "")?;
    for name in PROC_READ_ONLY {
        let source = Source::open(&Path::new(PLACE).join("proc").join(name), PROC);
        if let Some(source) = source.map(|source| Source { path: Path::new("/proc").join(name), ..source }) {
            root.attach(&source, &[])?;
        }
    }
    let of_root = PROC_OF_ROOT.iter().filter(|_| nix::unistd::getuid().is_root());
    for path in PROC_OF_KEYS
        .iter()
        .chain(of_root)
        .map(|name| Path::new("/proc").join(name))
        .filter(|path| path.exists())
    {
        if let Some(nothing) = Source::open(Path::new("/dev/null"), DEVICE) {
            root.attach(&Source { path, ..nothing }, &[])?;
        }
    }
    for (at, source) in own.iter().enumerate() {
        root.attach(source, &own[..at])?;
    }
    let ours = [
        ("/dev/ptmx", "pts/ptmx"),
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ];
    own_links.extend(ours.map(|(link, target)| (link.into(), target.into())));
    for (path, target) in &own_links {
        root.link(path, target)?;
    }
    change_root()
}

/// The mounts of the paths that are shared besides the system's, outer ones first.
///
/// A path that can only be read may lie in a directory that code can write, which may have a second name. So it is also mounted
/// where that directory has it. The directories between the two become mounts as well: a mount cannot be renamed, and otherwise code
/// could rename one of them and put another in its place.
fn own_sources(paths: &Paths) -> Vec<Source> {
    let (read, write) = (Shared::all(&paths.read, READ), Shared::all(&paths.write, WRITE));
    let all: Vec<_> = read.chain(write).collect();
    let mut own = Vec::new();
    let mut pinned = HashSet::new();
    for shared in &all {
        let mut is_there = shared.is_reached(&all);
        for outer in all.iter().filter(|outer| shared.is_read_in(outer, &all)) {
            let below = shared.real.strip_prefix(&outer.real).unwrap_or(&shared.real);
            let between = below.ancestors().skip(1).filter(|part| !part.as_os_str().is_empty());
            for part in between.filter(|part| pinned.insert(outer.path.join(part))) {
                let source = Source::open(&outer.real.join(part), WRITE);
                own.extend(source.map(|source| Source {
                    path: outer.path.join(part),
                    is_pin: true,
                    ..source
                }));
            }
            let place = outer.path.join(below);
            is_there |= place == shared.path;
            own.extend(Source::open(&shared.real, READ).map(|source| Source { path: place, ..source }));
        }
        if !is_there {
            own.extend(Source::open(&shared.path, shared.attributes));
        }
    }
    own.sort_by_key(|source| source.path.components().count());
    own
}

/// A path that is shared, and its target if it is a link.
struct Shared {
    path: PathBuf,
    real: PathBuf,
    attributes: u64,
}

impl Shared {
    /// The paths among these that exist.
    fn all(paths: &[PathBuf], attributes: u64) -> impl Iterator<Item = Self> {
        paths.iter().filter_map(move |path| {
            let path: PathBuf = path.components().collect();
            path.canonicalize().ok().map(|real| Self { path, real, attributes })
        })
    }

    fn lies_in(&self, outer: &Self) -> bool {
        self.real != outer.real && self.real.starts_with(&outer.real)
    }

    /// True if this path can only be read, lies in `outer`, which can be written, and no path between the two is read-only.
    fn is_read_in(&self, outer: &Self, all: &[Self]) -> bool {
        let is_between =
            |other: &Self| other.attributes == READ && other.lies_in(outer) && self.lies_in(other);
        let is_read = self.attributes == READ && outer.attributes == WRITE;
        is_read && self.lies_in(outer) && !all.iter().any(is_between)
    }

    /// True if the path is there by itself: as a part of the system, or through a link from one shared path into another.
    fn is_reached(&self, all: &[Self]) -> bool {
        let is_read = self.attributes == READ;
        let is_shared = all.iter().any(|other| {
            self.path != other.path
                && (is_read || other.attributes == WRITE)
                && self.real.starts_with(&other.real)
        });
        let mut parts: Vec<_> = self.path.ancestors().collect();
        parts.reverse();
        let is_link_there = |link: &Path| {
            is_of_system(link) || all.iter().any(|other| link != other.path && link.starts_with(&other.path))
        };
        let is_link = parts.into_iter().find(|part| part.is_symlink()).is_some_and(is_link_there);
        let is_given = is_read && (is_of_system(&self.real) || is_of_etc(&self.real));
        (is_read && is_of_system(&self.path) && is_of_system(&self.real))
            || is_link && (is_shared || is_given)
    }
}

/// The target of a link, if it is below one of these paths.
fn link_into(path: &Path, shared: &[PathBuf]) -> Option<PathBuf> {
    let target = fs::read_link(path).ok()?;
    let whole = path.canonicalize().ok()?;
    shared.iter().any(|there| there != path && whole.starts_with(there)).then_some(target)
}

/// The new root, while it is built. No link in it is followed: one in a directory of the host would lead to the host.
struct Root {
    directory: OwnedFd,
    /// The devices of the root's own file systems.
    devices: Vec<u64>,
}

impl Root {
    fn open() -> Result<Self, Failed> {
        let directory = open(PLACE, PATH, Mode::empty()).map_err(failed("open of the new root"))?;
        let device = fstat(&directory).map_err(failed("fstat"))?.st_dev;
        Ok(Self { directory, devices: vec![device] })
    }

    /// Opens the file at a path. Missing directories are made, and so is the last part, as a directory or a file; but nothing is
    /// made in a directory of the host.
    fn find(&self, path: &Path, is_directory: bool) -> Result<OwnedFd, Failed> {
        let about = |errno| Failed { call: format!("mount of {}", path.display()).into(), errno };
        let how = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
        match openat2(&self.directory, path, OpenHow::new().flags(PATH).resolve(how)) {
            Err(Errno::ENOENT) => {}
            found => return found.map_err(about),
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(about(Errno::ENOENT));
        };
        let parent = self.find(parent, true).map_err(|failed| about(failed.errno))?;
        if !self.owns(&fstat(&parent).map_err(about)?) {
            return Err(about(Errno::ENOENT));
        }
        if is_directory {
            mkdirat(&parent, name, Mode::from_bits_retain(0o755)).map_err(about)?;
            openat(&parent, name, PATH, Mode::empty()).map_err(about)
        } else {
            let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
            openat(&parent, name, flags, Mode::from_bits_retain(0o644)).map_err(about)
        }
    }

    /// True if the file is in one of the root's own file systems.
    fn owns(&self, found: &FileStat) -> bool {
        self.devices.contains(&found.st_dev)
    }

    /// Puts a path of the host at its place, unless a source before has put it there already.
    fn attach(&self, source: &Source, before: &[Source]) -> Result<(), Failed> {
        let place = self.find(&source.path, source.is_directory())?;
        let about = |errno| Failed { call: format!("mount of {}", source.path.display()).into(), errno };
        let there = fstat(&place).map_err(about)?;
        if kind(&there) == SFlag::S_IFLNK {
            return Err(about(Errno::ELOOP));
        }
        let is_the_same = (there.st_dev, there.st_ino) == (source.found.st_dev, source.found.st_ino);
        if !is_the_same && !self.owns(&there) {
            // Code of another session has put a link there, or taken one away.
            return Err(about(Errno::ELOOP));
        }
        let around = before.iter().rev().find(|other| source.path.starts_with(&other.path));
        let is_as_around = around.is_some_and(|around| around.is_writable() == source.is_writable());
        if is_the_same && is_as_around && !source.is_pin {
            return Ok(());
        }
        set_attributes(&source.tree, source.attributes, libc::AT_RECURSIVE)?;
        let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
        let (from, to) = (source.tree.as_raw_fd(), place.as_raw_fd());
        // SAFETY: the descriptors and the empty paths are live.
        let moved =
            unsafe { libc::syscall(libc::SYS_move_mount, from, c"".as_ptr(), to, c"".as_ptr(), flags) };
        Errno::result(moved).map(drop).map_err(about)
    }

    /// Mounts a new file system.
    fn mount(&mut self, name: &str, what: &'static str, flags: MsFlags, options: &str) -> Result<(), Failed> {
        let place = self.find(Path::new(name), true)?;
        let place = format!("/proc/self/fd/{}", place.as_raw_fd());
        let options = (!options.is_empty()).then_some(options);
        mount(Some(what), &*place, Some(what), flags, options)
            .map_err(|errno| Failed { call: format!("mount of {what}").into(), errno })?;
        if matches!(what, "tmpfs" | "proc") {
            let mounted = self.find(Path::new(name), true)?;
            self.devices.push(fstat(&mounted).map_err(failed("fstat"))?.st_dev);
        }
        Ok(())
    }

    /// Makes a link, unless something is there.
    fn link(&self, path: &Path, target: &Path) -> Result<(), Failed> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let parent = self.find(parent, true)?;
        let about = |errno| Failed { call: format!("link at {}", path.display()).into(), errno };
        if !self.owns(&fstat(&parent).map_err(about)?) {
            return Ok(());
        }
        match nix::unistd::symlinkat(target, &parent, name) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(about(errno)),
        }
    }
}

/// Flags for opening a path without its contents, and without following a link.
const PATH: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

fn kind(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits())
}

/// Makes the new root the only one.
fn change_root() -> Result<(), Failed> {
    nix::unistd::chdir(PLACE).map_err(failed("chdir"))?;
    // The old root comes to lie over the new one, and is unmounted.
    nix::unistd::pivot_root(".", ".").map_err(failed("pivot_root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(failed("umount of the old root"))?;
    nix::unistd::chdir("/").map_err(failed("chdir"))?;
    let root = File::open("/").map_err(failed_io("open of /"))?;
    set_attributes(&root.into(), libc::MOUNT_ATTR_RDONLY, 0)
}

fn set_attributes(mounted: &OwnedFd, attributes: u64, flags: i32) -> Result<(), Failed> {
    let wanted = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the descriptor, the empty path and the attributes are live.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mounted.as_raw_fd(),
            c"".as_ptr(),
            flags | libc::AT_EMPTY_PATH,
            &raw const wanted,
            size_of_val(&wanted),
        )
    };
    Errno::result(set).map(drop).map_err(failed("mount_setattr"))
}

fn c_string(text: &OsStr) -> CString {
    CString::new(text.as_bytes()).unwrap_or_default()
}
