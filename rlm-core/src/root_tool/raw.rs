//! Bodies whose values are encoded already, or are not decoded yet: an interpreter does that itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::encoding::{Serialization, WireError, decode_base64};

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

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}
