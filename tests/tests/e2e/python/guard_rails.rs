//! Refused modules and builtins, and the jail: off unless configured.

use std::fs;
use std::os::unix::fs::symlink;

use rlm_core::protocol::Outcome;
use rlm_tests::{Setup, Worker, pythons};

/// Checks that a cell raises, and the last line of its traceback.
#[track_caller]
fn raises(worker: &mut Worker, code: &str, last_line: &str) {
    let response = worker.call(code);
    assert_eq!(response.outcome, Outcome::Error, "{code:?}: {response:?}");
    assert_eq!(response.result.unwrap().lines().next_back(), Some(last_line), "{code:?}");
}

#[test]
fn modules_are_refused_to_cells_and_not_to_the_library() {
    let mut worker = Setup::python().env("RLM_DISALLOWED_MODULES", "socket, urllib.request").start();
    let socket = "ImportError: module 'socket' is not allowed in this session";
    for code in
        ["import socket", "from socket import socket as s", "import socket as s", "__import__('socket')"]
    {
        raises(&mut worker, code, socket);
    }
    let request = "ImportError: module 'urllib.request' is not allowed in this session";
    for code in [
        "import urllib.request",
        "from urllib import request",
        "def f():\n    from urllib.request import urlopen\nf()",
    ] {
        raises(&mut worker, code, request);
    }
    assert_eq!(
        worker.value("import urllib.parse, http.client, socketserver; urllib.parse.quote('a b')"),
        "'a%20b'"
    );
}

#[test]
fn builtins_are_refused_to_cells_and_not_to_the_library() {
    let mut worker = Setup::python().env("RLM_DISALLOWED_BUILTINS", "eval exec open").start();
    for name in ["eval", "exec", "open"] {
        let refusal = format!("PermissionError: builtin '{name}' is not allowed in this session");
        raises(&mut worker, &format!("{name}('1')"), &refusal);
    }
    assert_eq!(worker.value("import collections; collections.namedtuple('P', 'x')(1)"), "P(x=1)");
}

#[test]
fn without_configuration_nothing_is_refused() {
    let mut worker = Worker::python();
    assert_eq!(worker.value("import socket; open('/etc/passwd').close(); eval('1')"), "1");
}

fn jailed(python: &std::path::Path) -> Setup {
    Setup::python_at(python).env("RLM_FS_JAIL", "1")
}

#[test]
fn the_jail_refuses_outside_files_on_every_python() {
    for python in pythons() {
        let mut worker = jailed(&python).start();
        let outside = tempfile::tempdir().unwrap();
        let file = outside.path().join("file");
        fs::write(&file, "secret").unwrap();
        symlink(outside.path(), worker.fs_root().join("link")).unwrap();
        symlink(outside.path().join("new"), worker.fs_root().join("dangling")).unwrap();
        let (dir, file) = (outside.path().display(), file.display());
        worker.value("import os, pathlib, shutil, sqlite3\nopen('inside', 'w').close(); os.mkdir('sub')");
        let cells = [
            (format!("open('{file}')"), format!("{file}")),
            (format!("open(b'{file}')"), format!("{file}")),
            (format!("os.open('{file}', os.O_RDONLY)"), format!("{file}")),
            (format!("pathlib.Path('{file}').read_text()"), format!("{file}")),
            ("open('link/file')".into(), "link/file".into()),
            ("open('sub/../../x', 'w')".into(), "sub/../../x".into()),
            ("open('dangling', 'w')".into(), "dangling".into()),
            (format!("os.listdir('{dir}')"), format!("{dir}")),
            ("os.listdir('..')".into(), "..".into()),
            ("list(os.scandir('link'))".into(), "link".into()),
            ("os.chdir('..')".into(), "..".into()),
            (format!("os.remove('{file}')"), format!("{file}")),
            ("os.remove('link/file')".into(), "link/file".into()),
            (format!("os.mkdir('{dir}/d')"), format!("{dir}/d")),
            (format!("os.rmdir('{dir}')"), format!("{dir}")),
            (format!("os.rename('inside', '{dir}/x')"), format!("{dir}/x")),
            (format!("os.rename('{file}', 'x')"), format!("{file}")),
            (format!("os.link('{file}', 'x')"), format!("{file}")),
            (format!("os.symlink('inside', '{dir}/x')"), format!("{dir}/x")),
            (format!("os.truncate('{file}', 0)"), format!("{file}")),
            (format!("os.chmod('{file}', 0)"), format!("{file}")),
            (format!("shutil.copy('inside', '{dir}/x')"), format!("{dir}/x")),
            (format!("sqlite3.connect('{dir}/db')"), format!("{dir}/db")),
            ("open(os.__file__, 'a')".into(), String::new()),
        ];
        for (code, path) in &cells {
            let response = worker.call(code);
            let exception = response.exception.unwrap_or_else(|| panic!("{code:?} is let through"));
            assert_eq!(exception.kind, "PermissionError", "{code:?}");
            let expected = format!("Access outside working directory is blocked: {path}");
            assert!(exception.message.starts_with(&expected), "{code:?}: {}", exception.message);
        }
        let response = worker.call(&format!("shutil.rmtree('{dir}')"));
        assert_eq!(response.exception.unwrap().kind, "PermissionError");
        assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "secret");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}

#[test]
fn inside_the_jail_everything_works_on_every_python() {
    for python in pythons() {
        let mut worker = jailed(&python).start();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("file"), "untouched").unwrap();
        symlink(outside.path(), worker.fs_root().join("link")).unwrap();
        worker.value("import os, shutil, subprocess, tempfile, pathlib");
        let tree = "os.makedirs('tree/a/b'); open('tree/a/b/link', 'w').close(); os.symlink(os.path.abspath('link'), 'tree/out')";
        // `link` below the tree is a file; in the working directory it leads outside. Only the descriptor decides.
        assert_eq!(worker.value(&format!("{tree}\nshutil.rmtree('tree'); os.listdir('.')")), "['link']");
        assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "untouched");
        assert_eq!(worker.value("os.remove('link'); os.listdir()"), "[]");
        assert_eq!(worker.value("subprocess.run(['true'], stdout=subprocess.DEVNULL).returncode"), "0");
        assert_eq!(
            worker.value("pathlib.Path('f').write_text('x'); os.rename('f', 'g'); open('g').read()"),
            "'x'"
        );
        assert_eq!(worker.value("d = os.open('.', 0); f = os.open('g', 0, dir_fd=d); os.read(f, 1)"), "b'x'");
        assert_eq!(worker.value("tempfile.TemporaryFile().write(b'x')"), "1");
        assert_eq!(
            worker.value("import json, asyncio, multiprocessing, inspect; inspect.getsource(json.dumps)[:9]"),
            "'def dumps'"
        );
        assert_eq!(worker.value("multiprocessing.Pool(1).map(len, ['abc'])"), "[3]");
        assert!(worker.call("1 / 0").result.unwrap().contains("    1 / 0"));
    }
}

#[test]
fn allowed_paths_are_open() {
    let mut worker = jailed(&rlm_tests::default_python())
        .prepare(|control| {
            let mut context = control.read_context().unwrap();
            let allowed = context.fs_root.with_file_name("allowed");
            fs::create_dir(&allowed).unwrap();
            context.allowed_paths = vec![allowed];
            control.write_context(&context).unwrap();
        })
        .start();
    assert_eq!(
        worker.value("import os\nopen('../allowed/f', 'w').write('x'); os.listdir('../allowed')"),
        "['f']"
    );
}
