//! Files that are left out.

use std::os::unix::net::UnixListener;

use super::*;

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
