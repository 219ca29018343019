//! Each promise of the README has tests, which quote it in a line `// Promise: ` above them.
//!
//! `cargo nextest run --workspace -E 'test(promises::)' --no-capture` prints which.

use std::path::Path;
use std::process::Command;

/// Marks and the five lines after each, in which its test begins.
fn marked_lines(root: &Path) -> String {
    let git = Command::new("git")
        .args(["grep", "-h", "-A5", "^ *// Promise: ", "--", "*.rs"])
        .current_dir(root)
        .output();
    String::from_utf8(git.unwrap().stdout).unwrap()
}

/// The name in `fn name(…`, or in a table of tests in `name(…` or `name {`.
fn name_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (name, _) = line.strip_prefix("fn ").unwrap_or(line).split_once(['(', ' '])?;
    name.starts_with(|first: char| first.is_ascii_lowercase()).then_some(name)
}

#[test]
#[expect(clippy::print_stdout, reason = "the table is for people")]
fn each_promise_has_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let section = readme.split("\n## ").find_map(|section| section.strip_prefix("Promises\n")).unwrap();
    let promises =
        section.split("\n- ").skip(1).map(|promise| promise.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut promises: Vec<(String, Vec<String>)> = promises.map(|promise| (promise, Vec::new())).collect();
    let lines = marked_lines(root);
    let mut quoted = None;
    for line in lines.lines() {
        if let Some(quotation) = line.trim_start().strip_prefix("// Promise: ") {
            quoted = Some(promises.iter().position(|(promise, _)| promise.contains(quotation)));
            assert!(quoted != Some(None), "the README does not promise: {quotation}");
        } else if let Some(name) = name_of(line)
            && let Some(Some(at)) = quoted.take()
        {
            promises[at].1.push(name.to_owned());
        }
    }
    for (promise, tests) in &promises {
        println!("{promise}\n    {}", tests.join("\n    "));
        assert!(!tests.is_empty(), "no test has the mark of: {promise}");
    }
}
