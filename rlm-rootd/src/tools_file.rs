//! The file that declares tools: programs, and functions of another program.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::callback::{CallbackServer, CallbackTool};
use crate::offload::LargeWork;
use crate::program::{
    MAX_OUTPUT_BYTES, OutputFormat, ProgramTool, Shared, Spawner, Variables, find, usual_variables,
};
use crate::rollout::MAX_TOOL_TIME_LIMIT;
use crate::tool::Tool;

/// An invalid file of tools.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsFileError {
    /// The text is not TOML, or JSON, of this shape.
    #[error("{0}")]
    Syntax(String),
    /// An invalid tool.
    #[error("tool {tool}: {reason}")]
    Tool {
        /// The tool's name in quotes, or its place from 1.
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
    tool: Vec<Json>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declaration {
    name: String,
    description: String,
    /// Seconds.
    timeout: Option<f64>,
    parameters: Option<Json>,
    /// A program.
    command: Option<Vec<String>>,
    output: Option<OutputFormat>,
    max_output_bytes: Option<usize>,
    env: Option<Vec<String>>,
    /// The server of the program that has the tool.
    url: Option<String>,
    /// The variable that holds the server's secret.
    secret_env: Option<String>,
}

/// Reads tools from the text of a file: TOML, or JSON of the same shape. Those that are programs run in `dir`. They get their
/// variables from `environment`, and the limit of open files that this process has now.
///
/// # Errors
/// [`ToolsFileError`] names tool and key.
pub fn load_tools(
    text: &str,
    dir: &Path,
    environment: &BTreeMap<OsString, OsString>,
) -> Result<Vec<Tool>, ToolsFileError> {
    let file: File = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| ToolsFileError::Syntax(error.to_string()))?,
        false => toml::from_str(text).map_err(|error| ToolsFileError::Syntax(error.to_string()))?,
    };
    let mut sources = Sources {
        dir,
        environment,
        programs: Arc::new(Shared {
            spawner: Spawner::start().map_err(ToolsFileError::Spawner)?,
            large_work: LargeWork::new(),
        }),
        servers: BTreeMap::new(),
    };
    let mut tools: Vec<Tool> = Vec::with_capacity(file.tool.len());
    for (at, table) in file.tool.into_iter().enumerate() {
        let name = table.get("name").and_then(Json::as_str);
        let label = name.map_or_else(|| (at + 1).to_string(), |name| format!("'{name}'"));
        let fail = |reason: String| ToolsFileError::Tool { tool: label.clone(), reason };
        let declaration = Declaration::deserialize(table).map_err(|error| fail(error.to_string()))?;
        let tool = sources.tool(declaration).map_err(fail)?;
        if tools.iter().any(|other| other.name() == tool.name()) {
            return Err(fail("the name is taken by another tool".to_owned()));
        }
        tools.push(tool);
    }
    Ok(tools)
}

/// The parts from which tools of a file are made.
struct Sources<'a> {
    dir: &'a Path,
    environment: &'a BTreeMap<OsString, OsString>,
    programs: Arc<Shared>,
    /// The servers by URL and variable of the secret.
    servers: BTreeMap<(String, Option<String>), Arc<CallbackServer>>,
}

impl Sources<'_> {
    fn tool(&mut self, declaration: Declaration) -> Result<Tool, String> {
        let time_limit = declaration.timeout.map(seconds).transpose()?;
        let parameters = declaration.parameters.unwrap_or_else(|| json!({"type": "object"}));
        let (name, description) = (declaration.name, declaration.description);
        let tool = match (declaration.command, declaration.url) {
            (Some(command), None) => {
                if declaration.secret_env.is_some() {
                    return Err("secret_env: it belongs to a tool with `url`".to_owned());
                }
                let (program, arguments) = self.program(&command)?;
                Tool::new(ProgramTool {
                    name,
                    description,
                    parameters,
                    program,
                    arguments,
                    dir: self.dir.to_owned(),
                    env: self.variables(&declaration.env.unwrap_or_default())?,
                    time_limit,
                    format: declaration.output.unwrap_or_default(),
                    max_output_bytes: declaration.max_output_bytes.unwrap_or(MAX_OUTPUT_BYTES),
                    shared: self.programs.clone(),
                })
            }
            (None, Some(url)) => {
                let of_programs = [
                    ("output", declaration.output.is_some()),
                    ("max_output_bytes", declaration.max_output_bytes.is_some()),
                    ("env", declaration.env.is_some()),
                ];
                if let Some((key, _)) = of_programs.into_iter().find(|(_, is_there)| *is_there) {
                    return Err(format!("{key}: it belongs to a tool with `command`"));
                }
                let server = self.server(url, declaration.secret_env)?;
                let large_work = self.programs.large_work.clone();
                Tool::new(CallbackTool { name, description, parameters, time_limit, server, large_work })
            }
            (None, None) => return Err("expected `command`, or `url` of the program that has it".to_owned()),
            (Some(_), Some(_)) => return Err("expected `command` or `url`, not both".to_owned()),
        };
        tool.map_err(|error| error.reason)
    }

    /// The path of a command's program, and its arguments.
    fn program(&self, command: &[String]) -> Result<(PathBuf, Vec<String>), String> {
        let Some((program, arguments)) = command.split_first() else {
            return Err("command is empty".to_owned());
        };
        let program =
            find(program, self.dir, self.environment).map_err(|error| format!("command: {error}"))?;
        Ok((program, arguments.to_vec()))
    }

    /// The variables of a program: the usual ones, and these.
    fn variables(&self, names: &[String]) -> Result<Variables, String> {
        let mut env = usual_variables(self.environment);
        for name in names {
            let Some((name, value)) = self.environment.get_key_value(OsStr::new(name)) else {
                return Err(format!("env: the variable {name} is not set"));
            };
            env.insert(name.clone(), value.clone());
        }
        Ok(env)
    }

    /// The server at a URL, once for all tools that it has.
    fn server(&mut self, url: String, secret_env: Option<String>) -> Result<Arc<CallbackServer>, String> {
        let key = (url, secret_env);
        if let Some(server) = self.servers.get(&key) {
            return Ok(server.clone());
        }
        let secret = match &key.1 {
            None => None,
            Some(name) => {
                let value = self.environment.get(OsStr::new(name)).and_then(|value| value.to_str());
                Some(value.ok_or_else(|| format!("secret_env: the variable {name} is not set"))?)
            }
        };
        let server = CallbackServer::new(&key.0, secret).map_err(|reason| format!("url: {reason}"))?;
        Ok(self.servers.entry(key).or_insert(Arc::new(server)).clone())
    }
}

fn seconds(seconds: f64) -> Result<Duration, String> {
    let limit = Duration::try_from_secs_f64(seconds).ok();
    limit.filter(|limit| !limit.is_zero() && *limit <= MAX_TOOL_TIME_LIMIT).ok_or_else(|| {
        format!("timeout: {seconds} is not above 0 and at most {} s", MAX_TOOL_TIME_LIMIT.as_secs())
    })
}
