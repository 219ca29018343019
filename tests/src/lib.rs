//! Helpers of the end-to-end tests: a plain host that drives a built worker over its FIFOs, and checks for leftovers.
//!
//! The host here only knows the wire: no part of `rlm-env` is used, so that the workers are tested as any other host
//! would use them. Everything waits for events. A worker that a test forgets is ended on drop, and every process
//! carries a mark in its environment by which [`Worker::end`] finds processes that outlive it.

pub mod endpoint;
mod place;
pub mod scripted_model;
pub mod soak;
pub mod tree;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::control::ControlDir;
use rlm_core::protocol::{Context, Info, Outcome, Response, State};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use self::place::Place;

/// A test that waits longer than this for an event has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The limit for what happens at once: some hundred times what it takes, since other tests keep the processors busy, and below what
/// anything takes that waits for a limit in vain.
pub const AT_ONCE: Duration = Duration::from_secs(10);

/// A number that is as large as it is promised where the tests are those of `tests/nightly`, and smaller in every other run.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a test process has no main of ours")]
pub fn scaled(nightly: usize, otherwise: usize) -> usize {
    if std::env::var_os("RLM_NIGHTLY").is_some() { nightly } else { otherwise }
}

/// The variable that marks every process of a worker.
const MARK: &str = "RLM_TEST_MARK";

/// Path of a built program, which is next to the directory of the test binaries.
///
/// # Panics
/// The program is not built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let found = test.ancestors().map(|dir| dir.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("{name} is not built: run `cargo build --workspace` with the same profile first")
    })
}

/// The directory of the built programs.
///
/// # Panics
/// They are not built.
#[must_use]
pub fn programs() -> PathBuf {
    program("rlm-worker-bash").parent().expect("a program lies in a directory").to_owned()
}

/// The configuration of a worker to start.
#[derive(Debug)]
pub struct Setup {
    program: PathBuf,
    arguments: Vec<OsString>,
    env: Vec<(String, String)>,
    prepare: fn(&ControlDir),
    stderr: Stdio,
}

impl Setup {
    /// The bash worker.
    #[must_use]
    pub fn bash() -> Self {
        Self::of("rlm-worker-bash")
    }

    /// The Python worker, with the default Python of the tests.
    #[must_use]
    pub fn python() -> Self {
        Self::python_at(&default_python())
    }

    /// The Python worker, with this Python.
    #[must_use]
    pub fn python_at(python: &Path) -> Self {
        Self::of("rlm-worker-python").argument("--python").argument(python)
    }

    /// A worker program.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let (arguments, env) = (Vec::new(), Vec::new());
        Self { program: program(name), arguments, env, prepare: |_| {}, stderr: Stdio::inherit() }
    }

    /// Starts this file instead of the program.
    #[must_use]
    pub fn program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// Adds an argument for the worker.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds a variable to the worker's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.env.push((name.to_owned(), value.to_string()));
        self
    }

    /// Prepares the control directory before the worker starts.
    #[must_use]
    pub fn prepare(mut self, prepare: fn(&ControlDir)) -> Self {
        self.prepare = prepare;
        self
    }

    /// Sets the destination of the worker's standard error, instead of the test's own.
    #[must_use]
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = stderr.into();
        self
    }

    /// Starts the worker and waits until it is ready.
    ///
    /// # Panics
    /// It does not become ready.
    #[must_use]
    pub fn start(self) -> Worker {
        let dir = tempfile::tempdir().unwrap();
        let fs_root = dir.path().join("rlm_fs");
        let control = ControlDir::new(dir.path().join("rlm_control"));
        fs::create_dir(&fs_root).unwrap();
        fs::create_dir(control.path()).unwrap();
        let context = Context { fs_root, fs_metadata: Value::Null, allowed_paths: Vec::new() };
        control.write_context(&context).unwrap();
        (self.prepare)(&control);
        let mark = dir.path().file_name().unwrap().to_string_lossy().into_owned();
        let mut child = Command::new(&self.program)
            .arg("--control-dir")
            .arg(control.path())
            .args(["--ready-fd", "1"])
            .args(self.arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", dir.path())
            .env("LANG", "C.UTF-8")
            .env(MARK, &mark)
            .env("RLM_PASS_ENV", MARK)
            // If the test is killed, its worker ends too.
            .env("RLM_HOST_PID", std::process::id().to_string())
            .envs(variable("RLM_TEST_CONFINE").map(|level| ("RLM_CONFINE", level)))
            .envs(self.env)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.stderr)
            .process_group(0)
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let mut pipe = child.stdout.take().unwrap();
        wait_readable(&pipe, PATIENCE);
        let mut byte = [0; 6];
        let count = pipe.read(&mut byte).unwrap();
        ready.push_str(&String::from_utf8_lossy(&byte[..count]));
        assert_eq!(ready, "ready\n", "the worker ended before it was ready");
        Worker { child, control, dir, mark, seq: 0, status: None }
    }
}

/// A running worker and its directories.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    /// Control directory of the worker.
    pub control: ControlDir,
    dir: TempDir,
    mark: String,
    seq: i64,
    status: Option<ExitStatus>,
}

impl Worker {
    /// A bash worker with default settings.
    #[must_use]
    pub fn bash() -> Self {
        Setup::bash().start()
    }

    /// A Python worker with default settings.
    #[must_use]
    pub fn python() -> Self {
        Setup::python().start()
    }

    /// Working directory of the session.
    #[must_use]
    pub fn fs_root(&self) -> PathBuf {
        self.dir.path().join("rlm_fs")
    }

    /// The process that was started: the guard.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// The process that serves: the guard's child.
    #[must_use]
    pub fn server(&self) -> Pid {
        children(self.pid())[0]
    }

    /// The shell or the Python interpreter.
    #[must_use]
    pub fn interpreter(&self) -> Pid {
        children(self.server())[0]
    }

    /// Runs code and returns the response.
    pub fn call(&mut self, code: &str) -> Response {
        self.call_with(code, json!({}))
    }

    /// Runs code with further request fields.
    pub fn call_with(&mut self, code: &str, fields: Value) -> Response {
        let seq = self.send_call(code, fields);
        let response = self.receive();
        assert_eq!(response.seq, seq, "out of step: {response:?}");
        response
    }

    /// The worker's description of the session.
    #[must_use]
    pub fn info(&self) -> Info {
        self.send(json!({"op": "info", "seq": 0}).to_string().as_bytes());
        serde_json::from_str(&self.receive().result.unwrap()).unwrap()
    }

    /// Runs code that must succeed, and returns its output.
    pub fn output(&mut self, code: &str) -> String {
        let response = self.call(code);
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{code:?}: {response:?}");
        response.stdout
    }

    /// Runs a cell that must succeed, and returns the repr of its value, empty for None.
    pub fn value(&mut self, code: &str) -> String {
        let response = self.call(code);
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{code:?}: {response:?}");
        response.result.unwrap_or_default()
    }

    /// Sends a call and returns its `seq`.
    pub fn send_call(&mut self, code: &str, mut fields: Value) -> i64 {
        self.seq += 1;
        fields["code"] = code.into();
        fields["seq"] = self.seq.into();
        self.send(fields.to_string().as_bytes());
        self.seq
    }

    /// Writes to the command FIFO, opened without waiting, as hosts do, and closes it.
    pub fn send(&self, bytes: &[u8]) {
        self.open_commands().write_all(bytes).unwrap();
    }

    /// The command FIFO, opened without waiting: that fails if nothing reads it.
    #[must_use]
    pub fn open_commands(&self) -> File {
        let path = self.control.command_fifo();
        let fifo =
            OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).expect("a reader");
        nix::fcntl::fcntl(&fifo, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
        fifo
    }

    /// Reads one response, to end of file.
    pub fn receive(&self) -> Response {
        let text = self.receive_bytes();
        serde_json::from_slice(&text)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text)))
    }

    /// Reads one response as bytes.
    #[must_use]
    pub fn receive_bytes(&self) -> Vec<u8> {
        read_to_end(&self.open_responses())
    }

    /// The response FIFO, opened without waiting.
    #[must_use]
    pub fn open_responses(&self) -> File {
        let path = self.control.response_fifo();
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap()
    }

    /// Signals the process that was started.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits until a file appears in the session's directory, by which a call shows its progress.
    pub fn wait_for_file(&self, name: &str) {
        let path = self.fs_root().join(name);
        wait_until(&format!("{} exists", path.display()), || path.exists());
    }

    /// Waits until the worker has ended.
    pub fn wait(&mut self) -> ExitStatus {
        wait_until("the worker has ended", || {
            self.status = self.child.try_wait().unwrap();
            self.status.is_some()
        });
        self.status.unwrap()
    }

    /// The running processes of this worker's session, including the worker's own.
    #[must_use]
    pub fn processes(&self) -> Vec<(Pid, String)> {
        marked_processes(&self.mark)
    }

    /// Ends the worker by SIGTERM, and checks that this is quick and leaves no process.
    pub fn end(mut self) {
        let begun = Instant::now();
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        let took = begun.elapsed();
        let log = fs::read_to_string(self.control.log_file()).unwrap_or_default();
        assert!(took < AT_ONCE, "SIGTERM took {took:?}: {log}");
        assert_eq!(status.code(), Some(128 + libc::SIGTERM), "{status:?} after {took:?}: {log}");
        assert!(!self.control.ready_flag().exists(), "the ready flag was left");
        self.assert_nothing_left();
    }

    /// Checks that no process of the session is left.
    pub fn assert_nothing_left(&self) {
        assert_eq!(self.processes(), [], "processes outlive the worker");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.status.is_none() {
            // A failing test ends here; its own panic says what is wrong.
            let _gone = kill(self.pid(), Signal::SIGTERM);
            let _reaped = self.child.wait();
        }
    }
}

/// A variable of the environment.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    variables().into_iter().find_map(|(known, value)| (known == name).then_some(value))
}

/// The environment of the tests.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a test process has no main of ours")]
pub fn variables() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

/// Every Python from 3.10 on on this machine: the system's, and those of pyenv; if it has neither, the one on `PATH`.
/// Prints which are missing.
///
/// # Panics
/// No such Python was found.
#[must_use]
pub fn pythons() -> Vec<PathBuf> {
    if let Some(only) = variable("RLM_TEST_PYTHON") {
        return vec![only.into()];
    }
    let home = std::env::home_dir().unwrap_or_default();
    let mut found: Vec<PathBuf> = vec![PathBuf::from("/usr/bin/python3")];
    found.retain(|python| is_new_enough(python));
    for minor in 10..=14 {
        let of_minor = fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
        let prefix = format!("3.{minor}.");
        let mut of_minor: Vec<PathBuf> = of_minor
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .map(|entry| entry.path().join("bin/python3"))
            .filter(|python| python.is_file())
            .collect();
        of_minor.sort();
        match of_minor.pop() {
            Some(python) => found.push(python),
            None => skipped(format_args!("no CPython 3.{minor} under ~/.pyenv/versions")),
        }
    }
    if found.is_empty() {
        let path = variable("PATH").unwrap_or_default();
        found.extend(
            std::env::split_paths(&path).map(|dir| dir.join("python3")).find(|python| is_new_enough(python)),
        );
    }
    assert!(
        !found.is_empty(),
        "the tests need a CPython from 3.10 on: at /usr/bin/python3, of pyenv, or on PATH"
    );
    found
}

/// Says why a test, or a part of one, tests nothing here. Visible when the output of a test is shown.
#[expect(clippy::print_stdout, reason = "it is for the person who reads a test's output")]
pub fn skipped(reason: impl std::fmt::Display) {
    println!("skipped: {reason}");
}

fn is_new_enough(python: &Path) -> bool {
    let code = "import sys; sys.exit(sys.version_info < (3, 10))";
    Command::new(python).args(["-I", "-c", code]).status().is_ok_and(|status| status.success())
}

/// The first of [`pythons`].
#[must_use]
pub fn default_python() -> PathBuf {
    pythons().swap_remove(0)
}

/// Exit status of a process, as a shell would show it.
#[must_use]
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Interval at which a condition is checked.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Waits until a condition holds for which there is no event, such as the state of another process, a file that it
/// creates, or a counter. If there is something to wait for, a test waits for that.
///
/// # Panics
/// The condition does not hold within [`PATIENCE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        // Nothing tells of such a condition: it has to be looked at.
        std::thread::sleep(LOOK_EVERY);
    }
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

/// True if a process is gone or a zombie.
#[must_use]
pub fn is_over(pid: Pid) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    }
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
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until a descriptor is readable.
///
/// # Panics
/// The descriptor is not readable within `limit`.
pub fn wait_readable(fd: &impl AsFd, limit: Duration) {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let ready = poll(&mut fds, PollTimeout::try_from(limit).unwrap()).unwrap();
    assert_eq!(ready, 1, "nothing to read on descriptor {} within {limit:?}", fd.as_fd().as_raw_fd());
}

/// Writes a program: a script with its `#!` line.
///
/// # Panics
/// It cannot be written.
pub fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("a program can be written");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, executable).expect("its owner may change its mode");
}

/// The children of a process.
#[must_use]
pub fn children(pid: Pid) -> Vec<Pid> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().map(|child| Pid::from_raw(child.parse().unwrap())).collect()
}

/// Number of open descriptors of a process of a worker, without those of response FIFOs, of which a server that is idle has at
/// most four, and a guard none.
#[must_use]
pub fn open_descriptors(pid: Pid) -> usize {
    let count = || descriptors(pid).unwrap();
    wait_until("the response FIFOs are closed", || count().of_responses <= 4);
    count().others
}

/// Sets the soft limit of a resource for a running process.
///
/// # Panics
/// The process has ended, or its hard limit is lower.
pub fn set_soft_limit(pid: Pid, resource: libc::__rlimit_resource_t, value: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live struct; nothing is set.
    let got = unsafe { libc::prlimit(pid.as_raw(), resource, std::ptr::null(), &raw mut limit) };
    limit.rlim_cur = value;
    // SAFETY: the pointer is to a live struct; no old limit is asked for.
    let set = unsafe { libc::prlimit(pid.as_raw(), resource, &raw const limit, std::ptr::null_mut()) };
    assert_eq!((got, set), (0, 0), "{}", Errno::last());
}

/// The numbers of open descriptors of a process.
pub(crate) struct Descriptors {
    of_responses: usize,
    pub(crate) others: usize,
}

pub(crate) fn descriptors(pid: Pid) -> io::Result<Descriptors> {
    let mut counts = Descriptors { of_responses: 0, others: 0 };
    for fd in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        // A descriptor that has just been closed has no link any more.
        let Ok(link) = fs::read_link(fd.path()) else { continue };
        let is_response = link.to_string_lossy().contains("/rlm_res");
        *if is_response { &mut counts.of_responses } else { &mut counts.others } += 1;
    }
    Ok(counts)
}

/// True if this process runs a single test. Otherwise runs the test with this path in a process of its own.
///
/// # Panics
/// The test fails in that process.
#[must_use]
pub fn is_alone(path: &str) -> bool {
    const ALONE: &str = "RLM_TEST_ALONE";
    if variable(ALONE).is_some() {
        return true;
    }
    let (_crate, test) = path.split_once("::").expect("a path begins with the crate");
    let this = std::env::current_exe().expect("a running test has a path");
    let mut child = Command::new(this);
    child.args(["--exact", test, "--nocapture"]).env(ALONE, "1");
    assert!(child.status().unwrap().success(), "{test} fails in a process of its own");
    false
}

/// Checks that no process is left with this mark, `RLM_TEST_MARK`, in its environment.
///
/// # Panics
/// A process is left.
pub fn assert_no_marked_process(mark: &str) {
    assert_eq!(marked_processes(mark), [], "processes outlive what started them");
}

/// Every process with this mark in its environment, and its name; zombies do not count.
#[must_use]
pub fn marked_processes(mark: &str) -> Vec<(Pid, String)> {
    let needle = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == needle.as_bytes()) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((Pid::from_raw(pid), name.trim().to_owned()));
        }
    }
    found
}

/// The root of the repository.
#[must_use]
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository")
}
