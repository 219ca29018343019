//! The shell's report on itself at the end of a call, read from the report pipe.
//!
//! The driver prints NUL-separated tokens with the printf builtin. A record is valid once it ends with its nonce;
//! earlier records that an interrupt cut short are skipped. Values are bytes: they become text at the edge of the
//! worker. [`crate::driver::legend`] explains each token.

use crate::driver::legend::{
    BAR, BEGIN, CLOSED, DISABLED, END, FUNCTIONS, POSITIONAL, PROMPTS, SAVED, SET, STATE, STATE_END,
    TERMINAL, VERSION,
};

/// The state that the worker restores before the next call: everything that would show, act or break between calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserState {
    /// Output of `trap -p` for DEBUG, ERR, RETURN, EXIT; empty without a trap.
    pub(crate) debug_trap: Vec<u8>,
    pub(crate) err_trap: Vec<u8>,
    pub(crate) return_trap: Vec<u8>,
    pub(crate) exit_trap: Vec<u8>,
    /// Names of disabled builtins.
    pub(crate) disabled: Vec<Vec<u8>>,
    /// Prompt variables: name, attributes, value. `PROMPT_COMMAND` once for each element.
    pub(crate) prompts: Vec<[Vec<u8>; 3]>,
    /// Definitions of a function named `builtin` and of the exported functions, if the first one exists.
    pub(crate) builtin_function: Option<Vec<u8>>,
    /// `$-`.
    pub(crate) options: Vec<u8>,
    /// `$?` and PIPESTATUS; the latter is empty if it is just `$?`.
    pub(crate) status: i32,
    pub(crate) pipe_status: Vec<i32>,
    /// Location of the user's standard input.
    pub(crate) stdin: Stdin,
    /// The positional parameters, if the driver could see them.
    pub(crate) positional: Option<Vec<Vec<u8>>>,
    /// True if a function is named `exec`.
    pub(crate) exec_is_function: bool,
    /// True while standard output and error are redirected because a prompt is readonly.
    pub(crate) is_silenced: bool,
}

/// Location of the user's standard input between calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stdin {
    #[default]
    Terminal,
    /// The user redirected it, and the shell keeps it in a descriptor of its own.
    Saved,
    Closed,
}

/// The report of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) user: UserState,
    /// The part of the driver after the user's code was skipped, because of an interrupt or a syntax error.
    pub(crate) was_thrown: bool,
    pub(crate) cwd: Vec<u8>,
    pub(crate) ready: Vec<u8>,
    pub(crate) content: Vec<u8>,
    /// The version of a new shell.
    pub(crate) version: Option<Vec<u8>>,
    /// Op `set`: the readonly names, or white space if everything was set.
    pub(crate) set: Option<Vec<u8>>,
}

/// The state that a shell handed on when it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) options: Vec<u8>,
    pub(crate) cwd: Vec<u8>,
    pub(crate) ready: Vec<u8>,
    pub(crate) content: Vec<u8>,
    /// Shell text that restores variables, options, functions and aliases.
    pub(crate) state: Vec<u8>,
}

impl UserState {
    /// True if the shell is like a new one: no traps, prompts or options that show.
    pub(crate) fn is_plain(&self) -> bool {
        let traps = [&self.debug_trap, &self.err_trap, &self.return_trap, &self.exit_trap];
        traps.into_iter().all(Vec::is_empty)
            && self.prompts.is_empty()
            && !self.options.iter().any(|flag| b"exvt".contains(flag))
    }
}

/// Start of each trap in the output of `trap -p`.
const TRAP: &[u8] = b"trap -- ";

/// The nonce of a complete report: the last token is its end.
pub(crate) fn complete_nonce(bytes: &[u8]) -> Option<u64> {
    let body = bytes.strip_suffix(b"\0")?;
    let token = &body[memchr::memrchr(0, body)? + 1..];
    std::str::from_utf8(token.strip_prefix(END.as_bytes())?).ok()?.parse().ok()
}

/// True while the shell is reporting: the code has ended, or has not started, and the time that passes now is not its
/// own.
pub(crate) fn has_begun(bytes: &[u8]) -> bool {
    !bytes.is_empty() && !ends_with_state(bytes)
}

/// True if the last token is the end of a complete handed-on state.
pub(crate) fn ends_with_state(bytes: &[u8]) -> bool {
    let end = bytes.strip_suffix(b"\0").and_then(|bytes| bytes.strip_suffix(STATE_END.as_bytes()));
    end.is_some_and(|bytes| bytes.ends_with(b"\0"))
}

/// Parses the complete report with this nonce, and the data from the quiet pipe before it. `exit_hook` is the text that
/// the worker itself put in front of the EXIT trap.
pub(crate) fn parse(bytes: &[u8], quiet: &[u8], nonce: u64, exit_hook: &str) -> Option<Report> {
    let tokens: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
    let begin = format!("{BEGIN}{nonce}");
    let at = tokens.iter().rposition(|token| *token == begin.as_bytes())?;
    let mut report = Report::default();
    let quiet: Vec<&[u8]> = quiet.split(|byte| *byte == 0).collect();
    parse_quiet(&quiet, &mut report.user, exit_hook);
    let told = |token: &str| {
        let at = quiet.iter().position(|other| *other == token.as_bytes())?;
        quiet.get(at + 1).map(|value| value.to_vec())
    };
    (report.version, report.set) = (told(VERSION), told(SET));
    parse_end(&tokens[at + 1..], &mut report)?;
    Some(report)
}

/// Parses the data from the quiet pipe. If an interrupt hit the driver, an item may come twice: the first one counts,
/// because by the second one the item was already removed from the shell.
fn parse_quiet(tokens: &[&[u8]], user: &mut UserState, exit_hook: &str) {
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map_or(&b""[..], |before| tokens[before]);
        match std::str::from_utf8(token).unwrap_or_default() {
            // A function named `export` may have printed something else, which must not be evaluated.
            FUNCTIONS if memchr::memmem::find(before, b"builtin () \n").is_some() => {
                user.builtin_function.get_or_insert_with(|| before.to_vec());
            }
            POSITIONAL if user.positional.is_none() => {
                let count = tokens
                    .get(at + 1)
                    .and_then(|count| number(count))
                    .and_then(|count| usize::try_from(count).ok());
                let values = count.and_then(|count| tokens.get(at + 2..at + 2 + count));
                user.positional = values.map(|values| values.iter().map(|value| value.to_vec()).collect());
            }
            DISABLED if user.disabled.is_empty() => {
                let lines = before.split(|byte| *byte == b'\n');
                user.disabled =
                    lines.filter_map(|line| line.strip_prefix(b"enable -n ")).map(<[u8]>::to_vec).collect();
            }
            PROMPTS if user.prompts.is_empty() => {
                let rest = &tokens[at + 1..];
                let end = rest.iter().position(|token| *token == BAR.as_bytes()).unwrap_or(0);
                let triples = rest[..end].as_chunks::<3>().0;
                user.prompts = triples.iter().map(|triple| triple.map(<[u8]>::to_vec)).collect();
            }
            _ if token.starts_with(TRAP) => parse_traps(token, user, exit_hook),
            _ => {}
        }
    }
}

/// Parses the output of `trap -p`.
fn parse_traps(mut text: &[u8], user: &mut UserState, exit_hook: &str) {
    while let Some(start) = memchr::memmem::find(text, TRAP) {
        text = &text[start..];
        let Some((action_end, end)) = statement_end(text) else { return };
        let (statement, rest) = text.split_at(end);
        let known = match &statement[action_end..] {
            b" DEBUG\n" => &mut user.debug_trap,
            b" ERR\n" => &mut user.err_trap,
            b" RETURN\n" => &mut user.return_trap,
            b" EXIT\n" => &mut user.exit_trap,
            _ => {
                text = &text[TRAP.len()..];
                continue;
            }
        };
        // In POSIX mode the list also includes traps that are not set.
        if known.is_empty() && &statement[TRAP.len()..action_end] != b"-" {
            *known = without_hook(statement, exit_hook);
        }
        text = rest;
    }
}

/// The ends of the action and of the whole statement of a `trap --`.
fn statement_end(text: &[u8]) -> Option<(usize, usize)> {
    let mut at = TRAP.len();
    loop {
        match text.get(at)? {
            b'\'' => at += memchr::memchr(b'\'', &text[at + 1..])? + 2,
            b'\\' => at += 2,
            b' ' => return Some((at, at + memchr::memchr(b'\n', &text[at..])? + 1)),
            _ => at += 1,
        }
    }
}

/// The user's part of an EXIT trap.
fn without_hook(trap: &[u8], exit_hook: &str) -> Vec<u8> {
    let hooked = [TRAP, b"'", exit_hook.as_bytes()].concat();
    match trap.strip_prefix(&hooked[..]) {
        None => trap.to_vec(),
        Some(b"' EXIT\n") => Vec::new(),
        Some(rest) => [TRAP, b"'", rest.strip_prefix(b"\n").unwrap_or(rest)].concat(),
    }
}

fn parse_end(tokens: &[&[u8]], report: &mut Report) -> Option<()> {
    let (status, rest) = tokens.split_first()?;
    let bar = rest.iter().position(|token| *token == BAR.as_bytes())?;
    let (pipe_status, rest) = rest.split_at(bar);
    let [_bar, options, thrown, stdin, exec, silenced, cwd, ready, content, _end, _empty] = rest else {
        return None;
    };
    let user = &mut report.user;
    user.status = number(status).unwrap_or(0);
    user.pipe_status = pipe_status.iter().filter_map(|status| number(status)).collect();
    user.options = options.to_vec();
    let places = [(TERMINAL, Stdin::Terminal), (SAVED, Stdin::Saved), (CLOSED, Stdin::Closed)];
    let place = places.into_iter().find(|(token, _)| token.as_bytes() == *stdin);
    user.stdin = place.map(|(_, place)| place).unwrap_or_default();
    user.exec_is_function = !exec.is_empty();
    user.is_silenced = !silenced.is_empty();
    report.was_thrown = !thrown.is_empty();
    report.cwd = cwd.to_vec();
    report.ready = ready.to_vec();
    report.content = content.to_vec();
    Some(())
}

/// A token with a NUL byte on each side.
fn ended(token: &str) -> Vec<u8> {
    [b"\0", token.as_bytes(), b"\0"].concat()
}

fn number(token: &[u8]) -> Option<i32> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// Parses the state that a shell handed on when it ended, if it is complete.
pub(crate) fn parse_snapshot(bytes: &[u8]) -> Option<Snapshot> {
    let begin = ended(STATE);
    let body = &bytes[memchr::memmem::rfind(bytes, &begin)? + begin.len()..];
    let body = body.strip_suffix(&*ended(STATE_END))?;
    let mut parts = body.splitn(6, |byte| *byte == 0);
    let mut next = || parts.next().map(<[u8]>::to_vec);
    let _status = next()?;
    Some(Snapshot { options: next()?, cwd: next()?, ready: next()?, content: next()?, state: next()? })
}

/// True for a value of `RLM_READY` that means yes.
pub(crate) fn is_truthy(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    [&b"1"[..], b"true", b"yes", b"y", b"on"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOOK: &str = "HOOK";

    fn end(nonce: u64) -> Vec<u8> {
        format!("{BAR}\0{BEGIN}{nonce}\x003\x001\x003\0{BAR}\0hiBs\0\0{TERMINAL}\0\0\0/tmp\0yes\0the answer\0{END}{nonce}\0")
            .into_bytes()
    }

    fn user_state(quiet: &str) -> UserState {
        parse(&end(1), quiet.as_bytes(), 1, HOOK).unwrap().user
    }

    #[test]
    fn a_report_is_complete_at_its_nonce() {
        let bytes = end(7);
        assert_eq!(complete_nonce(&bytes[..bytes.len() - 1]), None);
        assert_eq!(complete_nonce(b""), None);
        assert_eq!(complete_nonce(&bytes), Some(7));
        let report = parse(&bytes, b"", 7, HOOK).unwrap();
        assert_eq!(report.user.status, 3);
        assert_eq!(report.user.pipe_status, [1, 3]);
        assert_eq!(report.cwd, b"/tmp");
        assert_eq!(report.content, b"the answer");
        assert!(is_truthy(&report.ready));
    }

    #[test]
    fn traps_prompts_and_disabled_builtins_are_reported() {
        let user = user_state(&format!(
            "enable -n printf\n\0{DISABLED}\0trap -- 'HOOK\nbye' EXIT\ntrap -- 'a DEBUG\nit'\\''s' DEBUG\ntrap -- 'e' ERR\n\0{PROMPTS}\0PS1\0x\0> \0{BAR}\0"
        ));
        assert_eq!(user.debug_trap, b"trap -- 'a DEBUG\nit'\\''s' DEBUG\n");
        assert_eq!(user.disabled, [b"printf"]);
        assert_eq!(user.err_trap, b"trap -- 'e' ERR\n");
        assert_eq!(user.exit_trap, b"trap -- 'bye' EXIT\n");
        assert_eq!(user.prompts, [[b"PS1".to_vec(), b"x".to_vec(), b"> ".to_vec()]]);
    }

    #[test]
    fn neither_the_hook_alone_nor_a_default_counts_as_a_trap() {
        assert_eq!(
            user_state("trap -- - DEBUG\ntrap -- - ERR\ntrap -- 'HOOK' EXIT\n"),
            UserState {
                status: 3,
                pipe_status: vec![1, 3],
                options: b"hiBs".to_vec(),
                ..UserState::default()
            }
        );
    }

    #[test]
    fn a_first_record_cut_by_an_interrupt_still_counts() {
        let user = user_state(&format!(
            "trap -- 'd' DEBUG\ntrap -- 'e' ERR\ntrap -- 'HOOK' EXIT\n\0{PROMPTS}\0PS1\0\0> \0{BAR}\0"
        ));
        assert_eq!(user.debug_trap, b"trap -- 'd' DEBUG\n");
        assert_eq!(user.exit_trap, b"");
        assert_eq!(user.prompts.len(), 1);
    }

    #[test]
    fn a_handed_on_state_is_read_if_it_is_complete() {
        let bytes =
            format!("junk\0{STATE}\x003\0hi\0/tmp\0\0A\0declare -- x=\"1\"\n\0{STATE_END}\0").into_bytes();
        let will = parse_snapshot(&bytes).unwrap();
        assert_eq!(will.state, b"declare -- x=\"1\"\n");
        assert_eq!(will.content, b"A");
        assert_eq!(parse_snapshot(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn readiness_is_truthy_in_any_case() {
        for yes in ["1", "true", "YES", " y\n", "On"] {
            assert!(is_truthy(yes.as_bytes()), "{yes:?}");
        }
        for no in ["", "0", "false", "no", "2", "ready"] {
            assert!(!is_truthy(no.as_bytes()), "{no:?}");
        }
    }
}
