//! Plans of sample code.

mod against_bash;
mod against_python;
mod bash_table;
mod hostile;
mod properties;
mod python_table;
mod versions;

use super::{Plan, Planner, VariableNames};
use crate::terms::ReplLanguage;

/// The tools that the tests' code calls.
const TOOLS: [&str; 7] =
    ["nav_info", "nav_ls", "nav_read", "llm_batch", "budget", "rlm_query", "rlm_query_batch"];

fn planned(language: ReplLanguage, code: &str) -> Plan {
    Planner { language, python: None, tools: &TOOLS }.plan(code, &mut VariableNames::new(0x2a))
}

/// A plan as lines: `untouched`; or each call, its variable as `$1`, and the code; or each rejection and its fixed lines.
fn shown(plan: &Plan) -> Vec<String> {
    match plan {
        Plan::Untouched => vec!["untouched".to_owned()],
        Plan::Intercepted { calls, code } => {
            let mut lines = Vec::new();
            for found in calls {
                let args = found.call.args.iter().map(|value| value.repr(10_000).unwrap());
                let kwargs = found.call.kwargs.iter().map(|(name, value)| {
                    let name = name.repr(1000).unwrap();
                    format!("{}={}", name.trim_matches('\''), value.repr(10_000).unwrap())
                });
                let arguments = args.chain(kwargs).collect::<Vec<_>>().join(", ");
                let number = found.variable.strip_prefix("__rlm_icpt_0000002a_").unwrap();
                lines.push(format!(
                    "{}:{} {}({arguments}) -> ${number}",
                    found.line, found.column, found.call.tool
                ));
            }
            lines.push(code.replace("__rlm_icpt_0000002a_", "$"));
            lines
        }
        Plan::Rejected(rejections) => rejections.to_string().lines().map(str::to_owned).collect(),
    }
}

/// Code, and [`shown`] of its plan.
type Table = &'static [(&'static str, &'static [&'static str])];

#[track_caller]
fn check(tables: [(ReplLanguage, Table); 2]) {
    for (language, table) in tables {
        for (code, expected) in table {
            assert_eq!(shown(&planned(language, code)), *expected, "{language}: {code}");
        }
    }
}

#[test]
fn statements_with_literals_are_accepted() {
    check([(ReplLanguage::Bash, bash_table::ACCEPTED), (ReplLanguage::Python, python_table::ACCEPTED)]);
}

#[test]
fn code_without_calls_or_with_a_syntax_error_is_untouched() {
    check([(ReplLanguage::Bash, bash_table::UNTOUCHED), (ReplLanguage::Python, python_table::UNTOUCHED)]);
}

#[test]
fn everything_else_is_rejected_with_what_to_write_instead() {
    check([(ReplLanguage::Bash, bash_table::REJECTED), (ReplLanguage::Python, python_table::REJECTED)]);
}
