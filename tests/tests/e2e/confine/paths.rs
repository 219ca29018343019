//! The paths that a confined session shares with the host, and those that code in it puts in the way.

use super::*;

#[test]
fn paths_that_are_shared_stay_as_they_are_on_the_host() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("work/sub")).unwrap();
    fs::create_dir(path("outside")).unwrap();
    for file in ["work/data", "outside/file", "work/sub/inner"] {
        fs::write(path(file), "precious").unwrap();
    }
    symlink(path("outside"), path("work/link")).unwrap();
    symlink("/", path("all")).unwrap();
    let text = |name: &str| path(name).to_string_lossy().into_owned();
    let (data, inner, file, sub) =
        (text("work/data"), text("work/sub/inner"), text("outside/file"), text("work/sub"));
    symlink("/proc", path("proc")).unwrap();
    fs::create_dir(path("tmp")).unwrap();
    let proc = text("proc");
    let (through, all, missing) = (text("work/link/file"), text("all"), text("missing"));
    for level in levels() {
        for (flags, code, expected) in [
            (vec!["--confine-read", &data], "cat data", "precious"),
            (vec!["--confine-write", &file, "--confine-write", &file], &format!("cat {file}"), "precious"),
            (vec!["--confine-read", &sub, "--confine-read", &inner], "cat sub/inner", "precious"),
            (
                vec!["--confine-read", "/etc/passwd", "--confine-read", "/etc/localtime"],
                "head -c 5 /etc/passwd",
                "root:",
            ),
            (vec!["--confine-read", "/tmp", "--workdir", &sub], &format!("cat {file}"), "precious"),
            (vec!["--workdir", place.path().to_str().unwrap()], "cat outside/file", "precious"),
        ] {
            let output = exec(level, &path("work"), &flags).arg(code).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{level}, {code}: {output:?}");
        }
        for (flag, value, words) in [
            ("--confine-read", &*all, "it is all of the host"),
            ("--workdir", "/", "a confined session cannot have /: it is all of the host"),
            ("--confine-write", "/proc/self", "it has a /proc, a /sys and a /dev of its own"),
            ("--confine-write", &proc, "it has a /proc, a /sys and a /dev of its own"),
            ("--confine-write", "/dev/shm/..", "it has a /proc, a /sys and a /dev of its own"),
            ("--workdir", place.path().to_str().unwrap(), "its control directory "),
            ("--confine-read", &through, "it lies behind a link in "),
            ("--confine-read", &missing, "RLM_CONFINE_READ names "),
        ] {
            let mut command = exec(level, &path("work"), &[flag, value, "echo here"]);
            let output = command.env("TMPDIR", path("tmp")).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains(words) && output.stdout.is_empty(), "{level}, {value}: {output:?}");
        }
        for file in ["work/data", "outside/file", "work/sub/inner"] {
            assert_eq!(fs::read(path(file)).unwrap(), b"precious", "{level}: {file}");
        }
    }
}

#[test]
fn what_can_only_be_read_stays_so_in_a_directory_that_code_can_write() {
    if !can_have("full") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("real/work/env/tools")).unwrap();
    fs::create_dir(path("other")).unwrap();
    symlink("real", path("home")).unwrap();
    symlink(path("other"), path("real/link")).unwrap();
    let file = path("real/work/env/tools/f");
    fs::write(&file, "precious").unwrap();
    let write = "echo evil > env/tools/f; rm env/tools/f; chmod 777 env/tools";
    let replace = "mv env moved; mv env/tools env/t; mkdir -p env/tools; echo evil > env/tools/f";
    let text = |name: &str| path(name).to_string_lossy().into_owned();
    let rlm = program("rlm").to_string_lossy().into_owned();
    let exec = |directory: &str, read: &str, code: &str| {
        let mut command = Command::new(&rlm);
        command.args(["exec", "--confine-read", read, code]).current_dir(path(directory));
        command.env("RLM_CONFINE", "full");
        command
    };
    // A directory that the system has is another one where code can write.
    let in_system = |code: &str| {
        let mount = "mount --bind \"$1\" /usr/src && cd /usr/src/work && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", mount, "sh", &text("real"), &rlm, "exec", "--confine", "full"]);
        command.args(["--confine-read", "/usr/src/work/env/tools", code]);
        command
    };
    for code in [write, replace] {
        let mut commands = vec![
            exec("real/work", &text("real/work/env/tools"), code),
            exec("real/work", &text("home/work/env/tools"), code),
            exec("home/work", &text("home/work/env/../env/tools"), code),
        ];
        // A shared path lies in another one that can be written: it is used by another name, and from within.
        for (directory, shared, place) in [
            ("real", "real/work", "real/work"),
            ("real/work", "home", "home/work"),
            ("real/work", "real/work/env", "real/work"),
            ("other", "home/work", "home/work"),
        ] {
            let code = format!("cd {} && {{ {code}; }}", text(place));
            let mut command = exec(directory, &text("real/work/env/tools"), &code);
            command.args(["--confine-write", &text(shared)]);
            commands.push(command);
        }
        let is_root = nix::unistd::geteuid().is_root();
        commands.extend(is_root.then(|| in_system(code)));
        for mut command in commands {
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("Read-only file") || said.contains("busy"), "{command:?}: {output:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "precious", "{command:?}: {output:?}");
            assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o777, 0o755, "{command:?}");
        }
    }
    // However a path is written.
    let mut worker = Setup::bash()
        .env("RLM_CONFINE", "full")
        .env("RLM_CONFINE_WRITE", format!("{}////./real/work//./", place.path().display()))
        .env("RLM_CONFINE_READ", text("real/work/env/tools"))
        .start();
    worker.call(&format!("cd {}/work; {write}; {replace}; echo mine > new", text("real")));
    worker.end();
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(fs::read_to_string(path("real/work/new")).unwrap(), "mine\n");
    // A link that leads to what is shared is there.
    symlink(path("real/work/env"), path("other/link")).unwrap();
    let output = exec("other", &text("other/link/tools"), "cat link/tools/f")
        .args(["--confine-read", &text("real/work/env")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "precious", "{output:?}");
    // Nobody can write where our programs are.
    let programs = rlm_tests::programs();
    let output =
        super::exec("full", &programs, &["echo here"]).env("RLM_BIN_DIR", &programs).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("its own programs"), "{output:?}");
    // A link that leads to what is not shared is an error of its path, also where less would do.
    for level in ["full", "try"] {
        let mut command = exec("real/work", &text("real"), "echo here");
        let output =
            command.args(["--confine-read", &text("real/link")]).env("RLM_CONFINE", level).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(3), &b""[..]), "{output:?}");
        assert!(said.contains("cannot have ") && said.contains("it lies behind a link"), "{said}");
    }
}

#[test]
fn of_a_python_no_more_is_shared_than_is_pythons() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    // Something that looks like a Python's directory, with a secret beside its library.
    fs::create_dir_all(path("tree/lib/python3.11")).unwrap();
    fs::create_dir_all(path("tree/bin")).unwrap();
    fs::create_dir_all(path("venv/bin")).unwrap();
    fs::create_dir(path("work")).unwrap();
    fs::write(path("tree/lib/python3.11/os.py"), "").unwrap();
    fs::write(path("tree/secret"), "c0ffee").unwrap();
    symlink("/usr/bin/python3", path("venv/bin/python3")).unwrap();
    fs::write(path("venv/pyvenv.cfg"), format!("home = {}\n", path("tree/bin").display())).unwrap();
    let code = format!("open({:?}).read()", path("tree/secret"));
    for level in levels() {
        for python in ["--python=/bin/python3".to_owned(), format!("--python={}", path("venv").display())] {
            let code = [python.as_str(), "1 + 1", &code, "open('/etc/shadow').read()"];
            let output = exec(level, &path("work"), &code).env_remove("HOME").output().unwrap();
            let shown = format!("{output:?}");
            assert!(!shown.contains("c0ffee") && !shown.contains("root:"), "{level}, {python}: {shown}");
            assert!(
                python.contains("venv") || output.stdout.starts_with(b"2\n"),
                "{level}, {python}: {shown}"
            );
        }
    }
}

#[test]
fn an_environment_in_the_working_directory_is_used_if_its_python_can_be_read_anyway() {
    let place = tempfile::tempdir().unwrap();
    for level in levels() {
        for (python, words) in [
            ("/usr/bin/python3", "work/.venv"),
            (
                "/etc/hostname",
                "which code can write; if that leads where it should, add --confine-read /etc/hostname",
            ),
        ] {
            let work = tempfile::Builder::new().prefix("work").tempdir_in(&place).unwrap();
            let work = work.path().join("work");
            fs::create_dir_all(work.join(".venv/bin")).unwrap();
            fs::write(work.join(".venv/pyvenv.cfg"), "home = /usr/bin\n").unwrap();
            symlink(python, work.join(".venv/bin/python3")).unwrap();
            let code = ["--python=.venv", "import sys; sys.prefix"];
            let output = exec(level, &work, &code).output().unwrap();
            let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(shown.contains(words), "{level}, {python}: {shown}");
        }
    }
}

#[test]
fn what_code_has_put_in_the_way_of_the_answer_does_not_keep_it_from_being_saved() {
    for obstacle in ["ln -s /nonexistent", "mkdir", "mkfifo"] {
        let mut worker = Setup::bash().start();
        let control = worker.control.path().display().to_string();
        worker.output(&format!("{obstacle} {control}/rlm_answer.json.new"));
        assert_eq!(worker.output("RLM_CONTENT=kept; echo on"), "on\n", "{obstacle}");
        assert_eq!(fs::read_to_string(worker.control.answer_file()).unwrap().matches("kept").count(), 1);
        worker.end();
    }
}

#[test]
fn links_in_the_control_directory_lead_nobody_outside() {
    for level in levels() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        fs::write(&victim, "as it was").unwrap();
        let mut worker = bash_at(level);
        worker.send(br#"{"op": "a\nb", "seq": 1}"#);
        worker.receive();
        let log = worker.log();
        assert!(log.lines().last().unwrap().contains("refused a request: unknown op `a b`"), "{log}");
        let control = worker.control.path().display().to_string();
        worker.output(&format!("ln -sf {} {control}/rlm_worker.log", victim.display()));
        kill(worker.server(), Signal::SIGKILL).unwrap();
        worker.wait();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        let log = worker.log();
        assert!(log.contains("the serving process was ended by SIGKILL"), "{log}");
    }
}
