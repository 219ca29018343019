//! Symbols of each language.

mod expected;
mod sources;

use std::collections::VecDeque;

use self::expected::EXPECTED;
pub(super) use self::sources::FILES;
use super::*;

/// `kind symbol line-end_line` of all symbols of a file: first its own, then those of what holds some. A text is `.`.
async fn listed(nav: &Nav, file: &str) -> String {
    let mut lines = Vec::new();
    let mut scopes = VecDeque::from([file.to_owned()]);
    while let Some(scope) = scopes.pop_front() {
        for entry in nav.ok("nav_ls", json!([scope])).await.as_array().unwrap() {
            let (kind, symbol) = (entry["kind"].as_str().unwrap(), entry["symbol"].as_str().unwrap());
            let name = symbol.strip_prefix(file).unwrap();
            let name = if name.is_empty() { "." } else { name.strip_prefix(':').unwrap() };
            lines.push(format!("{kind} {name} {}-{}", entry["line"], entry["end_line"]));
            if entry["members"] != 0 && !scopes.iter().any(|held| held == symbol) {
                scopes.push_back(symbol.to_owned());
            }
        }
    }
    lines.join(", ")
}

#[tokio::test]
async fn outlines_and_lists_of_each_language() {
    let nav = Nav::of(FILES);
    for (file, outline, list) in EXPECTED {
        let text = nav.ok("nav_outline", json!([file])).await;
        assert_eq!(text.as_str().unwrap().lines().collect::<Vec<_>>(), *outline, "{file}");
        assert_eq!(listed(&nav, file).await, *list, "{file}");
    }
    assert_eq!(EXPECTED.len(), FILES.len());
}

#[tokio::test]
async fn a_receiver_may_have_several_type_parameters() {
    let text =
        "package a\nfunc (s *S[T, U]) Method() {}\nfunc (p Plain) Other() {}\nfunc (*Bare) Third() {}\n";
    let nav = Nav::of(&[("a.go", text)]);
    let symbols = field(&nav.ok("nav_ls", json!(["a.go"])).await, "symbol");
    assert_eq!(symbols, ["a.go:S.Method", "a.go:Plain.Other", "a.go:Bare.Third"]);
}
