//! The encoding of values, and what can be wrong with a body.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use crate::pickle::{DecodeError, JsonError, WriteError};

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
    pub(super) fn ty(field: &'static str, expected: &'static str, found: impl Into<String>) -> Self {
        Self::Type { field, expected, found: found.into() }
    }

    /// The message for the caller of the tool whose reply has this fault.
    #[must_use]
    pub fn in_reply_of(self, tool: &str) -> String {
        match self {
            Self::Reported(message) => message,
            fault => format!("the answer to {tool} cannot be read: {fault}"),
        }
    }
}

pub(super) fn decode_base64(field: &'static str, text: &str) -> Result<Vec<u8>, WireError> {
    let bytes = BASE64.decode(text.as_bytes());
    bytes.map_err(|error| WireError::Base64 { field, reason: error.to_string() })
}
