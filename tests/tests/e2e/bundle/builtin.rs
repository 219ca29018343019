//! The Python in the bundle, and programs in memory, as the others meet them.

use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;

use nix::sys::memfd::{MFdFlags, memfd_create};
use rlm_tests::default_python;

use super::*;

/// The variable `RLM_BIN_DIR`, for a directory with the programs and a built-in Python, in `work`.
fn with_builtin(place: &Place) -> (&'static str, PathBuf) {
    let programs = place.file("programs");
    fs::create_dir_all(programs.join("python/bin")).unwrap();
    for name in ["rlm", "rlm-worker-python", "librlm_cell_engine.so"] {
        symlink(program(name), programs.join(name)).unwrap();
    }
    symlink(default_python(), programs.join("python/bin/python3")).unwrap();
    ("RLM_BIN_DIR", programs)
}

#[test]
fn a_session_on_the_built_in_python_keeps_the_protocol() {
    let place = Place::new();
    let (name, programs) = with_builtin(&place);
    let worker = program("rlm-worker-python");
    let output = place
        .rlm(&["conformance", "--filter", "info/fields", "--", worker.to_str().unwrap()])
        .args(["--control-dir", "{dir}", "--python", "builtin"])
        .env(name, programs)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_built_in_python_is_told_of_where_nobody_has_named_one() {
    let place = Place::new();
    let (name, programs) = with_builtin(&place);
    let words = |arguments: &[&str]| {
        let mut command = place.rlm(arguments);
        command.env(name, &programs).env("PATH", "/nowhere").env_remove("RLM_PYTHON");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let told = "rlm: no CPython 3.10 or newer on PATH: the built-in one is used unless one is named\n";
    assert_eq!(words(&["exec", "--python", "1"]), told);
    assert_eq!(words(&["exec", "--python=builtin", "1"]), "");
    // A directory whose age only it can tell.
    let home = std::env::home_dir().unwrap().join(".pyenv/versions");
    let old = fs::read_dir(home).into_iter().flatten().flatten().map(|entry| entry.path());
    let Some(old) = old.into_iter().find(|path| path.file_name().unwrap().as_bytes().starts_with(b"3.9."))
    else {
        return skipped("no CPython 3.9 under ~/.pyenv/versions");
    };
    let old = format!("--python={}", old.join("bin/python3").display());
    let output = place.rlm(&["exec", &old, "1"]).env(name, &programs).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains("is needed, this is 3.9.") && words.contains("; --python=builtin is a newer one"),
        "{words}"
    );
}

#[test]
fn a_program_in_memory_says_so() {
    let place = Place::new();
    let mut file = File::from(memfd_create("rlm", MFdFlags::empty()).unwrap());
    std::io::copy(&mut File::open(program("rlm")).unwrap(), &mut file).unwrap();
    let output = place
        .at_work(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .arg("doctor")
        .env("RLM_BIN_DIR", place.file("links"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        told.contains(&format!(" in memory, with links in {}\n", place.file("links").display())),
        "{output:?}"
    );
}
