//! The table of faults: each fault at each moment, in both languages, and what must become of the worker.
//!
//! A cell starts a worker, brings it to the moment, does the fault, and checks the expectation; then nothing may be left. The
//! table is the function [`Fault::expected`]: it is total, so a fault or a moment without an expectation does not compile.
//! Faults at the start of a worker, and of its files, are in `e2e/endings.rs` and `e2e/faults.rs`.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::protocol::{Response, State};
use rlm_tests::{Setup, Worker, read_to_end, set_soft_limit, shell_status, wait_until};
use serde_json::json;

/// A process of a worker.
#[derive(Clone, Copy, Debug)]
enum Process {
    Guard,
    Server,
    Interpreter,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill(Process),
    Stop(Process),
    Terminate(Process),
    /// The FIFO for requests is removed.
    NoCommands,
    /// The FIFO for responses is removed.
    NoResponses,
    NoControlDir,
    NoWorkdir,
    /// No file of the worker can grow any more.
    FullDisk,
    /// No descriptor is left to this process.
    NoDescriptors(Process),
    /// The interpreter's address space cannot grow.
    NoMemory,
    HostDies,
    /// The host opens the response FIFO, reads nothing, and calls again.
    HostReadsNothing,
    /// The host stops in the middle of the response, and calls again.
    HostReadsHalf,
    /// Another host opens the response FIFO too.
    TwoHosts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// After a call.
    Idle,
    /// In a call that prints nothing.
    Running,
    /// In a call that prints without pause.
    Printing,
    /// The call has ended, and nobody reads its response.
    Unread,
    /// The worker ends the programs of a session that is reset.
    Resetting,
}

const MOMENTS: [Moment; 5] =
    [Moment::Idle, Moment::Running, Moment::Printing, Moment::Unread, Moment::Resetting];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Bash,
    Python,
}

/// The state in which the worker must be after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Every request gets its response, and the session keeps its state.
    Keeps,
    /// Every request gets its response; a response says so if the state is lost.
    Serves,
    /// It ends with this status, as a shell shows it.
    Ends(i32),
    /// One or the other, but no request waits for ever.
    ServesOrEnds(i32),
}

impl Fault {
    fn expected(self, moment: Moment, language: Language) -> Expected {
        use Expected::{Ends, Keeps, Serves, ServesOrEnds};
        match (self, moment) {
            // A reset replaces the interpreter anyway.
            (Self::Kill(Process::Interpreter) | Self::NoMemory, Moment::Resetting) => Serves,
            (Self::Kill(Process::Guard | Process::Server), _) => Ends(128 + libc::SIGKILL),
            (Self::Kill(Process::Interpreter), _) => Serves,
            (Self::Stop(_), Moment::Resetting) => Serves,
            (Self::Stop(Process::Guard | Process::Server | Process::Interpreter), _) => Keeps,
            (Self::Terminate(Process::Guard | Process::Server), _) => Ends(128 + libc::SIGTERM),
            // An interactive bash ignores SIGTERM.
            (Self::Terminate(Process::Interpreter), Moment::Resetting) => Serves,
            (Self::Terminate(Process::Interpreter), _) => match language {
                Language::Bash => Keeps,
                Language::Python => Serves,
            },
            (Self::NoCommands | Self::NoResponses | Self::NoControlDir, _) => Ends(3),
            (_, Moment::Resetting) if !matches!(self, Self::HostDies | Self::NoDescriptors(_)) => Serves,
            (Self::NoWorkdir | Self::FullDisk, _) => Keeps,
            (Self::NoDescriptors(Process::Guard), Moment::Resetting) => Serves,
            (Self::NoDescriptors(Process::Guard), _) => Keeps,
            (Self::NoDescriptors(Process::Server), _) => ServesOrEnds(3),
            (Self::NoDescriptors(Process::Interpreter) | Self::NoMemory, _) => Serves,
            (Self::HostDies, _) => Ends(0),
            (Self::HostReadsNothing | Self::HostReadsHalf | Self::TwoHosts, _) => Keeps,
        }
    }
}

/// Waits until one of these is readable, and returns its place.
fn one_readable(readers: &[File; 2]) -> usize {
    let mut found = None;
    wait_until("one of two hosts can read", || {
        found = readers.iter().position(is_readable);
        found.is_some()
    });
    found.unwrap()
}

fn is_readable(reader: &File) -> bool {
    let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO) == Ok(1)
}

/// One cell of the table.
struct Cell {
    fault: Fault,
    moment: Moment,
    language: Language,
    worker: Worker,
    host: Child,
    /// `seq` of the request that is under way.
    pending: Option<i64>,
}

impl Cell {
    fn start(fault: Fault, moment: Moment, language: Language) -> Self {
        let host = Command::new("sleep").arg("1000").spawn().unwrap();
        let setup = match language {
            Language::Bash => Setup::bash(),
            Language::Python => Setup::python(),
        };
        let worker = setup.env("RLM_HOST_PID", host.id()).start();
        Self { fault, moment, language, worker, host, pending: None }
    }

    fn name(&self) -> String {
        format!("{:?}, {:?}, {:?}", self.fault, self.moment, self.language)
    }

    fn in_language(&self, bash: &'static str, python: &'static str) -> &'static str {
        match self.language {
            Language::Bash => bash,
            Language::Python => python,
        }
    }

    fn reach_moment(&mut self) {
        let set = self.in_language("kept=yes", "kept = 'yes'");
        // The history is larger than the files in memory by which code comes to the interpreter.
        self.worker.call(&format!("{set} #{}", "-".repeat(20_000)));
        let limit = json!({"timeout": 5});
        match self.moment {
            Moment::Idle => {}
            Moment::Running => {
                let code = self.in_language(
                    ": >begun; until [ -e go ]; do sleep 0.01; done",
                    "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)",
                );
                self.pending = Some(self.worker.send_call(code, limit));
                self.worker.wait_for_file("begun");
            }
            Moment::Printing => {
                let code = self.in_language(
                    "until [ -e go ]; do echo some text; : >begun; done",
                    "import os\nwhile not os.path.exists('go'):\n    print('some text')\n    open('begun', 'w').close()",
                );
                self.pending = Some(self.worker.send_call(code, limit));
                self.worker.wait_for_file("begun");
            }
            Moment::Unread => {
                let code = self.in_language("echo some text", "print('some text')");
                let history = self.worker.control.history_file();
                self.pending = Some(self.worker.send_call(code, limit));
                let lines = || fs::read_to_string(&history).unwrap().lines().count();
                wait_until("the call is in the history", || lines() == 2);
            }
            Moment::Resetting => {
                let code = self.in_language(
                    "bash -c 'trap \"\" HUP TERM; : >begun; while :; do sleep 0.01; done' & :",
                    "import subprocess\nchild = subprocess.Popen(['bash', '-c', 'trap \"\" HUP TERM; : >begun; while :; do sleep 0.01; done'])",
                );
                self.worker.call(code);
                self.worker.wait_for_file("begun");
                let interpreter = self.worker.interpreter();
                self.worker.send(br#"{"op": "reset", "seq": 1000}"#);
                self.pending = Some(1000);
                wait_until("the interpreter is gone", || kill(interpreter, None).is_err());
            }
        }
    }

    fn pid(&self, process: Process) -> Option<Pid> {
        match process {
            Process::Guard => Some(self.worker.pid()),
            Process::Server => Some(self.worker.server()),
            Process::Interpreter if self.moment == Moment::Resetting => None,
            Process::Interpreter => Some(self.worker.interpreter()),
        }
    }

    fn signal(&self, process: Process, signal: Signal) {
        if let Some(pid) = self.pid(process) {
            kill(pid, signal).unwrap();
        }
    }

    fn limit(&self, process: Process, resource: libc::__rlimit_resource_t, value: u64) {
        if let Some(pid) = self.pid(process) {
            set_soft_limit(pid, resource, value);
        }
    }

    fn do_fault(&mut self) {
        let control = self.worker.control.clone();
        match self.fault {
            Fault::Kill(process) => self.signal(process, Signal::SIGKILL),
            Fault::Stop(process) => self.signal(process, Signal::SIGSTOP),
            Fault::Terminate(process) => self.signal(process, Signal::SIGTERM),
            Fault::NoCommands => fs::remove_file(control.command_fifo()).unwrap(),
            Fault::NoResponses => fs::remove_file(control.response_fifo()).unwrap(),
            Fault::NoControlDir => remove_while_used(control.path()),
            Fault::NoWorkdir => remove_while_used(&self.worker.fs_root()),
            Fault::FullDisk => {
                let history = fs::metadata(control.history_file()).unwrap().len();
                self.limit(Process::Server, libc::RLIMIT_FSIZE, history);
            }
            Fault::NoDescriptors(process) => {
                if let Some(pid) = self.pid(process) {
                    // Numbers count, and they have gaps: a few more can be opened.
                    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
                    self.limit(process, libc::RLIMIT_NOFILE, open);
                }
            }
            Fault::NoMemory => self.limit(Process::Interpreter, libc::RLIMIT_AS, 1 << 20),
            Fault::HostDies => self.host.kill().unwrap(),
            Fault::HostReadsNothing | Fault::HostReadsHalf | Fault::TwoHosts => {}
        }
        if self.moment != Moment::Idle && fs::exists(self.worker.fs_root()).unwrap() {
            fs::write(self.worker.fs_root().join("go"), "").unwrap();
        }
        self.read_badly();
    }

    /// Reads the pending response as the fault wants it.
    fn read_badly(&mut self) {
        if self.pending.is_none() {
            return;
        }
        match self.fault {
            Fault::HostReadsNothing => drop(self.worker.open_responses()),
            Fault::HostReadsHalf => {
                let reader = self.worker.open_responses();
                rlm_tests::wait_readable(&reader, rlm_tests::PATIENCE);
                assert_eq!((&reader).read(&mut [0]).unwrap(), 1);
                self.pending = None;
            }
            Fault::TwoHosts => {
                let readers = [self.worker.open_responses(), self.worker.open_responses()];
                let first = one_readable(&readers);
                let text = read_to_end(&readers[first]);
                let response: Response = serde_json::from_slice(&text).unwrap();
                // The other one shares its FIFO, or waits at the next one: there the response may be delivered again.
                let other = &readers[1 - first];
                let has_more = is_readable(other);
                assert!(!has_more || [Vec::new(), text].contains(&read_to_end(other)));
                assert_eq!(Some(response.seq), self.pending.take());
            }
            _ => {}
        }
    }

    /// Takes the pending response, and makes two more calls. Returns the worst state that a response told of.
    fn is_served(&mut self) -> State {
        let mut states = Vec::new();
        if let Some(seq) = self.pending.take() {
            let response = self.worker.receive();
            assert_eq!(response.seq, seq, "{response:?}");
            states.push(response.state);
        }
        for code in ["1", self.in_language("echo on", "print('on')")] {
            let response = self.worker.call_with(code, json!({"timeout": 20}));
            states.push(response.state);
            if code != "1" {
                assert_eq!(response.stdout, "on\n", "{response:?}");
            }
        }
        let show = self.in_language("echo ${kept-no}", "print(globals().get('kept', 'no'))");
        let kept = self.worker.call(show).stdout == "yes\n";
        let worst = states.into_iter().max_by_key(|state| *state != State::Kept).unwrap();
        // The response of the reset may be the one that was not read.
        let was_told = worst != State::Kept || self.moment == Moment::Resetting;
        assert!(kept || was_told, "the state is lost, and no response says so");
        worst
    }

    /// True if the worker has ended, once it has answered or ended.
    fn has_ended_instead(&mut self) -> bool {
        // A reader that comes when the worker has ended waits for ever.
        let reader = self.worker.open_responses();
        self.worker.send_call("1", json!({}));
        rlm_tests::wait_readable(&reader, rlm_tests::PATIENCE);
        read_to_end(&reader).is_empty()
    }

    fn check(&mut self) {
        self.reach_moment();
        self.do_fault();
        match self.fault.expected(self.moment, self.language) {
            Expected::Keeps => {
                assert_eq!(self.is_served(), State::Kept);
                self.end();
            }
            Expected::Serves => {
                self.is_served();
                self.end();
            }
            Expected::Ends(status) => self.has_ended(status),
            Expected::ServesOrEnds(status) => {
                let answered = self.pending.take().is_none_or(|_seq| !self.worker.receive_bytes().is_empty());
                if answered && !self.has_ended_instead() { self.end() } else { self.has_ended(status) }
            }
        }
    }

    fn has_ended(&mut self, status: i32) {
        assert_eq!(shell_status(self.worker.wait()), status);
        wait_until("everything has ended", || self.worker.processes().is_empty());
    }

    fn end(&mut self) {
        for process in [Process::Guard, Process::Server] {
            self.signal(process, Signal::SIGCONT);
        }
        let worker = &mut self.worker;
        worker.signal(Signal::SIGTERM);
        assert_eq!(shell_status(worker.wait()), 128 + libc::SIGTERM);
        worker.assert_nothing_left();
    }
}

/// Removes a directory in which the worker or its call may make a file in between.
fn remove_while_used(directory: &Path) {
    wait_until("the directory is removed", || {
        let _not_empty = fs::remove_dir_all(directory);
        !directory.exists()
    });
}

impl Drop for Cell {
    fn drop(&mut self) {
        // The fault may have killed it.
        let _dead_already = self.host.kill();
        let _reaped = self.host.wait();
    }
}

/// Checks a row of the table: the fault at each moment, in both languages.
fn check(fault: Fault) {
    let mut failed = Vec::new();
    for language in [Language::Bash, Language::Python] {
        for moment in MOMENTS {
            let mut cell = Cell::start(fault, moment, language);
            let name = cell.name();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cell.check()));
            if result.is_err() {
                failed.push(name);
            }
        }
    }
    assert_eq!(failed, [""; 0], "red cells");
}

macro_rules! rows {
    ($($name:ident: $fault:expr;)*) => {
        $(#[test]
        fn $name() {
            check($fault);
        })*
    };
}

rows! {
    the_guard_is_killed: Fault::Kill(Process::Guard);
    the_server_is_killed: Fault::Kill(Process::Server);
    the_interpreter_is_killed: Fault::Kill(Process::Interpreter);
    the_guard_is_stopped: Fault::Stop(Process::Guard);
    the_server_is_stopped: Fault::Stop(Process::Server);
    the_interpreter_is_stopped: Fault::Stop(Process::Interpreter);
    the_guard_is_terminated: Fault::Terminate(Process::Guard);
    the_server_is_terminated: Fault::Terminate(Process::Server);
    the_interpreter_is_terminated: Fault::Terminate(Process::Interpreter);
    the_command_fifo_is_removed: Fault::NoCommands;
    the_response_fifo_is_removed: Fault::NoResponses;
    the_control_directory_is_removed: Fault::NoControlDir;
    the_working_directory_is_removed: Fault::NoWorkdir;
    the_disk_is_full: Fault::FullDisk;
    the_guard_has_no_descriptors: Fault::NoDescriptors(Process::Guard);
    the_server_has_no_descriptors: Fault::NoDescriptors(Process::Server);
    the_interpreter_has_no_descriptors: Fault::NoDescriptors(Process::Interpreter);
    the_interpreter_has_no_memory: Fault::NoMemory;
    the_host_dies: Fault::HostDies;
    the_host_reads_nothing: Fault::HostReadsNothing;
    the_host_reads_half: Fault::HostReadsHalf;
    two_hosts_read: Fault::TwoHosts;
}
