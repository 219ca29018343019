//! The fork server: an interpreter that runs no cell, and from which those of sessions are forked.
//!
//! It forks a server, which is the supervisor of a session in Rust alone. That one forks the interpreter below it, also in place of
//! one that has died: see [`rlm_core::worker::fork_server`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, umask};
use nix::unistd::Pid;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rlm_core::programs;
use rlm_core::worker::descendants;
use rlm_core::worker::fork_server::{Accepted, End, ForkServer, Obstacle, close_descriptors};
use rlm_core::worker::program::serve_forked;
use rlm_core::worker::settings::{Environment, Settings};
use rlm_worker_python::fork_server::{Arguments, keep};
use rlm_worker_python::{ENGINE, Forking, Place, Python as Chosen, PythonWorker};

use crate::descriptors::{open_descriptors, silence};
use crate::forked::{self, Beginning, Served, fork_interpreter};
use crate::session::Session;
use crate::streams::flush_c_stdout;
use crate::{pipes, signals, text};

/// Exit status of a fork server that cannot start.
const CANNOT_SERVE: i32 = 3;

/// Beginnings of the names of variables that an interpreter, or what it loads, reads at its start.
const READ_AT_START: [&str; 5] = ["LANG", "LC_", "LD_", "MALLOC_", "GLIBC_"];

/// The end of the names of variables that libraries read when they are imported.
const READ_BY_LIBRARIES: &str = "_NUM_THREADS";

/// Serves until the last session has ended. The processes that it forks go on from here, and do not return either.
pub(crate) fn serve(py: Python<'_>, session: Session, arguments: Arguments) -> PyResult<Infallible> {
    let take = |fd| {
        // SAFETY: the descriptor was passed to this process, and nothing else in it owns it.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    let [listener, owner, errors, printed] =
        [arguments.listener, arguments.owner, arguments.errors, arguments.printed].map(take);
    let children: Vec<Pid> = arguments.servers.iter().map(|(pid, _)| Pid::from_raw(*pid)).collect();
    let links = arguments.servers.iter().map(|(_, link)| take(*link));
    let servers = children.iter().copied().zip(links).collect();
    #[expect(clippy::disallowed_methods, reason = "the environment is what the process is made of")]
    let variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    let mut errors = File::from(errors);
    let failure = prepare(py, &arguments.preload, &children).err();
    if let Some(reason) = &failure {
        let output = drain(printed);
        let output = if output.is_empty() { output } else { format!("; it printed:\n{output}") };
        let line = format!("rlm-worker-python: the fork server cannot start: {reason}{output}\n");
        let _nobody_listens = errors.write_all(line.as_bytes());
        if !arguments.is_renewed {
            descendants::end_all();
            pipes::end_process(CANNOT_SERVE);
        }
    } else {
        drop(printed);
    }
    let origin = Origin::of(py, &arguments, variables, failure)?;
    let mut server = ForkServer::new(listener, owner, servers).map_err(io::Error::from)?;
    silence()?;
    if arguments.ready >= 0 {
        let _nobody_waits = File::from(take(arguments.ready)).write_all(b"ready\n");
    }
    let fresh = Fresh { mask: server.mask(), preset: origin.set_by_preloads() };
    forked::prepare(Box::into_raw(Box::new(session)), Box::new(fresh));
    match server.run(|| origin.obstacle(), fork) {
        Ok(End::Forked(accepted)) => serve_session(*accepted, &origin),
        Ok(End::Stale) => Err(renew(server, errors, arguments, origin).into()),
        Ok(End::Retired) => pipes::end_process(0),
        Err(errno) => Err(io::Error::from(errno).into()),
    }
}

/// Starts the interpreter anew, in this process: its children, the servers, stay. Returns why it cannot.
fn renew(server: ForkServer, errors: File, arguments: Arguments, origin: Origin) -> io::Error {
    let (listener, owner, servers) = server.into_parts();
    let arguments = || -> io::Result<Arguments> {
        let servers = servers.into_iter().map(|(pid, link)| Ok((pid.as_raw(), keep(link)?)));
        Ok(Arguments {
            listener: keep(listener.ok_or(Errno::EBADF)?)?,
            owner: keep(owner.ok_or(Errno::EBADF)?)?,
            errors: keep(errors.into())?,
            ready: -1,
            is_renewed: true,
            servers: servers.collect::<io::Result<_>>()?,
            ..arguments
        })
    };
    match arguments() {
        Ok(arguments) => arguments.execute(&origin.engine, origin.variables),
        Err(error) => error,
    }
}

/// Imports modules, and has everything that exists so far stay where it is: the garbage collector would write to it, and so copy
/// it, in each session. `children` are those that this process has already.
fn prepare(py: Python<'_>, preload: &[String], children: &[Pid]) -> Result<(), String> {
    let in_words = |error: PyErr| text::of_exception(py, error);
    let collector = py.import("gc").map_err(in_words)?;
    let call = |name: &str| collector.call_method0(name).map(drop).map_err(in_words);
    call("disable")?;
    let mask = umask(Mode::empty());
    umask(mask);
    let open_descriptors = || open_descriptors().unwrap_or_default();
    let descriptors = open_descriptors();
    for name in preload {
        py.import(name.as_str()).map_err(|error| format!("cannot import {name}: {}", in_words(error)))?;
        let refuse =
            |what: &str| Err(format!("{name} {what} when it is imported, and a fork would not have them"));
        let count = py.import("_thread").and_then(|module| module.call_method0("_count")?.extract::<u64>());
        if count.map_err(in_words)? > 0 {
            return refuse("starts threads");
        }
        if descendants::children(Pid::this()).iter().any(|pid| !children.contains(pid)) {
            return refuse("starts programs");
        }
        if let Some(open) = open_descriptors().difference(&descriptors).next() {
            let file = fs::read_link(format!("/proc/self/fd/{open}")).unwrap_or_default();
            return refuse(&format!("leaves files or connections open ({})", file.display()));
        }
    }
    umask(mask);
    for stream in ["stdout", "stderr"] {
        let _closed = py.import("sys").and_then(|sys| sys.getattr(stream)?.call_method0("flush"));
    }
    flush_c_stdout();
    call("collect")?;
    call("freeze")?;
    // Libraries that can be forked end their threads then.
    match fork() {
        Ok(0) => pipes::end_process(0),
        Ok(tried) => drop(nix::sys::wait::waitpid(Pid::from_raw(tried), None)),
        Err(errno) => return Err(errno.desc().to_owned()),
    }
    match fs::read_dir("/proc/self/task").map_or(0, Iterator::count) {
        0 | 1 => Ok(()),
        _ => Err("what it has imported keeps threads, and a fork would not have them".to_owned()),
    }
}

/// Forks, with Python prepared for it. In the new process, Python does not know that yet: that is for the interpreter.
fn fork() -> Result<libc::pid_t, Errno> {
    // SAFETY: the interpreter's lock is held, and this is the only thread.
    unsafe { ffi::PyOS_BeforeFork() };
    // SAFETY: as above.
    let forked = unsafe { libc::fork() };
    let forked = Errno::result(forked);
    if forked != Ok(0) {
        // SAFETY: as above.
        unsafe { ffi::PyOS_AfterFork_Parent() };
    }
    forked
}

/// Serves a session in this process, which is a server now.
fn serve_session(accepted: Accepted, origin: &Origin) -> ! {
    let forking = Forking { fork: fork_interpreter, is_for_the_first: false };
    serve_forked(PythonWorker::forking(forking), accepted, |environment| origin.check(environment))
}

/// A new interpreter, which gets the environment and the clock of its session.
struct Fresh {
    /// The mask of signals.
    mask: SigSet,
    /// The variables that preloads have set.
    preset: Vec<(OsString, OsString)>,
}

impl Beginning for Fresh {
    fn enter(&mut self, place: &Place<'_>) -> io::Result<()> {
        close_descriptors(&[]);
        std::env::set_current_dir(place.cwd)
    }

    fn go_on(&mut self, py: Python<'_>, session: &mut dyn Served, place: &Place<'_>) -> PyResult<()> {
        session.lead_to(py, place.paths.clone())?;
        let os = py.import("os")?;
        os.getattr("environ")?.call_method0("clear")?;
        let environment = os.getattr("environb")?;
        let pwd = (OsString::from("PWD"), place.cwd.as_os_str().to_owned());
        let own = place.env.iter().chain([&pwd]);
        let preset = self.preset.iter().filter(|(name, _)| place.env.iter().all(|(own, _)| own != name));
        // Nothing can set a variable whose name has the sign.
        for (name, value) in own.chain(preset).filter(|(name, _)| !name.as_bytes().contains(&b'=')) {
            let bytes = |text: &OsStr| PyBytes::new(py, text.as_bytes());
            environment.set_item(bytes(name), bytes(value))?;
        }
        py.import("time")?.call_method0("tzset")?;
        py.import("gc")?.call_method0("enable")?;
        self.mask.thread_set_mask().map_err(io::Error::from)?;
        signals::block();
        Ok(())
    }
}

/// The files and variables that the process was made of. A session that needs other things, or newer ones, cannot come from it.
struct Origin {
    python: PathBuf,
    engine: PathBuf,
    files: RefCell<Vec<Source>>,
    /// The variables that were read at the start.
    variables: BTreeMap<OsString, OsString>,
    has_preloads: bool,
    /// The reason why the process could not be made.
    failure: Option<String>,
}

/// A file, or a directory of modules.
struct Source {
    path: PathBuf,
    stamp: Stamp,
    /// The entries of a directory that can be imported, or say what is installed.
    modules: BTreeSet<OsString>,
}

/// Device, inode, and time of the last change.
type Stamp = Option<(u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

impl Source {
    fn of(path: PathBuf) -> Self {
        let (stamp, modules) = (stamp(&path), modules(&path));
        Self { path, stamp, modules }
    }

    /// True if another file, or other modules, are there now.
    fn has_changed(&mut self) -> bool {
        let now = stamp(&self.path);
        if now == self.stamp {
            return false;
        }
        // Other files may come and go in a directory of modules.
        let is_same = self.path.is_dir() && modules(&self.path) == self.modules;
        if is_same {
            self.stamp = now;
        }
        !is_same
    }
}

/// The modules and packages in a directory, and the directories that say what is installed.
fn modules(directory: &Path) -> BTreeSet<OsString> {
    const ENDS: [&str; 5] = [".py", ".so", ".pth", ".dist-info", ".egg-info"];
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_module = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let has_end = ENDS.iter().any(|end| name.as_bytes().ends_with(end.as_bytes()));
        has_end || entry.path().join("__init__.py").exists()
    };
    entries.filter(is_module).map(|entry| entry.file_name()).collect()
}

impl Origin {
    fn of(
        py: Python<'_>,
        arguments: &Arguments,
        variables: BTreeMap<OsString, OsString>,
        failure: Option<String>,
    ) -> PyResult<Self> {
        let sys = py.import("sys")?;
        let python = PathBuf::from(&arguments.python);
        let engine: PathBuf = sys.getattr("orig_argv")?.get_item(5)?.extract()?;
        let path: Vec<PathBuf> = sys.getattr("path")?.extract()?;
        let settings = sys.getattr("prefix")?.extract::<PathBuf>()?.join("pyvenv.cfg");
        let parts = path.into_iter().filter(|path| path.is_absolute());
        let files = parts.chain([settings, python.clone(), engine.clone()]).map(Source::of).collect();
        let has_preloads = !arguments.preload.is_empty();
        Ok(Self { python, engine, files: RefCell::new(files), variables, has_preloads, failure })
    }

    /// The variables that preloads have set.
    fn set_by_preloads(&self) -> Vec<(OsString, OsString)> {
        #[expect(clippy::disallowed_methods, reason = "modules have changed the environment of this process")]
        let now = std::env::vars_os();
        now.filter(|(name, value)| self.variables.get(name) != Some(value)).collect()
    }

    /// The reason why no session can come from this process now.
    fn obstacle(&self) -> Option<Obstacle> {
        let mut files = self.files.borrow_mut();
        let changed = files.iter_mut().find_map(|file| file.has_changed().then(|| file.path.clone()));
        let Some(changed) = changed else {
            let reason = self.failure.clone()?;
            return Some(Obstacle { reason: format!("it could not start anew: {reason}"), is_stale: false });
        };
        // Without them, the process stays what it is: it cleans up after its sessions.
        let is_stale = [&self.python, &self.engine].iter().all(|file| file.is_file());
        let then = if is_stale { ", and it starts anew" } else { "" };
        let reason = format!("{} has changed since it was started{then}", changed.display());
        Some(Obstacle { reason, is_stale })
    }

    /// The reason why a session with these variables cannot come from this process. Variables that are wrong are for its supervisor.
    fn check(&self, environment: &Environment) -> Option<String> {
        let programs = programs::directory(environment.path(rlm_core::env::BIN_DIR).as_deref()).ok()?;
        if stamp(&programs.join(ENGINE)) != stamp(&self.engine) {
            return Some(format!("it belongs to other programs than {}", programs.display()));
        }
        let python = Chosen::find(None, environment, &programs).ok()?;
        if python.program != self.python {
            return Some(format!(
                "its Python is {}, not {}",
                self.python.display(),
                python.program.display()
            ));
        }
        let session_env = Settings::from_environment(environment).ok()?.session_env;
        let is_read = |name: &OsStr| {
            let name = name.to_string_lossy();
            READ_AT_START.iter().any(|begin| name.starts_with(begin))
                || self.has_preloads && name.ends_with(READ_BY_LIBRARIES)
        };
        let read = |variables: BTreeMap<OsString, OsString>| {
            variables.into_iter().filter(|(name, _)| is_read(name)).collect::<BTreeMap<_, _>>()
        };
        let (wanted, own) = (read(session_env.into_iter().collect()), read(self.variables.clone()));
        let names = wanted.keys().chain(own.keys());
        let differs = names.into_iter().find(|name| wanted.get(*name) != own.get(*name))?;
        Some(format!("it was started with another value of {}", differs.to_string_lossy()))
    }
}

/// The text that waits in a pipe.
fn drain(pipe: OwnedFd) -> String {
    let mut printed = Vec::new();
    // SAFETY: plain integers; the descriptor is open.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let _nothing_more = File::from(pipe).read_to_end(&mut printed);
    String::from_utf8_lossy(&printed).trim().to_owned()
}
