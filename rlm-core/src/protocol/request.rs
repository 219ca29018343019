//! Requests of the host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::UNKNOWN_SEQ;
use crate::json::JsonText;
use crate::limits::{MAX_TIMEOUT, MAX_VARIABLE_BYTES, MAX_VARIABLE_DEPTH, MIN_MAX_OUTPUT_BYTES};
use crate::text::cut;

/// Prefix of the names of variables that last for one call: op `set` defines them, and they are gone after the next
/// code that runs.
pub const ONE_CALL_PREFIX: &str = "__rlm_icpt_";

/// A request of the host: one document on the command FIFO.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Run code in the session.
    Execute(Execute),
    /// Give the session a fresh interpreter and clear the answer.
    Reset {
        /// Echoed in the response.
        seq: i64,
    },
    /// Set variables in the session.
    Set {
        /// Echoed in the response.
        seq: i64,
        /// JSON values by name, each within [`MAX_VARIABLE_BYTES`] and [`MAX_VARIABLE_DEPTH`].
        variables: BTreeMap<String, JsonText>,
    },
    /// Find what can complete code that is being typed.
    Complete {
        /// The code up to the cursor.
        code: String,
        /// Echoed in the response.
        seq: i64,
    },
    /// Write the session's state to a file. The session goes on.
    Save {
        /// Echoed in the response.
        seq: i64,
        /// The file. A relative path is one in the control directory.
        file: PathBuf,
        /// True for the session's directory, too.
        directory: bool,
    },
    /// Go on with the session that is in a file, in place of this one.
    Load {
        /// Echoed in the response.
        seq: i64,
        /// The file, as for `Save`.
        file: PathBuf,
    },
    /// Leave a copy of the session, which becomes that of another worker. The session goes on.
    Branch {
        /// Echoed in the response.
        seq: i64,
        /// The name by which the other worker finds it.
        name: String,
        /// True for a copy of the session's directory, too.
        directory: bool,
    },
    /// Describe the session.
    Info {
        /// Echoed in the response.
        seq: i64,
    },
    /// End the worker. The one request without a response.
    Shutdown,
}

/// One call: code to run, and the limits of this call.
#[derive(Clone, Debug, PartialEq)]
pub struct Execute {
    /// Code in the worker's language.
    pub code: String,
    /// The code as a person or a model wrote it, if that differs from `code`: Python shows it in tracebacks and as the
    /// source. It is the same program, except that `code` has variables in place of some calls.
    pub source: Option<String>,
    /// Echoed in the response.
    pub seq: i64,
    /// Time limit of this call; the worker's default if absent.
    pub timeout: Option<Duration>,
    /// Most bytes of output returned per stream; the worker's default if absent.
    pub max_output_bytes: Option<usize>,
}

/// A complete document that is not a valid request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct BadRequest {
    /// The document's `seq` if it could be read, otherwise [`UNKNOWN_SEQ`].
    pub seq: i64,
    /// The field, the value found and the value expected.
    pub fault: String,
}

impl Request {
    /// Parses one document. Unknown fields are ignored.
    ///
    /// # Errors
    /// [`BadRequest`] names the field, what was found and what was expected.
    pub fn parse(document: &[u8]) -> Result<Self, BadRequest> {
        let invalid = |error: &dyn std::fmt::Display| BadRequest {
            seq: crate::frame::scan_seq(document),
            fault: format!("request is not valid {error}"),
        };
        let text = std::str::from_utf8(document).map_err(|utf8| {
            let at = utf8.valid_up_to();
            invalid(&format_args!("UTF-8: byte 0x{:02x} at offset {at}", document[at]))
        })?;
        if !text.trim_start().starts_with('{') {
            let other = serde_json::from_str::<Value>(text)
                .map_err(|error| invalid(&format_args!("JSON: {error}")))?;
            let fault = format!("request is {}, expected a JSON object", kind(&other));
            return Err(BadRequest { seq: UNKNOWN_SEQ, fault });
        }
        let fields = serde_json::from_str(text).map_err(|error| invalid(&format_args!("JSON: {error}")))?;
        Fields::new(fields).and_then(Fields::into_request)
    }
}

/// A request's fields, with the `seq` that every error about them carries.
struct Fields<'a> {
    seq: i64,
    fields: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    fn new(fields: BTreeMap<String, &'a RawValue>) -> Result<Self, BadRequest> {
        let mut fields = Self { seq: UNKNOWN_SEQ, fields };
        fields.seq = match fields.take("seq")? {
            None => UNKNOWN_SEQ,
            Some(value) => value.as_i64().ok_or_else(|| fields.wrong("seq", &value, "a 64-bit integer"))?,
        };
        Ok(fields)
    }

    /// A field's value. JSON text that a `Value` cannot hold is an error: a number out of range, a lone surrogate.
    fn take(&mut self, name: &str) -> Result<Option<Value>, BadRequest> {
        let Some(raw) = self.fields.remove(name) else { return Ok(None) };
        let value = serde_json::from_str(raw.get());
        value.map(Some).map_err(|error| self.fault(format!("field `{name}` cannot be read: {error}")))
    }

    fn into_request(mut self) -> Result<Request, BadRequest> {
        match self.take("shutdown")? {
            None | Some(Value::Bool(false)) => {}
            Some(Value::Bool(true)) => return Ok(Request::Shutdown),
            Some(other) => return Err(self.wrong("shutdown", &other, "a boolean")),
        }
        let op = match self.take("op")? {
            None => "execute".to_owned(),
            Some(Value::String(op)) => op,
            Some(other) => return Err(self.wrong("op", &other, "a string")),
        };
        let seq = self.seq;
        match op.as_str() {
            "execute" => self.into_execute().map(Request::Execute),
            "reset" => Ok(Request::Reset { seq }),
            "set" => self.into_variables().map(|variables| Request::Set { seq, variables }),
            "complete" => self.take_code().map(|code| Request::Complete { code, seq }),
            "info" => Ok(Request::Info { seq }),
            "save" => self.into_save(),
            "load" => self.take_file().map(|file| Request::Load { seq, file }),
            "branch" => self.into_branch(),
            other => Err(self.fault(format!(
                "unknown op `{other}`: expected `execute`, `reset`, `set`, `complete`, `info`, `save`, `load` or `branch`"
            ))),
        }
    }

    fn into_execute(mut self) -> Result<Execute, BadRequest> {
        let code = self.take_code()?;
        let source = match self.take("source")? {
            None | Some(Value::Null) => None,
            Some(Value::String(source)) => Some(source),
            Some(other) => return Err(self.wrong("source", &other, "a string")),
        };
        let timeout = match self.take("timeout")? {
            None | Some(Value::Null) => None,
            Some(value) => match value.as_f64() {
                Some(seconds) if seconds > 0.0 => Some(
                    Duration::try_from_secs_f64(seconds).map_or(MAX_TIMEOUT, |limit| limit.min(MAX_TIMEOUT)),
                ),
                _ => return Err(self.wrong("timeout", &value, "a number of seconds above 0")),
            },
        };
        let max_output_bytes = match self.take("max_output_bytes")? {
            None | Some(Value::Null) => None,
            Some(value) => match value.as_u64().and_then(|bytes| usize::try_from(bytes).ok()) {
                Some(bytes) => Some(bytes.max(MIN_MAX_OUTPUT_BYTES)),
                None => return Err(self.wrong("max_output_bytes", &value, "a number of bytes, 0 or more")),
            },
        };
        Ok(Execute { code, source, seq: self.seq, timeout, max_output_bytes })
    }

    fn take_code(&mut self) -> Result<String, BadRequest> {
        match self.take("code")? {
            Some(Value::String(code)) => Ok(code),
            Some(other) => Err(self.wrong("code", &other, "a string")),
            None => Err(self.fault("request has no field `code`, the string to run".into())),
        }
    }

    fn into_save(mut self) -> Result<Request, BadRequest> {
        let directory = self.take_directory()?;
        self.take_file().map(|file| Request::Save { seq: self.seq, file, directory })
    }

    fn into_branch(mut self) -> Result<Request, BadRequest> {
        const EXPECTED: &str = "a name of 1 to 107 bytes";
        let directory = self.take_directory()?;
        match self.take("name")? {
            Some(Value::String(name)) if (1..=107).contains(&name.len()) && !name.contains('\0') => {
                Ok(Request::Branch { seq: self.seq, name, directory })
            }
            Some(other) => Err(self.wrong("name", &other, EXPECTED)),
            None => Err(self.fault(format!("op `branch` has no field `name`, {EXPECTED}"))),
        }
    }

    fn take_directory(&mut self) -> Result<bool, BadRequest> {
        match self.take("directory")? {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(directory)) => Ok(directory),
            Some(other) => Err(self.wrong("directory", &other, "a boolean")),
        }
    }

    fn take_file(&mut self) -> Result<PathBuf, BadRequest> {
        match self.take("file")? {
            Some(Value::String(file)) if !file.is_empty() && !file.contains('\0') => Ok(file.into()),
            Some(Value::String(_)) => Err(self.fault("field `file` is not the path of a file".into())),
            Some(other) => Err(self.wrong("file", &other, "a string")),
            None => Err(self.fault("request has no field `file`, the path of the saved session".into())),
        }
    }

    fn into_variables(mut self) -> Result<BTreeMap<String, JsonText>, BadRequest> {
        const EXPECTED: &str = "an object of names and values";
        let Some(raw) = self.fields.remove("variables") else {
            return Err(self.fault(format!("op `set` has no field `variables`, {EXPECTED}")));
        };
        let Ok(variables) = serde_json::from_str::<BTreeMap<String, JsonText>>(raw.get()) else {
            self.fields.insert("variables".to_owned(), raw);
            // Not an object, or a name with a lone surrogate.
            let found = self.take("variables")?.unwrap_or_default();
            return Err(self.wrong("variables", &found, EXPECTED));
        };
        for (name, json) in &variables {
            let bytes = json.get().len();
            let fault = if bytes > MAX_VARIABLE_BYTES {
                format!(
                    "variable `{}` has {bytes} bytes of JSON, more than the limit of {MAX_VARIABLE_BYTES}: \
                     put large data into a file of the session's directory",
                    name_excerpt(name)
                )
            } else if json.depth() > MAX_VARIABLE_DEPTH {
                format!(
                    "variable `{}` is nested {} levels deep, more than the limit of {MAX_VARIABLE_DEPTH}",
                    name_excerpt(name),
                    json.depth()
                )
            } else {
                continue;
            };
            return Err(self.fault(fault));
        }
        Ok(variables)
    }

    fn wrong(&self, field: &str, found: &Value, expected: &str) -> BadRequest {
        self.fault(format!("field `{field}` is {}, expected {expected}", kind(found)))
    }

    fn fault(&self, fault: String) -> BadRequest {
        BadRequest { seq: self.seq, fault }
    }
}

/// A variable's name shortened for an error message.
#[must_use]
pub fn name_excerpt(name: &str) -> String {
    cut(name, NAME_CHARS)
}

/// Most characters of a variable's name that an error shows.
const NAME_CHARS: usize = 80;

/// Describes a JSON value in an error: its type, and the value if it is short.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn execute(code: &str) -> Execute {
        Execute { code: code.to_owned(), source: None, seq: 1, timeout: None, max_output_bytes: None }
    }

    #[track_caller]
    fn check_request(document: &str, request: Request) {
        assert_eq!(Request::parse(document.as_bytes()), Ok(request), "{document}");
    }

    /// Checks requests as hosts write them: a change here is a change of the wire.
    #[test]
    fn golden_requests() {
        check_request(r#"{"code": "echo \u00e9", "seq": 1}"#, Request::Execute(execute("echo é")));
        check_request(r#"{"op": "execute", "code": "", "seq": 1, "new": {}}"#, Request::Execute(execute("")));
        check_request(
            r#"{"code": ":", "seq": 1, "timeout": 0.5, "max_output_bytes": 4096}"#,
            Request::Execute(Execute {
                timeout: Some(Duration::from_millis(500)),
                max_output_bytes: Some(4096),
                ..execute(":")
            }),
        );
        check_request(
            r#"{"code": "x = __rlm_icpt_1", "seq": 1, "source": "x = f()"}"#,
            Request::Execute(Execute { source: Some("x = f()".to_owned()), ..execute("x = __rlm_icpt_1") }),
        );
        check_request(r#"{"code": ":", "seq": 1, "source": null}"#, Request::Execute(execute(":")));
        check_request(r#"{"code": ":"}"#, Request::Execute(Execute { seq: UNKNOWN_SEQ, ..execute(":") }));
        check_request(r#"{"shutdown": true}"#, Request::Shutdown);
        check_request(r#"{"op": "reset", "seq": 2}"#, Request::Reset { seq: 2 });
        check_request(r#"{"op": "info", "seq": 3}"#, Request::Info { seq: 3 });
        let file = PathBuf::from("/tmp/s");
        check_request(
            r#"{"op": "save", "seq": 6, "file": "/tmp/s"}"#,
            Request::Save { seq: 6, file: file.clone(), directory: false },
        );
        check_request(
            r#"{"op": "save", "seq": 6, "file": "/tmp/s", "directory": true}"#,
            Request::Save { seq: 6, file: file.clone(), directory: true },
        );
        check_request(r#"{"op": "load", "seq": 7, "file": "/tmp/s"}"#, Request::Load { seq: 7, file });
        check_request(
            r#"{"op": "complete", "code": "ec", "seq": 5}"#,
            Request::Complete { code: "ec".to_owned(), seq: 5 },
        );
        check_request(
            r#"{"op": "set", "seq": 4, "variables": {"a": [1, "x"]}}"#,
            Request::Set { seq: 4, variables: BTreeMap::from([("a".to_owned(), json!([1, "x"]).into())]) },
        );
    }

    #[test]
    fn limits_that_a_clock_or_a_buffer_cannot_hold_are_bounded() {
        let Ok(Request::Execute(call)) =
            Request::parse(br#"{"code": "", "timeout": 1e300, "max_output_bytes": 1}"#)
        else {
            panic!("refused")
        };
        assert_eq!((call.timeout, call.max_output_bytes), (Some(MAX_TIMEOUT), Some(MIN_MAX_OUTPUT_BYTES)));
    }

    #[test]
    fn values_keep_their_spelling() {
        let document = r#"{"op": "set", "seq": 1, "variables": {"n": 1e400, "i": 12345678901234567890123, "s": "\ud800", "n": 1.0}}"#;
        let Ok(Request::Set { variables, .. }) = Request::parse(document.as_bytes()) else {
            panic!("refused")
        };
        let texts: Vec<&str> = variables.values().map(JsonText::get).collect();
        assert_eq!(texts, ["12345678901234567890123", "1.0", r#""\ud800""#]);
    }

    #[test]
    fn variables_over_the_limits_are_refused_by_name() {
        let set = |value: &str| {
            let document =
                format!(r#"{{"op": "set", "seq": 3, "variables": {{"fits": 1, "big": {value}}}}}"#);
            Request::parse(document.as_bytes())
        };
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        assert!(set(&text(MAX_VARIABLE_BYTES)).is_ok());
        let fault = "variable `big` has 1048577 bytes of JSON, more than the limit of 1048576: \
                     put large data into a file of the session's directory";
        assert_eq!(set(&text(MAX_VARIABLE_BYTES + 1)), Err(BadRequest { seq: 3, fault: fault.to_owned() }));
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(set(&nested(MAX_VARIABLE_DEPTH)).is_ok());
        let fault = set(&nested(MAX_VARIABLE_DEPTH + 1)).unwrap_err().fault;
        assert_eq!(fault, "variable `big` is nested 101 levels deep, more than the limit of 100");
    }

    proptest! {
        #[test]
        fn no_document_is_fatal(document in "\\{(\"(op|code|seq|variables|timeout)\":(\"(set|x)\"|\\{\"a\":[0-9\\[\\]]{0,3}\\}|-?[0-9e.]{0,5}),?){0,4}\\}?") {
            if let Err(refused) = Request::parse(document.as_bytes()) {
                prop_assert!(!refused.fault.is_empty());
            }
        }
    }
}
