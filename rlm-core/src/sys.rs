//! System calls that neither the standard library nor `nix` has, and their arguments.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::PollTimeout;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, getppid};

/// A descriptor that polls readable once the process is dead.
///
/// # Errors
/// `ESRCH` if the process does not exist.
pub fn pidfd(pid: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes plain integers and returns a new descriptor or an error.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    // SAFETY: the kernel has just made this descriptor (close-on-exec), and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Signals a process through its descriptor, which cannot lead to another process with its id. A dead one is left alone.
pub fn signal_process(process: &impl AsRawFd, signal: Signal) {
    let (fd, details) = (process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    // SAFETY: plain integers and a null pointer, which the call allows. It fails if the process is dead, and then there is nothing
    // to signal.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal as libc::c_int, details, 0) };
}

/// The number of a system error; 0 for any other error.
#[must_use]
pub fn errno_of(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

/// An empty file in memory. The call is younger than the oldest C library that the programs run with.
///
/// # Errors
/// The process is out of descriptors or memory.
pub fn memory_file(name: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: the name is a string, and the call returns a new descriptor or an error.
    let fd =
        Errno::result(unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the kernel has just made this descriptor (close-on-exec), and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Asks for `signal` when the parent dies, and checks that `parent` has not died already. Async-signal-safe.
///
/// # Errors
/// `ESRCH` if the parent is already dead.
pub fn tie_to_parent(parent: Pid, signal: Signal) -> Result<(), Errno> {
    prctl::set_pdeathsig(signal)?;
    if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH) }
}

/// Number of unread bytes in a pipe or FIFO.
///
/// # Errors
/// The descriptor is not a pipe or FIFO.
pub fn waiting_bytes(pipe: impl AsFd) -> Result<usize, Errno> {
    let mut count = 0;
    // SAFETY: the pointer is to a live integer of the type that this request fills in.
    Errno::result(unsafe { libc::ioctl(pipe.as_fd().as_raw_fd(), libc::FIONREAD, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The argument of `poll` for a deadline, rounded up to whole milliseconds; without one it waits for ever.
#[must_use]
pub fn timeout_until(deadline: Option<Instant>) -> PollTimeout {
    let Some(deadline) = deadline else { return PollTimeout::NONE };
    let left = deadline.saturating_duration_since(Instant::now());
    let milliseconds = left.as_millis() + u128::from(left.subsec_nanos() % 1_000_000 != 0);
    PollTimeout::try_from(i32::try_from(milliseconds).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::MAX)
}

/// The time of `CLOCK_MONOTONIC`, which all processes of the machine share.
#[must_use]
pub fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// Removes all variables but those to keep from this process's environment, and overwrites them: others can read the memory
/// of a process, and its file `environ`.
///
/// # Safety
/// The process has one thread, and nothing refers to the values of its variables.
pub(crate) unsafe fn keep_variables(is_kept: impl Fn(&[u8]) -> bool) {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: the C library has the variables at this address, as strings that end with a zero, in an array that ends with a null
    // pointer. Both are this process's to change, and nobody else does meanwhile.
    unsafe {
        let (mut from, mut to) = (environ, environ);
        if environ.is_null() {
            return;
        }
        while !(*from).is_null() {
            let variable = CStr::from_ptr(*from).to_bytes();
            let length = variable.len();
            if is_kept(variable.split(|byte| *byte == b'=').next().unwrap_or_default()) {
                *to = *from;
                to = to.add(1);
            } else {
                (*from).write_bytes(0, length);
            }
            from = from.add(1);
        }
        *to = std::ptr::null_mut();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use nix::poll::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn a_dead_process_makes_its_descriptor_readable() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let fd = pidfd(Pid::from_raw(child.id() as i32)).unwrap();
        let is_readable =
            |timeout| poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout).unwrap() == 1;
        assert!(!is_readable(PollTimeout::ZERO));
        drop(child.stdin.take());
        assert!(is_readable(PollTimeout::NONE));
        child.wait().unwrap();
    }

    #[test]
    fn unread_bytes_are_counted() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert_eq!(waiting_bytes(&reader), Ok(0));
        writer.write_all(b"abc").unwrap();
        assert_eq!(waiting_bytes(&reader), Ok(3));
    }
}
