//! Confinement that cannot be had, or cannot be asked for.

use rlm_tests::{PATIENCE, holds_within, signal};

use super::*;

/// A host on which each of these calls fails with an error, where its first argument has the flags.
fn without_calls(calls: &[(i64, u32, i32)]) -> String {
    let calls: Vec<_> =
        calls.iter().map(|(number, flags, errno)| format!("({number}, {flags}, {errno})")).collect();
    format!(
        "#!/usr/bin/python3
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0)]
for number, flags, errno in [{}]:
    test = [(0x20, 0, 0, 16), (0x45, 0, 1, flags), (6, 0, 0, 0x50000 | errno), (0x20, 0, 0, 0)] if flags else [(6, 0, 0, 0x50000 | errno)]
    code += [(0x15, 0, len(test), number), *test]
code.append((6, 0, 0, 0x7fff0000))
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *one) for one in code))
count = len(code) // 8
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0
assert prctl(22, 2, ctypes.create_string_buffer(struct.pack('HP', count, ctypes.addressof(code)))) == 0
os.execv(WORKER, [WORKER, *sys.argv[1:]])
",
        calls.join(", ")
    )
}

#[test]
fn a_host_that_lacks_something_is_named_and_try_takes_what_there_is() {
    if !(can_have("full") && can_have("landlock")) {
        return;
    }
    let no_namespaces = (libc::SYS_clone, 0x1000_0000, libc::EPERM);
    let no_landlock = (libc::SYS_landlock_create_ruleset, 0, libc::ENOSYS);
    let no_setattr = (libc::SYS_mount_setattr, 0, libc::ENOSYS);
    let filtered = "clone: EPERM: Operation not permitted (the filter of a container, or a setting of the kernel, refuses user namespaces)";
    let hidden =
        "mount of proc: EPERM: Operation not permitted (parts of /proc are hidden, as in containers)";
    let old = "mount_setattr: ENOSYS: Function not implemented (the kernel is older than 5.12)";
    let without = "landlock_create_ruleset: EOPNOTSUPP: Operation not supported on transport endpoint (Landlock 6 is needed, of Linux 6.12, and not switched off at the start of the system)";
    let is_root = getuid().is_root();
    // A /proc that something else has mounted elsewhere would do, too.
    let mask = "#!/bin/sh\nexec unshare -m sh -c 'while read -r _ at type _; do [ $type != proc ] || mount -t tmpfs none $at/bus; done </proc/mounts && exec WORKER \"$@\"' sh \"$@\"\n";
    let no_users = "#!/bin/sh\nexec unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec WORKER \"$@\"' sh \"$@\"\n";
    let none = "clone: ENOSPC: No space left on device (user.max_user_namespaces is 0, or reached)";
    use ConfinementLevel::{Full, Landlock, Off};
    for (text, full, landlock, obtained) in [
        (no_users.to_owned(), Some(none), None, Landlock),
        (without_calls(&[no_namespaces]), Some(filtered), None, Landlock),
        (without_calls(&[no_setattr]), Some(old), None, Landlock),
        (without_calls(&[no_landlock]), None, Some(without), Full),
        (without_calls(&[no_namespaces, no_landlock]), Some(filtered), Some(without), Off),
        (mask.to_owned(), Some(hidden), None, Landlock),
    ] {
        if text == mask && !is_root {
            skipped("parts of /proc can be hidden by root alone");
            continue;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("worker");
        let worker = program("rlm-worker-bash").display().to_string();
        // A path of the target directory is a literal of Python, too.
        let worker = if text.contains("python3") { format!("{worker:?}") } else { worker };
        write_program(&path, &text.replace("WORKER", &worker));
        for (level, fails) in [("full", full), ("landlock", landlock)] {
            let Some(why) = fails else { continue };
            let words = refused(&path, place.path(), &place.path().join("work"), &[("RLM_CONFINE", level)]);
            assert!(words.contains(&format!("RLM_CONFINE={level} cannot be had here: {why}; ")), "{words}");
        }
        let mut worker = Setup::bash().program(path).env("RLM_CONFINE", "try").start();
        assert_eq!(worker.info().confinement.level, obtained);
        let log = worker.log();
        let expected = match obtained {
            Full => "the session is confined: namespaces, no Landlock, a filter of system calls".to_owned(),
            Landlock => format!("the session is confined: no namespaces ({}), Landlock ", full.unwrap()),
            Off => format!("the session is not confined: {}; {}", full.unwrap(), landlock.unwrap()),
        };
        assert!(log.contains(&expected), "{log}");
        assert_eq!(worker.output("echo here"), "here\n");
        worker.end();
    }
}

/// The words of a worker that cannot start in this place, with a session in this directory.
fn refused(worker: &Path, place: &Path, fs_root: &Path, variables: &[(&str, &str)]) -> String {
    let control = place.join("control");
    fs::create_dir_all(&control).unwrap();
    fs::create_dir_all(place.join("work")).unwrap();
    fs::write(control.join("rlm_context.json"), json!({"fs_root": fs_root}).to_string()).unwrap();
    let mut command = Command::new(worker);
    command.arg("--control-dir").arg(&control).envs(variables.iter().copied());
    command.current_dir(place).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    if !holds_within(PATIENCE, || child.try_wait().unwrap().is_some()) {
        signal(&child, Signal::SIGTERM);
    }
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    String::from_utf8(ended.stderr).unwrap()
}

#[test]
fn what_cannot_be_asked_for_is_said() {
    let place = tempfile::tempdir().unwrap();
    let work = place.path().join("work");
    let shim = place.path().join("python3");
    write_program(&shim, "#!/bin/sh\nexec /usr/bin/python3 \"$@\"\n");
    let shim = shim.to_str().unwrap();
    let tmp = "expected a whole number of bytes from 65536 to 2^60";
    let bash = |fs_root: &Path, variables: &[(&str, &str)]| {
        let variables = [&[("RLM_CONFINE", "full")], variables].concat();
        refused(&program("rlm-worker-bash"), place.path(), fs_root, &variables)
    };
    let of_python = [("RLM_CONFINE", "full"), ("RLM_PYTHON", shim)];
    let both = [("RLM_CONFINE_READ", "/usr:/opt"), ("RLM_CONFINE_WRITE", "/opt")];
    for (words, expected) in [
        (
            bash(&work, &[("RLM_CONFINE", "ful")]),
            "environment variable RLM_CONFINE is \"ful\", expected off, full, landlock or try",
        ),
        (bash(&work, &[("RLM_CONFINE_READ", "/")]), "cannot have /: it is all of the host"),
        (bash(&work, &[("RLM_CONFINE_WRITE", "/sys")]), "cannot have /sys: it has a /proc, a /sys and"),
        (bash("work".as_ref(), &[]), "cannot have work: it is no absolute path"),
        (bash(&work, &both), "/opt is in RLM_CONFINE_READ and in RLM_CONFINE_WRITE"),
        (bash(&work, &[("RLM_CONFINE_TMP", "4096")]), tmp),
        (bash(&work, &[("RLM_CONFINE_TMP", "9223372036854775807")]), tmp),
        (
            refused(&program("rlm-worker-python"), place.path(), &work, &of_python),
            "is a script that starts a Python",
        ),
    ] {
        assert!(words.contains(expected), "{words}");
    }
}
