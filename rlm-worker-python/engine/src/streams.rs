//! Descriptors 0, 1 and 2, and `sys.stdin`, `sys.stdout` and `sys.stderr`.
//!
//! The two outputs are pipes to the supervisor for the whole life of the process. A cell may close, replace or redirect
//! any of them; everything is restored after it, so that the next cell's output is seen.

use std::os::fd::{AsRawFd, IntoRawFd};

use nix::errno::Errno;
use nix::libc;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::pipes;

/// The encoding of all three streams.
const ENCODING: &str = "utf-8";

/// Text that cannot be encoded is shown with escapes.
const ERRORS: &str = "backslashreplace";

/// One standard stream.
struct Stream {
    fd: i32,
    /// The names in `sys`, without and with underscores.
    names: [Py<PyString>; 2],
    /// Path from which the descriptor is opened.
    path: String,
    flags: i32,
    /// Device and inode of the file at the path.
    file: (u64, u64),
    object: Py<PyAny>,
}

/// All three streams.
pub(crate) struct Streams {
    streams: [Stream; 3],
    open: Py<PyAny>,
    sys: Py<PyDict>,
}

impl Streams {
    /// Takes over the streams that Python created.
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        let sys = py.import("sys")?.dict();
        let open = py.import("_io")?.getattr("open")?.unbind();
        let stream = |fd: i32, name: &str, flags: i32| -> PyResult<Stream> {
            let object = sys.get_item(name)?.unwrap_or_else(|| py.None().into_bound(py)).unbind();
            let names =
                [name.to_owned(), format!("__{name}__")].map(|name| PyString::new(py, &name).unbind());
            let (path, file) = ("/dev/null".to_owned(), file_id(fd).unwrap_or_default());
            Ok(Stream { fd, names, path, flags, file, object })
        };
        let streams = [
            stream(0, "stdin", libc::O_RDONLY)?,
            stream(1, "stdout", libc::O_WRONLY)?,
            stream(2, "stderr", libc::O_WRONLY)?,
        ];
        let mut streams = Self { streams, open, sys: sys.unbind() };
        streams.restore(py)?;
        Ok(streams)
    }

    /// Takes over the files that the descriptors lead to now. The two outputs have these paths.
    pub(crate) fn lead_to(&mut self, py: Python<'_>, stdout: &str, stderr: &str) -> PyResult<()> {
        let [input, output, errors] = &mut self.streams;
        (output.path, errors.path) = (stdout.to_owned(), stderr.to_owned());
        for stream in [input, output, errors] {
            stream.file = file_id(stream.fd).unwrap_or_default();
        }
        self.restore(py)
    }

    /// Flushes the buffers of our streams, and of those that a cell has put in their place.
    pub(crate) fn flush(&self, py: Python<'_>) {
        for stream in self.streams[1..].iter().rev() {
            let current = self.sys.bind(py).get_item(&stream.names[0]).ok().flatten();
            let replaced = current.filter(|current| !current.is(&stream.object));
            for object in replaced.iter().chain([stream.object.bind(py)]) {
                // A stream that is closed, or whose descriptor is, has nothing to flush.
                let _closed = object.call_method0("flush");
            }
        }
        flush_c_stdout();
    }

    /// Writes a line to standard error.
    pub(crate) fn write_error(&self, py: Python<'_>, line: &str) -> PyResult<()> {
        self.streams[2].object.call_method1(py, "write", (format!("{line}\n"),)).map(drop)
    }

    /// Restores descriptors and objects to their initial state.
    pub(crate) fn restore(&mut self, py: Python<'_>) -> PyResult<()> {
        // The names come first: dropping a cell's object may close the descriptors that it was made of.
        self.restore_names(py)?;
        // Descriptor 0 comes last, because it may be closed to open the others.
        for stream in self.streams.iter_mut().rev() {
            stream.restore_descriptor()?;
            // This fails if a cell made it impossible to open files. Then the next cell's output is lost.
            let _refused = stream.restore_object(py, &self.open);
        }
        self.restore_names(py)
    }

    fn restore_names(&self, py: Python<'_>) -> PyResult<()> {
        let sys = self.sys.bind(py);
        for stream in &self.streams {
            for name in &stream.names {
                if !sys.get_item(name)?.is_some_and(|current| current.is(&stream.object)) {
                    sys.set_item(name, &stream.object)?;
                }
            }
        }
        Ok(())
    }
}

impl Stream {
    fn restore_descriptor(&self) -> PyResult<()> {
        if file_id(self.fd) != Some(self.file) {
            let file = pipes::open(&self.path, self.flags)?;
            if file.as_raw_fd() == self.fd {
                // The file was opened at the right descriptor; it stays there, and children inherit it.
                let fd = file.into_raw_fd();
                // SAFETY: plain integers.
                Errno::result(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map_err(std::io::Error::from)?;
            } else {
                // SAFETY: plain integers; this closes the file that the cell had put there.
                Errno::result(unsafe { libc::dup2(file.as_raw_fd(), self.fd) })
                    .map_err(std::io::Error::from)?;
            }
        }
        // A program that shares the pipe may have made it non-blocking.
        // SAFETY: plain integers.
        let flags = unsafe { libc::fcntl(self.fd, libc::F_GETFL) };
        if flags & libc::O_NONBLOCK != 0 {
            // SAFETY: plain integers.
            unsafe { libc::fcntl(self.fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) };
        }
        Ok(())
    }

    fn restore_object(&mut self, py: Python<'_>, open: &Py<PyAny>) -> PyResult<()> {
        let object = self.object.bind(py);
        if is_usable(object) {
            return Ok(());
        }
        let settings = PyDict::new(py);
        settings.set_item("encoding", ENCODING)?;
        settings.set_item("errors", ERRORS)?;
        settings.set_item("line_buffering", true)?;
        if object.call_method("reconfigure", (), Some(&settings)).is_err() || !is_usable(object) {
            self.object = open_text(py, open, self.fd)?;
        }
        Ok(())
    }
}

/// True for an open text stream with our settings.
fn is_usable(object: &Bound<'_, PyAny>) -> bool {
    let is = |name: &str, value: &str| {
        object.getattr(name).is_ok_and(|found| found.cast::<PyString>().is_ok_and(|found| found == value))
    };
    object.getattr("closed").and_then(|closed| closed.is_truthy()).is_ok_and(|closed| !closed)
        && is("encoding", ENCODING)
        && is("errors", ERRORS)
        && object.getattr("line_buffering").and_then(|by_line| by_line.is_truthy()).unwrap_or(false)
}

/// A text stream over a descriptor, which stays open when the stream is closed.
fn open_text(py: Python<'_>, open: &Py<PyAny>, fd: i32) -> PyResult<Py<PyAny>> {
    let mode = if fd == 0 { "r" } else { "w" };
    let newline = if fd == 0 { None } else { Some("\n") };
    open.call1(py, (fd, mode, 1, ENCODING, ERRORS, newline, false))
}

fn file_id(fd: i32) -> Option<(u64, u64)> {
    // SAFETY: the struct is plain numbers, and the pointer is to a live struct.
    unsafe {
        let mut stat = std::mem::zeroed::<libc::stat>();
        (libc::fstat(fd, &raw mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

/// Flushes the output of C code, but only its standard output: a thread that reads may hold the lock of another stream
/// for ever.
pub(crate) fn flush_c_stdout() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    // SAFETY: the C library's own stream, which it never frees.
    unsafe { libc::fflush(stdout) };
}
