//! The file that declares tools which are programs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::spawner::Spawner;
use super::tool::{MAX_OUTPUT_BYTES, OutputFormat, ProgramTool, Shared};
use crate::offload::LargeWork;
use crate::rollout::MAX_TOOL_TIME_LIMIT;
use crate::tool::Tool;

/// Variables that every program gets if they are set.
const ENVIRONMENT: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// An invalid file of tools.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsFileError {
    /// The text is not TOML of this shape.
    #[error("{0}")]
    Toml(String),
    /// An invalid tool.
    #[error("tool {tool}: {reason}")]
    Tool {
        /// Its name in quotes, or its place from 1.
        tool: String,
        /// The fault, with its key.
        reason: String,
    },
    /// The thread that starts programs cannot be started.
    #[error("no programs can be started")]
    Spawner(#[source] std::io::Error),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tool: Vec<toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declaration {
    name: String,
    description: String,
    command: Vec<String>,
    /// Seconds.
    timeout: Option<f64>,
    #[serde(default)]
    output: OutputFormat,
    max_output_bytes: Option<usize>,
    #[serde(default)]
    env: Vec<String>,
    parameters: Option<Json>,
}

/// Reads tools from the text of a TOML file in `dir`, where they run. They get their variables from `environment`, and the
/// limit of open files that this process has now.
///
/// # Errors
/// [`ToolsFileError`] names tool and key.
pub fn load_tools(
    text: &str,
    dir: &Path,
    environment: &BTreeMap<OsString, OsString>,
) -> Result<Vec<Tool>, ToolsFileError> {
    let file: File = toml::from_str(text).map_err(|error| ToolsFileError::Toml(error.to_string()))?;
    let shared = Arc::new(Shared {
        spawner: Spawner::start().map_err(ToolsFileError::Spawner)?,
        large_work: LargeWork::new(),
    });
    let mut tools: Vec<Tool> = Vec::with_capacity(file.tool.len());
    for (at, table) in file.tool.into_iter().enumerate() {
        let name = table.get("name").and_then(toml::Value::as_str);
        let label = name.map_or_else(|| (at + 1).to_string(), |name| format!("'{name}'"));
        let fail = |reason: String| ToolsFileError::Tool { tool: label.clone(), reason };
        let declaration = Declaration::deserialize(toml::Value::Table(table))
            .map_err(|error| fail(error.to_string().trim_end().to_owned()))?;
        let tool = program_tool(declaration, dir, environment, &shared).map_err(fail)?;
        let tool = Tool::new(tool).map_err(|error| fail(error.reason))?;
        if tools.iter().any(|other| other.name() == tool.name()) {
            return Err(fail("the name is taken by another tool".to_owned()));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn program_tool(
    declaration: Declaration,
    dir: &Path,
    environment: &BTreeMap<OsString, OsString>,
    shared: &Arc<Shared>,
) -> Result<ProgramTool, String> {
    let Some((program, arguments)) = declaration.command.split_first() else {
        return Err("command is empty".to_owned());
    };
    let path = environment.get(OsStr::new("PATH"));
    let program = find(program, dir, path).ok_or_else(|| match program.contains('/') {
        true => format!("command: {program} is not a program"),
        false => format!("command: no program {program} on PATH"),
    })?;
    let mut env = BTreeMap::new();
    for name in ENVIRONMENT {
        if let Some((name, value)) = environment.get_key_value(OsStr::new(name)) {
            env.insert(name.clone(), value.clone());
        }
    }
    for name in &declaration.env {
        let Some((name, value)) = environment.get_key_value(OsStr::new(name)) else {
            return Err(format!("env: the variable {name} is not set"));
        };
        env.insert(name.clone(), value.clone());
    }
    Ok(ProgramTool {
        name: declaration.name,
        description: declaration.description,
        parameters: declaration.parameters.unwrap_or_else(|| json!({"type": "object"})),
        program,
        arguments: arguments.to_vec(),
        dir: dir.to_owned(),
        env,
        time_limit: declaration.timeout.map(seconds).transpose()?,
        format: declaration.output,
        max_output_bytes: declaration.max_output_bytes.unwrap_or(MAX_OUTPUT_BYTES),
        shared: shared.clone(),
    })
}

fn seconds(seconds: f64) -> Result<Duration, String> {
    let limit = Duration::try_from_secs_f64(seconds).ok();
    limit.filter(|limit| !limit.is_zero() && *limit <= MAX_TOOL_TIME_LIMIT).ok_or_else(|| {
        format!("timeout: {seconds} is not above 0 and at most {} s", MAX_TOOL_TIME_LIMIT.as_secs())
    })
}

/// A path with a slash is relative to the file's directory; a name is looked up on PATH.
fn find(program: &str, dir: &Path, path: Option<&OsString>) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(dir.join(program)).filter(is_program);
    }
    std::env::split_paths(path?).map(|dir| dir.join(program)).find(is_program)
}
