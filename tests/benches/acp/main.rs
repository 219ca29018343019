//! The cost of the Agent Client Protocol: the start of `rlm acp`, its first request to a model, and a thousand calls beside
//! `rlm run`.
//!
//! Runs take turns; the table has medians. Build the programs first: `cargo build --release --workspace`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rlm_tests::scripted_model::{Rule, ScriptedModel};
use rlm_tests::{Place, program};
use serde_json::{Value, json};

const CALLS: usize = 1000;
const ROUNDS: usize = 15;
const ROUNDS_OF_CALLS: usize = 3;

/// The most that `initialize` may take over the start of the process, and the first request over the prompt.
const START_LIMIT: Duration = Duration::from_millis(30);
const REQUEST_LIMIT: Duration = Duration::from_millis(15);
const CALLS_LIMIT: f64 = 1.5;

/// `rlm acp`, line by line.
struct Agent {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Agent {
    fn start(place: &Place, model: &ScriptedModel) -> Self {
        let mut command = place.rlm(&["acp", "--permissions", "allow", "--max-turns", "1001"]);
        asks(&mut command, model);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn send(&mut self, id: u32, method: &str, params: Value) {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.input, "{request}").unwrap();
    }

    fn result(&mut self, id: u32) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the agent has ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    /// A new session's id.
    fn session(&mut self, place: &Place) -> Value {
        self.send(0, "initialize", json!({"protocolVersion": 1}));
        self.result(0);
        self.send(1, "session/new", json!({"cwd": place.path("work"), "mcpServers": []}));
        self.result(1)["sessionId"].clone()
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

fn asks(command: &mut Command, model: &ScriptedModel) {
    command.env("RLM_BASE_URL", model.base_url()).env("RLM_MODEL", "at-once");
}

fn prompt(session: &Value) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": "How many?"}]})
}

fn calling(code: &str) -> Rule {
    let function = json!({"name": "call_bash_repl", "arguments": json!({"code": code}).to_string()});
    let call = json!({"id": "c", "type": "function", "function": function});
    Rule::any().message(json!({"role": "assistant", "content": null, "tool_calls": [call]}))
}

/// A model that calls a thousand times, then answers.
fn busy_model() -> ScriptedModel {
    let model = ScriptedModel::start([
        calling("x=$((x + 1)); echo $x").times(CALLS - 1),
        calling("RLM_CONTENT=$x RLM_READY=1").once(),
    ]);
    model.forget_bodies();
    model
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() {
    if !std::env::args_os().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let place = Place::new();
    let (mut plain, mut ready, mut request) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let model = ScriptedModel::start([calling("RLM_CONTENT=1 RLM_READY=1")]);
        let began = Instant::now();
        assert!(
            Command::new(program("rlm")).arg("--version").stdout(Stdio::null()).status().unwrap().success()
        );
        plain.push(began.elapsed());
        let began = Instant::now();
        let mut agent = Agent::start(&place, &model);
        agent.send(9, "initialize", json!({"protocolVersion": 1}));
        agent.result(9);
        ready.push(began.elapsed());
        agent.send(1, "session/new", json!({"cwd": place.path("work"), "mcpServers": []}));
        let session = agent.result(1)["sessionId"].clone();
        let began = Instant::now();
        agent.send(2, "session/prompt", prompt(&session));
        while model.requests().is_empty() {
            // The model tells nobody of a request, and this is finer than what is measured.
            std::thread::sleep(Duration::from_micros(100));
        }
        request.push(began.elapsed());
        agent.result(2);
        agent.end();
    }
    let (mut of_run, mut of_acp) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS_OF_CALLS {
        let model = busy_model();
        let mut command = place.rlm(&[
            "run",
            "--context",
            "",
            "--quiet",
            "--no-record",
            "--max-turns",
            "1001",
            "How many?",
        ]);
        asks(&mut command, &model);
        let began = Instant::now();
        assert_eq!(command.output().unwrap().stdout, b"999\n");
        of_run.push(began.elapsed());
        drop(model);
        let model = busy_model();
        let mut agent = Agent::start(&place, &model);
        let session = agent.session(&place);
        let began = Instant::now();
        agent.send(2, "session/prompt", prompt(&session));
        assert_eq!(agent.result(2)["stopReason"], "end_turn");
        of_acp.push(began.elapsed());
        agent.end();
        drop(model);
    }
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let (plain, ready, request) = (median(plain), median(ready), median(request));
    let (of_run, of_acp) = (median(of_run), median(of_acp));
    let table = format!(
        "| what | floor | measured | over it | limit |\n| --- | --- | --- | --- | --- |\n\
         | `initialize` answered, beside `rlm --version` | {} | {} | {} | ≤ {} |\n\
         | from the first prompt to the model | | {} | {} | ≤ {} |\n\
         | {CALLS} calls, beside `rlm run` | {} | {} | {:.2} | ≤ {CALLS_LIMIT} |\n",
        ms(plain),
        ms(ready),
        ms(ready.saturating_sub(plain)),
        ms(START_LIMIT),
        ms(request),
        ms(request),
        ms(REQUEST_LIMIT),
        ms(of_run),
        ms(of_acp),
        of_acp.as_secs_f64() / of_run.as_secs_f64(),
    );
    let mut output = std::io::stdout().lock();
    output.write_all(table.as_bytes()).unwrap();
    place.assert_nothing_left();
}
