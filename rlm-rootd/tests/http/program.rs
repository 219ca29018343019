//! The built program.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_rootd::{Registration, Secret};
use rlm_tests::{PATIENCE, is_over, wait_until};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::support::{request, tool_request, written_pid};

const API_KEY: &str = "sk-the-key-of-the-model";

/// The running program. It is killed on drop.
pub(crate) struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
    /// The line that it printed.
    line: Json,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rlm-rootd"));
    command.args(arguments).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("MODEL_KEY", API_KEY).env("ADMIN_TOKEN", "the-admin-token");
    command
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::of(&mut command(arguments))
    }

    fn of(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take().unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, stdout, stderr, line }
    }

    /// The program with tools that run shell code, in a directory of their own, and one rollout `r`.
    pub(crate) fn with_tools(tools: &[(&str, &str)], arguments: &[&str]) -> (Self, Registration, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let file = tools_file(dir.path(), tools);
        let program = Self::start(&[&["--tools", &file, "--rollout", "r"], arguments].concat());
        let registration = program.registration("r");
        (program, registration, dir)
    }

    /// The built program, started by a shell that runs this before.
    fn after(code: &str, arguments: &[&str]) -> Self {
        let code = format!("{code}; exec \"$0\" \"$@\"");
        let mut shell = Command::new("sh");
        Self::of(shell.args(["-c", &code, env!("CARGO_BIN_EXE_rlm-rootd")]).args(arguments))
    }

    /// The memory in a field of the process's status, in bytes.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// The most memory that the process ever held, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.memory("VmHWM")
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    pub(crate) fn registration(&self, id: &str) -> Registration {
        let secret = self.line["rollouts"][id]["secret"].as_str().unwrap();
        Registration { id: id.to_owned(), secret: Secret::new(secret), tools: vec![] }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let address = self.line["url"].as_str().unwrap().strip_prefix("http://").unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn exchange(&self, request: &[u8]) -> (u16, String) {
        exchange(self.connect(), request)
    }

    /// The exit status of the program, and all that it wrote after its first line.
    fn wait(mut self) -> (ExitStatus, String, String) {
        let (mut out, mut errors) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).unwrap();
        self.stderr.read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap(), out, errors)
    }

    fn terminate(self) -> (ExitStatus, String, String) {
        kill(self.pid(), Signal::SIGTERM).unwrap();
        self.wait()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Status and body of the response.
fn exchange(mut stream: impl std::io::Read + std::io::Write, request: &[u8]) -> (u16, String) {
    stream.write_all(request).unwrap();
    response(stream)
}

fn response(stream: impl std::io::Read) -> (u16, String) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
    let mut length = 0;
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if let Some(text) = line.to_lowercase().strip_prefix("content-length: ") {
            length = text.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (status, String::from_utf8(body).unwrap())
}

/// A file of tools that run shell code.
fn tools_file(dir: &Path, tools: &[(&str, &str)]) -> String {
    let tool = |(name, code): &(&str, &str)| {
        format!("[[tool]]\nname = '{name}'\ndescription = 'd'\ncommand = ['sh', '-c', {}]\n", json!(code))
    };
    let path = dir.join("tools.toml");
    fs::write(&path, tools.iter().map(tool).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn it_prints_one_line_serves_and_shows_no_secret_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    // The arguments and results of tools are not logged either.
    let file = tools_file(dir.path(), &[("good", "cat; env"), ("bad", "echo the-last-words >&2; exit 1")]);
    let program = Program::start(&[
        "--tools",
        &file,
        "--rollout",
        "one",
        "--rollout",
        "two",
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--model",
        "small",
        "--api-key-env",
        "MODEL_KEY",
    ]);
    let line = &program.line;
    let keys: Vec<_> = line.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["url", "admin_token", "rollouts"]);
    let url = line["url"].as_str().unwrap();
    assert_eq!(line["rollouts"]["one"]["tools_url"], format!("{url}/rollout/one/v1/rlm/tools"));
    assert_eq!(line["rollouts"]["one"]["chat_url"], format!("{url}/rollout/one/v1/chat/completions"));
    assert_eq!(line["rollouts"]["one"]["tools"], json!(["llm_batch", "llm_query", "budget", "good", "bad"]));

    let (one, two) = (program.registration("one"), program.registration("two"));
    let admin_token = line["admin_token"].as_str().unwrap().to_owned();
    let mut answers = Vec::new();
    let (status, body) = program.exchange(&tool_request(&one, "good", json!(["the-prompt"])));
    assert_eq!(status, 200);
    assert!(body.contains("the-prompt") && !body.contains("MODEL_KEY") && !body.contains("ADMIN"), "{body}");
    answers.push(body);
    answers.push(program.exchange(&tool_request(&one, "bad", json!([]))).1);
    assert!(answers[1].contains("the-last-words"));
    let crossed = Registration { secret: one.secret.clone(), ..two.clone() };
    answers.push(program.exchange(&tool_request(&crossed, "good", json!([]))).1);
    answers.push(program.exchange(&tool_request(&one, "the-unknown-tool", json!([]))).1);
    answers.push(program.exchange(&request("GET", "/rollout/one", Some(&admin_token), b"")).1);
    answers.push(program.exchange(&request("GET", "/the-unknown-route", None, b"")).1);
    let (status, metrics) = program.exchange(&request("GET", "/metrics", None, b""));
    assert_eq!(status, 200);
    answers.push(metrics);
    let arguments = fs::read(format!("/proc/{}/cmdline", program.pid())).unwrap();
    answers.push(String::from_utf8(arguments).unwrap());

    let (status, out, log) = program.terminate();
    assert_eq!(status.code(), Some(0));
    assert_eq!(out, "", "one line and no more");
    for expected in
        ["route=\"tools\" rollout=\"one\" tool=\"good\" status=200 ms=", "status=401", "listening"]
    {
        assert!(log.contains(expected), "{expected} is not in {log}");
    }
    answers.push(log.clone());
    for secret in [one.secret.reveal(), two.secret.reveal(), &admin_token, API_KEY, "the-admin-token"] {
        assert!(answers.iter().all(|answer| !answer.contains(secret)), "{secret} in {answers:?}");
    }
    for private in ["the-prompt", "the-last-words", "the-unknown-tool", "the-unknown-route"] {
        assert!(!log.contains(private), "{private} in {log}");
    }
}

#[test]
fn an_admin_token_of_the_environment_works_and_is_not_printed() {
    let program = Program::start(&["--admin-token-env", "ADMIN_TOKEN", "--log-format", "json"]);
    assert_eq!(program.line["admin_token"], Json::Null);
    let (status, _) = program.exchange(&request("PUT", "/rollout/r", Some("the-admin-token"), b""));
    assert_eq!(status, 201);
    let (_, _, log) = program.terminate();
    let lines: Vec<Json> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answered = lines.iter().find(|line| line["status"] == 201).unwrap();
    assert_eq!((&answered["route"], &answered["level"]), (&json!("rollout"), &json!("INFO")));
}

#[test]
fn it_takes_all_the_descriptors_that_it_may_have_and_its_programs_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = tools_file(dir.path(), &[("limit", "ulimit -Sn")]);
    let program = Program::after("ulimit -Sn 300", &["--tools", &file, "--rollout", "r"]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", program.pid())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<_> = files.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1]);
    let (_, body) = program.exchange(&tool_request(&program.registration("r"), "limit", json!([])));
    assert_eq!(body, r#"{"result":"300\n"}"#);
}

#[test]
fn sigterm_lets_a_running_call_end() {
    let (program, r, dir) = Program::with_tools(&[("wait", "echo > began; cat gate")], &[]);
    let fifo = dir.path().join("gate");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut stream = program.connect();
    stream.write_all(&tool_request(&r, "wait", json!([]))).unwrap();
    wait_until("the call runs", || dir.path().join("began").exists());
    let address = stream.peer_addr().unwrap();
    kill(program.pid(), Signal::SIGTERM).unwrap();
    wait_until("the listener is closed", || TcpStream::connect(address).is_err());
    fs::write(&fifo, "through").unwrap();
    let (status, body) = response(stream);
    assert_eq!((status, body.as_str()), (200, r#"{"result":"through"}"#));
    let (status, ..) = program.wait();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once_and_its_programs_with_all_that_they_started() {
    let (program, r, dir) = Program::with_tools(&[("wait", "sleep 1000 & echo $! > $$.pid; wait")], &[]);
    let request = tool_request(&r, "wait", json!([]));
    let mut streams: Vec<_> = (0..20).map(|_| program.connect()).collect();
    for stream in &mut streams {
        stream.write_all(&request).unwrap();
    }
    let pids = || -> Vec<Pid> {
        let files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        files
            .filter(|path| path.extension().is_some_and(|end| end == "pid"))
            .filter_map(written_pid)
            .collect()
    };
    wait_until("all calls run", || pids().len() == streams.len());
    let address = streams[0].peer_addr().unwrap();
    kill(program.pid(), Signal::SIGINT).unwrap();
    wait_until("the listener is closed", || TcpStream::connect(address).is_err());
    kill(program.pid(), Signal::SIGINT).unwrap();
    let (status, ..) = program.wait();
    assert_eq!(status.code(), Some(0));
    for pid in pids() {
        wait_until("the program is gone", || is_over(pid));
    }
}

#[test]
fn programs_die_with_it_when_it_is_killed() {
    let (mut program, r, dir) = Program::with_tools(&[("wait", "echo $$ > pid; exec sleep 1000")], &[]);
    let mut stream = program.connect();
    stream.write_all(&tool_request(&r, "wait", json!([]))).unwrap();
    let pid = || written_pid(dir.path().join("pid"));
    wait_until("the call runs", || pid().is_some());
    program.child.kill().unwrap();
    wait_until("the program is gone", || is_over(pid().unwrap()));
}

#[test]
fn connections_leave_descriptors_for_calls_where_there_are_few() {
    let dir = tempfile::tempdir().unwrap();
    let file = tools_file(dir.path(), &[("t", "echo through")]);
    let program = Program::after("ulimit -n 200", &["--tools", &file, "--rollout", "r"]);
    let request = tool_request(&program.registration("r"), "t", json!([]));
    let through = (200, r#"{"result":"through\n"}"#.to_owned());
    // It takes 68 connections.
    let mut first = program.connect();
    let idle: Vec<_> = (0..100).map(|_| program.connect()).collect();
    for _ in 0..3 {
        assert_eq!(exchange(&mut first, &request), through);
    }
    drop(idle);
    assert_eq!(program.exchange(&request), through);
}

#[test]
fn the_log_holds_no_text_of_a_tool() {
    let dir = tempfile::tempdir().unwrap();
    let file = tools_file(dir.path(), &[("bad", "printf 'a\\nthe-forged-line %s' \"$(cat)\" >&2; exit 1")]);
    let mut command = command(&["--tools", &file, "--rollout", "r"]);
    let program = Program::of(command.env("RUST_LOG", "trace"));
    let request = tool_request(&program.registration("r"), "bad", json!(["the-argument"]));
    let (status, answer) = program.exchange(&request);
    assert_eq!(status, 500);
    assert!(answer.contains("the-forged-line") && answer.contains("the-argument"), "{answer}");
    let (_, _, log) = program.terminate();
    assert!(log.contains("tool failed"), "{log}");
    for private in ["the-forged-line", "the-argument"] {
        assert!(!log.contains(private), "{private} in {log}");
    }
}

#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    let program = Program::start(&["--rollout", "r"]);
    let mut stream = program.connect();
    // Far more than a pipe and the queue take.
    for _ in 0..20_000 {
        let (status, _) = exchange(&mut stream, &request("GET", "/healthz", None, b""));
        assert_eq!(status, 200);
    }
    kill(program.pid(), Signal::SIGTERM).unwrap();
    drop(stream);
    let (status, ..) = program.wait();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn it_serves_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let program = Program::start(&["--socket", path.to_str().unwrap(), "--rollout", "r"]);
    assert_eq!(program.line["url"], format!("http+unix://{}", path.to_str().unwrap().replace('/', "%2F")));
    let request = tool_request(&program.registration("r"), "x", json!([]));
    let (status, body) = exchange(UnixStream::connect(&path).unwrap(), &request);
    assert_eq!((status, body.as_str()), (404, r#"{"error":"Tool 'x' not found; tools: none"}"#));
    assert_eq!(program.terminate().0.code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn errors_at_the_start_are_named_with_their_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad.toml");
    fs::write(&bad, "[[tool]]\nname = 'x'\ncommand = ['sh']\n").unwrap();
    let bad = bad.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 11] = [
        (&["--lisen", "x"], 2, "--lisen"),
        (&["--listen", "127.0.0.1:0", "--socket", "x"], 2, "cannot be used with"),
        (
            &["--listen", "0.0.0.0:0"],
            2,
            "--listen 0.0.0.0:0 is not a loopback address: other machines need --allow-remote",
        ),
        (&["--tools", bad], 2, "bad.toml: tool 'x': missing field `description`"),
        (&["--tools", "/no/such.toml"], 2, "/no/such.toml cannot be read: No such file"),
        (&["--prices", "/no/such.toml"], 2, "/no/such.toml"),
        (&["--admin-token-env", "UNSET"], 2, "the variable UNSET is not set"),
        (&["--model", "x"], 2, "--base-url"),
        (&["--rollout", "a/b", "--listen", "127.0.0.1:1"], 2, "--rollout a/b: the rollout's id must be"),
        (&["--rollout", "a", "--rollout", "a"], 2, "--rollout a: rollout 'a' is registered already"),
        (&["--socket", "/no/such/dir/s"], 3, "/no/such/dir/s cannot be bound: No such file"),
    ];
    for (arguments, status, message) in cases {
        let output = command(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty());
    }
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    let output = command(&["--listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot be bound: Address already in use"));
}

#[test]
fn it_ends_with_the_process_that_it_serves() {
    let mut host = Command::new("sleep").arg("1000").spawn().unwrap();
    let program = Program::of(command(&[]).env("RLM_HOST_PID", host.id().to_string()));
    assert_eq!(program.exchange(&request("GET", "/healthz", None, b"")).0, 200);
    host.kill().unwrap();
    host.wait().unwrap();
    let (status, _, log) = program.wait();
    assert_eq!(status.code(), Some(0));
    assert!(log.contains("the host has ended"), "{log}");
    // A host that has ended before is not an error.
    let late = Program::of(command(&[]).env("RLM_HOST_PID", host.id().to_string()));
    assert_eq!(late.wait().0.code(), Some(0));
    let output = command(&[]).env("RLM_HOST_PID", "me").output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (words.as_str(), output.status.code()),
        ("rlm-rootd: RLM_HOST_PID is \"me\", expected a process id\n", Some(2))
    );
}
