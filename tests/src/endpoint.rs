//! A stand-in for the endpoint of an existing host: `existing_endpoint.py`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

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
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().expect("the endpoint prints its port") }
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
