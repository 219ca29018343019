//! Hostile code.

use super::{Plan, planned, shown};
use crate::terms::ReplLanguage::{Bash, Python};

const SIZE: usize = 1 << 20;

/// Repeats a piece to about 1 MiB.
fn much(piece: &str) -> String {
    piece.repeat(SIZE / piece.len())
}

fn outcome(code: &str) -> String {
    shown(&planned(Python, code)).remove(0)
}

#[test]
fn code_of_any_depth_costs_no_stack() {
    let refused_by_python = ["[", "(", "{", "x[", "f(", "{1:", "lambda: (", "f'{", "not (", "-(", "if x:\n "];
    for piece in refused_by_python {
        let code = format!("x = nav_info()\ny = {}", much(piece));
        assert_eq!(outcome(&code), "untouched", "{piece}");
    }
    let too_deep = [
        "-",
        "~",
        "not ",
        "x.",
        "1+",
        "1**",
        "1 if 1 else ",
        "lambda: ",
        "lambda a, b=",
        "await ",
        "x or ",
        "f()()(",
        "x[0][0]",
        "yield ",
        "x()",
        "1 < ",
        "lambda a, b: ",
    ];
    for piece in too_deep {
        let code = format!("x = nav_info()\ny = {}1", much(piece));
        let found = outcome(&code);
        assert!(found.contains("more than 2000 levels deep") || found == "untouched", "{piece}: {found}");
        let without_tool = format!("y = {}1", much(piece));
        assert_eq!(planned(Python, &without_tool), Plan::Untouched, "{piece}");
    }
}

#[test]
fn the_deepest_code_that_is_parsed_fits_the_stack() {
    // (beginning, repeated piece, end, operators per piece)
    for (start, piece, end, operators) in [
        ("", "-", "1", 1),
        ("", "not ", "1", 1),
        ("x", ".x", "", 1),
        ("1", "+1", "", 1),
        ("1", "**1", "", 1),
        ("", "lambda: ", "1", 1),
        ("", "lambda a, b: ", "1", 1),
        ("", "1 if 1 else ", "1", 1),
        ("f", "()", "", 1),
        ("x", "[0]", "", 1),
        ("1", " < 1", "", 1),
        ("x", " or x", "", 1),
        ("'a'", " + 'a'", "", 1),
        ("x", ".x()", "", 2),
        ("f''", " f'{x}'", "", 1),
    ] {
        for count in [190, 1990 / operators] {
            let code = format!("x = nav_info()\ny = {start}{}{end}\n", piece.repeat(count));
            assert_eq!(outcome(&code), "1:5 nav_info() -> $1", "{count} {piece}");
        }
    }
    // As many brackets as Python allows, each with a chain in it.
    for (open, close) in
        [("(", ")"), ("[", "]"), ("f(", ")"), ("-(", ")"), ("x[0][", "]"), ("{1: -", "}"), ("lambda: (", ")")]
    {
        let code = format!("x = nav_info()\ny = {}1{}\n", open.repeat(200), close.repeat(200));
        assert_eq!(outcome(&code), "1:5 nav_info() -> $1", "{open}");
        let code = format!("x = nav_ls({}1{})\n", open.repeat(190), close.repeat(190));
        let found = outcome(&code);
        assert!(found.starts_with("1:5 nav_ls(") || found.contains("needs a literal"), "{open}: {found}");
    }
    let blocks = (0..99).map(|level| format!("{}if x:\n", " ".repeat(level))).collect::<String>();
    let code = format!("x = nav_info()\n{blocks}{}y = 1\n", " ".repeat(99));
    assert_eq!(outcome(&code), "1:5 nav_info() -> $1");
}

#[test]
fn large_code_is_planned() {
    let list = format!("x = llm_batch([{}])\n", "'p', ".repeat(100_000));
    let Plan::Intercepted { calls, .. } = planned(Python, &list) else { panic!("it is a literal") };
    assert_eq!(calls[0].preview.chars().count(), 81);
    let many = "x = nav_info()\n".repeat(20_000);
    let Plan::Intercepted { calls, code } = planned(Python, &many) else { panic!("these are literals") };
    assert_eq!(calls.len(), 20_000);
    assert_eq!(calls[19_999].line, 20_000);
    assert_eq!(code.lines().count(), 20_000);
    let bare = "nav_info(); ".repeat(20_000);
    let Plan::Rejected(rejections) = planned(Python, &bare) else { panic!("none has a name") };
    assert_eq!((rejections.listed.len(), rejections.more), (20, 19_980));
    let strings = format!("x = nav_ls({})\n", "'a' ".repeat(200_000));
    assert!(matches!(planned(Python, &strings), Plan::Intercepted { .. }));
    let digits = format!("x = nav_ls(0x{})\n", "f".repeat(SIZE));
    assert!(matches!(planned(Python, &digits), Plan::Intercepted { .. }));
    assert_eq!(planned(Python, &format!("x = nav_ls({})\n", "1".repeat(4301))), Plan::Untouched);
    let zeros = format!("x = nav_ls({}, {}_0)\n", "0".repeat(5000), "0".repeat(5000));
    assert_eq!(outcome(&zeros), "1:5 nav_ls(0, 0) -> $1");
    let signs = format!("x = nav_ls({}1)\n", "-".repeat(1900));
    assert_eq!(outcome(&signs), "1:5 nav_ls(1) -> $1");
}

#[test]
fn bash_of_any_depth_is_planned() {
    for piece in [
        "$(",
        "`",
        "{ ",
        "(",
        "((",
        "[[ ",
        "\"$(",
        "${x:-",
        "if a; then ",
        "case a in a) ",
        "f() { ",
        "a=(",
        "<(",
        "'",
        "<<E ",
        "a | ",
        "! ",
        "x=1 ",
        "$((",
        "\\\n",
        "nav_info ",
        "nav_info\n",
        "x=$(nav_info)\n",
        "x=$(nav_info); ",
        "#",
        "<<E\n",
    ] {
        for size in [4_000, SIZE] {
            let code = format!("x=$(nav_info)\n{}", piece.repeat(size / piece.len()));
            assert_ne!(planned(Bash, &code), Plan::Untouched, "{piece}");
        }
    }
    let many = "x=$(nav_info)\n".repeat(1000);
    assert!(matches!(planned(Bash, &many), Plan::Intercepted { calls, .. } if calls.len() == 1000));
    let bare = "nav_info\n".repeat(1000);
    assert!(matches!(planned(Bash, &bare), Plan::Rejected(rejections) if rejections.more == 980));
}
