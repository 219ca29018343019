//! The root directory of a session: what of the host's files it sees.

use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::failed::{Failed, failed, failed_io};

/// Where the new root is built.
const PLACE: &str = "/tmp";

/// What a system's programs are and need, by name: nothing of `/run`, where the sockets of its services lie.
const SYSTEM: [&str; 11] = [
    "usr",
    "bin",
    "sbin",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "opt",
    "nix/store",
    "gnu/store",
    "sys/devices/system/cpu",
];

/// What programs read of `/etc`.
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

/// Which paths a session has, besides those of the system.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    /// Most bytes in each of `/tmp`, `/var/tmp` and `/dev/shm`.
    pub(super) tmp_bytes: u64,
}

/// What of the host's files every session can read, where it has no root directory of its own.
pub(super) fn system() -> impl Iterator<Item = PathBuf> {
    let of_etc = ETC.map(|name| Path::new("/etc").join(name));
    SYSTEM.into_iter().chain(["proc"]).map(|name| Path::new("/").join(name)).chain(of_etc)
}

/// A path of the host, open before another mount hides it.
struct Source {
    path: PathBuf,
    file: OwnedFd,
    is_directory: bool,
    is_writable: bool,
}

/// Makes a new root and enters it. The process must be the first of new namespaces.
pub(super) fn enter(paths: &Paths) -> Result<(), Failed> {
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(failed("mount, to make / private"))?;
    if paths.read.iter().chain(&paths.write).any(|path| path.parent().is_none()) {
        return Err(Failed { call: "sharing /, which is all of the host".into(), errno: Errno::EINVAL });
    }
    let system = SYSTEM.map(|name| Path::new("/").join(name));
    let etc = ETC.map(|name| Path::new("/etc").join(name));
    let devices = DEVICES.map(|name| Path::new("/dev").join(name));
    let mut links = Vec::new();
    let mut sources = Vec::new();
    for path in system.iter().chain(&etc) {
        match fs::read_link(path) {
            Ok(target) => links.push((path.clone(), target)),
            Err(_) => sources.extend(open(path, false)),
        }
    }
    let devices: Vec<_> = devices.iter().filter_map(|path| open(path, true)).collect();
    let mut own = Vec::new();
    for (given, is_writable) in [(&paths.read, false), (&paths.write, true)] {
        // The system's own are there already.
        let is_there = |path: &&PathBuf| !is_writable && system.iter().any(|there| path.starts_with(there));
        for path in given.iter().filter(|path| !is_there(path)) {
            own.extend(open(path, is_writable));
        }
    }
    // One that lies in another comes after it.
    own.sort_by_key(|source| source.path.as_os_str().len());

    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), PLACE, Some("tmpfs"), flags, Some("mode=755,size=1m"))
        .map_err(failed("mount of a tmpfs"))?;
    for source in &sources {
        bind(source)?;
    }
    for (path, target) in links {
        let link = inside(&path);
        make_parents(&link)?;
        symlink(&target, &link).map_err(failed_io("symlink"))?;
    }
    for name in ["tmp", "var/tmp", "dev/shm"] {
        let place = inside(Path::new(name));
        make_directory(&place)?;
        let size = format!("mode=1777,size={}", paths.tmp_bytes);
        mount(Some("tmpfs"), &place, Some("tmpfs"), flags, Some(&*size))
            .map_err(failed("mount of a tmpfs"))?;
    }
    for device in &devices {
        bind_as(device, 0)?;
    }
    let pts = inside(Path::new("dev/pts"));
    make_directory(&pts)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("devpts"), &pts, Some("devpts"), flags, Some("newinstance,ptmxmode=0666,mode=620"))
        .map_err(failed("mount of devpts"))?;
    for (link, target) in [
        ("dev/ptmx", "pts/ptmx"),
        ("dev/fd", "/proc/self/fd"),
        ("dev/stdin", "/proc/self/fd/0"),
        ("dev/stdout", "/proc/self/fd/1"),
        ("dev/stderr", "/proc/self/fd/2"),
    ] {
        symlink(target, inside(Path::new(link))).map_err(failed_io("symlink"))?;
    }
    let proc = inside(Path::new("proc"));
    make_directory(&proc)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), &proc, Some("proc"), flags, None::<&str>).map_err(failed("mount of proc"))?;
    for name in PROC_READ_ONLY {
        let path = proc.join(name);
        let bound = mount(Some(&path), &path, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>);
        match bound {
            Err(Errno::ENOENT) => continue,
            bound => bound.map_err(failed("mount of a part of proc"))?,
        }
        set_attributes(
            &path,
            libc::MOUNT_ATTR_RDONLY
                | libc::MOUNT_ATTR_NOSUID
                | libc::MOUNT_ATTR_NODEV
                | libc::MOUNT_ATTR_NOEXEC,
        )?;
    }
    for source in &own {
        bind(source)?;
    }
    change_root()
}

/// Makes the new root the only one.
fn change_root() -> Result<(), Failed> {
    nix::unistd::chdir(PLACE).map_err(failed("chdir"))?;
    // The old root comes to lie over the new one, and goes.
    nix::unistd::pivot_root(".", ".").map_err(failed("pivot_root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(failed("umount of the old root"))?;
    nix::unistd::chdir("/").map_err(failed("chdir"))?;
    set_attributes_of(Path::new("/"), libc::MOUNT_ATTR_RDONLY, 0)
}

/// Opens a path of the host as it is there. None: there is none, or the user may not see it.
fn open(path: &Path, is_writable: bool) -> Option<Source> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
    let is_directory = file.metadata().ok()?.is_dir();
    Some(Source { path: path.to_owned(), file: file.into(), is_directory, is_writable })
}

/// Puts a path of the host at its place in the new root.
fn bind(source: &Source) -> Result<(), Failed> {
    let read_only = if source.is_writable { 0 } else { libc::MOUNT_ATTR_RDONLY };
    bind_as(source, read_only | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)
}

fn bind_as(source: &Source, attributes: u64) -> Result<(), Failed> {
    let place = inside(&source.path);
    if source.is_directory {
        make_directory(&place)?;
    } else {
        make_parents(&place)?;
        File::create(&place).map_err(failed_io("creat"))?;
    }
    let from = format!("/proc/self/fd/{}", source.file.as_raw_fd());
    mount(Some(&*from), &place, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .map_err(failed("mount of a path of the host"))?;
    if attributes != 0 { set_attributes(&place, attributes) } else { Ok(()) }
}

fn set_attributes(path: &Path, attributes: u64) -> Result<(), Failed> {
    set_attributes_of(path, attributes, libc::AT_RECURSIVE)
}

fn set_attributes_of(path: &Path, attributes: u64, flags: i32) -> Result<(), Failed> {
    let path = c_string(path.as_os_str());
    let wanted = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: path and attributes are live.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const wanted,
            size_of_val(&wanted),
        )
    };
    Errno::result(set).map(drop).map_err(failed("mount_setattr"))
}

fn c_string(text: &OsStr) -> CString {
    CString::new(text.as_bytes()).unwrap_or_default()
}

/// The place in the new root of a path.
fn inside(path: &Path) -> PathBuf {
    Path::new(PLACE).join(path.strip_prefix("/").unwrap_or(path))
}

fn make_directory(path: &Path) -> Result<(), Failed> {
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(failed_io("mkdir"))
}

fn make_parents(path: &Path) -> Result<(), Failed> {
    path.parent().map_or(Ok(()), make_directory)
}
