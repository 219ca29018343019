//! The results of each tool.

use super::*;

#[tokio::test]
async fn a_directory_is_listed_with_sizes_and_what_is_left_out_is_not() {
    let nav = Nav::of(&[
        ("src/a.py", "x = 1\n"),
        ("src/deep/b.py", "y"),
        ("src/deep/c.log", "left out\n"),
        ("empty.txt", ""),
        ("data.bin", "a\0b"),
        (".hidden", "one\n"),
        (".messages/turns.jsonl", "{}\n"),
        (".git/config", "[core]\n"),
        (".gitignore", "*.log\n/build/\n!keep.log\n# comment\n"),
        ("build/out.txt", "left out\n"),
        ("keep.log", "kept\n"),
        ("src/.gitignore", "!deep/c.log\nskip.py\n"),
        ("src/skip.py", "left out\n"),
    ]);
    std::os::unix::fs::symlink("src", nav.path("link")).unwrap();
    let file =
        |path: &str, bytes, lines| json!({"path": path, "kind": "file", "bytes": bytes, "lines": lines});
    let directory = |path: &str, bytes, files| json!({"path": path, "kind": "directory", "bytes": bytes, "lines": null, "files": files});
    assert_eq!(
        nav.ok("nav_ls", json!([])).await,
        json!([
            file(".gitignore", 34, 4),
            file(".hidden", 4, 1),
            directory(".messages", 3, 1),
            json!({"path": "data.bin", "kind": "binary", "bytes": 3, "lines": null}),
            file("empty.txt", 0, 0),
            file("keep.log", 5, 1),
            json!({"path": "link", "kind": "link", "bytes": null, "lines": null}),
            directory("src", 36, 4),
        ])
    );
    let paths = field(&nav.ok("nav_ls", json!(["src/"])).await, "path");
    assert_eq!(paths, ["src/.gitignore", "src/a.py", "src/deep"]);
    // Rules of directories above hold as well, the nearest first.
    assert_eq!(
        field(&nav.ok("nav_ls", json!(["./src/deep"])).await, "path"),
        ["src/deep/b.py", "src/deep/c.log"]
    );
    // A path that is named is listed even if a walk leaves it out.
    assert_eq!(field(&nav.ok("nav_ls", json!([".git"])).await, "path"), [".git/config"]);
    assert_eq!(field(&nav.ok("nav_ls", json!(["build"])).await, "path"), ["build/out.txt"]);
    assert_eq!(nav.ok("nav_info", json!([])).await["files"], 10);
    let found = nav.ok("nav_search", json!(["left out"])).await;
    assert_eq!(field(&found, "path"), ["src/deep/c.log"]);
}

#[tokio::test]
async fn rules_from_above_the_context_do_not_count() {
    let nav = Nav::of(&[("a.txt", "x\n")]);
    write(&nav.path("../.gitignore"), "*.txt\n");
    write(&nav.path("../.git/config"), "");
    assert_eq!(nav.ok("nav_info", json!([])).await["files"], 1);
}

#[tokio::test]
async fn the_context_is_counted() {
    let nav = Nav::of(&[
        ("a.py", "x = 1\ny = 2\n"),
        ("b.py", "z"),
        ("README", "é\n"),
        ("t.TXT", "\n\n"),
        ("z.bin", "\0\0\0\0"),
    ]);
    assert_eq!(
        nav.ok("nav_info", json!([])).await,
        json!({
            "files": 5, "bytes": 22, "lines": 6, "estimated_tokens": 5,
            "languages": {
                "python": {"files": 2, "lines": 3},
                ".txt": {"files": 1, "lines": 2},
                "text": {"files": 1, "lines": 1},
            },
            "binary_files": 1, "unreadable": 0, "complete": true,
        })
    );
    // Endings beyond the thirty with the most lines are one sum.
    for number in 0..40 {
        write(&nav.path(&format!("f.e{number}")), "\n");
    }
    let info = nav.ok("nav_info", json!([])).await;
    let languages = info["languages"].as_object().unwrap();
    assert_eq!((languages.len(), &languages["other"]), (31, &json!({"files": 13, "lines": 13})));
}

#[tokio::test]
async fn a_file_is_read_in_chunks_that_tell_how_to_go_on() {
    let text: String = (1..=1000).map(|number| format!("line {number:04} é\n")).collect();
    let nav = Nav::of(&[("sub/long.txt", &text), ("odd \"name\".txt", "x"), ("empty", "")]);
    let mut whole = String::new();
    let heads = [
        "[sub/long.txt, lines 1-666 of 1000, chunk 1 of 2; next: nav_read(\"sub/long.txt\", 1)]",
        "[sub/long.txt, lines 667-1000 of 1000, chunk 2 of 2]",
    ];
    for (index, head) in heads.into_iter().enumerate() {
        let chunk = nav.ok("nav_read", json!(["sub/long.txt", index])).await;
        let (first, rest) = chunk.as_str().unwrap().split_once('\n').unwrap();
        assert_eq!(first, head);
        whole.push_str(rest);
    }
    assert_eq!(whole, text);
    assert_eq!(
        nav.error("nav_read", json!({"symbol_or_path": "sub/long.txt", "chunk_index": 2})).await,
        "nav_read: chunk_index 2 is past the end: \"sub/long.txt\" has 2 chunks, chunk_index 0 to 1"
    );
    let read = async |what: &str| nav.ok("nav_read", json!([what])).await.as_str().unwrap().to_owned();
    assert_eq!(
        read("sub/long.txt:2-3").await,
        "[sub/long.txt, lines 2-3 of 1000, chunk 1 of 1]\nline 0002 é\nline 0003 é\n"
    );
    assert_eq!(
        read("sub/long.txt:1000").await,
        "[sub/long.txt, lines 1000-1000 of 1000, chunk 1 of 1]\nline 1000 é\n"
    );
    assert_eq!(
        read("sub/long.txt:1-900").await.lines().next().unwrap(),
        "[sub/long.txt, lines 1-666 of 1000, chunk 1 of 2; next: nav_read(\"sub/long.txt:1-900\", 1)]"
    );
    assert!(read("sub/long.txt:999-").await.ends_with("]\nline 0999 é\nline 1000 é\n"));
    assert_eq!(read("odd \"name\".txt").await, "[odd \"name\".txt, lines 1-1 of 1, chunk 1 of 1]\nx");
    assert_eq!(read("empty").await, "[empty, lines none of 0, chunk 1 of 1]\n");
    for (what, expected) in [
        ("sub/long.txt:1001", "\"sub/long.txt\" has 1000 lines, so there is no line 1001"),
        (
            "sub/long.txt:5-4",
            "lines 5-4 of \"sub/long.txt\" are not a range: lines count from 1, and the last must not be before the first",
        ),
        (
            "sub/long.txt:0-4",
            "lines 0-4 of \"sub/long.txt\" are not a range: lines count from 1, and the last must not be before the first",
        ),
        ("empty:1", "\"empty\" has 0 lines, so there is no line 1"),
        ("sub", "\"sub\" is a directory; nav_ls(\"sub\") lists what it holds"),
    ] {
        assert_eq!(nav.error("nav_read", json!([what])).await, format!("nav_read: {expected}"));
    }
}

#[tokio::test]
async fn symbols_are_read_by_their_names() {
    let method = "class A:\n    # Runs.\n    @now\n    def run(self):\n        pass\n\nclass B:\n    def run(self): pass\n    def other(self): pass\n";
    let nav =
        Nav::of(&[("a.py", method), ("b.rs", "impl A { fn go() {} }\n"), ("c.txt", "def other(): pass\n")]);
    let run = "[a.py:A.run, lines 2-5 of 9, chunk 1 of 1]\n    # Runs.\n    @now\n    def run(self):\n        pass\n";
    let read = async |what: &str| nav.ok("nav_read", json!([what])).await.as_str().unwrap().to_owned();
    assert_eq!(read("a.py:A.run").await, run);
    assert_eq!(read("A.run").await, run);
    assert_eq!(
        read("other").await,
        "[a.py:B.other, lines 9-9 of 9, chunk 1 of 1]\n    def other(self): pass\n"
    );
    assert_eq!(read("b.rs:A::go").await, "[b.rs:A.go, lines 1-1 of 1, chunk 1 of 1]\nfn go() {}\n");
    assert_eq!(read("A::go").await, read("b.rs:A.go").await);
    for (what, expected) in [
        ("run", "several symbols are named \"run\": take one of a.py:A.run, a.py:B.run"),
        ("a.py:A.rum", "there is no symbol \"A.rum\" in \"a.py\"; did you mean \"a.py:A.run\"?"),
        ("a.py:zzz", "there is no symbol \"zzz\" in \"a.py\"; nav_ls(\"a.py\") lists its symbols"),
        ("c.txt:other", "the symbols of \"c.txt\" are not known: there is no grammar for files of its kind"),
        (
            "missing",
            "there is no file or symbol \"missing\" in the context; nav_ls(\"\") lists what there is, nav_search finds text",
        ),
    ] {
        assert_eq!(nav.error("nav_read", json!([what])).await, format!("nav_read: {expected}"));
    }
}

#[tokio::test]
async fn the_error_of_a_missing_path_suggests_similar_ones() {
    let nav = Nav::of(&[("src/main.rs", ""), ("src/lib.rs", ""), ("docs/guide.md", "x\n")]);
    let no_directory = "there is no file or directory";
    for (tool, args, path, what, hint) in [
        ("nav_ls", json!(["src/mian.rs"]), "src/mian.rs", no_directory, "did you mean \"src/main.rs\"?"),
        ("nav_ls", json!(["guide.md"]), "guide.md", no_directory, "did you mean \"docs/guide.md\"?"),
        ("nav_outline", json!(["doc"]), "doc", no_directory, "did you mean \"docs\"?"),
        (
            "nav_read",
            json!(["guide.md:Title"]),
            "guide.md:Title",
            "there is no file or symbol",
            "did you mean \"docs/guide.md\"?",
        ),
        (
            "nav_ls",
            json!(["src/main.rs/x"]),
            "src/main.rs/x",
            no_directory,
            "nav_ls(\"\") lists what there is, nav_search finds text",
        ),
        ("nav_search", json!(["x", 20, "guide"]), "guide", no_directory, "did you mean \"docs/guide.md\"?"),
    ] {
        let expected = format!("{tool}: {what} {path:?} in the context; {hint}");
        assert_eq!(nav.error(tool, args).await, expected);
    }
}

#[tokio::test]
async fn matches_come_in_order_and_it_shows_that_there_are_more() {
    let lines = |count: usize| "a needle\nhay\n".repeat(count);
    let (ten, one) = (lines(10), lines(1));
    let nav = Nav::of(&[("b/z.txt", &ten), ("a.txt", &one), ("b.txt", &one), ("c/404.txt", "page 404\r\n")]);
    let found = nav.ok("nav_search", json!(["needle", 3])).await;
    assert_eq!(
        found,
        json!([
            {"path": "a.txt", "line": 1, "text": "a needle"},
            {"path": "b/z.txt", "line": 1, "text": "a needle"},
            {"path": "b/z.txt", "line": 3, "text": "a needle"},
            {"path": "", "line": 0, "text": "there are more than 3 matches: ask with a larger max_results, a path or a narrower pattern", "note": true},
        ])
    );
    // Exactly as many as there are: nothing is noted.
    assert_eq!(nav.ok("nav_search", json!(["needle", 12])).await.as_array().unwrap().len(), 12);
    assert_eq!(
        field(&nav.ok("nav_search", json!({"pattern": "needle", "path": "b.txt"})).await, "path"),
        ["b.txt"]
    );
    assert_eq!(
        field(
            &nav.ok("nav_search", json!({"pattern": "(?i)NEEDLE", "path": "b", "max_results": 10})).await,
            "line"
        )
        .len(),
        10
    );
    assert_eq!(nav.ok("nav_search", json!(["nothing"])).await, json!([]));
    // A shell hands on a number; and a line may end as on other systems.
    assert_eq!(
        nav.ok("nav_search", json!([404])).await,
        json!([{"path": "c/404.txt", "line": 1, "text": "page 404"}])
    );
    assert_eq!(nav.ok("nav_search", json!(["404$"])).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_error_of_a_bad_pattern_is_that_of_the_crate() {
    let nav = Nav::of(&[]);
    let error = nav.error("nav_search", json!(["a(b"])).await;
    assert_eq!(
        error,
        "nav_search: the pattern is not a valid regular expression: regex parse error:\n    a(b\n     ^\nerror: unclosed group\n\
         hint: patterns are those of the Rust crate regex, within one line; put \\ before a sign that means itself, as in \\("
    );
    for pattern in ["(?=x)", "a\nb", &"(".repeat(10_000)] {
        let error = nav.error("nav_search", json!([pattern])).await;
        assert!(error.starts_with("nav_search: the pattern is not a valid regular expression: "), "{error}");
    }
}

#[tokio::test]
async fn a_long_line_is_cut_around_its_match() {
    let line = format!("{}needle{}", "é".repeat(500), "ü".repeat(500));
    let nav = Nav::of(&[("a.txt", &line), ("b.txt", &"x".repeat(300))]);
    let found = nav.ok("nav_search", json!(["needle"])).await;
    let expected = format!("…{}needle{}…", "é".repeat(100), "ü".repeat(194));
    assert_eq!(found, json!([{"path": "a.txt", "line": 1, "text": expected, "cut": true}]));
    let found = nav.ok("nav_search", json!(["x+"])).await;
    assert_eq!(found, json!([{"path": "b.txt", "line": 1, "text": "x".repeat(300)}]));
}
