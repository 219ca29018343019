//! Virtual environments with packages of others, made once and kept beside the programs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rlm_tests::{PATIENCE, program, pythons, repository, skipped};

/// A Python with the SDK of MCP; see [`python_with`].
pub(super) fn python_with_mcp() -> Option<PathBuf> {
    python_with("mcp", "mcp==2.3.0", "mcp")
}

/// A Python that can import these modules of these packages, in a virtual environment of this name. None, with a message, if there
/// is none that can install them.
pub(super) fn python_with(name: &str, packages: &str, modules: &str) -> Option<PathBuf> {
    let runs = |python: &PathBuf, code: &str| {
        Command::new(python).args(["-I", "-c", code]).output().is_ok_and(|output| output.status.success())
    };
    let venv = program("rlm").with_file_name(format!("venv-with-{name}"));
    let python = venv.join("bin/python3");
    // Several tests may want to make it at once.
    let lock = fs::File::create(venv.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let stamp = venv.join("packages");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == packages) {
        return Some(python);
    }
    let Some(base) = pythons().into_iter().rev().find(|python| runs(python, "import pip, ensurepip")) else {
        skipped("no Python here has pip");
        return None;
    };
    // The remains of an environment that could not be created.
    let _none_yet = fs::remove_dir_all(&venv);
    let made = Command::new(base).args(["-m", "venv"]).arg(&venv).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let limit = PATIENCE.as_secs().to_string();
    // uv installs in a tenth of pip's time.
    let (mut pip, mut uv) = (Command::new(&python), Command::new(venv.join("bin/uv")));
    pip.args(["-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", &limit, "uv==0.13.9"]);
    uv.args(["pip", "install", "--quiet", "--python"]).arg(&python).args(packages.split_whitespace());
    uv.env("UV_CACHE_DIR", repository().join("target/python/uv"));
    let said = [pip, uv].map(|mut command| match command.output() {
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    });
    if !runs(&python, &format!("import {modules}")) {
        skipped(format_args!("{packages} cannot be installed: {}", said.join("\n")));
        return None;
    }
    fs::write(stamp, packages).unwrap();
    Some(python)
}
