//! `rlm mcp`, driven by the SDK's own client over pipes.

mod calls;
mod endings;
mod python_sdk;
mod resources;
mod results;
mod sessions;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use rlm_tests::{Place, children, default_python, program, repository, until, wait_until};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ErrorCode,
    ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResult, ServerResult,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestHandle, RoleClient, RunningService, ServiceError,
};
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::net::unix::pipe;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A server with its own directories, and its client.
struct Served {
    client: RunningService<RoleClient, Listener>,
    progress: UnboundedReceiver<ProgressNotificationParam>,
    rlm: Child,
    place: Place,
}

/// A server that has not started, and its place.
struct Server {
    rlm: Command,
    place: Place,
}

impl Server {
    fn new(arguments: &[&str]) -> Self {
        let place = Place::new();
        let mut rlm = place.command(program("rlm"));
        rlm.arg("mcp")
            .arg("--workdir")
            .arg(place.path("work"))
            .arg(format!("--python={}", default_python().display()))
            .args(arguments)
            .env("PATH", "/usr/bin:/bin")
            .env_remove("RLM_PYTHON")
            .env("SECRET_KEY", "not for sessions");
        Self { rlm, place }
    }
}

/// A client that receives progress notifications.
#[derive(Debug)]
struct Listener(UnboundedSender<ProgressNotificationParam>);

impl ClientHandler for Listener {
    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        // A test that no longer listens has received enough.
        let _unheard = self.0.send(progress);
    }
}

impl Served {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(arguments: &[&str]) -> Self {
        Self::over_pipes(Server::new(arguments)).await
    }

    async fn over_pipes(Server { mut rlm, place }: Server) -> Self {
        let mut rlm = rlm.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(rlm.stdout.take().unwrap())).unwrap();
        let input = pipe::Sender::from_owned_fd(OwnedFd::from(rlm.stdin.take().unwrap())).unwrap();
        let (sender, progress) = unbounded_channel();
        let client = Listener(sender).serve((output, input)).await.unwrap();
        Self { client, progress, rlm, place }
    }

    /// Connects over a socket, as clients written for Node do.
    async fn over_a_socket(Server { mut rlm, place }: Server) -> Self {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let output = OwnedFd::from(theirs.try_clone().unwrap());
        let child = rlm.stdin(OwnedFd::from(theirs)).stdout(output).spawn().unwrap();
        // The command holds the server's ends.
        drop(rlm);
        ours.set_nonblocking(true).unwrap();
        let (sender, progress) = unbounded_channel();
        let ours = tokio::net::UnixStream::from_std(ours).unwrap();
        let client = Listener(sender).serve(ours).await.unwrap();
        Self { client, progress, rlm: child, place }
    }

    fn root(&self) -> PathBuf {
        self.place.path("work").canonicalize().unwrap()
    }

    async fn tool(&self, name: &'static str, arguments: Value) -> CallToolResult {
        self.try_tool(name, arguments).await.unwrap()
    }

    async fn try_tool(&self, name: &'static str, arguments: Value) -> Result<CallToolResult, ServiceError> {
        self.client.call_tool(params(name, arguments)).await
    }

    /// The text of a call that must succeed, which is all that a model sees of it, and its facts.
    async fn outcome(&self, name: &'static str, arguments: Value) -> (String, Value) {
        let result = self.tool(name, arguments).await;
        assert_eq!((result.is_error, &result.structured_content), (Some(false), &None), "{result:?}");
        let facts = result.meta.and_then(|mut meta| meta.0.remove("rlm/call"));
        let [content] = &result.content[..] else { panic!("{:?}", result.content) };
        (content.as_text().unwrap().text.clone(), facts.unwrap_or_default())
    }

    async fn text(&self, name: &'static str, arguments: Value) -> String {
        self.outcome(name, arguments).await.0
    }

    /// The text of code that must succeed.
    async fn output(&self, name: &'static str, code: &str) -> String {
        let (text, facts) = self.outcome(name, json!({"code": code})).await;
        assert_eq!(facts["success"], true, "{text}");
        text
    }

    /// The error and the hint of a call that must fail with them for the model.
    async fn failure(&self, name: &'static str, arguments: Value) -> String {
        let result = self.tool(name, arguments).await;
        assert_eq!((result.is_error, &result.structured_content), (Some(true), &None), "{result:?}");
        let text = &result.content[0].as_text().unwrap().text;
        text.strip_prefix("[error: ").and_then(|text| text.strip_suffix(']')).unwrap().to_owned()
    }

    /// Sends a call without waiting for its result.
    async fn begin(&self, name: &'static str, arguments: Value) -> RequestHandle<RoleClient> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params(name, arguments)));
        self.client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap()
    }

    async fn wait_for(&self, name: &str) {
        let path = self.root().join(name);
        until(&format!("{} exists", path.display()), || path.exists()).await;
    }

    async fn read(&self, uri: &str) -> Result<ReadResourceResult, ServiceError> {
        self.client.read_resource(ReadResourceRequestParams::new(uri)).await
    }

    fn signal(&self, signal: Signal) {
        rlm_tests::signal(&self.rlm, signal);
    }

    /// Waits until the server has ended, and checks that nothing is left.
    async fn ended(mut self) -> ExitStatus {
        let mut status = None;
        until("rlm mcp has ended", || {
            status = self.rlm.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// Closes the client's end, as clients do.
    async fn close(mut self) {
        self.client.close().await.unwrap();
        let status = self.ended().await;
        assert!(status.success(), "{status}");
    }
}

fn params(name: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    CallToolRequestParams::new(name).with_arguments(arguments)
}

#[track_caller]
fn protocol_error<T: std::fmt::Debug>(result: Result<T, ServiceError>) -> (ErrorCode, String) {
    match result {
        Err(ServiceError::McpError(error)) => (error.code, error.message.into_owned()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_client_can_list_what_the_server_offers() {
    let served = Served::start_with(&["--call-timeout", "7"]).await;
    let info = served.client.peer_info().unwrap();
    assert_eq!(info.server_info.as_ref().unwrap().name, "rlm");
    assert!(info.instructions.as_ref().unwrap().contains(served.root().to_str().unwrap()));
    let tools = served.client.list_all_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names, ["bash", "python", "reset", "session_script"]);
    let description = tools[0].description.as_ref().unwrap();
    assert!(description.contains("A call is stopped after 7 s"), "{description}");
    served.close().await;
}

#[tokio::test]
async fn a_socket_works_as_well_as_pipes() {
    let served = Served::over_a_socket(Server::new(&[])).await;
    assert_eq!(served.output("bash", "echo on").await, "on\n");
    served.close().await;
    // While it waits for a request.
    let served = Served::over_a_socket(Server::new(&[])).await;
    served.signal(Signal::SIGTERM);
    assert_eq!(served.ended().await.code(), Some(143));
}
