//! Attempts of code to get out. Each runs in a confined session, where the host must see nothing of it, and in one that is not,
//! where it must succeed: so none passes for the wrong reason.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command};

use nix::libc;
use rlm_tests::Worker;
use tempfile::TempDir;

use super::{Who, can_have, confined};

/// A secret that nobody but the host knows.
const TOKEN: &str = "c0ffee-token";

/// A sign that an attempt reached something, as the host sees it.
#[derive(Clone, Copy)]
enum Sign {
    /// The output of the attempt has this text.
    Prints(&'static str),
    /// The host has seen something.
    Seen(fn(&Victim, &str) -> bool),
}

/// Things outside of a session, of the same user.
struct Victim {
    dir: TempDir,
    mark: String,
    /// A process that gives back each line.
    echo: Child,
    lines: UnixStream,
    tcp: TcpListener,
    udp: UdpSocket,
    path: UnixListener,
    named: UnixListener,
    datagram: UnixDatagram,
    /// The number of a segment of shared memory.
    memory: i32,
    /// The socket of a service that is installed below `/opt`, where the tests may.
    service: Option<UnixListener>,
}

impl Victim {
    fn new(who: Who) -> Self {
        let dir = tempfile::Builder::new().prefix("rlm-victim-").tempdir().unwrap();
        let mark = dir.path().file_name().unwrap().to_string_lossy().into_owned();
        let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        file("secret", &format!("{TOKEN}{}", " ".repeat(4711 - TOKEN.len())));
        file("victim", "as it was");
        file("movable", "");
        fs::write(shared(&mark), TOKEN).unwrap();
        let (lines, its_end) = UnixStream::pair().unwrap();
        let mut echo = Command::new("sed");
        echo.args(["-u", "s/86399/86399/"]).env("KEY", TOKEN).current_dir(dir.path());
        echo.stdin(OwnedFd::from(its_end.try_clone().unwrap())).stdout(OwnedFd::from(its_end));
        let path = UnixListener::bind(dir.path().join("socket")).unwrap();
        who.own(&[dir.path().to_owned(), shared(&mark)]);
        for name in ["secret", "victim", "movable", "socket"] {
            who.own(&[dir.path().join(name)]);
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let name = SocketAddr::from_abstract_name(&mark).unwrap();
        let new = Self {
            echo: who.become_it(&mut echo).spawn().unwrap(),
            lines,
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            path,
            named: UnixListener::bind_addr(&name).unwrap(),
            datagram: UnixDatagram::bind(dir.path().join("datagram")).unwrap(),
            memory: shared_memory(),
            service: fs::create_dir_all(service(&mark))
                .and_then(|()| UnixListener::bind(service(&mark).join("socket")))
                .ok(),
            mark,
            dir,
        };
        new.tcp.set_nonblocking(true).unwrap();
        new.udp.set_nonblocking(true).unwrap();
        new.path.set_nonblocking(true).unwrap();
        new.named.set_nonblocking(true).unwrap();
        new.datagram.set_nonblocking(true).unwrap();
        fs::set_permissions(new.dir.path().join("datagram"), fs::Permissions::from_mode(0o666)).unwrap();
        // Before this, the process may still be starting.
        assert!(new.lives());
        new
    }

    /// True if the victim's process gives back a line.
    fn lives(&self) -> bool {
        (&self.lines).write_all(b"?\n").and_then(|()| (&self.lines).read_exact(&mut [0; 2])).is_ok()
    }

    /// The code with the places of this victim.
    fn fill(&self, code: &str) -> String {
        code.replace("{dir}", &self.dir.path().to_string_lossy())
            .replace("{mark}", &self.mark)
            .replace("{memory}", &self.memory.to_string())
            .replace("{pid}", &self.echo.id().to_string())
            .replace("{tcp}", &self.tcp.local_addr().unwrap().port().to_string())
            .replace("{udp}", &self.udp.local_addr().unwrap().port().to_string())
    }

    fn victim(&self) -> PathBuf {
        self.dir.path().join("victim")
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.echo.id())).unwrap_or_default()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _killed_already = self.echo.kill();
        self.echo.wait().unwrap();
        let _gone = fs::remove_file(shared(&self.mark));
        // SAFETY: the call removes the segment that this victim has made.
        unsafe { libc::shmctl(self.memory, libc::IPC_RMID, std::ptr::null_mut()) };
        let _none = fs::remove_file(format!("/tmp/{}-made", self.mark));
        let _none = fs::remove_file(format!("/dev/shm/{}-made", self.mark));
        if self.service.is_some() {
            fs::remove_dir_all(service(&self.mark)).unwrap();
        }
    }
}

fn service(mark: &str) -> PathBuf {
    format!("/opt/{mark}").into()
}

/// Shared memory that everyone may read, with the token.
fn shared_memory() -> i32 {
    // SAFETY: the segment is as large as what is copied to it.
    unsafe {
        let memory = libc::shmget(libc::IPC_PRIVATE, TOKEN.len(), 0o666);
        let at = libc::shmat(memory, std::ptr::null(), 0);
        std::ptr::copy_nonoverlapping(TOKEN.as_ptr(), at.cast(), TOKEN.len());
        libc::shmdt(at);
        memory
    }
}

fn shared(mark: &str) -> PathBuf {
    format!("/dev/shm/{mark}").into()
}

/// True if somebody listens at the port that ends the output.
fn listens(_: &Victim, output: &str) -> bool {
    let port = output.split_whitespace().last().map(|port| port.parse::<u16>().unwrap());
    port.is_some_and(|port| TcpStream::connect(("127.0.0.1", port)).is_ok())
}

/// The names that each attempt may use.
const BEGIN: &str = "\
import ctypes, fcntl, glob, os, pty, resource, signal, socket, stat, struct, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    'A system call: its result, or minus its error.'
    result = libc.syscall(number, *arguments)
    return -ctypes.get_errno() if result < 0 else result
";

/// An attempt to get out of a session.
struct Attempt {
    name: &'static str,
    code: &'static str,
    /// The thing that it reaches.
    sign: Sign,
    /// Without confinement, the attempt succeeds for root alone.
    takes_root: bool,
}

const fn prints(name: &'static str, code: &'static str, words: &'static str) -> Attempt {
    Attempt { name, code, sign: Sign::Prints(words), takes_root: false }
}

const fn root_prints(name: &'static str, code: &'static str, words: &'static str) -> Attempt {
    Attempt { takes_root: true, ..prints(name, code, words) }
}

const fn seen(name: &'static str, code: &'static str, has_seen: fn(&Victim, &str) -> bool) -> Attempt {
    Attempt { name, code, sign: Sign::Seen(has_seen), takes_root: false }
}

const ATTEMPTS: &[Attempt] = &[
    prints("read", "print(open('{dir}/secret').read())", TOKEN),
    prints("list", "print(os.listdir('{dir}'))", "movable"),
    prints("stat", "print(os.stat('{dir}/secret').st_size)", "4711"),
    seen("append", "open('{dir}/victim', 'a').write('x')", |victim, _| {
        fs::read(victim.victim()).unwrap() != b"as it was"
    }),
    seen("truncate", "os.truncate('{dir}/victim', 0)", |victim, _| {
        fs::metadata(victim.victim()).unwrap().len() == 0
    }),
    seen("chmod", "os.chmod('{dir}/victim', 0o777)", |victim, _| {
        fs::metadata(victim.victim()).unwrap().permissions().mode() & 0o777 == 0o777
    }),
    seen("utime", "os.utime('{dir}/victim', (1, 1))", |victim, _| {
        fs::metadata(victim.victim()).unwrap().modified().unwrap()
            < std::time::UNIX_EPOCH + std::time::Duration::from_secs(9)
    }),
    seen("create", "open('{dir}/new', 'w')", |victim, _| victim.dir.path().join("new").exists()),
    seen("unlink", "os.unlink('{dir}/movable')", |victim, _| !victim.dir.path().join("movable").exists()),
    seen("rename into the session", "os.rename('{dir}/movable', 'moved')", |victim, _| {
        !victim.dir.path().join("movable").exists()
    }),
    prints("symlink", "os.symlink('{dir}/secret', 'link'); print(open('link').read())", TOKEN),
    prints("hard link", "os.link('{dir}/secret', 'hard'); print(open('hard').read())", TOKEN),
    prints("way up", "print(open('/proc/self/root/../..{dir}/secret').read())", TOKEN),
    prints(
        "program in memory",
        "\
fd = os.memfd_create('x'); os.write(fd, open('/bin/cat', 'rb').read())
print(subprocess.run([f'/proc/self/fd/{fd}', '{dir}/secret'], pass_fds=[fd], capture_output=True).stdout)",
        TOKEN,
    ),
    prints(
        "inotify",
        "print('watch', libc.inotify_add_watch(libc.inotify_init(), b'{dir}', 0x100) > 0)",
        "watch True",
    ),
    root_prints("shadow", "print(open('/etc/shadow').read())", "root:"),
    seen("a file in /tmp", "open('/tmp/{mark}-made', 'w')", |victim, _| {
        PathBuf::from(format!("/tmp/{}-made", victim.mark)).exists()
    }),
    seen("a file in /dev/shm", "open('/dev/shm/{mark}-made', 'w')", |victim, _| {
        PathBuf::from(format!("/dev/shm/{}-made", victim.mark)).exists()
    }),
    prints("read of /dev/shm", "print(open('/dev/shm/{mark}').read())", TOKEN),
    prints("root of a process", "print(open('/proc/{pid}/root{dir}/secret').read())", TOKEN),
    prints("cwd of a process", "print(open('/proc/{pid}/cwd/secret').read())", TOKEN),
    prints("environ of a process", "print(open('/proc/{pid}/environ').read())", TOKEN),
    prints(
        "environ of all",
        "\
for path in glob.glob('/proc/[0-9]*/environ'):
    try: print(open(path).read())
    except OSError: pass",
        TOKEN,
    ),
    prints(
        "memory of a process",
        "\
start, end = map(int, open('/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[47:49])
memory = open('/proc/{pid}/mem', 'rb'); memory.seek(start); print(memory.read(end - start))",
        TOKEN,
    ),
    prints("command line", "print(open('/proc/{pid}/cmdline').read())", "86399"),
    seen("kill", "os.kill({pid}, 9)", |victim, _| !victim.lives()),
    seen("pidfd", "signal.pidfd_send_signal(os.pidfd_open({pid}), 9)", |victim, _| !victim.lives()),
    seen("priority", "os.setpriority(os.PRIO_PROCESS, {pid}, 19)", |victim, _| {
        victim.proc("stat").rsplit(')').next().unwrap().split_whitespace().nth(16) == Some("19")
    }),
    seen("affinity", "os.sched_setaffinity({pid}, [0])", |victim, _| {
        victim.proc("status").contains("Cpus_allowed_list:\t0\n")
    }),
    seen("prlimit", "resource.prlimit({pid}, resource.RLIMIT_NOFILE, (77, 77))", |victim, _| {
        victim.proc("limits").contains(" 77 ")
    }),
    prints(
        "ptrace",
        "print('attached', libc.ptrace(16, {pid}, 0, 0)); libc.ptrace(17, {pid}, 0, 0)",
        "attached 0",
    ),
    seen("TCP", "socket.create_connection(('127.0.0.1', {tcp}), 5)", |victim, _| victim.tcp.accept().is_ok()),
    seen(
        "TCP by Fast Open",
        "socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', {tcp}))",
        |victim, _| victim.tcp.accept().is_ok(),
    ),
    seen(
        "MPTCP",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(('127.0.0.1', {tcp}))",
        |victim, _| victim.tcp.accept().is_ok(),
    ),
    seen(
        "UDP",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))",
        |victim, _| victim.udp.recv(&mut [0]).is_ok(),
    ),
    seen("Unix socket by path", "socket.socket(socket.AF_UNIX).connect('{dir}/socket')", |victim, _| {
        victim.path.accept().is_ok()
    }),
    seen("abstract Unix socket", "socket.socket(socket.AF_UNIX).connect('\\0{mark}')", |victim, _| {
        victim.named.accept().is_ok()
    }),
    seen(
        "listen",
        "kept = socket.create_server(('127.0.0.1', 0)); print('port', kept.getsockname()[1])",
        listens,
    ),
    seen(
        "listen without a name",
        "kept = socket.socket(); kept.listen(); print('port', kept.getsockname()[1])",
        listens,
    ),
    seen(
        "datagram by a pair",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', '{dir}/datagram')",
        |victim, _| victim.datagram.recv(&mut [0]).is_ok(),
    ),
    prints(
        "shared memory by its number",
        "libc.shmat.restype = ctypes.c_void_p; print(ctypes.string_at(libc.shmat({memory}, None, 0o10000), 12))",
        TOKEN,
    ),
    prints(
        "limits of the server",
        "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (77, 77)); print('limited')",
        "limited",
    ),
    root_prints("raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('made')", "made"),
    root_prints(
        "packet socket",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0); print('made')",
        "made",
    ),
    prints("user namespace by unshare", "print(call(272, 0x10000000))", "0"),
    prints(
        "user namespace by clone",
        "\
pid = call(56, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
print('cloned', pid > 0)",
        "cloned True",
    ),
    prints(
        "user namespace by clone3",
        "\
flags = struct.pack('8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0)
pid = call(435, flags, 64)
if pid == 0: os._exit(0)
print('cloned', pid > 0)",
        "cloned True",
    ),
    root_prints(
        "mount",
        "print(subprocess.run(['unshare', '-m', 'sh', '-c', 'mount -t tmpfs none /mnt && echo mounted'], capture_output=True, text=True).stdout)",
        "mounted",
    ),
    root_prints(
        "chroot",
        "\
reader, writer = os.pipe()
if os.fork() == 0:
    try: os.chroot('/usr'); os.write(writer, b'moved')
    finally: os._exit(0)
os.close(writer); os.wait(); print(os.read(reader, 9))",
        "moved",
    ),
    root_prints(
        "setns",
        "print(subprocess.run(['nsenter', '-t', '{pid}', '-m', 'cat', '{dir}/secret'], capture_output=True, text=True).stdout)",
        TOKEN,
    ),
    root_prints("mknod", "os.mknod('disk', stat.S_IFBLK | 0o600, os.makedev(254, 0)); print('made')", "made"),
    root_prints("core_pattern", "open('/proc/sys/kernel/core_pattern', 'r+'); print('open')", "open"),
    root_prints("sysrq", "open('/proc/sysrq-trigger', 'w'); print('open')", "open"),
    root_prints("kernel log", "print('log', libc.klogctl(10, 0, 0) > 0)", "log True"),
    prints("key", "print('key', call(248, b'user', b'{mark}', b'x', 1, -4) > 0)", "key True"),
    prints("io_uring", "print('ring', call(425, 1, bytes(120)) >= 0)", "ring True"),
    prints("userfaultfd", "print('fault', call(323, 1) >= 0)", "fault True"),
    root_prints(
        "bpf",
        "print('map', call(321, 0, struct.pack('5I', 2, 4, 4, 1, 0) + bytes(80), 100) >= 0)",
        "map True",
    ),
    prints("personality", "print('old', libc.personality(0x400000) >= 0)", "old True"),
    prints(
        "netlink of another kind",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15); print('made')",
        "made",
    ),
    prints("AF_ALG", "socket.socket(38, socket.SOCK_SEQPACKET); print('made')", "made"),
    root_prints(
        "typed input",
        "\
master, slave = pty.openpty()
fcntl.ioctl(slave, 0x5412, b'x'); print('typed')",
        "typed",
    ),
    prints("open_tree_attr", "print('tree', call(467, -100, b'/', 0, 0, 0) >= 0)", "tree True"),
    root_prints(
        "socket of a service",
        "s = socket.socket(socket.AF_UNIX); s.connect('/opt/{mark}/socket'); print('connected')",
        "connected",
    ),
    prints(
        "set-user-id",
        "open('own', 'w'); os.chmod('own', 0o4755); print('lent', os.stat('own').st_mode & 0o6000 > 0)",
        "lent True",
    ),
    prints(
        "set-user-id by a new file",
        "fd = os.open('new', os.O_CREAT | os.O_WRONLY, 0o4755); print('lent', os.fstat(fd).st_mode & 0o6000 > 0)",
        "lent True",
    ),
    prints(
        "set-group-id by a file without a name",
        "fd = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o2755); print('lent', os.fstat(fd).st_mode & 0o6000 > 0)",
        "lent True",
    ),
    prints(
        "set-user-id by a node",
        "os.mknod('node', 0o104755); print('lent', os.stat('node').st_mode & 0o6000 > 0)",
        "lent True",
    ),
    prints(
        "lease",
        "fd = os.open('leased', os.O_CREAT | os.O_RDONLY); fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK); print('leased')",
        "leased",
    ),
    root_prints("fanotify", "print('group', call(300, 0x200, 0) >= 0)", "group True"),
    root_prints(
        "mode of a device",
        "os.chmod('/dev/full', stat.S_IMODE(os.stat('/dev/full').st_mode)); print('set')",
        "set",
    ),
    prints("x32 numbers", "print('other', call(0x40000000 + 39) != -38)", "other True"),
];

/// Attempts that get through where there are no namespaces: Landlock has no rules for them.
const WITHOUT_NAMESPACES: [&str; 5] = ["stat", "chmod", "utime", "inotify", "command line"];

/// Attempts that also get through, of root and of an ordinary user: root's processes have capabilities that the session lacks.
const OF_ROOT: [&str; 1] = ["mode of a device"];
const OF_A_USER: [&str; 2] = ["priority", "affinity"];

/// Attempts that a kernel may refuse anyway: it is built or set up without that part.
const OPTIONAL: [&str; 9] = [
    "AF_ALG",
    "MPTCP",
    "bpf",
    "io_uring",
    "open_tree_attr",
    "sysrq",
    "typed input",
    "userfaultfd",
    "x32 numbers",
];

fn reaches(worker: &mut Worker, victim: &Victim, attempt: &Attempt) -> bool {
    let response = worker.call(&format!("{BEGIN}{}", victim.fill(attempt.code)));
    let output = response.stdout;
    match attempt.sign {
        Sign::Prints(words) => {
            output.lines().any(|line| line.trim() == words) || words.len() > 4 && output.contains(words)
        }
        Sign::Seen(has_seen) => has_seen(victim, &output),
    }
}

// Promise: `--confine full` leaves a session its own directory, the system's programs and its endpoint, without root or containers.
#[test]
fn no_attempt_gets_out_and_each_does_without_confinement() {
    for who in Who::all() {
        let further: &[&str] = if who == Who::Root { &OF_ROOT } else { &OF_A_USER };
        let levels = [("full", Vec::new()), ("landlock", [&WITHOUT_NAMESPACES, further].concat())];
        for (level, expected) in levels.into_iter().filter(|(level, _)| can_have(level)) {
            let (mut inside, mut reached) = (confined(who, level), Vec::new());
            for attempt in ATTEMPTS {
                if reaches(&mut inside, &Victim::new(who), attempt) {
                    reached.push(attempt.name);
                }
            }
            inside.end();
            assert_eq!(reached, expected, "{who:?}, {level}: they got out");
        }
        let mut refused = Vec::new();
        for attempt in ATTEMPTS {
            if attempt.takes_root && who != Who::Root {
                continue;
            }
            let victim = Victim::new(who);
            let mut outside = confined(who, "off");
            if !reaches(&mut outside, &victim, attempt) && !OPTIONAL.contains(&attempt.name) {
                refused.push(attempt.name);
            }
            outside.end();
        }
        assert_eq!(refused, [""; 0], "{who:?}: they prove nothing, for they fail without confinement, too");
    }
}
