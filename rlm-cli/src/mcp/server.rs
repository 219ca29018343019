//! The requests of a client, and their answers.
//!
//! As the protocol demands, a request for an unknown tool or resource is a protocol error. An error that a model can
//! correct, such as wrong arguments, is a result with `isError`, which models see.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use rlm_env::tool::{CallValue, ToolCall, ToolFailure, ToolFault, ToolReply, ToolResult};
use rlm_env::{ReplLanguage, RolloutResult};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult,
    ErrorCode, Implementation, JsonObject, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    MetaObject, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ask::Asker;
use super::files::{FileEntry, Files, ReadError};
use super::requests::Unreadable;
use super::sessions::{Limits, Opened, Sessions};
use super::tools::{self, AskArguments, CodeArguments, SessionArguments};
use super::uri;
use crate::lock::lock;
use crate::rollouts::{BatchProgress, Tally, left_out_words, reason};

/// Interval of progress notifications.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// The key of a call's facts in the `_meta` of its result.
const FACTS: &str = "rlm/call";

/// The key of a rollout's facts.
const ASK_FACTS: &str = "rlm/ask";

type Context = RequestContext<RoleServer>;

/// The offer of every server.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) tools: Vec<Tool>,
    pub(super) instructions: String,
    pub(super) versions: &'static [ProtocolVersion],
    pub(super) limits: Limits,
    pub(super) files: Files,
    /// None if no model is configured.
    pub(super) asker: Option<Arc<Asker>>,
}

/// A server for each client.
#[derive(Debug)]
pub(super) struct Servers {
    offer: Arc<Offer>,
    open: Mutex<Vec<Weak<Server>>>,
}

impl Servers {
    pub(super) fn new(offer: Offer) -> Self {
        Self { offer: Arc::new(offer), open: Mutex::default() }
    }

    /// A server for a new client. Its sessions end when it is dropped.
    pub(super) fn open(&self) -> Arc<Server> {
        let server = Arc::new(Server {
            offer: Arc::clone(&self.offer),
            sessions: Sessions::new(self.offer.limits.clone()),
            rollouts: TaskTracker::new(),
            stopping: CancellationToken::new(),
        });
        let mut open = lock(&self.open);
        open.retain(|server| server.strong_count() > 0);
        open.push(Arc::downgrade(&server));
        server
    }

    /// Ends all sessions and rollouts of all clients.
    pub(super) async fn close(&self) {
        let open = std::mem::take(&mut *lock(&self.open));
        let open: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
        join_all(open.iter().map(|server| server.close())).await;
    }
}

/// One client's server.
#[derive(Debug)]
pub(super) struct Server {
    offer: Arc<Offer>,
    sessions: Sessions,
    /// The rollouts, which outlive their cancelled calls until all that they made is removed.
    rollouts: TaskTracker,
    stopping: CancellationToken,
}

impl Server {
    /// Cancels all calls that run or wait.
    pub(super) fn stop_calls(&self) {
        self.stopping.cancel();
    }

    /// Ends all sessions and rollouts.
    pub(super) async fn close(&self) {
        self.stop_calls();
        self.rollouts.close();
        tokio::join!(self.sessions.close(), self.rollouts.wait());
    }

    /// Runs code in a session. If the client cancels, the code is interrupted.
    async fn run(
        &self,
        language: ReplLanguage,
        request: CallToolRequestParams,
        context: &Context,
    ) -> Result<CallToolResult, ErrorData> {
        let arguments = tools::arguments::<CodeArguments>(request.arguments);
        let opened = arguments
            .and_then(|arguments| Ok((self.sessions.open(language, &arguments.session)?, arguments)));
        let (Opened { tool, latest }, CodeArguments { code, timeout, .. }) = match opened {
            Ok(opened) => opened,
            Err(fault) => return Ok(failed(&self.sessions.failure(language, &fault))),
        };
        let limit = timeout.unwrap_or(self.offer.limits.timeout);
        latest.clear();
        let call = tool.call(ToolCall { code, timeout, ..ToolCall::default() });
        tokio::select! {
            biased;
            ToolReply { result, text, .. } = call => match &result {
                ToolResult::Ok(value) => Ok(answer(text).with_meta(Some(facts(value)?))),
                ToolResult::Failed(failure) => Ok(failed(failure)),
            },
            stopped = self.stopped(context) => Err(stopped),
            never = notify_progress(context, |seconds| {
                format!("{seconds:.0} s, of at most {} s once it runs{}", limit.as_secs_f64(), latest.words())
            }) => never,
        }
    }

    async fn reset(
        &self,
        request: CallToolRequestParams,
        context: &Context,
    ) -> Result<CallToolResult, ErrorData> {
        let (language, tool) = match self.named(request) {
            Ok(named) => named,
            Err(failure) => return Ok(failed(&failure)),
        };
        tokio::select! {
            biased;
            result = tool.reset() => Ok(told(result, |_| format!("[the {language} session was reset]"))),
            stopped = self.stopped(context) => Err(stopped),
        }
    }

    async fn script(&self, request: CallToolRequestParams) -> CallToolResult {
        match self.named(request) {
            Ok((_, tool)) => told(tool.script().await, |value| value.script),
            Err(failure) => failed(&failure),
        }
    }

    /// Runs a rollout. If the client cancels, the rollout ends.
    async fn ask(
        &self,
        asker: &Arc<Asker>,
        request: CallToolRequestParams,
        context: &Context,
    ) -> Result<CallToolResult, ErrorData> {
        let AskArguments { question, path } = match tools::arguments(request.arguments) {
            Ok(arguments) => arguments,
            Err(fault) => return Ok(failed(&self.sessions.failure(ReplLanguage::default(), &fault))),
        };
        let progress = Arc::new(BatchProgress::new(1, None));
        let cancelled = CancellationToken::new();
        let _on_drop = cancelled.clone().drop_guard();
        let (asker, counts) = (Arc::clone(asker), Arc::clone(&progress));
        let running = self.rollouts.spawn(async move { asker.ask(question, &path, counts, cancelled).await });
        tokio::select! {
            biased;
            ended = running => {
                let ended = ended.map_err(|_ends| ErrorData::internal_error("the server ends", None))?;
                Ok(ended.map_or_else(
                    |error| CallToolResult::error(vec![ContentBlock::text(format!("[error: {error:#}]"))]),
                    |result| asked(result, &progress.tally()),
                ))
            }
            stopped = self.stopped(context) => Err(stopped),
            never = notify_progress(context, |seconds| format!("{seconds:.0} s · {}", progress.tally().words())) => never,
        }
    }

    /// The session that the arguments name.
    fn named(
        &self,
        request: CallToolRequestParams,
    ) -> Result<(ReplLanguage, Arc<rlm_env::SessionTool>), ToolFailure> {
        let failure = |language, fault: ToolFault| self.sessions.failure(language, &fault);
        let arguments: SessionArguments =
            tools::arguments(request.arguments).map_err(|fault| failure(ReplLanguage::default(), fault))?;
        let language = arguments.language();
        let tool =
            self.sessions.find(language, &arguments.session).map_err(|fault| failure(language, fault))?;
        Ok((language, tool))
    }

    /// Completes when the client has cancelled the request or the server ends.
    async fn stopped(&self, context: &Context) -> ErrorData {
        tokio::select! {
            () = context.ct.cancelled() => ErrorData::internal_error("the call was cancelled", None),
            () = self.stopping.cancelled() => ErrorData::internal_error("the server ends", None),
        }
    }

    async fn list_files(&self, cursor: Option<String>) -> Result<ListResourcesResult, ErrorData> {
        let after = match cursor.as_deref().map(|cursor| self.last_file(cursor)) {
            None => None,
            Some(Some(after)) => Some(after),
            Some(None) => return Err(ErrorData::invalid_params("the cursor is not from this server", None)),
        };
        let mut resources = Vec::new();
        if after.is_none() {
            resources.extend(self.sessions.list().into_iter().map(|(language, session)| {
                let name = format!("{language} session {session} as a script");
                Resource::new(uri::of_script(language, &session), name).with_mime_type(script_type(language))
            }));
        }
        let files = self.offer.files.clone();
        let (page, has_more) = blocking(move || files.list(after.as_deref())).await?;
        let cursor = page.last().filter(|_| has_more).map(|last| self.uri(&last.path));
        resources.extend(page.into_iter().map(|FileEntry { path, bytes }| {
            let resource = Resource::new(self.uri(&path), path.to_string_lossy()).with_size(bytes);
            match mime_type(&path) {
                Some(mime_type) => resource.with_mime_type(mime_type),
                None => resource,
            }
        }));
        let mut list = ListResourcesResult::with_all_items(resources);
        list.next_cursor = cursor;
        Ok(list)
    }

    /// The last file of the page before. Its URI is the cursor.
    fn last_file(&self, cursor: &str) -> Option<PathBuf> {
        match uri::parse(cursor)? {
            uri::Resource::File(path) => path.strip_prefix(self.offer.files.root()).ok().map(Path::to_owned),
            uri::Resource::Script { .. } => None,
        }
    }

    fn uri(&self, path: &Path) -> String {
        uri::of_file(&self.offer.files.root().join(path))
    }

    async fn read(&self, uri: String) -> Result<ReadResourceResult, ErrorData> {
        let contents = match uri::parse(&uri) {
            Some(uri::Resource::File(path)) => {
                let files = self.offer.files.clone();
                let mime_type = mime_type(&path);
                let read = blocking(move || files.read(&path)).await?;
                contents(read.map_err(refused)?, uri, mime_type)
            }
            Some(uri::Resource::Script { language, session }) => {
                let missing = |failure: ToolFailure| ErrorData::resource_not_found(failure.error, None);
                let tool = self.sessions.find(language, &session);
                let tool = tool.map_err(|fault| missing(self.sessions.failure(language, &fault)))?;
                match tool.script().await {
                    ToolResult::Ok(value) => {
                        ResourceContents::text(value.script, uri).with_mime_type(script_type(language))
                    }
                    ToolResult::Failed(failure) => {
                        return Err(ErrorData::internal_error(failure.error, None));
                    }
                }
            }
            None => return Err(ErrorData::resource_not_found(format!("unknown resource {uri}"), None)),
        };
        Ok(ReadResourceResult::new(vec![contents]))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let this = Implementation::new("rlm", env!("CARGO_PKG_VERSION")).with_title("rlm sessions");
        ServerConfig::new(capabilities)
            .with_server_info(this)
            .with_instructions(self.offer.instructions.clone())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(self.offer.versions)
    }

    /// Requests that the SDK does not know or cannot parse.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: Context,
    ) -> Result<CustomResult, ErrorData> {
        if let Some(Unreadable(answer)) = context.extensions.get() {
            return Err(answer.clone());
        }
        let CustomRequest { method, .. } = request;
        let is_ours = ["tools/", "resources/"].iter().any(|area| method.starts_with(area));
        Err(if is_ours && !matches!(method.as_str(), "resources/subscribe" | "resources/unsubscribe") {
            ErrorData::invalid_params(format!("the parameters of `{method}` cannot be read"), None)
        } else {
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("unknown method `{method}`"), None)
        })
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.offer.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.offer.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let result = match (request.name.as_ref(), &self.offer.asker) {
            (tools::ASK_DIRECTORY, Some(asker)) => self.ask(asker, request, &context).await,
            (tools::BASH, _) => self.run(ReplLanguage::Bash, request, &context).await,
            (tools::PYTHON, _) => self.run(ReplLanguage::Python, request, &context).await,
            (tools::RESET, _) => self.reset(request, &context).await,
            (tools::SESSION_SCRIPT, _) => Ok(self.script(request).await),
            (unknown, _) => {
                let known: Vec<_> = self.offer.tools.iter().map(|tool| tool.name.as_ref()).collect();
                let message = format!("unknown tool `{unknown}`: the tools are {}", known.join(", "));
                Err(ErrorData::invalid_params(message, None))
            }
        };
        result.map(CallToolResponse::from)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.list_files(request.and_then(|request| request.cursor)).await
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let file =
            ResourceTemplate::new(format!("{}/{{+path}}", uri::of_file(self.offer.files.root())), "file");
        let script = ResourceTemplate::new("rlm://script/{language}/{session}", "session as a script");
        Ok(ListResourceTemplatesResult::with_all_items(vec![file, script]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.read(request.uri).await.map(ReadResourceResponse::from)
    }
}

/// Notifies a client that asked for progress of the seconds since the request, with a message. Never completes.
async fn notify_progress<T>(context: &Context, message: impl Fn(f64) -> String) -> T {
    let Some(token) = context.meta.get_progress_token() else { return std::future::pending().await };
    let begun = Instant::now();
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let seconds = begun.elapsed().as_secs_f64();
        let progress = ProgressNotificationParam::new(token.clone(), seconds).with_message(message(seconds));
        if context.peer.notify_progress(progress).await.is_err() {
            // The client is gone, which the transport notices.
            return std::future::pending().await;
        }
    }
}

/// A result. It has no structured content, since clients show that to their model in place of the text.
fn answer(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn told<T>(result: ToolResult<T>, text: impl FnOnce(T) -> String) -> CallToolResult {
    match result {
        ToolResult::Ok(value) => answer(text(value)),
        ToolResult::Failed(failure) => failed(&failure),
    }
}

/// The answer of a rollout, or what there is of one.
fn asked(result: RolloutResult, tally: &Tally) -> CallToolResult {
    let error = result.error.map(|error| format!(": {}", error.trim_end())).unwrap_or_default();
    let left_out = left_out_words(&tally.left_out, "`gitignore = false`");
    let left_out = left_out.map_or(String::new(), |words| format!("; {words}"));
    let note = format!("[{}{error}; {}{left_out}]", reason(result.stop_reason), tally.words());
    let facts = json!({
        "answer_ready": result.answer_ready,
        "stop_reason": result.stop_reason,
        "turns": tally.turns,
        "calls": tally.calls,
        "sub_calls": tally.sub_calls,
        "tokens": tally.tokens,
        "cost_usd": tally.cost_usd(),
        "context_left_out": tally.left_out,
        "seconds": result.metrics.total_time_seconds,
    });
    let told = match result.answer {
        Some(text) => answer(format!("{text}\n\n{note}")),
        None => CallToolResult::error(vec![ContentBlock::text(note)]),
    };
    told.with_meta(Some(meta(ASK_FACTS, facts)))
}

fn failed(failure: &ToolFailure) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(failure.to_string())])
}

/// The facts of a call, for programs: its value without the texts that the result shows.
fn facts(value: &CallValue) -> Result<MetaObject, ErrorData> {
    let mut facts = serde_json::to_value(value)
        .map_err(|error| ErrorData::internal_error(format!("cannot write the result: {error}"), None))?;
    if let Some(fields) = facts.as_object_mut() {
        fields.retain(|name, _| !["stdout", "stderr", "result"].contains(&name.as_str()));
    }
    Ok(meta(FACTS, facts))
}

fn meta(key: &str, facts: Value) -> MetaObject {
    MetaObject(JsonObject::from_iter([(key.to_owned(), facts)]))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ErrorData> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_ends| ErrorData::internal_error("the server ends", None))
}

/// Text if it is UTF-8 without NUL, or base64.
fn contents(bytes: Vec<u8>, uri: String, mime_type: Option<&str>) -> ResourceContents {
    let (contents, default) = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => (ResourceContents::text(text, uri), "text/plain"),
        other => {
            let bytes = other.map_or_else(FromUtf8Error::into_bytes, String::into_bytes);
            (ResourceContents::blob(STANDARD.encode(bytes), uri), "application/octet-stream")
        }
    };
    contents.with_mime_type(mime_type.unwrap_or(default))
}

fn refused(error: ReadError) -> ErrorData {
    match error {
        ReadError::Missing(_) => ErrorData::resource_not_found(error.to_string(), None),
        ReadError::Io { ref source, .. } => ErrorData::internal_error(format!("{error}: {source}"), None),
        error => ErrorData::invalid_params(error.to_string(), None),
    }
}

/// The type that a file's name says it has.
fn mime_type(path: &Path) -> Option<&'static str> {
    match path.extension().and_then(OsStr::to_str) {
        // In directories of agents it is hardly ever a film.
        Some("ts" | "mts") => Some("text/x-typescript"),
        _ => mime_guess::from_path(path).first_raw(),
    }
}

fn script_type(language: ReplLanguage) -> &'static str {
    match language {
        ReplLanguage::Bash => "text/x-shellscript",
        ReplLanguage::Python => "text/x-python",
    }
}
