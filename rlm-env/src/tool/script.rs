//! What a session ran, as a script.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;
use rlm_core::control::ControlDir;
use rlm_core::protocol::{HistoryEntry, Outcome};

use crate::session::ReplLanguage;

/// Largest history that is read, in bytes.
const MAX_HISTORY_BYTES: u64 = 256 << 20;

/// The calls in a control directory's history, in order, as one script. Those that did not run to their end stand in it as
/// comments, with the reason. Empty where nothing was run.
///
/// # Errors
/// The history is there and cannot be read, or is too large.
pub fn session_script(control: &ControlDir, language: ReplLanguage) -> io::Result<String> {
    // The session may have put something else there, which must not hold us up.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let history = match OpenOptions::new().read(true).custom_flags(flags).open(control.history_file()) {
        Ok(history) => history,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let metadata = history.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("the history is no regular file"));
    }
    if metadata.len() > MAX_HISTORY_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut script = String::new();
    for line in BufReader::new(history.take(MAX_HISTORY_BYTES)).split(b'\n') {
        // The last line may be about to be written.
        let Ok(entry) = serde_json::from_slice::<HistoryEntry>(&line?) else { continue };
        if script.is_empty() {
            script.push_str(match language {
                ReplLanguage::Bash => "#!/usr/bin/env bash\n",
                ReplLanguage::Python => "#!/usr/bin/env python3\n",
            });
        }
        script.push('\n');
        add(&mut script, &entry);
    }
    Ok(script)
}

fn add(script: &mut String, entry: &HistoryEntry) {
    let reason = match entry.outcome {
        Outcome::Ok => None,
        Outcome::Error => Some("raised an exception"),
        Outcome::TimedOut => Some("timed out"),
        Outcome::Interrupted => Some("was interrupted"),
        Outcome::Exited => Some("ended the shell"),
        Outcome::Crashed => Some("ended the interpreter"),
    };
    if let Some(reason) = reason {
        script.push_str(&format!("# Left out, it {reason}:\n"));
    }
    for line in entry.code.lines() {
        script.push_str(if reason.is_some() { "# " } else { "" });
        script.push_str(line);
        script.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_history_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlDir::new(dir.path());
        nix::unistd::mkfifo(&control.history_file(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = session_script(&control, ReplLanguage::Bash).unwrap_err();
        assert_eq!(refused.to_string(), "the history is no regular file");
        std::fs::remove_file(control.history_file()).unwrap();
        let sparse = std::fs::File::create(control.history_file()).unwrap();
        sparse.set_len(MAX_HISTORY_BYTES + 1).unwrap();
        let refused = session_script(&control, ReplLanguage::Bash).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn calls_stand_in_order_and_failed_ones_as_comments() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlDir::new(dir.path());
        assert_eq!(session_script(&control, ReplLanguage::Bash).unwrap(), "");
        let line = |code: &str, outcome: &str| {
            let code = serde_json::json!(code);
            format!(
                r#"{{"seq":1,"code":{code},"outcome":"{outcome}","state":"kept","exit_code":0,"started_at":1,"execution_time":1}}"#
            )
        };
        let lines = [line("x=1\necho $x", "ok"), line("sleep 9\n\nls", "timed_out"), line("echo 2\n", "ok")];
        std::fs::write(control.history_file(), lines.join("\n") + "\n{\"seq\":").unwrap();
        assert_eq!(
            session_script(&control, ReplLanguage::Bash).unwrap(),
            "#!/usr/bin/env bash\n\nx=1\necho $x\n\n# Left out, it timed out:\n# sleep 9\n# \n# ls\n\necho 2\n"
        );
    }
}
