//! Compares plans with real bash: it makes the planned calls, and rewritten code does the same as code that calls
//! functions.

use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::sample::select;
use rlm_core::pickle::{Dict, Limits, Value};
use rlm_core::root_tool::{Call, is_query, query_words};

use super::{Plan, TOOLS, bash_table, planned};
use crate::interception::bash::OfCode;
use crate::terms::ReplLanguage::Bash;

/// A tool that writes its name and arguments to the log, and prints a line that identifies the call.
const TOOL: &str = r#"() { local IFS=' '; printf '%s\0' "$FUNCNAME" $# "$@" >>"$ICPT_LOG"; printf '%s\n' "$FUNCNAME  of [$*]"; }
"#;

/// The effects of a piece of code.
#[derive(Debug, PartialEq)]
struct Trace {
    stdout: String,
    variables: String,
}

/// A call that bash made.
type Made = (String, Vec<String>);

fn run(directory: &Path, opening: &str, code: &str) -> (Trace, Vec<Made>) {
    let (log, cell, left) = (directory.join("log"), directory.join("cell"), directory.join("left"));
    for path in [&log, &left] {
        std::fs::write(path, "").unwrap();
    }
    std::fs::write(&cell, code).unwrap();
    // Read and run the code as a session does: by eval, line by line.
    let script = format!(
        "{opening}\ntrap 'declare -p x y z >\"$ICPT_LEFT\" 2>&1' EXIT\neval -- \"$(cat \"$ICPT_CELL\")\"\n"
    );
    let output = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", &script])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .envs([("ICPT_LOG", &log), ("ICPT_CELL", &cell), ("ICPT_LEFT", &left)])
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let log = String::from_utf8(std::fs::read(&log).unwrap()).unwrap();
    let mut words = log.split_terminator('\0').map(str::to_owned);
    let made = std::iter::from_fn(|| {
        let tool = words.next()?;
        let count = words.next().unwrap().parse().unwrap();
        Some((tool, words.by_ref().take(count).collect()))
    });
    let made = made.collect::<Vec<Made>>();
    let trace = Trace {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        variables: std::fs::read_to_string(&left).unwrap(),
    };
    (trace, made)
}

/// The call that a command with these words is.
fn call((tool, words): &Made) -> Call {
    let limits = Limits::default();
    let args = match tool.as_str() {
        "llm_batch" => vec![Value::list(words.iter().map(|word| Value::from(word.as_str())))],
        tool if is_query(tool) => {
            return query_words::parse(tool, words.clone(), &mut OfCode).unwrap().unwrap().0;
        }
        _ => words
            .iter()
            .map(|word| {
                Value::from_json_text(word.as_bytes(), &limits).unwrap_or_else(|_| word.as_str().into())
            })
            .collect(),
    };
    Call { tool: tool.clone(), args, kwargs: Dict::default() }
}

/// Checks one piece of code: if it is intercepted, bash makes the same calls, and the rewritten code does the same.
fn check(code: &str) -> Result<bool, TestCaseError> {
    let directory = tempfile::tempdir().unwrap();
    let functions = TOOLS.iter().map(|tool| format!("{tool}{TOOL}")).collect::<String>();
    let plan = planned(Bash, code);
    let Plan::Intercepted { calls, code: rewritten } = plan else {
        let (_, made) = run(directory.path(), &functions, code);
        prop_assert!(made.is_empty() || plan != Plan::Untouched, "{code:?} is untouched, and calls {made:?}");
        return Ok(false);
    };
    let (trace, made) = run(directory.path(), &functions, code);
    prop_assert!(made.len() <= calls.len(), "{code:?} calls {made:?}, planned are {calls:?}");
    for (made, planned) in made.iter().zip(&calls) {
        prop_assert_eq!(&call(made), &planned.call, "{:?}", code);
    }
    let ends_early = made.len() < calls.len();
    prop_assert!(!ends_early || !parses(code), "{code:?} calls only {made:?} of {calls:?}");
    let replies = made.iter().zip(&calls).map(|((tool, words), planned)| {
        format!("{}={}\n", planned.variable, quoted(&format!("{tool}  of [{}]", words.join(" "))))
    });
    let opening = format!("{functions}{}", replies.collect::<String>());
    let (again, made) = run(directory.path(), &opening, &rewritten);
    prop_assert!(made.is_empty(), "{rewritten:?} calls {made:?}");
    prop_assert_eq!(trace, again, "{:?}", code);
    Ok(true)
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn parses(code: &str) -> bool {
    let mut command = Command::new("bash");
    let status = command.args(["-n", "-c", code]).stdin(Stdio::null()).stderr(Stdio::null()).status();
    status.unwrap().success()
}

fn line() -> impl Strategy<Value = &'static str> {
    let served = select(vec![
        "x=$(nav_info)",
        "y=\"$(nav_ls 'a b' \"c\" 3)\"",
        "  z=$(budget)  # it's \"spent\"",
        "x=$( nav_read a/b.py '[1, 2]' )",
        "y=$(llm_batch 'what is `x` $y \\?' \"it's # 1\")",
    ]);
    let around = select(vec![
        "echo a",
        "echo \"$x\"",
        "echo 'a",
        "b'",
        "echo \"a",
        "b\"",
        "'",
        "\"",
        "if true; then",
        "else",
        "fi",
        "for i in 1 2; do",
        "done",
        "while false; do",
        "f() {",
        "}",
        "{",
        "(",
        ")",
        "case a in",
        "a)",
        "b) echo c ;;",
        ";;",
        "esac",
        "cat <<E",
        "E",
        "cat <<'E'",
        "cat <<-E",
        "\tE",
        "cat <<<a",
        "echo a \\",
        "\\",
        "echo a |",
        "cat",
        "true &&",
        "false ||",
        "# it's",
        "# \"",
        "echo $'it\\'s'",
        "echo $'",
        "echo ${x#'}'}",
        "echo ${x:-\"}",
        "\"}",
        "echo ${x:-",
        "echo $((1 + 2))",
        "echo $((",
        "1 ))",
        "((1))",
        "((",
        "))",
        "[[ a =~ b ]]",
        "[[ a == a &&",
        "b == b ]]",
        "a=(",
        "1 2)",
        "echo \"a $(",
        ")\"",
        "echo $(",
        "echo `",
        "`",
        "echo a#b '",
        "echo $#",
        "!",
        "time",
        "function g {",
        "echo \\'",
        "echo \\\"",
        "echo ${x//\\'/}",
        "shopt -s extglob",
        "echo @(a|b",
        "echo @(a|b)",
        "shopt -s expand_aliases; alias e=\"echo '\"",
        "e",
        "e a'",
        "echo <(",
        "diff <(echo) <(echo)",
        "x=1 y=2",
        "x=(1 2)",
        "declare -u x",
        "set -o pipefail",
        "set -f",
        "IFS=a",
        "echo \"${x}'\"",
        "echo ${#x}",
        "[ -n \"$x\" ]",
        "let 'a=1'",
        "coproc {",
        "select i in a; do",
        "until true; do",
        "echo a;",
        ": &",
        "wait",
        "\rx=1",
        "\r",
        "\x0c",
        "&& echo b",
        "| cat",
        ";",
        "then",
        "do",
        "echo a > f",
        "> f",
        "2>&1",
        "echo $x$",
        "echo \"$\"",
        "echo ${x",
        "echo {a,b}",
        "echo \"`echo '`",
        "echo \"`echo a`\"",
        "",
        "local a",
        "return",
        "eval 'x=$(nav_info)'",
        "echo $[1+1]",
        "echo \"$'\"",
        "echo $\"a\"",
        "echo ${x@Q}",
        "echo \"${x:-'a}\"",
        "echo ~",
        "echo a=b",
        "readonly r=1",
        "unset x",
        "export y",
        "echo \\",
        "echo nav_info",
        "x=nav_info",
        "echo \"\\\\\"",
    ]);
    prop_oneof![2 => served, 3 => around]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn bash_makes_the_planned_calls(lines in proptest::collection::vec(line(), 1..7), ends in any::<bool>()) {
        let code = lines.join("\n") + if ends { "\n" } else { "" };
        check(&code)?;
    }
}

/// Enough to cover each pair of lines now and then, within a few seconds.
const CASES: u32 = 300;

#[test]
fn bash_makes_the_calls_that_the_table_plans() {
    for (code, _) in bash_table::TABLE.accepted() {
        assert!(check(&code).unwrap(), "{code}");
    }
    for code in bash_table::TABLE.untouched {
        assert!(!check(code).unwrap(), "{code}");
    }
}
