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

use rlm_bundle::Bundle;

use self::cache::Cache;

/// The variable that names the directory of the programs, for the programs themselves.
const BIN_DIR: &str = "RLM_BIN_DIR";

/// The programs that a link to the bundle, of their name, starts.
const PROGRAMS: [&str; 3] = ["rlm-worker-bash", "rlm-worker-python", "rlm-root-tool"];

fn main() -> ExitCode {
    let Err(failure) = run();
    #[expect(clippy::print_stderr, reason = "a main says why it fails")]
    {
        eprintln!("rlm: {failure}");
    }
    ExitCode::from(3)
}

fn run() -> Result<Infallible, String> {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_else(|| "rlm".into());
    let own = File::open("/proc/self/exe")
        .map_err(|error| format!("cannot read its own file by /proc/self/exe: {error}: mount /proc"))?;
    let mut bundle = Bundle::open(own).map_err(|error| error.to_string())?;
    #[expect(clippy::disallowed_methods, reason = "a main reads the environment")]
    let found = Cache::new(|name| std::env::var_os(name)).find(&mut bundle)?;
    let program = found.directory.join(program_of(&called));
    let mut command = Command::new(&program);
    command.arg0(&called).args(arguments);
    match found.is_in_memory {
        // A program in memory does not know its directory.
        true => command.env(BIN_DIR, &found.directory),
        // Elsewhere, a directory that is named for others must not hide its own.
        false => command.env_remove(BIN_DIR),
    };
    Err(cannot_start(&program, &command.exec()))
}

/// The program that is meant: `rlm`, unless the bundle was called by the name of another one.
fn program_of(called: &OsString) -> &OsStr {
    let name = Path::new(called).file_name().unwrap_or_default();
    if PROGRAMS.iter().any(|program| name == *program) { name } else { OsStr::new("rlm") }
}

fn cannot_start(program: &Path, error: &io::Error) -> String {
    let shown = program.display();
    if error.kind() == io::ErrorKind::NotFound && program.exists() {
        return format!("cannot start {shown}: this system has no glibc, which it needs (2.28 or newer)");
    }
    format!("cannot start {shown}: {error}")
}
