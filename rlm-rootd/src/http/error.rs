//! Responses: JSON, and refusals as `{"error": "…"}`.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rlm_core::root_tool::ErrorBody;
use serde::Serialize;

use crate::error::CallError;

/// A refusal.
#[derive(Debug)]
pub(super) struct HttpError {
    status: StatusCode,
    message: String,
    closes: bool,
}

impl HttpError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), closes: false }
    }

    pub(super) fn bad_request(message: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message.to_string())
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized")
    }

    pub(super) fn ended() -> Self {
        CallError::Ended.into()
    }

    pub(super) fn failed(message: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message.to_string())
    }

    /// Closes the connection with this response, since the rest of the request is not read.
    pub(super) fn closing(mut self) -> Self {
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
            CallError::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
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
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => json_bytes(status, bytes),
        // Only our own types come here, and their keys are strings.
        Err(error) => HttpError::failed(error).into_response(),
    }
}

/// A buffer together with a guard that is dropped with it.
struct Guarded<B, G> {
    buffer: B,
    _guard: G,
}

impl<B: AsRef<[u8]>, G> AsRef<[u8]> for Guarded<B, G> {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

/// The bytes of a body, which hold a guard until they are sent or dropped.
pub(super) fn holding<G: Send + 'static>(bytes: Vec<u8>, guard: G) -> Bytes {
    Bytes::from_owner(Guarded { buffer: bytes, _guard: guard })
}

/// A response of JSON text.
pub(super) fn json_bytes(status: StatusCode, bytes: impl Into<Bytes>) -> Response {
    let bytes = bytes.into();
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
