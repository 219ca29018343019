//! Pipes and files, opened by path for as long as they are needed.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;

/// Whether descriptor 0 was taken to open something.
static LENT: AtomicBool = AtomicBool::new(false);

/// Whether descriptor 0 was taken since this was last asked: then it has to be put back.
pub(crate) fn descriptor_was_lent() -> bool {
    LENT.swap(false, Ordering::Relaxed)
}

/// Opens a path. A cell that used up all descriptors does not keep us from it: descriptor 0 is ours to lend, for
/// [`crate::streams`] puts it back before the next cell.
pub(crate) fn open(path: &str, flags: i32) -> io::Result<File> {
    let path = CString::new(path)?;
    let open = || {
        // SAFETY: the path is a live string that ends with NUL.
        Errno::result(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC | libc::O_NOCTTY) })
    };
    let opened = match open() {
        Err(Errno::EMFILE | Errno::ENFILE) => {
            LENT.store(true, Ordering::Relaxed);
            // SAFETY: a plain integer; descriptor 0 belongs to nothing that would use it before it is put back.
            unsafe { libc::close(0) };
            open()
        }
        opened => opened,
    };
    // SAFETY: the kernel made this descriptor for us just now, and nobody else knows it.
    opened.map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) })).map_err(io::Error::from)
}

/// Reads exactly `buffer`, which came in one write.
pub(crate) fn read_command(mut pipe: &File, buffer: &mut [u8]) -> io::Result<()> {
    pipe.read_exact(buffer)
}

/// Reads the first `bytes` bytes of a file.
pub(crate) fn read_payload(path: &str, bytes: u64) -> io::Result<Vec<u8>> {
    let mut payload = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    open(path, libc::O_RDONLY)?.take(bytes).read_to_end(&mut payload)?;
    Ok(payload)
}

/// Writes header and document.
pub(crate) fn write_report(path: &str, header: &[u8], document: &[u8]) -> io::Result<()> {
    let mut pipe = open(path, libc::O_WRONLY)?;
    if document.len() <= 4096 - header.len() {
        return pipe.write_all(&[header, document].concat());
    }
    pipe.write_all(header)?;
    pipe.write_all(document)
}

/// Ends this process without Python's own end, which would wait for threads and run what cells have registered.
pub(crate) fn end_process(status: i32) -> ! {
    // SAFETY: a plain integer; nothing runs after it.
    unsafe { libc::_exit(status) }
}
