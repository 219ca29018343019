//! The filter of system calls: what no session needs and a kernel has had holes in, or what reaches out of the session.
//!
//! The filter lists what is refused: a list of what is allowed breaks with each new C library. Programs get the errors by which
//! they fall back to something else.

use nix::errno::Errno;
use nix::libc::{self, c_long, sock_filter, sock_fprog};

use super::NAMESPACES;
use crate::protocol::ConfinementLevel;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// Offsets of the parts of `seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// The low half of an argument. Of the arguments that are tested here, the kernel looks at no more.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// System calls that do not exist for the session: libraries fall back to older ones.
const ABSENT: &[c_long] = &[
    // The flags of these calls lie in memory, where a filter cannot look.
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
];

/// Calls that do not exist where the session shares the host's System V and POSIX IPC.
const ABSENT_IN_THE_HOSTS: &[c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// `open_tree_attr`, of Linux 6.15: newer system calls have one number everywhere.
const OPEN_TREE_ATTR: c_long = 467;

/// `fchmodat2`, of Linux 6.6.
const FCHMODAT2: c_long = 452;

/// Bits of a mode that lend the user's rights to whoever runs the file.
const LENDING: u32 = libc::S_ISUID | libc::S_ISGID;

/// Calls that set a mode, with the mode's place among their arguments. For a new directory, the kernel drops these bits itself.
const OF_MODES: &[(c_long, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
];

/// Calls that set a mode if their flags ask for a new file, with the flags' place. The mode comes after the flags.
const OF_NEW_FILES: &[(c_long, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];

/// Asks for a new file: `O_CREAT`, or `O_TMPFILE` without the flag that it shares with others.
const NEW_FILE: u32 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// System calls that are refused.
const REFUSED: &[c_long] = &[
    // Calls that reach other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // A user has few fanotify groups, for the whole host.
    libc::SYS_fanotify_init,
    // A user's keys, which no namespace holds.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
];

/// A further flag of `unshare`. In `clone`, it is a part of the exit signal.
const CLONE_NEWTIME: i32 = 0x80;

const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Requests that put characters into a terminal's input, as if someone had typed them.
const IOCTLS: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Personalities that ordinary programs ask for or set: the query, the normal one, and that of `setarch -R`.
const PERSONALITIES: [u32; 3] = [0xffff_ffff, 0, libc::ADDR_NO_RANDOMIZE as u32];

/// Puts this process, and all that it starts, under the filter, which does more where the session shares the host's namespaces.
/// `no_new_privs` must be set.
///
/// # Errors
/// The kernel has no filters.
pub(super) fn apply(level: ConfinementLevel) -> Result<(), Errno> {
    let mut program = program(level == ConfinementLevel::Full);
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is live and has this length.
    let set =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    Errno::result(set).map(drop)
}

fn program(has_namespaces: bool) -> Vec<sock_filter> {
    let errno = |errno: i32| ret(libc::SECCOMP_RET_ERRNO | errno as u32);
    let (refuse, absent) = (errno(libc::EPERM), errno(libc::ENOSYS));
    let mut code = vec![load(ARCHITECTURE)];
    code.extend(unless(&[ARCH], ret(libc::SECCOMP_RET_KILL_PROCESS)));
    code.push(load(NUMBER));
    // Numbers from this bit on are system calls of x32, which has the same architecture.
    code.extend([jump(libc::BPF_JGE, 0x4000_0000, 0, 1), absent]);
    let absent_too = if has_namespaces { &[] } else { ABSENT_IN_THE_HOSTS };
    for number in ABSENT.iter().chain(absent_too) {
        code.extend([jump(libc::BPF_JEQ, *number as u32, 0, 1), absent]);
    }
    for number in REFUSED {
        code.extend([jump(libc::BPF_JEQ, *number as u32, 0, 1), refuse]);
    }
    let any_of = |flags: i32| vec![jump(libc::BPF_JSET, flags as u32, 0, 1), refuse];
    let of_family = |families: &[i32]| {
        let families: Vec<_> = families.iter().map(|family| *family as u32).collect();
        unless(&families, errno(libc::EAFNOSUPPORT))
    };
    let mut tests = vec![
        (libc::SYS_clone, 0, any_of(NAMESPACES)),
        (libc::SYS_unshare, 0, any_of(NAMESPACES | CLONE_NEWTIME)),
        (libc::SYS_socketpair, 0, unless(&[libc::AF_UNIX as u32], errno(libc::EAFNOSUPPORT))),
        // Setting the limits of other processes, the server included.
        (libc::SYS_prlimit64, 0, unless(&[0], refuse)),
        (libc::SYS_personality, 0, unless(&PERSONALITIES, refuse)),
        // A lease would make others who write to the file wait for the session.
        (libc::SYS_fcntl, 1, vec![jump(libc::BPF_JEQ, libc::F_SETLEASE as u32, 0, 1), refuse]),
    ];
    let lends = || vec![jump(libc::BPF_JSET, LENDING, 0, 1), refuse];
    tests.extend(OF_MODES.iter().map(|(number, mode)| (*number, *mode, lends())));
    for (number, flags) in OF_NEW_FILES {
        let asks = vec![jump(libc::BPF_JSET, NEW_FILE, 0, 3), load(argument(flags + 1))];
        tests.push((*number, *flags, [asks, lends()].concat()));
    }
    let typed = IOCTLS.iter().flat_map(|request| [jump(libc::BPF_JEQ, *request as u32, 0, 1), refuse]);
    tests.push((libc::SYS_ioctl, 1, typed.collect()));
    if has_namespaces {
        // Of the kernel's netlink services, programs only ask for the network's devices and routes.
        let of_routes = [
            vec![jump(libc::BPF_JEQ, libc::AF_NETLINK as u32, 0, 3), load(argument(2))],
            unless(&[libc::NETLINK_ROUTE as u32], errno(libc::EPROTONOSUPPORT)),
        ];
        tests.push((libc::SYS_socket, 0, [of_family(&FAMILIES), of_routes.concat()].concat()));
    } else {
        let kind = !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u32;
        // Landlock has rules only for TCP, and none for ways to connect without `connect`.
        let tcp = [
            of_family(&[libc::AF_INET, libc::AF_INET6]),
            vec![load(argument(1)), and(kind)],
            unless(&[libc::SOCK_STREAM as u32], errno(libc::EACCES)),
            vec![load(argument(2))],
            unless(&[0, libc::IPPROTO_TCP as u32], errno(libc::EPROTONOSUPPORT)),
        ];
        tests.push((libc::SYS_socket, 0, tcp.concat()));
        for (number, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
            let opens = jump(libc::BPF_JSET, libc::MSG_FASTOPEN as u32, 0, 1);
            tests.push((number, flags, vec![opens, errno(libc::EOPNOTSUPP)]));
        }
        // An unbound socket that listens gets a port. One of a pair of datagram sockets could be connected to any path.
        tests.push((libc::SYS_listen, 0, vec![errno(libc::EACCES)]));
        let pair = [
            vec![and(kind)],
            unless(&[libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(|kind| kind as u32), errno(libc::EACCES)),
        ];
        tests.push((libc::SYS_socketpair, 1, pair.concat()));
    }
    for (number, index, body) in tests {
        let length = body.len() + 2;
        code.push(jump(libc::BPF_JEQ, number as u32, 0, length as u8));
        code.push(load(argument(index)));
        code.extend(body);
        code.push(load(NUMBER));
    }
    code.push(ret(libc::SECCOMP_RET_ALLOW));
    code
}

/// Ends with `otherwise` unless the accumulator is one of these.
fn unless(values: &[u32], otherwise: sock_filter) -> Vec<sock_filter> {
    let left = (0..values.len() as u8).rev();
    let tests = values.iter().zip(left).map(|(value, left)| jump(libc::BPF_JEQ, *value, left + 1, 0));
    tests.chain([otherwise]).collect()
}

fn load(offset: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

fn and(mask: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16, jt: 0, jf: 0, k: mask }
}

fn jump(test: u32, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | test | libc::BPF_K) as u16, jt: if_true, jf: if_false, k: value }
}

fn ret(action: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: action }
}
