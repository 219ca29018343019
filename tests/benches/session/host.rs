//! A host that only uses files.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;

use rlm_core::control::ControlDir;
use rlm_core::protocol::{Outcome, Response};

/// Opens, writes and closes the command FIFO, then opens the response FIFO, reads to end of file and closes it: all
/// blocking, as in the simplest host.
pub(crate) struct PlainHost {
    commands: PathBuf,
    responses: PathBuf,
    buffer: Vec<u8>,
    response: Vec<u8>,
}

impl PlainHost {
    pub(crate) fn new(control: &ControlDir) -> Self {
        Self {
            commands: control.command_fifo(),
            responses: control.response_fifo(),
            buffer: vec![0; 64 << 10],
            response: Vec::new(),
        }
    }

    /// One round trip; the response is valid until the next one.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> &[u8] {
        OpenOptions::new().write(true).open(&self.commands).unwrap().write_all(request).unwrap();
        let mut fifo = File::open(&self.responses).unwrap();
        self.response.clear();
        loop {
            match fifo.read(&mut self.buffer).unwrap() {
                0 => return &self.response,
                count => self.response.extend_from_slice(&self.buffer[..count]),
            }
        }
    }

    /// Runs code that must succeed. It is inserted into JSON as is.
    pub(crate) fn call(&mut self, code: &str) {
        self.exchange(format!(r#"{{"code": "{code}", "seq": 1}}"#).as_bytes());
        self.response();
    }

    /// The latest response, whose call must have succeeded.
    pub(crate) fn response(&self) -> Response {
        let response: Response = serde_json::from_slice(&self.response).unwrap();
        assert_eq!(response.outcome, Outcome::Ok, "{:?}", response.hint);
        response
    }
}
