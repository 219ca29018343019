//! The legend of the driver: every name that it has in the shell, and every token that it prints for the worker.
//!
//! The `.bash` files write variables by their names and tokens as `@TOKEN@`; Rust uses the constants below for both.
//!
//! # Variables and functions
//!
//! None of them is there while the user's code runs, but for those that live "until the next opening". The files are those
//! of `driver/`; the *opening* is the first part of a call, which `driver.rs` puts together.
//!
//! | name | value | set by | lives until |
//! | --- | --- | --- | --- |
//! | `__rlm_call` | array: the parts of the call's file (opening and code; of op `set` also the values) | the first line | the code begins; the end of the report |
//! | `__rlm_status` | `$?` of the code; unset where that is 0 | opening; `rescue.bash` where the code was thrown out of | the end of the report |
//! | `__rlm_pipe_status` | array: PIPESTATUS of the code, where it has a pipeline | the line appended to the code | the end of the report |
//! | `__rlm_options` | `$-` of the code. Unset: the rest of the opening was skipped | opening, `quiet.bash` | the end of the report |
//! | `__rlm_end_status` | `$?` as the second line found it: the status of code that was thrown out of | the second line, or the spare one before it | the end of the report |
//! | `__rlm_thrown` | 1: an interrupt or a syntax error threw the shell out of the code, and `rescue.bash` has quieted it | `rescue.bash` | the end of the report |
//! | `__rlm_stdin` | where the user's standard input is: `@ASIDE@`, `@CLOSED@`, or empty for the terminal | `stdin.bash` | the end of the report |
//! | `__rlm_stdin_fd` | descriptor of the user's standard input, where it is put aside | `stdin.bash` | the next opening |
//! | `__rlm_silenced` | 1: a prompt is readonly, so that output is put aside between calls | `prompts.bash` | the next opening |
//! | `__rlm_stdout_fd`, `__rlm_stderr_fd` | descriptors of the user's outputs, where they are put aside; unset where they were closed | `silence.bash` | the next opening |
//! | `__rlm_exec` | 1: a function is named `exec` | `exec.bash` | the end of the report |
//! | `__rlm_bashopts` | `BASHOPTS` from before POSIX mode, where the driver turned that on | opening, second line, `exec.bash` | `leave_posix.bash` |
//! | `__rlm_option` | name of a shell option | `leave_posix.bash` | its end |
//! | `__rlm_functions` | `@FUNCTIONS@`, where there is a function named `builtin` | `shadowed.bash` | its end |
//! | `__rlm_index` | index of an element of PROMPT_COMMAND | `prompts.bash` | its end |
//! | `__rlm_exiting` | 1: the shell ends, so that no signal may come between | `exit_hook.bash` | the end of `exit.bash` |
//! | `__rlm_posix` | the command that turns POSIX mode on again, where it is on | `exit.bash` | its end |
//! | `__rlm_return` | function that returns the status of the call before | opening, right before the code | its own call, which is next |
//! | `__rlm_check` | function of op `set` that notes a readonly name | `set.bash` | `set_end.bash` |
//! | `__rlm_readonly` | names that op `set` found readonly; a space once everything is set | `set.bash`, the last assignment | `set_end.bash` |
//! | `__rlm_attributes` | attributes of a variable before op `set` makes it anew | each assignment | `set_end.bash` |
//! | `__rlm_key` | key of an element of an associative array that op `set` assigns | each assignment | `set_end.bash` |
//! | `__rlm_arguments`, `__rlm_length` | arguments of a root tool, joined, and their length in characters | the tool's function, as locals | its end |
//!
//! # Tokens
//!
//! Both pipes carry tokens, each ended by NUL. A call's *report* goes to the pipe that the worker waits for, what comes
//! before it to the *quiet* pipe, in any order.
//!
//! | token | pipe | means | followed by |
//! | --- | --- | --- | --- |
//! | `BAR` | report | the shell is alive and begins to report | `BEGIN` |
//! | `BEGIN` + nonce | report | the report with this nonce | status, PIPESTATUS, `BAR`, options, thrown, place of standard input, exec, silenced, PWD, RLM_READY, RLM_CONTENT, `END` |
//! | `END` + nonce | report | the report is whole | |
//! | `TERMINAL`, `ASIDE`, `CLOSED` | report | the user's standard input is the terminal, put aside, closed | |
//! | `STATE` | report | the state that the shell hands on | status, options, PWD, RLM_READY, RLM_CONTENT, shell text, `STATE_END` |
//! | `STATE_END` | report | the state is whole | |
//! | `VERSION` | quiet | a new shell is ready to be used | its version |
//! | `FUNCTIONS` | quiet | the text before it defines a function named `builtin` and the exported ones | |
//! | `DISABLED` | quiet | the text before it is the list of disabled builtins | |
//! | `PROMPTS` | quiet | prompt variables | name, attributes and value of each; `BAR` |
//! | `POSITIONAL` | quiet | positional parameters | their number; each of them |
//! | `SET` | quiet | what became of op `set` | readonly names, or a space where everything was set |
//!
//! Traps come on the quiet pipe as `trap -p` prints them, which begins with `trap -- `.

// The variables that Rust writes; the others stand in the `.bash` files alone.
pub(crate) const CALL: &str = "__rlm_call";
pub(crate) const STATUS: &str = "__rlm_status";
pub(crate) const PIPE_STATUS: &str = "__rlm_pipe_status";
pub(crate) const OPTIONS: &str = "__rlm_options";
pub(crate) const END_STATUS: &str = "__rlm_end_status";
pub(crate) const STDIN_FD: &str = "__rlm_stdin_fd";
pub(crate) const BASHOPTS: &str = "__rlm_bashopts";
pub(crate) const RETURN: &str = "__rlm_return";
pub(crate) const CHECK: &str = "__rlm_check";
pub(crate) const READONLY: &str = "__rlm_readonly";
pub(crate) const ATTRIBUTES: &str = "__rlm_attributes";
pub(crate) const KEY: &str = "__rlm_key";
pub(crate) const ARGUMENTS: &str = "__rlm_arguments";
pub(crate) const LENGTH: &str = "__rlm_length";

macro_rules! tokens {
    ($($name:ident = $text:literal)*) => {
        $(pub(crate) const $name: &str = $text;)*

        /// Each token's name between `@`, as the `.bash` files write it, and its text.
        pub(crate) const TOKENS: &[(&str, &str)] = &[$((concat!("@", stringify!($name), "@"), $text)),*];
    };
}

tokens! {
    BAR = "|"
    BEGIN = "B"
    END = "E"
    TERMINAL = "t"
    ASIDE = "s"
    CLOSED = "c"
    STATE = "X"
    STATE_END = "Y"
    VERSION = "V"
    FUNCTIONS = "F"
    DISABLED = "N"
    PROMPTS = "P"
    POSITIONAL = "A"
    SET = "S"
}
