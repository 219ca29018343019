//! The root-tool wire: requests that code in a session sends to the endpoint, and the responses.
//!
//! A call is `POST`ed as `{"tool_name", "serialization", "args", "kwargs"}`, where `args` and `kwargs` are base64 of a
//! pickled tuple and of a pickled dict, or a JSON list and object. The response is 200 with `{"result",
//! "print_lines"}`, the result being base64 of a pickle or JSON, or any other status with `{"error"}`. A result that
//! JSON cannot hold is sent as `result_repr`, its Python `repr`.

pub mod client;
pub mod print;
pub mod query_words;
pub mod words;

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::pickle::{self, DecodeError, Dict, JsonError, Limits, Value, WriteError};

/// Default size limit of a request or response body, in bytes.
pub const MAX_BODY_BYTES: usize = 64 << 20;

/// Name of the root tool that calls sub-LLMs.
pub const LLM_BATCH: &str = "llm_batch";

/// Name of the root tool that calls a sub-LLM once.
pub const LLM_QUERY: &str = "llm_query";

/// Name of the root tool by which code starts a rollout of its own.
pub const RLM_QUERY: &str = "rlm_query";

/// Name of the root tool by which it starts several.
pub const RLM_QUERY_BATCH: &str = "rlm_query_batch";

/// Another name of the same.
pub const RLM_QUERY_BATCHED: &str = "rlm_query_batched";

/// Name of the root tool by which code shows an image to the root model.
pub const SHOW: &str = "show";

/// Beginning of the text that stands for the answer of such a rollout that has none.
pub const QUERY_ERROR: &str = "Error in rlm_query: ";

/// The words of a line, after a number, for results that were paid for before.
pub const PAID_BEFORE: &str = " paid for before";

/// The words in the line of `rlm_query` that mark an answer as not final.
pub const DRAFT: &str = " a draft";

/// True of the tools by which code has others answer in sessions of their own.
#[must_use]
pub fn is_query(tool: &str) -> bool {
    [RLM_QUERY, RLM_QUERY_BATCH, RLM_QUERY_BATCHED].contains(&tool)
}

/// True of the tools that ask models: their arguments are text, and their answers are printed line by line.
#[must_use]
pub fn asks(tool: &str) -> bool {
    [LLM_BATCH, LLM_QUERY].contains(&tool) || is_query(tool)
}

/// Encoding of arguments and results.
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

/// A call to a root tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Name of the tool.
    pub tool: String,
    /// Positional arguments.
    pub args: Vec<Value>,
    /// Keyword arguments; every key is a str.
    pub kwargs: Dict,
}

/// A tool's reply to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Result of the call.
    pub result: ToolResult,
    /// Lines that the session prints before it goes on.
    pub print_lines: Vec<String>,
}

/// The result of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolResult {
    /// The value itself.
    Value(Value),
    /// The repr of a value that the serialization cannot hold.
    Repr(String),
}

/// A request or response that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Not JSON, or JSON of another shape.
    #[error("Invalid JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// Not JSON, or too large.
    #[error("Invalid JSON: {0}")]
    Text(#[from] JsonError),
    /// The body is a list or a scalar.
    #[error("Invalid JSON: the body must be a JSON object, not {0}")]
    NotObject(&'static str),
    /// The request does not name a tool.
    #[error("Tool name not provided")]
    NoToolName,
    /// The serialization is neither pickle nor JSON.
    #[error("serialization is {0}, expected \"pickle\" or \"json\"")]
    Serialization(String),
    /// A field that is not base64 text.
    #[error("{field} is not base64: {reason}")]
    Base64 {
        /// Name of the field.
        field: &'static str,
        /// The decoder's message.
        reason: String,
    },
    /// A pickle that was refused.
    #[error("{field} is refused: {source}")]
    Pickle {
        /// Name of the field.
        field: &'static str,
        /// Fault in the pickle.
        #[source]
        source: DecodeError,
    },
    /// A value of the wrong type.
    #[error("{field} must be {expected}, not {found}")]
    Type {
        /// Name of the field.
        field: &'static str,
        /// Expected type.
        expected: &'static str,
        /// Actual type or value.
        found: String,
    },
    /// The endpoint's own message, in place of a result.
    #[error("{0}")]
    Reported(String),
    /// A value that cannot be encoded.
    #[error("{field} cannot be sent: {source}")]
    Write {
        /// Name of the field.
        field: &'static str,
        /// Fault in the value.
        #[source]
        source: WriteError,
    },
}

impl WireError {
    fn ty(field: &'static str, expected: &'static str, found: impl Into<String>) -> Self {
        Self::Type { field, expected, found: found.into() }
    }
}

/// A request whose arguments are not decoded yet: the tool is known first.
#[derive(Clone, Debug, Default)]
pub struct Envelope {
    tool_name: Option<Value>,
    serialization: Option<Value>,
    args: Option<Value>,
    kwargs: Option<Value>,
}

impl Envelope {
    /// Parses a request body.
    ///
    /// # Errors
    /// [`WireError::Text`], [`WireError::NotObject`].
    pub fn parse(body: &[u8], limits: &Limits) -> Result<Self, WireError> {
        let fields = match Value::from_json_text(body, limits)? {
            Value::Dict(fields) => fields,
            other => return Err(WireError::NotObject(other.type_name())),
        };
        let mut envelope = Self::default();
        for (name, value) in fields.iter().filter(|(_, value)| !matches!(value, Value::None)) {
            let Value::Str(name) = name else { continue };
            let field = match &**name {
                "tool_name" => &mut envelope.tool_name,
                "serialization" => &mut envelope.serialization,
                "args" => &mut envelope.args,
                "kwargs" => &mut envelope.kwargs,
                _ => continue,
            };
            *field = Some(value.clone());
        }
        Ok(envelope)
    }

    /// Name of the tool that is called.
    ///
    /// # Errors
    /// [`WireError::NoToolName`] if it is missing, empty, or not a string.
    pub fn tool_name(&self) -> Result<&str, WireError> {
        match &self.tool_name {
            Some(Value::Str(name)) if !name.is_empty() => Ok(name),
            _ => Err(WireError::NoToolName),
        }
    }

    /// Encoding of the arguments, and so of the result.
    ///
    /// # Errors
    /// [`WireError::Serialization`].
    pub fn serialization(&self) -> Result<Serialization, WireError> {
        match &self.serialization {
            None => Ok(Serialization::default()),
            Some(Value::Str(text)) => {
                text.parse().map_err(|()| WireError::Serialization(crate::frame::excerpt(text.as_bytes())))
            }
            Some(other) => Err(WireError::Serialization(excerpt(other))),
        }
    }

    /// The arguments as received: values, or texts that are not decoded.
    pub fn arguments(&self) -> impl Iterator<Item = &Value> {
        self.args.iter().chain(&self.kwargs)
    }

    /// Decodes the arguments. Missing ones count as empty.
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
                let args = match self.args {
                    Some(Value::List(list)) => Some(Value::Tuple(list)),
                    Some(other) => return Err(WireError::ty("args", "a list", other.type_name())),
                    None => None,
                };
                (args, self.kwargs)
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

impl WireError {
    /// The message for the caller of the tool whose reply has this fault.
    #[must_use]
    pub fn in_reply_of(self, tool: &str) -> String {
        match self {
            Self::Reported(message) => message,
            fault => format!("the answer to {tool} cannot be read: {fault}"),
        }
    }
}

impl Call {
    /// The argument of a parameter, given by position or by name.
    #[must_use]
    pub fn argument(&self, position: usize, name: &str) -> Option<&Value> {
        self.args.get(position).or_else(|| self.kwargs.get(name))
    }

    /// The body of a request.
    ///
    /// # Errors
    /// [`WireError::Write`] if an argument cannot be encoded.
    pub fn to_body(&self, serialization: Serialization) -> Result<Vec<u8>, WireError> {
        let args = Value::Tuple(std::sync::Arc::new(self.args.clone()));
        let kwargs = Value::from(self.kwargs.clone());
        let mut body = Object::default();
        body.json("tool_name", &self.tool);
        body.json("serialization", &serialization);
        body.value("args", &args, serialization)?;
        body.value("kwargs", &kwargs, serialization)?;
        Ok(body.end())
    }
}

/// A reply that is only a value.
impl<T: Into<Value>> From<T> for Reply {
    fn from(value: T) -> Self {
        Self::of(value)
    }
}

impl Reply {
    /// A reply that is only a value.
    pub fn of(value: impl Into<Value>) -> Self {
        Self { result: ToolResult::Value(value.into()), print_lines: Vec::new() }
    }

    /// The body of a response of status 200. With JSON, a result that JSON cannot hold becomes its repr.
    ///
    /// # Errors
    /// [`WireError::Write`] if the result is too large.
    pub fn to_body(&self, serialization: Serialization) -> Result<Vec<u8>, WireError> {
        let mut body = Object::default();
        match &self.result {
            ToolResult::Repr(repr) => body.json("result_repr", repr),
            ToolResult::Value(value) => match body.value("result", value, serialization) {
                Ok(()) => {}
                Err(WireError::Write { source: WriteError::NotJson { .. }, .. }) => {
                    let repr = value.repr(MAX_BODY_BYTES);
                    let repr = repr.map_err(|source| WireError::Write { field: "result", source })?;
                    body.json("result_repr", &repr);
                }
                Err(error) => return Err(error),
            },
        }
        if !self.print_lines.is_empty() {
            body.json("print_lines", &self.print_lines);
        }
        Ok(body.end())
    }

    /// Parses the body of a response of status 200.
    ///
    /// # Errors
    /// [`WireError::Reported`], or an error that names the field.
    pub fn from_body(body: &[u8], serialization: Serialization, limits: &Limits) -> Result<Self, WireError> {
        let mut raw = RawReply::parse(body)?;
        let result = match (raw.result_repr.take(), serialization) {
            (Some(repr), _) => ToolResult::Repr(repr),
            (None, Serialization::Pickle) => {
                let value = pickle::decode(&raw.pickle()?, limits);
                ToolResult::Value(value.map_err(|source| WireError::Pickle { field: "result", source })?)
            }
            (None, Serialization::Json) => {
                ToolResult::Value(Value::from_json_text(raw.json()?.as_bytes(), limits)?)
            }
        };
        Ok(Self { result, print_lines: raw.print_lines })
    }
}

/// Encoded arguments.
#[derive(Clone, Copy, Debug)]
pub enum Written<'a> {
    /// A pickle.
    Pickle(&'a [u8]),
    /// A JSON text.
    Json(&'a str),
}

/// The body of a request whose arguments are already encoded.
///
/// # Errors
/// [`WireError::Json`] if an argument is not JSON: Python writes NaN and infinities, which JSON does not have.
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

/// The body of a response of status 200 whose result is not decoded yet.
#[derive(Debug)]
pub struct RawReply {
    result: Option<Box<RawValue>>,
    /// The repr of a value that the serialization cannot hold.
    pub result_repr: Option<String>,
    /// Lines that the session prints before it goes on.
    pub print_lines: Vec<String>,
}

impl RawReply {
    /// Parses a body.
    ///
    /// # Errors
    /// [`WireError::Reported`] for an error without a result, [`WireError::Json`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        #[derive(Deserialize)]
        struct Body {
            // A result of null counts as present.
            #[serde(default, deserialize_with = "present")]
            result: Option<Box<RawValue>>,
            result_repr: Option<String>,
            #[serde(default)]
            print_lines: Option<Vec<Json>>,
            error: Option<Json>,
        }
        let body: Body = serde_json::from_slice(body).map_err(WireError::Json)?;
        let text = |value| match value {
            Json::String(text) => text,
            other => other.to_string(),
        };
        if let (None, None, Some(error)) = (&body.result, &body.result_repr, body.error) {
            return Err(WireError::Reported(text(error)));
        }
        let print_lines = body.print_lines.unwrap_or_default().into_iter().map(text).collect();
        Ok(Self { result: body.result, result_repr: body.result_repr, print_lines })
    }

    /// The result as JSON text.
    ///
    /// # Errors
    /// The result is missing.
    pub fn json(&self) -> Result<&str, WireError> {
        let result = self.result.as_ref().ok_or(WireError::ty("result", "there", "missing"))?;
        Ok(result.get())
    }

    /// The result as a pickle.
    ///
    /// # Errors
    /// The result is missing, or is not base64 text.
    pub fn pickle(&self) -> Result<Vec<u8>, WireError> {
        let text = self.json()?;
        let encoded = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        match encoded {
            Some(encoded) if !encoded.contains('\\') => decode_base64("result", encoded),
            Some(_) => {
                decode_base64("result", &serde_json::from_str::<String>(text).map_err(WireError::Json)?)
            }
            None => Err(WireError::ty("result", "base64 text", crate::frame::excerpt(text.as_bytes()))),
        }
    }
}

/// The body of a response with any status but 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// A sentence for the caller.
    pub error: String,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

fn decode_base64(field: &'static str, text: &str) -> Result<Vec<u8>, WireError> {
    let bytes = BASE64.decode(text.as_bytes());
    bytes.map_err(|error| WireError::Base64 { field, reason: error.to_string() })
}

fn unpickle(field: &'static str, value: &Value, limits: &Limits) -> Result<Value, WireError> {
    let Value::Str(text) = value else {
        return Err(WireError::ty(field, "base64 text", excerpt(value)));
    };
    let value = pickle::decode(&decode_base64(field, text)?, limits);
    value.map_err(|source| WireError::Pickle { field, source })
}

/// A JSON object being written: its parts may be large, and each is held only once.
#[derive(Default)]
struct Object(Vec<u8>);

impl Object {
    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        serde_json::to_writer(&mut self.0, name).expect("a str can be written to a Vec");
        self.0.push(b':');
    }

    /// Adds one of our own fields, which JSON can hold.
    fn json(&mut self, name: &str, value: &impl Serialize) {
        self.name(name);
        serde_json::to_writer(&mut self.0, value).expect("it can be written to a Vec");
    }

    /// Adds nothing if the value cannot be encoded.
    fn value(
        &mut self,
        field: &'static str,
        value: &Value,
        serialization: Serialization,
    ) -> Result<(), WireError> {
        let failed = |source| WireError::Write { field, source };
        match serialization {
            Serialization::Pickle => {
                let pickle = pickle::encode_within(value, MAX_BODY_BYTES).map_err(failed)?;
                self.name(field);
                self.0.push(b'"');
                let start = self.0.len();
                let length = base64::encoded_len(pickle.len(), true).expect("a pickle is below 4 GiB");
                self.0.resize(start + length, 0);
                BASE64.encode_slice(&pickle, &mut self.0[start..]).expect("there is as much room");
                self.0.push(b'"');
            }
            Serialization::Json => {
                let text = value.to_json_text(MAX_BODY_BYTES).map_err(failed)?;
                self.name(field);
                self.0.extend_from_slice(&text);
            }
        }
        Ok(())
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

fn excerpt(value: &Value) -> String {
    crate::frame::excerpt(format!("{value:?}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        let kwargs = Dict::from_pairs([(Value::from("limit"), Value::from(3))]).unwrap();
        Call { tool: "search".to_owned(), args: vec![Value::from("a"), Value::from(1.5)], kwargs }
    }

    #[test]
    fn a_call_survives_the_round_trip() {
        for serialization in [Serialization::Pickle, Serialization::Json] {
            let body = call().to_body(serialization).unwrap();
            let envelope = Envelope::parse(&body, &Limits::default()).unwrap();
            assert_eq!(envelope.tool_name().unwrap(), "search");
            assert_eq!(envelope.serialization().unwrap(), serialization);
            assert_eq!(envelope.into_call(&Limits::default()).unwrap(), call());
        }
    }

    #[test]
    fn a_reply_survives_the_round_trip_or_becomes_its_repr_in_json() {
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
    fn an_error_without_a_result_is_the_reply() {
        let read = |body: &str| {
            let reply = Reply::from_body(body.as_bytes(), Serialization::Json, &Limits::default());
            reply.map_err(|error| error.in_reply_of("t"))
        };
        assert_eq!(read(r#"{"error": "it broke"}"#), Err("it broke".to_owned()));
        assert_eq!(read(r#"{"error": {"code": 3}}"#), Err(r#"{"code":3}"#.to_owned()));
        assert_eq!(read(r#"{"error": "a remark", "result": 5}"#), Ok(Reply::of(5)));
        assert_eq!(read(r#"{"error": "a remark", "result": null}"#), Ok(Reply::of(Value::None)));
        let unreadable = "the answer to t cannot be read: result must be there, not missing";
        assert_eq!(read(r#"{"error": null}"#), Err(unreadable.to_owned()));
    }

    #[test]
    fn errors_name_the_fault() {
        let error = |body: &str| {
            let envelope = Envelope::parse(body.as_bytes(), &Limits::default()).unwrap();
            envelope.into_call(&Limits::default()).unwrap_err().to_string()
        };
        let unread =
            |body: &str| Envelope::parse(body.as_bytes(), &Limits::default()).unwrap_err().to_string();
        assert!(unread("{").starts_with("Invalid JSON: EOF while parsing"));
        let list = unread(r#"["t", "json", [1], {}]"#);
        assert_eq!(list, "Invalid JSON: the body must be a JSON object, not list");
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
