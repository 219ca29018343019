//! The contract of trainers: the object `ai.prime.rlm/runtime-v1` of `session/new`, which configures a session.

use rlm_env::rollout::Compaction;
use serde_json::{Map, Value as Json};

use crate::config::table::{
    API_KEY_ENV, BASE_URL, BUDGET_TOKENS, CALL_TIMEOUT, HEADERS, MAX_COMPLETION_TOKENS, MAX_OUTPUT_CHARS,
    MAX_RETRIES, MODEL, SUB_PARALLELISM, TOKEN_IDS,
};
use crate::config::{AnySetting, Flags, Form};

/// The key of the object in `_meta`.
pub(super) const CONTRACT: &str = "ai.prime.rlm/runtime-v1";

/// The variable that holds the key of the provider, in the environment that the settings are read from.
pub(super) const KEY_VARIABLE: &str = "RLM_ACP_API_KEY";

/// The fields that are settings.
const SETTINGS: [(&str, &dyn AnySetting); 9] = [
    ("model", &MODEL),
    ("token_ids", &TOKEN_IDS),
    ("provider.base_url", &BASE_URL),
    ("provider.max_retries", &MAX_RETRIES),
    ("policy.max_total_tokens", &BUDGET_TOKENS),
    ("policy.max_tool_output_bytes", &MAX_OUTPUT_CHARS),
    ("policy.exec_timeout", &CALL_TIMEOUT),
    ("policy.max_concurrent_subagents", &SUB_PARALLELISM),
    ("policy.max_tokens", &MAX_COMPLETION_TOKENS),
];

/// The contract of a session.
#[derive(Debug, Default)]
pub(super) struct Contract {
    /// The settings in it, with their fields as origins.
    pub(super) settings: Vec<(&'static str, String, String)>,
    /// The provider's key.
    pub(super) api_key: Option<String>,
    /// The id by which the trainer knows the session.
    pub(super) session_id: Option<String>,
    pub(super) append_to_system_prompt: Option<String>,
    /// The text at the end of the system prompt of sub-LLMs.
    pub(super) append_to_sub_prompt: Option<String>,
    /// Variables of the session.
    pub(super) kernel_env: Vec<(String, String)>,
    /// Most turns of all prompts together.
    pub(super) max_total_turns: Option<u32>,
    /// The compaction of the conversation, in place of the settings: none if the inner value is None.
    pub(super) compaction: Option<Option<Compaction>>,
    /// Fields without a meaning here that are set.
    pub(super) ignored: Vec<String>,
}

impl Contract {
    /// Reads the object. A field that is null counts as absent; one that is not known is ignored, since newer trainers may send it.
    ///
    /// # Errors
    /// The field that is wrong, and what was expected.
    pub(super) fn read(object: &Json) -> Result<Self, String> {
        let mut fields = Fields::flat(object)?;
        let mut contract = Self::default();
        for (field, setting) in SETTINGS {
            let Some(value) = fields.0.remove(field) else { continue };
            let text = match value {
                Json::String(text) => text,
                Json::Number(number) => number.to_string(),
                Json::Bool(flag) if setting.form == Form::Flag => flag.to_string(),
                _ => return Err(wrong(field, "expected a text or a number")),
            };
            contract.set(setting, text, field)?;
        }
        contract.session_id = fields.text("session_id")?;
        contract.append_to_system_prompt = fields.text("append_to_system_prompt")?;
        contract.append_to_sub_prompt = fields.text("leaf_append_to_system_prompt")?;
        for (name, value) in fields.object("kernel_env")? {
            let Json::String(text) = value else {
                return Err(wrong(&format!("kernel_env.{name}"), "expected a text"));
            };
            let is_answer = ["RLM_READY", "RLM_CONTENT"].contains(&&*name);
            let is_variable = !(name.is_empty() || name.contains(['=', '\0', ' ']) || text.contains('\0'));
            if is_answer || !is_variable {
                return Err(wrong(
                    "kernel_env",
                    &format!("`{}` cannot be a variable", name.escape_default()),
                ));
            }
            contract.kernel_env.push((name, text));
        }
        contract.max_total_turns = fields.number("policy.max_total_turns")?;
        contract.compaction = compaction(&mut fields)?;
        let field = "provider.api_key";
        contract.api_key = fields.text(field)?;
        if contract.api_key.is_some() {
            contract.set(&API_KEY_ENV, KEY_VARIABLE.to_owned(), field)?;
        }
        let field = "provider.headers";
        let mut headers = fields.object(field)?;
        for value in headers.values_mut() {
            if let Some(text) = value.as_str().filter(|text| text.starts_with('$')) {
                // The text stays as it is: a variable of the agent is not one of the trainer's.
                *value = format!("${text}").into();
            }
        }
        if !headers.is_empty() {
            contract.set(&HEADERS, Json::Object(headers).to_string(), field)?;
        }
        contract.ignored = fields.0.into_iter().map(|(field, _)| field).collect();
        Ok(contract)
    }

    fn set(&mut self, setting: &dyn AnySetting, text: String, field: &str) -> Result<(), String> {
        setting.check(&text).map_err(|reason| wrong(field, &reason))?;
        self.settings.push((setting.name, text, format!("{CONTRACT}: {field}")));
        Ok(())
    }

    /// The flags of the command, with the settings of the contract before them.
    pub(super) fn flags(&self, given: &Flags) -> Flags {
        let mut flags = given.clone();
        for (setting, text, origin) in &self.settings {
            flags.values.insert(setting, (text.clone(), origin.clone()));
        }
        flags
    }
}

/// How the conversation is compacted. A threshold alone asks for it, too.
fn compaction(fields: &mut Fields) -> Result<Option<Option<Compaction>>, String> {
    let is_on = fields.take("policy.compaction", "true or false", |value| value.as_bool())?;
    let mut compaction = Compaction {
        at_tokens: fields.number("policy.summarize_at_tokens")?,
        max_times: fields.number("policy.max_compactions")?,
        ..Compaction::default()
    };
    if let Some(attempts) = fields.number("policy.max_compaction_attempts")? {
        compaction.max_attempts = attempts;
    }
    let is_on = is_on.or(compaction.at_tokens.map(|_| true));
    Ok(is_on.map(|is_on| is_on.then_some(compaction)))
}

/// The fields that are left to read, those of `provider` and `policy` with their prefix.
struct Fields(Map<String, Json>);

impl Fields {
    /// The fields that are not null.
    fn flat(object: &Json) -> Result<Self, String> {
        let mut flat = Map::new();
        for (name, value) in object.as_object().ok_or_else(|| format!("{CONTRACT}: expected an object"))? {
            match value {
                Json::Object(inner) if name == "provider" || name == "policy" => {
                    flat.extend(
                        inner.iter().map(|(inner, value)| (format!("{name}.{inner}"), value.clone())),
                    );
                }
                Json::Null => {}
                _ if name == "provider" || name == "policy" => return Err(wrong(name, "expected an object")),
                _ => _ = flat.insert(name.clone(), value.clone()),
            }
        }
        flat.retain(|_, value| !value.is_null());
        Ok(Self(flat))
    }

    /// Removes a field.
    fn take<T>(
        &mut self,
        field: &str,
        expected: &str,
        read: impl FnOnce(Json) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.0.remove(field) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(field, &format!("expected {expected}")))
    }

    fn text(&mut self, field: &str) -> Result<Option<String>, String> {
        self.take(field, "a text", |value| value.as_str().map(str::to_owned))
    }

    fn number<N: TryFrom<u64>>(&mut self, field: &str) -> Result<Option<N>, String> {
        self.take(field, "a whole number", |value| N::try_from(value.as_u64()?).ok())
    }

    fn object(&mut self, field: &str) -> Result<Map<String, Json>, String> {
        Ok(self.take(field, "an object", |value| value.as_object().cloned())?.unwrap_or_default())
    }
}

fn wrong(field: &str, reason: &str) -> String {
    format!("{CONTRACT}: {field}: {reason}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_contract_becomes_settings() {
        let contract = Contract::read(&json!({
            "session_id": "trace-1",
            "model": "m",
            "provider": {"base_url": "http://127.0.0.1:1/v1", "api_key": "secret", "headers": {"X-A": "b", "X-B": "$HOME"}, "max_retries": 3},
            "append_to_system_prompt": "Be brief.",
            "leaf_append_to_system_prompt": null,
            "kernel_env": {"A": "b"},
            "skills": ["edit"],
            "search_api_key": null,
            "policy": {"max_total_turns": 7, "max_total_tokens": 10_000_000, "exec_timeout": 300, "max_depth": 1},
        }))
        .unwrap();
        let flags = contract.flags(&Flags::default());
        let text = |name: &str| flags.values[name].0.as_str();
        assert_eq!(
            ["model", "base_url", "api_key_env", "max_retries", "budget_tokens", "call_timeout"].map(text),
            ["m", "http://127.0.0.1:1/v1", KEY_VARIABLE, "3", "10000000", "300"]
        );
        assert_eq!(text("headers"), "{\"X-A\":\"b\",\"X-B\":\"$$HOME\"}");
        assert_eq!(flags.values["call_timeout"].1, "ai.prime.rlm/runtime-v1: policy.exec_timeout");
        assert_eq!(contract.session_id.as_deref(), Some("trace-1"));
        assert_eq!(contract.append_to_system_prompt.as_deref(), Some("Be brief."));
        assert_eq!(contract.append_to_sub_prompt, None);
        assert_eq!(contract.kernel_env, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(contract.max_total_turns, Some(7));
        assert_eq!(contract.ignored, ["skills", "policy.max_depth"]);
    }

    #[test]
    fn a_contract_says_how_the_conversation_is_compacted() {
        let compaction = |policy: Json| {
            let contract = Contract::read(&json!({"policy": policy})).unwrap();
            let fields = |one: Compaction| (one.at_tokens, one.max_times, one.max_attempts);
            contract.compaction.map(|compaction| compaction.map(fields))
        };
        assert_eq!(compaction(json!({"compaction": null, "max_compactions": 3})), None);
        assert_eq!(compaction(json!({"compaction": false, "summarize_at_tokens": 7})), Some(None));
        assert_eq!(compaction(json!({"compaction": true})), Some(Some((None, None, 5))));
        assert_eq!(compaction(json!({"summarize_at_tokens": 7})), Some(Some((Some(7), None, 5))));
        assert_eq!(
            compaction(json!({"compaction": true, "max_compactions": 3, "max_compaction_attempts": 2})),
            Some(Some((None, Some(3), 2)))
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (object, error) in [
            (json!([]), "ai.prime.rlm/runtime-v1: expected an object"),
            (json!({"model": {}}), "ai.prime.rlm/runtime-v1: model: expected a text or a number"),
            (
                json!({"policy": {"exec_timeout": "soon"}}),
                "ai.prime.rlm/runtime-v1: policy.exec_timeout: expected a number of seconds above 0, or a time such as 5m or 1h30m",
            ),
            (json!({"token_ids": "yes"}), "ai.prime.rlm/runtime-v1: token_ids: expected `true` or `false`"),
            (json!({"kernel_env": {"A": 1}}), "ai.prime.rlm/runtime-v1: kernel_env.A: expected a text"),
            (
                json!({"policy": {"max_total_turns": -1}}),
                "ai.prime.rlm/runtime-v1: policy.max_total_turns: expected a whole number",
            ),
            (
                json!({"policy": {"compaction": "on"}}),
                "ai.prime.rlm/runtime-v1: policy.compaction: expected true or false",
            ),
            (
                json!({"policy": {"summarize_at_tokens": "many"}}),
                "ai.prime.rlm/runtime-v1: policy.summarize_at_tokens: expected a whole number",
            ),
            (json!({"policy": 5}), "ai.prime.rlm/runtime-v1: policy: expected an object"),
            (
                json!({"kernel_env": {"A=B": "c"}}),
                "ai.prime.rlm/runtime-v1: kernel_env: `A=B` cannot be a variable",
            ),
            (
                json!({"kernel_env": {"RLM_READY": "1"}}),
                "ai.prime.rlm/runtime-v1: kernel_env: `RLM_READY` cannot be a variable",
            ),
            (
                json!({"provider": {"headers": "x"}}),
                "ai.prime.rlm/runtime-v1: provider.headers: expected an object",
            ),
        ] {
            assert_eq!(Contract::read(&object).unwrap_err(), error);
        }
    }
}
