//! Scores: the comparison of an answer with those that are right, or the verdict of a program.

use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use regex_automata::meta::Regex;
use rlm_core::text::{cut, one_line};
use rlm_env::{RolloutResult, StopReason};
use rlm_rootd::{Program, ProgramOutput};
use serde::Serialize;
use serde_json::Value as Json;

use crate::environment::Environment;
use crate::usage::{Usage, refuse};

/// Relative distance within which two numbers are equal.
const TOLERANCE: f64 = 1e-6;

/// Time limit of a program that scores one result.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Most bytes that such a program may write to standard output.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// Characters of a program's words in an error.
const QUOTED_CHARS: usize = 200;

/// A number, with or without separators of thousands.
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    let whole = r"(?:[0-9]{1,3}(?:,[0-9]{3})+\b|[0-9]+)(?:\.[0-9]+)?";
    let pattern = format!(r"[-+\u{{2212}}]?(?:{whole}|\.[0-9]+)(?:[eE][-+]?[0-9]+)?");
    Regex::new(&pattern).expect("the pattern is one")
});

/// The way in which results are scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScoreMode {
    /// The answer is one of those expected, apart from case and white space.
    Exact,
    /// The answer contains one of those expected, apart from case and white space.
    Contains,
    /// The last number of the answer is one of those expected.
    Number,
    /// A program decides.
    Command(String),
}

impl FromStr for ScoreMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "exact" => Ok(Self::Exact),
            "contains" => Ok(Self::Contains),
            "number" => Ok(Self::Number),
            _ => match text.strip_prefix("command:") {
                Some(program) if !program.is_empty() => Ok(Self::Command(program.to_owned())),
                _ => Err("expected exact, contains, number or command:PROGRAM".to_owned()),
            },
        }
    }
}

/// The answers that are right: a string, a number or a list of those.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expected(Json);

impl Expected {
    pub(crate) fn new(value: Json) -> Result<Self, String> {
        let is_answer = |value: &Json| match value {
            Json::String(text) => !text.trim().is_empty(),
            value => value.is_number(),
        };
        let is_valid = match &value {
            Json::Array(values) => !values.is_empty() && values.iter().all(is_answer),
            value => is_answer(value),
        };
        if is_valid {
            return Ok(Self(value));
        }
        Err("`expected` must be a string that is not empty, a number, or a list of those".to_owned())
    }

    pub(crate) fn json(&self) -> &Json {
        &self.0
    }

    fn texts(&self) -> impl Iterator<Item = String> {
        let values = self.0.as_array().map_or(std::slice::from_ref(&self.0), Vec::as_slice);
        values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// The numbers, or the first text that is not one.
    fn numbers(&self) -> Result<Vec<f64>, String> {
        self.texts().map(|text| whole_number(text.trim()).ok_or(text)).collect()
    }
}

/// A result to score, and what is known of its question.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Case<'a> {
    /// The rollout's id.
    pub(crate) id: &'a str,
    pub(crate) question: &'a str,
    pub(crate) answer: &'a str,
    pub(crate) expected: Option<&'a Json>,
    pub(crate) metadata: Option<&'a Json>,
}

/// Scores results.
#[derive(Debug)]
pub(crate) enum Scorer {
    /// A comparison with the expected answer.
    Compare(ScoreMode),
    /// A program that scores each answer.
    Command(Program),
}

impl Scorer {
    /// Fails if there is nothing to score by, or if an expected answer cannot be used. `questions` are the ids of the
    /// questions and their expected answers.
    pub(crate) fn new<'a>(
        mode: Option<&ScoreMode>,
        questions: impl IntoIterator<Item = (&'a str, Option<&'a Expected>)>,
        environment: &Environment,
    ) -> Result<Self, Usage> {
        let scorer = Self::unchecked(mode, environment)?;
        if matches!(scorer, Self::Command(_)) {
            return Ok(scorer);
        }
        let mut has_expected = false;
        for (id, expected) in questions {
            let Some(expected) = expected else { continue };
            has_expected = true;
            if mode == Some(&ScoreMode::Number)
                && let Err(text) = expected.numbers()
            {
                refuse!(
                    "--score number: the `expected` of question {id} must be a number, not \"{}\"",
                    cut(&one_line(&text), QUOTED_CHARS)
                );
            }
        }
        if mode.is_some() && !has_expected {
            refuse!(
                "--score: no question has `expected`: add it to the questions, or give --score command:PROGRAM",
            );
        }
        Ok(scorer)
    }

    /// A scorer for questions that are not known yet.
    pub(crate) fn unchecked(mode: Option<&ScoreMode>, environment: &Environment) -> Result<Self, Usage> {
        let Some(ScoreMode::Command(program)) = mode else {
            return Ok(Self::Compare(mode.cloned().unwrap_or(ScoreMode::Exact)));
        };
        let found = Program::find(program, Path::new("."), environment.variables());
        let program = found.map_err(|error| Usage::new(format!("--score command:{program}: {error}")))?;
        Ok(Self::Command(program))
    }

    /// Scores a result. None: it is not to be scored. The inner error: it cannot be, for this reason.
    pub(crate) async fn score(
        &self,
        result: &RolloutResult,
        expected: Option<&Expected>,
        metadata: Option<&Json>,
    ) -> Option<Result<f64, String>> {
        let answer = result.answer.as_deref().unwrap_or_default();
        match (self, expected) {
            (Self::Compare(_), None) => None,
            _ if result.stop_reason != StopReason::Answered => Some(Ok(0.0)),
            (Self::Compare(mode), Some(expected)) => {
                Some(Ok(f64::from(u8::from(is_right(mode, answer, expected)))))
            }
            (Self::Command(program), expected) => {
                let (id, question) = (&result.id, &result.question);
                let case = Case { id, question, answer, expected: expected.map(Expected::json), metadata };
                Some(verdict(program, &case).await)
            }
        }
    }
}

fn is_right(mode: &ScoreMode, answer: &str, expected: &Expected) -> bool {
    match mode {
        ScoreMode::Contains => {
            let answer = folded(answer);
            expected.texts().any(|text| answer.contains(&folded(&text)))
        }
        ScoreMode::Number => last_number(answer).is_some_and(|number| {
            let numbers = expected.numbers().unwrap_or_default();
            numbers.into_iter().any(|right| (number - right).abs() <= TOLERANCE * right.abs())
        }),
        _ => {
            let answer = folded(answer);
            expected.texts().any(|text| answer == folded(&text))
        }
    }
}

/// A text in lower case, without white space around it, and with one space in place of each other run.
fn folded(text: &str) -> String {
    one_line(text).to_lowercase()
}

/// The last number in a text. A sign behind a letter, a digit or another number is a dash.
fn last_number(text: &str) -> Option<f64> {
    let found = NUMBER.find_iter(text).last()?;
    let is_dash = text[..found.start()].ends_with(|c: char| c.is_alphanumeric() || c == ')');
    let number = &text[found.range()];
    let number = if is_dash { number.trim_start_matches(['-', '+', '\u{2212}']) } else { number };
    value(number)
}

/// A text that is a number as a whole.
fn whole_number(text: &str) -> Option<f64> {
    let found = NUMBER.find(text).filter(|found| found.range() == (0..text.len()))?;
    value(&text[found.range()])
}

fn value(number: &str) -> Option<f64> {
    number.replace(',', "").replace('\u{2212}', "-").parse().ok().filter(|value: &f64| value.is_finite())
}

/// The score that a program gives.
async fn verdict(program: &Program, case: &Case<'_>) -> Result<f64, String> {
    let input = serde_json::to_vec(case).map_err(|error| error.to_string())?;
    let output = program.run(input, MAX_OUTPUT_BYTES, TIME_LIMIT).await.map_err(|error| error.to_string())?;
    let ProgramOutput { status, output, error_tail } = &output;
    let printed = String::from_utf8_lossy(output);
    let said = error_tail.trim();
    let mut failed = match (status.code(), printed.trim()) {
        (Some(0), "") => return Ok(1.0),
        // Python ends with 1 after an exception, which is not a verdict.
        (Some(1), "") if said.is_empty() => return Ok(0.0),
        (Some(0 | 1), printed) if !printed.is_empty() => match printed.parse::<f64>() {
            // `-0` is 0.
            Ok(score) if (0.0..=1.0).contains(&score) => return Ok(score.abs()),
            _ => format!(
                "the program printed \"{}\", expected a number from 0 to 1",
                cut(&one_line(printed), QUOTED_CHARS)
            ),
        },
        _ => format!("the program failed: {status}"),
    };
    if !said.is_empty() {
        let last = said.lines().next_back().unwrap_or_default();
        // Writing to a String does not fail.
        _ = write!(failed, ": {}", cut(&one_line(last), QUOTED_CHARS));
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scores(mode: &str, answer: &str, expected: Json) -> bool {
        is_right(&mode.parse().unwrap(), answer, &Expected::new(expected).unwrap())
    }

    #[test]
    fn exact_looks_past_case_and_white_space() {
        assert!(scores("exact", "  Red\n  Panda ", json!("red panda")));
        assert!(scores("exact", "7", json!(7)));
        assert!(scores("exact", "b", json!(["a", "B"])));
        assert!(!scores("exact", "red panda.", json!("red panda")));
        assert!(!scores("exact", "", json!("red")));
    }

    #[test]
    fn contains_takes_any_of_those_expected() {
        assert!(scores("contains", "It is the RED\npanda.", json!(["blue", "red panda"])));
        assert!(!scores("contains", "redpanda", json!("red panda")));
    }

    #[test]
    fn the_last_number_counts_within_a_tolerance() {
        for (answer, number) in [
            ("It is 1,234.50 EUR", Some(1234.5)),
            ("3 of 12", Some(12.0)),
            ("-7", Some(-7.0)),
            ("\u{2212}7", Some(-7.0)),
            ("(−7%)", Some(-7.0)),
            ("2023-05-11", Some(11.0)),
            ("a - 3", Some(3.0)),
            ("x=-3.", Some(-3.0)),
            ("1e3", Some(1000.0)),
            (".5", Some(0.5)),
            ("12,34", Some(34.0)),
            ("1,000,000", Some(1e6)),
            ("none", None),
            ("1e999", None),
        ] {
            assert_eq!(last_number(answer), number, "{answer}");
        }
        assert!(scores("number", "about 3.1415926", json!(std::f64::consts::PI)));
        assert!(!scores("number", "about 3.1415", json!(std::f64::consts::PI)));
        assert!(scores("number", "1000", json!("1,000")));
        assert!(scores("number", "0", json!(0)));
        assert!(!scores("number", "none", json!(0)));
    }

    #[test]
    fn what_is_expected_is_checked_before_anything_runs() {
        for bad in [json!(null), json!({}), json!([]), json!(" "), json!([[1]]), json!(true)] {
            assert!(Expected::new(bad.clone()).unwrap_err().starts_with("`expected` must be"), "{bad}");
        }
        let new = |mode: &str, expected: Option<Json>| {
            let expected = expected.map(|json| Expected::new(json).unwrap());
            let scorer = Scorer::new(
                Some(&mode.parse().unwrap()),
                [("q", expected.as_ref())],
                &Environment::default(),
            );
            scorer.map_err(|error| error.to_string())
        };
        assert_eq!(
            new("number", Some(json!([1, "one"]))).unwrap_err(),
            "--score number: the `expected` of question q must be a number, not \"one\""
        );
        assert!(new("exact", None).unwrap_err().starts_with("--score: no question has `expected`"));
        assert!(new("command:/no/such", None).unwrap_err().starts_with("--score command:/no/such: "));
        assert!("command:".parse::<ScoreMode>().is_err());
    }
}
