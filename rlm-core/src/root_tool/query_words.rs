//! The words of `rlm_query` and `rlm_query_batch` in a shell. `rlm-root-tool` runs such a command, and interception reads one from
//! code.

use super::print::Output;
use super::words::{Word, limits};
use super::{Call, RLM_QUERY};
use crate::pickle::{Dict, Value};

/// The source of a command's standard input, and the way in which it names files.
pub trait Surroundings {
    /// Reads the standard input of the command.
    ///
    /// # Errors
    /// A sentence.
    fn standard_input(&mut self) -> Result<String, String>;

    /// A file as its host knows it.
    fn file(&self, path: String) -> String;
}

/// The call of a command, from the words after its name. None: help is wanted.
///
/// # Errors
/// A sentence: the words are not those of a call.
pub fn parse(
    tool: &str,
    words: Vec<String>,
    surroundings: &mut dyn Surroundings,
) -> Result<Option<(Call, Output)>, String> {
    let mut parsed = Parsed::default();
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        if parsed.is_literal || word != "-0" && Word::of(tool, word.as_bytes()) != Word::Option {
            parsed.words.push(word);
            continue;
        }
        let (name, mut value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&*word, None),
        };
        let mut value = || {
            value
                .take()
                .or_else(|| rest.next())
                .ok_or_else(|| format!("{name} needs a value; see {tool} --help"))
        };
        match name {
            "--" => parsed.is_literal = true,
            "-h" | "--help" => return Ok(None),
            "--json" => parsed.is_json = true,
            "--lines" if tool != RLM_QUERY => parsed.lines = true,
            "-0" | "--null" if tool != RLM_QUERY => parsed.output = Output::Nul,
            "--file" => parsed.files.push(value()?),
            "--text" => parsed.set("text", value()?.into())?,
            "--data" => {
                let value = Value::from_json_text(value()?.as_bytes(), &limits());
                let value = value.map_err(|error| format!("--data is not JSON: {error}"))?;
                parsed.set("data", value)?;
            }
            "--model" => parsed.set("model", value()?.into())?,
            "--language" => parsed.set("language", value()?.into())?,
            "--max-turns" => parsed.set("max_turns", number::<i64>(name, &value()?, "a whole number")?)?,
            "--timeout" => parsed.set("timeout", number::<f64>(name, &value()?, "a number of seconds")?)?,
            "--share" => parsed.set("share", number::<f64>(name, &value()?, "a number")?)?,
            _ => {
                return Err(format!(
                    "unknown option {name}; put -- before an argument that begins with -; see {tool} --help"
                ));
            }
        }
    }
    parsed.into_call(tool, surroundings).map(Some)
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
    fn set(&mut self, name: &str, value: Value) -> Result<(), String> {
        if self.options.iter().any(|(there, _)| *there == Value::from(name)) {
            let option = name.replace('_', "-");
            return Err(match name {
                "text" => {
                    "its context.txt is given twice: by --text or by standard input (-), once".to_owned()
                }
                _ => format!("--{option} is given twice"),
            });
        }
        self.options.push((name.into(), value));
        Ok(())
    }

    fn into_call(
        mut self,
        tool: &str,
        surroundings: &mut dyn Surroundings,
    ) -> Result<(Call, Output), String> {
        let mut words = std::mem::take(&mut self.words).into_iter();
        let first = if tool == RLM_QUERY {
            let question = words.next().ok_or_else(|| format!("no question; see {tool} --help"))?;
            if question == "-" {
                return Err(format!("- is no question: give it as a word; see {tool} --help"));
            }
            self.files.extend(words);
            question.into()
        } else {
            if words.as_slice().iter().any(|word| word == "-") {
                return Err(format!("- is no question: --lines reads them; see {tool} --help"));
            }
            let mut questions: Vec<_> = words.map(Value::from).collect();
            if self.lines {
                let text = surroundings.standard_input()?;
                questions.extend(text.lines().filter(|line| !line.trim().is_empty()).map(Value::from));
            }
            if questions.is_empty() {
                return Err(format!("no question; see {tool} --help"));
            }
            Value::list(questions)
        };
        while let Some(at) = self.files.iter().position(|file| file == "-") {
            self.files.remove(at);
            self.set("text", surroundings.standard_input()?.into())?;
        }
        if !self.files.is_empty() {
            let files =
                std::mem::take(&mut self.files).into_iter().map(|file| surroundings.file(file).into());
            let files = Value::list(files);
            self.set("files", files)?;
        }
        if self.is_json {
            self.set("json", true.into())?;
        }
        let output = if self.is_json { Output::Json } else { self.output };
        let kwargs = Dict::from_pairs(self.options).map_err(|error| error.to_string())?;
        Ok((Call { tool: tool.to_owned(), args: vec![first], kwargs }, output))
    }
}

fn number<N: std::str::FromStr + Into<Value>>(
    name: &str,
    text: &str,
    expected: &str,
) -> Result<Value, String> {
    let is_finite = text.parse::<f64>().is_ok_and(f64::is_finite);
    let number = text.parse::<N>().ok().filter(|_| is_finite);
    number.map(Into::into).ok_or_else(|| format!("{name} is {text:?}, expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Surroundings for Nothing {
        fn standard_input(&mut self) -> Result<String, String> {
            Ok("typed\n".to_owned())
        }

        fn file(&self, path: String) -> String {
            path
        }
    }

    fn repr(tool: &str, arguments: &[&str]) -> String {
        let words = arguments.iter().map(|word| (*word).to_owned()).collect();
        match parse(tool, words, &mut Nothing) {
            Ok(Some((call, _))) => {
                let (args, kwargs) = (Value::tuple(call.args), Value::from(call.kwargs));
                format!("{} {}", args.repr(1 << 16).unwrap(), kwargs.repr(1 << 16).unwrap())
            }
            Ok(None) => "help".to_owned(),
            Err(error) => error,
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
        assert_eq!(repr("rlm_query", &["q", "-"]), "('q',) {'text': 'typed\\n'}");
        assert_eq!(repr("rlm_query_batch", &["--lines"]), "(['typed'],) {}");
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
        for wrong in ["nan", "5m"] {
            assert_eq!(
                repr("rlm_query", &["a", "--timeout", wrong]),
                format!("--timeout is {wrong:?}, expected a number of seconds")
            );
        }
        assert_eq!(
            repr("rlm_query", &["a", "--max-turns", "1.5"]),
            "--max-turns is \"1.5\", expected a whole number"
        );
        assert!(repr("rlm_query", &["a", "--lines"]).starts_with("unknown option --lines"));
        assert!(repr("rlm_query", &["a", "--data", "{"]).starts_with("--data is not JSON"));
    }
}
