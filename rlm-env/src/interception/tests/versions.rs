//! Differences between versions of Python.

use super::{Plan, Planner, TOOLS, VariableNames};
use crate::terms::ReplLanguage::Python;

fn is_intercepted(python: Option<(u8, u8)>, syntax: &str) -> bool {
    let code = format!("x = nav_info()\n{syntax}\n");
    let planner = Planner { language: Python, python, tools: &TOOLS };
    match planner.plan(&code, &mut VariableNames::new(1)) {
        Plan::Untouched => false,
        Plan::Intercepted { .. } => true,
        Plan::Rejected(rejections) => panic!("{code}: {rejections}"),
    }
}

/// Syntax, and the minor version that has it first.
const SYNTAX: [(&str, u8); 11] = [
    ("match x:\n    case 1: pass", 10),
    ("try: pass\nexcept* E: pass", 11),
    ("async def f(): return [[i async for i in x] for j in y]", 11),
    ("f'{x['a']}'", 12),
    ("f'{x + \"\\n\"}'", 12),
    ("type X = int", 12),
    ("def f[T](): pass", 12),
    ("class A[T]: pass", 12),
    ("def f[T=int](): pass", 13),
    ("try: pass\nexcept A, B: pass", 14),
    ("t'{x}'", 14),
];

#[test]
fn syntax_that_the_sessions_python_lacks_is_untouched() {
    for (syntax, first) in SYNTAX {
        assert!(!is_intercepted(Some((3, first - 1)), syntax), "{syntax}");
        assert!(is_intercepted(Some((3, first)), syntax), "{syntax}");
        assert!(is_intercepted(None, syntax), "{syntax}");
    }
}
