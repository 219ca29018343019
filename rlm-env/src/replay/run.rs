//! Running a past session again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rlm_core::env;
use rlm_core::error::with_causes;
use rlm_core::protocol::{Outcome, Response};
use rlm_core::root_tool::SHOW;
use rlm_rootd::nav::{NAV_TOOLS, Navigation, NavigationError};
use rlm_rootd::{DefinitionError, Tool};
use tokio_util::sync::CancellationToken;

use super::children;
use super::compare::{self, ComparedCall, Difference, Directories};
use super::past::{PastCall, PastSession, Task};
use super::recording::{Answers, RecordedTool, Recorder, Recording, answering_tool, missing_tool};
use crate::callbacks::{InterceptorError, RootTools, RootToolsError};
use crate::endpoint::host_variables;
use crate::files::HostDir;
use crate::rollout::images::{Shown, show_tool};
use crate::session::{Call, Session, SessionConfig, SessionError};
use crate::terms::LeftOut;
use crate::workspace::{Context, ContextFilter, CopyLimits, Workspace};

/// The id of the rollout at the endpoint and the name of its directory.
const ID: &str = "replay";

/// Least default time limit of a call.
const MIN_LIMIT: Duration = Duration::from_secs(120);

/// Default time limit of a call, as a multiple of its original time.
const TIMES: u32 = 10;

/// Longest plausible time of a call; longer ones in a source are ignored.
const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Shortest time after which a call that was stopped is stopped again.
const MIN_STOP: Duration = Duration::from_millis(50);

/// Largest context that is copied, in bytes.
const MAX_CONTEXT_BYTES: u64 = 1_000_000_000;

/// The configuration of a replay.
#[derive(Debug)]
pub struct ReplayConfig {
    /// The worker program of the session's language.
    pub worker: PathBuf,
    /// The host's environment. The worker gets the part that [`env::for_workers`] lets through.
    pub env: Vec<(OsString, OsString)>,
    /// The directory for private directories.
    pub dir: PathBuf,
    /// The session's working directory.
    pub workdir: Workdir,
    /// Files that copies of a context's directories leave out.
    pub context_filter: ContextFilter,
    /// The root tools.
    pub tools: Tools,
    /// Time limit of a call. None: 120 s, or ten times the original time if that is more.
    pub timeout: Option<Duration>,
    /// Bound on the output returned per stream, in bytes. None: the worker's default.
    pub max_output_bytes: Option<usize>,
}

/// A session's working directory.
#[derive(Clone, Debug, PartialEq)]
pub enum Workdir {
    /// A fresh directory with this context.
    Fresh(Context),
    /// An existing directory.
    Root(PathBuf),
}

/// The source of replies to root tools.
#[derive(Debug)]
pub enum Tools {
    /// The tools themselves.
    Live {
        /// The tools, with [`rlm_rootd::LlmBatch`] if models are to be called.
        tools: Vec<Tool>,
        /// Records their replies.
        recorder: Option<Arc<Recorder>>,
    },
    /// A recording. Calls that are not in it are refused.
    Recording(Recording),
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayResult<'a> {
    /// The calls in order.
    pub calls: Vec<ComparedCall<'a>>,
    /// Differences in the last answer, if the source has one only for the whole session.
    pub answer: Vec<Difference>,
    /// Files that the copy of the context left out, by reason.
    pub left_out: Vec<LeftOut>,
}

impl ReplayResult<'_> {
    /// True if every call was run again and nothing differs.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        let is_equal = |call: &ComparedCall<'_>| call.differences.is_empty() && call.skipped.is_none();
        self.answer.is_empty() && self.calls.iter().all(is_equal)
    }
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The directory for private directories cannot be used.
    #[error("cannot use {}", path.display())]
    Dir {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The working directory cannot be made, for example because the context cannot be copied.
    #[error("cannot make the working directory: {0}")]
    Context(String),
    /// A root tool is invalid.
    #[error(transparent)]
    Tool(#[from] DefinitionError),
    /// The root tools cannot be registered.
    #[error(transparent)]
    RootTools(#[from] RootToolsError),
    /// The tools of [`rlm_rootd::nav`] cannot be made.
    #[error("cannot make the navigation tools for the working directory")]
    Navigation(#[source] NavigationError),
    /// The session cannot be started.
    #[error("cannot start the session")]
    Start(#[source] SessionError),
    /// The worker died, or broke the protocol.
    #[error("call {call}: the session failed")]
    Session {
        /// The number of the call.
        call: usize,
        /// The error.
        #[source]
        source: InterceptorError,
    },
}

/// Runs the calls of a past session in a fresh one, and compares. `on_call` gets each call when it has ended.
///
/// A call that was stopped is stopped again after its original time, and its output is not compared.
///
/// Dropping the future ends the session and removes its directory.
///
/// # Errors
/// [`ReplayError`]; nothing is left behind.
pub async fn replay<'a>(
    past: &'a PastSession,
    config: ReplayConfig,
    mut on_call: impl FnMut(&ComparedCall<'a>),
) -> Result<ReplayResult<'a>, ReplayError> {
    let private = HostDir::create(&config.dir)
        .map_err(|source| ReplayError::Dir { path: config.dir.clone(), source })?;
    let workspace =
        Workspace::create(&private, ID, None).map_err(|error| ReplayError::Context(with_causes(&error)))?;
    let (context, root) = match config.workdir {
        Workdir::Fresh(context) => (context, None),
        Workdir::Root(root) => (Context::Nothing, Some(root)),
    };
    let files = workspace
        .fill(
            context,
            config.context_filter,
            CopyLimits::of_bytes(MAX_CONTEXT_BYTES),
            CancellationToken::new(),
        )
        .await
        .map_err(|error| ReplayError::Context(with_causes(&error)))?;
    let fs_root = root.unwrap_or_else(|| workspace.fs_path().to_owned());
    let tools = tools(past, config.tools, &fs_root)?;
    let tools = RootTools::start(tools, past.callbacks, past.language, Arc::default())?;
    let transcript = workspace
        .transcript(false)
        .map_err(|error| ReplayError::Context(format!("cannot begin the transcript: {error}")))?;
    let mut variables = host_variables(&config.env);
    variables.extend(tools.variables());
    // Empty: no model takes part.
    variables.push((env::MESSAGES.into(), transcript.path().into()));
    if let Some(has_final_functions) = past.has_final_functions {
        env::set(&mut variables, env::FINAL_FUNCTIONS, u8::from(has_final_functions).to_string());
    }
    let settings = SessionConfig {
        control_dir: Some(workspace.control_path().to_owned()),
        fs_metadata: past.fs_metadata.clone().unwrap_or_else(|| files.to_json()),
        env: variables,
        max_output_bytes: config.max_output_bytes,
        ..SessionConfig::new(config.worker, &fs_root)
    };
    let session = Session::start(settings).await.map_err(ReplayError::Start)?;
    let mut rerun = Rerun {
        session,
        tools,
        timeout: config.timeout,
        directories: Directories {
            then: past.fs_root.as_ref().map(|root| root.to_string_lossy().into_owned()),
            now: real(&fs_root),
        },
        last: None,
    };
    let mut calls = Vec::with_capacity(past.calls.len());
    for call in &past.calls {
        let compared =
            rerun.call(call).await.map_err(|source| ReplayError::Session { call: call.number, source })?;
        on_call(&compared);
        calls.push(compared);
    }
    let Rerun { session, tools, directories, last, .. } = rerun;
    // All calls have been compared; the worker's exit changes nothing.
    if let Err(error) = session.close().await {
        tracing::debug!(%error, "the worker did not end well");
    }
    drop(tools);
    let removing =
        tokio::task::spawn_blocking(move || workspace.remove().and_then(|()| private.remove())).await;
    if let Ok(Err(error)) = removing {
        tracing::warn!(%error, "the directory of a replay is left behind");
    }
    let is_told_by_calls = calls.iter().any(|compared| compared.call.answer().is_some());
    let answer = match (&past.answer, last) {
        (Some(was), Some(last)) if !is_told_by_calls => compare::of_answer(was, &last.answer, &directories),
        _ => Vec::new(),
    };
    Ok(ReplayResult { calls, answer, left_out: files.left_out().to_vec() })
}

/// The path of a directory as programs in it see it.
fn real(dir: &Path) -> String {
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned()).to_string_lossy().into_owned()
}

/// A session that repeats the calls of another.
struct Rerun {
    session: Session,
    tools: RootTools,
    timeout: Option<Duration>,
    directories: Directories,
    /// The latest response.
    last: Option<Response>,
}

impl Rerun {
    async fn call<'a>(&mut self, call: &'a PastCall) -> Result<ComparedCall<'a>, InterceptorError> {
        if call.is_first {
            self.session.restart().await?;
        }
        let Some(was) = call.response() else {
            return Ok(ComparedCall { call, differences: Vec::new(), skipped: call.fault() });
        };
        let response = match &call.task {
            Task::Reset => self.session.reset().await?,
            Task::Set { variables, .. } => self.session.set(variables.clone()).await?,
            Task::Run(code) => {
                let took = Duration::try_from_secs_f64(was.execution_time).unwrap_or_default().min(MAX_TIME);
                let stop = took.max(MIN_STOP);
                let limit = match was.outcome {
                    Outcome::TimedOut => self.timeout.unwrap_or(stop),
                    _ => self.timeout.unwrap_or_else(|| took.saturating_mul(TIMES).max(MIN_LIMIT)),
                };
                let source = call.source.clone();
                let run = Call { source, timeout: Some(limit), ..Call::from(code.as_str()) };
                let stopped = async {
                    match was.outcome {
                        Outcome::Interrupted => tokio::time::sleep(stop).await,
                        _ => std::future::pending().await,
                    }
                };
                self.tools.execute_until(&mut self.session, run, stopped).await?
            }
        };
        let differences = compare::differences(was, &call.known, &response, &self.directories);
        self.last = Some(response);
        Ok(ComparedCall { call, differences, skipped: None })
    }
}

/// The root tools of the session.
fn tools(past: &PastSession, tools: Tools, fs_root: &Path) -> Result<Vec<Tool>, ReplayError> {
    let mut there: Vec<Tool> = match tools {
        Tools::Live { tools, recorder } => {
            let root: Arc<Path> = PathBuf::from(real(fs_root)).into();
            let tools = tools
                .into_iter()
                .chain(navigation(past, fs_root)?)
                .chain(children::tools(past, fs_root))
                .chain(show(past, fs_root));
            match recorder {
                None => tools.collect(),
                Some(recorder) => tools
                    .map(|tool| {
                        Tool::new(RecordedTool { tool, recorder: recorder.clone(), root: root.clone() })
                    })
                    .collect::<Result<_, _>>()?,
            }
        }
        Tools::Recording(recording) => {
            let mut names: Vec<String> = recording.tools().into_iter().map(str::to_owned).collect();
            names.extend(
                past.root_tools.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>(),
            );
            let answers = Arc::new(Answers::new(recording, Path::new(&real(fs_root))));
            names.into_iter().map(|name| answering_tool(name, answers.clone())).collect::<Result<_, _>>()?
        }
    };
    for name in &past.root_tools {
        if !there.iter().any(|tool| tool.name() == name) {
            there.push(missing_tool(name.clone())?);
        }
    }
    Ok(there)
}

/// The tool that shows images, if the session had it: they are checked, and nobody sees them.
fn show(past: &PastSession, fs_root: &Path) -> Option<Tool> {
    let has_it = past.root_tools.iter().any(|name| name == SHOW);
    has_it.then(|| show_tool(vec![fs_root.to_owned()], Shown::default()))
}

/// The tools of [`rlm_rootd::nav`] that the session had.
fn navigation(past: &PastSession, fs_root: &Path) -> Result<Vec<Tool>, ReplayError> {
    if !past.root_tools.iter().any(|name| NAV_TOOLS.contains(&name.as_str())) {
        return Ok(Vec::new());
    }
    let mut tools = Navigation::new(fs_root).map_err(ReplayError::Navigation)?.tools();
    tools.retain(|tool| past.root_tools.iter().any(|name| name == tool.name()));
    Ok(tools)
}
