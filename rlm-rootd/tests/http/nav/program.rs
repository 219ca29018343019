//! The built program with `--workdir`.

use std::process::{Command, Output};

use super::*;
use crate::program::Program;
use crate::support::tool_request;

fn result(program: &Program, tool: &str, args: Json) -> Json {
    let (status, body) = program.exchange(&tool_request(&program.registration("r"), tool, args));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str::<Json>(&body).unwrap()["result"].clone()
}

#[test]
fn large_files_are_looked_through_in_bounded_memory() {
    let nav = Nav::of(&[("small.py", "def f(): pass\n")]);
    let line = "all work and no play makes jack a dull boy, says line after line after line of it ...\n";
    let count = (100 << 20) / line.len();
    fs::write(nav.path("large.txt"), line.repeat(count) + "the end\n").unwrap();
    let minified = "a=1;".repeat(5 << 18) + "needle" + &"b=2;".repeat(5 << 18);
    fs::write(nav.path("app.min.js"), &minified).unwrap();
    let program = Program::start(&["--workdir", nav.path("").to_str().unwrap(), "--rollout", "r"]);
    let before = program.peak();
    let found = result(&program, "nav_search", json!(["needle|the end"]));
    let cut = format!("…{}needle{}…", "a=1;".repeat(25), "b=2;".repeat(48) + "b=");
    assert_eq!(
        found,
        json!([
            {"path": "app.min.js", "line": 1, "text": cut, "cut": true},
            {"path": "large.txt", "line": count + 1, "text": "the end"},
        ])
    );
    let info = result(&program, "nav_info", json!([]));
    assert_eq!((&info["lines"], &info["complete"]), (&json!(count + 3), &json!(true)));
    let chunks = (count + 1).div_ceil(8000 / line.len());
    let read = result(&program, "nav_read", json!(["large.txt", chunks - 1]));
    assert!(read.as_str().unwrap().ends_with(&format!("{line}the end\n")), "{read}");
    let read = result(&program, "nav_read", json!([format!("large.txt:{}-", count + 1)]));
    assert_eq!(read, format!("[large.txt, lines {0}-{0} of {0}, chunk 1 of 1]\nthe end\n", count + 1));
    let read = result(&program, "nav_read", json!(["app.min.js", 655]));
    let (head, text) = read.as_str().unwrap().split_once('\n').unwrap();
    assert_eq!(head, "[app.min.js, lines 1-1 of 1, chunk 656 of 1311; next: nav_read(\"app.min.js\", 656)]");
    assert_eq!(text, &minified[655 * 8000..656 * 8000]);
    // Too large to be parsed, and the result says so.
    let list = result(&program, "nav_ls", json!(["app.min.js"]));
    assert_eq!(
        list,
        json!([{
            "name": "app.min.js", "kind": "text", "line": 1, "end_line": 1, "members": 0, "symbol": "app.min.js",
            "signature": "no symbols: files above 524288 bytes are not parsed",
        }])
    );
    assert_eq!(
        result(&program, "nav_outline", json!(["app.min.js"])),
        "app.min.js: 1 lines; files above 524288 bytes are not parsed\n"
    );
    let grown = program.peak() - before;
    assert!(grown < 48 << 20, "{grown}");
}

#[test]
fn the_largest_sources_that_are_parsed_take_bounded_memory_and_time() {
    let of = |piece: &str| piece.repeat((512 << 10) / piece.len());
    let nav = Nav::of(&[
        ("open.js", &of("[")),
        ("functions.py", &of("def f(): pass\n")),
        ("calls.py", &of("f(1)\n")),
        ("garbage.cpp", &of(")<{;\"'")),
        ("nest.cpp", &"a<".repeat(250_000)),
        ("nest.py", &"(".repeat(500_000)),
        ("nest.js", &"{".repeat(500_000)),
    ]);
    let program = Program::start(&["--workdir", nav.path("").to_str().unwrap(), "--rollout", "r"]);
    for name in ["open.js", "functions.py", "calls.py", "garbage.cpp", "nest.cpp", "nest.py", "nest.js"] {
        let started = Instant::now();
        result(&program, "nav_outline", json!([name]));
        assert!(started.elapsed() < Duration::from_secs(20), "{name}: {:?}", started.elapsed());
    }
    assert!(program.peak() < 300 << 20, "{}", program.peak());
}

fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } =
        Command::new(env!("CARGO_BIN_EXE_rlm-rootd")).args(arguments).env_clear().output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_context_that_cannot_be_served_is_a_wrong_argument() {
    let nav = Nav::of(&[(
        "tools.toml",
        "[[tool]]\nname = \"nav_ls\"\ndescription = \"d\"\ncommand = [\"/bin/true\"]\n",
    )]);
    let (missing, tools) = (nav.path("missing"), nav.path("tools.toml"));
    let (missing, tools) = (missing.to_str().unwrap(), tools.to_str().unwrap());
    let expected = format!(
        "rlm-rootd: the context directory {missing} cannot be opened: No such file or directory (os error 2)\n"
    );
    assert_eq!(refused(&["--workdir", missing]), (Some(2), expected));
    let expected =
        "rlm-rootd: --workdir: the name of its tool nav_ls is taken by one of --tools\n".to_owned();
    assert_eq!(refused(&["--workdir", ".", "--tools", tools]), (Some(2), expected));
}
