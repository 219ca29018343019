//! Reading trajectories.

use std::borrow::Cow;
use std::io::{self, BufRead};

use rlm_core::jsonl::{self, Lines};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::entry::{Entry, Event, VERSION};

/// Reads a trajectory line by line. Only the current line is in memory.
///
/// Unknown fields and events are skipped: later versions added them. An error ends the iteration.
pub fn read<R: BufRead>(input: R) -> Reader<R> {
    Reader { lines: Lines::new(input), is_over: false }
}

/// The lines of a trajectory.
#[derive(Debug)]
pub struct Reader<R> {
    lines: Lines<R>,
    is_over: bool,
}

/// A line of a trajectory.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// An entry.
    Entry(Box<Entry>),
    /// An entry with an unknown event.
    Unknown {
        /// The number of the line, from 1.
        line: u64,
        /// The event's name.
        event: String,
    },
    /// An incomplete last line: the writer was killed, or is still writing.
    CutOff {
        /// The number of the line, from 1.
        line: u64,
        /// The length of the line so far.
        bytes: usize,
    },
}

/// Why a trajectory cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The input cannot be read.
    #[error("cannot read line {line}")]
    Io {
        /// The line, from 1.
        line: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A complete line is not an entry.
    #[error("line {line} is not an entry of a trajectory: {reason}")]
    Malformed {
        /// The line, from 1.
        line: u64,
        /// The parser's message.
        reason: String,
    },
    /// The trajectory was written by a newer program.
    #[error(
        "line {line}: the trajectory of rollout `{rollout}` has version {found}, this program reads up to {VERSION}: use a newer one"
    )]
    Newer {
        /// The line, from 1.
        line: u64,
        /// The rollout.
        rollout: String,
        /// The version of the trajectory.
        found: u32,
    },
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Line, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let line = self.next_line().transpose();
        self.is_over = !matches!(line, Some(Ok(Line::Entry(_) | Line::Unknown { .. })));
        line
    }
}

impl<R: BufRead> Reader<R> {
    fn next_line(&mut self) -> Result<Option<Line>, ReadError> {
        let line = match self.lines.next_line() {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(None),
            Err(source) => return Err(ReadError::Io { line: self.lines.number(), source }),
        };
        match understand(line) {
            Err(ReadError::Malformed { line: number, .. }) if !line.is_finished => {
                Ok(Some(Line::CutOff { line: number, bytes: line.text.len() }))
            }
            understood => understood.map(Some),
        }
    }
}

fn understand(line: jsonl::Line<'_>) -> Result<Line, ReadError> {
    let head: Head<'_> = parse(line)?;
    if head.event == "rollout_started" {
        let Version { version } = parse(line)?;
        if version > VERSION {
            let rollout = head.rollout.into_owned();
            return Err(ReadError::Newer { line: line.number, rollout, found: version });
        }
    }
    let event = match &*head.event {
        "rollout_started" => Event::RolloutStarted(parse_owned(line)?),
        "message" => Event::Message(parse_owned(line)?),
        "model_retry" => Event::ModelRetry(parse_owned(line)?),
        "model_call" => Event::ModelCall(parse_owned(line)?),
        "call_started" => Event::CallStarted(parse_owned(line)?),
        "call_ended" => Event::CallEnded(parse_owned(line)?),
        "sub_call" => Event::SubCall(parse_owned(line)?),
        "model_changed" => Event::ModelChanged(parse_owned(line)?),
        "question_ended" => Event::QuestionEnded(parse_owned(line)?),
        "rollout_ended" => Event::RolloutEnded(parse_owned(line)?),
        "rollout_scored" => Event::RolloutScored(parse_owned(line)?),
        _ => return Ok(Line::Unknown { line: line.number, event: head.event.into_owned() }),
    };
    Ok(Line::Entry(Box::new(Entry {
        rollout: head.rollout.into_owned(),
        time: head.time,
        event,
        depth: head.depth,
    })))
}

fn parse_owned<T: DeserializeOwned>(line: jsonl::Line<'_>) -> Result<T, ReadError> {
    parse(line)
}

fn parse<'a, T: Deserialize<'a>>(line: jsonl::Line<'a>) -> Result<T, ReadError> {
    serde_json::from_slice(line.text)
        .map_err(|error| ReadError::Malformed { line: line.number, reason: jsonl::fault(&error) })
}

/// The fields of every entry.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    rollout: Cow<'a, str>,
    time: f64,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(default)]
    depth: u32,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::terms::Callbacks;
    use crate::trajectory::{Message, MessageKind};

    /// The example of the documentation.
    const EXAMPLE: &str = include_str!("../../../docs/trajectory-example.jsonl");

    fn lines(input: &str) -> Vec<Line> {
        read(input.as_bytes()).collect::<Result<_, _>>().unwrap()
    }

    fn refusal(input: &[u8]) -> String {
        let mut lines = read(input);
        let error = lines.find_map(Result::err).expect("it is refused");
        assert!(lines.next().is_none(), "there is nothing after an error");
        error.to_string()
    }

    fn message(text: &str) -> Entry {
        let message = Message {
            turn: 1,
            kind: MessageKind::Notice,
            message: json!({"role": "user", "content": text}),
            left_out: Vec::new(),
        };
        Entry { rollout: "r".to_owned(), time: 1.5, event: Event::Message(message), depth: 0 }
    }

    #[test]
    fn every_event_is_read_as_it_was_written() {
        let entries = lines(EXAMPLE);
        assert_eq!(entries.len(), EXAMPLE.lines().count());
        let mut events = Vec::new();
        for (entry, line) in entries.iter().zip(EXAMPLE.lines()) {
            let Line::Entry(entry) = entry else { panic!("{entry:?}") };
            let written = serde_json::to_value(entry).unwrap();
            assert_eq!(written, serde_json::from_str::<serde_json::Value>(line).unwrap());
            events.push(written["event"].as_str().unwrap().to_owned());
        }
        for event in [
            "rollout_started",
            "message",
            "model_retry",
            "model_call",
            "call_started",
            "sub_call",
            "call_ended",
            "rollout_ended",
        ] {
            assert!(events.iter().any(|seen| seen == event), "the example has no {event}");
        }
    }

    #[test]
    fn a_rollout_of_an_older_version_called_tools_over_the_network() {
        let line = r#"{"rollout": "r", "time": 1.5, "event": "rollout_started", "version": 1, "question": "q",
            "language": "bash", "model": "m", "sub_model": null, "root_tools": [], "tools": [],
            "context_files": 0, "context_bytes": 0}"#;
        let read = lines(&line.replace('\n', ""));
        let [Line::Entry(entry)] = &read[..] else { panic!("{read:?}") };
        let Event::RolloutStarted(started) = &entry.event else { panic!("{entry:?}") };
        assert_eq!((started.callbacks, started.final_functions), (Callbacks::Network, false));
    }

    #[test]
    fn events_that_only_some_rollouts_have_are_known() {
        let question = r#"{"rollout":"r","time":1.0,"event":"question_ended","stop_reason":"answered","answer":"a","answer_ready":true,"error":null}"#;
        let score = r#"{"rollout":"r","time":1.0,"event":"rollout_scored","score":0.5,"error":null}"#;
        let model = r#"{"rollout":"r","time":1.0,"event":"model_changed","turn":3,"model":"m"}"#;
        let read = lines(&format!("{question}\n{score}\n{model}\n"));
        let [Line::Entry(question), Line::Entry(score), Line::Entry(model)] = &read[..] else {
            panic!("{read:?}")
        };
        assert!(matches!(&model.event, Event::ModelChanged(changed) if changed.model == "m"));
        assert!(matches!(&question.event, Event::QuestionEnded(ended) if ended.answer_ready));
        assert!(matches!(&score.event, Event::RolloutScored(scored) if scored.score == Some(0.5)));
    }

    #[test]
    fn every_field_is_documented() {
        let documentation = include_str!("../../../docs/trajectory.md");
        for line in EXAMPLE.lines() {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            let output = entry["output"].as_object().into_iter().flatten();
            for (field, _) in entry.as_object().into_iter().flatten().chain(output) {
                assert!(documentation.contains(&format!("`{field}`")), "{field}");
            }
        }
    }

    #[test]
    fn every_beginning_of_a_file_is_valid_but_for_its_last_line() {
        for end in 0..=EXAMPLE.len() {
            let bytes = &EXAMPLE.as_bytes()[..end];
            let read: Vec<_> = read(bytes).collect::<Result<_, _>>().unwrap();
            let whole = bytes.iter().filter(|byte| **byte == b'\n').count();
            let rest = end - bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            match read.get(whole) {
                None => assert_eq!(rest, 0),
                Some(Line::CutOff { line, bytes }) => assert_eq!((*line, *bytes), (whole as u64 + 1, rest)),
                // Only the line break is missing.
                Some(last) => assert!(matches!(last, Line::Entry(_)) && EXAMPLE.as_bytes()[end] == b'\n'),
            }
            assert!(read[..whole].iter().all(|line| matches!(line, Line::Entry(_))));
        }
    }

    #[test]
    fn unknown_fields_and_events_are_skipped() {
        let known = serde_json::to_string(&message("hi")).unwrap();
        let with_a_field = known.replacen('{', r#"{"colour": {"deep": [1]}, "#, 1);
        let input =
            format!("{with_a_field}\n\n{{\"rollout\":\"r\",\"time\":2,\"event\":\"dream\",\"of\":1}}\n");
        assert_eq!(
            lines(&input),
            [Line::Entry(Box::new(message("hi"))), Line::Unknown { line: 3, event: "dream".to_owned() }]
        );
    }

    #[test]
    fn a_malformed_line_is_named() {
        let good = serde_json::to_string(&message("hi")).unwrap();
        for (bad, reason) in [
            (
                "{\"rollout\":\"r\"",
                "line 2 is not an entry of a trajectory: EOF while parsing an object at column 14",
            ),
            ("hello", "line 2 is not an entry of a trajectory: expected value at column 1"),
            (
                "{\"rollout\":\"r\",\"time\":1}",
                "line 2 is not an entry of a trajectory: missing field `event` at column 24",
            ),
            (
                "{\"rollout\":\"r\",\"time\":1,\"event\":\"message\",\"turn\":1}",
                "line 2 is not an entry of a trajectory: missing field `kind` at column 51",
            ),
        ] {
            assert_eq!(refusal(format!("{good}\n{bad}\n{good}\n").as_bytes()), reason);
        }
        assert!(
            refusal(b"{\"rollout\":\"\xff\",\"time\":1,\"event\":\"x\"}\n")
                .starts_with("line 1 is not an entry")
        );
    }

    #[test]
    fn a_newer_trajectory_is_refused_by_its_version_whatever_else_it_says() {
        let line = r#"{"rollout":"r","time":1,"event":"rollout_started","version":2,"question":{}}"#;
        let expected = "line 1: the trajectory of rollout `r` has version 2, this program reads up to 1: use a newer one";
        assert_eq!(refusal(line.as_bytes()), expected);
        assert_eq!(refusal(format!("{line}\n").as_bytes()), expected);
    }

    #[test]
    fn an_input_that_fails_is_named_with_the_line() {
        struct Failing;
        impl io::Read for Failing {
            fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let first = format!("{}\n", serde_json::to_string(&message("hi")).unwrap());
        let mut read = read(io::BufReader::new(io::Read::chain(first.as_bytes(), Failing)));
        assert!(matches!(read.next(), Some(Ok(Line::Entry(_)))));
        assert!(matches!(read.next(), Some(Err(ReadError::Io { line: 2, .. }))));
        assert!(read.next().is_none());
    }
}
