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

/// Pieces of code and their plans.
struct Table {
    /// The text in place of the first call.
    variable: &'static str,
    /// Code with the one call that is replaced in `«»`, and that call with its place.
    accepted: &'static [(&'static str, &'static str)],
    /// Code, and [`shown`] of its plan.
    accepted_with_lines: &'static [(&'static str, &'static [&'static str])],
    /// Code without calls or with a syntax error.
    untouched: &'static [&'static str],
    rejected: &'static [Rejected],
    /// Code, and [`shown`] of its plan.
    rejected_with_lines: &'static [(&'static str, &'static [&'static str])],
}

/// Pieces of code that are rejected for one use of a tool each, and for the same reason.
struct Rejected {
    /// The message, with `{}` for what it says of each.
    message: &'static str,
    advice: &'static str,
    /// Code, the place with what the message says of it, and the code to write.
    rows: &'static [(&'static str, &'static str, &'static str)],
}

const INSTEAD: &str = "  write instead:";
const BEFORE_LINE_1: &str = "  write before line 1, at the top level, and use the name:";

impl Table {
    /// All code that is accepted, and [`shown`] of its plan.
    fn accepted(&self) -> impl Iterator<Item = (String, Vec<String>)> {
        let marked = self.accepted.iter().map(|(code, call)| {
            let (start, rest) = code.split_once('«').unwrap();
            let (_, end) = rest.split_once('»').unwrap();
            let rewritten = format!("{start}{}{end}", self.variable);
            (code.replace(['«', '»'], ""), vec![format!("{call} -> $1"), rewritten])
        });
        marked.chain(owned(self.accepted_with_lines))
    }

    /// All code that is rejected, and [`shown`] of its plan.
    fn rejected(&self) -> impl Iterator<Item = (String, Vec<String>)> {
        let rejected = self.rejected.iter().flat_map(|Rejected { message, advice, rows }| {
            rows.iter().map(move |(code, used, fixed)| {
                let (place, used) = used.split_once(' ').unwrap();
                let (line, column) = place.split_once(':').unwrap();
                let message = message.replace("{}", used);
                let mut lines = vec![format!("line {line}, column {column}: {message}"), advice.to_string()];
                lines.extend(fixed.lines().map(|line| format!("    {line}")));
                (code.to_string(), lines)
            })
        });
        rejected.chain(owned(self.rejected_with_lines))
    }
}

fn owned(rows: &[(&str, &[&str])]) -> impl Iterator<Item = (String, Vec<String>)> {
    let owned = |(code, lines): &(&str, &[&str])| {
        (code.to_string(), lines.iter().map(|line| line.to_string()).collect())
    };
    rows.iter().map(owned)
}

const TABLES: [(ReplLanguage, &Table); 2] =
    [(ReplLanguage::Bash, &bash_table::TABLE), (ReplLanguage::Python, &python_table::TABLE)];

#[test]
fn statements_with_literals_are_accepted() {
    for (language, table) in TABLES {
        for (code, expected) in table.accepted() {
            assert_eq!(shown(&planned(language, &code)), expected, "{language}: {code}");
        }
    }
}

#[test]
fn code_without_calls_or_with_a_syntax_error_is_untouched() {
    for (language, table) in TABLES {
        for code in table.untouched {
            assert_eq!(planned(language, code), Plan::Untouched, "{language}: {code}");
        }
    }
}

#[test]
fn everything_else_is_rejected_with_what_to_write_instead() {
    for (language, table) in TABLES {
        for (code, expected) in table.rejected() {
            assert_eq!(shown(&planned(language, &code)), expected, "{language}: {code}");
        }
    }
}
