//! Tools that a model calls in its conversation.

use std::sync::Arc;
use std::time::Instant;

use jsonschema::Validator;
use rlm_core::pickle::{Dict, Limits, Value};
use rlm_core::root_tool::{Call, MAX_BODY_BYTES, Reply, ToolResult};
use serde_json::{Map, Value as Json, json};
use tokio::time::timeout_at;

use super::error::SubLlmError;
use super::forms::{arguments, tool_named};
use super::message::call_arguments;
use super::wire::new_call_id;
use crate::tool::RootTool;

/// The tools that a model may call in its conversation.
#[derive(Debug)]
pub struct ChatTools {
    tools: Vec<(Arc<dyn RootTool>, Validator)>,
    definitions: Json,
}

impl ChatTools {
    /// Compiles the schemas of these tools.
    ///
    /// # Errors
    /// [`SubLlmError::Schema`].
    pub fn new(tools: &[Arc<dyn RootTool>]) -> Result<Self, SubLlmError> {
        let definition = |tool: &Arc<dyn RootTool>| {
            let (name, description) = (tool.name(), tool.description());
            json!({"type": "function", "function": {
                "name": name, "description": description, "parameters": tool.parameters(),
            }})
        };
        let definitions = tools.iter().map(definition).collect();
        let with_validator = |tool: &Arc<dyn RootTool>| match jsonschema::validator_for(tool.parameters()) {
            Ok(validator) => Ok((Arc::clone(tool), validator)),
            Err(error) => {
                Err(SubLlmError::Schema { tool: tool.name().to_owned(), reason: error.to_string() })
            }
        };
        Ok(Self { tools: tools.iter().map(with_validator).collect::<Result<_, _>>()?, definitions })
    }

    /// True if there are no tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The definitions in a request: a JSON list.
    #[must_use]
    pub fn definitions(&self) -> &Json {
        &self.definitions
    }

    /// Runs calls one after another, and returns the messages that answer them. A failed call is answered with its
    /// error.
    pub(super) async fn run(&self, calls: &[Json], deadline: Instant) -> Vec<Json> {
        let mut messages = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            let content =
                self.call_listed(call, deadline).await.unwrap_or_else(|error| format!("Error: {error}"));
            let id = call["id"].as_str().map_or_else(|| new_call_id(0, at), str::to_owned);
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
        }
        messages
    }

    /// Runs one call in OpenAI's form, and returns the text for the model.
    async fn call_listed(&self, call: &Json, deadline: Instant) -> Result<String, String> {
        let written = call.pointer("/function/name").and_then(Json::as_str).unwrap_or_default();
        let names: Vec<_> = self.tools.iter().map(|(tool, _)| tool.name()).collect();
        let Some(name) = tool_named(written, &names) else {
            return Err(format!("unknown tool {written:?}; the tools are {}", names.join(", ")));
        };
        let arguments =
            arguments(&call_arguments(call)).map_err(|fault| format!("the arguments are {fault}"))?;
        self.call(name, &arguments, deadline).await
    }

    /// Runs one call, and returns the text for the model.
    ///
    /// # Errors
    /// A sentence for the model.
    pub async fn call(
        &self,
        name: &str,
        arguments: &Map<String, Json>,
        deadline: Instant,
    ) -> Result<String, String> {
        let Some((tool, validator)) = self.tools.iter().find(|(tool, _)| tool.name() == name) else {
            return Err(format!("unknown tool {name:?}"));
        };
        let written = serde_json::to_vec(arguments).expect("JSON can be written");
        let arguments = Value::from_json_text(&written, &Limits::default())
            .map_err(|error| format!("the arguments are not JSON: {error}"))?;
        let json = arguments.to_json(MAX_BODY_BYTES).map_err(|error| format!("the arguments: {error}"))?;
        validator.validate(&json).map_err(|error| error.to_string())?;
        let call = Call { tool: name.to_owned(), args: Vec::new(), kwargs: kwargs(arguments)? };
        match timeout_at(deadline.into(), tool.call(call, deadline)).await {
            Ok(Ok(reply)) => text(&reply),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the time limit was reached".to_owned()),
        }
    }
}

fn kwargs(arguments: Value) -> Result<Dict, String> {
    match arguments {
        Value::Dict(dict) => Ok(Arc::unwrap_or_clone(dict)),
        other => Err(format!("the arguments must be an object, not {}", other.type_name())),
    }
}

/// A result as text for a model: a str unchanged, other values as JSON, or as Python's `repr` if JSON cannot hold them.
fn text(reply: &Reply) -> Result<String, String> {
    match &reply.result {
        ToolResult::Repr(repr) => Ok(repr.clone()),
        ToolResult::Value(Value::Str(text)) => Ok(text.to_string()),
        ToolResult::Value(value) => match value.to_json_text(MAX_BODY_BYTES) {
            Ok(json) => Ok(String::from_utf8_lossy(&json).into_owned()),
            Err(_) => value.repr(MAX_BODY_BYTES).map_err(|error| error.to_string()),
        },
    }
}
