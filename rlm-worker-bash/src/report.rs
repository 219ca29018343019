//! The shell's report on itself at the end of a call, read from the report pipe.
//!
//! The driver prints tokens, each ended by NUL, with the printf builtin. An interrupt may cut a record short, and the next
//! one follows it. A value may be any text, and is never mistaken for a token: a report is read from its end, where each
//! token has its place, and all other records begin and end with [markers](Marks). Values are bytes: they become text at
//! the edge of the worker. [`crate::driver::legend`] explains each token.

use crate::driver::legend::{
    BAR, BEGIN, CLOSED, COMPLETIONS, DIRECTORIES, DISABLED, EARLY, END, FUNCTIONS, LIST_END, NAMES,
    POSITIONAL, PROMPTS, SAVED, SET, STATE, STATE_END, TERMINAL, VERSION,
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
    /// The user redirected standard input, and the shell keeps it in a descriptor of its own.
    Saved,
    Closed,
}

/// The report of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) user: UserState,
    /// The part of the driver after the user's code was skipped, because of an interrupt or a syntax error.
    pub(crate) was_thrown: bool,
    /// The code has not begun, and the shell may lack what is restored before it.
    pub(crate) is_early: bool,
    pub(crate) cwd: Vec<u8>,
    pub(crate) ready: Vec<u8>,
    pub(crate) content: Vec<u8>,
    /// The version of a new shell.
    pub(crate) version: Option<Vec<u8>>,
    /// Op `set`: the readonly names, or white space if everything was set.
    pub(crate) set: Option<Vec<u8>>,
    /// Op `complete`: names, one a line.
    pub(crate) completions: Vec<u8>,
    /// Op `complete`: the directories among the names.
    pub(crate) directories: Vec<u8>,
    /// Op `save`: traps of signals, as `trap -p` prints them.
    pub(crate) signal_traps: Vec<u8>,
    /// Op `save`: the names in the shell.
    pub(crate) names: Names,
}

/// The names in a shell, one a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) variables: Vec<u8>,
    pub(crate) functions: Vec<u8>,
    pub(crate) aliases: Vec<u8>,
}

/// The state that a shell handed on when it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// True if the state is that from before the code, as second best: the shell handed on none when it ended.
    pub(crate) is_early: bool,
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

/// The markers between the records that the shell prints: a name of the legend, and a key of this worker that no value has by
/// chance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// The end of every marker.
    pub(crate) key: String,
    /// The text that the worker itself put in front of the EXIT trap.
    pub(crate) exit_hook: String,
}

impl Marks {
    /// The name of a marker; None for any other token.
    fn name<'a>(&self, token: &'a [u8]) -> Option<&'a str> {
        str::from_utf8(token.strip_suffix(self.key.as_bytes())?).ok()
    }

    /// The values before the next marker, if that marker ends a list. Otherwise an interrupt cut the list short.
    fn list<'a>(&self, tokens: &'a [&'a [u8]]) -> Option<&'a [&'a [u8]]> {
        let end = tokens.iter().position(|token| self.name(token).is_some())?;
        (self.name(tokens[end]) == Some(LIST_END)).then_some(&tokens[..end])
    }

    /// Adds the data from the quiet pipe to a report. If an interrupt hit the driver, an item may come twice: the first one
    /// counts, because by the second one the item was already removed from the shell.
    pub(crate) fn read_quiet(&self, quiet: &[u8], report: &mut Report) {
        let Report { user, version, set, completions, directories, signal_traps, names, .. } = report;
        let tokens: Vec<&[u8]> = quiet.split(|byte| *byte == 0).collect();
        let (mut rest, mut before) = (&tokens[..], &b""[..]);
        while let [token, after @ ..] = rest {
            rest = after;
            let name = self.name(token);
            let value =
                || after.first().filter(|value| self.name(value).is_none()).map(|value| value.to_vec());
            match name {
                // A function named `export` may have printed something else, which must not be evaluated.
                Some(FUNCTIONS) if memchr::memmem::find(before, b"builtin () \n").is_some() => {
                    user.builtin_function.get_or_insert_with(|| before.to_vec());
                }
                Some(DISABLED) if user.disabled.is_empty() => {
                    let lines = before.split(|byte| *byte == b'\n');
                    let names = lines.filter_map(|line| line.strip_prefix(b"enable -n "));
                    user.disabled = names.map(<[u8]>::to_vec).collect();
                }
                Some(POSITIONAL | PROMPTS) => {
                    let list = self.list(after).unwrap_or_default();
                    rest = &after[list.len()..];
                    if name == Some(PROMPTS) && user.prompts.is_empty() {
                        let triples = list.as_chunks::<3>().0;
                        user.prompts = triples.iter().map(|triple| triple.map(<[u8]>::to_vec)).collect();
                    } else if name == Some(POSITIONAL) && user.positional.is_none() && !list.is_empty() {
                        user.positional = Some(list.iter().map(|value| value.to_vec()).collect());
                    }
                }
                Some(VERSION) => *version = value(),
                Some(SET) => *set = value(),
                Some(COMPLETIONS) => *completions = value().unwrap_or_default(),
                Some(DIRECTORIES) => *directories = value().unwrap_or_default(),
                Some(NAMES) => {
                    if let [variables, functions, aliases, ..] = after {
                        let [variables, functions, aliases] =
                            [variables, functions, aliases].map(|list| list.to_vec());
                        *names = Names { variables, functions, aliases };
                    }
                }
                None if token.starts_with(TRAP) => parse_traps(token, user, signal_traps, &self.exit_hook),
                _ => {}
            }
            before = token;
        }
    }

    /// True while the shell is reporting: the code has ended, or has not started, and the time that passes now is not its
    /// own.
    pub(crate) fn has_begun(&self, bytes: &[u8]) -> bool {
        !bytes.is_empty() && !self.ends_with_state(bytes)
    }

    /// True if the data ends with a complete handed-on state.
    pub(crate) fn ends_with_state(&self, bytes: &[u8]) -> bool {
        let end = bytes.strip_suffix(b"\0").and_then(|bytes| bytes.strip_suffix(self.key.as_bytes()));
        end.and_then(|bytes| bytes.strip_suffix(STATE_END.as_bytes()))
            .is_some_and(|bytes| bytes.ends_with(b"\0"))
    }

    /// True if the data holds a state that the shell hands on, complete or not.
    pub(crate) fn holds_state(&self, bytes: &[u8]) -> bool {
        memchr::memmem::find(bytes, format!("\0{STATE}{}\0", self.key).as_bytes()).is_some()
    }

    /// The last complete state that the shell handed on.
    pub(crate) fn snapshot(&self, bytes: &[u8]) -> Option<Snapshot> {
        let ended = &bytes[..=memchr::memrchr(0, bytes)?];
        let tokens: Vec<&[u8]> = ended.split(|byte| *byte == 0).collect();
        tokens[..tokens.len() - 1].windows(8).rev().find_map(|record| {
            let [begin, exiting, options, cwd, ready, content, state, end] = record else { return None };
            let is_state = self.name(begin) == Some(STATE) && self.name(end) == Some(STATE_END);
            is_state.then(|| Snapshot {
                is_early: exiting.is_empty(),
                options: options.to_vec(),
                cwd: cwd.to_vec(),
                ready: ready.to_vec(),
                content: content.to_vec(),
                state: state.to_vec(),
            })
        })
    }
}

/// The report at the end of the data, without what comes through the quiet pipe, and its nonce. None if it is not complete.
pub(crate) fn complete(bytes: &[u8]) -> Option<(u64, Report)> {
    // Read from the end, where the last value may be large.
    let mut tokens = bytes.strip_suffix(b"\0")?.rsplit(|byte| *byte == 0);
    let nonce = str::from_utf8(tokens.next()?.strip_prefix(END.as_bytes())?).ok()?;
    let mut fields = [&b""[..]; 9];
    for field in fields.iter_mut().rev() {
        *field = tokens.next()?;
    }
    let [bar, options, thrown, stdin, exec, silenced, cwd, ready, content] = fields;
    if bar != BAR.as_bytes() {
        return None;
    }
    let pipe_status = str::from_utf8(tokens.next()?).ok()?.split_whitespace();
    let pipe_status = pipe_status.map_while(|status| status.parse().ok()).collect();
    let status = number(tokens.next()?)?;
    if tokens.next()?.strip_prefix(BEGIN.as_bytes()) != Some(nonce.as_bytes()) {
        return None;
    }
    let places = [(TERMINAL, Stdin::Terminal), (SAVED, Stdin::Saved), (CLOSED, Stdin::Closed)];
    let place = places.into_iter().find(|(token, _)| token.as_bytes() == stdin);
    let user = UserState {
        status,
        pipe_status,
        options: options.to_vec(),
        stdin: place.map(|(_, place)| place).unwrap_or_default(),
        exec_is_function: !exec.is_empty(),
        is_silenced: !silenced.is_empty(),
        ..UserState::default()
    };
    let report = Report {
        user,
        was_thrown: !thrown.is_empty(),
        is_early: thrown.ends_with(EARLY.as_bytes()),
        cwd: cwd.to_vec(),
        ready: ready.to_vec(),
        content: content.to_vec(),
        ..Report::default()
    };
    Some((nonce.parse().ok()?, report))
}

/// Parses the output of `trap -p`.
fn parse_traps(mut text: &[u8], user: &mut UserState, signal_traps: &mut Vec<u8>, exit_hook: &str) {
    while let Some(start) = memchr::memmem::find(text, TRAP) {
        text = &text[start..];
        let Some((action_end, end)) = statement_end(text) else { return };
        let (statement, rest) = text.split_at(end);
        let known = match &statement[action_end..] {
            b" DEBUG\n" => &mut user.debug_trap,
            b" ERR\n" => &mut user.err_trap,
            b" RETURN\n" => &mut user.return_trap,
            b" EXIT\n" => &mut user.exit_trap,
            signal if signal.starts_with(b" SIG") => {
                signal_traps.extend_from_slice(statement);
                text = rest;
                continue;
            }
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

fn number(token: &[u8]) -> Option<i32> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// True for a value of `RLM_READY` that means yes.
pub(crate) fn is_truthy(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    [&b"1"[..], b"true", b"yes", b"y", b"on"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::legend::{MARKERS, TOKENS};

    const KEY: &str = "0f1e2d3c";

    fn marks() -> Marks {
        Marks { key: KEY.to_owned(), exit_hook: "HOOK".to_owned() }
    }

    fn marked(text: &str) -> Vec<u8> {
        text.replace('@', KEY).into_bytes()
    }

    fn end(nonce: u64) -> Vec<u8> {
        format!("{BAR}\0{BEGIN}{nonce}\x003\x001 3\0{BAR}\0hiBs\0\0{TERMINAL}\0\0\0/tmp\0yes\0the answer\0{END}{nonce}\0")
            .into_bytes()
    }

    fn user_state(quiet: &str) -> UserState {
        let mut report = complete(&end(1)).unwrap().1;
        marks().read_quiet(&marked(quiet), &mut report);
        report.user
    }

    #[test]
    fn a_report_is_complete_at_its_nonce() {
        let bytes = end(7);
        for cut in 0..bytes.len() {
            assert_eq!(complete(&bytes[..cut]), None, "{cut}");
        }
        let (nonce, report) = complete(&bytes).unwrap();
        assert_eq!(nonce, 7);
        assert_eq!(report.user.status, 3);
        assert_eq!(report.user.pipe_status, [1, 3]);
        assert_eq!(report.cwd, b"/tmp");
        assert_eq!(report.content, b"the answer");
        assert!(is_truthy(&report.ready));
        // Two records that an interrupt cut short, anywhere, do not matter.
        for cut in 0..bytes.len() {
            let all = [&bytes[..cut], b"|\0", &bytes[..cut], &bytes].concat();
            assert_eq!(complete(&all), Some((7, report.clone())), "{cut}");
        }
    }

    #[test]
    fn no_value_looks_like_a_token_however_the_report_arrives() {
        let names = TOKENS.iter().chain(MARKERS).map(|(_, text)| (*text).to_owned());
        let values: Vec<String> = names.chain(["E7", "B7", "E1", "0", ""].map(str::to_owned)).collect();
        for [cwd, ready, content] in triples(&values) {
            let report =
                format!("|\0B7\x000\0\0|\0hB\0\0t\0\0\0{cwd}\0{ready}\0{content}\0E7\0").into_bytes();
            for (cut, _) in report.iter().enumerate().filter(|(_, byte)| **byte == 0) {
                let part = &report[..=cut];
                assert_eq!(
                    complete(part).is_some(),
                    part.len() == report.len(),
                    "{cut}: {cwd} {ready} {content}"
                );
                assert!(!marks().ends_with_state(part));
            }
            let found = complete(&report).unwrap().1;
            assert_eq!((found.cwd, found.ready, found.content), (cwd.into(), ready.into(), content.into()));
        }
    }

    #[test]
    fn no_value_looks_like_the_marker_of_a_state() {
        let names = TOKENS.iter().chain(MARKERS).map(|(_, text)| (*text).to_owned());
        let values: Vec<String> = names.collect();
        for [cwd, ready, content] in triples(&values) {
            let text = "declare -- x=\"1\"\n";
            let state = marked(&format!("\0X@\x000\0hB\0{cwd}\0{ready}\0{content}\0{text}\0Y@\0"));
            for cut in 0..state.len() {
                assert_eq!(marks().snapshot(&state[..cut]), None);
            }
            let found = marks().snapshot(&[&state[..], &state[..40]].concat()).unwrap();
            assert_eq!((found.cwd, found.ready, found.content), (cwd.into(), ready.into(), content.into()));
            assert_eq!(found.state, text.as_bytes());
        }
    }

    /// All triples of these values.
    fn triples(values: &[String]) -> impl Iterator<Item = [&str; 3]> {
        let pairs = values.iter().flat_map(|first| values.iter().map(move |second| (first, second)));
        pairs.flat_map(|(first, second)| values.iter().map(move |third| [&**first, &**second, &**third]))
    }

    #[test]
    fn traps_prompts_and_disabled_builtins_are_reported() {
        let user = user_state(
            "enable -n printf\n\0N@\0trap -- 'HOOK\nbye' EXIT\ntrap -- 'a DEBUG\nit'\\''s' DEBUG\ntrap -- 'e' ERR\n\0P@\0PS1\0x\0> \0L@\0",
        );
        assert_eq!(user.debug_trap, b"trap -- 'a DEBUG\nit'\\''s' DEBUG\n");
        assert_eq!(user.disabled, [b"printf"]);
        assert_eq!(user.err_trap, b"trap -- 'e' ERR\n");
        assert_eq!(user.exit_trap, b"trap -- 'bye' EXIT\n");
        assert_eq!(user.prompts, [[b"PS1".to_vec(), b"x".to_vec(), b"> ".to_vec()]]);
    }

    #[test]
    fn a_prompt_or_a_positional_parameter_never_looks_like_a_marker_or_a_trap() {
        let values = ["A", "P", "N", "F", "L", "|", "", "trap -- 'evil' DEBUG\n", "builtin () \n"];
        for value in values {
            let user = user_state(&format!("\0P@\0PS1\0\0{value}\0L@\0\0A@\x001\0{value}\x003\0L@\0"));
            assert_eq!(user.prompts, [[b"PS1".to_vec(), b"".to_vec(), value.into()]], "{value}");
            assert_eq!(user.positional, Some(vec![b"1".to_vec(), value.into(), b"3".to_vec()]), "{value}");
            let others = UserState { prompts: Vec::new(), positional: None, ..user };
            assert_eq!(others, user_state(""), "{value}");
        }
    }

    #[test]
    fn a_list_that_an_interrupt_cut_short_does_not_count() {
        let user = user_state("\0A@\x001\x002\0\0N@\0trap -- 'e' ERR\n\0P@\0PS1\0\0> \0L@\0");
        assert_eq!(user.positional, None);
        assert_eq!(user.err_trap, b"trap -- 'e' ERR\n");
        assert_eq!(user.prompts.len(), 1);
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
        let user =
            user_state("trap -- 'd' DEBUG\ntrap -- 'e' ERR\ntrap -- 'HOOK' EXIT\n\0P@\0PS1\0\0> \0L@\0");
        assert_eq!(user.debug_trap, b"trap -- 'd' DEBUG\n");
        assert_eq!(user.exit_trap, b"");
        assert_eq!(user.prompts.len(), 1);
    }

    #[test]
    fn the_last_complete_state_counts() {
        let state =
            |content: &str| marked(&format!("junk\0X@\x003\0hi\0/tmp\0\0{content}\0declare -- x\n\0Y@\0"));
        let (first, last) = (state("A"), state("B"));
        let both = [&first[..], &last].concat();
        assert_eq!(marks().snapshot(&both).unwrap().content, b"B");
        let cut = marks().snapshot(&both[..both.len() - 1]).unwrap();
        assert_eq!((&*cut.content, &*cut.state), (&b"A"[..], &b"declare -- x\n"[..]));
        assert!(marks().ends_with_state(&both) && !marks().has_begun(&both));
        assert!(!marks().ends_with_state(&both[..both.len() - 1]));
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
