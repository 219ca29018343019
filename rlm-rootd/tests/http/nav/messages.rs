//! Error messages for misunderstood arguments.

use super::*;

#[tokio::test]
async fn the_error_of_a_malformed_range_shows_the_form() {
    let nav = Nav::of(&[("a.py", "def f(): pass\n")]);
    for typo in ["-5", "10:40", "10,40", "L10"] {
        let error = nav.error("nav_read", json!([format!("a.py:{typo}")])).await;
        let expected =
            format!("nav_read: {typo:?} does not name lines of \"a.py\": write them as \"a.py:10-40\"");
        assert_eq!(error, expected);
    }
    let nav = Nav::of(&[("a.py", "L10 = 1\ndef l2(): pass\n")]);
    for symbol in ["L10", "l2"] {
        let read = nav.ok("nav_read", json!([format!("a.py:{symbol}")])).await;
        assert!(read.to_string().contains(symbol), "{read}");
    }
    let error = nav.error("nav_read", json!([""])).await;
    assert!(error.starts_with("nav_read: symbol_or_path is empty: name a file"), "{error}");
}

#[tokio::test]
async fn a_search_takes_no_symbol() {
    let nav = Nav::of(&[("a.py", "def foo(): pass\n")]);
    let error = nav.error("nav_search", json!(["x", 20, "a.py:foo"])).await;
    assert_eq!(
        error,
        "nav_search: a search takes a file or a directory, not a symbol or lines: \
         omit \":foo\" from the path, as in \"a.py\""
    );
}

#[tokio::test]
async fn the_longest_path_that_exists_is_meant() {
    let nav = Nav::of(&[("a", "x\n"), ("a:b.py", "def ab(): pass\n")]);
    let read = nav.ok("nav_read", json!(["a:b.py:ab"])).await;
    assert_eq!(read, "[a:b.py:ab, lines 1-1 of 1, chunk 1 of 1]\ndef ab(): pass\n");
}
