//! Contexts that are made to hurt: links, FIFOs, loops, depth, names and bytes of any kind.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

const SECRET: &str = "the_secret_outside";

/// A context beside a directory with a secret.
fn beside_secret(files: &[(&str, &str)]) -> Nav {
    let nav = Nav::of(files);
    write(&nav.path("../outside/secret.py"), format!("def {SECRET}(): pass\n"));
    nav
}

/// A call of each tool about one path.
fn calls_about(path: &str) -> [(&'static str, Json); 4] {
    [
        ("nav_ls", json!([path])),
        ("nav_outline", json!([path])),
        ("nav_read", json!([path])),
        ("nav_search", json!([SECRET, 20, path])),
    ]
}

#[tokio::test]
async fn paths_outside_are_refused_and_absolute_ones_inside_are_not() {
    let nav = beside_secret(&[("src/a.py", "def f(): pass\n")]);
    let root = nav.path("");
    let root = root.display().to_string().trim_end_matches('/').to_owned();
    let outside = format!("{}/outside/secret.py", nav.path("..").canonicalize().unwrap().display());
    let beside = format!("{root}-beside");
    for path in [
        "..",
        "../outside/secret.py",
        "src/../../outside",
        &outside,
        "/etc/passwd",
        "/",
        "../context/src",
        &beside,
    ] {
        for (tool, args) in calls_about(path) {
            let expected = format!("{tool}: {path:?} is outside the context directory {root}");
            assert_eq!(nav.error(tool, args).await, expected);
        }
    }
    for path in [&format!("{root}/src/a.py"), "src/../src/./a.py", "src//a.py", "missing/../src/a.py"] {
        assert_eq!(field(&nav.ok("nav_ls", json!([path])).await, "symbol"), ["src/a.py:f"], "{path}");
    }
    assert_eq!(field(&nav.ok("nav_ls", json!([root])).await, "path"), ["src"]);
}

#[tokio::test]
async fn the_context_itself_may_be_reached_through_a_link() {
    let nav = Nav::of(&[("a.py", "def f(): pass\n")]);
    let link = nav.path("../link");
    symlink("context", &link).unwrap();
    let tools = Navigation::new(&link).unwrap().tools();
    for path in [link.join("a.py"), nav.path("a.py").canonicalize().unwrap()] {
        let read = call(&tools, "nav_read", json!([path])).await.unwrap();
        assert_eq!(read, "[a.py, lines 1-1 of 1, chunk 1 of 1]\ndef f(): pass\n");
    }
}

#[test]
fn an_invalid_context_is_an_error() {
    let nav = Nav::of(&[("file", "")]);
    for (path, why) in [("missing", "No such file"), ("file", "Not a directory")] {
        let error = Navigation::new(nav.path(path)).unwrap_err();
        let expected = format!("the context directory {} cannot be opened", nav.path(path).display());
        assert_eq!((error.to_string(), error.path), (expected, nav.path(path)));
        assert!(error.source.to_string().starts_with(why));
    }
}

#[tokio::test]
async fn links_are_reported_and_not_followed() {
    let nav = beside_secret(&[("src/a.py", "x = 1\n")]);
    let outside = nav.path("../outside").canonicalize().unwrap();
    for (target, link) in [
        ("../outside/secret.py", "link.py"),
        (outside.join("secret.py").to_str().unwrap(), "absolute.py"),
        ("../outside", "way"),
        ("src/a.py", "inside.py"),
        (".", "loop"),
        ("b", "a"),
        ("a", "b"),
    ] {
        symlink(target, nav.path(link)).unwrap();
        for path in [link.to_owned(), format!("{link}/secret.py"), format!("./{link}/x/y")] {
            for (tool, args) in calls_about(&path) {
                let expected =
                    format!("{tool}: {link:?} is a symbolic link to {target:?}: links are not followed");
                assert_eq!(nav.error(tool, args).await, expected);
            }
        }
        let expected = format!("nav_read: {link:?} is a symbolic link to {target:?}: links are not followed");
        assert_eq!(nav.error("nav_read", json!([format!("{link}:{SECRET}")])).await, expected);
    }
    // Walks go by them.
    assert_eq!(nav.ok("nav_search", json!([SECRET])).await, json!([]));
    assert_eq!(nav.ok("nav_info", json!([])).await["files"], 1);
    assert_eq!(nav.ok("nav_outline", json!([])).await, ".: 1 files\nsrc/a.py: python, 1 lines\n");
    assert!(nav.error("nav_read", json!([SECRET])).await.starts_with("nav_read: there is no file or symbol"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_turns_into_a_link_leads_nowhere() {
    let nav = beside_secret(&[("real/secret.py", "def harmless(): pass\n")]);
    symlink("../outside", nav.path("link")).unwrap();
    // A name that is now a directory and now a link, as fast as the system does it.
    let (real, link, name) = (nav.path("real"), nav.path("link"), nav.path("name"));
    let is_over = std::sync::Arc::new(AtomicBool::new(false));
    let swapping = {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            while !is_over.load(Relaxed) {
                for held in [&real, &link] {
                    fs::rename(held, &name).unwrap();
                    fs::rename(&name, held).unwrap();
                }
            }
        })
    };
    let (mut reads, mut links) = (0, 0);
    for _ in 0..20_000 {
        let read = nav.call("nav_read", json!(["name/secret.py"])).await;
        let text = read.as_ref().map_or_else(|error| error.as_str(), |read| read.as_str().unwrap());
        assert!(!text.contains(SECRET), "{text}");
        reads += usize::from(text.contains("harmless"));
        links += usize::from(text.contains("links are not followed"));
        let found = nav.ok("nav_search", json!([SECRET])).await;
        assert_eq!(found, json!([]));
        if reads > 20 && links > 20 {
            break;
        }
    }
    is_over.store(true, Relaxed);
    swapping.join().unwrap();
    assert!(reads > 20 && links > 20, "both were met: {reads} {links}");
}

#[tokio::test]
async fn files_that_are_not_regular_are_never_waited_for() {
    let nav = Nav::of(&[("a.txt", "x\n"), ("sub/b.txt", "x\n")]);
    mkfifo(&nav.path("fifo.py"), Mode::S_IRWXU).unwrap();
    // A FIFO where rules would be read from.
    mkfifo(&nav.path(".gitignore"), Mode::S_IRWXU).unwrap();
    symlink("/dev/zero", nav.path("sub/.gitignore")).unwrap();
    let _socket = UnixListener::bind(nav.path("socket.py")).unwrap();
    for name in ["fifo.py", "socket.py"] {
        for (tool, args) in calls_about(name) {
            let expected = format!("{tool}: {name:?} is neither a regular file nor a directory");
            assert_eq!(nav.error(tool, args).await, expected);
        }
    }
    let kinds = field(&nav.ok("nav_ls", json!([])).await, "kind");
    assert_eq!(kinds, ["other", "file", "other", "other", "directory"]);
    assert_eq!(field(&nav.ok("nav_search", json!(["x"])).await, "path"), ["a.txt", "sub/b.txt"]);
    assert_eq!(nav.ok("nav_info", json!([])).await["files"], 2);
}

#[tokio::test]
async fn files_of_the_kernel_have_an_end() {
    // Files of `/proc` have no size, and some would never end.
    let tools = Navigation::new("/proc/self").unwrap().tools();
    let read = call(&tools, "nav_read", json!(["status"])).await.unwrap();
    assert!(read.as_str().unwrap().contains("\nName:\t"), "{read}");
    for (tool, args) in
        [("nav_info", json!([])), ("nav_search", json!(["no such text in it"])), ("nav_ls", json!([]))]
    {
        call(&tools, tool, args).await.unwrap();
    }
}

#[tokio::test]
async fn bytes_of_any_kind_are_shown() {
    let nav = Nav::of(&[("a.txt", "")]);
    write(&nav.path("latin.py"), b"# caf\xe9\ndef f\xff(): pass\ndef g(): return '\xe9'\n");
    write(&nav.path("cut.txt"), b"\xf0\x9f\x98");
    let name = std::ffi::OsStr::from_bytes(b"n\xe4me.txt");
    fs::write(nav.path("").join(name), "x\n").unwrap();
    assert_eq!(
        nav.ok("nav_read", json!(["latin.py"])).await,
        "[latin.py, lines 1-3 of 3, chunk 1 of 1]\n# caf\u{fffd}\ndef f\u{fffd}(): pass\ndef g(): return '\u{fffd}'\n"
    );
    assert_eq!(
        nav.ok("nav_read", json!(["cut.txt"])).await,
        "[cut.txt, lines 1-1 of 1, chunk 1 of 1]\n\u{fffd}"
    );
    let found = nav.ok("nav_search", json!(["return"])).await;
    assert_eq!(found, json!([{"path": "latin.py", "line": 3, "text": "def g(): return '\u{fffd}'"}]));
    assert!(field(&nav.ok("nav_ls", json!(["latin.py"])).await, "name").contains(&json!("g")));
    let paths = field(&nav.ok("nav_ls", json!([])).await, "path");
    assert_eq!(paths, ["a.txt", "cut.txt", "latin.py", "n\u{fffd}me.txt"]);
}

#[tokio::test]
async fn source_with_errors_gives_what_parses() {
    let text = "def good(): pass\n\nclass A(:\n    def m(self): pass\n\ndef ((\n\ndef after(): pass\n";
    let nav =
        Nav::of(&[("a.py", text), ("b.rs", "fn good() {}\nimpl X { fn m(&self) { \n\nfn after() {}\n")]);
    let names = field(&nav.ok("nav_ls", json!(["a.py"])).await, "name");
    assert!(names.contains(&json!("good")) && names.contains(&json!("after")), "{names:?}");
    assert!(field(&nav.ok("nav_ls", json!(["b.rs"])).await, "name").contains(&json!("good")));
}

/// A runtime whose threads have small stacks.
fn on_small_stacks(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).thread_stack_size(256 << 10).enable_all().build().unwrap().block_on(test);
}

#[test]
fn no_depth_of_nesting_is_too_much() {
    let nested = |open: &str, inner: &str, close: &str, depth: usize| {
        open.repeat(depth) + inner + &close.repeat(depth)
    };
    let indented: String = (0..1500).map(|depth| format!("{}class C{depth}:\n", " ".repeat(depth))).collect();
    let sources = [
        ("parens.py", format!("x = {}\n", nested("(", "1", ")", 100_000))),
        // Not so many that it could reach the limits of a file on a busy machine.
        ("nested.py", format!("x = {}\ndef f(): pass\n", nested("(", "1", ")", 10_000))),
        ("open.py", "(".repeat(100_000)),
        ("classes.py", indented + &" ".repeat(1500) + "pass\n"),
        ("arrays.js", format!("const x = {};\nfunction f() {{}}\n", nested("[", "1", "]", 100_000))),
        ("functions.js", nested("function f() {", "", "}", 20_000)),
        ("types.ts", format!("type T = {};\n", nested("Array<", "1", ">", 20_000))),
        ("view.tsx", format!("const v = {};\n", nested("<a>", "x", "</a>", 20_000))),
        ("modules.rs", nested("mod m {", "fn f() {}", "}", 20_000)),
        ("blocks.go", format!("package a\nfunc f() {{ {} }}\n", nested("{", "", "}", 20_000))),
        ("classes.java", nested("class A {", "", "}", 20_000)),
        ("declarator.c", format!("int {};\n", nested("(", "f", ")", 50_000))),
        ("pointers.c", format!("int {}f(void) {{}}\n", "*".repeat(100_000))),
        ("spaces.cpp", nested("namespace n {", "int f();", "}", 20_000)),
        ("templates.cpp", format!("{} x;\n", nested("A<", "int", ">", 5_000))),
    ];
    let files: Vec<_> = sources.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let nav = Nav::of(&files);
    on_small_stacks(async {
        for (name, _) in &files {
            assert!(!nav.ok("nav_ls", json!([name])).await.as_array().unwrap().is_empty(), "{name}");
            nav.ok("nav_outline", json!([name])).await;
        }
        assert_eq!(field(&nav.ok("nav_ls", json!(["nested.py"])).await, "name"), ["x", "f"]);
    });
}

#[tokio::test]
async fn invalid_and_too_many_rules_are_ignored() {
    let none = "[\n\\\n{a,\n!\n!!\n/\n//\n**\0\n***/[z-a]\n\u{feff}x\n";
    let many: String = (0..8000).map(|number| format!("**/*a{number}*b*[c-x]?**\n")).collect();
    let nav = Nav::of(&[
        (".gitignore", none),
        ("a.txt", "needle\n"),
        ("sub/.gitignore", &many),
        ("sub/b.txt", "needle\n"),
    ]);
    assert_eq!(field(&nav.ok("nav_search", json!(["needle"])).await, "path"), ["a.txt", "sub/b.txt"]);
}

#[tokio::test]
async fn directories_below_the_depth_limit_are_reported() {
    let deep = "d/".repeat(150) + "file.txt";
    let nav = Nav::of(&[(&deep, "needle\n"), ("top.txt", "needle\n")]);
    let info = nav.ok("nav_info", json!([])).await;
    assert_eq!((&info["files"], &info["unreadable"]), (&json!(1), &json!(1)));
    let found = nav.ok("nav_search", json!(["needle"])).await;
    assert_eq!(found[0]["path"], "top.txt");
    assert_eq!(
        found[1],
        json!({"path": "", "line": 0, "text": "1 directories could not be searched", "note": true})
    );
    // The file can be read by its name all the same.
    assert!(nav.ok("nav_read", json!([deep])).await.as_str().unwrap().ends_with("needle\n"));
}

#[tokio::test]
async fn files_that_come_and_go_are_not_errors() {
    let nav = Nav::of(&[("stays.txt", "needle\n")]);
    let is_over = std::sync::Arc::new(AtomicBool::new(false));
    let changing = {
        let (is_over, root) = (is_over.clone(), nav.path(""));
        std::thread::spawn(move || {
            while !is_over.load(Relaxed) {
                for number in 0..20 {
                    write(&root.join(format!("d{number}/f.txt")), "hay\n");
                }
                for number in 0..20 {
                    fs::remove_dir_all(root.join(format!("d{number}"))).unwrap();
                }
            }
        })
    };
    for _ in 0..300 {
        let found = nav.ok("nav_search", json!(["needle"])).await;
        assert_eq!(found[0], json!({"path": "stays.txt", "line": 1, "text": "needle"}).clone());
        assert_eq!(nav.ok("nav_info", json!([])).await["complete"], true);
        nav.ok("nav_ls", json!([])).await;
        nav.ok("nav_outline", json!([])).await;
        match nav.call("nav_read", json!(["d7/f.txt"])).await {
            Ok(text) => assert!(text.as_str().unwrap().starts_with("[d7/f.txt, lines "), "{text}"),
            Err(error) => {
                assert!(error.starts_with("nav_read: there is no file or symbol \"d7/f.txt\""), "{error}")
            }
        }
    }
    is_over.store(true, Relaxed);
    changing.join().unwrap();
}

#[tokio::test]
async fn a_call_ends_when_it_is_dropped_or_its_time_is_over() {
    // Hundreds of gigabytes, which take the space of one file.
    let nav = Nav::of(&[("0.txt", "")]);
    fs::write(nav.path("0.txt"), "hay\n".repeat(16 << 20)).unwrap();
    for number in 1..4000 {
        fs::hard_link(nav.path("0.txt"), nav.path(&format!("{number}.txt"))).unwrap();
    }
    let soon = || Instant::now() + Duration::from_millis(300);
    let info = call_until(&nav.tools, "nav_info", json!([]), soon()).await.unwrap();
    assert_eq!(info["complete"], false);
    let found = call_until(&nav.tools, "nav_search", json!(["needle"]), soon()).await.unwrap();
    let note = found[0]["text"].as_str().unwrap();
    assert!(note.starts_with("the time limit was reached"), "{note}");
    let error = call_until(&nav.tools, "nav_ls", json!([]), soon()).await.unwrap_err();
    assert_eq!(
        error,
        "nav_ls: the time limit of the call was reached: ask for less, for example for one directory"
    );
    // More calls than work at once are dropped, and the next one is served.
    for tool in ["nav_info", "nav_ls", "nav_outline", "nav_search"].iter().cycle().take(12) {
        let args = if *tool == "nav_search" { json!(["needle"]) } else { json!([]) };
        let dropped = tokio::time::timeout(Duration::from_millis(20), call(&nav.tools, tool, args)).await;
        assert!(dropped.is_err(), "{tool} ended by itself");
    }
    assert!(nav.error("nav_read", json!(["0.txt:99999999"])).await.contains("has 16777216 lines"));
}
