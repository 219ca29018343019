//! Requests as lines, and the end of a server: its client goes away, or a signal comes.

use std::io::{Seek as _, Write as _};

use rlm_tests::end_of;

use super::*;

/// Two calls that run, with a job that hides from its session, and one that waits.
async fn in_the_middle_of_calls() -> Served {
    let served = Served::start().await;
    let code = "nohup setsid sleep 1000 >/dev/null 2>&1 & touch begun; sleep 1000";
    let _running = served.begin("bash", json!({"code": code, "timeout": 1000})).await;
    let _waiting = served.begin("bash", json!({"code": "echo"})).await;
    let code = "open('begun too', 'w').close()\nwhile True: pass";
    let _running = served.begin("python", json!({"code": code, "timeout": 1000})).await;
    served.wait_for("begun").await;
    served.wait_for("begun too").await;
    served
}

#[tokio::test]
async fn a_client_that_closes_in_the_middle_of_a_call_leaves_nothing() {
    in_the_middle_of_calls().await.close().await;
}

#[tokio::test]
async fn signals_in_the_middle_of_a_call_leave_nothing() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let served = in_the_middle_of_calls().await;
        served.signal(signal);
        assert_eq!(served.ended().await.code(), Some(code));
    }
}

#[tokio::test]
async fn a_server_that_is_killed_takes_its_sessions_along() {
    let served = in_the_middle_of_calls().await;
    served.signal(Signal::SIGKILL);
    until("every process is gone", || served.place.processes().is_empty()).await;
    // The leftovers of this server are removed when the next one starts a session.
    let tmp = served.place.path("tmp");
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 2);
    let output = answer_requests(&served.root(), &tmp, &[call(2, "bash", json!({"code": "echo"}))]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 0);
}

fn call(id: u32, tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// The opening messages of a conversation.
fn opening() -> [String; 2] {
    let initialize = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let first = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize}).to_string();
    [first, json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()]
}

/// The server's answers to requests from a file, after the opening messages.
fn answer_requests(root: &Path, tmp: &Path, requests: &[String]) -> Output {
    let mut input = tempfile::tempfile().unwrap();
    for request in opening().iter().chain(requests) {
        writeln!(input, "{request}").unwrap();
    }
    input.rewind().unwrap();
    let mut rlm = Command::new(program("rlm"));
    rlm.args(["mcp", "--workdir"]).arg(root).env("TMPDIR", tmp).stdin(input);
    rlm.output().unwrap()
}

/// Requests from a file: the answers come before the end, and are all that is on standard output.
#[test]
fn requests_of_a_pipe_are_answered_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let code = "echo out; echo err >&2; printf x >/proc/$$/fd/1";
    let requests = [
        call(2, "bash", json!({"code": code})),
        call(3, "bash", "not an object".into()),
        json!({"jsonrpc": "2.0", "id": 4, "method": "nothing/such"}).to_string(),
        "{not json".to_owned(),
    ];
    let output = answer_requests(dir.path(), dir.path(), &requests);
    assert!(output.status.success(), "{output:?}");
    let mut answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answers[1]["result"]["content"], json!([{"type": "text", "text": "out\nerr\nx"}]));
    assert_eq!(answers[2]["error"]["code"], -32602);
    assert_eq!(answers[3]["error"]["code"], -32601);
}

#[test]
fn a_request_that_cannot_be_read_is_answered_and_the_next_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let with = |id: u32, code: &str| call(id, "bash", json!({"code": "CODE"})).replace("\"CODE\"", code);
    let requests = [
        with(2, r#""echo \ud800""#),
        with(3, r#""echo", "timeout": 1e400"#),
        with(4, r#""echo", "timeout": NaN"#).replace("NaN", "Infinity"),
        with(5, &format!("{}{}", "[".repeat(1000), "]".repeat(1000))),
        json!({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": []}).to_string(),
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "bash", "_meta": 1}})
            .to_string(),
        json!({"id": 8, "jsonrpc": "1.0", "method": "ping"}).to_string(),
        with(9, r#""echo on""#),
    ];
    let output = answer_requests(dir.path(), dir.path(), &requests);
    assert!(output.status.success(), "{output:?}");
    let output = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut codes: Vec<_> =
        answers.iter().map(|answer| (answer["id"].as_u64(), answer["error"]["code"].as_i64())).collect();
    codes.sort();
    let codes_of = [
        None,
        Some(-32700),
        Some(-32700),
        None,
        Some(-32700),
        Some(-32602),
        Some(-32602),
        Some(-32600),
        None,
    ];
    // `Infinity` is not JSON, so the line cannot be known to be a request.
    let expected: Vec<_> = (1..).map(Some).zip(codes_of).filter(|(id, _)| *id != Some(4)).collect();
    assert_eq!(codes, expected, "{answers:?}");
    let on = answers.iter().find(|answer| answer["id"] == 9).unwrap();
    assert_eq!(on["result"]["content"][0]["text"], "on\n");
}

/// Starts a conversation, and returns the client's ends for writing and reading.
fn by_hand(
    Server { mut rlm, place }: Server,
) -> (Place, Child, std::process::ChildStdin, std::process::ChildStdout) {
    let mut rlm = rlm.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut input, output) = (rlm.stdin.take().unwrap(), rlm.stdout.take().unwrap());
    for request in opening() {
        writeln!(input, "{request}").unwrap();
    }
    (place, rlm, input, output)
}

#[test]
fn a_client_that_stops_reading_and_closes_its_end_leaves_nothing() {
    let (place, mut rlm, mut input, _unread) = by_hand(Server::new(&[]));
    // More than a pipe holds.
    let code = "head -c 300000 /dev/zero | tr '\\0' x; touch full";
    for id in 2..5 {
        writeln!(input, "{}", call(id, "bash", json!({"code": code}))).unwrap();
    }
    writeln!(input, "{}", call(5, "bash", json!({"code": "touch begun; sleep 1000", "timeout": 1000})))
        .unwrap();
    let begun = place.file("begun");
    wait_until("the last call has begun", || begun.exists());
    drop(input);
    assert!(end_of(&mut rlm).success());
}

#[test]
fn a_client_that_no_longer_reads_counts_as_gone() {
    let (place, mut rlm, mut input, output) = by_hand(Server::new(&[]));
    let begun = place.file("begun");
    let code = "touch begun; sleep 1000";
    writeln!(input, "{}", call(2, "bash", json!({"code": code, "timeout": 1000}))).unwrap();
    wait_until("the call has begun", || begun.exists());
    drop(output);
    // The answer to this request is the first that cannot be sent; the other end stays open.
    writeln!(input, "{}", call(3, "reset", json!({"language": "python"}))).unwrap();
    assert!(end_of(&mut rlm).success());
    drop(input);
}

#[tokio::test]
async fn a_rollout_ends_with_its_server_and_leaves_nothing() {
    for signal in [None, Some(Signal::SIGTERM)] {
        let mut server = Server::new(&[]);
        let begun = server.place.file("begun");
        let code = format!("nohup setsid sleep 1000 >/dev/null 2>&1 & touch {}; sleep 1000", begun.display());
        let model = ScriptedModel::start([Rule::any().calls("call_bash_repl", &code)]);
        server.rlm.env("RLM_BASE_URL", model.base_url()).env("RLM_MODEL", "root");
        let served = Served::over_pipes(server).await;
        let _running = served.begin("ask_directory", json!({"question": "Why?"})).await;
        served.wait_for("begun").await;
        match signal {
            None => served.close().await,
            Some(signal) => {
                served.signal(signal);
                assert_eq!(served.ended().await.code(), Some(143));
            }
        }
    }
}
