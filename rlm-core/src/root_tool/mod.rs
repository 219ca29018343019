//! The root-tool wire: what code in a session sends to the endpoint, and what comes back.
//!
//! A call is `POST`ed as `{"tool_name", "serialization", "args", "kwargs"}`, where `args` and `kwargs` are base64 of a
//! pickled tuple and of a pickled dict, or a JSON list and object. The answer is 200 with `{"result", "print_lines"}`, the
//! result being base64 of a pickle or JSON, or any other status with `{"error"}`. A result that JSON cannot hold is sent
//! as `result_repr`, the text that Python's `repr` has for it.

pub mod client;

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

use crate::pickle::{self, DecodeError, Dict, Limits, Value, WriteError};

/// Largest body of a request or response by default, in bytes.
pub const MAX_BODY_BYTES: usize = 64 << 20;

/// Name of the root tool that asks sub-LLMs.
pub const LLM_BATCH: &str = "llm_batch";

/// How arguments and results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Serialization {
    /// Pickles of plain data, in base64.
    #[default]
    Pickle,
    /// JSON.
    Json,
}

impl fmt::Display for Serialization {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Pickle => "pickle",
            Self::Json => "json",
        })
    }
}

impl FromStr for Serialization {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "pickle" => Ok(Self::Pickle),
            "json" => Ok(Self::Json),
            _ => Err(()),
        }
    }
}

/// A call of a root tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The tool's name.
    pub tool: String,
    /// Arguments by position.
    pub args: Vec<Value>,
    /// Arguments by name; every key is a str.
    pub kwargs: Dict,
}

/// What a tool gives back.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The result.
    pub result: ToolResult,
    /// Lines for the session to print before it goes on.
    pub print_lines: Vec<String>,
}

/// The result of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolResult {
    /// A value.
    Value(Value),
    /// The repr of a value that the serialization cannot hold.
    Repr(String),
}

/// A request or response that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// No JSON, or JSON of another shape.
    #[error("Invalid JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// A request that names no tool.
    #[error("Tool name not provided")]
    NoToolName,
    /// Another serialization than the two.
    #[error("serialization is {0}, expected \"pickle\" or \"json\"")]
    Serialization(String),
    /// A field that is no base64 text.
    #[error("{field} is not base64: {reason}")]
    Base64 {
        /// The field.
        field: &'static str,
        /// Why.
        reason: String,
    },
    /// A pickle that is refused.
    #[error("{field} is refused: {source}")]
    Pickle {
        /// The field.
        field: &'static str,
        /// Why.
        #[source]
        source: DecodeError,
    },
    /// A value of another type.
    #[error("{field} must be {expected}, not {found}")]
    Type {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A value that cannot be written or converted.
    #[error("{field} cannot be sent: {source}")]
    Write {
        /// The field.
        field: &'static str,
        /// Why.
        #[source]
        source: WriteError,
    },
}

impl WireError {
    fn ty(field: &'static str, expected: &'static str, found: impl Into<String>) -> Self {
        Self::Type { field, expected, found: found.into() }
    }
}

/// A request whose arguments are not read yet: the tool is known before anything is decoded for it.
#[derive(Debug, Deserialize)]
pub struct Envelope {
    tool_name: Option<Json>,
    serialization: Option<Json>,
    args: Option<Json>,
    kwargs: Option<Json>,
}

impl Envelope {
    /// Reads a request body.
    ///
    /// # Errors
    /// [`WireError::Json`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        serde_json::from_slice(body).map_err(WireError::Json)
    }

    /// The tool that is called.
    ///
    /// # Errors
    /// [`WireError::NoToolName`] where it is missing, empty, or no text.
    pub fn tool_name(&self) -> Result<&str, WireError> {
        let name = self.tool_name.as_ref().and_then(Json::as_str).filter(|name| !name.is_empty());
        name.ok_or(WireError::NoToolName)
    }

    /// How the arguments are written, and the result has to be.
    ///
    /// # Errors
    /// [`WireError::Serialization`].
    pub fn serialization(&self) -> Result<Serialization, WireError> {
        match &self.serialization {
            None | Some(Json::Null) => Ok(Serialization::default()),
            Some(Json::String(text)) => {
                text.parse().map_err(|()| WireError::Serialization(format!("{text:?}")))
            }
            Some(other) => Err(WireError::Serialization(excerpt(other))),
        }
    }

    /// Reads the arguments. Those that are missing are none.
    ///
    /// # Errors
    /// [`WireError`] names the field.
    pub fn into_call(self, limits: &Limits) -> Result<Call, WireError> {
        let tool = self.tool_name()?.to_owned();
        let (args, kwargs) = match self.serialization()? {
            Serialization::Pickle => (
                self.args.map(|args| unpickle("args", &args, limits)).transpose()?,
                self.kwargs.map(|kwargs| unpickle("kwargs", &kwargs, limits)).transpose()?,
            ),
            Serialization::Json => {
                let read = |field, json: Option<Json>| {
                    json.map(|json| Value::from_json(&json))
                        .transpose()
                        .map_err(|source| WireError::Write { field, source })
                };
                let args = match read("args", self.args)? {
                    Some(Value::List(list)) => Some(Value::Tuple(list)),
                    Some(other) => return Err(WireError::ty("args", "a list", other.type_name())),
                    None => None,
                };
                (args, read("kwargs", self.kwargs)?)
            }
        };
        let args = match args {
            None => Vec::new(),
            Some(Value::Tuple(items)) => std::sync::Arc::unwrap_or_clone(items),
            Some(other) => return Err(WireError::ty("args", "a tuple", other.type_name())),
        };
        let kwargs = match kwargs {
            None => Dict::default(),
            Some(Value::Dict(dict)) => std::sync::Arc::unwrap_or_clone(dict),
            Some(other) => return Err(WireError::ty("kwargs", "a dict", other.type_name())),
        };
        if let Some((key, _)) = kwargs.iter().find(|(key, _)| !matches!(key, Value::Str(_))) {
            return Err(WireError::ty("a key of kwargs", "a str", key.type_name()));
        }
        Ok(Call { tool, args, kwargs })
    }
}

impl Call {
    /// The body of a request.
    ///
    /// # Errors
    /// [`WireError::Write`] where an argument cannot be written so.
    pub fn to_body(&self, serialization: Serialization) -> Result<Vec<u8>, WireError> {
        let args = Value::Tuple(std::sync::Arc::new(self.args.clone()));
        let kwargs = Value::from(self.kwargs.clone());
        let mut body = Map::new();
        body.insert("tool_name".to_owned(), self.tool.clone().into());
        body.insert("serialization".to_owned(), serialization.to_string().into());
        body.insert("args".to_owned(), write("args", &args, serialization)?);
        body.insert("kwargs".to_owned(), write("kwargs", &kwargs, serialization)?);
        serde_json::to_vec(&body).map_err(WireError::Json)
    }
}

impl Reply {
    /// A reply of a value alone.
    pub fn of(value: impl Into<Value>) -> Self {
        Self { result: ToolResult::Value(value.into()), print_lines: Vec::new() }
    }

    /// The body of a response of status 200. In JSON, a result that JSON cannot hold becomes its repr.
    ///
    /// # Errors
    /// [`WireError::Write`] where the result is too large.
    pub fn to_body(&self, serialization: Serialization) -> Result<Vec<u8>, WireError> {
        let mut body = Map::new();
        let repr = match &self.result {
            ToolResult::Repr(repr) => Some(repr.clone()),
            ToolResult::Value(value) => match write("result", value, serialization) {
                Ok(result) => {
                    body.insert("result".to_owned(), result);
                    None
                }
                Err(WireError::Write { source: WriteError::NotJson { .. }, .. }) => {
                    let repr = value.repr(MAX_BODY_BYTES);
                    Some(repr.map_err(|source| WireError::Write { field: "result", source })?)
                }
                Err(error) => return Err(error),
            },
        };
        if let Some(repr) = repr {
            body.insert("result_repr".to_owned(), repr.into());
        }
        if !self.print_lines.is_empty() {
            body.insert("print_lines".to_owned(), self.print_lines.clone().into());
        }
        serde_json::to_vec(&body).map_err(WireError::Json)
    }

    /// Reads the body of a response of status 200.
    ///
    /// # Errors
    /// [`WireError`] names the field.
    pub fn from_body(body: &[u8], serialization: Serialization, limits: &Limits) -> Result<Self, WireError> {
        let mut raw = RawReply::parse(body)?;
        let write_error = |source| WireError::Write { field: "result", source };
        let result = match (raw.result_repr.take(), serialization) {
            (Some(repr), _) => ToolResult::Repr(repr),
            (None, Serialization::Pickle) => {
                let value = pickle::decode(&raw.pickle()?, limits);
                ToolResult::Value(value.map_err(|source| WireError::Pickle { field: "result", source })?)
            }
            (None, Serialization::Json) => {
                let json = serde_json::from_str::<Json>(raw.json()?).map_err(WireError::Json)?;
                ToolResult::Value(Value::from_json(&json).map_err(write_error)?)
            }
        };
        Ok(Self { result, print_lines: raw.print_lines })
    }
}

/// Arguments that are written already.
#[derive(Clone, Copy, Debug)]
pub enum Written<'a> {
    /// A pickle.
    Pickle(&'a [u8]),
    /// A JSON text.
    Json(&'a str),
}

/// The body of a request whose arguments are written already.
///
/// # Errors
/// [`WireError::Json`] where an argument is no JSON text: Python writes NaN and infinities, which JSON does not have.
pub fn write_body(tool: &str, args: Written<'_>, kwargs: Written<'_>) -> Result<Vec<u8>, WireError> {
    #[derive(Serialize)]
    struct Body<'a> {
        tool_name: &'a str,
        serialization: Serialization,
        args: Box<RawValue>,
        kwargs: Box<RawValue>,
    }
    let serialization = match args {
        Written::Pickle(_) => Serialization::Pickle,
        Written::Json(_) => Serialization::Json,
    };
    let raw = |written| {
        let text = match written {
            Written::Pickle(bytes) => format!("\"{}\"", BASE64.encode(bytes)),
            Written::Json(text) => text.to_owned(),
        };
        RawValue::from_string(text).map_err(WireError::Json)
    };
    let body = Body { tool_name: tool, serialization, args: raw(args)?, kwargs: raw(kwargs)? };
    serde_json::to_vec(&body).map_err(WireError::Json)
}

/// The body of a response of status 200 whose result is not read yet.
#[derive(Debug)]
pub struct RawReply {
    result: Option<Box<RawValue>>,
    /// The repr of a value that the serialization cannot hold.
    pub result_repr: Option<String>,
    /// Lines for the session to print before it goes on.
    pub print_lines: Vec<String>,
}

impl RawReply {
    /// Reads a body.
    ///
    /// # Errors
    /// [`WireError::Json`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        #[derive(Deserialize)]
        struct Body {
            // A result of null is one, too.
            #[serde(default, deserialize_with = "present")]
            result: Option<Box<RawValue>>,
            result_repr: Option<String>,
            #[serde(default)]
            print_lines: Option<Vec<Json>>,
        }
        let body: Body = serde_json::from_slice(body).map_err(WireError::Json)?;
        let line = |line| match line {
            Json::String(line) => line,
            other => other.to_string(),
        };
        let print_lines = body.print_lines.unwrap_or_default().into_iter().map(line).collect();
        Ok(Self { result: body.result, result_repr: body.result_repr, print_lines })
    }

    /// The result as JSON text.
    ///
    /// # Errors
    /// It is missing.
    pub fn json(&self) -> Result<&str, WireError> {
        let result = self.result.as_ref().ok_or(WireError::ty("result", "there", "missing"))?;
        Ok(result.get())
    }

    /// The result as a pickle.
    ///
    /// # Errors
    /// It is missing, or no base64 text.
    pub fn pickle(&self) -> Result<Vec<u8>, WireError> {
        let json = serde_json::from_str(self.json()?).map_err(WireError::Json)?;
        decode_base64("result", &json)
    }
}

/// The body of a response of any other status than 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// A sentence for the caller.
    pub error: String,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

fn decode_base64(field: &'static str, json: &Json) -> Result<Vec<u8>, WireError> {
    let Json::String(text) = json else {
        return Err(WireError::ty(field, "base64 text", excerpt(json)));
    };
    let bytes = BASE64.decode(text.as_bytes());
    bytes.map_err(|error| WireError::Base64 { field, reason: error.to_string() })
}

fn unpickle(field: &'static str, json: &Json, limits: &Limits) -> Result<Value, WireError> {
    let value = pickle::decode(&decode_base64(field, json)?, limits);
    value.map_err(|source| WireError::Pickle { field, source })
}

fn write(field: &'static str, value: &Value, serialization: Serialization) -> Result<Json, WireError> {
    let written = match serialization {
        Serialization::Pickle => {
            pickle::encode_within(value, MAX_BODY_BYTES).map(|bytes| BASE64.encode(bytes).into())
        }
        Serialization::Json => value.to_json(MAX_BODY_BYTES),
    };
    written.map_err(|source| WireError::Write { field, source })
}

fn excerpt(json: &Json) -> String {
    crate::frame::excerpt(json.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        let kwargs = Dict::from_pairs([(Value::from("limit"), Value::from(3))]).unwrap();
        Call { tool: "search".to_owned(), args: vec![Value::from("a"), Value::from(1.5)], kwargs }
    }

    #[test]
    fn a_call_comes_back_as_it_was() {
        for serialization in [Serialization::Pickle, Serialization::Json] {
            let body = call().to_body(serialization).unwrap();
            let envelope = Envelope::parse(&body).unwrap();
            assert_eq!(envelope.tool_name().unwrap(), "search");
            assert_eq!(envelope.serialization().unwrap(), serialization);
            assert_eq!(envelope.into_call(&Limits::default()).unwrap(), call());
        }
    }

    #[test]
    fn a_reply_comes_back_as_it_was_and_as_its_repr_where_json_has_nothing_for_it() {
        let reply = Reply {
            result: ToolResult::Value(Value::tuple([Value::None, Value::from("x")])),
            print_lines: vec!["one".to_owned()],
        };
        let limits = Limits::default();
        let body = reply.to_body(Serialization::Pickle).unwrap();
        assert_eq!(Reply::from_body(&body, Serialization::Pickle, &limits).unwrap(), reply);
        let bytes = Reply::of(Value::Bytes(b"\x00".as_slice().into())).to_body(Serialization::Json).unwrap();
        assert_eq!(String::from_utf8(bytes.clone()).unwrap(), r#"{"result_repr":"b'\\x00'"}"#);
        let read = Reply::from_body(&bytes, Serialization::Json, &limits).unwrap();
        assert_eq!(read.result, ToolResult::Repr("b'\\x00'".to_owned()));
        let none = Reply::of(Value::None).to_body(Serialization::Json).unwrap();
        assert_eq!(Reply::from_body(&none, Serialization::Json, &limits).unwrap(), Reply::of(Value::None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |body: &str| {
            let envelope = Envelope::parse(body.as_bytes()).unwrap();
            envelope.into_call(&Limits::default()).unwrap_err().to_string()
        };
        assert!(
            Envelope::parse(b"{").unwrap_err().to_string().starts_with("Invalid JSON: EOF while parsing")
        );
        assert_eq!(error("{}"), "Tool name not provided");
        assert_eq!(error(r#"{"tool_name": ""}"#), "Tool name not provided");
        assert_eq!(
            error(r#"{"tool_name": "t", "serialization": "yaml"}"#),
            "serialization is \"yaml\", expected \"pickle\" or \"json\""
        );
        assert_eq!(
            error(r#"{"tool_name": "t", "args": "?"}"#),
            "args is not base64: Invalid symbol 63, offset 0."
        );
        assert_eq!(error(r#"{"tool_name": "t", "args": [1]}"#), "args must be base64 text, not \"[1]\"");
        // An empty list, where a tuple is expected.
        assert_eq!(error(r#"{"tool_name": "t", "args": "gARdlC4="}"#), "args must be a tuple, not list");
        assert_eq!(
            error(r#"{"tool_name": "t", "serialization": "json", "args": {}}"#),
            "args must be a list, not dict"
        );
    }
}
