//! Navigation tools over real directories.

mod hostile;
mod http;
mod languages;
mod messages;
mod patterns;
mod program;
mod properties;
mod tools;
mod trees;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::{Call, ToolResult};
use rlm_rootd::nav::Navigation;
use rlm_rootd::{Tool, ToolError};
use serde_json::{Value as Json, json};

/// A context directory below a directory of its own, and the tools over it.
struct Nav {
    temporary: tempfile::TempDir,
    tools: Vec<Tool>,
}

impl Nav {
    /// A context of these files.
    fn of(files: &[(&str, &str)]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("context");
        fs::create_dir(&root).unwrap();
        for (path, text) in files {
            write(&root.join(path), text);
        }
        let tools = Navigation::new(root).unwrap().tools();
        Self { temporary, tools }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.temporary.path().join("context").join(path)
    }

    /// The result of a call; `args` is a list of arguments by position, or an object of arguments by name.
    async fn call(&self, tool: &str, args: Json) -> Result<Json, String> {
        call(&self.tools, tool, args).await
    }

    async fn ok(&self, tool: &str, args: Json) -> Json {
        self.call(tool, args).await.unwrap()
    }

    async fn error(&self, tool: &str, args: Json) -> String {
        self.call(tool, args).await.unwrap_err()
    }
}

fn write(path: &Path, text: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

async fn call(tools: &[Tool], name: &str, args: Json) -> Result<Json, String> {
    call_until(tools, name, args, Instant::now() + Duration::from_secs(60)).await
}

async fn call_until(tools: &[Tool], name: &str, args: Json, deadline: Instant) -> Result<Json, String> {
    let value = |json: &Json| Value::from_json(json).unwrap();
    let by_name = args.as_object().into_iter().flatten();
    let kwargs =
        Dict::from_pairs(by_name.map(|(name, json)| (Value::from(name.as_str()), value(json)))).unwrap();
    let args = args.as_array().into_iter().flatten().map(value).collect();
    let tool = tools.iter().find(|tool| tool.name() == name).unwrap();
    let reply = match tool.run(Call { tool: name.to_owned(), args, kwargs }, deadline).await {
        Ok(reply) => reply,
        Err(ToolError::Arguments(text) | ToolError::Failed(text)) => return Err(text),
    };
    assert_eq!(reply.print_lines, [""; 0]);
    match reply.result {
        ToolResult::Value(value) => Ok(value.to_json(64 << 20).unwrap()),
        ToolResult::Repr(text) => panic!("{text}"),
    }
}

/// One field of each entry of a list.
fn field(list: &Json, name: &str) -> Vec<Json> {
    list.as_array().unwrap().iter().map(|entry| entry[name].clone()).collect()
}
