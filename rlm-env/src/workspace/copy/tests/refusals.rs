//! Contexts that are refused, with the reason.

use nix::mount::{MsFlags, mount, umount};

use super::*;
use crate::files::testing::with_own_mounts;

#[test]
fn sockets_and_fifos_and_devices_that_are_given_are_refused_unopened() {
    let ground = Ground::new();
    let fifo = ground.context.join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    ground.check_error_of(
        &Context::Paths(vec![fifo]),
        "the context contains a FIFO, CONTEXT/fifo: expected only files and directories",
    );
    ground.check_error_of(
        &Context::Paths(vec!["/dev/zero".into()]),
        "the context contains a character device, /dev/zero: expected only files and directories",
    );
}

#[test]
fn a_context_is_checked_without_a_copy() {
    let ground = Ground::new();
    let file = ground.file("one/a", "");
    let missing = ground.context.join("missing");
    let paths = |paths: &[&Path]| Context::Paths(paths.iter().map(|path| (*path).to_owned()).collect());
    let check = |context: Context| context.check().map_err(|error| error.to_string());
    for sound in [
        Context::Nothing,
        Context::Text("x".into()),
        ground.whole(),
        paths(&[Path::new("/")]),
        paths(&[&file, &ground.context]),
    ] {
        assert_eq!(check(sound), Ok(()));
    }
    let read = Err(format!("cannot read {}", missing.display()));
    assert_eq!(check(paths(&[&missing])), read);
    assert_eq!(check(paths(&[&file, &missing])), read);
    assert_eq!(check(Context::Together(vec![Context::Text("x".into()), paths(&[&missing])])), read);
    assert!(check(paths(&[&file, &file])).unwrap_err().contains("would both be `a`"));
    assert!(check(paths(&[Path::new("/dev/zero")])).unwrap_err().contains("a character device"));
    fs::set_permissions(ground.context.join("one/a"), Permissions::from_mode(0o0)).unwrap();
    let dir = ground.file("two/b", "").parent().unwrap().to_owned();
    fs::set_permissions(&dir, Permissions::from_mode(0o0)).unwrap();
    as_nobody(ground.dir.path(), |_| {
        for path in [&file, &dir] {
            assert_eq!(check(paths(&[path])), Err(format!("cannot read {}", path.display())));
        }
    });
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn what_cannot_be_read_is_named() {
    let ground = Ground::new();
    ground.check_error_of(&Context::Paths(vec!["/does/not/exist".into()]), "cannot read /does/not/exist");
    // The file can be opened but not read, by root either.
    ground.check_error_of(&Context::Paths(vec!["/proc/self/mem".into()]), "cannot copy /proc/self/mem");
    ground.file("a", "copied first");
    let (file, dir) = (ground.file("sub/secret", "x"), ground.context.join("sub"));
    if nix::unistd::geteuid().is_root() {
        nix::unistd::chown(&ground.fs, Some(nix::unistd::Uid::from_raw(65534)), None).unwrap();
    }
    fs::set_permissions(&file, Permissions::from_mode(0o0)).unwrap();
    as_nobody(ground.dir.path(), |_| {
        ground.check_error("cannot read CONTEXT/sub/secret, which `exclude` can leave out");
    });
    fs::set_permissions(&dir, Permissions::from_mode(0o0)).unwrap();
    as_nobody(ground.dir.path(), |_| {
        ground.check_error("cannot read CONTEXT/sub, which `exclude` can leave out");
    });
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn names_must_differ() {
    let ground = Ground::new();
    let (one, two) = (ground.file("one/a", ""), ground.file("two/a", ""));
    ground.check_error_of(
        &Context::Paths(vec![one, two]),
        "CONTEXT/one/a and CONTEXT/two/a would both be `a`: rename one of them",
    );
    ground.check_error_of(
        &Context::Paths(vec![ground.context.join("one"), "/".into()]),
        "/ does not end in a name, so it cannot be copied next to other paths: give it alone, or give its contents",
    );
    let messages = ground.file(".messages", "");
    let refusal = "CONTEXT/.messages has the name of the conversation's transcript: rename it, or remove it";
    ground.check_error(refusal);
    ground.check_error_of(&Context::Paths(vec![messages.clone()]), refusal);
    fs::remove_file(messages).unwrap();
    ground.file("one/.messages", "below it is a name like others");
    ground.fill(&ground.whole()).unwrap();
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let ground = Ground::new();
    let holder = ground.fs.parent().unwrap().to_owned();
    fs::write(holder.join("a"), "not copied").unwrap();
    for holder in [holder.as_path(), Path::new("/"), &ground.fs] {
        let error = ground.fill(&Context::Paths(vec![holder.to_owned()])).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{} contains the directory that it would be copied to, {}: give a part of it, or keep rollouts elsewhere",
                holder.display(),
                ground.fs.display()
            )
        );
        ground.check_empty();
    }
}

#[test]
fn a_mount_does_not_lead_a_directory_into_itself() {
    with_own_mounts(|| {
        let ground = Ground::new();
        let mount_point = ground.context.join("mounted");
        fs::create_dir(&mount_point).unwrap();
        let none = None::<&str>;
        mount(Some(ground.dir.path()), &mount_point, none, MsFlags::MS_BIND, none).unwrap();
        ground.check_error(
            "CONTEXT contains the directory that it would be copied to, FS: give a part of it, or keep rollouts elsewhere",
        );
        umount(&mount_point).unwrap();
    });
}
