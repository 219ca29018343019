//! Patterns that are made to take long, and ordinary ones over text that is made to.

use super::*;

/// Letters x and y as if by chance.
fn letters(count: usize) -> String {
    let mut state = 1_u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if state >> 63 == 0 { 'x' } else { 'y' }
    };
    (0..count).map(next).collect()
}

#[tokio::test]
async fn no_pattern_keeps_a_call_from_its_end() {
    let lines = letters(4 << 20);
    let lines: Vec<_> = lines.as_bytes().chunks(4000).map(|line| str::from_utf8(line).unwrap()).collect();
    let nav = Nav::of(&[
        ("same.txt", &"x".repeat(10 << 20)),
        ("random.txt", &letters(10 << 20)),
        ("lines.txt", &lines.join("\n")),
        ("accents.txt", &"é x".repeat(3 << 20)),
    ]);
    for file in ["same.txt", "random.txt", "lines.txt", "accents.txt"] {
        for pattern in [
            "x{900}y$z",
            "(x{1,30}){1,30}z",
            "(x+x+)+z",
            "(a|b|ab)*c",
            "x[xy]{400}z",
            "x.{200}z",
            r"\b\w+\b[^x]z",
        ] {
            let begun = Instant::now();
            let deadline = begun + Duration::from_millis(500);
            let found = call_until(&nav.tools, "nav_search", json!([pattern, 20, file]), deadline).await;
            let taken = begun.elapsed();
            // The deadline, and room for both cores being busy.
            assert!(taken < Duration::from_secs(10), "{pattern} {file}: {taken:?}");
            for hit in found.unwrap_or_else(|error| json!([{"path": "", "text": error}])).as_array().unwrap()
            {
                assert_eq!(hit["path"], "", "{pattern} {file}");
            }
        }
    }
}

#[tokio::test]
async fn long_lines_are_searched_to_their_end() {
    let line = "var a=b(c);".repeat(1 << 20);
    let nav = Nav::of(&[("min.js", &format!("{line}needle(1)\r\nend\n"))]);
    for pattern in ["needle", r"(?i)NEEDLE\(\d\)$", "^var.*needle", r"\bneedle\b", r"\w+\(1\)"] {
        let found = nav.ok("nav_search", json!([pattern])).await;
        assert_eq!((&found[0]["line"], &found[1]), (&json!(1), &Json::Null), "{pattern}");
    }
    let found = nav.ok("nav_search", json!(["^needle|^$|a=d"])).await;
    assert_eq!(found, json!([]));
}
