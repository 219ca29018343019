//! Confinement: the part of the host that a session can reach.
//!
//! A fully confined server is the first process of new namespaces. Before it serves, it makes a root directory of its own with
//! the paths that the session needs (`root`), gives up every capability, and puts itself and all that it starts under Landlock
//! and a filter of system calls. Nothing of that needs root. Where there are no namespaces, Landlock and the filter alone hold,
//! with more rules. An endpoint that the session cannot reach is reached by way of the guard, which stays outside (`relay`).

mod failed;
mod filter;
mod landlock;
mod relay;
mod root;

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid};

pub use self::failed::Failed;
use self::failed::{failed, failed_io};
use self::relay::Target;
pub(super) use self::relay::{Relay, receive, serve};
use super::settings::Settings;
use crate::control::ControlDir;
use crate::env;
use crate::protocol::{Confinement, ConfinementLevel, Context};
use crate::root_tool::client::Endpoint;

/// Most bytes in each of `/tmp`, `/var/tmp` and `/dev/shm` by default.
const TMP_BYTES: u64 = 1 << 30;

/// The namespaces whose first process is the server. The user namespace allows the others.
const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Forks into new namespaces. Returns the process id of the child, and 0 in the child.
///
/// Must be called while the process has one thread.
///
/// # Errors
/// The host does not allow it.
pub(super) fn fork_into_namespaces() -> Result<libc::pid_t, Failed> {
    let flags = NAMESPACES | libc::SIGCHLD;
    // SAFETY: without a stack, clone is fork; the process has one thread, so the child may do anything the parent could.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) };
    Errno::result(child).map(|pid| pid as libc::pid_t).map_err(failed("clone"))
}

/// Most instances of inotify at the level `full`.
const MOST_WATCHERS: &str = "32";

/// Most files that instances of inotify watch, at the level `full`.
const MOST_WATCHES: &str = "8192";

/// Most timers and queued signals of a session.
const MOST_SIGNALS: u64 = 1024;

/// Refuses paths that no confined session can have.
///
/// # Errors
/// A sentence that names the path.
pub(super) fn check_paths(
    settings: &Settings,
    context: &Context,
    control: &Path,
    needs: &[PathBuf],
) -> Result<(), String> {
    let shared = &settings.shared;
    for (paths, by) in [(&shared.read, env::CONFINE_READ), (&shared.write, env::CONFINE_WRITE)] {
        for path in paths {
            path.metadata().map_err(|error| format!("{by} names {}: {error}", path.display()))?;
        }
    }
    if let Some(path) = shared.read.iter().find(|path| shared.write.contains(path)) {
        return Err(format!("{} is in {} and in {}", path.display(), env::CONFINE_READ, env::CONFINE_WRITE));
    }
    // Paths that are missing outside are missing inside, too.
    let whole = |path: &Path| path.canonicalize().ok().map(|whole| (path.to_owned(), whole));
    let write = [context.fs_root.as_path()].into_iter().chain(shared.write.iter().map(PathBuf::as_path));
    let write: Vec<_> = write.filter_map(whole).collect();
    let read = context.allowed_paths.iter().chain(&shared.read).chain(needs).map(PathBuf::as_path);
    let control = whole(control);
    // A session can read these paths in any case.
    let is_given = |real: &Path| {
        let is_whole = |path: &PathBuf| path.canonicalize().is_ok_and(|whole| whole == *path);
        root::is_of_system(real) || shared.read.iter().any(|path| real.starts_with(path) && is_whole(path))
    };
    for (path, real) in read.filter_map(whole).chain(write.clone()).chain(control.clone()) {
        let behind = write.iter().chain(&control).find(|(around, of_around)| {
            path != *around && path.starts_with(around) && !real.starts_with(of_around) && !is_given(&real)
        });
        let why = if real.parent().is_none() {
            "it is all of the host".to_owned()
        } else if ["/proc", "/sys"].iter().any(|dir| real.starts_with(dir))
            || real.starts_with("/dev") && !real.starts_with("/dev/shm/")
        {
            "it has a /proc, a /sys and a /dev of its own".to_owned()
        } else if path == context.fs_root && !path.is_absolute() {
            "it is no absolute path".to_owned()
        } else if path.components().any(|part| part == Component::ParentDir) {
            "it has .. in it".to_owned()
        } else if let Some((around, _)) = behind {
            format!(
                "it lies behind a link in {}, which code can write; if that leads where it should, add --confine-read {}",
                around.display(),
                real.display()
            )
        } else {
            continue;
        };
        return Err(format!("a confined session cannot have {}: {why}", path.display()));
    }
    let needed: Vec<_> = needs.iter().filter_map(|need| need.canonicalize().ok()).collect();
    if let Some((path, _)) = write.iter().find(|(_, real)| needed.contains(real)) {
        return Err(format!(
            "a confined session cannot write {}: its own programs or its interpreter's are there; choose another directory",
            path.display()
        ));
    }
    let Some((control, real)) = control else { return Ok(()) };
    match write.iter().find(|(_, around)| real.starts_with(around)) {
        Some((path, _)) => Err(format!(
            "a confined session cannot write {}: its control directory {} lies in it; choose another directory for one of them (TMPDIR)",
            path.display(),
            control.display()
        )),
        None => Ok(()),
    }
}

/// Confines this process, and all that it starts. `link` leads to the guard, which waits for a word.
///
/// # Errors
/// The host does not allow it.
pub(super) fn enter(
    level: ConfinementLevel,
    settings: &mut Settings,
    context: &Context,
    control: &ControlDir,
    needs: Vec<PathBuf>,
    (link, user): (&UnixStream, (Uid, Gid)),
) -> Result<Confinement, Failed> {
    let endpoint = settings.root_tools.as_ref().and_then(|tools| tools.endpoint().ok());
    let socket = endpoint.as_ref().and_then(|endpoint| endpoint.socket().map(Path::to_owned));
    let shared = &settings.shared;
    let read = needs.into_iter().chain(context.allowed_paths.clone()).chain(shared.read.clone());
    let write = [context.fs_root.clone(), control.path().to_owned()];
    let mut paths = root::Paths {
        read: read.collect(),
        write: write.into_iter().chain(shared.write.clone()).collect(),
        tmp_bytes: shared.tmp_bytes.unwrap_or(TMP_BYTES),
    };
    // SAFETY: prctl takes plain integers here.
    let no_new_privs = || Errno::result(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) });
    no_new_privs().map_err(failed("prctl"))?;
    let (landlock, relayed, tmp) = if level == ConfinementLevel::Full {
        map_user(user)?;
        raise_loopback()?;
        let relayed = endpoint.as_ref().map(listen_inside).transpose()?.flatten();
        paths.read.extend(socket);
        root::enter(&paths)?;
        drop_capabilities()?;
        (landlock::apply(&paths.write)?, relayed, "/tmp".into())
    } else {
        let tmp = control.tmp_dir();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&tmp).map_err(failed_io("mkdir"))?;
        let relayed = socket.map(listen_for).transpose()?;
        let port = match &relayed {
            Some((listener, _)) => Some(listener.local_addr().map_err(failed_io("getsockname"))?.port()),
            None => endpoint.as_ref().and_then(Endpoint::tcp).map(|(_, port)| port),
        };
        if let (Some(_), Some(port), Some(tools)) = (&relayed, port, &mut settings.root_tools) {
            tools.send_to_port(port);
            for (_, url) in settings.session_env.iter_mut().filter(|(name, _)| name == env::ROOT_TOOL_URL) {
                *url = (&tools.url).into();
            }
        }
        drop_capabilities()?;
        paths.read.extend(root::system());
        (Some(landlock::apply_alone(&paths.read, &paths.write, port)?), relayed, tmp)
    };
    let (_, hard) = getrlimit(Resource::RLIMIT_SIGPENDING).map_err(failed("getrlimit"))?;
    let most = MOST_SIGNALS.min(hard);
    setrlimit(Resource::RLIMIT_SIGPENDING, most, most).map_err(failed("setrlimit"))?;
    filter::apply(level).map_err(failed("seccomp"))?;
    move_home(settings, &paths.write, level, &tmp);
    match relayed {
        Some((listener, target)) => relay::hand_over(link, &listener, &target),
        None => (&*link).write_all(relay::ENTERED),
    }
    .map_err(failed_io("write to the guard"))?;
    Ok(Confinement { level, landlock })
}

/// Replaces a home directory, or one for temporary files, that is not there.
fn move_home(settings: &mut Settings, write: &[PathBuf], level: ConfinementLevel, tmp: &Path) {
    let is_there = |path: &OsString| write.iter().any(|there| Path::new(path).starts_with(there));
    let has_tmp = settings.session_env.iter().any(|(name, value)| name == "TMPDIR" && is_there(value));
    settings.session_env.retain(|(name, _)| name != "TMPDIR" || has_tmp);
    if !has_tmp && level != ConfinementLevel::Full {
        settings.session_env.push(("TMPDIR".into(), tmp.into()));
    }
    let homes = settings.session_env.iter_mut().filter(|(name, value)| name == "HOME" && !is_there(value));
    homes.for_each(|(_, home)| *home = tmp.into());
}

/// Maps the user's own ids to the same ids inside.
fn map_user((user, group): (Uid, Gid)) -> Result<(), Failed> {
    // In a user's own namespace, the ids are those of the namespace above.
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), text).map_err(failed_io("write of a map of ids"))?;
    }
    // A user has few inotify instances and watches for the whole host. A kernel without these limits has none to take away.
    for (name, most) in [("instances", MOST_WATCHERS), ("watches", MOST_WATCHES)] {
        _ = fs::write(format!("/proc/sys/user/max_inotify_{name}"), most);
    }
    Ok(())
}

/// Brings up the loopback device: the session has a network with itself alone.
fn raise_loopback() -> Result<(), Failed> {
    use std::os::fd::AsRawFd as _;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").map_err(failed_io("socket"))?;
    // SAFETY: all fields of the request may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is live and of the type that this call reads.
    let raised = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    Errno::result(raised).map(drop).map_err(failed("ioctl, to raise the loopback device"))
}

/// Listens at the port of the session's endpoint, if that is on this host's loopback device.
fn listen_inside(endpoint: &Endpoint) -> Result<Option<(TcpListener, Target)>, Failed> {
    let Some(("127.0.0.1" | "localhost", port)) = endpoint.tcp() else { return Ok(None) };
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(failed_io("bind for the endpoint"))?;
    Ok(Some((listener, Target::Port(port))))
}

/// Listens for an endpoint that is a Unix socket.
fn listen_for(socket: PathBuf) -> Result<(TcpListener, Target), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed_io("bind for the endpoint"))?;
    Ok((listener, Target::Socket(socket)))
}

/// Gives up all capabilities, for good.
fn drop_capabilities() -> Result<(), Failed> {
    /// The third version of the structures: two halves of each set.
    const VERSION: u32 = 0x2008_0522;
    let no_more = (0..).map_while(|capability: libc::c_ulong| {
        // SAFETY: prctl takes plain integers here. It fails past the last capability.
        (unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == 0).then_some(())
    });
    no_more.for_each(drop);
    let (header, sets) = ([VERSION, 0], [0u32; 6]);
    // SAFETY: both are live, and of the sizes that this version has.
    let dropped = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    Errno::result(dropped).map(drop).map_err(failed("capset"))
}
