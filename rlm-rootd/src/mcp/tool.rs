//! A tool of an MCP server as a root tool.

use std::sync::Arc;
use std::time::Instant;

use rlm_core::pickle::Value;
use rlm_core::root_tool::{Call, MAX_BODY_BYTES, Reply};
use serde_json::{Map, Value as Json, json};

use super::connection::Offered;
use super::server::Server;
use crate::signature;
use crate::tool::{DefinitionError, RootTool, Tool, ToolError, ToolFuture};

/// The root tool of a tool that a server offers. A schema that cannot be checked here is left to the server.
///
/// # Errors
/// [`DefinitionError`] if the properties of the schema are not an object.
pub(super) fn root_tool(server: &Arc<Server>, offered: &Arc<Offered>) -> Result<Tool, DefinitionError> {
    let of_schema = |parameters| {
        let name = name(&server.spec.name, &offered.name);
        Tool::new(McpTool { name, offered: offered.clone(), parameters, server: server.clone() })
    };
    of_schema(offered.parameters.clone()).or_else(|_| of_schema(names_alone(&offered.parameters)))
}

/// A tool of an MCP server.
#[derive(Debug)]
struct McpTool {
    /// The tool's name in sessions.
    name: String,
    offered: Arc<Offered>,
    parameters: Json,
    server: Arc<Server>,
}

impl McpTool {
    async fn run(&self, call: Call) -> Result<Reply, ToolError> {
        let arguments = self.arguments(&call)?;
        let value = self.server.call(&self.offered.name, arguments).await?;
        Ok(Reply::of(match &value {
            Value::Dict(fields) if self.offered.wraps_results => {
                fields.get("result").unwrap_or(&value).clone()
            }
            _ => value,
        }))
    }

    fn arguments(&self, call: &Call) -> Result<Map<String, Json>, ToolError> {
        let names = signature::names(&self.parameters).unwrap_or_default();
        if call.args.len() > names.len() {
            return Err(ToolError::Arguments(format!("{} takes its arguments by name alone", self.name)));
        }
        let json = signature::named(&names, call).map(|(name, value)| match value.to_json(MAX_BODY_BYTES) {
            Ok(json) => Ok((name.to_owned(), json)),
            Err(error) => Err(ToolError::Arguments(signature::not_json(&self.name, name, error))),
        });
        json.collect()
    }
}

impl RootTool for McpTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.offered.description
    }

    fn parameters(&self) -> &Json {
        &self.parameters
    }

    fn call(&self, call: Call, _deadline: Instant) -> ToolFuture<'_> {
        Box::pin(self.run(call))
    }
}

/// The name of a tool in sessions: an identifier in bash and Python. A server without a name adds none.
fn name(server: &str, tool: &str) -> String {
    let name = if server.is_empty() { tool.to_owned() } else { format!("{server}_{tool}") };
    let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    if name.starts_with(|first: char| first.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// The schema with nothing but the names and descriptions of its parameters.
fn names_alone(schema: &Json) -> Json {
    let properties = schema.get("properties").and_then(Json::as_object).into_iter().flatten();
    let properties = properties.map(|(name, property)| {
        let description = property.get("description").filter(|description| description.is_string());
        (name.clone(), description.map_or(json!({}), |description| json!({"description": description})))
    });
    json!({"type": "object", "properties": properties.collect::<Map<_, _>>(), "additionalProperties": true})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_identifiers() {
        assert_eq!(name("git", "log"), "git_log");
        assert_eq!(name("", "log"), "log");
        assert_eq!(name("my-files v2", "read.it"), "my_files_v2_read_it");
        assert_eq!(name("2fa", "code"), "_2fa_code");
        assert_eq!(name("é", "日"), "___");
    }

    #[test]
    fn a_schema_that_cannot_be_checked_keeps_its_names() {
        let schema = json!({"properties": {"a": {"pattern": "(?=x)", "description": "A."}, "b": {}}, "required": ["a"]});
        assert_eq!(
            names_alone(&schema),
            json!({"type": "object", "properties": {"a": {"description": "A."}, "b": {}}, "additionalProperties": true})
        );
    }
}
