//! Helpers of the end-to-end tests: a plain host that drives a built worker over its FIFOs, and checks for leftovers.
//!
//! Everything waits for events, and every process that is started carries a mark in its environment, by which those that
//! outlive it are found.

pub mod endpoint;
pub mod malformed;
mod place;
mod process;
pub mod scripted_model;
pub mod soak;
pub mod tree;
mod wait;
mod worker;

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub use self::place::Place;
pub use self::process::{
    assert_no_marked_process, children, is_over, marked_env, marked_processes, open_descriptors,
    set_soft_limit, shell_status, signal,
};
pub use self::wait::{end_of, holds_within, is_ready, read_to_end, until, wait_readable, wait_until};
pub use self::worker::{Setup, Worker};

/// A test that waits longer than this for an event has failed.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The limit for what happens at once: some hundred times what it takes, since other tests keep the processors busy, and below what
/// anything takes that waits for a limit in vain.
pub const AT_ONCE: Duration = Duration::from_secs(10);

/// A number that is as large as it is promised where the tests are those of `tests/nightly`, and smaller in every other run.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a test process has no main of ours")]
pub fn scaled(nightly: usize, otherwise: usize) -> usize {
    if std::env::var_os("RLM_NIGHTLY").is_some() { nightly } else { otherwise }
}

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

/// Every Python from 3.10 on on this machine: the system's, those of pyenv, and those of `tests/newer-pythons`; if it has none of
/// them, the one on `PATH`. Prints which are missing.
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
    for minor in 10..=15 {
        let of_minor = fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
        let prefix = format!("3.{minor}.");
        let mut of_minor: Vec<PathBuf> = of_minor
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .map(|entry| entry.path().join("bin/python3"))
            .filter(|python| python.is_file())
            .collect();
        of_minor.sort();
        let unpacked = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../target/pythons/3.{minor}/usr/bin/python3.{minor}"));
        match of_minor.pop().or_else(|| unpacked.canonicalize().ok()) {
            Some(python) => found.push(python),
            None => skipped(format_args!("no CPython 3.{minor} under ~/.pyenv/versions or target/pythons")),
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

/// Writes a program, mostly a script with its `#!` line.
///
/// A process of its own writes it: were the file open for writing here while another test starts a process, that process
/// would hold it for a moment, and the system starts no program that somebody may still write.
///
/// # Panics
/// It cannot be written.
pub fn write_program(path: &Path, content: &(impl AsRef<[u8]> + ?Sized)) {
    let mut install = Command::new("install");
    install.args(["-T", "-m755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().expect("install can be started");
    let mut stdin = install.stdin.take().expect("it has a pipe");
    stdin.write_all(content.as_ref()).expect("install reads");
    drop(stdin);
    assert!(install.wait().expect("it ends").success(), "cannot write {}", path.display());
}

/// Copies a program, or a library beside it, as [`write_program`] writes one.
///
/// # Panics
/// It cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status().expect("cp can be started");
    assert!(status.success(), "cannot copy {} to {}", from.display(), to.display());
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

/// The root of the repository.
#[must_use]
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository")
}
