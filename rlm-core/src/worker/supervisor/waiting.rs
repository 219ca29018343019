//! Waiting for an interpreter, also for a new one.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use crate::limits::START_LIMIT;
use crate::protocol::{Outcome, State};
use crate::worker::events::{Events, Wake};
use crate::worker::exit::Exit;
use crate::worker::interpreter::{CallReport, Interpreter, Progress};
use crate::worker::not_ready::NotReady;
use crate::worker::output::HeadTail;

/// Longest quote, in an error, of the output of an interpreter that could not be started, in bytes.
const QUOTED_OUTPUT_BYTES: usize = 2048;

/// Number of times that an interpreter is started if a signal ends it before it is ready. The sender may be the system that
/// is out of memory, or a program of the session, and spare the next one.
const START_TRIES: usize = 3;

/// Input from an interpreter.
pub(super) struct Arrival {
    /// True for each descriptor of the interpreter that is ready.
    pub(super) ready: Vec<bool>,
    /// Exit status of the process, if it is dead.
    pub(super) status: Option<i32>,
    pub(super) interrupt: bool,
}

/// Waits until something arrives from an interpreter, it dies, or the deadline has passed.
pub(super) fn wait(
    interpreter: &impl Interpreter,
    deadline: Option<Instant>,
    events: &Events,
) -> Result<Arrival, Exit> {
    let process = interpreter.process();
    let mut fds = Vec::with_capacity(8);
    interpreter.poll_fds(&mut fds);
    fds.push(PollFd::new(process.pidfd(), PollFlags::POLLIN));
    let Wake { interrupt, mut ready } = events.wait(fds, deadline)?;
    let status = if ready.pop() == Some(true) { process.status() } else { None };
    if status.is_some() {
        // A dead interpreter may have printed and reported since its descriptors were polled.
        ready.fill(true);
    }
    Ok(Arrival { ready, status, interrupt })
}

/// Waits until a newly started interpreter, which was sent its initial settings, reports.
///
/// # Errors
/// [`Exit::Failed`] if it dies first, or takes too long.
pub fn wait_until_ready(
    interpreter: &mut impl Interpreter,
    program: &Path,
    events: &Events,
) -> Result<(), Exit> {
    wait_until_ready_within(START_LIMIT, interpreter, program, events)
}

/// Like [`wait_until_ready`], with this limit of time.
///
/// # Errors
/// As for [`wait_until_ready`].
pub fn wait_until_ready_within(
    limit: Duration,
    interpreter: &mut impl Interpreter,
    program: &Path,
    events: &Events,
) -> Result<(), Exit> {
    let deadline = Instant::now() + limit;
    loop {
        // An interrupt is for a call, and none is running yet.
        let Arrival { ready, status, .. } = wait(interpreter, Some(deadline), events)?;
        if let Progress::Done(_) = interpreter.advance(&ready, None)? {
            return Ok(());
        }
        if status.is_none() && Instant::now() < deadline {
            continue;
        }
        let mut report = CallReport::new(Outcome::Error, State::Reset);
        interpreter.take_output(&mut report)?;
        let mut output = HeadTail::new(QUOTED_OUTPUT_BYTES);
        output.push(format!("{}\n{}", report.stderr.trim(), report.stdout.trim()).trim().as_bytes());
        return Err(Exit::failed(NotReady {
            program: program.to_owned(),
            status,
            output: output.into_text().0,
        }));
    }
}

/// Starts an interpreter with `start`, which waits until it is ready. Starts another if a signal ended it before.
///
/// # Errors
/// The error of the last try.
pub fn start_until_ready(mut start: impl FnMut() -> Result<(), Exit>) -> Result<(), Exit> {
    for _ in 1..START_TRIES {
        match start() {
            Err(Exit::Failed(error)) if error.downcast_ref().is_some_and(NotReady::was_killed) => {}
            started => return started,
        }
    }
    start()
}
