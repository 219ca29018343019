//! Sessions that are forked from a process that is ready for them, instead of being started.
//!
//! A *fork server* is an interpreter that has loaded everything and runs no code of a session. The program that a host starts stays
//! what it is for the host: the guard, with its process id, signals, ready flag and status. But it does not start a server. It asks the
//! fork server, which forks one, and that one forks its interpreter:
//!
//! ```text
//! host ── guard ···· socket ····┐
//! fork server ── server ── interpreter
//! ```
//!
//! * The guard sends a request, with its standard streams and its working directory. It gets a refusal with the reason, or the
//!   server's process id; then it says `go`, and forwards signals. Whatever fails before that, the guard starts a server itself.
//! * The server ends when the guard has died.
//! * The fork server is a subreaper above the servers. When one has died, it ends what is left of that session, and then sends the guard
//!   the status. It lasts until its last session has ended. If it is killed, sessions go on.
//!
//! The socket is an abstract one, which has a name and no file, and ends with the process. Both sides check that the other is of their
//! user.
//!
//! A *branch* of a session is such a process too: a copy of its interpreter is the fork server, which takes one guard, and has the state of
//! the session besides (see the engine's `branch`). It is below the server of that session, which does not end it.
//!
//! A forked process has what its parent has, so the conditions of the guard (`standing`) must be those of the fork server.

mod client;
mod server;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, getsockopt, recvmsg, sendmsg, sockopt,
};
use nix::unistd::Pid;

use super::settings::Environment;

pub(super) use self::client::{Forked, ask};
pub use self::server::{Accepted, End, ForkServer, Obstacle, close_descriptors};
pub(in crate::worker) use self::server::{Entered, tell_status};

/// Largest request in bytes: what a socket takes in one piece.
const MAX_BYTES: usize = 200 << 10;

/// The word by which a guard has its server begin.
const GO: &[u8] = b"go";

/// Number of descriptors in a request without a ready flag: the working directory, the standard streams, and the memory of the
/// [`ForwardFlag`](super::ForwardFlag).
const DESCRIPTORS: usize = 5;

/// The separator of a request's parts, which no variable and no path contains.
const END: u8 = 0;

/// The session that a guard wants.
pub(super) struct Request<'a> {
    pub(super) control_dir: &'a Path,
    /// The variables of the worker.
    pub(super) environment: &'a Environment,
}

impl Request<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut add = |parts: &[&[u8]]| {
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            bytes.push(END);
        };
        add(&[env!("CARGO_PKG_VERSION").as_bytes()]);
        add(&[&standing()]);
        add(&[self.control_dir.as_os_str().as_bytes()]);
        for (name, value) in self.environment.variables() {
            add(&[name.as_bytes(), b"=", value.as_bytes()]);
        }
        bytes
    }
}

/// A request as the fork server reads it.
struct Wanted {
    control_dir: PathBuf,
    environment: Environment,
}

impl Wanted {
    /// The request, or the reason why a process like this one cannot serve it. Code in a session may have changed some of its conditions,
    /// which are those of a branch then.
    fn decode(bytes: &[u8], is_branch: bool) -> Result<Self, String> {
        const OF_BRANCH: [&str; 6] =
            ["Umask", "Max ", "Cpus_allowed", "Mems_allowed", "scheduling", "oom_score_adj"];
        let mut parts = bytes.split(|byte| *byte == END);
        let mut next = || parts.next().unwrap_or_default();
        let version = next();
        if version != env!("CARGO_PKG_VERSION").as_bytes() {
            return Err(format!("it is of another version, {}", env!("CARGO_PKG_VERSION")));
        }
        let compared = |standing: &[u8]| {
            let standing = String::from_utf8_lossy(standing);
            let is_compared =
                |line: &&str| !is_branch || !OF_BRANCH.iter().any(|begin| line.starts_with(begin));
            standing.lines().filter(is_compared).map(str::to_owned).collect::<Vec<_>>()
        };
        if let Some(differs) = first_difference(&compared(next()), &compared(&standing())) {
            return Err(format!("it runs under other conditions ({differs})"));
        }
        let control_dir = PathBuf::from(OsString::from_vec(next().to_vec()));
        let variable = |part: &[u8]| {
            // A name may begin with the sign.
            let at = part.iter().skip(1).position(|byte| *byte == b'=')? + 1;
            let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            Some((text(&part[..at]), text(&part[at + 1..])))
        };
        Ok(Self { control_dir, environment: parts.filter_map(variable).collect() })
    }
}

/// The conditions that a process passes on to those that it forks, one line each: user, limits, cgroup, namespaces, and the like.
fn standing() -> Vec<u8> {
    const STATUS: [&str; 14] = [
        "Umask",
        "Uid",
        "Gid",
        "Groups",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
        "Cpus_allowed",
        "Mems_allowed",
        "NSpid",
    ];
    const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "time", "user", "uts"];
    // The kernel makes such a file anew for each `read`, so it is read at once.
    let read = |file: &str| {
        let mut text = vec![0; 8192];
        let count = File::open(format!("/proc/self/{file}")).and_then(|mut file| file.read(&mut text));
        text.truncate(count.unwrap_or(0));
        String::from_utf8_lossy(&text).into_owned()
    };
    let mut lines = Vec::new();
    for line in read("status").lines() {
        // The number of namespaces, and not the process ids in them.
        let line = line
            .strip_prefix("NSpid:")
            .map_or(line.to_owned(), |pids| format!("NSpid:{}", pids.split_whitespace().count()));
        if line.split_once(':').is_some_and(|(name, _)| STATUS.contains(&name)) {
            lines.push(line);
        }
    }
    lines.extend(read("limits").lines().skip(1).map(str::to_owned));
    lines.extend(read("cgroup").lines().map(|line| format!("cgroup {line}")));
    for name in NAMESPACES {
        let link = fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
        lines.push(format!("namespace {}", link.display()));
    }
    lines.push(format!("root {}", fs::read_link("/proc/self/root").unwrap_or_default().display()));
    // SAFETY: plain integers. The policy and the nice value of this process.
    let (policy, nice) = unsafe { (nix::libc::sched_getscheduler(0), nix::libc::getpriority(0, 0)) };
    lines.push(format!("scheduling {policy} {nice}"));
    lines.push(format!("oom_score_adj {}", read("oom_score_adj").trim()));
    lines.join("\n").into_bytes()
}

/// The first line that two texts do not share, of the first one.
fn first_difference(one: &[String], other: &[String]) -> Option<String> {
    let differs = (0..one.len().max(other.len())).find(|at| one.get(*at) != other.get(*at))?;
    let line = one.get(differs).or_else(|| other.get(differs))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Process id of the other side, if it is of this user.
fn peer(link: &OwnedFd) -> Result<Pid, Errno> {
    let peer = getsockopt(link, sockopt::PeerCredentials)?;
    if peer.uid() == nix::unistd::geteuid().as_raw() {
        Ok(Pid::from_raw(peer.pid()))
    } else {
        Err(Errno::EPERM)
    }
}

/// Sends a message, and descriptors with it.
fn send(link: &impl AsRawFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let descriptors: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control: &[_] = if descriptors.is_empty() { &[] } else { &rights };
    let parts = [std::io::IoSlice::new(message)];
    sendmsg::<()>(link.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None).map(drop)
}

/// Receives a message of at most the buffer's size, and its descriptors. The size is 0 if the other side is gone.
fn receive(link: &impl AsRawFd, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = cmsg_space!([i32; DESCRIPTORS + 1]);
    let mut into = [std::io::IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(link.as_raw_fd(), &mut into, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let is_cut = message.flags.contains(MsgFlags::MSG_TRUNC);
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just made these descriptors, and nothing else owns them.
            descriptors.extend(received.iter().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }));
        }
    }
    if is_cut { Err(Errno::EMSGSIZE) } else { Ok((message.bytes, descriptors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        let variables = [("A", "1=2\n"), ("B", "")].map(|(name, value)| (name.into(), value.into()));
        let environment: Environment = variables.into_iter().collect();
        let bytes = Request { control_dir: Path::new("/tmp/a b"), environment: &environment }.encode();
        let wanted = Wanted::decode(&bytes, false).unwrap();
        assert_eq!(wanted.control_dir, Path::new("/tmp/a b"));
        assert_eq!(format!("{:?}", wanted.environment), format!("{environment:?}"));
    }

    #[test]
    fn a_process_under_other_conditions_is_refused_with_the_first_of_them() {
        let environment = Environment::default();
        let bytes = Request { control_dir: Path::new("/tmp"), environment: &environment }.encode();
        let other = String::from_utf8(bytes).unwrap().replacen("oom_score_adj ", "oom_score_adj 9", 1);
        let refusal = Wanted::decode(other.as_bytes(), false).err().unwrap();
        assert!(refusal.starts_with("it runs under other conditions (oom_score_adj 9"), "{refusal}");
        assert!(Wanted::decode(other.as_bytes(), true).is_ok(), "code in a session may change its score");
    }
}
