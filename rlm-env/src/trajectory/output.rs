//! A response in a line of a trajectory: without the fields that the line or its rollout already has.

use std::borrow::Cow;

use rlm_core::protocol::{Answer, Outcome, Response, State, Truncated};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The fields in a line, documented in `docs/trajectory.md`.
#[derive(Serialize, Deserialize)]
struct Output<'a> {
    stdout: Cow<'a, str>,
    stderr: Cow<'a, str>,
    result: Option<Cow<'a, str>>,
    outcome: Outcome,
    state: State,
    exit_code: Option<i32>,
    dropped_bytes: u64,
    hint: Option<Cow<'a, str>>,
    answer: Cow<'a, str>,
    answer_ready: bool,
}

pub(super) fn serialize<S: Serializer>(output: &Option<Response>, serializer: S) -> Result<S::Ok, S::Error> {
    let output = output.as_ref().map(|response| Output {
        stdout: response.stdout.as_str().into(),
        stderr: response.stderr.as_str().into(),
        result: response.result.as_deref().map(Cow::from),
        outcome: response.outcome,
        state: response.state,
        exit_code: response.exit_code,
        dropped_bytes: response.dropped_bytes(),
        hint: response.hint.as_deref().map(Cow::from),
        answer: response.answer.content.as_str().into(),
        answer_ready: response.answer.ready,
    });
    output.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Response>, D::Error> {
    let output: Option<Output<'_>> = Deserialize::deserialize(deserializer)?;
    Ok(output.map(|output| Response {
        stdout: output.stdout.into_owned(),
        stderr: output.stderr.into_owned(),
        result: output.result.map(Cow::into_owned),
        exit_code: output.exit_code,
        truncated: (output.dropped_bytes > 0)
            .then_some(Truncated { stdout: output.dropped_bytes, ..Truncated::default() }),
        hint: output.hint.map(Cow::into_owned),
        answer: Answer { ready: output.answer_ready, content: output.answer.into_owned() },
        ..Response::new(output.outcome, output.state)
    }))
}

#[cfg(test)]
mod tests {
    use crate::trajectory::CallEnded;

    use super::*;

    /// A change here changes trajectories: decide whether it is an addition or a new version.
    #[test]
    fn a_line_has_a_part_of_the_response() {
        let response = Response {
            stdout: "a\u{e9}\n".to_owned(),
            stderr: "warned".to_owned(),
            result: Some("1".to_owned()),
            exit_code: Some(2),
            truncated: Some(Truncated { stdout: 7, stderr: 0, result: 0 }),
            hint: Some("why".to_owned()),
            answer: Answer { ready: true, content: "42".to_owned() },
            ..Response::new(Outcome::Exited, State::Restored)
        };
        let ended =
            |output| CallEnded { turn: 1, call_id: "c".to_owned(), seconds: 0.5, output, error: None };
        for (ended, golden) in [
            (
                ended(Some(response)),
                concat!(
                    r#"{"turn":1,"call_id":"c","seconds":0.5,"output":{"stdout":"aé\n","stderr":"warned","#,
                    r#""result":"1","outcome":"exited","state":"restored","exit_code":2,"dropped_bytes":7,"#,
                    r#""hint":"why","answer":"42","answer_ready":true},"error":null}"#
                ),
            ),
            (ended(None), r#"{"turn":1,"call_id":"c","seconds":0.5,"output":null,"error":null}"#),
        ] {
            assert_eq!(serde_json::to_string(&ended).unwrap(), golden);
            assert_eq!(serde_json::from_str::<CallEnded>(golden).unwrap(), ended);
        }
    }
}
