//! The shell texts of the `.bash` files, made ready for a shell.

use super::legend::{CALL, MARKERS, TOKENS, VARIABLES};

/// Paths by which the shell opens the worker's pipes and files when it needs them, so that the shell and its children
/// inherit none of those descriptors, and the key of the worker.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// The pipe that bash reads its commands from.
    pub(crate) commands: String,
    /// The pipe for a call's report: the worker waits for it.
    pub(crate) report: String,
    /// The pipe for everything that is printed before the report: it wakes nobody.
    pub(crate) quiet: String,
    /// The code of the call.
    pub(crate) code: String,
    /// The state that a new shell sources to take over from an old one.
    pub(crate) state: String,
    /// The terminal, quoted.
    pub(crate) terminal: String,
    /// The script files.
    pub(crate) scripts: [String; SCRIPTS.len()],
    /// The end of every marker: letters and digits that nobody guesses.
    pub(crate) key: String,
}

/// The files that the shell sources. The other texts refer to their paths as `@NAME@`.
pub(super) const SCRIPTS: [(&str, &str); 8] = [
    ("@end.bash@", include_str!("end.bash")),
    ("@rescue.bash@", include_str!("rescue.bash")),
    ("@prompts.bash@", include_str!("prompts.bash")),
    ("@positional.bash@", include_str!("positional.bash")),
    ("@stdin.bash@", include_str!("stdin.bash")),
    ("@exec.bash@", include_str!("exec.bash")),
    ("@shadowed.bash@", include_str!("shadowed.bash")),
    ("@exit.bash@", include_str!("exit.bash")),
];

/// Number of script files.
pub(crate) const SCRIPT_COUNT: usize = SCRIPTS.len();

/// Texts that others include, as `@include NAME@`.
const PARTS: [(&str, &str); 4] = [
    ("@include quiet.bash@", include_str!("quiet.bash")),
    ("@include enable.bash@", include_str!("enable.bash")),
    ("@include leave_posix.bash@", include_str!("leave_posix.bash")),
    ("@include exit_hook.bash@", include_str!("exit_hook.bash")),
];

/// A shell text without comments, with every `@` placeholder filled in.
pub(super) fn fill(text: &str, paths: &Paths) -> String {
    let mut text = without_comments(text);
    for (part, content) in PARTS {
        text = text.replace(part, without_comments(content).trim_end());
    }
    for (script, path) in SCRIPTS.iter().map(|(script, _)| script).zip(&paths.scripts) {
        text = text.replace(script, path);
    }
    // All but the parts of the call that is under way.
    let variables: Vec<&str> =
        VARIABLES.iter().map(|(_, short)| *short).filter(|name| *name != CALL).collect();
    text = text.replace("@VARIABLES@", &variables.join(" "));
    for (token, content) in TOKENS {
        text = text.replace(token, content);
    }
    for (marker, content) in MARKERS {
        text = text.replace(marker, &format!("{content}{}", paths.key));
    }
    let files = [
        ("@COMMANDS@", &paths.commands),
        ("@REPORT@", &paths.report),
        ("@QUIET@", &paths.quiet),
        ("@CODE@", &paths.code),
        ("@STATE_FILE@", &paths.state),
    ];
    for (file, path) in files {
        text = text.replace(file, path);
    }
    with_short_names(&text)
}

/// Replaces the long names of the `.bash` files by the short ones.
fn with_short_names(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("__rlm_") {
        let end = rest[start..].find(|c: char| !is_name_char(c)).map_or(rest.len(), |length| start + length);
        let name = &rest[start..end];
        let found = VARIABLES.iter().find(|(long, _)| *long == name);
        short.push_str(&rest[..start]);
        short.push_str(found.map_or(name, |(_, short)| short));
        rest = &rest[end..];
    }
    short + rest
}

pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn without_comments(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with('#') && *line != "\n").collect()
}
