//! Refusals: a status and `{"error": "…"}`.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rlm_core::root_tool::ErrorBody;
use serde::Serialize;

use crate::call::CallError;

/// A response that is no success.
#[derive(Debug)]
pub(crate) struct HttpError {
    status: StatusCode,
    message: String,
    closes: bool,
}

impl HttpError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), closes: false }
    }

    pub(crate) fn bad_request(message: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message.to_string())
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized")
    }

    pub(crate) fn no_rollout() -> Self {
        CallError::NoRollout.into()
    }

    pub(crate) fn ended() -> Self {
        CallError::Ended.into()
    }

    pub(crate) fn failed(message: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message.to_string())
    }

    /// The connection ends with this response: what is left of the request is not read.
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }
}

impl From<CallError> for HttpError {
    fn from(error: CallError) -> Self {
        let status = match &error {
            CallError::NoRollout | CallError::NoTool { .. } => StatusCode::NOT_FOUND,
            CallError::Busy => StatusCode::TOO_MANY_REQUESTS,
            CallError::Arguments(_) => StatusCode::BAD_REQUEST,
            CallError::Failed(_) | CallError::TimedOut { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            CallError::Ended => StatusCode::GONE,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &ErrorBody { error: self.message });
        let headers = response.headers_mut();
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A JSON response.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => json_bytes(status, bytes),
        // Only types of ours come here, and they have str keys.
        Err(error) => HttpError::failed(error).into_response(),
    }
}

/// Bytes, and what is kept until they are sent or dropped.
#[derive(Debug)]
struct Until<B, K> {
    bytes: B,
    _kept: K,
}

impl<B: AsRef<[u8]>, K> AsRef<[u8]> for Until<B, K> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// The bytes, which keep something until they are sent or dropped.
pub(crate) fn keeping<B, K>(bytes: B, kept: K) -> Bytes
where
    B: AsRef<[u8]> + Send + 'static,
    K: Send + 'static,
{
    Bytes::from_owner(Until { bytes, _kept: kept })
}

/// A response of JSON that is written already.
pub(crate) fn json_bytes(status: StatusCode, bytes: impl Into<Bytes>) -> Response {
    let bytes = bytes.into();
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
