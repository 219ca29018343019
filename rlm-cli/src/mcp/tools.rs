//! The tools: names, arguments and descriptions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rlm_env::ReplLanguage;
use rlm_env::rollout::Prompts;
use rlm_env::tool::ToolFault;
use rlm_env::unstable::{McpDoc, McpText};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::sessions::DEFAULT;

pub(super) const BASH: &str = "bash";
pub(super) const PYTHON: &str = "python";
pub(super) const RESET: &str = "reset";
pub(super) const SESSION_SCRIPT: &str = "session_script";
pub(super) const ASK_DIRECTORY: &str = "ask_directory";

/// The arguments of `bash` and `python`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CodeArguments {
    pub(super) code: String,
    #[serde(default, deserialize_with = "seconds")]
    pub(super) timeout: Option<Duration>,
    #[serde(default = "default_session")]
    pub(super) session: String,
}

/// The arguments of `ask_directory`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskArguments {
    pub(super) question: String,
    #[serde(default = "whole_directory")]
    pub(super) path: PathBuf,
}

/// The arguments of `reset` and `session_script`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionArguments {
    language: Language,
    #[serde(default = "default_session")]
    pub(super) session: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Language {
    Bash,
    Python,
}

impl SessionArguments {
    pub(super) fn language(&self) -> ReplLanguage {
        match self.language {
            Language::Bash => ReplLanguage::Bash,
            Language::Python => ReplLanguage::Python,
        }
    }
}

fn default_session() -> String {
    DEFAULT.to_owned()
}

fn whole_directory() -> PathBuf {
    ".".into()
}

fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let Some(seconds) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    if seconds <= 0.0 {
        return Err(serde::de::Error::custom(format!("`timeout` is {seconds}, expected seconds above 0")));
    }
    // A time beyond the range of a Duration is no limit.
    Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
}

/// Reads the arguments of a call.
pub(super) fn arguments<T: DeserializeOwned>(given: Option<JsonObject>) -> Result<T, ToolFault> {
    let given = Value::Object(given.unwrap_or_default());
    serde_json::from_value(given).map_err(|error| ToolFault::BadArguments(error.to_string()))
}

/// The tools as a client lists them, [`ASK_DIRECTORY`] last.
pub(super) fn definitions(doc: &McpDoc<'_>, prompts: &Prompts) -> anyhow::Result<Vec<Tool>> {
    let repl = include_str!("schemas/repl_input.json");
    let session = include_str!("schemas/session_input.json");
    let ask = include_str!("schemas/ask_input.json");
    let runs_code =
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true);
    let discards =
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false);
    let asks = ToolAnnotations::new().read_only(false).destructive(false).idempotent(false).open_world(true);
    let reads = ToolAnnotations::new().read_only(true).open_world(false);
    let bash = McpText::Repl(ReplLanguage::Bash);
    let python = McpText::Repl(ReplLanguage::Python);
    [
        (BASH, "Run bash", bash, repl, runs_code.clone()),
        (PYTHON, "Run Python", python, repl, runs_code),
        (RESET, "Reset a session", McpText::Reset, session, discards),
        (SESSION_SCRIPT, "Session as a script", McpText::SessionScript, session, reads),
        (ASK_DIRECTORY, "Ask a model about files", McpText::AskDirectory, ask, asks),
    ]
    .into_iter()
    .map(|(name, title, text, input, annotations)| {
        let description = doc.render(text, prompts)?;
        Ok(Tool::new(name, description, schema(input)?).with_title(title).with_annotations(annotations))
    })
    .collect()
}

fn schema(text: &str) -> anyhow::Result<Arc<JsonObject>> {
    serde_json::from_str(text).map(Arc::new).context("a built-in schema is not a JSON object")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rlm_core::protocol::Confine;
    use serde_json::json;

    use super::*;

    fn tools() -> Vec<Tool> {
        let doc = McpDoc {
            root: Path::new("/data"),
            timeout: Duration::from_secs(120),
            max_output_bytes: 32 << 10,
            max_sessions: 16,
            confine: Confine::Off,
        };
        definitions(&doc, &Prompts::new()).unwrap()
    }

    #[test]
    fn the_list_is_as_it_was_reviewed() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&tools()).unwrap());
    }

    #[track_caller]
    fn read<T: DeserializeOwned>(given: Value) -> Result<T, String> {
        let Value::Object(given) = given else { panic!("{given}") };
        arguments(Some(given)).map_err(|fault| match fault {
            ToolFault::BadArguments(why) => why,
            other => panic!("{other:?}"),
        })
    }

    /// A tool's schema and the reader of its arguments accept the same ones.
    #[track_caller]
    fn accepts<T: DeserializeOwned>(tool: &Tool, cases: &[(Value, bool)]) {
        let schema = jsonschema::validator_for(&tool.schema_as_json_value()).unwrap();
        for (given, is_good) in cases {
            assert_eq!(schema.is_valid(given), *is_good, "schema: {given}");
            assert_eq!(read::<T>(given.clone()).is_ok(), *is_good, "{given}");
        }
    }

    #[test]
    fn arguments_are_read_as_their_schema_says() {
        let tools = tools();
        accepts::<CodeArguments>(
            &tools[0],
            &[
                (json!({"code": "ls"}), true),
                (json!({"code": "", "timeout": 0.5, "session": "a"}), true),
                (json!({"code": "ls", "timeout": 1e300}), true),
                (json!({}), false),
                (json!({"code": 1}), false),
                (json!({"code": "ls", "timeout": 0}), false),
                (json!({"code": "ls", "timeout": -1}), false),
                (json!({"code": "ls", "timeout": "5"}), false),
                (json!({"code": "ls", "command": "ls"}), false),
                (json!({"code": "ls", "session": 1}), false),
            ],
        );
        accepts::<SessionArguments>(
            &tools[2],
            &[
                (json!({"language": "bash"}), true),
                (json!({"language": "python", "session": "a"}), true),
                (json!({"session": "a"}), false),
                (json!({"language": "perl"}), false),
            ],
        );
        accepts::<AskArguments>(
            &tools[4],
            &[
                (json!({"question": "why?"}), true),
                (json!({"question": "why?", "path": "logs"}), true),
                (json!({"path": "logs"}), false),
                (json!({"question": "why?", "file": "a"}), false),
            ],
        );
        assert_eq!(read::<CodeArguments>(json!({})).unwrap_err(), "missing field `code`");
        assert_eq!(
            read::<CodeArguments>(json!({"code": "", "timeout": -1})).unwrap_err(),
            "`timeout` is -1, expected seconds above 0"
        );
    }
}
