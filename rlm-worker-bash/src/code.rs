//! Guesses about code, without parsing it.
//!
//! Only bash can parse bash. These guesses look at words and characters, and a wrong one does no harm: more work is
//! done, or a trace of the driver shows.

use std::borrow::Cow;

/// The code without the carriage returns of several lines that all end in CR LF, as editors of Windows write them: to bash they are
/// characters of words.
pub(crate) fn without_returns(code: &str) -> Cow<'_, str> {
    let lines = code.bytes().filter(|byte| *byte == b'\n').count();
    if lines > 1 && code.matches("\r\n").count() == lines {
        let code = code.strip_suffix('\r').unwrap_or(code);
        return code.replace("\r\n", "\n").into();
    }
    code.into()
}

/// The variant of the driver that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// No code so far could have changed anything that the other variants check. Most sessions stay here for life, and
    /// their calls take half the time.
    Fast,
    /// Checks traps, options, prompts, redirections and positional parameters.
    Standard,
    /// Checks as `Standard` does, and expects a function named `builtin` that shadows the builtin.
    Shadowed,
}

impl Driver {
    /// The variant for `code`, in a session that needed `self` until now. A session never returns to `Fast`: a function
    /// may change the shell at any later time.
    ///
    /// This is a guess from words. If it is wrong (for code that builds a word from pieces), output may show a trace of
    /// the driver; the session goes on.
    pub(crate) fn after(self, code: &str) -> Self {
        const WORDS: [&str; 10] =
            ["trap", "set", "shopt", "source", "exec", "eval", "enable", "builtin", "readonly", "alias"];
        const VARIABLES: [&str; 6] = ["PS0", "PS1", "PS2", "TMOUT", "PROMPT_COMMAND", "POSIXLY_CORRECT"];
        let is_separator = |c: char| c.is_whitespace() || ";&|(){}`<>$=!,".contains(c);
        let changes = |token: &str| {
            let mut plain = token;
            let unquoted;
            if token.contains(['\\', '\'', '"']) {
                unquoted = token.replace(['\\', '\'', '"'], "");
                plain = &unquoted;
            }
            plain == "." || WORDS.contains(&plain)
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_fast = self == Self::Fast
            && !code.split(is_separator).any(changes)
            && !code.split(|c| !is_name(c)).any(|name| VARIABLES.contains(&name));
        if is_fast { Self::Fast } else { Self::Standard }
    }
}

/// True if the code may print its traps: `trap` without arguments or with an option.
pub(crate) fn lists_traps(code: &str) -> bool {
    code.match_indices("trap").any(|(at, word)| {
        let after = &code[at + word.len()..];
        let rest = after.trim_start_matches([' ', '\t']);
        let is_option = rest.starts_with('-') && !rest.starts_with("- ") && !rest.starts_with("-- ");
        rest.is_empty()
            || is_option
            || rest.starts_with(['\n', ';', '|', '&', ')', '>', '}', '`'])
            || after.starts_with(['"', '\''])
    })
}

/// The line that is appended to the user's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suffix {
    /// No line is needed: PIPESTATUS is then just `$?`.
    None,
    /// A line that saves `$?` and PIPESTATUS before the end of the evaluation overwrites the latter.
    PipeStatus,
}

/// A guess at whether a line can be appended to some code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appendable {
    /// The code has no pipeline: there is nothing to save.
    NotNeeded,
    /// The code is simple: an appended line is a command of its own, or part of the same syntax error.
    Yes,
    /// Only bash can tell.
    AskBash,
}

/// Guesses whether a line can be appended to the code.
///
/// The line must never become part of a here-document, a compound command or a continued line. So if the code contains
/// anything that could open one, bash is asked; what remains are words, quotes, pipes and lists. An open quote does no
/// harm: the appended line has an even number of `"`, so everything is one syntax error, as it would be without the
/// line.
pub(crate) fn appendable(code: &str) -> Appendable {
    if !code.contains('|') && !code.contains('!') {
        return Appendable::NotNeeded;
    }
    const OPENERS: [&str; 10] = ["<<", "(", "{", "`", "[[", "#", "\\\n", "$'", "alias", "\0"];
    const WORDS: [&str; 9] = ["if", "for", "while", "until", "case", "select", "function", "coproc", "do"];
    let is_compound = OPENERS.iter().any(|opener| code.contains(opener))
        || code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| WORDS.contains(&word));
    let end = code.trim_end();
    let is_continued =
        ["|", "|&", "&&", "\\", "!"].iter().any(|operator| end.ends_with(operator)) || code.ends_with('\\');
    if is_compound || is_continued { Appendable::AskBash } else { Appendable::Yes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_windows_are_lines() {
        for (code, lines) in [
            ("if true; then\r\n  ls\r\nfi\r\n", "if true; then\n  ls\nfi\n"),
            ("ls\r\npwd\r\nid\r", "ls\npwd\nid"),
            ("echo a\r\n", "echo a\r\n"),
            ("printf 'a\r\n'\nls", "printf 'a\r\n'\nls"),
            ("a=$'x'\r", "a=$'x'\r"),
        ] {
            assert_eq!(without_returns(code), lines, "{code:?}");
        }
    }

    #[test]
    fn the_fast_driver_serves_until_code_may_change_the_shell() {
        let harmless = ["", "ls -l | wc", "x=1; f() { echo $x; }", "cd dataset/reset.d", "echo a.b ./run"];
        for code in harmless {
            assert_eq!(Driver::Fast.after(code), Driver::Fast, "{code:?}");
        }
        let changing = [
            "set -x",
            "trap 'x' INT",
            ". ./lib.sh",
            "\\set -e",
            "s'e't -x",
            "exec 3<f",
            "PS1=x",
            "PS1+=x",
            ": ${PS0:=z}",
            "PROMPT_COMMAND[0]=x",
            "f() { set -- $1; }",
            "x;.\tf",
            // A guess from words: this dot is harmless.
            "grep -rn foo .",
        ];
        for code in changing {
            assert_eq!(Driver::Fast.after(code), Driver::Standard, "{code:?}");
        }
        assert_eq!(Driver::Standard.after("ls"), Driver::Standard);
    }

    #[test]
    fn printing_traps_is_distinguished_from_setting_them() {
        for code in
            ["trap", "trap -p", "echo $(trap)", "trap | cat", "trap;", "trap -l", "x=\"trap\"", "{ trap; }"]
        {
            assert!(lists_traps(code), "{code:?}");
        }
        for code in
            ["ls", "trap 'rm f' EXIT", "trap '' INT", "trap - DEBUG", "trap -- x EXIT", "trap cleanup EXIT"]
        {
            assert!(!lists_traps(code), "{code:?}");
        }
    }

    #[test]
    fn a_line_is_appended_only_if_it_stands_alone() {
        for code in ["a | b", "a 'x|y' | b\n", "! false", "a | b &", "a | b;"] {
            assert_eq!(appendable(code), Appendable::Yes, "{code:?}");
        }
        for code in ["", "ls", "echo \"a b\"", "cat <<E\nx\nE"] {
            assert_eq!(appendable(code), Appendable::NotNeeded, "{code:?}");
        }
        let unsure = [
            "a |",
            "a | b &&",
            "a | b \\",
            "a | b <<E\nx",
            "if a | b; then",
            "f() \n#|",
            "a | b # c",
            "for x in a|b",
            "a|(",
        ];
        for code in unsure {
            assert_eq!(appendable(code), Appendable::AskBash, "{code:?}");
        }
    }
}
