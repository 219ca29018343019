//! A plain host: it starts a built worker and speaks to it over its FIFOs.
//!
//! Only the wire is known here: no part of `rlm-env` is used, so that the workers are tested as any other host would use
//! them. A worker that is dropped ends, which is checked.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::control::ControlDir;
use rlm_core::protocol::{Context, Info, Outcome, Response, State};
use rlm_core::worker::descendants;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{assert_no_marked_process, children, marked_processes, marking, process_with_open};
use crate::wait::{end_of, holds_within, read_to_end, wait_readable, wait_until};
use crate::{AT_ONCE, PATIENCE, default_python, program, variable};

/// The configuration of a worker to start.
#[derive(Debug)]
pub struct Setup {
    program: PathBuf,
    arguments: Vec<OsString>,
    env: Vec<(String, String)>,
    prepare: fn(&ControlDir),
    stderr: Stdio,
    fs_root: Option<PathBuf>,
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
        Self {
            program: program(name),
            arguments,
            env,
            prepare: |_| {},
            stderr: Stdio::inherit(),
            fs_root: None,
        }
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

    /// Sets the session's directory, which exists. Otherwise it gets one of its own.
    #[must_use]
    pub fn fs_root(mut self, fs_root: PathBuf) -> Self {
        self.fs_root = Some(fs_root);
        self
    }

    /// Starts the worker and waits until it is ready.
    ///
    /// # Panics
    /// It does not become ready.
    #[must_use]
    pub fn start(self) -> Worker {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("rlm_fs");
        fs::create_dir(&own).unwrap();
        let fs_root = self.fs_root.unwrap_or(own);
        let control = ControlDir::new(dir.path().join("rlm_control"));
        fs::create_dir(control.path()).unwrap();
        let context =
            Context { fs_root: fs_root.clone(), fs_metadata: Value::Null, allowed_paths: Vec::new() };
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
            .envs(marking(&mark))
            // If the test is killed, its worker ends too.
            .env("RLM_HOST_PID", std::process::id().to_string())
            .envs(variable("RLM_TEST_CONFINE").map(|level| ("RLM_CONFINE", level)))
            .envs(variable("RLM_TEST_FORK_SERVER").map(|name| ("RLM_FORK_SERVER_NAME", name)))
            .envs(self.env)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.stderr)
            .process_group(0)
            .spawn()
            .unwrap();
        let mut pipe = child.stdout.take().unwrap();
        wait_readable(&pipe, PATIENCE);
        let mut ready = [0; 6];
        let count = pipe.read(&mut ready).unwrap();
        assert_eq!(&ready[..count], b"ready\n", "the worker ended before it was ready");
        Worker { child, control, fs_root, _dir: dir, mark, seq: 0, status: None }
    }
}

/// A running worker and its directories.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    /// Control directory of the worker.
    pub control: ControlDir,
    fs_root: PathBuf,
    _dir: TempDir,
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
        self.fs_root.clone()
    }

    /// The process that was started: the guard.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// The process that serves: the guard's child, or that of a fork server, which has the command FIFO open.
    #[must_use]
    pub fn server(&self) -> Pid {
        let child = children(self.pid()).first().copied();
        child.unwrap_or_else(|| {
            let mut server = None;
            // It opens the FIFO again after each host.
            wait_until("a process serves", || {
                server = process_with_open(&self.control.command_fifo());
                server.is_some()
            });
            server.expect("it serves")
        })
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

    /// Asks for a branch, and returns its name and the response.
    pub fn leave_branch(&mut self, fields: Value) -> (String, Response) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rlm-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut request = fields;
        (request["op"], request["seq"], request["name"]) = ("branch".into(), 0.into(), name.clone().into());
        self.send(request.to_string().as_bytes());
        (name, self.receive())
    }

    /// Starts a worker as a branch of this session, in the same directory.
    #[must_use]
    pub fn branch(&mut self, setup: Setup) -> Self {
        let (name, response) = self.leave_branch(json!({}));
        assert_eq!(response.outcome, Outcome::Ok, "{response:?}");
        setup.env("RLM_BRANCH_NAME", name).fs_root(self.fs_root()).start()
    }

    /// The worker's description of the session.
    #[must_use]
    pub fn info(&self) -> Info {
        self.send(json!({"op": "info", "seq": 0}).to_string().as_bytes());
        serde_json::from_str(&self.receive().result.unwrap()).unwrap()
    }

    /// Runs code that must succeed, and returns its output.
    pub fn output(&mut self, code: &str) -> String {
        self.success(code).stdout
    }

    /// Runs a cell that must succeed, and returns the repr of its value, empty for None.
    pub fn value(&mut self, code: &str) -> String {
        self.success(code).result.unwrap_or_default()
    }

    fn success(&mut self, code: &str) -> Response {
        let response = self.call(code);
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{code:?}: {response:?}");
        response
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
        let fifo = self.try_commands().expect("a reader");
        nix::fcntl::fcntl(&fifo, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
        fifo
    }

    /// The command FIFO, which a write does not wait for either.
    pub(crate) fn try_commands(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK).open(self.control.command_fifo())
    }

    /// Reads one response, to end of file.
    pub fn receive(&self) -> Response {
        self.receive_from(&self.open_responses())
    }

    /// Reads one response from a FIFO that [`Self::open_responses`] has opened, or another.
    pub fn receive_from(&self, fifo: &File) -> Response {
        let text = read_to_end(fifo);
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
        self.try_responses().unwrap()
    }

    /// [`Self::open_responses`], where the FIFO may be gone.
    pub(crate) fn try_responses(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK).open(self.control.response_fifo())
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
        *self.status.insert(end_of(&mut self.child))
    }

    /// The status of the worker, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.status = self.status.or_else(|| self.child.try_wait().ok().flatten());
        self.status
    }

    /// The log of the worker so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.control.log_file()).unwrap_or_default()
    }

    /// The running processes of this worker's session, including the worker's own.
    #[must_use]
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let mut found = marked_processes(&self.mark);
        // Processes that a fork server has forked show its environment.
        if variable("RLM_TEST_FORK_SERVER").is_some()
            && let Some(server) = process_with_open(&self.control.command_fifo())
        {
            let tree = [server].into_iter().chain(descendants::below(server));
            let known: Vec<Pid> = found.iter().map(|(pid, _)| *pid).collect();
            found.extend(tree.filter(|pid| !known.contains(pid)).map(|pid| (pid, "forked".to_owned())));
        }
        found
    }

    /// Drops the worker, which must end.
    pub fn end(self) {
        drop(self);
    }

    /// Ends the worker by SIGTERM, and checks that this is quick and leaves no process.
    fn must_end(&mut self) {
        let begun = Instant::now();
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        let took = begun.elapsed();
        let log = self.log();
        assert!(took < AT_ONCE, "SIGTERM took {took:?}: {log}");
        assert_eq!(status.code(), Some(128 + libc::SIGTERM), "{status:?} after {took:?}: {log}");
        assert!(!self.control.ready_flag().exists(), "the ready flag was left");
        self.assert_nothing_left();
    }

    /// Checks that no process of the session is left.
    pub fn assert_nothing_left(&self) {
        assert_no_marked_process(&self.mark);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.status.is_some() {
            return;
        }
        if std::thread::panicking() {
            // The test's own panic says what is wrong.
            let _gone = kill(self.pid(), Signal::SIGTERM);
            let _ended =
                holds_within(PATIENCE, || self.child.try_wait().is_ok_and(|status| status.is_some()));
            let _gone = self.child.kill();
            let _reaped = self.child.wait();
        } else {
            self.must_end();
        }
    }
}
