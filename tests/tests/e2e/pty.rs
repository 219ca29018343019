//! Commands on a pseudo-terminal, and what it shows.

use std::io::Read;
use std::process::Command;

use portable_pty::{CommandBuilder, MasterPty};
use rlm_tests::Place;

/// A command in a place, for the terminal to start: with the same arguments and environment, and `TERM`.
pub(crate) fn at_pty(place: &Place, plain: &Command) -> CommandBuilder {
    let mut command = CommandBuilder::new(plain.get_program());
    command.args(plain.get_args());
    command.env_clear();
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    command.env("TERM", "xterm");
    command.cwd(place.path("work"));
    command
}

/// The screen of a terminal.
pub(crate) struct Screen {
    output: Box<dyn Read + Send>,
    /// The output after the text that was expected last.
    pub(crate) shown: String,
    /// Bytes of a character that has not come whole.
    rest: Vec<u8>,
}

impl Screen {
    pub(crate) fn new(terminal: &dyn MasterPty) -> Self {
        let output = terminal.try_clone_reader().unwrap();
        Self { output, shown: String::new(), rest: Vec::new() }
    }

    /// Reads until the terminal shows a text. Returns what came before it.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.shown.find(text) {
                let before = self.shown[..at].to_owned();
                self.shown.drain(..at + text.len());
                return before;
            }
            assert!(self.read(), "the terminal has ended without {text:?}: {}", self.shown);
        }
    }

    /// Reads what is there. False at the end.
    pub(crate) fn read(&mut self) -> bool {
        let mut piece = [0; 4096];
        // Reading a terminal fails once nobody has it open any more.
        let count = self.output.read(&mut piece).unwrap_or(0);
        self.rest.extend_from_slice(&piece[..count]);
        let whole = match str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.rest.len(),
        };
        let bytes: Vec<u8> = self.rest.drain(..whole).collect();
        self.shown += &String::from_utf8(bytes).unwrap();
        count > 0
    }
}
