//! Checks that root tools can be functions of the session.

/// Words that Python does not accept as names.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Name of the answer.
pub const ANSWER: &str = "answer";

/// Names that the session's namespace always has.
pub const TAKEN: [&str; 3] = [ANSWER, "extra_data", "fs_metadata"];

/// Names of the functions that set the answer, if the session has them.
pub const FINAL_FUNCTIONS: [&str; 2] = [FINAL, FINAL_VAR];

/// Sets the answer to a value.
pub const FINAL: &str = "FINAL";

/// Sets the answer to the value of a variable.
pub const FINAL_VAR: &str = "FINAL_VAR";

/// A root tool that cannot be a function of the session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("root tool {name:?} of RLM_ROOT_TOOL_NAMES cannot be a function: {fault}")]
pub struct BadName {
    name: String,
    fault: &'static str,
}

/// Checks that each of these identifiers can be a function of the session, which may also have [`FINAL_FUNCTIONS`].
///
/// # Errors
/// [`BadName`] is the first that cannot.
pub fn check_names<'a>(
    names: impl IntoIterator<Item = &'a String>,
    has_final_functions: bool,
) -> Result<(), BadName> {
    for name in names {
        let fault = match name.as_str() {
            keyword if KEYWORDS.contains(&keyword) => "it is a keyword of Python",
            taken if TAKEN.contains(&taken) => "the session already uses this name",
            function if has_final_functions && FINAL_FUNCTIONS.contains(&function) => {
                "RLM_FINAL_FUNCTIONS defines a function of this name"
            }
            _ => continue,
        };
        return Err(BadName { name: name.clone(), fault });
    }
    Ok(())
}
