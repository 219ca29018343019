//! A plain host: one worker, its two FIFOs, and nothing forgiven.
//!
//! Only the wire is known here: no part of `rlm-env` is used. Each wait ends with the case's time. Every process of a
//! worker carries a mark in its environment, by which those that outlive it are found, and ended when it is dropped.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rlm_core::sys::timeout_until;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::check::{Check, fault, same, that};
use super::snippets::Snippets;

/// The variable that marks every process of a worker.
const MARK: &str = "RLM_CONFORMANCE_MARK";

/// The part of the command that stands for the control directory.
pub(super) const DIR: &str = "{dir}";

/// Interval at which a condition is checked for which there is no event.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Longest time from the cause of a worker's end until everything has ended.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Variables of the worker that would change what the cases expect.
const REMOVED_VARIABLES: [&str; 10] = [
    "RLM_EXEC_TIMEOUT",
    "RLM_MAX_OUTPUT_BYTES",
    "RLM_TERM",
    "RLM_COLUMNS",
    "RLM_ROWS",
    "RLM_DISALLOWED_MODULES",
    "RLM_DISALLOWED_BUILTINS",
    "RLM_FS_JAIL",
    "RLM_FINAL_FUNCTIONS",
    "RLM_ROOT_TOOL_URL",
];

/// Held while a process is started, and while a case has a descriptor of which no copy may be left.
static FORKS: RwLock<()> = RwLock::new(());

/// Keeps other cases from starting processes, which have copies of all descriptors until they execute their programs.
pub(super) fn without_forks() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process. It has no copies of descriptors any more when this returns.
pub(super) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _alone = FORKS.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// The stand on which a case puts its worker.
#[derive(Debug)]
pub(super) struct Stand<'a> {
    command: &'a [OsString],
    /// Code in the worker's language.
    pub(super) code: &'a Snippets,
    deadline: Instant,
    time_limit: Duration,
    dir: TempDir,
    mark: String,
}

impl<'a> Stand<'a> {
    /// Makes the directories of a worker.
    pub(super) fn new(
        command: &'a [OsString],
        code: &'a Snippets,
        parent: &Path,
        time_limit: Duration,
    ) -> std::io::Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let dir = tempfile::Builder::new().prefix("rlm-conformance-").tempdir_in(parent)?;
        for name in ["rlm_fs", "rlm_control"] {
            fs::create_dir(dir.path().join(name))?;
        }
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let context =
            json!({"fs_root": dir.path().join("rlm_fs"), "fs_metadata": {"made_by": "rlm conformance"}});
        fs::write(dir.path().join("rlm_control/rlm_context.json"), context.to_string())?;
        Ok(Self { command, code, deadline: Instant::now() + time_limit, time_limit, dir, mark })
    }

    /// A file of the control directory.
    pub(super) fn control(&self, name: &str) -> PathBuf {
        self.dir.path().join("rlm_control").join(name)
    }

    /// A file of the session's directory.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("rlm_fs").join(name)
    }

    /// Starts the worker and waits for its ready flag.
    pub(super) fn start(&self) -> Check<Worker<'_>> {
        self.start_with(&[])
    }

    /// Starts the worker with further variables, and waits for its ready flag.
    pub(super) fn start_with(&self, variables: &[(&str, &str)]) -> Check<Worker<'_>> {
        let mut worker = self.spawn(&[], Stdio::null(), variables)?;
        worker.wait_for("the ready flag", |worker| worker.stand.control("rlm_ready").exists())?;
        Ok(worker)
    }

    /// Starts the worker with further arguments, and does not wait.
    pub(super) fn spawn(
        &self,
        arguments: &[&str],
        stdout: Stdio,
        variables: &[(&str, &str)],
    ) -> Check<Worker<'_>> {
        let control = self.dir.path().join("rlm_control").display().to_string();
        let mut words = self.command.iter().map(|word| match word.to_str() {
            Some(word) => word.replace(DIR, &control).into(),
            None => word.clone(),
        });
        let mut command = Command::new(words.next().unwrap_or_default());
        for name in REMOVED_VARIABLES {
            command.env_remove(name);
        }
        let errors =
            or_fault("a file for the worker's standard error", File::create(self.dir.path().join("stderr")))?;
        command
            .args(words)
            .args(arguments)
            .env(MARK, &self.mark)
            .env("RLM_PASS_ENV", MARK)
            .env("RLM_HOST_PID", std::process::id().to_string())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(errors)
            .process_group(0);
        let child = or_fault("a worker that can be started", spawn(&mut command))?;
        Ok(Worker { stand: self, code: self.code, child, status: None, seq: 0 })
    }

    /// The running processes with this stand's mark, and their names; zombies do not count.
    fn processes(&self) -> Vec<(Pid, String)> {
        let needle = format!("{MARK}={}", self.mark);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let marked = pids.filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == needle.as_bytes())
        });
        let name =
            |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
        marked.map(|pid| (Pid::from_raw(pid), name(pid))).collect()
    }
}

/// Processes that are still there when a case has ended are killed, one by one, until there are none.
impl Drop for Stand<'_> {
    fn drop(&mut self) {
        let deadline = Instant::now() + END_LIMIT;
        loop {
            let left = self.processes();
            if left.is_empty() || Instant::now() > deadline {
                return;
            }
            for (pid, _) in left {
                // It may have ended by itself.
                let _gone = kill(pid, Signal::SIGKILL);
            }
            sleep(LOOK_EVERY);
        }
    }
}

/// A running worker.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub(super) stand: &'a Stand<'a>,
    /// Code in the worker's language.
    pub(super) code: &'a Snippets,
    child: Child,
    status: Option<ExitStatus>,
    seq: i64,
}

impl Worker<'_> {
    /// Runs code that must run to its end, and returns the response.
    pub(super) fn call(&mut self, code: &str) -> Check<Value> {
        self.call_with(code, json!({}))
    }

    /// The same with further fields.
    pub(super) fn call_with(&mut self, code: &str, fields: Value) -> Check<Value> {
        let seq = self.send_call(code, fields)?;
        self.response_to(seq)
    }

    /// Checks that the session still works.
    pub(super) fn still_works(&mut self) -> Check {
        let response = self.call(&self.code.print("on"))?;
        super::check::fields(&json!({"outcome": "ok", "stdout": "on\n"}), &response)
    }

    /// Sends a request with a `seq` of its own, and returns the response.
    pub(super) fn request(&mut self, mut request: Value) -> Check<Value> {
        self.seq += 1;
        request["seq"] = self.seq.into();
        self.send(request.to_string().as_bytes())?;
        self.response_to(self.seq)
    }

    /// Sends a call and returns its `seq`.
    pub(super) fn send_call(&mut self, code: &str, mut fields: Value) -> Check<i64> {
        self.seq += 1;
        fields["code"] = code.into();
        fields["seq"] = self.seq.into();
        self.send(fields.to_string().as_bytes())?;
        Ok(self.seq)
    }

    /// Sends bytes that need not be a request, and returns the response.
    pub(super) fn send_for_response(&mut self, bytes: &[u8]) -> Check<Value> {
        self.send(bytes)?;
        self.receive()
    }

    /// Opens the command FIFO, writes and closes it.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Check {
        let fifo = self.commands()?;
        self.write(&fifo, bytes)
    }

    /// The command FIFO, opened without waiting.
    pub(super) fn commands(&self) -> Check<File> {
        let opened =
            OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(self.stand.control("rlm_cmd"));
        or_fault("a reader of rlm_cmd at every moment", opened)
    }

    /// Writes to the command FIFO.
    pub(super) fn write(&mut self, mut fifo: &File, mut bytes: &[u8]) -> Check {
        while !bytes.is_empty() {
            match fifo.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait_fd(fifo, PollFlags::POLLOUT, "that the worker reads the request")?;
                }
                Err(error) => return fault("a worker that reads the request", error),
            }
        }
        Ok(())
    }

    /// The response FIFO, opened without waiting.
    pub(super) fn responses(&self) -> Check<File> {
        let opened =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(self.stand.control("rlm_res"));
        or_fault("a response FIFO", opened)
    }

    /// The response to a request, which must be the only thing in one reading.
    pub(super) fn response_to(&mut self, seq: i64) -> Check<Value> {
        let response = self.receive()?;
        same("seq", &json!(seq), &response["seq"])?;
        Ok(response)
    }

    /// Opens the response FIFO and reads one document.
    pub(super) fn receive(&mut self) -> Check<Value> {
        let fifo = self.responses()?;
        self.receive_from(&fifo)
    }

    /// Reads one document, to end of file.
    pub(super) fn receive_from(&mut self, fifo: &File) -> Check<Value> {
        let bytes = self.read_to_end(fifo, 64 << 10)?;
        document(&bytes)
    }

    /// Reads to end of file, with pieces of this size.
    pub(super) fn read_to_end(&mut self, fifo: &File, size: usize) -> Check<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            match self.read_some(fifo, size)? {
                piece if piece.is_empty() => return Ok(bytes),
                piece => bytes.extend(piece),
            }
        }
    }

    /// Waits for bytes and reads up to this many. Empty: end of file.
    pub(super) fn read_some(&mut self, mut fifo: &File, size: usize) -> Check<Vec<u8>> {
        let mut piece = vec![0; size];
        loop {
            self.wait_fd(fifo, PollFlags::POLLIN, "a response")?;
            match fifo.read(&mut piece) {
                Ok(count) => {
                    piece.truncate(count);
                    return Ok(piece);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return fault("a response that can be read", error),
            }
        }
    }

    /// Waits until a descriptor is ready, or the worker ends.
    pub(super) fn wait_fd(&mut self, fd: &impl AsFd, events: PollFlags, what: &str) -> Check {
        loop {
            let until = self.stand.deadline.min(Instant::now() + Duration::from_millis(100));
            let mut fds = [PollFd::new(fd.as_fd(), events)];
            if poll(&mut fds, timeout_until(Some(until))).is_ok_and(|ready| ready > 0) {
                return Ok(());
            }
            self.must_go_on(what)?;
        }
    }

    /// Waits for a condition for which there is no event.
    pub(super) fn wait_for(&mut self, what: &str, mut condition: impl FnMut(&Self) -> bool) -> Check {
        while !condition(self) {
            self.must_go_on(what)?;
            sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Waits until a call has made this file in the session's directory.
    pub(super) fn wait_for_file(&mut self, name: &str) -> Check {
        self.wait_for(&format!("the file {name} of the running call"), |worker| {
            worker.stand.file(name).exists()
        })
    }

    /// Fails if the case has no time left or the worker has ended.
    fn must_go_on(&mut self, what: &str) -> Check {
        let limit = self.stand.time_limit.as_secs_f64();
        that(
            Instant::now() < self.stand.deadline,
            what,
            format_args!("nothing within the case's {limit} s"),
        )?;
        match self.ended()? {
            None => Ok(()),
            Some(status) => {
                let said = fs::read_to_string(self.stand.dir.path().join("stderr")).unwrap_or_default();
                let log = fs::read_to_string(self.stand.control("rlm_worker.log")).unwrap_or_default();
                let words = [said.trim(), log.trim()].join("\n");
                fault(what, format_args!("the worker ended ({status}): {}", words.trim()))
            }
        }
    }

    fn ended(&mut self) -> Check<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = or_fault("the worker's status", self.child.try_wait())?;
        }
        Ok(self.status)
    }

    /// The process that was started.
    pub(super) fn pid(&self) -> Pid {
        // A process id fits.
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    /// Signals the process that was started.
    pub(super) fn signal(&self, signal: Signal) -> Check {
        or_fault("a worker that can be signalled", kill(self.pid(), signal).map_err(std::io::Error::from))
    }

    /// Checks that the worker ends in time with this status, as a shell would show it, and leaves nothing.
    pub(super) fn must_end(&mut self, expected: i32) -> Check {
        let begun = Instant::now();
        while self.ended()?.is_none() {
            that(begun.elapsed() < END_LIMIT, "the end of the worker within 2 s", "it still runs")?;
            sleep(LOOK_EVERY);
        }
        let status =
            self.status.map_or(0, |status| status.code().unwrap_or(128 + status.signal().unwrap_or(0)));
        same("exit status", &expected, &status)?;
        let is_ready = self.stand.control("rlm_ready").exists();
        that(!is_ready, "no ready flag after the worker's end", "rlm_ready is there")?;
        same("processes after the worker's end", &Vec::new(), &self.stand.processes())
    }

    /// Checks that no process is left within 2 s, and then no ready flag.
    pub(super) fn must_leave_nothing(&self) -> Check {
        let begun = Instant::now();
        while begun.elapsed() < END_LIMIT && !self.stand.processes().is_empty() {
            sleep(LOOK_EVERY);
        }
        same("processes after 2 s", &Vec::new(), &self.stand.processes())?;
        that(!self.stand.control("rlm_ready").exists(), "no ready flag", "rlm_ready is there")
    }

    /// Names of the marked processes.
    pub(super) fn process_names(&self) -> Vec<String> {
        self.stand.processes().into_iter().map(|(_, name)| name).collect()
    }

    /// The standard output of the worker, if it is a pipe.
    pub(super) fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }
}

/// The stand kills what a worker leaves; this reaps the process that was started.
impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if self.status.is_none() {
            // It may have ended by itself.
            let _gone = killpg(self.pid(), Signal::SIGKILL);
            let _reaped = self.child.wait();
        }
    }
}

/// One JSON document, and nothing but white space around it.
pub(super) fn document(bytes: &[u8]) -> Check<Value> {
    match serde_json::from_slice(bytes) {
        Ok(document) => Ok(document),
        Err(error) => fault(
            "one JSON document in one reading",
            format_args!("{error} in {} bytes: {}", bytes.len(), String::from_utf8_lossy(bytes)),
        ),
    }
}

/// The value, or a fault with the error.
pub(super) fn or_fault<T>(expected: &str, result: std::io::Result<T>) -> Check<T> {
    result.or_else(|error| fault(expected, error))
}
