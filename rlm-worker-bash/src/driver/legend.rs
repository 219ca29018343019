//! The legend of the driver: every name that it uses in the shell, and every token that it prints for the worker.
//!
//! The `.bash` files use the long names of variables, and write tokens as `@TOKEN@`; Rust uses the constants below for both.
//! The names in the shell are short because bash reads each call one character at a time: long ones would cost every call
//! some microseconds.
//!
//! # Variables and functions
//!
//! None of them exists while the user's code runs, except those that live until "the next opening". The files are in
//! `driver/`; the *opening* is the first part of a call, which `driver.rs` puts together.
//!
//! | name | in the shell | value | set by | lives until |
//! | --- | --- | --- | --- | --- |
//! | `__rlm_call` | `__rlm` | array: the parts of the call's file (opening and code; for op `set` also the values, for op `complete` kind and word) | the first line; empty: `end.bash`, `save.bash`, before `exit.bash` | the code begins |
//! | `__rlm_status` | `__rlm_s` | `$?` of the code; unset if that is 0 | opening; `rescue.bash` if the code was aborted | the end of the report |
//! | `__rlm_pipe_status` | `__rlm_p` | PIPESTATUS of the code, separated by spaces, if it has a pipeline | the line appended to the code | the end of the report |
//! | `__rlm_options` | `__rlm_o` | `$-` of the code. Unset: the rest of the opening was skipped | opening, `quiet.bash` | the end of the report |
//! | `__rlm_end_status` | `__rlm_t` | `$?` at the second line: the status of code that was aborted | the second line, or the spare one before it | the end of the report |
//! | `__rlm_nonce` | `__rlm_y` | nonce of the line that asks for the report | that line | the end of the report |
//! | `__rlm_thrown` | `__rlm_n` | 1, and `EARLY` if the code has not begun: an interrupt or a syntax error threw the shell out of the call, and `rescue.bash` has quieted it | `rescue.bash` | the end of the report |
//! | `__rlm_stdin` | `__rlm_f` | location of the user's standard input: `@SAVED@`, `@CLOSED@`, or empty for the terminal | `stdin.bash` | the end of the report |
//! | `__rlm_stdin_fd` | `__rlm_i` | descriptor of the user's standard input, if it is saved | `stdin.bash` | the next opening |
//! | `__rlm_silenced` | `__rlm_w` | 1: a prompt is readonly, so output is redirected between calls | `prompts.bash` | the next opening |
//! | `__rlm_stdout_fd`, `__rlm_stderr_fd` | `__rlm_1`, `__rlm_2` | saved descriptors of the user's outputs; unset if they were closed | `silence.bash` | the next opening |
//! | `__rlm_exec` | `__rlm_e` | 1: a function is named `exec` | `exec.bash` | the end of the report |
//! | `__rlm_bashopts` | `__rlm_b` | `BASHOPTS` from before POSIX mode, if the driver turned that on | opening, second line, `exec.bash` | `leave_posix.bash` |
//! | `__rlm_option` | `__rlm_v` | name of a shell option; what comes before values in the set-up's file | `leave_posix.bash`; `take_state.bash` | its end |
//! | `__rlm_value` | `__rlm_c` | array: the value of a large variable of the old shell | `restoration.rs` | the end of `take_state.bash` |
//! | `__rlm_functions` | `__rlm_g` | `@FUNCTIONS@`, if there is a function named `builtin` | `shadowed.bash` | its end |
//! | `__rlm_index` | `__rlm_j` | index of an element of PROMPT_COMMAND | `prompts.bash` | its end |
//! | `__rlm_exiting` | `__rlm_x` | 1: the shell is ending, and no signal may interrupt | `exit_hook.bash` | the end of `exit.bash` |
//! | `__rlm_exit_status`, `__rlm_flags` | `__rlm_d`, `__rlm_h` | `$?` and `$-` before `exit.bash`; apart from `__rlm_options`, which an interrupt here must leave unset | `exit_hook.bash`, `exit.bash` | the end of `exit.bash` |
//! | `__rlm_posix` | `__rlm_z` | the command that turns POSIX mode on again, if it is on | `exit.bash` | its end |
//! | `__rlm_return` | `__rlm_r` | function that returns the status of the previous call | opening, right before the code | its own call, right after |
//! | `__rlm_check` | `__rlm_q` | function of op `set` that records a readonly name | `set.bash` | `set_end.bash` |
//! | `__rlm_readonly` | `__rlm_u` | names that op `set` found readonly; a space once everything is set | `set.bash`, the last assignment | `set_end.bash` |
//! | `__rlm_attributes` | `__rlm_m` | attributes of a variable before op `set` replaces it | each assignment | `set_end.bash` |
//! | `__rlm_key` | `__rlm_k` | key of an element of an associative array that op `set` assigns | each assignment | `set_end.bash` |
//! | `__rlm_arguments`, `__rlm_length` | `__rlm_a`, `__rlm_l` | arguments of a root tool, joined, and their length in characters | the tool's function, as locals | its end |
//!
//! # Tokens
//!
//! Both pipes carry tokens, each ended by NUL. A call's *report* goes to the pipe that the worker waits for; everything
//! before it goes to the *quiet* pipe, in any order. A report is read from its end, where each token has its place. A *marker*
//! ends with the key of the worker, which is random. So no value looks like a token or a marker by chance.
//!
//! | token | pipe | means | followed by |
//! | --- | --- | --- | --- |
//! | `BAR` | report | the shell is alive and starts to report | `BEGIN` |
//! | `BEGIN` + nonce | report | the report with this nonce | status, PIPESTATUS, `BAR`, options, thrown, location of standard input, exec, silenced, PWD, RLM_READY, RLM_CONTENT, `END` |
//! | `END` + nonce | report | the report is complete | |
//! | `EARLY` | report | in thrown: the code has not begun | |
//! | `TERMINAL`, `SAVED`, `CLOSED` | report | the user's standard input is the terminal, saved, closed | |
//!
//! | marker | pipe | means | followed by |
//! | --- | --- | --- | --- |
//! | `STATE` | report | the state that the shell hands on | exiting, options, PWD, RLM_READY, RLM_CONTENT, shell text, `STATE_END` |
//! | `STATE_END` | report | the state is complete | |
//! | `VERSION` | quiet | a new shell is ready to be used | its version |
//! | `FUNCTIONS` | quiet | the text before it defines a function named `builtin` and the exported ones | |
//! | `DISABLED` | quiet | the text before it is the list of disabled builtins | |
//! | `PROMPTS` | quiet | prompt variables | name, attributes and value of each; `LIST_END` |
//! | `POSITIONAL` | quiet | positional parameters | each of them; `LIST_END` |
//! | `LIST_END` | quiet | the list is complete | |
//! | `SET` | quiet | the result of op `set` | readonly names, or a space if everything was set |
//! | `COMPLETIONS` | quiet | the result of op `complete` | names, one a line |
//! | `DIRECTORIES` | quiet | the same: directories among the names | names, one a line |
//! | `NAMES` | quiet | op `save`: the names in the shell | those of variables, of functions, of aliases, one a line |
//!
//! Traps are on the quiet pipe as `trap -p` prints them, starting with `trap -- `.

// The variables that Rust writes. The others are only in the `.bash` files.
pub(crate) const CALL: &str = "__rlm";
pub(crate) const STATUS: &str = "__rlm_s";
pub(crate) const PIPE_STATUS: &str = "__rlm_p";
pub(crate) const OPTIONS: &str = "__rlm_o";
pub(crate) const END_STATUS: &str = "__rlm_t";
pub(crate) const STDIN_FD: &str = "__rlm_i";
pub(crate) const BASHOPTS: &str = "__rlm_b";
pub(crate) const NONCE: &str = "__rlm_y";
pub(crate) const RETURN: &str = "__rlm_r";
pub(crate) const CHECK: &str = "__rlm_q";
pub(crate) const READONLY: &str = "__rlm_u";
pub(crate) const ATTRIBUTES: &str = "__rlm_m";
pub(crate) const KEY: &str = "__rlm_k";
pub(crate) const ARGUMENTS: &str = "__rlm_a";
pub(crate) const LENGTH: &str = "__rlm_l";
pub(crate) const VALUE: &str = "__rlm_c";

/// Each name in the `.bash` files, with the name in the shell.
pub(crate) const VARIABLES: [(&str, &str); 29] = [
    ("__rlm_call", CALL),
    ("__rlm_status", STATUS),
    ("__rlm_pipe_status", PIPE_STATUS),
    ("__rlm_options", OPTIONS),
    ("__rlm_end_status", END_STATUS),
    ("__rlm_nonce", NONCE),
    ("__rlm_thrown", "__rlm_n"),
    ("__rlm_stdin", "__rlm_f"),
    ("__rlm_stdin_fd", STDIN_FD),
    ("__rlm_silenced", "__rlm_w"),
    ("__rlm_stdout_fd", "__rlm_1"),
    ("__rlm_stderr_fd", "__rlm_2"),
    ("__rlm_exec", "__rlm_e"),
    ("__rlm_bashopts", BASHOPTS),
    ("__rlm_option", "__rlm_v"),
    ("__rlm_value", VALUE),
    ("__rlm_functions", "__rlm_g"),
    ("__rlm_index", "__rlm_j"),
    ("__rlm_exiting", "__rlm_x"),
    ("__rlm_exit_status", "__rlm_d"),
    ("__rlm_flags", "__rlm_h"),
    ("__rlm_posix", "__rlm_z"),
    ("__rlm_return", RETURN),
    ("__rlm_check", CHECK),
    ("__rlm_readonly", READONLY),
    ("__rlm_attributes", ATTRIBUTES),
    ("__rlm_key", KEY),
    ("__rlm_arguments", ARGUMENTS),
    ("__rlm_length", LENGTH),
];

macro_rules! tokens {
    ($list:ident: $($name:ident = $text:literal)*) => {
        $(pub(crate) const $name: &str = $text;)*

        /// Each name between `@`, as in the `.bash` files, and its text.
        pub(crate) const $list: &[(&str, &str)] = &[$((concat!("@", stringify!($name), "@"), $text)),*];
    };
}

tokens! { TOKENS:
    BAR = "|"
    BEGIN = "B"
    END = "E"
    EARLY = "0"
    TERMINAL = "t"
    SAVED = "s"
    CLOSED = "c"
}

// In the shell each marker is followed by the key.
tokens! { MARKERS:
    STATE = "X"
    STATE_END = "Y"
    VERSION = "V"
    FUNCTIONS = "F"
    DISABLED = "N"
    PROMPTS = "P"
    POSITIONAL = "A"
    LIST_END = "L"
    SET = "S"
    COMPLETIONS = "C"
    DIRECTORIES = "D"
    NAMES = "M"
}
