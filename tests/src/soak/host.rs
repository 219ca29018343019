//! A host that reads in several styles, disturbs its worker, and gives up on it after a while instead of panicking.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::PollFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::limits::MAX_REQUEST_BYTES;
use rlm_core::protocol::Response;
use serde_json::{Value, json};

use super::defect::{Class, Defect};
use super::frame::End;
use super::step::{Disturbance, Reading, Request, Step};
use crate::malformed::latin_1;
use crate::process::{children, descriptors};
use crate::wait::{holds_within, is_ready};
use crate::worker::Worker;

/// The interval at which a waiting host looks whether its worker is alive.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The time that a worker may take to end. It is promised to take 2 s; the machine may be busy.
const LONGEST_END: Duration = Duration::from_secs(6);

/// A host and its worker.
#[derive(Debug)]
pub(crate) struct Host {
    worker: Worker,
    seq: i64,
    /// The time limit of calls without one of their own: a response that takes longer never comes.
    patience: Duration,
    /// The copy of a reader that a forked process has.
    copy: Option<File>,
    /// The file of a saved session.
    saved: PathBuf,
}

/// The worker's resources at one moment, both processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) memory_kib: u64,
    pub(crate) descriptors: usize,
}

impl Host {
    pub(crate) fn new(worker: Worker, patience: Duration, saved: PathBuf) -> Self {
        Self { worker, seq: 0, patience, copy: None, saved }
    }

    /// Ends the worker, and goes on with another one.
    pub(crate) fn replace_worker(&mut self, worker: Worker, end: End) -> Result<(), Defect> {
        let new = Self::new(worker, self.patience, self.saved.clone());
        std::mem::replace(self, new).end(end)
    }

    /// Makes a call.
    pub(crate) fn call(&mut self, step: &Step) -> Result<Response, Defect> {
        let limit = self.patience + Duration::from_secs_f64(step.timeout().unwrap_or(0.0));
        let deadline = Instant::now() + limit;
        let early = match step.reading {
            Reading::Early | Reading::Forked => Some(self.early_reader()?),
            Reading::Blocking | Reading::Late => None,
        };
        self.copy = match (&early, step.reading) {
            (Some(reader), Reading::Forked) => Some(reader.try_clone().map_err(broken)?),
            _ => None,
        };
        let (bytes, seq) = self.bytes(step);
        if let Some(Disturbance::KillBefore(signal)) = step.disturbance {
            signal_to(self.interpreter(), signal);
        }
        let interpreter = self.interpreter();
        self.write(&bytes, deadline)?;
        let disturber = self.disturb(step, interpreter);
        let text = match early {
            Some(reader) => self.read(reader, deadline),
            None if step.reading == Reading::Late => self.read(self.reader()?, deadline),
            None => self.read_blocking(deadline),
        };
        if let Some(disturber) = disturber {
            disturber
                .join()
                .map_err(|_panic| Defect::new(Class::Wedge, "a disturbance panicked".to_owned()))?;
        }
        understand(&text?, seq)
    }

    /// The bytes of a request, and the `seq` of its answer.
    fn bytes(&mut self, step: &Step) -> (Vec<u8>, i64) {
        self.seq += 1;
        match &step.request {
            Request::Document(document) => {
                let mut document = document.clone();
                if let Some(file) = document.get_mut("file") {
                    *file = json!(self.saved);
                }
                document["seq"] = self.seq.into();
                (document.to_string().into_bytes(), self.seq)
            }
            Request::Bytes(text, seq) => (latin_1(text), *seq),
            Request::TooLarge => {
                let code = "x".repeat(MAX_REQUEST_BYTES);
                (json!({"seq": self.seq, "code": code}).to_string().into_bytes(), self.seq)
            }
        }
    }

    fn reader(&self) -> Result<File, Defect> {
        self.worker.try_responses().map_err(broken)
    }

    /// A reader that is there before the request. A response that it finds is one too many.
    fn early_reader(&self) -> Result<File, Defect> {
        let reader = self.reader()?;
        if is_ready(&reader, PollFlags::POLLIN, Duration::ZERO) {
            return Err(Defect::new(Class::Damaged, "a response came without a request".to_owned()));
        }
        Ok(reader)
    }

    fn write(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), Defect> {
        let mut fifo = self.worker.try_commands().map_err(broken)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match fifo.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.check_alive(deadline, "the request is not read")?;
                    let _looked_again = is_ready(&fifo, PollFlags::POLLOUT, LOOK_EVERY);
                }
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// Reads to end of file whenever there is something to read. To find nothing then is a defect: a host in Python
    /// would raise.
    fn read(&mut self, mut reader: File, deadline: Instant) -> Result<Vec<u8>, Defect> {
        let mut text = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            if !is_ready(&reader, PollFlags::POLLIN, LOOK_EVERY) {
                self.check_alive(deadline, "no response")?;
                continue;
            }
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(text),
                Ok(count) => text.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let what = format!("readable, but nothing to read, after {} bytes", text.len());
                    return Err(Defect::new(Class::Damaged, what));
                }
                Err(error) => return Err(broken(error)),
            }
        }
    }

    /// Reads in a thread, which may wait in `open` or `read` for as long as it likes.
    fn read_blocking(&mut self, deadline: Instant) -> Result<Vec<u8>, Defect> {
        let path = self.worker.control.response_fifo();
        let (sender, receiver) = mpsc::channel();
        let reader = path.clone();
        thread::spawn(move || {
            // The receiver is gone if this took too long.
            let _unread = sender.send(fs::read(reader));
        });
        loop {
            match receiver.recv_timeout(LOOK_EVERY) {
                Ok(text) => return text.map_err(broken),
                Err(_) => {
                    if let Err(defect) = self.check_alive(deadline, "no response") {
                        // A writer that comes and goes ends the thread. There may be no reader any more.
                        let mut writer = OpenOptions::new();
                        let _end_of_file = writer.write(true).custom_flags(libc::O_NONBLOCK).open(&path);
                        return Err(defect);
                    }
                }
            }
        }
    }

    /// Fails if the deadline has passed or the worker has ended.
    fn check_alive(&mut self, deadline: Instant, what: &str) -> Result<(), Defect> {
        if let Some(status) = self.worker.ended() {
            return Err(Defect::new(Class::WorkerDied, format!("{status}: {}", self.worker.log().trim())));
        }
        if Instant::now() < deadline {
            return Ok(());
        }
        Err(Defect::new(Class::Wedge, format!("{what} within {:?} beyond the limit", self.patience)))
    }

    fn disturb(&self, step: &Step, interpreter: Option<Pid>) -> Option<thread::JoinHandle<()>> {
        let guard = self.worker.pid();
        let (delay, act): (u64, Box<dyn FnOnce() + Send>) = match step.disturbance? {
            Disturbance::Interrupt(delay) => (delay, Box::new(move || signal_to(Some(guard), libc::SIGINT))),
            Disturbance::Kill(signal, delay) => (delay, Box::new(move || signal_to(interpreter, signal))),
            Disturbance::KillNew(delay) => {
                (delay, Box::new(move || signal_to(interpreter_of(guard), libc::SIGKILL)))
            }
            Disturbance::KillChild(delay) => {
                let child = move || interpreter.and_then(|interpreter| children(interpreter).pop());
                (delay, Box::new(move || signal_to(child(), libc::SIGKILL)))
            }
            Disturbance::KillBefore(_) => return None,
        };
        Some(thread::spawn(move || {
            // The moment is drawn at random: there is no event to wait for.
            thread::sleep(Duration::from_micros(delay));
            act();
        }))
    }

    fn interpreter(&self) -> Option<Pid> {
        interpreter_of(self.worker.pid())
    }

    /// Memory of the worker's own two processes that is not that of files, and their descriptors: the least that several
    /// looks see, as the worker may not have come to its rest yet.
    pub(crate) fn resources(&self) -> Option<Resources> {
        let mut least = self.resources_now()?;
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(2));
            let now = self.resources_now()?;
            least.memory_kib = least.memory_kib.min(now.memory_kib);
            least.descriptors = least.descriptors.min(now.descriptors);
        }
        Some(least)
    }

    fn resources_now(&self) -> Option<Resources> {
        let pids = [self.worker.pid(), *children(self.worker.pid()).first()?];
        let mut resources = Resources { memory_kib: 0, descriptors: 0 };
        for pid in pids {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let line = rollup.lines().find(|line| line.starts_with("Anonymous:"))?;
            resources.memory_kib += line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?;
            resources.descriptors += descriptors(pid).ok()?.others;
        }
        Some(resources)
    }

    /// Ends the worker, and checks that it goes in time and takes everything with it.
    pub(crate) fn end(mut self, end: End) -> Result<(), Defect> {
        let begun = Instant::now();
        match end {
            End::Term => signal_to(Some(self.worker.pid()), libc::SIGTERM),
            End::Shutdown => {
                if let Err(defect) = self.write(b"{\"shutdown\": true}", begun + LONGEST_END) {
                    self.abandon();
                    return Err(defect);
                }
            }
            End::KillGuard => signal_to(Some(self.worker.pid()), libc::SIGKILL),
            End::KillServer => signal_to(children(self.worker.pid()).first().copied(), libc::SIGKILL),
        }
        if !holds_within(LONGEST_END, || self.worker.ended().is_some()) {
            self.abandon();
            let what = format!("the worker goes on {LONGEST_END:?} after {end:?}");
            return Err(Defect::new(Class::Wedge, what));
        }
        // If one process of the worker is killed, the other ends what is left.
        let patience = match end {
            End::Term | End::Shutdown => Duration::ZERO,
            End::KillGuard | End::KillServer => LONGEST_END,
        };
        if !holds_within(patience, || self.worker.processes().is_empty()) {
            let what = format!("after {end:?}: {:?}", self.worker.processes());
            return Err(Defect::new(Class::LeftBehind, what));
        }
        if !holds_within(patience, || !self.worker.control.ready_flag().exists()) {
            return Err(Defect::new(Class::LeftBehind, format!("the ready flag, after {end:?}")));
        }
        Ok(())
    }

    /// Ends what a defect has left, by force.
    pub(crate) fn abandon(mut self) {
        signal_to(children(self.worker.pid()).first().copied(), libc::SIGKILL);
        if !holds_within(LONGEST_END, || self.worker.ended().is_some()) {
            signal_to(Some(self.worker.pid()), libc::SIGKILL);
            self.worker.wait();
        }
        for (pid, _) in self.worker.processes() {
            signal_to(Some(pid), libc::SIGKILL);
        }
    }
}

/// Parses a response and checks that every field is there.
fn understand(text: &[u8], seq: i64) -> Result<Response, Defect> {
    let excerpt = || String::from_utf8_lossy(&text[..text.len().min(300)]).into_owned();
    let damaged = |what: String| Defect::new(Class::Damaged, what);
    if text.is_empty() {
        return Err(Defect::new(Class::WorkerDied, "end of file in place of a response".to_owned()));
    }
    let value: Value =
        serde_json::from_slice(text).map_err(|error| damaged(format!("{error}: {:?}", excerpt())))?;
    let response: Response =
        serde_json::from_value(value.clone()).map_err(|error| damaged(error.to_string()))?;
    if json!(response) != value {
        return Err(damaged(format!("fields are missing or unknown: {:?}", excerpt())));
    }
    if response.seq != seq {
        return Err(damaged(format!("seq {} in place of {seq}: {:?}", response.seq, excerpt())));
    }
    Ok(response)
}

fn signal_to(pid: Option<Pid>, signal: i32) {
    if let (Some(pid), Ok(signal)) = (pid, Signal::try_from(signal)) {
        // The process may have ended by itself.
        let _gone = kill(pid, signal);
    }
}

fn interpreter_of(guard: Pid) -> Option<Pid> {
    let server = *children(guard).first()?;
    children(server).first().copied()
}

fn broken(error: io::Error) -> Defect {
    Defect::new(Class::WorkerDied, format!("the FIFOs are broken: {error}"))
}
