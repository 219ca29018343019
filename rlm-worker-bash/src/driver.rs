//! The shell text around a call.
//!
//! A call is two lines on the command pipe, in one short write, and a file. The first line reads the file and evaluates
//! its first part, the *opening*: it puts the user's world back (standard input, prompts), evaluates the second part,
//! the code, at top level, and quiets the shell. The second line, which bash reaches even when an interrupt or a syntax
//! error throws it back to its top level, sends the report. In between bash prints its job notices, as before a prompt.
//!
//! Nothing of ours is open, defined or set while the user's code runs; what must outlast a call is with the worker, as
//! [`Saved`]. Every builtin is called as `\builtin name`, so that neither a function nor an alias comes between; the
//! exceptions, and what is done about them, are in the `.bash` files.

use std::collections::BTreeSet;

use crate::code::{Care, Suffix, lists_traps};
use crate::report::{Saved, Stdin};
use crate::variables::Value;

/// Where the shell finds the worker's pipes and files: descriptors of the worker, opened by path when needed, so that
/// the shell and its children inherit none of them.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// The pipe that bash reads its commands from.
    pub(crate) commands: String,
    /// The pipe that a call's report goes to: the worker waits for it.
    pub(crate) report: String,
    /// The pipe for what is reported before that: nobody is woken by it.
    pub(crate) quiet: String,
    /// The code of the call.
    pub(crate) code: String,
    /// What a new shell sources to become like an old one.
    pub(crate) state: String,
    /// The terminal, quoted.
    pub(crate) terminal: String,
    /// The script files.
    pub(crate) scripts: [String; SCRIPTS.len()],
}

/// The driver's script files, by the name that they have in each other's text.
const SCRIPTS: [(&str, &str); 8] = [
    ("@END@", include_str!("driver/end.bash")),
    ("@RESCUE@", include_str!("driver/rescue.bash")),
    ("@PROMPTS@", include_str!("driver/prompts.bash")),
    ("@POSITIONAL@", include_str!("driver/positional.bash")),
    ("@STDIN@", include_str!("driver/stdin.bash")),
    ("@EXEC@", include_str!("driver/exec.bash")),
    ("@CAREFUL@", include_str!("driver/careful.bash")),
    ("@EXIT@", include_str!("driver/exit.bash")),
];

/// Number of script files.
pub(crate) const SCRIPT_COUNT: usize = SCRIPTS.len();

/// Puts standard output and error aside between calls, where a readonly prompt would be printed there.
const SILENCE: &str = "[[ ! -v __rlm_w ]] || { \
    [[ -e /proc/self/fd/1 ]] && \\exec {__rlm_1}>&1; [[ -e /proc/self/fd/2 ]] && \\exec {__rlm_2}>&2; \
    \\exec >/dev/null 2>&1; }";

/// Undoes [`SILENCE`].
const UNSILENCE: &str = "\
if [[ -v __rlm_1 ]]; then \\exec >&\"$__rlm_1\" {__rlm_1}>&-; else \\exec >&-; fi
if [[ -v __rlm_2 ]]; then \\exec 2>&\"$__rlm_2\" {__rlm_2}>&-; else \\exec 2>&-; fi
\\builtin unset -v __rlm_1 __rlm_2 __rlm_w
";

/// In the file that gives a shell variables: the part at which their values begin.
const VALUES_AT: usize = 2;

/// The shell texts that stay the same over a session.
#[derive(Debug)]
pub(crate) struct Scripts {
    quiet: String,
    enable: String,
    leave_posix: String,
    take_terminal: String,
    tell_positional: String,
    calm_end: String,
    dump_state: String,
    begin_set: String,
    end_set: String,
    end_path: String,
    careful_path: String,
    /// The script files' texts, in the order of [`Paths::scripts`].
    pub(crate) files: [String; SCRIPT_COUNT],
    /// What stands in front of the user's EXIT trap while a call runs.
    pub(crate) exit_hook: String,
    paths: Paths,
}

/// One call, ready to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The file: opening and code, each ended by NUL.
    pub(crate) file: Vec<u8>,
    /// The two lines.
    pub(crate) lines: String,
}

impl Scripts {
    pub(crate) fn new(paths: Paths) -> Self {
        let fill = |text: &str| {
            let mut text = without_comments(text)
                .replace("@COMMANDS@", &paths.commands)
                .replace("@REPORT@", &paths.report)
                .replace("@QUIET_PIPE@", &paths.quiet)
                .replace("@EXIT_HOOK@", EXIT_HOOK);
            for ((name, _), path) in SCRIPTS.iter().zip(&paths.scripts) {
                text = text.replace(name, path);
            }
            text
        };
        let path_to = |name: &str| {
            let at = SCRIPTS.iter().position(|(script, _)| *script == name).unwrap_or(0);
            paths.scripts[at].clone()
        };
        let quiet = fill(include_str!("driver/quiet.bash"));
        let enable = fill(include_str!("driver/enable.bash"));
        let leave_posix = fill(include_str!("driver/leave_posix.bash"));
        let files = SCRIPTS.map(|(_, text)| {
            fill(text)
                .replace("@QUIET@\n", &quiet)
                .replace("@ENABLE@\n", &enable)
                .replace("@LEAVE_POSIX@\n", &leave_posix)
        });
        Self {
            files,
            exit_hook: fill(EXIT_HOOK).trim_end().to_owned(),
            dump_state: fill("{ \\builtin . @EXIT@; } >/dev/null 2>&1\n"),
            begin_set: fill(include_str!("driver/set.bash")),
            end_set: fill(include_str!("driver/set_end.bash")),
            // Both ways, as a terminal's standard input is.
            take_terminal: format!("\\exec <>{}\n", paths.terminal),
            tell_positional: format!("[[ $# -eq 0 ]] || \\builtin . {}\n", path_to("@POSITIONAL@")),
            calm_end: fill(include_str!("driver/calm.bash")),
            end_path: path_to("@END@"),
            careful_path: path_to("@CAREFUL@"),
            enable,
            quiet,
            leave_posix,
            paths,
        }
    }

    /// The call that runs the user's code, without these variables.
    pub(crate) fn call(
        &self,
        code: &str,
        suffix: Suffix,
        saved: &Saved,
        unset: &BTreeSet<String>,
        care: Care,
        nonce: u64,
    ) -> Call {
        let mut opening = String::new();
        self.push_opening(&mut opening, saved);
        for name in unset {
            // It says something of one that the code made readonly.
            opening.push_str(&format!("\\builtin unset -v {name} 2>/dev/null\n"));
        }
        opening.push_str("\\builtin eval -- \"${__rlm[1]}\" || ");
        opening.push_str(if care == Care::Calm {
            "__rlm_s=$?; __rlm_o=$-"
        } else {
            "{ __rlm_s=$?; } >/dev/null 2>&1"
        });
        if care == Care::Guarded {
            opening.push_str("; {\n");
            if !saved.disabled.is_empty() || code.contains("enable") {
                opening.push_str(&self.enable);
            }
            opening.push_str(&self.quiet);
            opening.push_str(&self.tell_positional);
            opening.push_str("} >/dev/null 2>&1; ");
            opening.push_str(SILENCE);
        }
        let mut file = opening.into_bytes();
        file.extend_from_slice(b"\n\0");
        self.push_prefix(&mut file, code, saved, care);
        // Bash ignores NUL bytes in a script, and so do we.
        file.extend(code.bytes().filter(|byte| *byte != 0));
        if code.ends_with("\\\n") {
            // A continued line that ends with the code would be the end of bash's input, and so of bash.
            file.push(b'\n');
        }
        if suffix == Suffix::PipeStatus {
            file.extend_from_slice(b"\n{ __rlm_s=$? __rlm_p=(\"${PIPESTATUS[@]}\"); }");
            file.extend_from_slice(if care == Care::Calm { b"\n" } else { b" >/dev/null 2>&1\n" });
        }
        file.push(0);
        let second = match care {
            Care::Calm => self.calm_line(nonce),
            Care::Guarded => self.end_line(nonce),
            Care::Careful => self.careful_line(nonce),
        };
        // After a broken `[[` the parser of bash 5.2 still expects a condition: the next one is lost, so it gets one to lose.
        let may_break = care != Care::Calm || code.contains("[[");
        let spare = if may_break {
            "{ __rlm_t=${__rlm_t-$?}; \\builtin eval '[[ _ ]]'; } >/dev/null 2>&1\n"
        } else {
            ""
        };
        Call { file, lines: self.lines(&format!("{spare}{second}")) }
    }

    /// The call that sets up a new shell: `setup` runs with no output, then the report comes.
    pub(crate) fn setup(&self, setup: &[u8], nonce: u64) -> Call {
        let mut file = setup.to_vec();
        file.push(b'\n');
        file.extend_from_slice(b"{\n");
        file.extend_from_slice(self.quiet.as_bytes());
        file.extend_from_slice(b"} >/dev/null 2>&1; ");
        file.extend_from_slice(SILENCE.as_bytes());
        file.extend_from_slice(b"\n\0\0");
        Call { file, lines: self.lines(&self.end_line(nonce)) }
    }

    /// The call that gives the shell variables: all or none. The text names them and says where in the file their values
    /// stand, which nothing ever reads as shell.
    pub(crate) fn set(&self, variables: &[(&str, Value)], nonce: u64) -> Call {
        let mut check = self.begin_set.clone();
        let mut assign = String::new();
        let mut values: Vec<&[u8]> = Vec::new();
        for (name, value) in variables {
            check.push_str(&format!("__rlm_q {name}\n"));
            push_assignment(&mut assign, &mut values, name, value);
        }
        check.push_str(&self.end_set);
        assign.push_str("__rlm_u=' '\n");
        let mut file = Vec::new();
        for part in [check.as_bytes(), assign.as_bytes()].into_iter().chain(values.iter().copied()) {
            file.extend_from_slice(part);
            file.push(0);
        }
        // Evaluated line by line, however many there are: a group of all would be too deep for bash.
        let lines = format!(
            "{{ \\builtin mapfile -d '' -t -n {} __rlm <{}; \\builtin eval -- \"$__rlm\"; }} >/dev/null 2>&1\n\n{}",
            VALUES_AT + values.len(),
            self.paths.code,
            self.end_line(nonce)
        );
        Call { file, lines }
    }

    /// What asks for the report once more, should an interrupt have swallowed the second line.
    pub(crate) fn ask_again(&self, nonce: u64) -> String {
        format!("\n{}", self.end_line(nonce))
    }

    /// The second line.
    pub(crate) fn end_line(&self, nonce: u64) -> String {
        format!("{{ \\builtin . {} {nonce}; }} >/dev/null 2>&1\n", self.end_path)
    }

    /// The second line where only an interrupt or a syntax error can be new to it.
    fn calm_line(&self, nonce: u64) -> String {
        self.calm_end.replace("@NONCE@", &nonce.to_string())
    }

    fn careful_line(&self, nonce: u64) -> String {
        format!(
            "{{ __rlm_t=${{__rlm_t-$?}}; [[ -o posix ]] || __rlm_b=$BASHOPTS; POSIXLY_CORRECT=y; \\. {} {nonce}; }} >/dev/null 2>&1\n",
            self.careful_path
        )
    }

    /// An empty line stands between: after an open quote the parser needs a newline before it knows `{` again.
    fn lines(&self, second: &str) -> String {
        format!(
            "\\builtin mapfile -d '' -t -n 2 __rlm <{};\\builtin eval -- \"$__rlm\"\n\n{second}",
            self.paths.code
        )
    }

    fn push_opening(&self, text: &mut String, saved: &Saved) {
        if saved.is_silenced {
            text.push_str(UNSILENCE);
        }
        if saved.exec_is_function {
            text.push_str("if [[ ! -o posix ]]; then __rlm_b=$BASHOPTS; POSIXLY_CORRECT=y; fi\n");
        }
        text.push_str(match saved.stdin {
            Stdin::Terminal => &self.take_terminal,
            Stdin::PutAside => "\\exec <&\"$__rlm_i\" {__rlm_i}<&-\n\\builtin unset -v __rlm_i\n",
            Stdin::Closed => "\\exec <&-\n",
        });
        if saved.exec_is_function {
            text.push_str(&self.leave_posix);
        }
        for [name, attributes, value] in &saved.prompts {
            if attributes.contains(&b'r') {
                continue;
            }
            let mut name = String::from_utf8_lossy(name).into_owned();
            let plain = name.split('[').next().unwrap_or_default().to_owned();
            if !attributes.contains(&b'a') {
                name.clone_from(&plain);
            }
            text.push_str(&format!("{name}={}\n", quote(&String::from_utf8_lossy(value))));
            if attributes.contains(&b'x') {
                text.push_str(&format!("\\builtin export {plain}\n"));
            }
        }
    }

    /// What must happen inside the evaluation, right before the user's first line: traps and options that would show the
    /// driver, and `$?`.
    fn push_prefix(&self, file: &mut Vec<u8>, code: &str, saved: &Saved, care: Care) {
        let is_careful = care == Care::Careful;
        file.extend_from_slice(b"\\builtin unset -v __rlm\n");
        let begin = file.len();
        // The shell hands on its state when it ends, by an EXIT trap of ours that stands between calls. The user's own
        // comes behind it. Where the code looks at traps it must not see ours.
        let may_lose_hook = is_careful || code.contains("trap");
        if may_lose_hook {
            // Second best: the state as it is now.
            file.extend_from_slice(self.dump_state.as_bytes());
        }
        match (saved.exit_trap.strip_prefix(b"trap -- '"), is_careful || lists_traps(code)) {
            (None, false) => {}
            (None, true) => file.extend_from_slice(b"\\builtin trap - EXIT\n"),
            (Some(_), true) => push_trap(file, &saved.exit_trap),
            (Some(user), false) => {
                file.extend_from_slice(b"\\builtin trap -- '");
                file.extend_from_slice(self.exit_hook.as_bytes());
                file.push(b'\n');
                file.extend_from_slice(user);
            }
        }
        let noisy: String =
            saved.options.iter().filter(|flag| b"exv".contains(flag)).map(|flag| *flag as char).collect();
        if !noisy.is_empty() {
            file.extend_from_slice(format!("\\builtin set -{noisy}\n").as_bytes());
        }
        for trap in [&saved.err_trap, &saved.return_trap] {
            push_trap(file, trap);
        }
        let (prepare_status, set_status) = restore_status(code, saved, is_careful);
        file.extend_from_slice(prepare_status.as_bytes());
        push_trap(file, &saved.debug_trap);
        push_disabled(file, saved);
        file.extend_from_slice(saved.builtin_function.as_deref().unwrap_or_default());
        // The last command, so that the user's first sees it. In a list, so that neither ERR nor errexit takes the status
        // for a failure.
        file.extend_from_slice(set_status.as_bytes());
        if file.len() > begin {
            file.splice(begin..begin, b"{\n".iter().copied());
            file.extend_from_slice(if care == Care::Calm { b"}\n" } else { b"} >/dev/null 2>&1\n" });
        }
    }
}

/// Appends what makes one variable anew, and its values to those that the file has behind the text. Old attributes go, for
/// with some of them (`-i`, `-n`) an assignment evaluates its value; an exported variable stays exported.
fn push_assignment<'a>(text: &mut String, values: &mut Vec<&'a [u8]>, name: &str, value: &'a Value) {
    text.push_str(&format!(
        "\\builtin unset -n {name}\n__rlm_k=\n[[ ! -v {name} ]] || __rlm_k=${{{name}@a}}\n\\builtin unset -v {name}\n"
    ));
    let first = VALUES_AT + values.len();
    match value {
        Value::Unset => return,
        Value::Scalar(value) => {
            text.push_str(&format!("{name}=\"${{__rlm[{first}]}}\"\n"));
            values.push(value);
        }
        Value::Indexed(items) => {
            text.push_str(&format!("{name}=(\"${{__rlm[@]:{first}:{}}}\")\n", items.len()));
            values.extend(items.iter().map(Vec::as_slice));
        }
        Value::Associative(fields) => {
            text.push_str(&format!("\\builtin declare -A {name}\n{name}=()\n"));
            for (at, [key, value]) in fields.iter().enumerate() {
                let (key_at, value_at) = (first + 2 * at, first + 2 * at + 1);
                text.push_str(&format!(
                    "__rlm_k=${{__rlm[{key_at}]}}\n{name}[\"$__rlm_k\"]=\"${{__rlm[{value_at}]}}\"\n"
                ));
                values.extend([key.as_slice(), value]);
            }
            return;
        }
    }
    text.push_str(&format!("[[ $__rlm_k != *x* ]] || \\builtin declare -x {name}\n"));
}

/// What puts `$?` and PIPESTATUS back: what to define first, and the command that does it.
fn restore_status(code: &str, saved: &Saved, is_careful: bool) -> (String, String) {
    let asks_pipe_status = saved.pipe_status.len() > 1 && code.contains("PIPESTATUS");
    if asks_pipe_status || (is_careful && saved.status != 0) {
        // Only a pipeline can set PIPESTATUS, so this one time processes are made.
        let parts: &[i32] = if asks_pipe_status { &saved.pipe_status } else { &[saved.status] };
        let negation = if saved.status == 0 && parts.last() != Some(&0) { "! " } else { "" };
        // By path, for a function may be named `exit`.
        let parts: Vec<String> = parts.iter().map(|status| format!("/bin/sh -c 'exit {status}'")).collect();
        // `:` itself must not run: it would have a status of its own.
        let list = if saved.status == 0 { "" } else { " && \\:" };
        return (String::new(), format!("{negation}{}{list}\n", parts.join(" | ")));
    }
    if saved.status == 0 {
        return (String::new(), String::new());
    }
    let body = format!("{{ \\builtin unset -f __rlm_r; \\builtin return {}; }}", saved.status);
    (format!("__rlm_r() {body}\n"), "__rlm_r '' && \\builtin :\n".to_owned())
}

fn push_trap(file: &mut Vec<u8>, trap: &[u8]) {
    if !trap.is_empty() {
        file.extend_from_slice(b"\\builtin ");
        file.extend_from_slice(trap);
    }
}

fn push_disabled(file: &mut Vec<u8>, saved: &Saved) {
    for name in &saved.disabled {
        file.extend_from_slice(b"\\builtin enable -n ");
        file.extend_from_slice(name);
        file.push(b'\n');
    }
}

/// What runs as the EXIT trap, in front of the user's own. In a group, so that a DEBUG trap shows nothing of it.
const EXIT_HOOK: &str = "{ __rlm_s=$? __rlm_x=1; \\builtin . @EXIT@; } >/dev/null 2>&1";

/// Quotes text so that the shell reads it as one word.
pub(crate) fn quote(text: &str) -> String {
    String::from_utf8_lossy(&quote_bytes(text.as_bytes())).into_owned()
}

/// Quotes bytes so that the shell reads them as one word.
pub(crate) fn quote_bytes(bytes: &[u8]) -> Vec<u8> {
    let inner = bytes.split(|byte| *byte == b'\'').collect::<Vec<_>>().join(&b"'\\''"[..]);
    [b"'", &inner[..], b"'"].concat()
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.fold(String::with_capacity(text.len()), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts() -> Scripts {
        let path = |name: &str| format!("/{name}");
        Scripts::new(Paths {
            commands: path("commands"),
            report: path("report"),
            quiet: path("quiet"),
            code: path("code"),
            state: path("state"),
            terminal: path("terminal"),
            scripts: std::array::from_fn(|at| path(&at.to_string())),
        })
    }

    #[test]
    fn every_hole_is_filled() {
        for text in scripts().files {
            let holes =
                text.split('@').skip(1).filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
            assert_eq!(holes.count(), 0, "{text}");
            assert!(!text.contains("\n#"), "{text}");
        }
    }

    #[test]
    fn the_lines_are_short_enough_for_one_read_of_bash() {
        let code = "builtin";
        for care in [Care::Calm, Care::Guarded, Care::Careful] {
            let unset = BTreeSet::from(["a".repeat(1000)]);
            let call = scripts().call(code, Suffix::None, &Saved::default(), &unset, care, u64::MAX);
            assert!(call.lines.len() + 6 * 24 < 1024, "{}", call.lines);
        }
    }

    #[test]
    fn quoting_survives_quotes() {
        assert_eq!(quote("it's"), r"'it'\''s'");
    }
}
