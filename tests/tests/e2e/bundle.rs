//! `rlm` as one file: it unpacks itself once, wherever it can, and starts what was unpacked.
//!
//! The programs in these bundles are shell scripts; dist/test runs the real ones.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use nix::unistd::{Uid, chown, geteuid};
use rlm_tests::{Place, default_python, program, skipped, wait_until, write_program};

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
    let place = Place::new();
    let bundle = bundle(&place, 1000);
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
    let place = Place::new();
    let bundle = bundle(&place, 2 << 20);
    let starting: Vec<_> = (0..50).map(|_| start(&place, &bundle).spawn().unwrap()).collect();
    let mut directories: Vec<_> =
        starting.into_iter().map(|child| directory(&child.wait_with_output().unwrap())).collect();
    directories.dedup();
    assert_eq!(directories.len(), 1);
    assert_eq!(names(&cache(&place)).len(), 1);
}

#[test]
fn one_that_is_killed_half_way_is_never_used_and_leaves_nothing() {
    let place = Place::new();
    let bundle = bundle(&place, 16 << 20);
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
fn files_that_a_loss_of_power_took_are_noticed_in_the_next_boot() {
    let place = Place::new();
    let bundle = bundle(&place, 1000);
    let unpacked = directory(&ran(&place, &bundle));
    let (used, noise) = (unpacked.join(".used"), unpacked.join("lib/noise"));
    let of_this_boot = fs::read_to_string(&used).unwrap();
    let (_, sums) = of_this_boot.split_once('\n').unwrap();
    // Written in another boot, and whole: it is taken for good, once.
    let of_another = format!("another boot\n{sums}");
    fs::write(&used, &of_another).unwrap();
    let before = fs::metadata(&noise).unwrap().modified().unwrap();
    assert_eq!(directory(&ran(&place, &bundle)), unpacked);
    assert_eq!(fs::read_to_string(&used).unwrap(), of_this_boot);
    assert_eq!(fs::metadata(&noise).unwrap().modified().unwrap(), before);
    // Zeros in a file's place, and no file at all: it is unpacked again.
    let link = unpacked.join("lib/link");
    let lines: Vec<_> = of_another.split_inclusive('\n').collect();
    let damages: [&dyn Fn(); 9] = [
        &|| fs::write(&noise, [0; 1000]).unwrap(),
        &|| fs::remove_file(&noise).unwrap(),
        &|| fs::set_permissions(&noise, Permissions::from_mode(0o755)).unwrap(),
        &|| fs::remove_file(&link).unwrap(),
        &|| fs::remove_file(&link).and_then(|()| symlink("rlm", &link)).unwrap(),
        &|| fs::remove_dir(unpacked.join("empty")).unwrap(),
        &|| fs::write(&used, "").unwrap(),
        &|| fs::write(&used, lines[0]).unwrap(),
        // The end of the list is lost, with the file that it names.
        &|| fs::write(&used, lines[..3].concat()).and_then(|()| fs::remove_file(&noise)).unwrap(),
    ];
    for damage in damages {
        fs::write(&used, &of_another).unwrap();
        damage();
        assert_eq!(directory(&ran(&place, &bundle)), unpacked);
        assert!(fs::read(&noise).unwrap().iter().any(|byte| *byte != 0));
        assert_eq!(mode(&noise), 0o644);
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("noise"));
        assert!(unpacked.join("empty").is_dir());
        assert_eq!(names(&cache(&place)).len(), 1);
    }
    // A time to come would keep it for ever.
    let in_a_year = SystemTime::now() + Duration::from_secs(365 * 24 * 3600);
    File::options().append(true).open(&used).unwrap().set_modified(in_a_year).unwrap();
    directory(&ran(&place, &bundle));
    assert!(fs::metadata(&used).unwrap().modified().unwrap() <= SystemTime::now());
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
    fs::copy("/bin/sleep", running.1.join("sleep")).unwrap();
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
fn the_place_is_the_first_that_takes_it() {
    let place = Place::new();
    let bundle = bundle(&place, 1000);
    let in_tmp = in_tmp(&place);
    let check = |command: &mut Command, base: &Path| {
        let unpacked = directory(&command.output().unwrap());
        assert_eq!(unpacked.parent(), Some(base));
        fs::remove_dir_all(base).unwrap();
    };
    check(start(&place, &bundle).env("XDG_CACHE_HOME", place.file("xdg")), &place.file("xdg/rlm"));
    check(start(&place, &bundle).env("RLM_CACHE_DIR", place.file("given")), &place.file("given"));
    check(start(&place, &bundle).env_remove("HOME"), &in_tmp);
    check(start(&place, &bundle).env("HOME", "/proc/nowhere"), &in_tmp);
    check(start(&place, &bundle).env("HOME", "relative"), &in_tmp);
    let file = place.write("file", "");
    check(start(&place, &bundle).env("HOME", &file), &in_tmp);
    // A directory that is named is the only one.
    let words = fails(&start(&place, &bundle).env("RLM_CACHE_DIR", &file).output().unwrap());
    assert!(
        words.contains(&format!("{}: ", file.display())) && words.contains("set RLM_CACHE_DIR"),
        "{words}"
    );
    if geteuid().is_root() {
        // Another user's, who could put other programs there.
        fs::create_dir_all(cache(&place)).unwrap();
        chown(&cache(&place), Some(Uid::from_raw(65534)), None).unwrap();
        check(&mut start(&place, &bundle), &in_tmp);
    }
    fs::remove_dir_all(place.path("home").join(".cache")).unwrap_or_default();
    // Python takes no other path.
    let home = place.path("home").join(OsStr::from_bytes(b"\xff"));
    check(start(&place, &bundle).env("HOME", home), &in_tmp);
    // A link leads to where it leads, by one path.
    fs::create_dir(place.file("target")).unwrap();
    symlink(place.file("target"), place.file("link")).unwrap();
    check(start(&place, &bundle).env("RLM_CACHE_DIR", place.file("link")), &place.file("target"));
}

#[test]
fn a_place_where_others_can_put_programs_is_passed_over_and_stays_as_it_is() {
    let place = Place::new();
    let bundle = bundle(&place, 1000);
    let in_tmp = in_tmp(&place);
    let base = cache(&place);
    let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let unpacked = directory(&ran(&place, &bundle));
    let planted = "#!/bin/sh\necho planted; exit 7\n";
    write_program(&unpacked.join("rlm"), planted);
    for bits in [0o777, 0o1777, 0o775] {
        set_mode(&base, bits);
        assert_eq!(directory(&ran(&place, &bundle)).parent(), Some(&*in_tmp));
        let words = fails(&start(&place, &bundle).env("RLM_CACHE_DIR", &base).output().unwrap());
        assert!(words.contains(&format!("others can write to it (mode {bits:o})")), "{words}");
        assert_eq!(mode(&base), bits);
    }
    fs::remove_dir_all(&in_tmp).unwrap();
    // A directory that others can look into will do, if the programs in it are ours alone.
    set_mode(&base, 0o755);
    set_mode(&unpacked, 0o777);
    assert_eq!(directory(&ran(&place, &bundle)), unpacked);
    assert_eq!((mode(&base), mode(&unpacked)), (0o755, 0o700));
    if geteuid().is_root() {
        let other = Some(Uid::from_raw(65534));
        chown(&unpacked, other, None).unwrap();
        assert_eq!(directory(&ran(&place, &bundle)), unpacked);
        assert_eq!(fs::metadata(&unpacked).unwrap().uid(), 0);
        // Another user's link, though to a directory of ours.
        symlink(&base, place.file("link")).unwrap();
        lchown(place.file("link"), Some(65534), None).unwrap();
        let link = place.file("link");
        let words = fails(&start(&place, &bundle).env("RLM_CACHE_DIR", link).output().unwrap());
        assert!(words.contains("it belongs to another user"), "{words}");
    }
}

#[test]
fn programs_that_were_moved_are_unpacked_again() {
    let place = Place::new();
    let bundle = bundle(&place, 1000);
    let given = |cache: &str| start(&place, &bundle).env("RLM_CACHE_DIR", cache).output().unwrap();
    let first = directory(&given("given"));
    assert_eq!(first.parent(), Some(&*place.file("given")), "the path is absolute");
    assert_eq!(directory(&given("./given/../given")), first);
    fs::rename(place.file("given"), place.file("moved")).unwrap();
    // A Python there has its old path inside.
    assert_ne!(directory(&given("moved")).file_name(), first.file_name());
}

#[test]
fn without_a_lock_none_harms_another() {
    let place = Place::new();
    let bundle = bundle(&place, 4 << 20);
    fs::create_dir_all(cache(&place).join(".lock")).unwrap();
    fs::set_permissions(cache(&place), Permissions::from_mode(0o700)).unwrap();
    let of_another = cache(&place).join(".half-of-another");
    fs::create_dir(&of_another).unwrap();
    let starting: Vec<_> = (0..8).map(|_| start(&place, &bundle).spawn().unwrap()).collect();
    let mut directories: Vec<_> =
        starting.into_iter().map(|child| directory(&child.wait_with_output().unwrap())).collect();
    directories.dedup();
    assert_eq!(directories.len(), 1);
    assert_eq!(names(&cache(&place)).len(), 2);
    fs::remove_dir(cache(&place).join(".lock")).unwrap();
    fs::remove_dir_all(&directories[0]).unwrap();
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
fn programs_that_cannot_be_started_are_unpacked_again_or_passed_over() {
    let place = Place::new();
    let bundle = bundle(&place, 1000);
    let in_tmp = in_tmp(&place);
    let unpacked = directory(&ran(&place, &bundle));
    let (program, worker) = (unpacked.join("rlm"), unpacked.join("rlm-worker-bash"));
    let damages: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&program).unwrap(),
        &|| fs::write(&worker, "").unwrap(),
        &|| fs::set_permissions(&worker, Permissions::from_mode(0o644)).unwrap(),
        &|| fs::remove_dir_all(&unpacked).unwrap(),
    ];
    for damage in damages {
        damage();
        assert_eq!(directory(&ran(&place, &bundle)), unpacked);
        assert!(fs::metadata(&worker).unwrap().len() > 0);
        assert_eq!(mode(&worker), 0o755);
    }
    // The system refuses a program that looks whole.
    let bytes = fs::metadata(&program).unwrap().len();
    fs::write(&program, "#!/dev/null\n").unwrap();
    File::options().append(true).open(&program).unwrap().set_len(bytes).unwrap();
    assert_eq!(directory(&ran(&place, &bundle)).parent(), Some(&*in_tmp));
    let words = fails(&start(&place, &bundle).env("RLM_CACHE_DIR", cache(&place)).output().unwrap());
    assert!(words.contains("Permission denied"), "{words}");
    fs::remove_dir_all(&in_tmp).unwrap();
    let mounts = "mount -t tmpfs -o mode=755 none \"$1/home\"; \"$0\" exec >/dev/null || [ $? = 7 ]; \
                  mount -o remount,noexec \"$1/home\"";
    let Some(output) = with_mounts(&place, &bundle, mounts) else { return };
    assert_eq!(directory(&output).parent(), Some(&*in_tmp));
    fs::remove_dir_all(&in_tmp).unwrap();
}

#[test]
fn what_the_caller_has_set_is_for_the_programs_alone() {
    let place = Place::new();
    let bundle = bundle(&place, 1 << 20);
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

#[test]
fn a_disk_that_is_full_or_read_only_is_passed_over() {
    let place = Place::new();
    let bundle = bundle(&place, 1 << 20);
    let in_tmp = in_tmp(&place);
    for home in ["-o size=64k", "-o ro", "-o noexec"] {
        let mounts = format!("mount -t tmpfs {home} none \"$1/home\"");
        let Some(output) = with_mounts(&place, &bundle, &mounts) else { return };
        assert_eq!(directory(&output).parent(), Some(&*in_tmp), "{home}");
        fs::remove_dir_all(&in_tmp).unwrap();
    }
    // Nothing is left of the attempt on a full disk.
    let mounts = "mount -t tmpfs -o size=64k none \"$1/home\"; mount -t tmpfs -o size=64k none \"$1/tmp\"; \
                  mount -t tmpfs -o ro none /dev/shm; export RLM_CACHE_DIR=\"$1/home/given\"; \
                  \"$0\" exec || [ $? = 3 ]; find \"$1/home\" \"$1/tmp\" -type f -size +0; RLM_CACHE_DIR=\"$1/tmp/given\"";
    let output = with_mounts(&place, &bundle, mounts).unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(3), &b""[..]), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("No space left on device") && words.contains("set RLM_CACHE_DIR"), "{words}");
}

#[test]
fn where_no_directory_takes_programs_they_are_in_memory() {
    let place = Place::new();
    let bundle = bundle(&place, 1000);
    let mounts = "mount -t tmpfs -o ro none \"$1/home\"; mount -t tmpfs -o noexec none \"$1/tmp\"; \
                  mount -t tmpfs -o noexec none /dev/shm; \"$0\" other >/dev/null 2>&1 || [ $? = 7 ]; ls /dev/shm/rlm-*; \
                  (cd /dev/shm/rlm-* && mkdir links-1)";
    let Some(output) = with_mounts(&place, &bundle, mounts) else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = told.lines().collect();
    assert!(told.starts_with("links-"), "{output:?}");
    let links = Path::new(lines[1]).parent().unwrap();
    assert!(links.starts_with("/dev/shm") && links.file_name() != Some(lines[0].as_ref()), "{told}");
    assert_eq!((lines[2], lines[3]), (links.to_str().unwrap(), "exec"), "it is told its directory");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains("so they are in memory, without Python: ") && words.contains("(noexec)"),
        "{words}"
    );
    // A directory that somebody still holds stays, whatever its process is called here; all others go.
    let mounts = "mount -t tmpfs -o ro none \"$1/home\"; mount -t tmpfs -o noexec none \"$1/tmp\"; \
                  mount -t tmpfs -o noexec none /dev/shm; mkfifo \"/dev/shm/fifo\"; \
                  { \"$0\" wait 2>/dev/null </dev/shm/fifo | { read -r first; echo \"$first\" >/dev/shm/first; cat; } >/dev/null & }; \
                  exec 3>/dev/shm/fifo; while [ ! -s /dev/shm/first ]; do sleep 0.01; done; (cd /dev/shm/rlm-* && mkdir links-1); \
                  unshare --pid --fork --mount-proc \"$0\" exec >/dev/null 2>&1 || [ $? = 7 ]; cat /dev/shm/first; ls -d /dev/shm/rlm-*/*; \
                  exec 3>&-; wait; exit 0";
    let output = with_mounts(&place, &bundle, mounts).unwrap_or_else(|| unreachable!());
    let told = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = told.lines().collect();
    let held = Path::new(lines[0]).parent().unwrap();
    assert!(lines[1..].contains(&held.to_str().unwrap()), "{output:?}");
    assert!(lines.len() == 3 && !told.contains("links-1\n"), "{told}");
    // The bundle itself is below /tmp.
    let mounts = "exec 3<\"$0\"; for directory in \"$1/home\" \"$1/tmp\" /dev/shm /tmp; do mount -t tmpfs -o ro none $directory; done; \
                  exec /proc/self/fd/3 exec";
    let words = fails(&with_mounts(&place, &bundle, mounts).unwrap_or_else(|| unreachable!()));
    assert!(words.contains("memory: nothing can be written in /dev/shm or /tmp"), "{words}");
}

#[test]
fn a_bundle_that_is_cut_off_or_damaged_says_so() {
    let place = Place::new();
    let bundle = bundle(&place, 100_000);
    let whole = fs::read(&bundle).unwrap();
    for bytes in [whole.len() - 1, whole.len() - 1000, whole.len() - 90_000] {
        write_bytes(&bundle, &whole[..bytes]);
        let words = fails(&ran(&place, &bundle));
        assert!(words.contains("the end of this file is missing"), "{words}");
    }
    let mut damaged = whole.clone();
    let middle = whole.len() - 50_000;
    damaged[middle] ^= 1;
    write_bytes(&bundle, &damaged);
    let words = fails(&ran(&place, &bundle));
    assert!(words.contains("this file is damaged: copy or download it again"), "{words}");
    assert_eq!(names(&cache(&place)), [""; 0]);
}

fn write_bytes(bundle: &Path, bytes: &[u8]) {
    fs::remove_file(bundle).unwrap();
    let mut file = File::create(bundle).unwrap();
    file.write_all(bytes).unwrap();
    file.set_permissions(Permissions::from_mode(0o755)).unwrap();
}

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
