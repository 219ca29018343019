//! Tools that are programs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::unistd::Pid;
use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::{Call, ToolResult};
use rlm_rootd::{Tool, load_tools};
use rlm_tests::{is_over, until, wait_until};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Endpoint, pickled_request, soon, tool_request, tools_request, written_pid};

/// Programs get this, and not the variables of the test's process.
fn environment() -> BTreeMap<OsString, OsString> {
    let variables = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("LANG", "C.UTF-8"),
        ("API_KEY", "k-secret"),
        ("WANTED", "w"),
    ];
    variables.map(|(name, value)| (name.into(), value.into())).into()
}

fn load(dir: &TempDir, text: &str) -> Result<Vec<Tool>, String> {
    load_tools(text, dir.path(), &environment()).map_err(|error| error.to_string())
}

/// One tool that runs this shell code, with further lines of its declaration.
fn shell(dir: &TempDir, code: &str, lines: &str) -> Vec<Tool> {
    let code = json!(code);
    load(dir, &format!("[[tool]]\nname = 't'\ndescription = 'd'\ncommand = ['sh', '-c', {code}]\n{lines}\n"))
        .unwrap()
}

/// The pid that a program wrote to a file, once it is there.
async fn pid_in(path: &Path) -> Pid {
    until("a program has written its pid", || written_pid(path).is_some()).await;
    written_pid(path).unwrap()
}

async fn gone(pid: Pid) {
    until("the program is gone", || is_over(pid)).await;
}

/// Writes its pid and that of a child to files, and then both wait for ever.
const FOR_EVER: &str = "sleep 1000 & echo $! > child; echo $$ > self; wait";

#[tokio::test(flavor = "multi_thread")]
async fn a_program_reads_named_arguments_and_answers_in_json_or_text() {
    let dir = tempfile::tempdir().unwrap();
    let parameters = "[tool.parameters.properties]\nzeta = {type = 'string'}\nalpha = {}";
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, "cat", &format!("output = 'json'\n{parameters}")));
    let result = endpoint.call(&r, "t", json!(["z", [1, null]])).await.result();
    assert_eq!(result.to_string(), r#"{"zeta":"z","alpha":[1,null]}"#);
    assert_eq!(endpoint.call(&r, "t", json!({"alpha": 1})).await.result(), json!({"alpha": 1}));

    let (endpoint, r) = Endpoint::with_tools(shell(&dir, "cat", ""));
    let result = endpoint.call(&r, "t", json!(["é", 2])).await.result();
    assert_eq!(result, json!(r#"{"args":["é",2],"kwargs":{}}"#));
    let result = endpoint.call(&r, "t", json!({"a": 1})).await.result();
    assert_eq!(result, json!(r#"{"args":[],"kwargs":{"a":1}}"#));

    // Ints of any size stay ints both ways, and half a surrogate pair is not an error.
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, "cat", "output = 'json'"));
    let args = r#"[[12345678901234567890123,-0],"\ud800"]"#;
    let body = format!(r#"{{"tool_name": "t", "serialization": "json", "args": {args}}}"#);
    let response = endpoint.client().await.exchange(&tools_request(&r, body.as_bytes())).await;
    let expected = "{\"result\":{\"args\":[[12345678901234567890123,0],\"\u{fffd}\"],\"kwargs\":{}}}";
    assert_eq!(String::from_utf8(response.body).unwrap(), expected);

    let (endpoint, r) = Endpoint::with_tools(shell(&dir, r"printf 'a\377b\n'", ""));
    assert_eq!(endpoint.call(&r, "t", json!([])).await.result(), json!("a\u{fffd}b\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_fails_says_how_and_what_it_said_last() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        ("echo no luck >&2; echo out; exit 3", "", "t exited with status 3: no luck"),
        ("exit 1", "", "t exited with status 1"),
        ("kill -SEGV $$", "", "t was killed by SIGSEGV"),
        ("echo what", "output = 'json'", "t did not print JSON: expected value at line 1 column 1"),
        ("", "output = 'json'", "t did not print JSON: EOF while parsing a value at line 1 column 0"),
        ("yes", "max_output_bytes = 100000", "t wrote more than 100000 bytes"),
        ("sleep 1000", "timeout = 0.1", "t timed out after 0.1 s"),
    ];
    for (code, lines, message) in cases {
        let (endpoint, r) = Endpoint::with_tools(shell(&dir, code, lines));
        assert_eq!(endpoint.call(&r, "t", json!([])).await.error(), (500, message.to_owned()), "{code}");
    }
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, "seq 100000 >&2; exit 1", ""));
    let (_, message) = endpoint.call(&r, "t", json!([])).await.error();
    assert!(message.ends_with("99999\n100000") && message.len() < 5000, "{}", message.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_json_cannot_hold_are_refused_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    let marked = "touch ran; cat";
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, marked, "[tool.parameters.properties]\na = {}"));
    let bytes = vec![Value::Bytes(b"x".as_slice().into())];
    let error = endpoint.client().await.exchange(&pickled_request(&r, "t", bytes)).await.error();
    assert_eq!(error, (400, "argument 'a' of t: JSON cannot hold the bytes b'x'".to_owned()));
    assert!(!dir.path().join("ran").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_program_that_is_over_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, FOR_EVER, "timeout = 1"));
    assert_eq!(endpoint.call(&r, "t", json!([])).await.error(), (500, "t timed out after 1 s".to_owned()));
    for file in ["self", "child"] {
        gone(pid_in(&dir.path().join(file)).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_program_whose_caller_went_away() {
    let dir = tempfile::tempdir().unwrap();
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, FOR_EVER, ""));
    let mut client = endpoint.client().await;
    client.send(&tool_request(&r, "t", json!([]))).await;
    let pids = [pid_in(&dir.path().join("self")).await, pid_in(&dir.path().join("child")).await];
    drop(client);
    for pid in pids {
        gone(pid).await;
    }
    // Reaped, too: not even a zombie of ours is left.
    until("it is reaped", || !Path::new(&format!("/proc/{}", pids[0])).exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn descendants_of_a_program_are_killed_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    // The child keeps the pipe of its output open.
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, "sleep 1000 & echo $! > child; echo done", ""));
    assert_eq!(endpoint.call(&r, "t", json!([])).await.result(), json!("done\n"));
    gone(pid_in(&dir.path().join("child")).await).await;
    // A child in a session of its own lives on, and still holds nobody up.
    let code =
        "setsid sh -c 'echo $$ > escaped; exec sleep 1000' & until [ -s escaped ]; do :; done; echo done";
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, code, ""));
    assert_eq!(endpoint.call(&r, "t", json!([])).await.result(), json!("done\n"));
    let escaped = pid_in(&dir.path().join("escaped")).await;
    nix::sys::signal::kill(escaped, nix::sys::signal::SIGKILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn large_input_and_output_pass_at_once_and_need_not_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let large = "x".repeat(4 << 20);
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, "cat", "output = 'json'"));
    let response = soon(endpoint.call(&r, "t", json!([large]))).await.result();
    assert!(response["args"][0] == json!(large));
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, "echo unread", ""));
    assert_eq!(endpoint.call(&r, "t", json!([large])).await.result(), json!("unread\n"));
    let code = "head -c 4000000 /dev/zero; head -c 4000000 /dev/zero >&2";
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, code, ""));
    let reply = endpoint.client().await.exchange(&pickled_request(&r, "t", vec![])).await.value();
    let ToolResult::Value(Value::Str(text)) = reply.result else { panic!() };
    assert_eq!(text.len(), 4_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_sees_a_small_environment_and_what_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let seen = async |lines: &str| {
        let (endpoint, r) = Endpoint::with_tools(shell(&dir, "exec env", lines));
        let text = endpoint.call(&r, "t", json!([])).await.result();
        let mut names: Vec<_> =
            text.as_str().unwrap().lines().map(|line| line.split('=').next().unwrap().to_owned()).collect();
        names.sort();
        // The shell's own.
        names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(&name.as_str()));
        names
    };
    assert_eq!(seen("").await, ["LANG", "PATH"]);
    assert_eq!(seen("env = ['WANTED']").await, ["LANG", "PATH", "WANTED"]);
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, "pwd -P", ""));
    let place = dir.path().canonicalize().unwrap();
    let result = endpoint.call(&r, "t", json!([])).await.result();
    assert_eq!(result, json!(format!("{}\n", place.display())));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_programs_run_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    // Each program waits until all have begun.
    let code = "echo > $$.began; until [ $(ls | grep -c began) -ge 20 ]; do sleep 0.01; done; echo all";
    let (endpoint, r) = Endpoint::with_tools(shell(&dir, code, ""));
    let calls = (0..20).map(|_| endpoint.call(&r, "t", json!([])));
    for response in soon(futures_util::future::join_all(calls)).await {
        assert_eq!(response.result(), json!("all\n"));
    }
}

#[test]
fn a_file_that_is_wrong_names_tool_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let good = "[[tool]]\nname = 'good'\ndescription = 'd'\ncommand = ['sh']\n";
    let refuse = |lines: &str| load(&dir, &format!("{good}\n[[tool]]\n{lines}")).unwrap_err();
    // Lines of a tool that has a name and a description.
    for (lines, fault) in [
        ("command = ['sh']\ntimeuot = 3", "unknown field `timeuot`"),
        ("command = 'sh'", "invalid type: string \"sh\", expected a sequence"),
        ("command = ['sh']\ntimeout = 'x'", "invalid type: string \"x\", expected f64"),
        ("command = ['sh']\ntimeout = 0", "timeout: 0 is not above 0"),
        ("command = ['sh']\noutput = 'xml'", "unknown variant `xml`"),
        ("command = []", "command is empty"),
        ("command = ['no-such-thing']", "command: no program no-such-thing on PATH"),
        ("command = ['./none']", "command: ./none is not a program"),
        ("command = ['sh']\nenv = ['UNSET']", "env: the variable UNSET is not set"),
        (
            "command = ['sh']\nparameters = {type = 'array'}",
            "parameters must be a JSON schema of type object",
        ),
        (
            "command = ['sh']\n[tool.parameters.properties.x]\ntype = 'strin'",
            "parameters are not a valid JSON schema",
        ),
    ] {
        let found = refuse(&format!("name = 'bad'\ndescription = 'd'\n{lines}"));
        assert!(found.starts_with(&format!("tool 'bad': {fault}")), "{found}");
    }
    let cases = [
        ("name = 'bad'\ncommand = ['sh']", "tool 'bad': missing field `description`"),
        ("description = 'd'\ncommand = ['sh']", "tool 2: missing field `name`"),
        ("name = 'a b'\ndescription = 'd'\ncommand = ['sh']", "tool 'a b': the name must be an identifier"),
        ("name = 'good'\ndescription = 'd'\ncommand = ['sh']", "tool 'good': the name is taken"),
    ];
    for (lines, message) in cases {
        let found = refuse(lines);
        assert!(found.starts_with(message), "{found}");
    }
    assert!(load(&dir, "tools = []").unwrap_err().contains("unknown field `tools`"));
    assert!(load(&dir, "[[tool]").unwrap_err().contains("line 1"));
    assert_eq!(load(&dir, "").unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_beside_the_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("hello");
    fs::write(&script, "#!/bin/sh\necho hello $1\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let text = "[[tool]]\nname = 'hello'\ndescription = 'd'\ncommand = ['./hello', 'you']\n";
    let (endpoint, r) = Endpoint::with_tools(load(&dir, text).unwrap());
    assert_eq!(endpoint.call(&r, "hello", json!([])).await.result(), json!("hello you\n"));
}

/// The last words of a program may be in the pipe before anybody has heard that they came.
#[tokio::test(flavor = "current_thread")]
async fn the_last_output_of_a_program_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let tools = shell(&dir, "echo $$ > pid; echo first; exec echo last", "");
    let tool = tools[0].inner();
    let pid_file = dir.path().join("pid");
    for _ in 0..300 {
        let call = Call { tool: "t".to_owned(), args: Vec::new(), kwargs: Dict::default() };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let running = tool.call(call, deadline);
        let (reply, ()) = tokio::join!(running, async {
            tokio::task::yield_now().await;
            // The runtime's only thread is held up until the program has ended: it hears of all that happened at once.
            wait_until("the program has ended", || written_pid(&pid_file).is_some_and(is_over));
        });
        fs::remove_file(&pid_file).unwrap();
        assert_eq!(reply.unwrap().result, ToolResult::Value(Value::from("first\nlast\n")));
    }
}
