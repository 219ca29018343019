//! A connection to a running MCP server. No other file uses the SDK.

use std::collections::HashMap;
use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use rlm_core::pickle::Value;
use rlm_core::root_tool::MAX_BODY_BYTES;
use rmcp::ServiceExt as _;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock,
    ErrorCode, Implementation, ResourceContents,
};
use rmcp::service::{ClientInitializeError, Peer, RoleClient, RunningService, ServiceError};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig, StreamableHttpError,
};
use serde_json::{Map, Value as Json};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::spec::{McpServer, McpTransport};
use crate::http_client::{builder, header, last_cause, over};
use crate::program::{Spawner, StdioServer, Variables, find, usual_variables};
use crate::proxy::Proxy;
use crate::tool::ToolError;

/// Time for an answer that a server wrote before it exited, and for the exit of one that closed its output.
const LAST_ANSWER: Duration = Duration::from_millis(200);

/// Time for the end of an HTTP session.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Lines of a server's standard error, from its end, in an error. It is a log, most of which is about other calls.
const SAID_LINES: usize = 10;

/// Most bytes of these lines. Twice as many are kept, so that no part of a secret is at the beginning.
const SAID_BYTES: usize = 2 << 10;

/// Calls of one HTTP server at once. Further ones wait.
const HTTP_CALLS: usize = 64;

/// A tool as its server describes it.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Json,
    /// True: each result is an object with the value as its only field, `result`, since SDKs wrap values that are not objects.
    pub(super) wraps_results: bool,
}

/// A connection. Dropping it closes the connection, and kills a program that was started for it.
#[derive(Debug)]
pub(super) struct Connection {
    server: Arc<McpServer>,
    peer: Peer<RoleClient>,
    program: Option<StdioServer>,
    close: CancellationToken,
    /// Cancelled when the connection is over.
    over: CancellationToken,
    _close_on_drop: DropGuard,
}

impl Connection {
    /// Starts the server if it is a program, and greets it.
    ///
    /// # Errors
    /// A sentence that names the server.
    pub(super) async fn open(
        server: &Arc<McpServer>,
        spawner: &Spawner,
        environment: &Variables,
        limit: Duration,
    ) -> Result<Self, String> {
        let fail = |reason: String| server.about(&reason);
        let close = CancellationToken::new();
        let (program, service) = match &server.transport {
            McpTransport::Stdio { command, args, env, cwd } => {
                let mut variables = usual_variables(environment);
                variables.extend(env.iter().map(|(name, value)| (name.into(), value.into())));
                let command = find(command, cwd, &variables)
                    .map_err(|reason| fail(format!("cannot be started: {reason}")))?;
                let mut command = Command::new(command);
                command.args(args).current_dir(cwd).env_clear().envs(variables);
                let started = StdioServer::start(spawner, command).await;
                let (program, output, input) =
                    started.map_err(|error| fail(format!("cannot be started: {error}")))?;
                let transport =
                    AsyncRwTransport::new_client(output, input).with_max_line_length(MAX_BODY_BYTES);
                match greet(transport, &close, limit).await {
                    Ok(service) => (Some(program), service),
                    Err(reason) => return Err(server_fault(server, Some(&program), &reason).await),
                }
            }
            McpTransport::Http { url, headers } => {
                let transport = http(url, headers, environment).map_err(fail)?;
                (None, greet(transport, &close, limit).await.map_err(fail)?)
            }
        };
        let over = CancellationToken::new();
        let (peer, when_over) = (service.peer().clone(), over.clone());
        tokio::spawn(async move {
            // The connection is over, however it ended.
            let _how = service.waiting().await;
            when_over.cancel();
        });
        let close_on_drop = close.clone().drop_guard();
        Ok(Self { server: server.clone(), peer, program, close, over, _close_on_drop: close_on_drop })
    }

    /// False once the server has ended, or closed the connection.
    pub(super) fn is_open(&self) -> bool {
        !self.over.is_cancelled() && !self.close.is_cancelled()
    }

    /// The server's tools, of all pages.
    ///
    /// # Errors
    /// A sentence that names the server.
    pub(super) async fn tools(&self, deadline: Instant) -> Result<Vec<Offered>, String> {
        let listed = match timeout_at(deadline, self.peer.list_all_tools()).await {
            Ok(Ok(listed)) => listed,
            // The server has only prompts or resources.
            Ok(Err(ServiceError::McpError(error))) if error.code == ErrorCode::METHOD_NOT_FOUND => Vec::new(),
            Ok(Err(error)) => return Err(self.request_fault(&error).await),
            Err(_late) => {
                let reason = "did not list its tools in time";
                return Err(server_fault(&self.server, self.program.as_ref(), reason).await);
            }
        };
        let offered = listed.into_iter().map(|tool| Offered {
            name: tool.name.into_owned(),
            description: tool.description.map(Into::into).or(tool.title).unwrap_or_default(),
            parameters: Json::Object(Arc::unwrap_or_clone(tool.input_schema)),
            wraps_results: tool.output_schema.is_some_and(|schema| wraps(&schema)),
        });
        Ok(offered.collect())
    }

    /// Calls a tool. Dropping the future tells the server that the call is cancelled.
    ///
    /// # Errors
    /// The text of the tool's error, or a sentence that names the server.
    pub(super) async fn call(&self, tool: &str, arguments: Map<String, Json>) -> Result<Value, ToolError> {
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let called = tokio::select! {
            biased;
            called = self.peer.call_tool_once(request) => called,
            () = self.exited() => Err(ServiceError::TransportClosed),
        };
        match called {
            Ok(CallToolResponse::Complete(result)) => {
                value(result).map_err(|text| ToolError::Failed(self.server.redact(&text)))
            }
            Ok(_) => Err(ToolError::Failed(self.server.about("asks for input, which it cannot get here"))),
            Err(error) => Err(ToolError::Failed(self.request_fault(&error).await)),
        }
    }

    /// Ends the connection, and the server if it is a program.
    pub(super) async fn stop(&self) {
        self.close.cancel();
        let _too_slow = timeout(CLOSE_TIME, self.over.cancelled()).await;
        if let Some(program) = &self.program {
            program.stop().await;
        }
    }

    /// Completes when the program has exited, and its last answer has had time to come.
    async fn exited(&self) {
        match &self.program {
            Some(program) => program.exited().await,
            None => std::future::pending().await,
        }
        sleep(LAST_ANSWER).await;
    }

    /// A sentence on a request that failed.
    async fn request_fault(&self, error: &ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => self.server.about(&format!("answered: {}", error.message)),
            ServiceError::TransportSend(error) if self.program.is_none() => {
                self.server.about(&format!("cannot be reached: {}", cause(&*error.error)))
            }
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
                self.close.cancel();
                server_fault(&self.server, self.program.as_ref(), "closed the connection").await
            }
            error => self.server.about(&format!("failed: {error}")),
        }
    }
}

/// A sentence on a server that does not serve: how it ended, or else the reason, and the end of its standard error.
async fn server_fault(server: &McpServer, program: Option<&StdioServer>, reason: &str) -> String {
    let Some(program) = program else { return server.about(reason) };
    let how = match timeout(LAST_ANSWER, program.exited()).await {
        Ok(()) => program.end().await,
        Err(_alive) => reason,
    };
    match last_lines(&server.redact(&program.said())) {
        "" => server.about(how),
        said => server.about(&format!("{how}: {said}")),
    }
}

/// The last [`SAID_LINES`] lines, or less of them if they are long.
fn last_lines(text: &str) -> &str {
    let text = text.trim();
    let lines = text.rmatch_indices('\n').nth(SAID_LINES - 1).map_or(0, |(end, _)| end + 1);
    let bytes = text.ceil_char_boundary(text.len().saturating_sub(SAID_BYTES));
    &text[lines.max(bytes)..]
}

/// Begins to speak with a server. The error is a sentence without its subject.
async fn greet(
    transport: impl Transport<RoleClient> + 'static,
    close: &CancellationToken,
    limit: Duration,
) -> Result<RunningService<RoleClient, ClientConfig>, String> {
    let ours = Implementation::new("rlm", env!("CARGO_PKG_VERSION"));
    let client = ClientConfig::new(ClientCapabilities::default(), ours);
    match timeout(limit, client.serve_with_ct(transport, close.clone())).await {
        Ok(Ok(service)) => Ok(service),
        Ok(Err(ClientInitializeError::TransportError { error, .. })) => {
            Err(format!("cannot be reached: {}", cause(&*error.error)))
        }
        Ok(Err(ClientInitializeError::ConnectionClosed(_))) => Err("closed the connection".to_owned()),
        Ok(Err(error)) => Err(format!("does not speak MCP: {error}")),
        Err(_late) => Err(format!("did not answer within {} s", limit.as_secs_f64())),
    }
}

/// The innermost cause, without the address, which may hold a key.
fn cause(error: &(dyn Error + Send + Sync + 'static)) -> String {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => last_cause(error),
        _ => error.to_string(),
    }
}

/// The way to a server that speaks HTTP. The error is a sentence without its subject.
fn http(
    url: &str,
    headers: &[(String, String)],
    environment: &Variables,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let variable = |name: &str| Some(environment.get(std::ffi::OsStr::new(name))?.to_str()?.to_owned());
    let parsed = Url::parse(url).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
    let parsed = parsed.ok_or("cannot be reached: its url does not begin with http:// or https://")?;
    let proxy = Proxy::of_variables(url, variable);
    let client = over(builder(None), &parsed, proxy.as_ref())?.build();
    let client = client.map_err(|error| format!("cannot be reached: {}", last_cause(&error)))?;
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let cannot = || format!("cannot be reached: the header {name} is not valid");
        custom.extend([header(name, value).ok_or_else(cannot)?]);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(custom)
        .max_concurrent_requests(HTTP_CALLS);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// Reports whether the server's SDK has wrapped a tool's results in an object: FastMCP says so, and the official SDK for Python
/// gives the schema a title of its own.
fn wraps(schema: &Map<String, Json>) -> bool {
    let properties = schema.get("properties").and_then(Json::as_object);
    let is_alone = properties.is_some_and(|properties| properties.keys().eq(["result"]));
    let says_so = schema.get("x-fastmcp-wrap-result") == Some(&true.into());
    let title = schema.get("title").and_then(Json::as_str).unwrap_or_default();
    is_alone && (says_so || title.ends_with("Output"))
}

/// The value of a result, or the text of an error.
fn value(result: CallToolResult) -> Result<Value, String> {
    let text = result.content.iter().map(words).collect::<Vec<_>>().join("\n");
    if result.is_error == Some(true) {
        return Err(if text.is_empty() { "the tool failed and gave no reason".to_owned() } else { text });
    }
    match result.structured_content {
        Some(json) => Value::from_json(&json).map_err(|error| format!("the result cannot be read: {error}")),
        None => Ok(text.into()),
    }
}

/// The text of a piece of content, or a note in its place.
fn words(content: &ContentBlock) -> String {
    let note = |kind: &str, mime_type: &str, base64: &str| {
        format!("[{kind}: {mime_type}, {} bytes]", base64.trim_end_matches('=').len() * 3 / 4)
    };
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => note("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => note("audio", &audio.mime_type, &audio.data),
        ContentBlock::ResourceLink(resource) => format!("[resource: {}]", resource.uri),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, blob, .. } => note("resource", uri, blob),
            _ => "[resource]".to_owned(),
        },
        _ => "[content of an unknown kind]".to_owned(),
    }
}
