//! The program in front of a bundle: it finds the programs in a cache, where it unpacks them once, and becomes one of them.

mod cache;
mod memory;
mod python;
mod unpack;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::stat::{Mode, umask};
use rlm_bundle::Bundle;

use self::cache::{Cache, Place};

/// The variable that names the directory of the programs, for the programs themselves.
const BIN_DIR: &str = "RLM_BIN_DIR";

/// The programs that a link to the bundle, of their name, starts.
const PROGRAMS: [&str; 3] = ["rlm-worker-bash", "rlm-worker-python", "rlm-root-tool"];

fn main() -> ExitCode {
    let Err(failure) = run();
    tell(&failure);
    ExitCode::from(3)
}

fn run() -> Result<Infallible, String> {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_else(|| "rlm".into());
    let arguments: Vec<_> = arguments.collect();
    let own = File::open("/proc/self/exe").map_err(|error| {
        let advice = if error.kind() == io::ErrorKind::NotFound { ": mount /proc" } else { "" };
        format!("cannot read its own file by /proc/self/exe: {error}{advice}")
    })?;
    let mut bundle = Bundle::open(own).map_err(|error| error.to_string())?;
    #[expect(clippy::disallowed_methods, reason = "a main reads the environment")]
    let cache = Cache::new(|name| std::env::var_os(name));
    let mut reasons = Vec::new();
    for place in cache.places() {
        let directory = match undisturbed(|| place.programs(&mut bundle)) {
            Ok(Some(directory)) => directory,
            Ok(None) => continue,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error.to_string()),
            Err(error) => {
                reasons.push(format!("{place}: {error}"));
                continue;
            }
        };
        let program = directory.join(program_of(&called));
        let mut command = Command::new(&program);
        command.arg0(&called).args(&arguments);
        match place {
            Place::Memory => {
                tell(&format!(
                    "no directory takes the programs, so they are in memory, without Python: {}",
                    reasons.join("; ")
                ));
                // A program in memory does not know its directory.
                command.env(BIN_DIR, &directory)
            }
            // Elsewhere, a directory that is named for others must not hide its own.
            Place::Filled(_) | Place::Empty(_) => command.env_remove(BIN_DIR),
        };
        let error = command.exec();
        if error.kind() == io::ErrorKind::NotFound && program.exists() {
            let shown = program.display();
            return Err(format!(
                "cannot start {shown}: this system has no glibc, which it needs (2.28 or newer)"
            ));
        }
        // The place that has the programs is tried again, as one that takes them.
        if !matches!(place, Place::Filled(_)) {
            reasons.push(format!("cannot start {}: {error}", program.display()));
        }
    }
    Err(format!("no directory can hold its programs: {}: {}", reasons.join("; "), Cache::advice()))
}

#[expect(clippy::print_stderr, reason = "a main says why it fails")]
fn tell(words: &str) {
    eprintln!("rlm: {words}");
}

/// The program that is meant: `rlm`, unless the bundle was called by the name of another one.
fn program_of(called: &OsString) -> &OsStr {
    let name = Path::new(called).file_name().unwrap_or_default();
    if PROGRAMS.iter().any(|program| name == *program) { name } else { OsStr::new("rlm") }
}

/// Unpacks with a mask of modes of its own, and an error in place of a signal where a file may not be that large. The programs get those
/// of the caller.
fn undisturbed<T>(unpack: impl FnOnce() -> T) -> T {
    let mask = umask(Mode::from_bits_truncate(0o077));
    // SAFETY: no code runs in a signal that is ignored.
    let handler = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    let unpacked = unpack();
    if let Ok(handler) = handler {
        // SAFETY: this program has no handlers, so it is one of the system's dispositions.
        _ = unsafe { signal(Signal::SIGXFSZ, handler) };
    }
    umask(mask);
    unpacked
}
