//! Properties that hold for any code.

use proptest::prelude::*;
use proptest::sample::select;
use ruff_python_parser::parse_module;

use super::{Plan, Planner, TOOLS, VariableNames, planned};
use crate::terms::ReplLanguage::{self, Bash, Python};

/// A literal, and whether it is on one line.
fn literal() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        select(vec![
            "1",
            "-2.5",
            "0x_ff",
            "None",
            "True",
            "'a'",
            "b'\\x00'",
            "'''a\nb'''",
            "r'\\d'",
            "'#' \"é\"",
            "()",
            "{}"
        ])
        .prop_map(str::to_owned),
        any::<i64>().prop_map(|int| int.to_string()),
        "[a-z日 '\\\\\n]{0,8}".prop_map(|text| format!("{text:?}").replace("\\'", "'")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let items = proptest::collection::vec(inner, 0..4);
        (items, 0..4usize).prop_map(|(items, kind)| match kind {
            0 => format!("[{}]", items.join(", ")),
            1 => format!("({})", items.iter().map(|item| format!("{item},")).collect::<String>()),
            2 => format!(
                "[\n  {}  # note\n]",
                items.iter().map(|item| format!("{item},\n")).collect::<String>()
            ),
            _ => {
                let pairs = items.iter().enumerate().map(|(at, item)| format!("{at}: {item}"));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
        })
    })
}

fn call() -> impl Strategy<Value = String> {
    let tool = select(TOOLS.to_vec());
    (tool, proptest::collection::vec(literal(), 0..3), proptest::option::of(literal())).prop_map(
        |(tool, args, last)| {
            let last = last.map(|value| format!("key={value}"));
            let arguments = args.into_iter().chain(last).collect::<Vec<_>>();
            format!("{tool}({})", arguments.join(", "))
        },
    )
}

/// Statements without calls of tools.
fn other() -> impl Strategy<Value = String> {
    select(vec![
        "a = 1",
        "print('nav_info()')",
        "# budget()",
        "",
        "x.nav_ls = 1",
        "for i in range(3):\n    a = i\n",
        "f(budget=1)",
        "if a:\n\tb = '''\nnav_info()\n'''\n",
        "def f(x): return x",
        "é = [i for i in 'ab']",
        "class A: pass",
        "\x0c",
        "a = (\n1)",
    ])
    .prop_map(str::to_owned)
}

fn end_of_line() -> impl Strategy<Value = &'static str> {
    select(vec!["\n", "\r\n", "\n\n", "  # note\n"])
}

fn lines(code: &str) -> usize {
    code.replace("\r\n", "\n").replace('\r', "\n").split('\n').count()
}

fn fixed_is_accepted(language: ReplLanguage, code: &str) -> Result<(), TestCaseError> {
    let Plan::Rejected(rejections) = planned(language, code) else {
        return Err(TestCaseError::fail(format!("{code:?} is not rejected")));
    };
    for rejection in rejections.listed {
        let fixed = planned(language, &rejection.fixed);
        prop_assert!(matches!(fixed, Plan::Intercepted { .. }), "{code:?}: {:?}: {fixed:?}", rejection.fixed);
    }
    Ok(())
}

proptest! {
    #[test]
    fn code_without_tools_is_untouched(code in "\\PC{0,80}|[a-z=()\\[\\]{}:'\"#\\\\\n\r\t ]{0,80}") {
        for language in [Python, Bash] {
            prop_assert_eq!(planned(language, &code), Plan::Untouched);
        }
    }

    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let noise = String::from_utf8_lossy(&bytes);
        for code in [noise.to_string(), format!("x = nav_info()\n{noise}"), format!("x = nav_ls('{noise}')\n")] {
            for language in [Python, Bash] {
                let _plan: Plan = planned(language, &code);
            }
        }
    }

    #[test]
    fn no_soup_of_tokens_panics(tokens in proptest::collection::vec(select(vec![
        "nav_info", "budget", "x", "=", "(", ")", "()", "[", "]", "{", "}", ",", ":", "\n", "\n    ", "if ", "for ", " in ",
        "lambda ", "await ", "def ", "class ", "import ", " as ", "'", "\"", "f'", "{", "1", "-", "*", "**", ".", ":=", "match ",
        "case ", "with ", "\\", "#", ";", "del ", "global ", "return ", "é", "\r", "$(", "`", "\t",
    ]), 0..40)) {
        let code = tokens.concat();
        for language in [Python, Bash] {
            if let Plan::Intercepted { calls, code: rewritten } = planned(language, &code) {
                prop_assert!(!calls.is_empty());
                prop_assert_eq!(lines(&code), lines(&rewritten));
            }
        }
    }

    #[test]
    fn rewritten_code_parses_calls_no_tool_and_keeps_its_lines(
        parts in proptest::collection::vec((other(), call(), end_of_line()), 1..5),
    ) {
        let statements = parts.iter().enumerate().map(|(at, (other, call, end))| format!("{other}\nv{at} = {call}{end}"));
        let code = statements.collect::<String>();
        let Plan::Intercepted { calls, code: rewritten } = planned(Python, &code) else {
            return Err(TestCaseError::fail(format!("{code:?} is not accepted")));
        };
        prop_assert_eq!(calls.len(), parts.len());
        prop_assert!(parse_module(&rewritten).is_ok());
        prop_assert_eq!(lines(&code), lines(&rewritten));
        // Only the variables are reserved names: with them renamed, the code uses no tool.
        let plain = rewritten.replace("__rlm_icpt_", "kept_");
        prop_assert_eq!(planned(Python, &plain), Plan::Untouched);
        for call in &calls {
            prop_assert!(rewritten.lines().nth(call.line - 1).is_some_and(|line| line.contains(&call.variable)) || code.contains('\r'));
        }
    }

    #[test]
    fn proposals_are_accepted(call in call(), other in call()) {
        for code in [
            format!("{call}\n"),
            format!("print(len({call}))\n"),
            format!("print({call}, f'{{1}}', {other})\n"),
            format!("a = b = {call}\n"),
            format!("a = b.c = {call}\n"),
            format!("a: dict = {call}\n"),
            format!("a, b = {call}\n"),
            format!("a[0] = {call}\n"),
            format!("a += {call}\n"),
            format!("(a := {call})\n"),
            format!("a = await {call}\n"),
            format!("await {call}\n"),
            format!("a = [{call} for b in c]\n"),
            format!("a = lambda: {call}\n"),
            format!("for a in {call}:\n    b = {other}\n"),
            format!("def f():\n    return {call}\n"),
            format!("if (n := {call}):\n    pass\n"),
            format!("x = 1; assert {call} and {other}\n"),
        ] {
            fixed_is_accepted(Python, &code)?;
        }
    }

    #[test]
    fn bash_proposals_are_accepted(
        tool in select(vec!["nav_info", "nav_ls", "budget"]),
        words in proptest::collection::vec(select(vec!["a", "'b c'", "\"d 'e'\"", "3", "'[1]'"]), 0..3),
    ) {
        let call = format!("{tool} {}", words.join(" "));
        for code in [
            format!("{call}\n"),
            format!("echo \"$({call})\" $({call} | head -n 1)\n"),
            format!("x=`{call}`\n"),
            format!("x+=$({call})\n"),
            format!("x[1]=\"$({call})\"\n"),
            format!("x=a$({call})\n"),
            format!("x=$({call}; {call})\n"),
            format!("export x=$({call})\n"),
            format!("{call} | wc -l > f\n"),
            format!("x=$({call}); echo $x\n"),
            format!("x=$({call}) && y=$({call})\n"),
            format!("for i in $({call}); do echo $i; done\n"),
            format!("f() {{\n  x=$({call})\n}}\n"),
            format!("if {call}; then {call}; fi\n"),
            format!("cat <<E\n$({call})\nE\n"),
            format!("cat <<E\nE\nx=$({call})\n"),
        ] {
            fixed_is_accepted(Bash, &code)?;
        }
    }
}

#[test]
fn names_are_unique() {
    let planner = Planner { language: Python, python: None, tools: &TOOLS };
    let mut names = VariableNames::new(0xdead_beef);
    let mut variables = Vec::new();
    for code in ["a = budget()\nb = budget()\n", "budget()\n", "c = budget()\n"] {
        match planner.plan(code, &mut names) {
            Plan::Intercepted { calls, .. } => variables.extend(calls.into_iter().map(|call| call.variable)),
            other => assert!(matches!(other, Plan::Rejected(_))),
        }
    }
    assert_eq!(variables, ["__rlm_icpt_deadbeef_1", "__rlm_icpt_deadbeef_2", "__rlm_icpt_deadbeef_3"]);
}
