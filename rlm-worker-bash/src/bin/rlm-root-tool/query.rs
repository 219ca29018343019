//! The command lines of `rlm_query` and `rlm_query_batch`.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;

use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::print::Output;
use rlm_core::root_tool::{Call, RLM_QUERY, words};

use crate::arguments::{UsageError, read_arguments, text_of};

pub(crate) fn usage(tool: &str) -> String {
    let (call, words, own) = match tool == RLM_QUERY {
        true => (
            "Has another agent, with a session of its own, answer a question, and prints its answer.",
            "QUESTION [FILE]...",
            "A FILE of - is standard input, the child's file context.txt.",
        ),
        false => (
            "Has other agents answer questions, several at once, and prints the answers in order.",
            "QUESTION...",
            "With --lines, standard input has one question a line.",
        ),
    };
    let options = match tool == RLM_QUERY {
        true => "",
        false => {
            "  --file PATH       a file or directory for each of them; may be repeated\n  --lines           read one question a line from standard input\n  -0, --null        end each answer with NUL instead of a line end\n"
        }
    };
    format!(
        "{call}\n\nUsage: {tool} [OPTION]... {words}\n\nThe agent gets copies of the files and directories, which must be in the session's directory. {own}\n\nOptions:\n{options}  --text TEXT       its file context.txt\n  --data JSON       its file context.json\n  --model NAME      the model that leads it\n  --language NAME   the language of its session: bash or python\n  --max-turns N     its most turns\n  --timeout SECONDS its most time\n  --share PART      the part of what is left of the budget that it has for itself: 0.2\n  --json            print answer, ready, stop_reason, error, turns and cost_usd as JSON\n  --                the arguments after it are never options\n  --help            print this text\n\nExit status: 0 answered, 1 there is no answer, 2 the command line is invalid.\n"
    )
}

/// Parses a command line, without the tool's name. None: help is wanted.
pub(crate) fn parse(tool: &str, arguments: Vec<OsString>) -> Result<Option<(Call, Output)>, UsageError> {
    let mut parsed = Parsed::default();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let word = text_of(argument.into_encoded_bytes());
        if parsed.is_literal || word != "-0" && words::Word::of(tool, word.as_bytes()) != words::Word::Option
        {
            parsed.words.push(word);
            continue;
        }
        let (name, mut value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&*word, None),
        };
        let mut value = || {
            let next = || rest.next().map(|next| text_of(next.into_encoded_bytes()));
            value
                .take()
                .or_else(next)
                .ok_or_else(|| UsageError(format!("{name} needs a value; see {tool} --help")))
        };
        match name {
            "--" => parsed.is_literal = true,
            "-h" | "--help" => return Ok(None),
            "--arguments-from" => rest = read_arguments(&value()?)?.into_iter(),
            "--json" => parsed.is_json = true,
            "--lines" if tool != RLM_QUERY => parsed.lines = true,
            "-0" | "--null" if tool != RLM_QUERY => parsed.output = Output::Nul,
            "--file" => parsed.files.push(value()?),
            "--text" => parsed.set("text", value()?.into())?,
            "--data" => {
                let value = Value::from_json_text(value()?.as_bytes(), &words::limits());
                let value = value.map_err(|error| UsageError(format!("--data is not JSON: {error}")))?;
                parsed.set("data", value)?;
            }
            "--model" => parsed.set("model", value()?.into())?,
            "--language" => parsed.set("language", value()?.into())?,
            "--max-turns" => parsed.set("max_turns", number::<i64>(name, &value()?)?)?,
            "--timeout" => parsed.set("timeout", number::<f64>(name, &value()?)?)?,
            "--share" => parsed.set("share", number::<f64>(name, &value()?)?)?,
            _ => {
                return Err(UsageError(format!(
                    "unknown option {name}; put -- before an argument that begins with -; see {tool} --help"
                )));
            }
        }
    }
    parsed.into_call(tool).map(Some)
}

#[derive(Default)]
struct Parsed {
    words: Vec<String>,
    files: Vec<String>,
    options: Vec<(Value, Value)>,
    is_literal: bool,
    is_json: bool,
    lines: bool,
    output: Output,
}

impl Parsed {
    /// Sets an option, once.
    fn set(&mut self, name: &str, value: Value) -> Result<(), UsageError> {
        if self.options.iter().any(|(there, _)| *there == Value::from(name)) {
            let option = name.replace('_', "-");
            return Err(UsageError(match name {
                "text" => {
                    "its context.txt is given twice: by --text or by standard input (-), once".to_owned()
                }
                _ => format!("--{option} is given twice"),
            }));
        }
        self.options.push((name.into(), value));
        Ok(())
    }

    fn into_call(mut self, tool: &str) -> Result<(Call, Output), UsageError> {
        let mut words = std::mem::take(&mut self.words).into_iter();
        let first = if tool == RLM_QUERY {
            let question =
                words.next().ok_or_else(|| UsageError(format!("no question; see {tool} --help")))?;
            if question == "-" {
                return Err(UsageError(format!("- is no question: give it as a word; see {tool} --help")));
            }
            self.files.extend(words);
            question.into()
        } else {
            if words.as_slice().iter().any(|word| word == "-") {
                return Err(UsageError(format!("- is no question: --lines reads them; see {tool} --help")));
            }
            let mut questions: Vec<_> = words.map(Value::from).collect();
            if self.lines {
                let text = read_standard_input()?;
                questions.extend(text.lines().filter(|line| !line.trim().is_empty()).map(Value::from));
            }
            if questions.is_empty() {
                return Err(UsageError(format!("no question; see {tool} --help")));
            }
            Value::list(questions)
        };
        while let Some(at) = self.files.iter().position(|file| file == "-") {
            self.files.remove(at);
            self.set("text", read_standard_input()?.into())?;
        }
        if !self.files.is_empty() {
            // The host does not know where the shell is.
            let whole = |file: String| {
                std::path::absolute(Path::new(&file))
                    .map_or(file.clone(), |path| path.to_string_lossy().into_owned())
            };
            let files = std::mem::take(&mut self.files).into_iter().map(|file| Value::from(whole(file)));
            let files = Value::list(files);
            self.set("files", files)?;
        }
        if self.is_json {
            self.set("json", true.into())?;
        }
        let output = if self.is_json { Output::Json } else { self.output };
        let kwargs = Dict::from_pairs(self.options).map_err(|error| UsageError(error.to_string()))?;
        Ok((Call { tool: tool.to_owned(), args: vec![first], kwargs }, output))
    }
}

fn number<N: std::str::FromStr + Into<Value>>(name: &str, text: &str) -> Result<Value, UsageError> {
    let is_finite = text.parse::<f64>().is_ok_and(f64::is_finite);
    let number = text.parse::<N>().ok().filter(|_| is_finite);
    number.map(Into::into).ok_or_else(|| UsageError(format!("{name} is {text:?}, expected a number")))
}

fn read_standard_input() -> Result<String, UsageError> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| UsageError(format!("cannot read standard input: {error}")))?;
    Ok(text_of(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repr(tool: &str, arguments: &[&str]) -> String {
        match parse(tool, arguments.iter().map(OsString::from).collect()) {
            Ok(Some((call, _))) => {
                let (args, kwargs) = (Value::tuple(call.args), Value::from(call.kwargs));
                format!("{} {}", args.repr(1 << 16).unwrap(), kwargs.repr(1 << 16).unwrap())
            }
            Ok(None) => "help".to_owned(),
            Err(UsageError(error)) => error,
        }
    }

    #[test]
    fn words_are_a_question_and_files() {
        assert_eq!(repr("rlm_query", &["[1]"]), "('[1]',) {}");
        assert_eq!(
            repr("rlm_query", &["who?", "/a/b", "/a/c\nd"]),
            "('who?',) {'files': ['/a/b', '/a/c\\nd']}"
        );
        assert_eq!(
            repr("rlm_query", &["--max-turns=3", "--timeout", "2.5", "--share", "0.2", "--json", "--", "-x"]),
            "('-x',) {'max_turns': 3, 'timeout': 2.5, 'share': 0.2, 'json': True}"
        );
        assert_eq!(repr("rlm_query_batch", &["a", "b", "--file", "/x"]), "(['a', 'b'],) {'files': ['/x']}");
        assert_eq!(repr("rlm_query", &["--data", "{\"a\": 1}", "q"]), "('q',) {'data': {'a': 1}}");
        assert_eq!(repr("rlm_query", &["--help"]), "help");
    }

    #[test]
    fn invalid_command_lines_are_explained() {
        assert_eq!(repr("rlm_query", &[]), "no question; see rlm_query --help");
        assert_eq!(repr("rlm_query_batch", &["--file", "x"]), "no question; see rlm_query_batch --help");
        assert_eq!(repr("rlm_query", &["a", "--text"]), "--text needs a value; see rlm_query --help");
        assert_eq!(repr("rlm_query", &["a", "--share", "x"]), "--share is \"x\", expected a number");
        assert_eq!(repr("rlm_query", &["a", "--share", "0.1", "--share=1"]), "--share is given twice");
        assert_eq!(repr("rlm_query", &["a", "--max-turns=1", "--max-turns=2"]), "--max-turns is given twice");
        assert_eq!(
            repr("rlm_query", &["a", "--text", "x", "--text", "y"]),
            "its context.txt is given twice: by --text or by standard input (-), once"
        );
        assert_eq!(
            repr("rlm_query_batch", &["a", "-"]),
            "- is no question: --lines reads them; see rlm_query_batch --help"
        );
        assert_eq!(repr("rlm_query", &["-"]), "- is no question: give it as a word; see rlm_query --help");
        assert_eq!(repr("rlm_query", &["a", "--timeout", "nan"]), "--timeout is \"nan\", expected a number");
        assert!(repr("rlm_query", &["a", "--lines"]).starts_with("unknown option --lines"));
        assert!(repr("rlm_query", &["a", "--data", "{"]).starts_with("--data is not JSON"));
    }
}
