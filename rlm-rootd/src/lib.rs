//! The endpoint on the host that code in a session calls back into.

pub mod tool;

pub use tool::{RootTool, ToolError, ToolFuture};
