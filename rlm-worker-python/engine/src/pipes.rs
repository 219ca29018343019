//! Pipes and files, opened by path while they are needed.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;

/// True if descriptor 0 was closed to open another file.
static LENT: AtomicBool = AtomicBool::new(false);

/// True if descriptor 0 was closed since the last call of this function: then it must be restored.
pub(crate) fn descriptor_was_lent() -> bool {
    LENT.swap(false, Ordering::Relaxed)
}

/// Opens a path, even if a cell has used up all descriptors: then descriptor 0 is closed to make room, and
/// [`crate::streams`] restores it before the next cell.
pub(crate) fn open(path: &str, flags: i32) -> io::Result<File> {
    let path = CString::new(path)?;
    let open = || {
        // SAFETY: the path is a live, NUL-terminated string.
        Errno::result(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC | libc::O_NOCTTY) })
    };
    let opened = match open() {
        Err(Errno::EMFILE | Errno::ENFILE) => {
            LENT.store(true, Ordering::Relaxed);
            // SAFETY: a plain integer; nothing uses descriptor 0 before it is restored.
            unsafe { libc::close(0) };
            open()
        }
        opened => opened,
    };
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    opened.map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) })).map_err(io::Error::from)
}

/// Fills `buffer` with a command, which was written in one piece.
pub(crate) fn read_command(mut pipe: &File, buffer: &mut [u8]) -> io::Result<()> {
    pipe.read_exact(buffer)
}

/// Reads the first `bytes` bytes of a file.
pub(crate) fn read_payload(path: &str, bytes: u64) -> io::Result<Vec<u8>> {
    let mut payload = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    open(path, libc::O_RDONLY)?.take(bytes).read_to_end(&mut payload)?;
    Ok(payload)
}

/// Writes a report, whose pieces these are: a short one at once.
pub(crate) fn write_report(path: &str, pieces: [&[u8]; 3]) -> io::Result<()> {
    let mut pipe = open(path, libc::O_WRONLY)?;
    if pieces.iter().map(|piece| piece.len()).sum::<usize>() <= 4096 {
        return pipe.write_all(&pieces.concat());
    }
    pieces.iter().try_for_each(|piece| pipe.write_all(piece))
}

/// Ends this process without Python's finalization, which would wait for threads and run what cells have registered.
pub(crate) fn end_process(status: i32) -> ! {
    // SAFETY: a plain integer; nothing runs after it.
    unsafe { libc::_exit(status) }
}
