//! The languages of sessions.

/// The language of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplLanguage {
    /// A bash session on a terminal.
    #[default]
    Bash,
    /// A Python namespace.
    Python,
}

named!(ReplLanguage, UnknownLanguage, "REPL language", { Bash = "bash", Python = "python" });

impl ReplLanguage {
    /// The name of the worker program for this language.
    #[must_use]
    pub fn worker_name(self) -> &'static str {
        match self {
            Self::Bash => "rlm-worker-bash",
            Self::Python => "rlm-worker-python",
        }
    }

    /// The name of the tool that runs code in this language for a root model.
    #[must_use]
    pub fn tool_name(self) -> &'static str {
        match self {
            Self::Bash => "call_bash_repl",
            Self::Python => "call_python_repl",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_names() {
        let error = "perl".parse::<ReplLanguage>().unwrap_err();
        assert_eq!(error.to_string(), "unknown REPL language `perl`: expected `bash` or `python`");
        let error = "loud".parse::<crate::terms::Verbosity>().unwrap_err();
        assert_eq!(error.to_string(), "unknown verbosity `loud`: expected `light`, `medium` or `heavy`");
    }
}
