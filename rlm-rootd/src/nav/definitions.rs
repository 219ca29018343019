//! Names and descriptions of the tools.

use serde_json::{Value as Json, json};

use super::search::MAX_RESULTS;

/// Name of the tool that counts the context.
pub const NAV_INFO: &str = "nav_info";

/// Name of the tool that lists the contents of a directory, file or class.
pub const NAV_LS: &str = "nav_ls";

/// Name of the tool that returns signatures.
pub const NAV_OUTLINE: &str = "nav_outline";

/// Name of the tool that reads text.
pub const NAV_READ: &str = "nav_read";

/// Name of the tool that searches text.
pub const NAV_SEARCH: &str = "nav_search";

/// One of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Info,
    List,
    Outline,
    Read,
    Search,
}

impl Operation {
    pub(super) const ALL: [Self; 5] = [Self::Info, Self::List, Self::Outline, Self::Read, Self::Search];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Info => NAV_INFO,
            Self::List => NAV_LS,
            Self::Outline => NAV_OUTLINE,
            Self::Read => NAV_READ,
            Self::Search => NAV_SEARCH,
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Info => {
                "Counts the context directory. Returns a dict: \"files\", \"bytes\", \"lines\", \"estimated_tokens\", \
                 \"languages\" ({name: {\"files\", \"lines\"}}, the largest first), \"binary_files\", \"unreadable\", \
                 \"complete\"."
            }
            Self::List => {
                "Lists a directory, the symbols of a source file, or the members of a class. Returns a list of dicts. \
                 Of a directory (\"\" or \"src\"): \"path\", \"kind\" (\"file\", \"directory\", \"binary\", …), \"bytes\", \
                 \"lines\". Of a file (\"src/a.py\") or a class in it (\"src/a.py:Class\"): \"name\", \"kind\" (\"class\", \
                 \"function\", …), \"line\", \"end_line\", \"members\" (how many it has), \"symbol\" (what to give to nav_read \
                 and nav_ls), \"signature\"."
            }
            Self::Outline => {
                "Returns a text: the signatures of a source file without their bodies, each with its line number. Of a \
                 directory: all files below it, each with its language and its number of lines."
            }
            Self::Read => {
                "Returns the source of a file (\"src/a.py\"), of lines of it (\"src/a.py:10-40\") or of a symbol \
                 (\"src/a.py:Class.method\", or only \"Class.method\" where no other has the name), as a text in chunks of at \
                 most 8,000 characters. Its first line tells path, lines, which chunk of how many it is, and the call that \
                 gets the next."
            }
            Self::Search => {
                "Searches the lines of all text files for a regular expression. Returns a list of dicts, in the order of paths \
                 and lines: \"path\", \"line\", \"text\", and \"cut\": True where a long line is only shown around the match. \
                 Where there is more to know, for instance that there are more matches, entries with \"note\": True follow: \
                 \"path\" is \"\" and \"text\" says it."
            }
        }
    }

    pub(super) fn parameters(self) -> Json {
        let (properties, required) = match self {
            Self::Info => (json!({}), json!([])),
            Self::List => (
                json!({"scope": text("Directory, file, or file:Class, relative to the context directory.", Some(""))}),
                json!([]),
            ),
            Self::Outline => (
                json!({"path": text("File, file:Class, or directory, relative to the context directory.", Some(""))}),
                json!([]),
            ),
            Self::Read => (
                json!({
                    "symbol_or_path": text("File, file:first-last, file:symbol, or the name of a symbol.", None),
                    "chunk_index": {
                        "type": "integer",
                        "minimum": 0,
                        "default": 0,
                        "description": "Which chunk, from 0.",
                    },
                }),
                json!(["symbol_or_path"]),
            ),
            Self::Search => (
                json!({
                    "pattern": text("Regular expression, matched within one line; (?i) in front ignores case.", None),
                    "max_results": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": MAX_RESULTS,
                        "default": 20,
                        "description": "Most matches to return.",
                    },
                    "path": text("Directory or file to search, relative to the context directory.", Some("")),
                }),
                json!(["pattern"]),
            ),
        };
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }
}

/// A parameter of type text. Shells pass digits as a number.
fn text(description: &str, default: Option<&str>) -> Json {
    let mut schema = json!({"type": ["string", "integer"], "description": description});
    if let Some(default) = default {
        schema["default"] = default.into();
    }
    schema
}
