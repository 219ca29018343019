//! The tools: their names, descriptions and parameters, and what they run.

use rlm_core::pickle::Value;
use rlm_core::root_tool::Call;
use serde_json::{Value as Json, json};

use super::context::Context;
use super::fault::Fault;
use super::info::info;
use super::list::list;
use super::outline::outline;
use super::read::read;
use super::search::{MAX_RESULTS, search};
use super::stop::Stop;

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

/// A tool: its words for a model, and its work.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    /// The schemas of the parameters.
    properties: fn() -> Json,
    required: &'static [&'static str],
    pub(super) run: fn(&Context, &Arguments, &Stop) -> Result<Value, Fault>,
}

/// The tools.
pub(super) static TOOLS: [Definition; 5] = [
    Definition {
        name: NAV_INFO,
        description: "Counts the context directory. Returns a dict: \"files\", \"bytes\", \"lines\", \"estimated_tokens\", \
             \"languages\" ({name: {\"files\", \"lines\"}}, the largest first), \"binary_files\", \"unreadable\", \
             \"complete\".",
        properties: || json!({}),
        required: &[],
        run: |context, _, stop| info(context, stop),
    },
    Definition {
        name: NAV_LS,
        description: "Lists a directory, the symbols of a source file, or the members of a class. Returns a list of dicts. \
             Of a directory (\"\" or \"src\"): \"path\", \"kind\" (\"file\", \"directory\", \"binary\", …), \"bytes\", \
             \"lines\". Of a file (\"src/a.py\") or a class in it (\"src/a.py:Class\"): \"name\", \"kind\" (\"class\", \
             \"function\", …), \"line\", \"end_line\", \"members\" (how many it has), \"symbol\" (what to give to nav_read \
             and nav_ls), \"signature\".",
        properties: || json!({"scope": text("Directory, file, or file:Class, relative to the context directory.", Some(""))}),
        required: &[],
        run: |context, given, stop| list(context, &given.text(0, "scope", Some(""))?, stop),
    },
    Definition {
        name: NAV_OUTLINE,
        description: "Returns a text: the signatures of a source file without their bodies, each with its line number. Of a \
             directory: all files below it, each with its language and its number of lines.",
        properties: || json!({"path": text("File, file:Class, or directory, relative to the context directory.", Some(""))}),
        required: &[],
        run: |context, given, stop| outline(context, &given.text(0, "path", Some(""))?, stop),
    },
    Definition {
        name: NAV_READ,
        description: "Returns the source of a file (\"src/a.py\"), of lines of it (\"src/a.py:10-40\") or of a symbol \
             (\"src/a.py:Class.method\", or only \"Class.method\" where no other has the name), as a text in chunks of at \
             most 8,000 characters. Its first line tells path, lines, which chunk of how many it is, and the call that \
             gets the next.",
        properties: || {
            json!({
                "symbol_or_path": text("File, file:first-last, file:symbol, or the name of a symbol.", None),
                "chunk_index": {
                    "type": "integer",
                    "minimum": 0,
                    "default": 0,
                    "description": "Which chunk, from 0.",
                },
            })
        },
        required: &["symbol_or_path"],
        run: |context, given, stop| {
            let what = given.text(0, "symbol_or_path", None)?;
            read(context, &what, given.number(1, "chunk_index", 0)?, stop)
        },
    },
    Definition {
        name: NAV_SEARCH,
        description: "Searches the lines of all text files for a regular expression. Returns a list of dicts, in the order of paths \
             and lines: \"path\", \"line\", \"text\", and \"cut\": True where a long line is only shown around the match. \
             Where there is more to know, for instance that there are more matches, entries with \"note\": True follow: \
             \"path\" is \"\" and \"text\" says it.",
        properties: || {
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
            })
        },
        required: &["pattern"],
        run: |context, given, stop| {
            let most = given.number(1, "max_results", 20)?.clamp(1, MAX_RESULTS);
            search(context, &given.text(0, "pattern", None)?, most, &given.text(2, "path", Some(""))?, stop)
        },
    },
];

impl Definition {
    /// The JSON schema of the parameters.
    pub(super) fn parameters(&self) -> Json {
        json!({
            "type": "object",
            "properties": (self.properties)(),
            "required": self.required,
            "additionalProperties": false,
        })
    }
}

/// The arguments of a call.
#[derive(Debug)]
pub(super) struct Arguments(pub(super) Call);

impl Arguments {
    /// A text, by its place or its name. Shells pass digits as a number.
    fn text(&self, place: usize, name: &str, default: Option<&str>) -> Result<String, Fault> {
        match (self.0.argument(place, name), default) {
            (Some(Value::Str(text)), _) => Ok(text.to_string()),
            (Some(Value::Int(number)), _) => Ok(number.to_string()),
            (Some(other), _) => {
                Err(Fault::refused(format!("{name} must be a str, not {}", other.type_name())))
            }
            (None, Some(default)) => Ok(default.to_owned()),
            (None, None) => Err(Fault::refused(format!("{name} is missing"))),
        }
    }

    fn number(&self, place: usize, name: &str, default: usize) -> Result<usize, Fault> {
        let refuse = || Err(Fault::refused(format!("{name} must be an int of 0 or more")));
        match self.0.argument(place, name) {
            None => Ok(default),
            Some(Value::Int(number)) => number.to_string().parse().or_else(|_too_large| refuse()),
            Some(_) => refuse(),
        }
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
