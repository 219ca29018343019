//! The working directory after a copy: files, their names and times.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use serde_json::json;

use super::*;
use crate::workspace::PathWithin;

#[test]
fn what_a_single_directory_holds_lies_in_the_working_directory() {
    let ground = Ground::new();
    ground.file("a.txt", "one\ntwo\n");
    ground.file("sub/deep/new\nline", "x");
    fs::write(ground.context.join(OsStr::from_bytes(b"\xff\xfe")), "y").unwrap();
    fs::create_dir(ground.context.join("empty")).unwrap();
    let summary = ground.fill(&ground.whole()).unwrap();
    assert_eq!((summary.files(), summary.bytes()), (3, 10));
    assert_eq!(ground.read("a.txt"), "one\ntwo\n");
    assert_eq!(ground.read("sub/deep/new\nline"), "x");
    assert_eq!(ground.read(OsStr::from_bytes(b"\xff\xfe")), "y");
    assert!(ground.fs.join("empty").is_dir());
    assert_eq!(fs::read_dir(&ground.fs).unwrap().count(), 4);
}

/// Code in a session may put links in the place of what it gives to a child.
#[test]
fn what_was_found_within_a_directory_is_copied_or_nothing_is() {
    let ground = Ground::new();
    let paths = [ground.file("one/a.txt", "a"), ground.file("two/b.txt", "b").parent().unwrap().to_owned()];
    let secret = ground.file("secret/b.txt", "secret");
    symlink(&secret, ground.context.join("link")).unwrap();
    let within = |path: &Path| PathWithin::find(std::slice::from_ref(&ground.context), path).unwrap();
    assert_eq!(within(Path::new("..")), None);
    let mut found: Vec<_> = paths.iter().map(|path| within(path).unwrap()).collect();
    found.push(within(Path::new("link")).unwrap());
    ground.fill(&Context::Within(found.clone())).unwrap();
    assert_eq!(ground.read("a.txt") + &ground.read("two/b.txt") + &ground.read("link"), "absecret");
    ground.clear();
    ground.fill(&Context::Within(found[1..2].to_vec())).unwrap();
    assert_eq!(ground.read("b.txt"), "b", "a directory alone is the working directory");
    ground.clear();
    fs::rename(ground.context.join("two"), ground.context.join("old")).unwrap();
    symlink("secret", ground.context.join("two")).unwrap();
    fs::rename(&paths[0], ground.context.join("moved")).unwrap();
    symlink(&secret, &paths[0]).unwrap();
    ground.check_error_of(&Context::Within(vec![found[0].clone()]), "cannot read CONTEXT/one/a.txt");
    ground.check_error_of(&Context::Within(vec![found[1].clone()]), "cannot read CONTEXT/two");
    fs::remove_file(&paths[0]).unwrap();
    fs::write(&paths[0], "another").unwrap();
    ground.check_error_of(&Context::Within(vec![found[0].clone()]), "cannot read CONTEXT/one/a.txt");
}

#[test]
fn several_paths_lie_there_under_their_names() {
    let ground = Ground::new();
    let file = ground.file("one/a.txt", "a");
    ground.file("two/b.txt", "b");
    let link = ground.context.join("link");
    symlink(ground.context.join("two"), &link).unwrap();
    ground.fill(&Context::Paths(vec![file.clone(), ground.context.join("two"), link])).unwrap();
    assert_eq!(ground.read("a.txt") + &ground.read("two/b.txt") + &ground.read("link/b.txt"), "abb");
    ground.clear();
    ground.fill(&Context::Paths(vec![file])).unwrap();
    assert_eq!(ground.read("a.txt"), "a");
}

#[test]
fn texts_and_documents_are_files() {
    let ground = Ground::new();
    ground.fill(&Context::Text("a\n\u{1F600}".into())).unwrap();
    assert_eq!(ground.read("context.txt"), "a\n\u{1F600}");
    ground.fill(&Context::Json(json!({"b": [1], "a": "x"}))).unwrap();
    assert_eq!(ground.read("context.json"), "{\n  \"b\": [\n    1\n  ],\n  \"a\": \"x\"\n}\n");
    let ground = Ground::new();
    for nothing in [Context::Nothing, Context::Paths(Vec::new())] {
        assert_eq!(ground.fill(&nothing).unwrap().text(), "The directory is empty.");
    }
    ground.check_error_of(
        &Context::Text("x".repeat(1001)),
        "the context has at least 1,001 bytes, more than the limit of 1,000: give a part of it, leave files out with \
         `exclude`, or raise `max_context_bytes`",
    );
}

#[test]
fn times_stay_and_the_owner_may_write() {
    let ground = Ground::new();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for (path, mode) in
        [(ground.file("dir/read-only", "x"), 0o444), (ground.file("dir/program", "x"), 0o4555)]
    {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        File::open(&path).unwrap().set_modified(time).unwrap();
    }
    let before_1970 = ground.file("old", "x");
    let old = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
    File::open(before_1970).unwrap().set_modified(old).unwrap();
    let dir = ground.context.join("dir");
    File::open(&dir).unwrap().set_modified(time).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o555)).unwrap();
    ground.fill(&ground.whole()).unwrap();
    for (name, mode) in [("dir", 0o755), ("dir/read-only", 0o644), ("dir/program", 0o755)] {
        let metadata = ground.fs.join(name).metadata().unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.modified().unwrap()), (mode, time), "{name}");
    }
    assert_eq!(ground.fs.join("old").metadata().unwrap().modified().unwrap(), old);
    fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
}
