//! `rlm mcp`, driven by the SDK's own client over pipes.

mod endings;
mod python_sdk;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use rlm_tests::{Place, children, default_python, program, repository, until, wait_until};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ErrorCode, PaginatedRequestParams,
    ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResult, ResourceContents, ServerResult,
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
async fn state_persists_over_calls_and_over_one_that_timed_out() {
    let served = Served::start().await;
    for (tool, code, check) in [
        ("bash", "x=1; echo begun; sleep 1000", "echo $x"),
        ("python", "x = 1; print('begun')\nimport time; time.sleep(1000)", "print(x)"),
    ] {
        let (text, stopped) = served.outcome(tool, json!({"code": code, "timeout": 0.3})).await;
        assert_eq!(
            (&stopped["timed_out"], &stopped["completed"], &stopped["state"]),
            (&json!(true), &json!(false), &json!("kept")),
            "{stopped}"
        );
        assert!(text.starts_with("begun\n") && text.contains("\n[timed out: "), "{text}");
        assert_eq!(served.output(tool, check).await, "1\n");
    }
    let result = served.tool("python", json!({"code": "1 / 0"})).await;
    assert_eq!(result.is_error, Some(false), "code that raises is not a failure of the tool");
    assert!(result.content[0].as_text().unwrap().text.ends_with("ZeroDivisionError: division by zero"));
    assert_eq!(served.output("bash", "env | grep -c SECRET; true").await, "0\n");
    served.close().await;
}

#[tokio::test]
async fn a_cancelled_call_is_interrupted_and_the_session_goes_on() {
    let served = Served::start().await;
    for (tool, code, check) in [
        ("bash", "x=1; touch begun; sleep 1000; touch bad", "echo $x; rm begun; ls"),
        (
            "python",
            "import os, time\nx = 1\nopen('begun', 'w').close()\ntime.sleep(1000)\nopen('bad', 'w')",
            "print(x); os.remove('begun'); os.listdir()",
        ),
    ] {
        let call = served.begin(tool, json!({"code": code, "timeout": 1000})).await;
        served.wait_for("begun").await;
        call.cancel(Some("no longer wanted".to_owned())).await.unwrap();
        let (text, next) = served.outcome(tool, json!({"code": check, "timeout": 1000})).await;
        assert!(text.starts_with("1\n") && next["state"] == "kept", "{text}{next}");
    }
    assert!(!served.root().join("bad").exists());
    // A call that is still in the queue never starts.
    let first =
        served.begin("bash", json!({"code": "echo step 7 of 9; until [ -e go ]; do sleep 0.01; done"})).await;
    let second = served.begin("bash", json!({"code": "touch bad"})).await;
    second.cancel(None).await.unwrap();
    std::fs::write(served.root().join("go"), "").unwrap();
    first.await_response().await.unwrap();
    assert_eq!(served.output("bash", "ls").await, "go\n");
    served.close().await;
}

#[tokio::test]
async fn sessions_of_two_names_or_languages_do_not_see_each_other() {
    let served = Served::start_with(&["--max-sessions", "3"]).await;
    let bash = |code: &'static str, session: &'static str| {
        let served = &served;
        async move { served.text("bash", json!({"code": code, "session": session})).await }
    };
    assert_eq!(bash("x=1; cd /; echo $x", "one").await, "1\n");
    assert_eq!(bash("echo ${x-unset}; basename $PWD", "two").await, "unset\nwork\n");
    assert_eq!(bash("echo $x $PWD", "one").await, "1 /\n");
    let python = served.text("python", json!({"code": "'x' in dir()", "session": "one"})).await;
    assert_eq!(python, "Out[1]: False");
    let full = served.failure("bash", json!({"code": "echo", "session": "three"})).await;
    let known = "The sessions are one (bash), two (bash), one (python).";
    assert!(
        full.starts_with(&format!("there are already 3 sessions, which is the limit. {known} ")),
        "{full}"
    );
    let reset = served.text("reset", json!({"language": "bash", "session": "one"})).await;
    assert_eq!(reset, "[the bash session was reset]");
    assert_eq!(bash("echo ${x-unset}", "one").await, "unset\n");
    served.close().await;
}

#[tokio::test]
async fn a_hundred_calls_in_flight_are_in_order_in_a_session_and_side_by_side_in_several() {
    let served = Served::start().await;
    // Each session's first call waits for one of the next session's: they run side by side, or never end.
    let calls = (0..100).map(|number| {
        let (session, turn) = (number % 4, number / 4);
        let wait = match turn {
            0 => {
                format!("touch here{session}; until [ -e here{} ]; do sleep 0.01; done; ", (session + 1) % 4)
            }
            _ => String::new(),
        };
        let code = format!("{wait}echo {turn} >>order{session}; echo $((++n))");
        let arguments = json!({"code": code, "session": format!("s{session}")});
        let served = &served;
        async move { served.text("bash", arguments).await }
    });
    let outputs = join_all(calls).await;
    let expected: Vec<_> = (0..100).map(|number| format!("{}\n", number / 4 + 1)).collect();
    assert_eq!(outputs, expected);
    let in_order: String = (0..25).map(|turn| format!("{turn}\n")).collect();
    for session in 0..4 {
        let order = std::fs::read_to_string(served.root().join(format!("order{session}"))).unwrap();
        assert_eq!(order, in_order);
    }
    served.close().await;
}

#[tokio::test]
async fn a_killed_worker_is_replaced_and_the_client_is_informed() {
    let served = Served::start().await;
    served.output("bash", "x=1").await;
    let rlm = Pid::from_raw(i32::try_from(served.rlm.id()).unwrap());
    let [guard] = children(rlm)[..] else { panic!("{:?}", children(rlm)) };
    for pid in children(guard).into_iter().chain([guard]) {
        kill(pid, Signal::SIGKILL).unwrap();
    }
    let (text, next) = served.outcome("bash", json!({"code": "echo ${x-unset}"})).await;
    assert!(text.starts_with("unset\n[The session was lost before this call"), "{text}");
    assert_eq!(next["state"], "reset");
    let (text, later) = served.outcome("bash", json!({"code": ":"})).await;
    assert_eq!(
        (text.as_str(), &later["state"], &later["hint"]),
        ("(no output)", &json!("kept"), &Value::Null)
    );
    served.close().await;
}

#[tokio::test]
async fn errors_go_to_the_protocol_or_to_the_model() {
    let served = Served::start().await;
    // Protocol errors: unknown names and invalid arguments.
    let (code, message) = protocol_error(served.try_tool("perl", json!({})).await);
    assert_eq!(code, ErrorCode::INVALID_PARAMS);
    assert_eq!(message, "unknown tool `perl`: the tools are bash, python, reset, session_script");
    // Errors for the model: those it can correct.
    for (tool, arguments, error) in [
        ("bash", json!({}), "missing field `code`"),
        ("bash", json!({"code": 1}), "invalid type: integer `1`, expected a string"),
        ("python", json!({"code": "1", "timeout": 0}), "`timeout` is 0, expected seconds above 0"),
        (
            "bash",
            json!({"code": "1", "session": "../x"}),
            "the session's name cannot be used: expected 1 to 64 letters, digits, dots, underscores or hyphens",
        ),
        ("reset", json!({}), "missing field `language`"),
        ("reset", json!({"language": "bash", "session": "none"}), "unknown bash session `none`"),
        ("session_script", json!({"language": "python", "session": "none"}), "unknown python session `none`"),
        (
            "bash",
            json!({"code": "x".repeat((1 << 20) + 1)}),
            "the code has 1,048,577 bytes, the limit is 1,048,576 bytes",
        ),
    ] {
        let text = served.failure(tool, arguments).await;
        let hint = text.strip_prefix(error).and_then(|rest| rest.strip_prefix(". "));
        assert!(hint.is_some_and(|hint| !hint.is_empty()), "{text}");
    }
    let large = served.failure("bash", json!({"code": "\u{1}".repeat(3 << 20)})).await;
    assert!(large.starts_with("the code has 3,145,728 bytes, the limit is 1,048,576 bytes. "), "{large}");
    assert_eq!(served.output("bash", "echo on").await, "on\n");
    served.close().await;
}

/// A client that gets structured content shows its model that in place of the text.
#[tokio::test]
async fn a_result_is_one_text_and_facts_that_say_how_it_ended() {
    let served = Served::start().await;
    for tool in served.client.list_all_tools().await.unwrap() {
        assert_eq!(tool.output_schema, None);
    }
    let (text, facts) = served.outcome("bash", json!({"code": "echo out; false"})).await;
    assert_eq!(text, "out\n[exit status 1]");
    let expected = json!({
        "success": false, "completed": true, "exit_code": 1, "execution_time": facts["execution_time"],
        "timed_out": false, "interrupted": false, "truncated": null, "state": "kept", "exception": null,
        "answer": {"ready": false, "content": ""}, "hint": null,
    });
    assert_eq!(facts, expected);
    let (_, raised) = served.outcome("python", json!({"code": "1 / 0"})).await;
    assert_eq!((&raised["success"], &raised["completed"]), (&json!(false), &json!(false)));
    assert_eq!(raised["exception"], json!({"type": "ZeroDivisionError", "message": "division by zero"}));
    let (text, facts) = served.outcome("bash", json!({"code": "seq 1 200000"})).await;
    let result = served.tool("bash", json!({"code": "seq 1 200000"})).await;
    let bytes = serde_json::to_string(&result).unwrap().len();
    assert!((32 << 10..33 << 10).contains(&text.len()), "{}", text.len());
    assert!(bytes < 45 << 10, "{bytes} bytes, with the line ends escaped");
    assert_eq!(facts["truncated"]["stdout"]["omitted_bytes"], 1_256_127);
    served.close().await;
}

#[tokio::test]
async fn sessions_find_the_programs_of_the_user_and_no_keys() {
    let mut server = Server::new(&[]);
    let bin = server.place.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/bin/echo", bin.join("of-the-user")).unwrap();
    server.rlm.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let served = Served::over_pipes(server).await;
    assert_eq!(served.output("bash", "of-the-user hello").await, "hello\n");
    let code = "import subprocess; subprocess.run(['of-the-user', 'hello']).returncode";
    assert_eq!(served.output("python", code).await, "hello\nOut[1]: 0");
    assert_eq!(served.output("bash", "env | grep -c -e SECRET -e RLM_PASS_ENV; true").await, "0\n");
    served.close().await;
}

#[tokio::test]
async fn the_text_has_no_escape_codes_and_no_remark_on_white_space_beside_a_note() {
    let served = Served::start().await;
    let code = r"printf '\e[1;31mred\e[0m\tand \e]0;title\aplain\n'";
    assert_eq!(served.output("bash", code).await, "red\tand plain\n");
    let code = r"import sys; print('\x1b[32mgreen\x1b[0m', file=sys.stderr)";
    assert_eq!(served.output("python", code).await, "stderr:\ngreen\n");
    let (stopped, _) = served.outcome("bash", json!({"code": "sleep 1000", "timeout": 0.1})).await;
    assert!(stopped.contains("[timed out: ") && !stopped.contains("white space"), "{stopped}");
    served.close().await;
}

#[tokio::test]
async fn long_output_is_cut_and_kept_in_a_file() {
    let served = Served::start_with(&["--max-output-bytes", "1000"]).await;
    let (text, cut) = served.outcome("bash", json!({"code": "seq 1000"})).await;
    assert!(text.starts_with("1\n2\n") && text.ends_with("999\n1000\n"), "{text}");
    assert_eq!(cut["truncated"]["stdout"]["omitted_bytes"], 2893);
    let file = cut["truncated"]["stdout"]["file"].as_str().unwrap();
    assert!(text.contains(file), "{text}");
    assert_eq!(served.output("bash", &format!("sed -n 500p {file}")).await, "500\n");
    served.close().await;
}

#[tokio::test]
async fn progress_is_reported_while_a_call_runs() {
    let mut served = Served::start().await;
    let call =
        served.begin("bash", json!({"code": "echo step 7 of 9; until [ -e go ]; do sleep 0.01; done"})).await;
    let first = served.progress.recv().await.unwrap();
    let second = served.progress.recv().await.unwrap();
    assert_eq!(first.progress_token, call.progress_token);
    assert!(0.9 < first.progress && first.progress < second.progress, "{first:?} {second:?}");
    assert!(first.message.unwrap().ends_with(" s, of at most 120 s once it runs · step 7 of 9"));
    std::fs::write(served.root().join("go"), "").unwrap();
    let ServerResult::CallToolResult(result) = call.await_response().await.unwrap() else { panic!() };
    assert_eq!(result.is_error, Some(false));
    served.close().await;
}

#[tokio::test]
async fn files_and_scripts_are_resources() {
    let served = Served::start().await;
    let root = served.root();
    std::fs::create_dir(root.join("sub dir")).unwrap();
    std::fs::write(root.join("sub dir/é.txt"), "text\n").unwrap();
    std::fs::write(root.join("blob"), b"\xff\0").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
    served.output("bash", "x=1").await;
    let listed = served.client.list_all_resources().await.unwrap();
    let uri = |name: &str| format!("file://{}/{name}", root.display());
    let uris: Vec<_> = listed.iter().map(|resource| resource.uri.as_str()).collect();
    assert_eq!(uris, ["rlm://script/bash/default", &uri("blob"), &uri("sub%20dir/%C3%A9.txt")]);
    assert_eq!((listed[2].name.as_str(), listed[2].size), ("sub dir/é.txt", Some(5)));
    let types: Vec<_> = listed.iter().map(|resource| resource.mime_type.as_deref()).collect();
    assert_eq!(types, [Some("text/x-shellscript"), None, Some("text/plain")]);
    let one = |read: Result<ReadResourceResult, ServiceError>| read.unwrap().contents.remove(0);
    match one(served.read(uris[2]).await) {
        ResourceContents::TextResourceContents { text, mime_type, .. } => {
            assert_eq!((text.as_str(), mime_type.as_deref()), ("text\n", Some("text/plain")));
        }
        other => panic!("{other:?}"),
    }
    match one(served.read(uris[1]).await) {
        ResourceContents::BlobResourceContents { blob, .. } => assert_eq!(blob, "/wA="),
        other => panic!("{other:?}"),
    }
    match one(served.read(uris[0]).await) {
        ResourceContents::TextResourceContents { text, .. } => {
            assert!(text.contains("\nx=1\n"), "{text}")
        }
        other => panic!("{other:?}"),
    }
    let script = served.text("session_script", json!({"language": "bash"})).await;
    assert!(script.contains("\nx=1\n"), "{script}");
    for (uri, code) in [
        (uri("none"), ErrorCode::RESOURCE_NOT_FOUND),
        ("rlm://script/bash/none".to_owned(), ErrorCode::RESOURCE_NOT_FOUND),
        ("https://example.org".to_owned(), ErrorCode::RESOURCE_NOT_FOUND),
        (uri("link"), ErrorCode::INVALID_PARAMS),
        (uri("../secret"), ErrorCode::INVALID_PARAMS),
        (uri("%2e%2e/secret"), ErrorCode::INVALID_PARAMS),
        ("file:///etc/passwd".to_owned(), ErrorCode::INVALID_PARAMS),
        (uri("sub%20dir"), ErrorCode::INVALID_PARAMS),
    ] {
        assert_eq!(protocol_error(served.read(&uri).await).0, code, "{uri}");
    }
    let cursor = PaginatedRequestParams::default().with_cursor(Some("nonsense".to_owned()));
    let (code, _) = protocol_error(served.client.list_resources(Some(cursor)).await);
    assert_eq!(code, ErrorCode::INVALID_PARAMS);
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

#[tokio::test]
async fn a_session_does_not_get_to_see_a_key() {
    let mut server = Server::new(&[]);
    server.rlm.env("RLM_API_KEY", "k1-secret");
    let served = Served::over_pipes(server).await;
    assert_eq!(served.output("bash", "env | grep -c k1-secret; true").await, "0\n");
    let code = "cat /proc/[0-9]*/environ 2>/dev/null | grep -c k1-secret; true";
    let seen = served.output("bash", code).await;
    // Root may read any process.
    assert!(nix::unistd::geteuid().is_root() || seen == "0\n", "{seen}");
    served.close().await;
}
