//! A program as a root tool: its input, its output, its errors.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_core::pickle::{Limits, Value};
use rlm_core::root_tool::{Call, MAX_BODY_BYTES, Reply};
use serde::Deserialize;
use serde_json::Value as Json;

use super::run::{ProgramOutput, how_it_ended, run};
use super::spawner::Spawner;
use crate::offload::{LARGE_BYTES, LargeWork, value_bytes};
use crate::signature;
use crate::tool::{RootTool, ToolError, ToolFuture};

/// Most bytes that a program may write to standard output by default.
pub(crate) const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// The format of a program's standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OutputFormat {
    /// A str; bytes that are not UTF-8 become replacement characters.
    #[default]
    Text,
    /// One JSON value.
    Json,
}

/// The parts that all programs share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) spawner: Spawner,
    pub(crate) large_work: LargeWork,
}

/// A program as a root tool.
#[derive(Debug)]
pub(crate) struct ProgramTool {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) parameters: Json,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) dir: PathBuf,
    pub(crate) env: BTreeMap<OsString, OsString>,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) format: OutputFormat,
    pub(crate) max_output_bytes: usize,
    pub(crate) shared: Arc<Shared>,
}

impl RootTool for ProgramTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> &Json {
        &self.parameters
    }

    fn call(&self, call: Call, _deadline: Instant) -> ToolFuture<'_> {
        Box::pin(self.run(call))
    }
}

impl ProgramTool {
    async fn run(&self, call: Call) -> Result<Reply, ToolError> {
        let input = self.input(call).await?;
        let running = run(&self.shared.spawner, self.command(), input, self.max_output_bytes);
        let ran = match self.time_limit {
            None => running.await,
            Some(limit) => tokio::time::timeout(limit, running)
                .await
                .map_err(|_late| self.failed(format!("timed out after {} s", limit.as_secs_f64())))?,
        };
        let exit = ran.map_err(|error| self.failed(error.to_string()))?;
        if !exit.status.success() {
            return Err(self.failed(ending(&exit)));
        }
        self.reply(exit.output).await
    }

    /// The document that the program reads: an object of the arguments by name where the schema names them,
    /// and otherwise `{"args": […], "kwargs": {…}}`.
    async fn input(&self, call: Call) -> Result<Vec<u8>, ToolError> {
        let bytes =
            value_bytes(call.args.iter().chain(call.kwargs.iter().map(|(_, value)| value)), LARGE_BYTES);
        let names = signature::names(&self.parameters);
        let tool = self.name.clone();
        let work = move || match names {
            Some(names) => named(&tool, &names, &call),
            None => unnamed(&tool, call),
        };
        let written = self.shared.large_work.run(bytes, work).await;
        written.map_err(|error| ToolError::Failed(error.to_string()))?
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.dir).env_clear().envs(&self.env);
        command
    }

    async fn reply(&self, output: Vec<u8>) -> Result<Reply, ToolError> {
        let (format, bytes) = (self.format, output.len());
        let work = move || match format {
            OutputFormat::Text => Ok(Reply::of(match String::from_utf8(output) {
                Ok(text) => text,
                Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            })),
            OutputFormat::Json => {
                let value = Value::from_json_text(&output, &Limits::default());
                value.map(Reply::of).map_err(|error| error.to_string())
            }
        };
        let read = self.shared.large_work.run(bytes, work).await;
        let read = read.map_err(|error| ToolError::Failed(error.to_string()))?;
        read.map_err(|reason| self.failed(format!("did not print JSON: {reason}")))
    }

    fn failed(&self, what: impl AsRef<str>) -> ToolError {
        ToolError::Failed(format!("{} {}", self.name, what.as_ref()))
    }
}

fn named(tool: &str, names: &[String], call: &Call) -> Result<Vec<u8>, ToolError> {
    document(tool, signature::named(names, call))
}

fn unnamed(tool: &str, call: Call) -> Result<Vec<u8>, ToolError> {
    let (args, kwargs) = (Value::List(Arc::new(call.args)), Value::from(call.kwargs));
    document(tool, [("args", &args), ("kwargs", &kwargs)].into_iter())
}

/// The JSON text of an object of arguments.
fn document<'a>(
    tool: &str,
    arguments: impl Iterator<Item = (&'a str, &'a Value)>,
) -> Result<Vec<u8>, ToolError> {
    let mut text = vec![b'{'];
    for (name, value) in arguments {
        if text.len() > 1 {
            text.push(b',');
        }
        serde_json::to_writer(&mut text, name).expect("a str can be written to a Vec");
        text.push(b':');
        value
            .push_json_text(&mut text, MAX_BODY_BYTES)
            .map_err(|error| ToolError::Arguments(signature::not_json(tool, name, error)))?;
    }
    text.push(b'}');
    Ok(text)
}

/// The exit status of a failed program, and the end of its standard error.
fn ending(exit: &ProgramOutput) -> String {
    let how = how_it_ended(exit.status);
    match exit.error_tail.trim() {
        "" => how,
        said => format!("{how}: {said}"),
    }
}
