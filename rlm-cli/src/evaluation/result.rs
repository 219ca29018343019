//! A result with what an evaluation needs to know about it.

use rlm_env::RolloutResult;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

/// The models and settings that made a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    pub(crate) model: String,
    pub(crate) sub_model: String,
    /// The digest of the settings.
    pub(crate) settings: String,
}

/// The place of a result in a batch, and its score.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evaluation {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) question_id: Option<String>,
    /// The number of the attempt, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<usize>,
    /// The question's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<Json>,
    /// The answers that are right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<Json>,
    /// The score from 0 to 1. Null if the answer could not be scored; absent without scoring.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub(crate) score: Option<Option<f64>>,
    /// The reason for a score of null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) score_error: Option<String>,
}

/// A result of `rlm run`. Lines that were written before there was a provenance have none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunResult {
    #[serde(flatten)]
    pub(crate) rollout: RolloutResult,
    #[serde(flatten)]
    pub(crate) evaluation: Evaluation,
    #[serde(flatten)]
    pub(crate) provenance: Option<Provenance>,
}

/// Tells null from an absent field.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<f64>>, D::Error> {
    Deserialize::deserialize(value).map(Some)
}

#[cfg(test)]
pub(crate) mod tests {
    use rlm_env::StopReason;
    use rlm_env::rollout::Metrics;
    use serde_json::json;

    use super::*;

    /// A result of this kind, without a provenance.
    pub(crate) fn result(id: &str, stop_reason: StopReason, answer: Option<&str>) -> RunResult {
        let result = json!({
            "id": id,
            "question": "why?",
            "answer": answer,
            "answer_ready": stop_reason == StopReason::Answered,
            "stop_reason": stop_reason,
            "metrics": Metrics::default(),
        });
        serde_json::from_value(result).unwrap()
    }

    #[test]
    fn a_line_comes_back_as_it_went() {
        let bare = result("q-1", StopReason::Answered, Some("7"));
        assert_eq!((&bare.evaluation, &bare.provenance), (&Evaluation::default(), &None));
        let provenance = Provenance {
            model: "a".to_owned(),
            sub_model: "b".to_owned(),
            settings: "0123456789abcdef".to_owned(),
        };
        for (score, score_error) in
            [(None, None), (Some(Some(0.5)), None), (Some(None), Some("late".to_owned()))]
        {
            let full = RunResult {
                evaluation: Evaluation {
                    question_id: Some("q".to_owned()),
                    attempt: Some(1),
                    metadata: Some(json!({"from": [1, 2.5]})),
                    expected: Some(json!(["7", 7])),
                    score,
                    score_error,
                },
                provenance: Some(provenance.clone()),
                ..bare.clone()
            };
            let line = serde_json::to_string(&full).unwrap();
            assert!(line.starts_with("{\"id\":\"q-1\","), "{line}");
            assert_eq!(line.contains("\"score\""), score.is_some());
            assert_eq!(serde_json::from_str::<RunResult>(&line).unwrap(), full);
        }
    }
}
