//! Access to a real Python.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a script with this input, and returns its output. None if the machine has no Python.
pub(crate) fn ask(script: &str, input: &[u8]) -> Option<Vec<u8>> {
    let own = Path::new("/usr/bin/python3");
    let python = if own.exists() { own } else { Path::new("python3") };
    let command =
        Command::new(python).args(["-I", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match command {
        Ok(child) => child,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a skipped test has to say so")]
            {
                eprintln!("skipped: no python3 on this machine: {error}");
            }
            return None;
        }
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "python ended with {}", output.status);
    Some(output.stdout)
}
