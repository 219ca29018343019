//! The command line of a root tool.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::print::Output;
use rlm_core::root_tool::words::{self, Word};
use rlm_core::root_tool::{Call, LLM_BATCH};

/// An invalid command line.
pub(crate) struct UsageError(pub(crate) String);

/// The action that a command line asks for.
pub(crate) enum Parsed {
    Help,
    Call(Request, Output),
}

/// The source of a call's arguments.
#[derive(Debug, PartialEq)]
pub(crate) enum Request {
    /// Arguments on the command line.
    Arguments(Vec<Argument>),
    /// A JSON document: this one, or the one on standard input.
    Payload(Option<String>),
    /// Standard input, one prompt per line.
    Lines,
    /// Standard input, if there is any.
    StandardInput,
}

/// An argument on the command line.
#[derive(Debug, PartialEq)]
pub(crate) struct Argument {
    /// The argument itself, or, if `is_file`, the path of the file that contains it.
    text: OsString,
    is_file: bool,
    /// Never decoded as JSON.
    is_text: bool,
}

pub(crate) fn usage(tool: &str) -> String {
    let (call, decoding) = match tool == LLM_BATCH {
        true => (
            "Sends each prompt to a sub-LLM, all at once, and prints the replies in order.",
            "PROMPT is always text, unless it is an option. Without any, standard input is one prompt.\nWith --file PATH, the prompt is the text of that file, of any size.",
        ),
        false => (
            "Calls a tool on the host, and prints its result.",
            "An argument that parses as JSON is decoded (3, true, [1], {\"a\": 1}), any other is text. Without any,\nstandard input may contain a JSON payload.\n@FILE stands for the text of a file, of any size.",
        ),
    };
    let literal = if tool == LLM_BATCH { "never options" } else { "never options or @FILE" };
    let (argument, own) = match tool == LLM_BATCH {
        true => (
            "PROMPT",
            "  --file PATH       a prompt, the text of a file\n  --lines           read one prompt per line from standard input; blank lines are skipped\n  --json [PAYLOAD]  a JSON list of prompts, or {\"prompts\": [...]}; read from standard input without PAYLOAD\n",
        ),
        false => (
            "ARGUMENT",
            "  --str             take all arguments as text\n  --json [PAYLOAD]  {\"args\": [...], \"kwargs\": {...}}, or a list of arguments, or an object of arguments by name;\n                    read from standard input without PAYLOAD\n",
        ),
    };
    format!(
        "{call}\n\nUsage: {tool} [OPTION]... [{argument}]...\n\n{decoding}\n\nOptions:\n{own}  --json-output     print the result as JSON\n  --                the arguments after it are {literal}\n  --help            print this text\n\nExit status: 0 success, 1 the call failed, 2 the command line is invalid.\n"
    )
}

/// Parses a command line, without the tool's name.
pub(crate) fn parse(tool: &str, arguments: Vec<OsString>) -> Result<Parsed, UsageError> {
    let is_batch = tool == LLM_BATCH;
    let (mut positional, mut output) = (Vec::new(), Output::Text);
    let (mut is_text, mut is_literal, mut lines, mut payload) = (is_batch, false, false, None);
    let mut rest = arguments.into_iter().peekable();
    while let Some(argument) = rest.next() {
        match Word::of(tool, argument.as_bytes()) {
            Word::Option if !is_literal => {}
            Word::File(path) if !is_literal => {
                let text = OsStr::from_bytes(path).to_owned();
                positional.push(Argument { text, is_file: true, is_text: false });
                continue;
            }
            _ => {
                positional.push(Argument { text: argument, is_file: false, is_text: false });
                continue;
            }
        }
        let option = argument.to_string_lossy();
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&*option, None),
        };
        match (name, value) {
            ("--", None) => is_literal = true,
            ("-h" | "--help", None) => return Ok(Parsed::Help),
            ("--str", None) => is_text = true,
            ("--lines", None) if is_batch => lines = true,
            ("--file", value) if is_batch => {
                let Some(path) = value.map(OsString::from).or_else(|| rest.next()) else {
                    return Err(UsageError(format!("--file needs a path; see {tool} --help")));
                };
                positional.push(Argument { text: path, is_file: true, is_text: true });
            }
            ("--json-output", None) => output = Output::Json,
            // The shell function writes arguments to a file if they are too long for a command line.
            ("--arguments-from", Some(path)) => rest = read_arguments(&path)?.into_iter().peekable(),
            ("--json", Some(value)) => payload = Some(Some(value)),
            ("--json", None) => {
                let value = rest.next_if(|next| Word::of(tool, next.as_bytes()) != Word::Option);
                payload = Some(value.map(|value| value.to_string_lossy().into_owned()));
            }
            _ => {
                return Err(UsageError(format!(
                    "unknown option {option}; put -- before an argument that begins with -; see {tool} --help"
                )));
            }
        }
    }
    for argument in &mut positional {
        argument.is_text = is_text;
    }
    let given = [!positional.is_empty(), payload.is_some(), lines];
    if given.into_iter().filter(|given| *given).count() > 1 {
        return Err(UsageError(format!(
            "arguments, --json and --lines cannot be combined; see {tool} --help"
        )));
    }
    let request = match payload {
        Some(payload) => Request::Payload(payload),
        None if lines => Request::Lines,
        None if positional.is_empty() => Request::StandardInput,
        None => Request::Arguments(positional),
    };
    Ok(Parsed::Call(request, output))
}

/// Reads arguments from a file, each ended by NUL.
pub(crate) fn read_arguments(path: &str) -> Result<Vec<OsString>, UsageError> {
    let bytes = std::fs::read(path).map_err(|error| UsageError(format!("cannot read {path}: {error}")))?;
    let arguments = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    Ok(arguments.map(|argument| OsStr::from_bytes(argument).to_owned()).collect())
}

impl Request {
    /// The call, including the arguments from files and standard input.
    pub(crate) fn into_call(self, tool: &str) -> Result<Call, String> {
        let is_batch = tool == LLM_BATCH;
        match self {
            Self::Arguments(arguments) => {
                let numbered = arguments.into_iter().enumerate();
                let values = numbered.map(|(at, argument)| argument.into_value(at + 1, tool));
                let values = values.collect::<Result<Vec<Value>, String>>()?;
                Ok(words::call(tool, values))
            }
            Self::Payload(payload) => {
                let text = payload.map_or_else(read_standard_input, Ok)?;
                of_payload(tool, &text)
            }
            Self::Lines => {
                let text = read_standard_input()?;
                let lines = text.lines().filter(|line| !line.trim().is_empty());
                let prompts = lines.map(Value::from).collect::<Vec<_>>();
                if prompts.is_empty() {
                    return Err(no_prompt());
                }
                Ok(words::call(tool, prompts))
            }
            // Nobody types here: the session's terminal is always at end of file.
            Self::StandardInput if io::stdin().is_terminal() => match is_batch {
                true => Err(no_prompt()),
                false => Ok(words::call(tool, Vec::new())),
            },
            Self::StandardInput => {
                let text = read_standard_input()?;
                match (is_batch, text.trim().is_empty()) {
                    (true, true) => Err(no_prompt()),
                    // The newline ends the text and is not a part of it, as in `$( )`.
                    (true, false) => {
                        Ok(words::call(tool, vec![text.strip_suffix('\n').unwrap_or(&text).into()]))
                    }
                    (false, true) => Ok(words::call(tool, Vec::new())),
                    (false, false) => of_payload(tool, &text),
                }
            }
        }
    }
}

fn no_prompt() -> String {
    "llm_batch: no prompt: give prompts as arguments, or one on standard input".to_owned()
}

impl Argument {
    fn into_value(self, at: usize, tool: &str) -> Result<Value, String> {
        let text = if self.is_file {
            let hint = if tool == LLM_BATCH { "" } else { "; put -- before an argument that begins with @" };
            let path = self.text.to_string_lossy();
            let bytes = std::fs::read(&self.text)
                .map_err(|error| format!("argument {at}: cannot read the file {path}: {error}{hint}"))?;
            text_of(bytes)
        } else {
            text_of(self.text.into_vec())
        };
        Ok(match self.is_text {
            true => text.into(),
            false => words::value(tool, &text),
        })
    }
}

fn of_payload(tool: &str, text: &str) -> Result<Call, String> {
    let payload = Value::from_json_text(text.as_bytes(), &words::limits()).map_err(|error| {
        format!("the payload is not JSON: {error}: {}", rlm_core::frame::excerpt(text.as_bytes()))
    })?;
    let is_call = |object: &Dict| {
        let is_part = |key: &Value| *key == Value::from("args") || *key == Value::from("kwargs");
        !object.is_empty() && object.iter().all(|(key, _)| is_part(key))
    };
    match payload {
        Value::Dict(object) if is_call(&object) => {
            let args = match object.get("args") {
                None => Vec::new(),
                Some(Value::List(items)) => items.to_vec(),
                Some(_) => return Err("the payload is invalid: args must be a list".to_owned()),
            };
            let kwargs = match object.get("kwargs") {
                None => Dict::default(),
                Some(Value::Dict(kwargs)) => (**kwargs).clone(),
                Some(_) => return Err("the payload is invalid: kwargs must be an object".to_owned()),
            };
            Ok(Call { tool: tool.to_owned(), args, kwargs })
        }
        Value::Dict(object) if tool == LLM_BATCH => {
            let prompts = ["prompts", "messages", "prompt"].iter().find_map(|key| object.get(key));
            match prompts {
                Some(Value::List(items)) => Ok(words::call(tool, items.to_vec())),
                Some(prompt) => Ok(words::call(tool, vec![prompt.clone()])),
                None => Err("the payload is invalid: expected a list of prompts, or an object with prompts"
                    .to_owned()),
            }
        }
        Value::Dict(object) => {
            Ok(Call { tool: tool.to_owned(), args: Vec::new(), kwargs: Arc::unwrap_or_clone(object) })
        }
        Value::List(items) => Ok(words::call(tool, Arc::unwrap_or_clone(items))),
        other => Ok(words::call(tool, vec![other])),
    }
}

pub(crate) fn read_standard_input() -> Result<String, String> {
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read standard input: {error}"))?;
    Ok(text_of(bytes))
}

/// Bytes that are not UTF-8 become replacement characters: a prompt from a damaged file is better than none.
pub(crate) fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, arguments: &[&str]) -> Call {
        match parse(tool, arguments.iter().map(OsString::from).collect()) {
            Ok(Parsed::Call(request, _)) => request.into_call(tool).unwrap(),
            _ => panic!("{arguments:?} are invalid"),
        }
    }

    fn repr(tool: &str, arguments: &[&str]) -> String {
        let call = call(tool, arguments);
        let (args, kwargs) = (Value::tuple(call.args), Value::from(call.kwargs));
        format!("{} {}", args.repr(1 << 16).unwrap(), kwargs.repr(1 << 16).unwrap())
    }

    #[test]
    fn arguments_are_decoded_if_they_are_json() {
        assert_eq!(
            repr("t", &["1e3", "true", "[1]", "", "a\n\"b\"", "null", "007", "-5", "-"]),
            "(1000.0, True, [1], '', 'a\\n\"b\"', None, '007', -5, '-') {}"
        );
        assert_eq!(repr("t", &["123456789012345678901234567890"]), "(123456789012345678901234567890,) {}");
        assert_eq!(repr("t", &["[-12345678901234567890123, -0]"]), "([-12345678901234567890123, 0],) {}");
        assert_eq!(repr("t", &[r#"["\ud800"]"#]), "(['\u{fffd}'],) {}");
        assert_eq!(repr("t", &["--str", "1e3", "[1]"]), "('1e3', '[1]') {}");
        assert_eq!(repr("t", &["1", "--str"]), "('1',) {}");
        assert_eq!(repr("t", &["--", "-x", "--json", "@a", "1"]), "('-x', '--json', '@a', 1) {}");
    }

    #[test]
    fn prompts_are_text() {
        assert_eq!(repr("llm_batch", &["[1]", "- item", "--- a"]), "(['[1]', '- item', '--- a'],) {}");
        assert_eq!(repr("llm_batch", &["@home", "@", "--", "-x"]), "(['@home', '@', '-x'],) {}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[1]\n").unwrap();
        let path = file.path().to_str().unwrap();
        let joined = format!("--file={path}");
        assert_eq!(
            repr("llm_batch", &["a", "--file", path, &joined, "b"]),
            "(['a', '[1]\\n', '[1]\\n', 'b'],) {}"
        );
        assert_eq!(repr("llm_batch", &["--json", r#"["a", 2]"#]), "(['a', 2],) {}");
        assert_eq!(repr("llm_batch", &["--json", r#"{"prompts": ["a"]}"#]), "(['a'],) {}");
        assert_eq!(repr("llm_batch", &["--json", "\"a\""]), "(['a'],) {}");
    }

    #[test]
    fn a_payload_is_arguments_by_position_or_name() {
        assert_eq!(repr("t", &["--json", r#"{"args": [1], "kwargs": {"a": 2}}"#]), "(1,) {'a': 2}");
        assert_eq!(repr("t", &["--json", r#"{"z": 1, "a": 2}"#]), "() {'z': 1, 'a': 2}");
        assert_eq!(repr("t", &["--json=[1, 2]"]), "(1, 2) {}");
        assert_eq!(repr("t", &["--json", "3"]), "(3,) {}");
    }

    #[test]
    fn invalid_command_lines_are_explained() {
        let usage = |tool: &str, arguments: &[&str]| match parse(
            tool,
            arguments.iter().map(OsString::from).collect(),
        ) {
            Err(UsageError(text)) => text,
            Ok(_) => panic!("{arguments:?} are valid"),
        };
        assert_eq!(
            usage("t", &["-x"]),
            "unknown option -x; put -- before an argument that begins with -; see t --help"
        );
        assert!(usage("t", &["--lines"]).starts_with("unknown option --lines"));
        assert_eq!(usage("llm_batch", &["--file"]), "--file needs a path; see llm_batch --help");
        assert!(usage("t", &["--file", "x"]).starts_with("unknown option --file"));
        assert!(usage("llm_batch", &["a", "--lines"]).contains("cannot be combined"));
    }
}
