//! Whole trees: this project, and one of ten thousand files beside what `grep` says of it.

use std::process::Command;

use rlm_tests::tree;

use super::*;

#[tokio::test]
async fn this_project_is_counted_without_what_git_ignores() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let tools = Navigation::new(root).unwrap().tools();
    let info = call(&tools, "nav_info", json!([])).await.unwrap();
    assert!(info["languages"]["rust"]["lines"].as_u64().unwrap() > 50_000, "{info}");
    // A build directory in it would be hundreds of thousands.
    assert!(info["files"].as_u64().unwrap() < 5_000, "{info}");
    let paths = field(&call(&tools, "nav_ls", json!([])).await.unwrap(), "path");
    assert!(paths.contains(&json!("Cargo.toml")) && paths.contains(&json!(".config")), "{paths:?}");
    assert!(!paths.contains(&json!(".git")) && root.join(".git").exists(), "{paths:?}");
}

/// The result of `grep -rn`, sorted by path and line.
fn grep(root: &Path, pattern: &str) -> Vec<(String, u64, String)> {
    let output = Command::new("grep").args(["-rnE", "-e", pattern, "."]).current_dir(root).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found: Vec<_> = text
        .lines()
        .map(|line| {
            let mut parts = line.splitn(3, ':');
            let path = parts.next().unwrap().strip_prefix("./").unwrap().to_owned();
            (path, parts.next().unwrap().parse::<u64>().unwrap(), parts.next().unwrap().to_owned())
        })
        .collect();
    found.sort_by(|one, other| Path::new(&one.0).cmp(Path::new(&other.0)).then(one.1.cmp(&other.1)));
    found
}

#[tokio::test]
async fn ten_thousand_files_are_searched_as_grep_does_and_in_one_order() {
    let nav = Nav::of(&[]);
    let made = tree::make(&nav.path(""), 10_000);
    let info = nav.ok("nav_info", json!([])).await;
    assert_eq!(
        (&info["files"], &info["lines"], &info["bytes"]),
        (&json!(10_000), &json!(made.lines), &json!(made.bytes))
    );
    for pattern in ["needle_[0-9]+", "return total$", "no such text", "^", "def|class"] {
        let expected = grep(&nav.path(""), pattern);
        let is_whole = expected.len() <= 1000;
        let found = nav.ok("nav_search", json!([pattern, 1000])).await;
        let found = found.as_array().unwrap();
        assert_eq!(found.len(), expected.len().min(1001), "{pattern}");
        assert_eq!(found.last().is_some_and(|last| last["note"] == true), !is_whole);
        for (found, (path, line, text)) in found.iter().zip(&expected).take(1000) {
            assert_eq!(*found, json!({"path": path, "line": line, "text": text}));
        }
        // Threads come in any order, and the result does not.
        for max in [1, 7, 100] {
            let few = nav.ok("nav_search", json!([pattern, max])).await;
            let few = few.as_array().unwrap();
            assert_eq!(few[..few.len().min(max)], found[..expected.len().min(max)], "{pattern}");
        }
    }
    assert_eq!(nav.ok("nav_read", json!(["function_1234_0"])).await.as_str().unwrap().lines().count(), 6);
}
