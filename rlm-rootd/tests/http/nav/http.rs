//! Each tool over the real endpoint, in JSON and in pickles.

use rlm_rootd::nav::NAV_TOOLS;

use super::*;
use crate::support::{Endpoint, pickled_request};

const FILES: &[(&str, &str)] = &[("src/a.py", "class A:\n    def f(self): pass\n"), ("b.txt", "two")];

#[tokio::test]
async fn each_tool_gives_the_same_in_json_and_in_pickles() {
    let nav = Nav::of(FILES);
    let (endpoint, registration) = Endpoint::with_tools(nav.tools.clone());
    let symbol = json!({
        "name": "A", "kind": "class", "line": 1, "end_line": 2, "members": 1, "symbol": "src/a.py:A",
        "signature": "class A",
    });
    let info = json!({
        "files": 2, "bytes": 34, "lines": 3, "estimated_tokens": 9,
        "languages": {"python": {"files": 1, "lines": 2}, ".txt": {"files": 1, "lines": 1}},
        "binary_files": 0, "unreadable": 0, "complete": true,
    });
    let calls = [
        ("nav_info", json!([]), info),
        ("nav_ls", json!(["src/a.py"]), json!([symbol])),
        ("nav_outline", json!([]), json!(".: 2 files\nb.txt: .txt, 1 lines\nsrc/a.py: python, 2 lines\n")),
        (
            "nav_read",
            json!(["A.f"]),
            json!("[src/a.py:A.f, lines 2-2 of 2, chunk 1 of 1]\n    def f(self): pass\n"),
        ),
        ("nav_search", json!(["^t.o$"]), json!([{"path": "b.txt", "line": 1, "text": "two"}])),
    ];
    assert_eq!(calls.each_ref().map(|(name, ..)| *name), NAV_TOOLS);
    for (name, args, expected) in calls {
        let result = endpoint.call(&registration, name, args.clone()).await.result();
        // The order of keys is the same, too.
        assert_eq!(result.to_string(), expected.to_string());
        let args = args.as_array().unwrap().iter().map(|json| Value::from_json(json).unwrap()).collect();
        let pickled = endpoint.client().await.exchange(&pickled_request(&registration, name, args)).await;
        assert_eq!(pickled.value().result, ToolResult::Value(Value::from_json(&expected).unwrap()));
    }
}

#[tokio::test]
async fn a_wrong_request_is_a_400_and_a_failed_read_a_500() {
    let nav = Nav::of(FILES);
    let (endpoint, registration) = Endpoint::with_tools(nav.tools.clone());
    let error = async |name, args| endpoint.call(&registration, name, args).await.error();
    let expected =
        "nav_read: there is no file or symbol \"src/b.py\" in the context; did you mean \"src/a.py\"?";
    let (status, text) = error("nav_read", json!(["src/b.py"])).await;
    assert_eq!(status, 400);
    assert!(expected.starts_with(&text[..text.find(';').unwrap()]), "{text}");
    let (status, text) = error("nav_search", json!(["x", 1001])).await;
    assert_eq!(
        (status, text.as_str()),
        (400, "argument 'max_results' of nav_search: 1001 is greater than the maximum of 1000")
    );
    let (status, text) = error("nav_read", json!([])).await;
    assert_eq!((status, text.as_str()), (400, "argument 'symbol_or_path' of nav_read is missing"));
    fs::remove_dir_all(nav.path("")).unwrap();
    for name in NAV_TOOLS {
        let args = if name == "nav_read" || name == "nav_search" { json!(["a"]) } else { json!([]) };
        let root = nav.path("").display().to_string();
        let expected = format!("{name}: the context directory {} was removed", root.trim_end_matches('/'));
        assert_eq!(error(name, args).await, (500, expected));
    }
}
