//! The place of the programs: the first directory that takes them, or memory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, lchown};

use nix::unistd::{Uid, chown};

use super::*;

#[test]
fn the_place_is_the_first_that_takes_it() {
    let (place, bundle) = packed(1000);
    let in_tmp = in_tmp(&place);
    let check = |command: &mut Command, base: &Path| {
        let unpacked = directory(&command.output().unwrap());
        assert_eq!(unpacked.parent(), Some(base));
        fs::remove_dir_all(base).unwrap();
    };
    check(start(&place, &bundle).env("XDG_CACHE_HOME", place.file("xdg")), &place.file("xdg/rlm"));
    check(start(&place, &bundle).env("RLM_CACHE_DIR", place.file("given")), &place.file("given"));
    check(start(&place, &bundle).env_remove("HOME"), &in_tmp);
    let file = place.write("file", "");
    for home in [Path::new("/proc/nowhere"), Path::new("relative"), &file] {
        check(start(&place, &bundle).env("HOME", home), &in_tmp);
    }
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
    let (place, bundle) = packed(1000);
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
    let (place, bundle) = packed(1000);
    let given = |cache: &str| start(&place, &bundle).env("RLM_CACHE_DIR", cache).output().unwrap();
    let first = directory(&given("given"));
    assert_eq!(first.parent(), Some(&*place.file("given")), "the path is absolute");
    assert_eq!(directory(&given("./given/../given")), first);
    fs::rename(place.file("given"), place.file("moved")).unwrap();
    // A Python there has its old path inside.
    assert_ne!(directory(&given("moved")).file_name(), first.file_name());
}

#[test]
fn a_disk_that_is_full_or_read_only_is_passed_over() {
    let (place, bundle) = packed(1 << 20);
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
    let (place, bundle) = packed(1000);
    let nowhere = "mount -t tmpfs -o ro none \"$1/home\"; mount -t tmpfs -o noexec none \"$1/tmp\"; \
                   mount -t tmpfs -o noexec none /dev/shm";
    let mounts = format!(
        "{nowhere}; \"$0\" other >/dev/null 2>&1 || [ $? = 7 ]; ls /dev/shm/rlm-*; (cd /dev/shm/rlm-* && mkdir links-1)"
    );
    let Some(output) = with_mounts(&place, &bundle, &mounts) else { return };
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
    let holds = "mkfifo \"/dev/shm/fifo\"; \
                  { \"$0\" wait 2>/dev/null </dev/shm/fifo | { read -r first; echo \"$first\" >/dev/shm/first; cat; } >/dev/null & }; \
                  exec 3>/dev/shm/fifo; while [ ! -s /dev/shm/first ]; do sleep 0.01; done; (cd /dev/shm/rlm-* && mkdir links-1); \
                  unshare --pid --fork --mount-proc \"$0\" exec >/dev/null 2>&1 || [ $? = 7 ]; cat /dev/shm/first; ls -d /dev/shm/rlm-*/*; \
                  exec 3>&-; wait; exit 0";
    let output =
        with_mounts(&place, &bundle, &format!("{nowhere}; {holds}")).unwrap_or_else(|| unreachable!());
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
