//! A stand-in for the endpoint of an existing host: `existing_endpoint.py`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::{Setup, default_python, repository};

/// The secret that it expects.
pub const SECRET: &str = "s3cret";

/// The tools that it provides.
pub const TOOLS: [&str; 11] = [
    "give",
    "echo",
    "size",
    "fail",
    "fail_softly",
    "hang",
    "open_gate",
    "noop",
    "llm_batch",
    "protocol",
    "hostile",
];

/// A running endpoint, which ends when this is dropped.
#[derive(Debug)]
pub struct ExistingEndpoint {
    child: Child,
    /// Its port, and then a line for each call of `hang` that came.
    printed: BufReader<ChildStdout>,
    port: u16,
}

impl ExistingEndpoint {
    /// Starts the endpoint.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start() -> Self {
        let mut child = Command::new(default_python())
            .arg(repository().join("tests/existing_endpoint.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        printed.read_line(&mut line).unwrap();
        Self { child, printed, port: line.trim().parse().expect("the endpoint prints its port") }
    }

    /// Waits until this many further calls of `hang` have come.
    ///
    /// # Panics
    /// The endpoint has ended.
    pub fn wait_for_hanging_calls(&mut self, count: usize) {
        let lines: Vec<_> = self.printed.by_ref().lines().take(count).collect::<Result<_, _>>().unwrap();
        assert_eq!(lines, vec!["hang"; count]);
    }

    /// The URL of a rollout's root tools.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/rollout/r1/v1/rlm/tools", self.port)
    }

    /// Gives a worker these tools, and `missing`, which the endpoint does not have.
    #[must_use]
    pub fn tools_for(&self, setup: Setup) -> Setup {
        let names = serde_json::to_string(&[&TOOLS[..], &["missing"]].concat()).unwrap();
        setup
            .env("RLM_ROOT_TOOL_URL", self.url())
            .env("RLM_ROOT_TOOL_NAMES", names)
            .env("RLM_INTERCEPTION_SECRET", SECRET)
    }
}

impl Drop for ExistingEndpoint {
    fn drop(&mut self) {
        // The endpoint ends at the end of its standard input.
        drop(self.child.stdin.take());
        let _reaped = self.child.wait();
    }
}
