//! The word at the end of code that is being typed, and the candidates for it.
//!
//! Like `code`, this guesses without parsing: a wrong guess offers a wrong name, no more.

use std::collections::BTreeSet;

use rlm_core::protocol::Completions;

/// A word to complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The kind of the candidates.
    pub(crate) kind: Kind,
    /// The word without backslashes.
    pub(crate) text: String,
    /// Offset of the word in the code, in bytes.
    start: usize,
    /// True within quotes, where a backslash would stay.
    is_quoted: bool,
}

/// The kind of thing that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Command,
    File,
    Variable,
}

impl Kind {
    /// The action of `compgen` for this kind.
    pub(crate) fn action(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::File => "file",
            Self::Variable => "variable",
        }
    }
}

/// Words after which a command follows.
const BEFORE_COMMANDS: [&str; 9] = ["if", "then", "elif", "else", "while", "until", "do", "time", "!"];

impl Word {
    /// The word at the end of the code.
    pub(crate) fn at_end(code: &str) -> Self {
        let name = code.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if name.ends_with(['$']) || name.ends_with("${") {
            let start = name.len();
            return Self { kind: Kind::Variable, text: code[start..].to_owned(), start, is_quoted: false };
        }
        let (mut start, mut text, mut escapes) = (0, String::new(), false);
        for (at, c) in code.char_indices() {
            if escapes || !(c == '\\' || c.is_whitespace() || "\"'`=:;|&()<>".contains(c)) {
                text.push(c);
                escapes = false;
            } else if c == '\\' {
                escapes = true;
            } else {
                start = at + c.len_utf8();
                text.clear();
            }
        }
        let before = code[..start].trim_end_matches([' ', '\t']);
        let last = before.rsplit(|c: char| c.is_whitespace() || c == ';').next().unwrap_or_default();
        let is_command = before.is_empty()
            || before.ends_with(|c| "\n;|&(`{".contains(c))
            || BEFORE_COMMANDS.contains(&last);
        let kind = if is_command && !text.contains('/') { Kind::Command } else { Kind::File };
        Self { kind, text, start, is_quoted: code[..start].ends_with(['"', '\'']) }
    }

    /// The candidates, from the lines that `compgen` printed: names, and the directories among them.
    pub(crate) fn completions(&self, names: &[u8], directories: &[u8]) -> Completions {
        let directories = String::from_utf8_lossy(directories);
        let directories: BTreeSet<&str> = directories.lines().collect();
        let names = String::from_utf8_lossy(names);
        let candidates: BTreeSet<String> = names
            .lines()
            .map(|name| {
                let written = if self.is_quoted { name.to_owned() } else { escaped(name) };
                let is_directory = self.kind == Kind::File && directories.contains(name);
                if is_directory { written + "/" } else { written }
            })
            .collect();
        Completions { start: self.start, candidates: candidates.into_iter().collect() }
    }
}

/// The name as a word outside quotes.
fn escaped(name: &str) -> String {
    let mut word = String::new();
    for (at, c) in name.char_indices() {
        if " \t\"'\\$&;()<>|*?[]{}!`#".contains(c) && (c != '#' || at == 0) {
            word.push('\\');
        }
        word.push(c);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_end_has_a_place_and_a_kind() {
        let cases = [
            ("ec", Kind::Command, 0, "ec"),
            ("", Kind::Command, 0, ""),
            ("ls da", Kind::File, 3, "da"),
            ("a; ec", Kind::Command, 3, "ec"),
            ("x=$(ec", Kind::Command, 4, "ec"),
            ("if tr", Kind::Command, 3, "tr"),
            ("./ru", Kind::File, 0, "./ru"),
            ("cat <fi", Kind::File, 5, "fi"),
            ("echo $HO", Kind::Variable, 6, "HO"),
            ("echo \"${HO", Kind::Variable, 8, "HO"),
            ("cat a\\ b", Kind::File, 4, "a b"),
            ("cat \"a", Kind::File, 5, "a"),
        ];
        for (code, kind, start, text) in cases {
            let word = Word::at_end(code);
            assert_eq!((word.kind, word.start, word.text.as_str()), (kind, start, text), "{code}");
        }
    }

    #[test]
    fn candidates_can_be_typed_as_they_are() {
        let found = |code: &str| Word::at_end(code).completions(b"a b\na#\na#\n$d\n", b"a b\n").candidates;
        assert_eq!(found("cat "), ["\\$d", "a#", "a\\ b/"]);
        assert_eq!(found("cat \""), ["$d", "a b/", "a#"]);
    }
}
