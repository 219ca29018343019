//! Root tools as shell functions.
//!
//! Bash imports exported functions from its environment: so they exist in the session, in its subshells, and in every
//! bash that it runs, without being defined there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rlm_core::shell::quoted_bytes;
use rlm_core::worker::settings::RootTools;

use crate::driver::legend::{ARGUMENTS, LENGTH};

/// The program that the functions run. It is in the same directory as the worker.
pub const HELPER: &str = "rlm-root-tool";

/// Longest arguments of a call, in characters, that go on a command line; longer ones go through a pipe. The kernel
/// limits one argument to 128 KiB, and a character has up to four bytes.
const MAX_COMMAND_LINE_CHARS: usize = 30_000;

/// Words that bash does not accept as the name of a function.
const KEYWORDS: [&str; 17] = [
    "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select",
    "then", "time", "until", "while",
];

/// Root tools that the session cannot provide.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// The name is a keyword.
    #[error("root tool {0:?} of RLM_ROOT_TOOL_NAMES cannot be a shell function: it is a keyword of bash")]
    Keyword(String),
    /// The helper program is missing.
    #[error("{} is missing: root tools need it next to the worker program", .0.display())]
    NoHelper(PathBuf),
}

/// Adds the tools to the environment of a shell, and the helper's directory to its `PATH`.
///
/// # Errors
/// [`ToolsError`] if a tool cannot be a function.
pub fn provide(
    env: &mut Vec<(OsString, OsString)>,
    tools: Option<&RootTools>,
    helper: &Path,
) -> Result<(), ToolsError> {
    let names = tools.map(|tools| tools.names.as_slice()).unwrap_or_default();
    if let Some(name) = names.iter().find(|name| KEYWORDS.contains(&name.as_str())) {
        return Err(ToolsError::Keyword(name.clone()));
    }
    if !helper.is_file() {
        return if names.is_empty() { Ok(()) } else { Err(ToolsError::NoHelper(helper.to_owned())) };
    }
    if let Some(dir) = helper.parent() {
        for (_, path) in env.iter_mut().filter(|(name, _)| name == "PATH") {
            path.push(":");
            path.push(dir);
        }
    }
    for name in names {
        env.push((format!("BASH_FUNC_{name}%%").into(), function(name, helper)));
    }
    Ok(())
}

pub(crate) fn function(name: &str, helper: &Path) -> OsString {
    let call =
        [quoted_bytes(helper.as_os_str().as_bytes()), b" ".to_vec(), name.as_bytes().to_vec()].concat();
    let measure = format!(
        "() {{\n builtin local {ARGUMENTS}=\"$*\" {LENGTH}\n {LENGTH}=${{#{ARGUMENTS}}} {ARGUMENTS}=\n \
         if [[ ${LENGTH} -le {MAX_COMMAND_LINE_CHARS} ]]; then\n  "
    );
    let text = [
        measure.as_bytes(),
        &call,
        b" \"$@\"\n else\n  ",
        &call,
        b" --arguments-from=<(builtin printf '%s\\0' \"$@\")\n fi\n}",
    ]
    .concat();
    OsStr::from_bytes(&text).to_owned()
}
