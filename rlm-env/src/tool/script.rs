//! The code that a session ran, as a script.

use std::io;

use rlm_core::control::ControlDir;

use crate::replay::{PastSession, ScriptOptions, SourceError, SourceOptions, script};
use crate::terms::ReplLanguage;

/// The calls in a control directory's history, in order, as one script (see [`crate::replay`]). Calls that did not run
/// to their end are comments, with the reason. Empty if nothing was run.
///
/// # Errors
/// The history exists but cannot be read, is too large, or is of another language.
pub fn session_script(control: &ControlDir, language: ReplLanguage) -> io::Result<String> {
    let options = SourceOptions { rollout: None, language: Some(language) };
    match PastSession::of_control_dir(control, &options) {
        Ok(past) => Ok(script(&past, ScriptOptions::default())),
        Err(SourceError::Empty(_)) => Ok(String::new()),
        Err(SourceError::Io { source, .. }) => Err(source),
        Err(error) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let script = session_script(&control, ReplLanguage::Bash).unwrap();
        assert!(script.starts_with("#!/usr/bin/env bash\n# A bash session of 3 calls,"), "{script}");
        let calls = "\n# Call 1\nx=1\necho $x\n\n# Call 2. Left out: it timed out\n# sleep 9\n#\n# ls\n\n# Call 3\necho 2\n\n";
        assert!(script.contains(calls), "{script}");
        std::fs::remove_file(control.history_file()).unwrap();
        nix::unistd::mkfifo(&control.history_file(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = session_script(&control, ReplLanguage::Bash).unwrap_err();
        assert!(refused.to_string().ends_with("is not a regular file"), "{refused}");
    }
}
