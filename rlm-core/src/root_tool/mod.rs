//! The root-tool wire: requests that code in a session sends to the endpoint, and the responses.
//!
//! A call is `POST`ed as `{"tool_name", "serialization", "args", "kwargs"}`, where `args` and `kwargs` are base64 of a
//! pickled tuple and of a pickled dict, or a JSON list and object. The response is 200 with `{"result",
//! "print_lines"}`, the result being base64 of a pickle or JSON, or any other status with `{"error"}`. A result that
//! JSON cannot hold is sent as `result_repr`, its Python `repr`.

pub mod client;
mod encoding;
pub mod print;
pub mod query_words;
mod raw;
#[cfg(test)]
mod tests;
pub mod words;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use self::encoding::decode_base64;
pub use self::encoding::{Serialization, WireError};
pub use self::raw::{RawReply, Written, write_body};
use crate::pickle::{self, Dict, Limits, Value, WriteError};

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

/// The words of a line, after a number, for answers of models that were cut off.
pub const CUT_OFF: &str = " cut off";

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

/// The body of a response with any status but 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// A sentence for the caller.
    pub error: String,
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
