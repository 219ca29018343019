//! The schema of answers.

use std::fmt;
use std::sync::Arc;

use jsonschema::{PatternOptions, Validator};
use rlm_core::text::cut;
use serde_json::Value as Json;

/// Faults of an answer that are reported.
const MAX_FAULTS: usize = 3;

/// Longest text of one fault, in characters.
const FAULT_CHARS: usize = 300;

/// A JSON schema that final answers must fit. Clones share it.
#[derive(Clone)]
pub struct AnswerSchema(Arc<Compiled>);

struct Compiled {
    schema: Json,
    validator: Validator,
}

/// A schema that cannot be used: the fault in it, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a valid JSON schema: {0}")]
pub struct InvalidAnswerSchema(String);

impl AnswerSchema {
    /// Compiles a schema. References may only lead to places in the schema itself.
    ///
    /// # Errors
    /// The schema is not valid.
    pub fn new(schema: Json) -> Result<Self, InvalidAnswerSchema> {
        let validator = jsonschema::options()
            // Matching takes time linear in the text, which comes from the model.
            .with_pattern_options(PatternOptions::regex())
            .build(&schema)
            .map_err(|error| InvalidAnswerSchema(cut(&error.to_string(), FAULT_CHARS)))?;
        Ok(Self(Arc::new(Compiled { schema, validator })))
    }

    /// The schema as indented JSON.
    pub(super) fn text(&self) -> String {
        format!("{:#}", self.0.schema)
    }

    /// The first faults of an answer, each with the JSON pointer of its place. Empty if the answer fits.
    pub(super) fn faults(&self, answer: &str) -> Vec<String> {
        let answer: Json = match serde_json::from_str(answer) {
            Ok(answer) => answer,
            Err(_) if answer.trim().is_empty() => return vec!["it is empty".to_owned()],
            Err(error) => return vec![format!("it is not JSON: {error}")],
        };
        let faults = self.0.validator.iter_errors(&answer).take(MAX_FAULTS);
        faults
            .map(|fault| {
                let place = fault.instance_path().to_string();
                let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
                cut(&format!("{place}{fault}"), FAULT_CHARS)
            })
            .collect()
    }
}

impl fmt::Debug for AnswerSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnswerSchema").field(&self.0.schema).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn faults_have_their_places_and_are_few() {
        let schema = json!({
            "type": "object",
            "required": ["n"],
            "properties": {"n": {"type": "integer"}, "names": {"items": {"type": "string"}}},
        });
        let schema = AnswerSchema::new(schema).unwrap();
        let faults = |answer: &str| schema.faults(answer);
        assert_eq!(faults(" {\"n\": 1}\n"), [""; 0]);
        assert_eq!(faults(""), ["it is empty"]);
        assert!(faults("{\"n\": ")[0].starts_with("it is not JSON: EOF"));
        assert_eq!(faults("{}"), ["\"n\" is a required property"]);
        assert_eq!(faults("{\"n\": \"x\"}"), ["/n: \"x\" is not of type \"integer\""]);
        let many = faults("{\"n\": 1, \"names\": [1, 2, 3, 4, 5]}");
        assert_eq!((many.len(), many[2].as_str()), (3, "/names/2: 3 is not of type \"string\""));
        let long = faults(&format!("{{\"n\": {:?}}}", "x".repeat(1000)));
        assert!(long[0].chars().count() <= FAULT_CHARS + 1);
    }

    #[test]
    fn an_invalid_schema_is_named() {
        let error = AnswerSchema::new(json!({"type": "objekt"})).unwrap_err().to_string();
        assert!(error.starts_with("it is not a valid JSON schema: "), "{error}");
    }
}
