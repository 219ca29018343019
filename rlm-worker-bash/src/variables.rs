//! Variables of op `set`: the names and values that a shell accepts.

use std::collections::BTreeMap;

use rlm_core::ids::is_identifier;
use rlm_core::json::{JsonText, Part, Wtf8};
use rlm_core::protocol::{ONE_CALL_PREFIX, name_excerpt};

/// Variables that hold the answer.
const ANSWER_NAMES: [&str; 2] = ["RLM_CONTENT", "RLM_READY"];

/// Variables that bash computes or makes readonly. All names that begin with `BASH` are reserved, too.
const BASH_NAMES: [&str; 25] = [
    "_",
    "COMP_CWORD",
    "COMP_KEY",
    "COMP_LINE",
    "COMP_POINT",
    "COMP_TYPE",
    "COMP_WORDS",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "LINENO",
    "OLDPWD",
    "PIPESTATUS",
    "POSIXLY_CORRECT",
    "PPID",
    "PWD",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "SRANDOM",
    "UID",
];

/// Variables that act between calls: prompts, their command, mail notices, the shell's time-out.
const PROMPT_NAMES: [&str; 9] =
    ["MAIL", "MAILCHECK", "MAILPATH", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "TMOUT"];

/// The value that a variable is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// `null`: the variable is unset.
    Unset,
    /// A string, number or boolean.
    Scalar(Vec<u8>),
    /// A list of strings, numbers and booleans.
    Indexed(Vec<Vec<u8>>),
    /// An object of strings, numbers and booleans.
    Associative(Vec<[Vec<u8>; 2]>),
}

/// A variable that a shell does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("variable `{}` cannot be set: {fault}; nothing was set", name_excerpt(name))]
pub(crate) struct BadVariable {
    name: String,
    fault: String,
}

/// Checks and converts the variables of a request. Valid names only have letters, digits and `_`.
pub(crate) fn read(variables: &BTreeMap<String, JsonText>) -> Result<Vec<(&str, Value)>, BadVariable> {
    let read = |(name, json)| {
        let name: &String = name;
        let value = check_name(name).and_then(|()| value(name, json));
        value.map(|value| (name.as_str(), value)).map_err(|fault| BadVariable { name: name.clone(), fault })
    };
    variables.iter().map(read).collect()
}

/// The error for variables that are readonly in the shell.
pub(crate) fn readonly(names: &str) -> String {
    let names: Vec<String> =
        names.split_ascii_whitespace().map(|name| format!("`{}`", name_excerpt(name))).collect();
    match &names[..] {
        [name] => format!("variable {name} cannot be set: it is readonly; nothing was set"),
        names => format!("variables {} cannot be set: they are readonly; nothing was set", names.join(", ")),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let fault = if !is_identifier(name) {
        "a name is made of letters, digits and _, and does not begin with a digit"
    } else if ANSWER_NAMES.contains(&name) {
        "the answer can only be set by code in a call"
    } else if name.starts_with("__rlm") && !name.starts_with(ONE_CALL_PREFIX) {
        "names that begin with __rlm are reserved"
    } else if name.starts_with("BASH") || BASH_NAMES.contains(&name) {
        "it is reserved by bash"
    } else if PROMPT_NAMES.contains(&name) {
        "it acts between calls; set it in a call instead"
    } else {
        return Ok(());
    };
    Err(fault.to_owned())
}

fn value(name: &str, json: &JsonText) -> Result<Value, String> {
    match json.part() {
        Part::Null => Ok(Value::Unset),
        Part::Array(items) => {
            let item = |(at, text)| scalar(&format!("{name}[{at}]"), Part::of(text));
            items.into_iter().enumerate().map(item).collect::<Result<_, _>>().map(Value::Indexed)
        }
        Part::Object(fields) => {
            let field = |(key, text): (Wtf8, &str)| {
                let shown = format!("{name}[{:?}]", name_excerpt(&String::from_utf8_lossy(&key.0)));
                let key = text_of(&format!("the key of {shown}"), key)?;
                if key.is_empty() {
                    return Err("a key is empty, which bash does not accept".to_owned());
                }
                Ok([key, scalar(&shown, Part::of(text))?])
            };
            fields.into_iter().map(field).collect::<Result<_, _>>().map(Value::Associative)
        }
        part => scalar("the value", part).map(Value::Scalar),
    }
}

fn scalar(path: &str, part: Part<'_>) -> Result<Vec<u8>, String> {
    let kind = match part {
        Part::Bool(value) => return Ok(value.to_string().into_bytes()),
        Part::Number(text) => return Ok(text.as_bytes().to_vec()),
        Part::String(text) => return text_of(path, text),
        Part::Null => "null",
        Part::Array(_) => "an array",
        Part::Object(_) => "an object",
    };
    Err(format!("{path} is {kind}, and an array of bash can only hold strings, numbers and booleans"))
}

fn text_of(path: &str, Wtf8(text): Wtf8) -> Result<Vec<u8>, String> {
    if text.contains(&0) {
        return Err(format!("{path} has a NUL, which bash cannot hold"));
    }
    match str::from_utf8(&text) {
        Ok(_) => Ok(text),
        Err(_) => Err(format!("{path} has a lone surrogate, which is not valid text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(name: &str, json: &str) -> Result<Value, String> {
        let variables = BTreeMap::from([(name.to_owned(), json.parse().unwrap())]);
        read(&variables).map(|mut read| read.remove(0).1).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check_refused(name: &str, json: &str, fault: &str) {
        let expected = format!("variable `{name}` cannot be set: {fault}; nothing was set");
        assert_eq!(read_one(name, json), Err(expected));
    }

    fn bytes(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn values_are_converted_for_the_shell() {
        assert_eq!(read_one("x", "null"), Ok(Value::Unset));
        for (json, text) in
            [("true", "true"), ("1.0", "1.0"), ("1e400", "1e400"), (r#""é\n$(x)""#, "é\n$(x)")]
        {
            assert_eq!(read_one("x", json), Ok(Value::Scalar(bytes(text))), "{json}");
        }
        assert_eq!(
            read_one("x", r#"[1, "", false]"#),
            Ok(Value::Indexed(vec![bytes("1"), bytes(""), bytes("false")]))
        );
        assert_eq!(
            read_one("x", r#"{"k k": -0}"#),
            Ok(Value::Associative(vec![[bytes("k k"), bytes("-0")]]))
        );
        assert_eq!(read_one("x", "[]"), Ok(Value::Indexed(Vec::new())));
        assert_eq!(read_one("x", "{}"), Ok(Value::Associative(Vec::new())));
    }

    #[test]
    fn values_that_a_shell_cannot_hold_are_named_with_their_path() {
        let scalars = "and an array of bash can only hold strings, numbers and booleans";
        check_refused("x", "[1, [2]]", &format!("x[1] is an array, {scalars}"));
        check_refused("x", "[null]", &format!("x[0] is null, {scalars}"));
        check_refused("x", r#"{"a b": {}}"#, &format!("x[\"a b\"] is an object, {scalars}"));
        check_refused("x", r#""\u0000""#, "the value has a NUL, which bash cannot hold");
        check_refused("x", r#"{"\u0000": 1}"#, "the key of x[\"\\0\"] has a NUL, which bash cannot hold");
        check_refused("x", r#"["\udc00"]"#, "x[0] has a lone surrogate, which is not valid text");
        check_refused("x", r#"{"": 1}"#, "a key is empty, which bash does not accept");
    }

    #[test]
    fn reserved_and_invalid_names_are_refused() {
        let word = "a name is made of letters, digits and _, and does not begin with a digit";
        for name in ["", "1a", "a b", "a[0]", "a=1", "é", "a-b", "x;id", "$(id)", "a\n"] {
            check_refused(name, "1", word);
        }
        for name in [
            "UID",
            "EUID",
            "PPID",
            "BASHPID",
            "BASH_ENV",
            "SHELLOPTS",
            "PWD",
            "RANDOM",
            "_",
            "POSIXLY_CORRECT",
        ] {
            check_refused(name, "1", "it is reserved by bash");
        }
        check_refused("RLM_CONTENT", "1", "the answer can only be set by code in a call");
        check_refused("__rlm_s", "1", "names that begin with __rlm are reserved");
        check_refused("PS1", "1", "it acts between calls; set it in a call instead");
        for name in
            ["PATH", "IFS", "HOME", "LC_ALL", "_x", "A1", "OPTIND", "RLM_SUB_MODEL", "bash", "__rlm_icpt_1"]
        {
            assert!(read_one(name, "1").is_ok(), "{name}");
        }
        let long = "é".repeat(1000);
        assert!(read_one(&long, "1").unwrap_err().starts_with(&format!("variable `{}…`", "é".repeat(80))));
        assert_eq!(readonly("a "), "variable `a` cannot be set: it is readonly; nothing was set");
        assert_eq!(readonly("a b "), "variables `a`, `b` cannot be set: they are readonly; nothing was set");
    }
}
