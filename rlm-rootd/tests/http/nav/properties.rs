//! No text given to a tool, and no bytes in a file, make it panic or read outside.

use std::os::unix::fs::symlink;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

const SECRET: &str = "the_secret_outside";

fn piece() -> impl Strategy<Value = String> {
    let named = ".. . / // : :: - 1-3 0 99999999999999999999 a.py sub link way up A A.f f outside secret.py é etc passwd \
                 proc self cwd root ( [ \\ * (?i)";
    let named: Vec<_> = named.split(' ').chain(["\0", "\n", SECRET]).collect();
    prop_oneof![
        6 => prop::sample::select(named).prop_map(str::to_owned),
        2 => Just("/".to_owned()),
        1 => "\\PC{0,8}",
        1 => any::<String>(),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..8).prop_map(|pieces| pieces.concat())
}

#[test]
fn no_text_makes_a_tool_panic_or_read_outside() {
    let nav = Nav::of(&[
        ("a.py", "class A:\n    def f(self): pass\n"),
        ("sub/b.txt", "x\n"),
        ("sub/a.py", "f = 1\n"),
    ]);
    write(&nav.path("../outside/secret.py"), format!("def hidden(): return '{SECRET}'\n"));
    symlink("../outside/secret.py", nav.path("link")).unwrap();
    symlink("../outside", nav.path("way")).unwrap();
    symlink("..", nav.path("sub/up")).unwrap();
    let outside = nav.path("../outside").canonicalize().unwrap().display().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 600, failure_persistence: None, ..Config::default() });
    let strategy = (text(), text(), any::<bool>(), 0..4_usize);
    runner
        .run(&strategy, |(one, other, is_absolute, number)| {
            let one = if is_absolute { format!("{outside}/{one}") } else { one };
            for (tool, args) in [
                ("nav_ls", json!([one])),
                ("nav_outline", json!([one])),
                ("nav_read", json!([one, number])),
                ("nav_search", json!([other, number + 1, one])),
                ("nav_search", json!([one, number + 1])),
            ] {
                if let Ok(result) = runtime.block_on(nav.call(tool, args)) {
                    prop_assert!(!result.to_string().contains("hidden"), "{}", result);
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn no_bytes_in_a_file_make_a_tool_panic() {
    let nav = Nav::of(&[]);
    let endings = ["py", "rs", "js", "ts", "tsx", "go", "java", "c", "h", "cpp", "txt"];
    let words = "class A def f ( ) { } [ ] < > : :: ; , = => \" ' ` \\ # // /* */ @ & * ~ fn impl for mod struct type const let \
                 var func namespace template< operator export default interface enum static int void macro_rules! ${ \
                 <a> </a> return";
    let further = ["#define X ", "extern \"C\" ", "\n", "\n    ", "\t", " "];
    let words: Vec<_> = words.split(' ').chain(further).collect();
    let piece = prop_oneof![
        8 => (prop::sample::select(words), any::<bool>()).prop_map(|(word, ends)| [word, if ends { " " } else { "" }].concat().into_bytes()),
        1 => prop::collection::vec(1_u8.., 0..6),
    ];
    let content = prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    runner
        .run(&(content, prop::sample::select(endings.to_vec())), |(content, ending)| {
            let file = format!("a.{ending}");
            write(&nav.path(&file), &content);
            let listed = runtime.block_on(nav.ok("nav_ls", json!([file])));
            let lines = String::from_utf8_lossy(&content).split_inclusive('\n').count();
            for entry in listed.as_array().unwrap() {
                let (line, end) = (entry["line"].as_u64().unwrap(), entry["end_line"].as_u64().unwrap());
                prop_assert!(line <= end && end <= lines as u64, "{}", entry);
                let read = runtime.block_on(nav.call("nav_read", json!([entry["symbol"]])));
                prop_assert!(read.is_ok(), "{}: {:?}", entry, read);
            }
            runtime.block_on(nav.ok("nav_outline", json!([file])));
            Ok(())
        })
        .unwrap();
}
