//! The questions of a batch: JSON lines.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rlm_core::ids::is_rollout_id;
use rlm_core::jsonl;
use rlm_env::Context;
use serde_json::{Map, Value as Json};

use crate::evaluation::Expected;
use crate::files::read_named;
use crate::usage::{Usage, nearest, refuse};

/// Longest id of a question: a rollout's has 128 characters, and the attempt is a part of it.
const MAX_ID_CHARS: usize = 112;

/// The fields of a line.
const FIELDS: [&str; 7] =
    ["question", "id", "context", "context_text", "context_json", "expected", "metadata"];

/// A question of a batch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    /// The question's id, or the number of its line.
    pub(super) id: String,
    /// The question's line in the file: `q.jsonl:3`.
    pub(super) place: Option<String>,
    pub(super) question: String,
    /// The question's own context, instead of the command line's.
    pub(super) context: Option<Context>,
    /// The answers that are right.
    pub(super) expected: Option<Expected>,
    /// Metadata, which go into the question's results.
    pub(super) metadata: Option<Json>,
}

/// Reads a file of questions; `-` is standard input.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<Question>> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read the questions from standard input")?;
        return Ok(parse(&text, "standard input", Path::new(""))?);
    }
    let text = read_named(file, "the questions")?;
    Ok(parse(&text, &file.display().to_string(), file.parent().unwrap_or(Path::new("")))?)
}

/// Reads the text of a file that has this name. Paths in it are relative to `dir`.
fn parse(text: &str, name: &str, dir: &Path) -> Result<Vec<Question>, Usage> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut questions = Vec::new();
    let mut lines_by_id = HashMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |reason: String| Usage::new(format!("{name}:{number}: {reason}"));
        let question = fields(line).and_then(|fields| question(fields, number, dir)).map_err(wrong)?;
        let question = Question { place: Some(format!("{name}:{number}")), ..question };
        if let Some(other) = lines_by_id.insert(question.id.clone(), number) {
            let id = &question.id;
            return Err(wrong(format!(
                "line {other} has the id `{id}` too; a line without an id has its number"
            )));
        }
        questions.push(question);
    }
    if questions.is_empty() {
        refuse!("{name} holds no question");
    }
    Ok(questions)
}

/// An attempt that comes on standard input: a question with the field `attempt`, its number.
pub(super) fn attempt(line: &str, number: usize, dir: &Path) -> Result<(usize, Question), Usage> {
    let attempt = || {
        let mut fields = fields(line)?;
        let attempt = fields.remove("attempt").unwrap_or(1.into());
        let attempt = attempt.as_u64().filter(|attempt| *attempt > 0);
        let attempt = attempt.and_then(|attempt| usize::try_from(attempt).ok());
        let attempt = attempt.ok_or("`attempt` must be a number from 1")?;
        Ok((attempt, question(fields, number, dir)?))
    };
    attempt().map_err(|reason: String| Usage::new(format!("standard input:{number}: {reason}")))
}

fn fields(line: &str) -> Result<Map<String, Json>, String> {
    serde_json::from_str(line).map_err(|error| format!("expected a JSON object: {}", jsonl::fault(&error)))
}

fn question(mut fields: Map<String, Json>, number: usize, dir: &Path) -> Result<Question, String> {
    if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        let known = nearest(unknown, FIELDS).map_or_else(
            || format!("the fields are {}", FIELDS.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        return Err(format!("unknown field `{unknown}`: {known}"));
    }
    let question = match fields.remove("question") {
        Some(Json::String(question)) if !question.trim().is_empty() => question,
        Some(_) => return Err("`question` must be a string that is not empty".to_owned()),
        None => return Err("`question` is missing".to_owned()),
    };
    let id = fields.remove("id").map_or_else(|| Ok(number.to_string()), id)?;
    let expected = fields.remove("expected").map(Expected::new).transpose()?;
    let metadata = fields.remove("metadata").filter(|metadata| !metadata.is_null());
    Ok(Question { id, place: None, question, context: context(fields, dir)?, expected, metadata })
}

fn id(value: Json) -> Result<String, String> {
    let id = match value {
        Json::String(id) => id,
        Json::Number(id) => id.to_string(),
        _ => return Err("`id` must be a string or a number".to_owned()),
    };
    if id.is_empty() || id.len() > MAX_ID_CHARS || !is_rollout_id(&format!("{id}-1")) {
        return Err(format!(
            "the id `{id}` must have 1 to {MAX_ID_CHARS} of the characters a-z A-Z 0-9 _ - ."
        ));
    }
    Ok(id)
}

fn context(mut fields: Map<String, Json>, dir: &Path) -> Result<Option<Context>, String> {
    let given = ["context", "context_text", "context_json"].map(|name| fields.remove(name));
    match given {
        [None, None, None] => Ok(None),
        [Some(paths), None, None] => paths_of(paths, dir).map(|paths| Some(Context::Paths(paths))),
        [None, Some(Json::String(text)), None] => Ok(Some(Context::Text(text))),
        [None, Some(_), None] => Err("`context_text` must be a string".to_owned()),
        [None, None, Some(document)] => Ok(Some(Context::Json(document))),
        _ => Err("only one of `context`, `context_text` and `context_json` can be given".to_owned()),
    }
}

fn paths_of(value: Json, dir: &Path) -> Result<Vec<PathBuf>, String> {
    let values = match value {
        Json::Array(values) => values,
        value => vec![value],
    };
    let path = |value: Json| match value {
        Json::String(path) if !path.is_empty() => Some(dir.join(path)),
        _ => None,
    };
    let paths: Option<Vec<_>> = values.into_iter().map(path).collect();
    paths.ok_or_else(|| "`context` must be a path or a list of paths".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn questions(text: &str) -> Result<Vec<Question>, String> {
        parse(text, "q.jsonl", Path::new("/d")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_is_a_question_with_an_id_and_a_context() {
        let text = r#"
            {"question": "a?"}
            {"question": "b?", "id": "b-1", "context": "data", "metadata": {"gold": 7}}
            {"question": "c?", "id": 7, "context": ["x", "/y"], "expected": ["x", 1]}
            {"question": "d?", "context_text": "t"}
            {"question": "e?", "context_json": [1]}
        "#;
        let paths = |paths: &[&str]| Some(Context::Paths(paths.iter().map(PathBuf::from).collect()));
        let expected = [
            (2, "2", "a?", None, None),
            (3, "b-1", "b?", paths(&["/d/data"]), Some(json!({"gold": 7}))),
            (4, "7", "c?", paths(&["/d/x", "/y"]), None),
            (5, "5", "d?", Some(Context::Text("t".to_owned())), None),
            (6, "6", "e?", Some(Context::Json(json!([1]))), None),
        ]
        .map(|(line, id, question, context, metadata)| Question {
            id: id.to_owned(),
            place: Some(format!("q.jsonl:{line}")),
            question: question.to_owned(),
            context,
            expected: (id == "7").then(|| Expected::new(json!(["x", 1])).unwrap()),
            metadata,
        });
        assert_eq!(questions(text).unwrap(), expected);
    }

    #[test]
    fn an_error_names_the_line() {
        for (text, begins) in [
            ("\n\n", "q.jsonl holds no question"),
            ("{\"question\": \"a\"}\n{", "q.jsonl:2: expected a JSON object: "),
            ("[]", "q.jsonl:1: expected a JSON object: "),
            ("{}", "q.jsonl:1: `question` is missing"),
            ("{\"question\": \" \"}", "q.jsonl:1: `question` must be a string that is not empty"),
            (
                "{\"question\": \"a\", \"contxt\": \"x\"}",
                "q.jsonl:1: unknown field `contxt`: did you mean `context`?",
            ),
            (
                "{\"question\": \"a\", \"id\": \"a/b\"}",
                "q.jsonl:1: the id `a/b` must have 1 to 112 of the characters a-z A-Z 0-9 _ - .",
            ),
            (
                "{\"question\": \"a\", \"expected\": {}}",
                "q.jsonl:1: `expected` must be a string that is not empty, a number, or a list of those",
            ),
            (
                "{\"question\": \"a\", \"context\": [1]}",
                "q.jsonl:1: `context` must be a path or a list of paths",
            ),
            (
                "{\"question\": \"a\", \"context\": \"x\", \"context_text\": \"t\"}",
                "q.jsonl:1: only one of `context`, `context_text` and `context_json` can be given",
            ),
            (
                "{\"question\": \"a\", \"id\": \"2\"}\n{\"question\": \"b\"}",
                "q.jsonl:2: line 1 has the id `2` too; a line without an id has its number",
            ),
        ] {
            let error = questions(text).unwrap_err();
            assert!(error.starts_with(begins), "{text}: {error}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_not_a_part_of_the_first_line() {
        assert_eq!(questions("\u{feff}{\"question\": \"a?\"}").unwrap()[0].question, "a?");
    }
}
