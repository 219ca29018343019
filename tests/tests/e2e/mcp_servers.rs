//! `--mcp`: tools of MCP servers as root tools, with servers of the Python SDK.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::Signal;
use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use rlm_tests::{Place, repository, wait_until};
use serde_json::{Value, json};

use crate::venv::python_with_mcp;

/// A credential of the servers.
const TOKEN: &str = "a-long-secret";

/// A place with a file of servers, and the Python that runs them.
struct Servers {
    place: Place,
    python: PathBuf,
}

impl Servers {
    /// Makes the servers; None if there is no Python with the SDK.
    fn new() -> Option<Self> {
        Some(Self { python: python_with_mcp()?, place: Place::new() })
    }

    /// Makes the servers, with one that is named `srv`.
    fn srv() -> Option<Self> {
        let servers = Self::new()?;
        servers.declare(json!({"srv": servers.program(&[])}));
        Some(servers)
    }

    /// A server that is started.
    fn program(&self, args: &[&str]) -> Value {
        let script = repository().join("tests/mcp_tools.py");
        let args = [&[script.to_str().unwrap()][..], args].concat();
        self.command(self.python.to_str().unwrap(), &args)
    }

    fn command(&self, command: &str, args: &[&str]) -> Value {
        let [(mark, _), _] = self.place.mark();
        json!({"command": command, "args": args, "env": {"TOKEN": "${TOKEN}", mark: format!("${{{mark}}}")}})
    }

    fn declare(&self, servers: Value) {
        self.place.write("mcp.json", &json!({"mcpServers": servers}).to_string());
    }

    fn rlm(&self, args: &[&str]) -> Command {
        let mut command = self.place.rlm(args);
        command.args(["--mcp", "mcp.json"]).env("TOKEN", TOKEN);
        command
    }

    /// Runs calls in a session, and checks that nothing is left.
    fn exec(&self, args: &[&str]) -> Output {
        let output = self.rlm(&[&["exec"], args].concat()).output().unwrap();
        self.place.assert_nothing_left();
        output
    }

    /// Standard output of calls, all of which run to their end.
    fn output(&self, args: &[&str]) -> String {
        let output = self.exec(args);
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
        text(&output.stdout).to_owned()
    }

    /// The responses to calls.
    fn responses(&self, args: &[&str]) -> Vec<Response> {
        let output = self.exec(&[&["--json"], args].concat());
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Starts a server that speaks HTTP, and declares it as `web`.
    fn over_http(&self) -> HttpServer {
        let mut command = self.place.at_work(&self.python);
        command.arg(repository().join("tests/mcp_tools.py")).arg("address").stderr(Stdio::null());
        let server = HttpServer(command.env("TOKEN", TOKEN).spawn().unwrap());
        let address = self.place.file("address");
        wait_until("the server listens", || address.exists());
        let url = self.place.read("address");
        self.declare(json!({"web": {"type": "http", "url": url, "headers": {"X-Token": "${TOKEN}"}}}));
        server
    }
}

/// A server that ends with this value.
struct HttpServer(Child);

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The message of the exception that a call in Python raised.
fn message(response: &Response) -> &str {
    let exception = response.exception.as_ref().unwrap();
    assert_eq!(exception.kind, "RuntimeError");
    &exception.message
}

#[test]
fn tools_are_functions_in_bash() {
    let Some(servers) = Servers::srv() else { return };
    let calls = "srv_add 1 2; srv_add 5; srv_add --json '{\"b\": 3, \"a\": 4}'; srv_fact cat; srv_legs --json '{\"names\": [\"cat\", \"birds\"]}'; srv_picture
        srv_odd_name_1; srv_knows_token; srv_fail 'no luck'; echo $?; srv_add one; srv_add 1 2 3; srv_add --json '{\"c\": 1}'";
    assert_eq!(
        servers.output(&[calls]),
        "3\n6\n7\n{\"name\": \"cat\", \"legs\": [4, 2]}\n[3, 5]\na picture\n[image: image/png, 5 bytes]\n\nyes\n\
         Error: Error executing tool fail: no luck\n1\nError: argument 'a' of srv_add: \"one\" is not of type \"integer\"\n\
         Error: srv_add takes at most 2 by position (a, b), not 3\n\
         Error: srv_add has no argument 'c'; it takes a, b\n"
    );
}

#[test]
fn tools_are_functions_in_python() {
    let Some(servers) = Servers::srv() else { return };
    let calls = [
        "a = srv_add(1, 2)",
        "b = srv_add(b=3, a=4)",
        "c = srv_fact('cat')",
        "d = srv_knows_token()",
        "e = srv_legs(['cat'])",
        "a, b, c, d, e",
    ];
    for callbacks in ["network", "intercept"] {
        let printed = servers.output(&[&["--python", "--callbacks", callbacks], &calls[..]].concat());
        assert_eq!(printed, "('3', '7', {'name': 'cat', 'legs': [4, 2]}, 'yes', [3])\n");
    }
    let responses = servers.responses(&["--python", "srv_fail('no luck')", "srv_add(b'x')", "srv_add()"]);
    let messages: Vec<_> = responses.iter().map(message).collect();
    assert_eq!(
        messages,
        [
            "Error executing tool fail: no luck",
            "argument 'a' of srv_add: JSON cannot hold the bytes b'x'",
            "argument 'a' of srv_add is missing"
        ]
    );
}

#[test]
fn a_server_may_speak_http() {
    let Some(servers) = Servers::new() else { return };
    let _server = servers.over_http();
    let calls = "web_add 1 2; web_fact cat; web_fail 'no luck'
        timeout 1 rlm-root-tool web_wait; until [ -e cancelled ]; do sleep 0.01; done";
    // The server itself is of the place.
    let output = servers.rlm(&["exec", calls]).output().unwrap();
    assert_eq!(
        text(&output.stdout),
        "3\n{\"name\": \"cat\", \"legs\": [4, 2]}\nError: Error executing tool fail: no luck\n"
    );
    let output = servers.rlm(&["exec", calls]).env("TOKEN", "another-secret").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let words = text(&output.stderr);
    assert!(
        words.starts_with("rlm: the MCP server 'web' cannot be reached: ") && words.contains("401"),
        "{words}"
    );
}

#[test]
fn a_server_over_http_that_is_gone_is_an_error() {
    let Some(servers) = Servers::new() else { return };
    let server = servers.over_http();
    let code = "web_wait & until [ -e waiting ]; do sleep 0.01; done; kill -9 $SERVER; wait $!; web_add 1 2";
    let mut rlm = servers.rlm(&["exec", &code.replace("$SERVER", &server.0.id().to_string())]);
    let output = rlm.output().unwrap();
    let lines: Vec<_> = text(&output.stdout).lines().filter(|line| line.starts_with("Error: ")).collect();
    assert_eq!((lines.len(), lines[0]), (2, "Error: the MCP server 'web' closed the connection"));
    // Refused, or reset by a kernel that still closes the socket.
    assert!(
        lines[1].starts_with("Error: the MCP server 'web' cannot be reached: Connection re"),
        "{lines:?}"
    );
    drop(server);
}

#[test]
fn a_server_that_dies_is_an_error_and_the_next_call_starts_it_again() {
    let Some(servers) = Servers::srv() else { return };
    let responses =
        servers.responses(&["--python", "one = srv_pid()", "srv_die()", "srv_pid() != one, srv_add(1)"]);
    let error = message(&responses[1]);
    assert!(error.starts_with("the MCP server 'srv' exited with status 3: "), "{error}");
    assert!(error.ends_with("my token is [key]\nlast words") && !error.contains(TOKEN), "{error}");
    assert_eq!(responses[2].result.as_deref(), Some("(True, '2')"));
    let killed =
        "import os, threading\nthreading.Timer(0.2, lambda: os.kill(int(one), 9)).start()\nsrv_wait()";
    let responses = servers.responses(&["--python", "one = srv_pid()", killed, "srv_add(1)"]);
    assert_eq!(message(&responses[1]), "the MCP server 'srv' was killed by SIGKILL");
    assert_eq!(responses[2].result.as_deref(), Some("'2'"));
    assert_eq!(servers.place.read("log").lines().count(), 4);
}

#[test]
fn a_call_that_reaches_its_time_limit_is_cancelled_and_the_server_goes_on() {
    let Some(servers) = Servers::srv() else { return };
    let calls = [
        "one = srv_pid()",
        "srv_wait()",
        "import time\nwhile not os.path.exists('cancelled'): time.sleep(0.01)",
    ];
    let args = [&["--python", "--call-timeout", "2"], &calls[..], &["srv_pid() == one"]].concat();
    let calls = args.iter().map(|arg| arg.replace("os.path", "__import__('os').path")).collect::<Vec<_>>();
    let responses = servers.responses(&calls.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((responses[1].outcome, responses[1].state), (Outcome::TimedOut, State::Kept));
    assert_eq!(responses[3].result.as_deref(), Some("True"));
}

#[test]
fn all_pages_of_tools_are_listed_and_a_schema_without_names_takes_them_by_name() {
    let Some(servers) = Servers::new() else { return };
    servers.declare(json!({"my pages": servers.program(&["pages"])}));
    let calls = "my_pages_tool0; my_pages_tool4 --json '{\"a\": 1}'; my_pages_tool1 2";
    assert_eq!(
        servers.output(&[calls]),
        "tool0 {}\ntool4 {'a': 1}\nError: my_pages_tool1 takes its arguments by name alone\n"
    );
}

#[test]
fn servers_that_cannot_be_used_are_named_and_nothing_is_left() {
    let Some(servers) = Servers::new() else { return };
    let pages = servers.program(&["pages"]);
    let tool = "[[tool]]\nname = 'x_tool1'\ndescription = 'A tool.'\ncommand = ['true']\n";
    servers.place.write("tools.toml", tool);
    for (declared, status, error) in [
        (
            json!({"good": pages, "bad": servers.command("sh", &["-c", "echo no $TOKEN >&2; exit 1"])}),
            3,
            "the MCP server 'bad' exited with status 1: no [key]",
        ),
        (
            json!({"x": servers.command("no-such", &[])}),
            3,
            "the MCP server 'x' cannot be started: no program no-such on PATH",
        ),
        (
            json!({"a.b": pages, "a_b": pages}),
            2,
            "the tool 'tool0' of the MCP server 'a.b' and the tool 'tool0' of 'a_b' would both be named a_b_tool0: \
             rename a server",
        ),
        (
            json!({"x": pages}),
            2,
            "the tool x_tool1 of an MCP server has the name of another tool: rename the server",
        ),
        (
            json!({"x": {"type": "sse", "url": "http://h/sse"}}),
            2,
            "mcp.json: server 'x': type: \"sse\", the former HTTP \
             transport, is not supported: most servers speak \"http\" at another address",
        ),
    ] {
        servers.declare(declared);
        let output = servers.exec(&["--tools", "tools.toml", "echo never"]);
        assert_eq!(
            (text(&output.stdout), text(&output.stderr), output.status.code()),
            ("", format!("rlm: {error}\n").as_str(), Some(status))
        );
    }
}

#[test]
fn a_server_that_does_not_end_is_killed_with_its_group() {
    let Some(servers) = Servers::new() else { return };
    let script = repository().join("tests/mcp_tools.py");
    let code =
        format!("trap '' TERM; sleep 1000 & {} {}; sleep 1000", servers.python.display(), script.display());
    servers.declare(json!({"srv": servers.command("sh", &["-c", &code])}));
    assert_eq!(servers.output(&["srv_add 1"]), "2\n");
}

#[test]
fn servers_end_when_the_command_is_killed() {
    let Some(servers) = Servers::srv() else { return };
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL] {
        let waiting = servers.place.file("waiting");
        let mut rlm = servers.rlm(&["exec", "srv_wait"]).spawn().unwrap();
        wait_until("the call runs", || waiting.exists());
        rlm_tests::signal(&rlm, signal);
        rlm.wait().unwrap();
        wait_until("nothing is left", || servers.place.processes().is_empty());
        std::fs::remove_file(waiting).unwrap();
    }
    servers.place.remove_temporary();
}

#[test]
fn a_start_can_be_interrupted() {
    let Some(servers) = Servers::new() else { return };
    servers.declare(json!({"slow": servers.command("sh", &["-c", "echo >started; sleep 1000"])}));
    for args in [&["run", "--context", "", "Why?"][..], &["exec", "echo never"], &["repl"]] {
        let started = servers.place.file("started");
        let mut rlm = servers.rlm(args);
        let rlm = rlm.env("RLM_BASE_URL", "http://127.0.0.1:9/v1").env("RLM_MODEL", "root").spawn().unwrap();
        wait_until("the server has started", || started.exists());
        rlm_tests::signal(&rlm, Signal::SIGINT);
        let output = rlm.wait_with_output().unwrap();
        assert_eq!(
            (text(&output.stdout), text(&output.stderr), output.status.code()),
            ("", "", Some(130)),
            "{args:?}"
        );
        wait_until("nothing is left", || servers.place.processes().is_empty());
        std::fs::remove_file(started).unwrap();
    }
}

#[test]
fn rollouts_share_the_servers_and_see_no_credentials() {
    let Some(servers) = Servers::srv() else { return };
    let code =
        "srv_pid >>pids; srv_knows_token; env | grep -c long-secret; RLM_CONTENT=$(cat pids) RLM_READY=1";
    let model = ScriptedModel::start([Rule::any().calls("call_bash_repl", code)]);
    let args =
        ["run", "--context", "", "--attempts", "3", "--jobs", "3", "--trajectory", "t.jsonl", "Which?"];
    let output =
        servers.rlm(&args).env("RLM_BASE_URL", model.base_url()).env("RLM_MODEL", "root").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let pid = servers.place.read("log").trim().to_owned();
    let answers = text(&output.stdout).lines().map(|line| {
        let result: Value = serde_json::from_str(line).unwrap();
        result["answer"].as_str().unwrap().to_owned()
    });
    assert_eq!(answers.collect::<Vec<_>>(), [pid.as_str(); 3]);
    let trajectory = servers.place.read("t.jsonl");
    assert!(trajectory.contains("yes\\n0\\n") && !trajectory.contains(TOKEN), "{trajectory}");
    let system = &model.finish()[0].body["messages"][0]["content"];
    assert!(system.as_str().unwrap().contains("srv_add A [B]"), "{system}");
}
