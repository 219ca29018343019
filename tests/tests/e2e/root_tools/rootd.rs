//! Both kinds of session with `rlm-rootd` as the endpoint.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::protocol::{Outcome, State};
use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};
use rlm_tests::{Setup, Worker};
use serde_json::{Value, json};

const TOOLS: &str = r#"
[[tool]]
name = "count"
description = "Counts the letters of a text."
command = ["python3", "-c", "import json, sys; print(len(json.load(sys.stdin)['text']))"]
output = "json"
[tool.parameters]
type = "object"
required = ["text"]
additionalProperties = false
[tool.parameters.properties.text]
type = "string"

[[tool]]
name = "broken"
description = "Fails."
command = ["sh", "-c", "echo no luck >&2; exit 3"]
"#;

/// The endpoint as a process, with two rollouts.
struct Rootd {
    child: Child,
    address: Value,
    _dir: tempfile::TempDir,
}

impl Rootd {
    fn start(model: Option<&ScriptedModel>, arguments: &[&str]) -> Self {
        Self::start_with(model, arguments, |command| command.stderr(Stdio::null()))
    }

    fn start_with(
        model: Option<&ScriptedModel>,
        arguments: &[&str],
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tools = dir.path().join("tools.toml");
        std::fs::write(&tools, TOOLS).unwrap();
        let mut command = Command::new(rlm_tests::program("rlm-rootd"));
        command.args(["--rollout", "one", "--rollout", "two", "--tools"]).arg(tools).args(arguments);
        if let Some(model) = model {
            command.args(["--base-url", &model.base_url(), "--model", "small"]);
        }
        let mut child = change(command.stdout(Stdio::piped())).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: serde_json::from_str(&line).unwrap(), _dir: dir }
    }

    fn secret(&self, rollout: &str) -> &str {
        self.address["rollouts"][rollout]["secret"].as_str().unwrap()
    }

    fn worker(&self, setup: Setup) -> Worker {
        let rollout = &self.address["rollouts"]["one"];
        setup
            .env("RLM_ROOT_TOOL_URL", rollout["tools_url"].as_str().unwrap())
            .env("RLM_ROOT_TOOL_NAMES", &rollout["tools"])
            .env("RLM_INTERCEPTION_SECRET", self.secret("one"))
            .start()
    }

    fn both(&self) -> [Worker; 2] {
        [self.worker(Setup::bash()), self.worker(Setup::python())]
    }
}

impl Drop for Rootd {
    fn drop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _gone = kill(pid, Signal::SIGTERM);
        let _reaped = self.child.wait();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn replies_of_a_model_come_in_order_in_both_languages() {
    let model = ScriptedModel::start([Rule::any()]);
    let rootd = Rootd::start(Some(&model), &[]);
    let [mut bash, mut python] = rootd.both();
    let replies: Vec<String> = (0..20).map(|at| format!("re: prompt {at}")).collect();
    let printed = bash.output("for i in {0..19}; do echo \"prompt $i\"; done | llm_batch --lines");
    assert_eq!(printed.lines().collect::<Vec<_>>(), replies);
    assert_eq!(
        python
            .value("llm_batch([f'prompt {n}' for n in range(20)]) == [f're: prompt {n}' for n in range(20)]"),
        "True"
    );
    assert_eq!(
        bash.output("llm_batch --json '[\"prompt 1\", 2]'").lines().nth(1).unwrap(),
        "Error in sub-LLM call: prompt 1 is int, expected str"
    );
    // 41 calls so far; the session can query them.
    assert_eq!(
        bash.output(
            "budget | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"used\"][\"calls\"])'"
        ),
        "41\n"
    );
    assert_eq!(python.value("budget()['used']['calls']"), "41");
    bash.end();
    python.end();
    assert_eq!(model.finish().len(), 41);
}

/// Everything is logged, and the server quotes what it was sent.
#[test]
fn no_log_shows_a_key_or_a_signature() {
    let (key, secret) = ("sk-secret-key-of-the-server", "c2VjcmV0LXNpZ25hdHVyZQ");
    let signed = json!({"role": "assistant", "content": "yes", "signature": secret,
        "reasoning_details": [{"type": "reasoning.encrypted", "data": secret}]});
    let model = ScriptedModel::start([
        Rule::on("one").message(signed.clone()).in_pieces(),
        Rule::on("two").status(400, &format!("cannot read {signed} with {key}")),
        Rule::on("three").body(format!("no JSON: {signed}")),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let rootd = Rootd::start_with(Some(&model), &["--api-key-env", "KEY"], |command| {
        command.env("RUST_LOG", "trace").env("KEY", key).stderr(log)
    });
    let mut bash = rootd.worker(Setup::bash());
    let said = bash.output("llm_batch one two three");
    assert!(said.contains("yes") && said.contains("[signature]"), "{said}");
    bash.end();
    drop(rootd);
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.contains("request has ended"), "{log}");
    for text in [&said, &log] {
        assert!(!text.contains(secret) && !text.contains(key), "{text}");
    }
    assert!(model.finish().iter().all(|request| request.header("authorization") == format!("Bearer {key}")));
}

#[test]
fn an_interrupt_half_way_sends_no_request_after_it() {
    for (setup, code) in [
        (Setup::bash(), "llm_batch --lines < <(for i in {0..19}; do echo \"prompt $i\"; done)"),
        (Setup::python(), "llm_batch([f'prompt {n}' for n in range(20)])"),
    ] {
        let gate = Gate::shut();
        let model = ScriptedModel::start([Rule::any().after(&gate)]);
        let rootd = Rootd::start(Some(&model), &[]);
        let mut worker = rootd.worker(setup);
        worker.send_call(code, json!({}));
        block_on(model.wait_for_requests(5));
        worker.signal(Signal::SIGINT);
        let response = worker.receive();
        assert_eq!((response.outcome, response.state), (Outcome::Interrupted, State::Kept), "{response:?}");
        block_on(model.wait_until_idle());
        gate.open();
        // The rollout's permits are free again, and only the first requests were made.
        let next =
            if code.starts_with("llm_batch(") { "llm_batch(['prompt 0'])" } else { "llm_batch 'prompt 0'" };
        let response = worker.call(next);
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{response:?}");
        worker.end();
        assert_eq!(model.finish().len(), 6);
    }
}

#[test]
fn tools_are_programs_too() {
    let rootd = Rootd::start(None, &[]);
    let [mut bash, mut python] = rootd.both();
    assert_eq!(bash.output("count 'four'; count --json '{\"text\": \"a\"}'"), "4\n1\n");
    assert_eq!(python.value("count('four'), count(text='a')"), "(4, 1)");
    assert_eq!(bash.output("count 4; builtin echo $?").lines().last(), Some("1"));
    assert!(bash.output("count 4").contains("argument 'text' of count"), "{}", bash.output("count 4"));
    let response = python.call("broken()");
    let exception = response.exception.unwrap();
    assert!(exception.kind == "RuntimeError" && exception.message.contains("no luck"), "{exception:?}");
}

#[test]
fn another_rollouts_secret_opens_nothing_and_no_process_shows_a_secret() {
    let rootd = Rootd::start(None, &[]);
    let [mut bash, python] = rootd.both();
    let other = rootd.secret("two");
    assert_eq!(bash.output(&format!("RLM_INTERCEPTION_SECRET={other} count x")), "Error: Unauthorized\n");
    assert_eq!(
        bash.output("RLM_ROOT_TOOL_URL=${RLM_ROOT_TOOL_URL/one/three} count x"),
        "Error: Rollout not found\n"
    );
    for worker in [&bash, &python] {
        for (pid, _) in worker.processes() {
            let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let arguments = String::from_utf8_lossy(&arguments).into_owned();
            assert!(!arguments.contains(rootd.secret("one")), "{arguments}");
        }
    }
    assert_eq!(bash.output("count x"), "1\n");
}

#[test]
fn a_unix_socket_works_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("root tools.sock");
    let rootd = Rootd::start(None, &["--socket", socket.to_str().unwrap()]);
    assert!(rootd.address["url"].as_str().unwrap().starts_with("http+unix://%2F"), "{}", rootd.address);
    let [mut bash, mut python] = rootd.both();
    assert_eq!(bash.output("count four"), "4\n");
    assert_eq!(python.value("count('four'), count('a')"), "(4, 1)");
}

#[test]
fn fifty_calls_at_once_from_each_language() {
    let model = ScriptedModel::start([Rule::any()]);
    let rootd = Rootd::start(Some(&model), &[]);
    let [mut bash, mut python] = rootd.both();
    let many = "( for i in {0..49}; do llm_batch \"prompt $i\" >out.$i & done; wait ); cat out.{0..49}";
    let expected: String = (0..50).map(|at| format!("re: prompt {at}\n")).collect();
    assert_eq!(bash.output(many), expected);
    let threads = "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(50) as pool:\n    found = list(pool.map(lambda n: llm_batch([f'prompt {n}']), range(50)))\nfound == [[f're: prompt {n}'] for n in range(50)]";
    assert_eq!(python.value(threads), "True");
    assert!(model.most_at_once() <= 5, "{}", model.most_at_once());
    bash.end();
    python.end();
    assert_eq!(model.finish().len(), 100);
}
