//! `rlm` as one file: it unpacks itself once, wherever it can, and starts what was unpacked.
//!
//! The programs in these bundles are shell scripts; dist/test runs the real ones.

mod builtin;
mod damage;
mod places;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use rlm_tests::{Place, copy_program, program, skipped, wait_until, write_program};

/// The program in the bundles: says where it is and what it was given.
const RLM: &str = "#!/bin/sh\nprintf '%s\\n' \"$0\" \"${RLM_BIN_DIR-}\" \"$@\"; [ \"$1\" != wait ] || cat\n\
    [ \"$1\" != inherited ] || { umask; grep SigIgn /proc/self/status; }; exit 7\n";

/// A bundle in `work`, with so many bytes that zstd cannot make fewer.
fn bundle(place: &Place, bytes: usize) -> PathBuf {
    let content = tempfile::tempdir_in(place.path("")).unwrap();
    let content = content.path();
    fs::create_dir(content.join("lib")).unwrap();
    write_program(&content.join("rlm"), RLM);
    write_program(&content.join("rlm-worker-bash"), "#!/bin/sh\necho \"the worker at $0\"\n");
    // A file with a hole, as linkers leave them.
    File::options().append(true).open(content.join("rlm")).unwrap().set_len(1 << 20).unwrap();
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(bytes).collect();
    fs::write(content.join("lib/noise"), noise).unwrap();
    symlink("noise", content.join("lib/link")).unwrap();
    fs::create_dir(content.join("empty")).unwrap();
    let bundle = place.file("rlm");
    let packed = place
        .at_work(program("rlm-pack"))
        .args(["--level", "1"])
        .arg(program("rlm-bundle"))
        .args([content, &bundle])
        .output()
        .unwrap();
    assert!(packed.status.success(), "{packed:?}");
    bundle
}

/// A place, and a bundle in its `work`.
fn packed(bytes: usize) -> (Place, PathBuf) {
    let place = Place::new();
    let bundle = bundle(&place, bytes);
    (place, bundle)
}

fn start(place: &Place, bundle: &Path) -> Command {
    let mut command = place.at_work(bundle);
    // The directory of a bundle has no other program.
    command.arg("exec").env("RLM_BIN_DIR", place.file(""));
    command
}

fn ran(place: &Place, bundle: &Path) -> Output {
    start(place, bundle).output().unwrap()
}

/// The directory that a start ran in. It must have been a good one.
#[track_caller]
fn directory(output: &Output) -> PathBuf {
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), &*output.stderr), (Some(7), &b""[..]), "{told}{output:?}");
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines[1..], ["", "exec"], "{told}");
    Path::new(lines[0]).parent().unwrap().to_owned()
}

/// The one directory of so many starts at once.
#[track_caller]
fn at_once(place: &Place, bundle: &Path, starts: usize) -> PathBuf {
    let starting: Vec<_> = (0..starts).map(|_| start(place, bundle).spawn().unwrap()).collect();
    let mut directories: Vec<_> =
        starting.into_iter().map(|child| directory(&child.wait_with_output().unwrap())).collect();
    directories.dedup();
    assert_eq!(directories.len(), 1);
    directories.remove(0)
}

#[track_caller]
fn fails(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.starts_with("rlm: ") && words.lines().count() == 1, "{words}");
    words
}

/// The names in a directory, without the locks.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.ends_with(".lock")).collect()
}

fn cache(place: &Place) -> PathBuf {
    place.path("home").join(".cache/rlm")
}

/// The cache for want of a better place.
fn in_tmp(place: &Place) -> PathBuf {
    place.path("tmp").join(format!("rlm-{}", geteuid()))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A command in a mount namespace of its own, after some mounts. None, with a note, where there can be none.
fn with_mounts(place: &Place, bundle: &Path, mounts: &str) -> Option<Output> {
    let run = |script: &str| {
        let mut command = place.at_work("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-ec", script]).arg(bundle).arg(place.path(""));
        command.output().unwrap()
    };
    if !run("mount -t tmpfs none /tmp").status.success() {
        skipped("no mount namespace can be made");
        return None;
    }
    Some(run(&format!("{mounts}; exec \"$0\" exec")))
}

#[test]
fn the_first_start_unpacks_and_the_next_ones_find_it() {
    let (place, bundle) = packed(1000);
    let first = directory(&ran(&place, &bundle));
    assert_eq!(first.parent(), Some(&*cache(&place)));
    assert_eq!(mode(first.parent().unwrap()), 0o700);
    assert_eq!(fs::read_link(first.join("lib/link")).unwrap(), Path::new("noise"));
    let made = fs::metadata(first.join("rlm")).unwrap().modified().unwrap();
    // A second one, in another place, with a link to it by the name of another program.
    let moved = place.file("moved");
    fs::rename(&bundle, &moved).unwrap();
    assert_eq!(directory(&start(&place, &moved).output().unwrap()), first);
    assert_eq!(fs::metadata(first.join("rlm")).unwrap().modified().unwrap(), made);
    symlink(&moved, place.file("rlm-worker-bash")).unwrap();
    let worker = place.at_work(place.file("rlm-worker-bash")).output().unwrap();
    let told = format!("the worker at {}\n", first.join("rlm-worker-bash").display());
    assert_eq!(String::from_utf8_lossy(&worker.stdout), told);
    assert_eq!(names(&cache(&place)).len(), 1);
}

#[test]
fn fifty_that_start_at_once_unpack_once() {
    let (place, bundle) = packed(2 << 20);
    at_once(&place, &bundle, 50);
    assert_eq!(names(&cache(&place)).len(), 1);
}

#[test]
fn one_that_is_killed_half_way_is_never_used_and_leaves_nothing() {
    let (place, bundle) = packed(16 << 20);
    for _ in 0..5 {
        let mut child = start(&place, &bundle).spawn().unwrap();
        wait_until("it unpacks", || cache(&place).exists() && !names(&cache(&place)).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        let half = names(&cache(&place));
        assert!(half.iter().all(|name| name.starts_with('.')), "killed too late: {half:?}");
    }
    let unpacked = directory(&ran(&place, &bundle));
    assert_eq!(fs::metadata(unpacked.join("lib/noise")).unwrap().len(), 16 << 20);
    assert_eq!(names(&cache(&place)).len(), 1);
}

#[test]
fn without_a_lock_none_harms_another() {
    let (place, bundle) = packed(4 << 20);
    fs::create_dir_all(cache(&place).join(".lock")).unwrap();
    fs::set_permissions(cache(&place), Permissions::from_mode(0o700)).unwrap();
    let of_another = cache(&place).join(".half-of-another");
    fs::create_dir(&of_another).unwrap();
    let unpacked = at_once(&place, &bundle, 8);
    assert_eq!(names(&cache(&place)).len(), 2);
    fs::remove_dir(cache(&place).join(".lock")).unwrap();
    fs::remove_dir_all(unpacked).unwrap();
    // The directory of a process that did not wait for the lock, and still unpacks.
    let alive = cache(&place).join(".half-alive");
    fs::create_dir(&alive).unwrap();
    let in_work = Flock::lock(File::open(&alive).unwrap(), FlockArg::LockExclusive).unwrap();
    directory(&ran(&place, &bundle));
    assert!(!of_another.exists(), "it is left over, as nobody works in it");
    assert!(alive.exists(), "it is in work");
    drop(in_work);
}

#[test]
fn programs_that_nobody_started_for_long_are_removed() {
    let place = Place::new();
    let [unused, running, started] = [10, 20, 30].map(|bytes| {
        let bundle = bundle(&place, bytes);
        let own = place.file(&format!("rlm-{bytes}"));
        fs::rename(bundle, &own).unwrap();
        let directory = directory(&start(&place, &own).output().unwrap());
        (own, directory)
    });
    for (_, directory) in [&unused, &running, &started] {
        let month = SystemTime::now() - Duration::from_secs(40 * 24 * 3600);
        let used = File::options().append(true).open(directory.join(".used")).unwrap();
        used.set_modified(month).unwrap();
    }
    copy_program("/bin/sleep".as_ref(), &running.1.join("sleep"));
    let mut sleep = place.at_work(running.1.join("sleep")).arg("1000").spawn().unwrap();
    // A start counts, though it unpacks nothing.
    assert_eq!(directory(&start(&place, &started.0).output().unwrap()), started.1);
    let newest = bundle(&place, 40);
    let newest = directory(&start(&place, &newest).output().unwrap());
    assert!(newest.exists() && running.1.exists() && started.1.exists() && !unused.1.exists());
    sleep.kill().unwrap();
    sleep.wait().unwrap();
}

#[test]
fn what_the_caller_has_set_is_for_the_programs_alone() {
    let (place, bundle) = packed(1 << 20);
    let run = |script: &str, argument: &str| {
        let mut command = place.at_work("sh");
        command.args(["-ec", script]).args([bundle.as_os_str(), argument.as_ref()]).output().unwrap()
    };
    for mask in ["0777", "0277", "0000"] {
        let output = run(&format!("umask {mask}; exec \"$0\" \"$1\""), "inherited");
        let told = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<_> = told.lines().collect();
        assert_eq!((output.status.code(), lines[3]), (Some(7), mask), "{output:?}");
        let ignored = u64::from_str_radix(lines[4].strip_prefix("SigIgn:\t").unwrap(), 16).unwrap();
        assert_eq!(ignored & (1 << (Signal::SIGXFSZ as u64 - 1)), 0, "{told}");
        let unpacked = Path::new(lines[0]).parent().unwrap();
        let modes = [cache(&place), unpacked.join("lib"), unpacked.join("lib/noise"), unpacked.join(".used")]
            .map(|path| mode(&path));
        assert_eq!(modes, [0o700, 0o700, 0o644, 0o600], "{mask}");
        fs::remove_dir_all(cache(&place)).unwrap();
    }
    let output = run("ulimit -f 64; export RLM_CACHE_DIR=given; exec \"$0\" \"$1\"", "exec");
    let words = fails(&output);
    assert!(words.contains("File too large"), "{words}");
    assert_eq!(names(&place.file("given")), [""; 0]);
}
