use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::time::{Duration, SystemTime};

use nix::mount::{MsFlags, mount, umount};
use nix::sys::stat::Mode;
use serde_json::json;

use super::*;
use crate::files::testing::{as_nobody, with_own_mounts};
use crate::workspace::PathWithin;

const LIMITS: CopyLimits = CopyLimits { max_bytes: 1000, max_entries: 100 };

/// A context's directory, and a working directory to fill from it.
struct Ground {
    dir: tempfile::TempDir,
    context: PathBuf,
    fs: PathBuf,
}

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let (context, fs) = (path.join("context"), path.join("fs"));
        fs::create_dir(&context).unwrap();
        fs::create_dir(&fs).unwrap();
        Self { dir, context, fs }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.context.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn fill(&self, context: &Context) -> Result<Summary, ContextError> {
        self.fill_within(context, LIMITS, &|| false)
    }

    fn fill_within(
        &self,
        context: &Context,
        limits: CopyLimits,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Summary, ContextError> {
        self.fill_filtered(context, &ContextFilter::default(), limits, is_stopped)
    }

    fn fill_filtered(
        &self,
        context: &Context,
        filter: &ContextFilter,
        limits: CopyLimits,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Summary, ContextError> {
        fill(&Directory::at_path(&self.fs).unwrap(), &self.fs, context, filter, limits, is_stopped)
    }

    fn whole(&self) -> Context {
        Context::Paths(vec![self.context.clone()])
    }

    /// Fills from the whole directory, which fails and leaves nothing.
    #[track_caller]
    fn check_error(&self, expected: &str) -> ContextError {
        self.check_error_of(&self.whole(), expected)
    }

    #[track_caller]
    fn check_error_of(&self, context: &Context, expected: &str) -> ContextError {
        let error = self.fill(context).unwrap_err();
        let shown = error.to_string().replace(self.context.to_str().unwrap(), "CONTEXT");
        assert_eq!(shown.replace(self.fs.to_str().unwrap(), "FS"), expected);
        self.check_empty();
        error
    }

    /// Fills from these paths, and checks which files lie in the working directory and what was left out.
    #[track_caller]
    fn check_filtered(
        &self,
        paths: Vec<PathBuf>,
        filter: &ContextFilter,
        files: &[&str],
        left_out: &[(LeftOutReason, u64, &[&str])],
    ) {
        let summary = self.fill_filtered(&Context::Paths(paths), filter, LIMITS, &|| false).unwrap();
        assert_eq!(self.files(), files);
        let found: Vec<_> = summary
            .left_out()
            .iter()
            .map(|left_out| (left_out.reason, left_out.count, left_out.names.clone()))
            .collect();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected: Vec<_> =
            left_out.iter().map(|(reason, count, list)| (*reason, *count, names(list))).collect();
        assert_eq!(found, expected);
        files::clear(&Directory::at_path(&self.fs).unwrap()).unwrap();
    }

    /// Paths of the files in the working directory, sorted.
    fn files(&self) -> Vec<String> {
        let (mut files, mut open) = (Vec::new(), vec![self.fs.clone()]);
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => open.push(path),
                    false => files.push(path.strip_prefix(&self.fs).unwrap().display().to_string()),
                }
            }
        }
        files.sort();
        files
    }

    #[track_caller]
    fn check_empty(&self) {
        assert_eq!(fs::read_dir(&self.fs).unwrap().count(), 0, "something is left of the copy");
    }

    fn read(&self, name: impl AsRef<Path>) -> String {
        fs::read_to_string(self.fs.join(name)).unwrap()
    }
}

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
    files::clear(&Directory::at_path(&ground.fs).unwrap()).unwrap();
    ground.fill(&Context::Within(found[1..2].to_vec())).unwrap();
    assert_eq!(ground.read("b.txt"), "b", "a directory alone is the working directory");
    files::clear(&Directory::at_path(&ground.fs).unwrap()).unwrap();
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
    files::clear(&Directory::at_path(&ground.fs).unwrap()).unwrap();
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

#[test]
fn links_and_sockets_and_fifos_are_left_out() {
    let ground = Ground::new();
    ground.file("a", "copied");
    ground.file("sub/b", "copied");
    symlink("/etc/passwd", ground.context.join("sub/link")).unwrap();
    symlink("..", ground.context.join("way")).unwrap();
    let _listener = UnixListener::bind(ground.context.join("socket")).unwrap();
    nix::unistd::mkfifo(&ground.context.join("fifo"), Mode::S_IRWXU).unwrap();
    let left_out: [(_, _, &[&str]); 2] = [
        (LeftOutReason::SymbolicLink, 2, &["sub/link", "way"]),
        (LeftOutReason::Special, 2, &["fifo", "socket"]),
    ];
    for gitignore in [true, false] {
        let filter = ContextFilter::new(gitignore, &[""; 0]).unwrap();
        ground.check_filtered(vec![ground.context.clone()], &filter, &["a", "sub/b"], &left_out);
    }
}

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
fn what_git_ignores_is_left_out_unless_it_is_given() {
    let ground = Ground::new();
    for (name, text) in [
        (".gitignore", "target/\n*.log\n!kept.log\n/.env\n"),
        (".git/config", ""),
        ("target/debug/a", ""),
        ("a.log", ""),
        ("kept.log", ""),
        (".env", "secret"),
        ("sub/.env", ""),
        ("sub/.gitignore", "!b.log\ndata\n"),
        ("sub/b.log", ""),
        ("sub/data/x", ""),
        ("sub/target/y", ""),
    ] {
        ground.file(name, text);
    }
    let all = [
        ".env",
        ".git/config",
        ".gitignore",
        "a.log",
        "kept.log",
        "sub/.env",
        "sub/.gitignore",
        "sub/b.log",
        "sub/data/x",
        "sub/target/y",
        "target/debug/a",
    ];
    let kept = [".gitignore", "kept.log", "sub/.env", "sub/.gitignore", "sub/b.log"];
    let filter = ContextFilter::default();
    let whole = vec![ground.context.clone()];
    let names = [".env", ".git/", "a.log"];
    ground.check_filtered(whole.clone(), &filter, &kept, &[(LeftOutReason::Gitignore, 6, &names)]);
    ground.check_filtered(whole.clone(), &ContextFilter::new(false, &[""; 0]).unwrap(), &all, &[]);
    // If a directory is given, only the `.gitignore` files below it count.
    let target = vec![ground.context.join("target"), ground.context.join("a.log")];
    ground.check_filtered(target, &filter, &["a.log", "target/debug/a"], &[]);
    let sub = vec![ground.context.join("sub"), ground.context.join("a.log")];
    ground.check_filtered(
        sub,
        &filter,
        &["a.log", "sub/.env", "sub/.gitignore", "sub/b.log", "sub/target/y"],
        &[(LeftOutReason::Gitignore, 1, &["sub/data/"])],
    );
}

#[test]
fn patterns_exclude_from_the_top_of_each_directory_and_come_first() {
    let ground = Ground::new();
    for name in ["one/data/a.csv", "one/sub/data/b.csv", "one/c.txt", "two/data/d", "two/e.csv"] {
        ground.file(name, "x");
    }
    ground.file("one/.gitignore", "c.txt\n");
    fs::set_permissions(ground.file("two/secret", "x"), Permissions::from_mode(0o0)).unwrap();
    let filter = ContextFilter::new(true, &["/data/", "*.csv", "secret", "!c.txt"]).unwrap();
    ground.check_filtered(
        vec![ground.context.join("one"), ground.context.join("two")],
        &filter,
        &["one/.gitignore", "one/c.txt"],
        &[(LeftOutReason::Exclude, 5, &["one/data/", "one/sub/data/b.csv", "two/data/"])],
    );
    let file = vec![ground.context.join("two/e.csv")];
    ground.check_filtered(file, &filter, &["e.csv"], &[]);
    let error = ContextFilter::new(true, &["[z-a]"]).unwrap_err();
    assert!(error.to_string().starts_with("the pattern `[z-a]` is not valid"), "{error}");
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
fn a_large_file_is_refused_before_it_is_copied() {
    let ground = Ground::new();
    ground.file("a", "123");
    File::create(ground.context.join("sparse")).unwrap().set_len(2 << 30).unwrap();
    let looks = Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        false
    };
    let error = ground.fill_within(&ground.whole(), CopyLimits::of_bytes(1_000_000_000), &stop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the context has at least 2,147,483,651 bytes, more than the limit of 1,000,000,000: give a part of it, leave files \
         out with `exclude`, or raise `max_context_bytes`"
    );
    assert_eq!(looks.get(), 3, "two entries and the one chunk of the small file");
    ground.check_empty();
}

#[test]
fn bytes_are_counted_where_a_file_does_not_know_its_length() {
    let ground = Ground::new();
    let proc = PathBuf::from("/proc/self/environ");
    let length = fs::read(&proc).unwrap().len() as u64;
    let limits = CopyLimits { max_bytes: length - 1, ..LIMITS };
    let context = Context::Paths(vec![proc]);
    let error = ground.fill_within(&context, limits, &|| false).unwrap_err();
    assert!(matches!(error, ContextError::TooLarge { at_least, .. } if at_least == length), "{error}");
    ground.check_empty();
    let limits = CopyLimits { max_bytes: length, ..LIMITS };
    assert_eq!(ground.fill_within(&context, limits, &|| false).unwrap().bytes(), length);
}

#[test]
fn there_is_a_limit_of_files_too() {
    let ground = Ground::new();
    for index in 0..100 {
        ground.file(&format!("{index}"), "");
    }
    assert_eq!(ground.fill(&ground.whole()).unwrap().files(), 100);
    files::clear(&Directory::at_path(&ground.fs).unwrap()).unwrap();
    ground.file("one more", "");
    ground.check_error(
        "the context has more than 100 files and directories: give a part of it, leave some out with `exclude`, or give an \
         archive",
    );
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

#[test]
fn a_copy_stops_between_chunks_and_leaves_nothing() {
    let ground = Ground::new();
    File::create(ground.context.join("large")).unwrap().set_len(100 * CHUNK_BYTES).unwrap();
    let looks = Cell::new(0);
    let most = Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        most.set(fs::metadata(ground.fs.join("large")).map_or(0, |metadata| metadata.len()));
        looks.get() == 4
    };
    let error = ground.fill_within(&ground.whole(), CopyLimits::default(), &stop).unwrap_err();
    assert!(matches!(error, ContextError::Cancelled), "{error}");
    assert_eq!(most.get(), 2 * CHUNK_BYTES);
    ground.check_empty();
}

/// Each time the copier looks whether to stop, the file that it copies grows.
#[test]
fn a_file_that_grows_is_copied_as_it_was() {
    let ground = Ground::new();
    let growing = ground.file("growing", "x");
    let grow = || {
        OpenOptions::new().append(true).open(&growing).unwrap().write_all(b"more").unwrap();
        false
    };
    ground.fill_within(&ground.whole(), LIMITS, &grow).unwrap();
    assert_eq!(ground.read("growing"), "xmore", "it had grown once when it was opened");
}

/// Each time the copier looks whether to stop, there is a new file, and an old one is gone.
#[test]
fn a_tree_that_changes_ends() {
    let ground = Ground::new();
    for index in 0..10 {
        ground.file(&format!("old-{index}"), "x");
    }
    let looks = Cell::new(0);
    let change = || {
        ground.file(&format!("new-{}", looks.get()), "x");
        let _gone_already = fs::remove_file(ground.context.join(format!("old-{}", 9 - looks.get() % 10)));
        looks.set(looks.get() + 1);
        false
    };
    let summary = ground.fill_within(&ground.whole(), LIMITS, &change).unwrap();
    assert!(summary.files() < 12, "{}", summary.files());
}
