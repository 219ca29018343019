//! Waits for events, and for conditions that have none.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::PATIENCE;

/// Interval at which a condition is checked.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Waits until a condition holds for which there is no event, such as the state of another process, a file that it
/// creates, or a counter. If there is something to wait for, a test waits for that.
///
/// # Panics
/// The condition does not hold within [`PATIENCE`].
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_within(PATIENCE, condition), "waited in vain until {what}");
}

/// Waits until a condition holds. False: it does not within the limit.
#[must_use]
pub fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        // Nothing tells of such a condition: it has to be looked at.
        std::thread::sleep(LOOK_EVERY);
    }
    true
}

/// Like [`wait_until`], while the other tasks of this thread go on.
///
/// # Panics
/// The condition does not hold within [`PATIENCE`].
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        // As above.
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until a child has ended.
///
/// # Panics
/// It does not end within [`PATIENCE`].
pub fn end_of(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the process has ended", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Reads a response to its end, from a FIFO that was opened without waiting.
#[must_use]
pub fn read_to_end(mut fifo: &File) -> Vec<u8> {
    let mut text = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        wait_readable(fifo, PATIENCE);
        match fifo.read(&mut buffer) {
            Ok(0) => return text,
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until a descriptor is readable.
///
/// # Panics
/// The descriptor is not readable within `limit`.
pub fn wait_readable(fd: &impl AsFd, limit: Duration) {
    let is_readable = is_ready(fd, PollFlags::POLLIN, limit);
    assert!(is_readable, "nothing to read on descriptor {} within {limit:?}", fd.as_fd().as_raw_fd());
}

/// Waits until a descriptor is ready. False: it is not within the limit.
#[must_use]
pub fn is_ready(fd: &impl AsFd, flags: PollFlags, limit: Duration) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), flags)];
    poll(&mut fds, PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)).is_ok_and(|count| count > 0)
}
