//! Root tools: functions of the host that code in a session calls.
//!
//! ```
//! use rlm_env::root_tool::{Tool, Value};
//! use serde_json::json;
//!
//! let shout = Tool::from_fn(
//!     "shout",
//!     "Returns a text in capitals.",
//!     json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
//!     |call| match call.argument(0, "text") {
//!         Some(Value::Str(text)) => Ok(text.to_uppercase()),
//!         _ => Err("text must be a str".into()),
//!     },
//! )?;
//! assert_eq!(shout.name(), "shout");
//! # Ok::<(), rlm_env::root_tool::DefinitionError>(())
//! ```

#[doc(inline)]
pub use rlm_core::pickle::Value;
#[doc(inline)]
pub use rlm_core::root_tool::{Call, Reply};
#[doc(inline)]
pub use rlm_rootd::{
    DefinitionError, McpError, McpFileError, McpServer, McpServers, McpTransport, RootTool, Tool, ToolError,
    ToolFuture, ToolsFileError, load_mcp_servers, load_tools, nav::Navigation,
};
