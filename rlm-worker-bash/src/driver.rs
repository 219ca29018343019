//! The shell code around a call.
//!
//! A call is two lines on the command pipe, in one short write, and a file. The first line reads the file and evaluates
//! its first part, the *opening*, which restores the user's settings (standard input, prompts), evaluates the second
//! part, the code, at top level, and then quiets the shell. The second line, which bash reaches even if an interrupt or
//! a syntax error throws it back to its top level, sends the report. In between, bash prints its job notices, as before
//! a prompt.
//!
//! None of our descriptors, functions or variables exist while the user's code runs; the worker keeps everything that
//! must outlast a call, as [`UserState`]. Every builtin is called as `\builtin name`, so that neither a function nor an
//! alias can replace it; the `.bash` files explain the exceptions. The [`legend`] explains the names and tokens in
//! them.

pub(crate) mod legend;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::BTreeSet;

use rlm_core::shell::{quoted, quoted_bytes};

use self::legend::{
    ATTRIBUTES, BASHOPTS, CALL, CHECK, END_STATUS, KEY, NONCE, OPTIONS, PIPE_STATUS, READONLY, RETURN,
    STATUS, STDIN_FD,
};
pub(crate) use self::texts::{Paths, SCRIPT_COUNT};
use self::texts::{SCRIPTS, fill};
use crate::code::{Driver, Suffix, lists_traps};
use crate::report::{Marks, Stdin, UserState};
use crate::state::RawAnswer;
use crate::variables::Value;

/// Index of the part of an op `set`'s file at which the values begin.
const VALUES_AT: usize = 2;

/// Builtins that the driver calls once the call's parts are gone. An interrupt before the driver disables them again leaves them
/// enabled.
const NEEDED_LAST: [&[u8]; 6] = [b":", b"builtin", b"enable", b"return", b"trap", b"unset"];

/// The shell texts that stay the same throughout a session.
#[derive(Debug)]
pub(crate) struct Scripts {
    quiet: String,
    enable: String,
    leave_posix: String,
    silence: String,
    unsilence: String,
    take_terminal: String,
    tell_positional: String,
    tell_version: String,
    fast_end: String,
    dump_state: String,
    take_state: String,
    begin_set: String,
    end_set: String,
    complete: String,
    save: String,
    end_path: String,
    shadowed_path: String,
    /// The contents of the script files, in the order of [`Paths::scripts`].
    pub(crate) files: [String; SCRIPT_COUNT],
    /// The command in front of the user's EXIT trap while a call runs.
    exit_hook: String,
    paths: Paths,
    /// True if each call hands on the state of the shell before its code runs.
    pub(crate) takes_checkpoints: bool,
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
        let fill = |text: &str| fill(text, &paths);
        Self {
            quiet: fill("@include quiet.bash@\n"),
            enable: fill("@include enable.bash@\n"),
            leave_posix: fill("@include leave_posix.bash@\n"),
            silence: fill(include_str!("driver/silence.bash")),
            unsilence: fill(include_str!("driver/unsilence.bash")),
            // Opened for reading and writing, like a terminal's standard input.
            take_terminal: format!("\\exec <>{}\n", paths.terminal),
            tell_positional: fill("[[ $# -eq 0 ]] || \\builtin . @positional.bash@\n"),
            tell_version: fill("\\builtin printf '\\0@VERSION@\\0%s\\0' \"$BASH_VERSION\" >@QUIET@\n"),
            fast_end: fill(include_str!("driver/fast.bash")),
            dump_state: fill("{ \\builtin . @exit.bash@; } >/dev/null 2>&1\n"),
            take_state: fill(include_str!("driver/take_state.bash")),
            begin_set: fill(include_str!("driver/set.bash")),
            end_set: fill(include_str!("driver/set_end.bash")),
            complete: fill(include_str!("driver/complete.bash")),
            save: fill(include_str!("driver/save.bash")),
            end_path: fill("@end.bash@"),
            shadowed_path: fill("@shadowed.bash@"),
            exit_hook: fill("@include exit_hook.bash@"),
            files: SCRIPTS.map(|(_, text)| fill(text)),
            takes_checkpoints: false,
            paths,
        }
    }

    /// The marks by which the worker reads what the shell prints.
    pub(crate) fn marks(&self) -> Marks {
        Marks { key: self.paths.key.clone(), exit_hook: self.exit_hook.clone() }
    }

    /// The call that runs the user's code, after unsetting these variables.
    pub(crate) fn call(
        &self,
        code: &str,
        suffix: Suffix,
        user: &UserState,
        unset: &BTreeSet<String>,
        driver: Driver,
        nonce: u64,
    ) -> Call {
        let mut opening = String::new();
        self.push_opening(&mut opening, user);
        for name in unset {
            // `unset` prints an error for a variable that the code made readonly.
            opening.push_str(&format!("\\builtin unset -v {name} 2>/dev/null\n"));
        }
        let mut prefix = Vec::new();
        self.push_prefix(&mut prefix, code, user, driver);
        // The code begins at line 1. Only an assignment in the redirection of a compound command lasts, in bash 5.2. It would create
        // a LINENO that code has unset, and one that is readonly would end the call.
        let line = -(prefix.iter().filter(|byte| **byte == b'\n').count() as i64);
        opening.push_str(&format!(
            "if [[ -v LINENO && ${{LINENO@a}} != *r* ]]; then [[ _ ]] 2>&\"$((LINENO={line},2))\"; fi\n"
        ));
        opening.push_str(&format!("\\builtin eval -- \"${{{CALL}[1]}}\" || "));
        opening.push_str(&if driver == Driver::Fast {
            format!("{STATUS}=$?; {OPTIONS}=$-")
        } else {
            format!("{{ {STATUS}=$?; }} >/dev/null 2>&1")
        });
        if driver == Driver::Standard {
            opening.push_str("; {\n");
            if !user.disabled.is_empty() || code.contains("enable") {
                opening.push_str(&self.enable);
            }
            opening.push_str(&self.quiet);
            opening.push_str(&self.tell_positional);
            opening.push_str("} >/dev/null 2>&1; ");
            opening.push_str(&self.silence);
        }
        let mut file = opening.into_bytes();
        file.extend_from_slice(b"\n\0");
        file.extend(prefix);
        // Bash ignores NUL bytes in a script, and so do we.
        file.extend(code.bytes().filter(|byte| *byte != 0));
        if code.ends_with("\\\n") {
            // If the code ends with a continued line, the continuation would be the end of bash's input, and so of
            // bash.
            file.push(b'\n');
        }
        if suffix == Suffix::PipeStatus {
            // The saved text is not an array: a shell that an interrupt throws out of `name=(...)` goes on reading that text,
            // and then ends (bash 5.2).
            let save = format!("\n{{ {STATUS}=$? {PIPE_STATUS}=\"${{PIPESTATUS[@]}}\"; }}");
            file.extend_from_slice(save.as_bytes());
            file.extend_from_slice(if driver == Driver::Fast { b"\n" } else { b" >/dev/null 2>&1\n" });
        }
        file.push(0);
        let second = match driver {
            Driver::Fast => self.fast_line(nonce),
            Driver::Standard => self.end_line(nonce),
            Driver::Shadowed => self.shadowed_line(nonce),
        };
        // After a broken `[[` the parser of bash 5.2 still expects a condition, and loses the next command: so it gets
        // one to lose.
        let may_break = driver != Driver::Fast || code.contains("[[");
        let spare = if may_break {
            format!("{{ {END_STATUS}=${{{END_STATUS}-$?}}; \\builtin eval '[[ _ ]]'; }} >/dev/null 2>&1\n")
        } else {
            String::new()
        };
        let again = if user.stdin != Stdin::Terminal || code.contains("exec") {
            self.again_line(&second)
        } else {
            String::new()
        };
        Call { file, lines: self.lines(&(spare + &second + &again)) }
    }

    /// The call that sets up a new shell, with the state that an old one handed on, of which these are the values of large arrays,
    /// or otherwise only with an answer. The shell reports its version.
    pub(crate) fn set_up(
        &self,
        positional: Option<&[Vec<u8>]>,
        state_values: Option<&[u8]>,
        answer: &RawAnswer,
        nonce: u64,
    ) -> Call {
        let mut file = b"\\builtin unset -v PS1 PS2 HISTFILE\n\\builtin set +o history +o histexpand\n\\builtin history -c\n".to_vec();
        if let Some(positional) = positional {
            file.extend_from_slice(b"\\builtin set --");
            for value in positional {
                file.push(b' ');
                file.extend_from_slice(&quoted_bytes(value));
            }
            file.push(b'\n');
        }
        if state_values.is_some() {
            file.extend_from_slice(self.take_state.as_bytes());
        } else {
            for (name, value) in [("RLM_READY", &answer.ready), ("RLM_CONTENT", &answer.content)] {
                if !value.is_empty() {
                    file.extend_from_slice(&[name.as_bytes(), b"=", &quoted_bytes(value), b"\n"].concat());
                }
            }
        }
        for part in [&self.tell_version, "\n{\n", &self.quiet, "} >/dev/null 2>&1; ", &self.silence, "\n\0\0"]
        {
            file.extend_from_slice(part.as_bytes());
        }
        file.extend_from_slice(state_values.unwrap_or_default());
        Call { file, lines: self.lines(&self.end_line(nonce)) }
    }

    /// The call that sets variables: all or none. Its shell text has only their names and the positions of their values
    /// in the file, which are never read as shell code.
    pub(crate) fn set(&self, variables: &[(&str, Value)], nonce: u64) -> Call {
        let mut check = self.begin_set.clone();
        let mut assign = String::new();
        let mut values: Vec<&[u8]> = Vec::new();
        for (name, value) in variables {
            check.push_str(&format!("{CHECK} {name}\n"));
            push_assignment(&mut assign, &mut values, name, value);
        }
        check.push_str(&self.end_set);
        assign.push_str(&format!("{READONLY}=' '\n"));
        let mut file = Vec::new();
        for part in [check.as_bytes(), assign.as_bytes()].into_iter().chain(values.iter().copied()) {
            file.extend_from_slice(part);
            file.push(0);
        }
        // Evaluated line by line: one group of many variables would be nested too deep for bash.
        Call { file, lines: self.quiet_lines(VALUES_AT + values.len(), nonce) }
    }

    /// The call that prints what can complete a word. The word is never read as shell code.
    pub(crate) fn complete(&self, kind: &str, word: &str, nonce: u64) -> Call {
        // Bash has no NUL bytes in words.
        let word = word.replace('\0', "");
        let file = format!("{}\0{kind}\0{word}\0", self.complete).into_bytes();
        Call { file, lines: self.quiet_lines(3, nonce) }
    }

    /// The call that hands on the state of the shell, which goes on.
    pub(crate) fn save(&self, nonce: u64) -> Call {
        Call { file: format!("{}\0", self.save).into_bytes(), lines: self.quiet_lines(1, nonce) }
    }

    /// The lines of a call of the driver's own, without output, whose file has so many parts.
    fn quiet_lines(&self, parts: usize, nonce: u64) -> String {
        format!(
            "{{ \\builtin mapfile -d '' -t -O 0 -n {parts} {CALL} <{}; \\builtin eval -- \"${CALL}\"; }} >/dev/null 2>&1\n\n{}",
            self.paths.code,
            self.end_line(nonce)
        )
    }

    /// The line that asks for the report again, in case an interrupt swallowed the second line.
    pub(crate) fn ask_again(&self, nonce: u64) -> String {
        format!("\n{}", self.end_line(nonce))
    }

    /// The second line of a call.
    pub(crate) fn end_line(&self, nonce: u64) -> String {
        format!("{{ {}; \\builtin . {}; }} >/dev/null 2>&1\n", begin_end(nonce), self.end_path)
    }

    /// The second line once more, for a shell that an interrupt threw out of it. Bash has read it with the second, and would
    /// take its next commands from wherever the code's standard input is: a file may be run, or its end end the shell.
    fn again_line(&self, second: &str) -> String {
        let second = second.trim_end();
        format!("{{ [[ /proc/self/fd/0 -ef {} ]] || {second}; }} >/dev/null 2>&1\n", self.paths.commands)
    }

    /// The second line, if only an interrupt or a syntax error can have affected it.
    fn fast_line(&self, nonce: u64) -> String {
        self.fast_end.replace("@NONCE@", &nonce.to_string())
    }

    fn shadowed_line(&self, nonce: u64) -> String {
        format!(
            "{{ {}; [[ -o posix ]] || {BASHOPTS}=$BASHOPTS; POSIXLY_CORRECT=y; \\. {}; }} >/dev/null 2>&1\n",
            begin_end(nonce),
            self.shadowed_path
        )
    }

    /// The two lines are separated by an empty line: after an open quote the parser needs a newline before it recognises `{`
    /// again.
    fn lines(&self, second: &str) -> String {
        // From element 0 on: without an origin `mapfile` empties the array first, and an interrupt right then would look like one
        // in the code.
        format!(
            "\\builtin mapfile -d '' -t -O 0 -n 2 {CALL} <{};\\builtin eval -- \"${CALL}\"\n\n{second}",
            self.paths.code
        )
    }

    fn push_opening(&self, text: &mut String, user: &UserState) {
        if user.is_silenced {
            text.push_str(&self.unsilence);
        }
        if user.exec_is_function {
            text.push_str(&format!(
                "if [[ ! -o posix ]]; then {BASHOPTS}=$BASHOPTS; POSIXLY_CORRECT=y; fi\n"
            ));
        }
        match user.stdin {
            Stdin::Terminal => text.push_str(&self.take_terminal),
            Stdin::Saved => text.push_str(&format!(
                "\\exec <&\"${STDIN_FD}\" {{{STDIN_FD}}}<&-\n\\builtin unset -v {STDIN_FD}\n"
            )),
            Stdin::Closed => text.push_str("\\exec <&-\n"),
        }
        if user.exec_is_function {
            text.push_str(&self.leave_posix);
        }
        for [name, attributes, value] in &user.prompts {
            if attributes.contains(&b'r') {
                continue;
            }
            let mut name = String::from_utf8_lossy(name).into_owned();
            let plain = name.split('[').next().unwrap_or_default().to_owned();
            if !attributes.contains(&b'a') {
                name.clone_from(&plain);
            }
            text.push_str(&format!("{name}={}\n", quoted(&String::from_utf8_lossy(value))));
            if attributes.contains(&b'x') {
                text.push_str(&format!("\\builtin export {plain}\n"));
            }
        }
    }

    /// Adds what must run inside the evaluation, right before the user's first line: traps and options that would show
    /// the driver, and `$?`.
    fn push_prefix(&self, file: &mut Vec<u8>, code: &str, user: &UserState, driver: Driver) {
        let is_shadowed = driver == Driver::Shadowed;
        let begin = file.len();
        // The shell hands on its state when it ends, by an EXIT trap of ours between calls. The user's own trap runs
        // after it. Code that looks at traps must not see ours.
        let may_lose_hook = is_shadowed || code.contains("trap");
        if may_lose_hook || self.takes_checkpoints {
            // Second best: the current state, without the code.
            file.extend_from_slice(format!("\\builtin unset -v {CALL}; {CALL}=\n").as_bytes());
            file.extend_from_slice(self.dump_state.as_bytes());
        }
        match (user.exit_trap.strip_prefix(b"trap -- '"), is_shadowed || lists_traps(code)) {
            (None, false) => {}
            (None, true) => file.extend_from_slice(b"\\builtin trap - EXIT\n"),
            (Some(_), true) => push_trap(file, &user.exit_trap),
            (Some(user), false) => {
                file.extend_from_slice(b"\\builtin trap -- '");
                file.extend_from_slice(self.exit_hook.as_bytes());
                file.push(b'\n');
                file.extend_from_slice(user);
            }
        }
        let noisy: String =
            user.options.iter().filter(|flag| b"exv".contains(flag)).map(|flag| *flag as char).collect();
        if !noisy.is_empty() {
            file.extend_from_slice(format!("\\builtin set -{noisy}\n").as_bytes());
        }
        for trap in [&user.err_trap, &user.return_trap] {
            push_trap(file, trap);
        }
        let (prepare_status, set_status) = restore_status(code, user, is_shadowed);
        file.extend_from_slice(prepare_status.as_bytes());
        let (needed, others): (Vec<_>, Vec<_>) =
            user.disabled.iter().partition(|name| NEEDED_LAST.contains(&name.as_slice()));
        push_disabled(file, &others);
        // As long as this variable exists, the code has not begun. A DEBUG trap would see it go, and `$_` its name.
        let begin_code = format!("\\builtin unset -v {CALL}; \\builtin : ''\n");
        file.extend_from_slice(begin_code.as_bytes());
        push_trap(file, &user.debug_trap);
        push_disabled(file, &needed);
        file.extend_from_slice(user.builtin_function.as_deref().unwrap_or_default());
        // This command comes last, so that the user's first command sees its status. It is in a list, so that neither
        // ERR nor errexit takes the status for a failure.
        file.extend_from_slice(set_status.as_bytes());
        if file.len() - begin > begin_code.len() {
            file.splice(begin..begin, b"{\n".iter().copied());
            file.extend_from_slice(if driver == Driver::Fast { b"}\n" } else { b"} >/dev/null 2>&1\n" });
        }
    }
}

/// Keeps the status of code that was aborted, and tells the rest of the second line its nonce.
fn begin_end(nonce: u64) -> String {
    format!("{END_STATUS}=${{{END_STATUS}-$?}} {NONCE}={nonce}")
}

/// Appends the text that sets one variable, and its values to those at the end of the file. Old attributes are removed,
/// because some of them (`-i`, `-n`) make an assignment evaluate its value; an exported variable stays exported.
fn push_assignment<'a>(text: &mut String, values: &mut Vec<&'a [u8]>, name: &str, value: &'a Value) {
    text.push_str(&format!(
        "\\builtin unset -n {name}\n{ATTRIBUTES}=\n[[ ! -v {name} ]] || {ATTRIBUTES}=${{{name}@a}}\n\\builtin unset -v {name}\n"
    ));
    let first = VALUES_AT + values.len();
    match value {
        Value::Unset => return,
        Value::Scalar(value) => {
            text.push_str(&format!("{name}=\"${{{CALL}[{first}]}}\"\n"));
            values.push(value);
        }
        Value::Indexed(items) => {
            text.push_str(&format!("{name}=(\"${{{CALL}[@]:{first}:{}}}\")\n", items.len()));
            values.extend(items.iter().map(Vec::as_slice));
        }
        Value::Associative(fields) => {
            text.push_str(&format!("\\builtin declare -A {name}\n{name}=()\n"));
            for (at, [key, value]) in fields.iter().enumerate() {
                let (key_at, value_at) = (first + 2 * at, first + 2 * at + 1);
                text.push_str(&format!(
                    "{KEY}=${{{CALL}[{key_at}]}}\n{name}[\"${KEY}\"]=\"${{{CALL}[{value_at}]}}\"\n"
                ));
                values.extend([key.as_slice(), value]);
            }
            return;
        }
    }
    text.push_str(&format!("[[ ${ATTRIBUTES} != *x* ]] || \\builtin declare -x {name}\n"));
}

/// The text that restores `$?` and PIPESTATUS: definitions to run first, and the command that does it.
fn restore_status(code: &str, user: &UserState, is_shadowed: bool) -> (String, String) {
    let asks_pipe_status = user.pipe_status.len() > 1 && code.contains("PIPESTATUS");
    if asks_pipe_status || (is_shadowed && user.status != 0) {
        // Only a pipeline can set PIPESTATUS, so processes are created here.
        let parts: &[i32] = if asks_pipe_status { &user.pipe_status } else { &[user.status] };
        let negation = if user.status == 0 && parts.last() != Some(&0) { "! " } else { "" };
        // `sh` is named by path, as a function may be named `exit`.
        let parts: Vec<String> = parts.iter().map(|status| format!("/bin/sh -c 'exit {status}'")).collect();
        // `:` itself must not run: it would set the status.
        let list = if user.status == 0 { "" } else { " && \\:" };
        return (String::new(), format!("{negation}{}{list}\n", parts.join(" | ")));
    }
    if user.status == 0 {
        return (String::new(), String::new());
    }
    let body = format!("{{ \\builtin unset -f {RETURN}; \\builtin return {}; }}", user.status);
    (format!("{RETURN}() {body}\n"), format!("{RETURN} '' && \\builtin :\n"))
}

fn push_trap(file: &mut Vec<u8>, trap: &[u8]) {
    if !trap.is_empty() {
        file.extend_from_slice(b"\\builtin ");
        file.extend_from_slice(trap);
    }
}

fn push_disabled(file: &mut Vec<u8>, names: &[&Vec<u8>]) {
    for name in names {
        file.extend_from_slice(b"\\builtin enable -n ");
        file.extend_from_slice(name);
        file.push(b'\n');
    }
}
