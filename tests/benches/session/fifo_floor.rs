//! The floor of a round trip: another process that opens, reads and closes one FIFO, then opens, writes and closes the
//! other.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rlm_core::control::{ControlDir, make_fifo};
use tempfile::TempDir;

/// The argument that makes this program the peer; it is followed by the directory of the FIFOs.
pub(crate) const PEER_ARGUMENT: &str = "--fifo-peer";

/// Typical length of a response to `:`, in bytes.
pub(crate) const RESPONSE_BYTES: usize = 250;

/// A running peer.
pub(crate) struct FifoFloor {
    child: Child,
    pub(crate) control: ControlDir,
    _dir: TempDir,
}

impl FifoFloor {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlDir::new(dir.path());
        for path in [control.command_fifo(), control.response_fifo()] {
            make_fifo(&path).unwrap();
        }
        let this = std::env::current_exe().unwrap();
        let child = Command::new(this).args([OsStr::new(PEER_ARGUMENT), dir.path().as_os_str()]).spawn();
        Self { child: child.unwrap(), control, _dir: dir }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }
}

impl Drop for FifoFloor {
    fn drop(&mut self) {
        // If the peer died, its host has already failed.
        let _died_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The peer: answers until it is killed, or its host is dead.
pub(crate) fn peer(dir: &Path) {
    set_pdeathsig(Signal::SIGKILL).unwrap();
    let control = ControlDir::new(dir);
    let (commands, responses) = (control.command_fifo(), control.response_fifo());
    let mut buffer = vec![0; 64 << 10];
    let response = [b'x'; RESPONSE_BYTES];
    loop {
        let mut fifo = File::open(&commands).unwrap();
        while fifo.read(&mut buffer).unwrap() > 0 {}
        drop(fifo);
        OpenOptions::new().write(true).open(&responses).unwrap().write_all(&response).unwrap();
    }
}
