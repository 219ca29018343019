//! The Python that runs the cells, and its surroundings: virtual environments, variables, locale.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rlm_core::control::ControlDir;
use rlm_core::protocol::Context;
use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{Setup, Worker, copy_program, default_python, program, pythons, skipped};
use serde_json::Value;

use crate::venv::python_with;

#[test]
fn the_namespace_begins_with_what_is_documented() {
    let mut worker = Setup::python()
        .prepare(|control| {
            let mut context = control.read_context().unwrap();
            context.fs_metadata =
                serde_json::json!({"files": [1, -2.5, 18446744073709551615_u64, null, true, "ä"], "about": {}});
            control.write_context(&context).unwrap();
        })
        .start();
    assert_eq!(
        worker.value("[name for name in dir() if not name.startswith('__')]"),
        "['answer', 'extra_data', 'fs_metadata']"
    );
    assert_eq!(worker.value("answer"), "{'ready': False, 'content': ''}");
    assert_eq!(
        worker.value("fs_metadata"),
        "{'files': [1, -2.5, 18446744073709551615, None, True, 'ä'], 'about': {}}"
    );
    let root = worker.fs_root();
    assert_eq!(
        worker.value("import os; [extra_data, os.getcwd()]"),
        format!("['{0}', '{0}']", root.display())
    );
    let stack = "import sys; sys._getframe().f_back, sys.argv, __name__, sys.modules['__main__'].__dict__ is globals()";
    assert_eq!(worker.value(stack), "(None, [''], '__main__', True)");
}

/// Makes a virtual environment by `python -m venv`, and returns the directory of its packages.
fn make_venv(python: &Path, dir: &Path) -> PathBuf {
    let made = Command::new(python).args(["-m", "venv", "--without-pip"]).arg(dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::read_dir(dir.join("lib")).unwrap().next().unwrap().unwrap().path().join("site-packages")
}

// Promise: In Python: one interpreter, yours, and one namespace.
#[test]
fn a_virtual_environment_is_the_sessions_own() {
    for python in pythons() {
        let dir = tempfile::tempdir().unwrap();
        let venv = dir.path().join("venv");
        let site = make_venv(&python, &venv);
        fs::write(site.join("of_the_venv.py"), "x = 7\n").unwrap();
        let mut worker = Setup::of("rlm-worker-python").env("VIRTUAL_ENV", venv.display()).start();
        assert_eq!(worker.value("import of_the_venv; of_the_venv.x"), "7");
        assert_eq!(
            worker.value("import sys; sys.prefix, sys.prefix != sys.base_prefix"),
            format!("('{}', True)", venv.display())
        );
        assert_eq!(worker.value("import subprocess; subprocess.check_output(['python3', '-c', 'import of_the_venv; print(of_the_venv.x)'])"), "b'7\\n'");
    }
}

#[test]
fn the_engine_is_compiled_already() {
    let dir = tempfile::tempdir().unwrap();
    let venv = dir.path().join("venv");
    let site = make_venv(&default_python(), &venv);
    let record = "import sys; sys.compiled = []; sys.addaudithook(lambda event, given: \
                  event == 'compile' and sys.compiled.append(str(given[1])))\n";
    fs::write(site.join("record.pth"), record).unwrap();
    let endpoint = ExistingEndpoint::start();
    let mut worker = endpoint.tools_for(Setup::python_at(&venv)).start();
    let compiled =
        "import sys; [name for name in sys.compiled if name.startswith('<rlm')], '<cell 1>' in sys.compiled";
    assert_eq!(worker.value(compiled), "([], True)");
}

#[test]
fn c_extensions_of_a_virtual_environment_work_behind_the_jail_too() {
    let Some(python) = python_with("numpy", "numpy", "numpy") else { return };
    let venv = python.ancestors().nth(2).unwrap();
    for jail in ["0", "1"] {
        let mut worker = Setup::python_at(venv).env("RLM_FS_JAIL", jail).start();
        assert_eq!(worker.value("import numpy as np; a = np.arange(6).reshape(2, 3); int(a.sum())"), "15");
        assert_eq!(worker.value("a"), "array([[0, 1, 2],\n       [3, 4, 5]])");
        let response = worker.call("answer['content'] = a.sum(); answer['ready'] = np.True_");
        assert!(response.answer.ready && response.answer.content == "15", "{:?}", response.answer);
        let response = worker.call("answer['content'] = a; answer['ready'] = a");
        assert_eq!(response.answer.content, "[[0 1 2]\n [3 4 5]]");
        assert!(!response.answer.ready, "an array has no truth value");
        assert_eq!(worker.value("np.linalg.inv(np.eye(2)).tolist()"), "[[1.0, 0.0], [0.0, 1.0]]");
    }
}

/// Starts a worker that cannot start: it says this in one sentence on standard error and in its log, and its exit status is 3.
#[track_caller]
fn says(worker: &Path, arguments: &[&str], env: &[(&str, &str)], sentence: &str) {
    let dir = tempfile::tempdir().unwrap();
    let control = ControlDir::new(dir.path());
    let context =
        Context { fs_root: dir.path().to_owned(), fs_metadata: Value::Null, allowed_paths: Vec::new() };
    control.write_context(&context).unwrap();
    let output = Command::new(worker)
        .arg("--control-dir")
        .arg(dir.path())
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(env.iter().copied())
        .output()
        .unwrap();
    assert!(!control.ready_flag().exists());
    let (words, log) =
        (String::from_utf8(output.stderr).unwrap(), fs::read_to_string(control.log_file()).unwrap());
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains(sentence), "{words:?} does not say {sentence:?}");
    assert!(log.contains(sentence), "the log does not say {sentence:?}: {log:?}");
    assert_eq!(words.trim_end().lines().count(), 1, "{words:?}");
}

#[test]
fn a_python_that_cannot_be_used_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("bin")).unwrap();
    symlink("/gone/python3.9", dir.path().join("bin/python3")).unwrap();
    let venv = dir.path().to_str().unwrap();
    let gone = "/gone/python3.9, which no longer exists: recreate the virtual environment";
    let worker = program("rlm-worker-python");
    for (env, sentence) in [
        (("RLM_PYTHON", "python3.99"), "RLM_PYTHON names the Python python3.99, which is not on PATH"),
        (("PATH", "/nowhere"), "no python3 on PATH"),
        (("VIRTUAL_ENV", venv), gone),
    ] {
        says(&worker, &[], &[env], sentence);
    }
    let old = dir.path().join("python3.9");
    let says_its_age = "#!/bin/sh\necho 'CPython 3.10 or newer is needed, this is 3.9.2' >&2\nexit 1\n";
    rlm_tests::write_program(&old, says_its_age);
    for (python, sentence) in [
        ("/no/python3", "--python names the Python /no/python3, which does not exist"),
        ("/bin/false", "/bin/false ended with status 1 before it was ready"),
        (old.to_str().unwrap(), "CPython 3.10 or newer is needed, this is 3.9.2"),
    ] {
        says(&worker, &["--python", python], &[], sentence);
    }
    let home = std::env::home_dir().unwrap().join(".pyenv/versions");
    let versions = fs::read_dir(home).into_iter().flatten().flatten();
    let mut old = versions.filter(|entry| entry.file_name().to_string_lossy().starts_with("3.9."));
    match old.next() {
        Some(old) => {
            let python = old.path().join("bin/python3");
            let sentence = "CPython 3.10 or newer is needed, this is 3.9.";
            says(&worker, &["--python", python.to_str().unwrap()], &[], sentence);
        }
        None => skipped("no CPython 3.9 under ~/.pyenv/versions"),
    }
}

#[test]
fn a_worker_without_its_engine_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("rlm-worker-python");
    copy_program(&program("rlm-worker-python"), &alone);
    let python = default_python();
    let arguments = ["--python", python.to_str().unwrap()];
    says(&alone, &arguments, &[], "librlm_cell_engine.so: it must be next to the worker program");
    fs::write(dir.path().join("librlm_cell_engine.so"), "no library").unwrap();
    says(&alone, &arguments, &[], "the cell engine cannot be loaded");
}

#[test]
fn the_session_only_sees_allowed_variables() {
    let mut worker = Setup::python().env("OPENAI_API_KEY", "secret").env("PYTHONPATH", "/elsewhere").start();
    assert_eq!(
        worker.value(
            "import os, sys; 'OPENAI_API_KEY' in os.environ, '/elsewhere' in sys.path, os.environ['TERM']"
        ),
        "(False, False, 'dumb')"
    );
}

#[test]
fn text_is_utf_8_whatever_the_locale() {
    for locale in ["C", "POSIX", "en_US.ISO-8859-1"] {
        let mut worker = Setup::python().env("LANG", locale).env("LC_ALL", locale).start();
        assert_eq!(worker.output("print('ä€😀')"), "ä€😀\n", "{locale}");
    }
}

#[test]
fn a_worker_is_found_by_its_name_in_a_directory_that_moved() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["rlm-worker-python", "librlm_cell_engine.so"] {
        copy_program(&program("rlm-worker-python").with_file_name(file), &dir.path().join(file));
    }
    let mut worker: Worker = Setup::python().program(dir.path().join("rlm-worker-python")).start();
    assert_eq!(worker.value("1 + 1"), "2");
}
