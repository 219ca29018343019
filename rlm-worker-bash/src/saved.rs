//! The state of a bash session in a file: the text that a shell hands on, and what the worker keeps between calls.
//!
//! Records of values that end in NUL, which no value of bash has: the name of the record, the number of its values, the values.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use rlm_core::saved::Contents;
use rlm_core::shell::quoted_bytes;

use crate::report::{Names, Snapshot, UserState};
use crate::state::RawAnswer;

/// The state of a session that was saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedShell {
    pub(crate) user: UserState,
    pub(crate) answer: RawAnswer,
    /// Shell text that restores variables, options, functions, aliases and traps of signals.
    pub(crate) text: Vec<u8>,
}

/// Prefix of the environment variables by which a shell gets functions.
const FUNCTION: &[u8] = b"BASH_FUNC_";

impl SavedShell {
    /// The state of a shell that goes on. Variables that are as its environment gave them are those of its host, and stay there.
    pub(crate) fn new(
        snapshot: Snapshot,
        signal_traps: &[u8],
        user: &UserState,
        env: &[(OsString, OsString)],
    ) -> Self {
        let mut text = snapshot.state;
        for (name, value) in env {
            let line =
                [b"declare -x ", name.as_bytes(), b"=\"", &escaped(value.as_bytes()), b"\"\n"].concat();
            let at = memchr::memmem::find_iter(&text, &line).find(|at| *at == 0 || text[at - 1] == b'\n');
            if let Some(at) = at {
                text.drain(at..at + line.len());
            }
        }
        text.extend_from_slice(signal_traps);
        let answer = RawAnswer { ready: snapshot.ready, content: snapshot.content };
        Self { user: user.clone(), answer, text }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { user, answer, text } = self;
        let mut bytes = Vec::with_capacity(text.len() + answer.content.len() + 1024);
        let mut push = |name: &str, values: &[&[u8]]| {
            bytes.extend_from_slice(format!("{name}\0{}\0", values.len()).as_bytes());
            for value in values {
                bytes.extend_from_slice(value);
                bytes.push(0);
            }
        };
        push("traps", &[&user.debug_trap, &user.err_trap, &user.return_trap, &user.exit_trap]);
        push("disabled", &user.disabled.iter().map(Vec::as_slice).collect::<Vec<_>>());
        push("prompts", &user.prompts.iter().flatten().map(Vec::as_slice).collect::<Vec<_>>());
        push("builtin", &user.builtin_function.iter().map(Vec::as_slice).collect::<Vec<_>>());
        push("options", &[&user.options]);
        let statuses: Vec<String> =
            std::iter::once(&user.status).chain(&user.pipe_status).map(i32::to_string).collect();
        push("statuses", &statuses.iter().map(String::as_bytes).collect::<Vec<_>>());
        if let Some(positional) = &user.positional {
            push("positional", &positional.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        push("answer", &[&answer.ready, &answer.content]);
        push("text", &[text]);
        bytes
    }

    /// The inverse of [`Self::encode`]. None: the bytes are not such a state.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut tokens = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let mut records = BTreeMap::new();
        while let Some(name) = tokens.next() {
            let count = number(tokens.next()?)?;
            let values = (0..count).map(|_| tokens.next().map(<[u8]>::to_vec));
            records.insert(name, values.collect::<Option<Vec<_>>>()?);
        }
        let mut take = |name: &str| records.remove(name.as_bytes());
        let [debug_trap, err_trap, return_trap, exit_trap] = take("traps")?.try_into().ok()?;
        let statuses: Option<Vec<i32>> = take("statuses")?.iter().map(|status| number(status)).collect();
        let (status, pipe_status) = statuses?.split_first().map(|(first, rest)| (*first, rest.to_vec()))?;
        let [options] = take("options")?.try_into().ok()?;
        let [ready, content] = take("answer")?.try_into().ok()?;
        let [text] = take("text")?.try_into().ok()?;
        let prompts = take("prompts")?.as_chunks::<3>().0.to_vec();
        let user = UserState {
            debug_trap,
            err_trap,
            return_trap,
            exit_trap,
            disabled: take("disabled")?,
            prompts,
            builtin_function: take("builtin")?.pop(),
            options,
            status,
            pipe_status,
            positional: take("positional"),
            ..UserState::default()
        };
        Some(Self { user, answer: RawAnswer { ready, content }, text })
    }

    /// The text for a new shell, which has these functions of its host, and starts in this directory.
    pub(crate) fn text_for(&self, env: &[(OsString, OsString)], cwd: &[u8]) -> Vec<u8> {
        let mut text = self.text.clone();
        text.extend_from_slice(&[b"\nPWD=", &quoted_bytes(cwd)[..], b"\n"].concat());
        for (name, value) in env {
            let function = name.as_bytes().strip_prefix(FUNCTION).and_then(|name| name.strip_suffix(b"%%"));
            if let Some(function) = function {
                let parts = [
                    b"function ",
                    function,
                    b" ",
                    value.as_bytes(),
                    b"\n\\builtin export -f ",
                    function,
                    b"\n",
                ];
                text.extend_from_slice(&parts.concat());
            }
        }
        text
    }
}

/// The objects of a shell, by number. The driver's own variables do not count.
pub(crate) fn contents(names: &Names) -> Contents {
    let count = |names: &[u8]| {
        let names = names.split(|byte| *byte == b'\n');
        names.filter(|name| !name.is_empty() && !name.starts_with(b"__rlm")).count() as u64
    };
    let counts =
        [("variables", &names.variables), ("functions", &names.functions), ("aliases", &names.aliases)];
    let counts = counts.into_iter().map(|(kind, names)| (kind.to_owned(), count(names))).collect();
    Contents { counts, left_out: BTreeMap::new() }
}

/// A value as `declare -p` prints it between double quotes.
fn escaped(value: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    for byte in value {
        if b"\"\\$`".contains(byte) {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text
}

fn number<T: std::str::FromStr>(token: &[u8]) -> Option<T> {
    str::from_utf8(token).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_decoded_as_it_was_encoded_and_a_part_of_it_is_not_one() {
        let saved = SavedShell {
            user: UserState {
                exit_trap: b"trap -- 'bye' EXIT\n".to_vec(),
                disabled: vec![b"printf".to_vec()],
                prompts: vec![[b"PS1".to_vec(), b"x".to_vec(), b"> ".to_vec()]],
                options: b"hiBx".to_vec(),
                status: 3,
                pipe_status: vec![1, 3],
                positional: Some(vec![b"".to_vec(), b"text".to_vec(), b"1".to_vec()]),
                ..UserState::default()
            },
            answer: RawAnswer { ready: b"1".to_vec(), content: b"42\n".to_vec() },
            text: b"declare -- x=\"1\"\n".to_vec(),
        };
        let bytes = saved.encode();
        assert_eq!(SavedShell::decode(&bytes), Some(saved.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(SavedShell::decode(&bytes[..cut]), None, "{cut}");
        }
        let plain = SavedShell { text: b"x".to_vec(), ..SavedShell::default() };
        assert_eq!(SavedShell::decode(&plain.encode()), Some(plain));
    }

    #[test]
    fn variables_of_the_host_stay_there_unless_code_has_changed_them() {
        let state = b"declare -x A=\"1\"\ndeclare -x B=\"\\$x\"\ndeclare -x C=\"new\"\n".to_vec();
        let env = [("A", "1"), ("B", "$x"), ("C", "old")].map(|(name, value)| (name.into(), value.into()));
        let snapshot = Snapshot { state, ..Snapshot::default() };
        let saved = SavedShell::new(snapshot, b"trap -- '' SIGINT\n", &UserState::default(), &env);
        assert_eq!(saved.text, b"declare -x C=\"new\"\ntrap -- '' SIGINT\n");
    }
}
