//! Request bodies, bounded in size and time.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::error::HttpError;

/// How long what is over the limit is read and thrown away, so that its sender gets to read the answer.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// How much of it, at most.
const DISCARD_BYTES: usize = 256 << 20;

/// The body of a request, of at most so many bytes.
///
/// # Errors
/// 413, 408, or 400 where the body does not end well.
pub(crate) async fn read(request: Request, max_bytes: usize, limit: Duration) -> Result<Bytes, HttpError> {
    let waits_to_send = request.headers().contains_key(header::EXPECT);
    let mut body = request.into_body();
    if body.size_hint().lower() > max_bytes as u64 {
        if !waits_to_send {
            discard(body).await;
        }
        return Err(too_large(max_bytes));
    }
    let late = || {
        let seconds = limit.as_secs_f64();
        HttpError::new(StatusCode::REQUEST_TIMEOUT, format!("the body took longer than {seconds} s"))
            .closing()
    };
    let deadline = Instant::now() + limit;
    let mut whole = Whole::default();
    while let Some(frame) = timeout_at(deadline, body.frame()).await.map_err(|_late| late())? {
        let frame =
            frame.map_err(|error| HttpError::bad_request(format!("Invalid body: {error}")).closing())?;
        // Trailers are not looked at.
        let Ok(piece) = frame.into_data() else { continue };
        if whole.len() + piece.len() > max_bytes {
            drop(whole);
            discard(body).await;
            return Err(too_large(max_bytes));
        }
        whole.push(piece);
    }
    Ok(whole.into_bytes())
}

fn too_large(max_bytes: usize) -> HttpError {
    let message = format!("the body is larger than {max_bytes} bytes");
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message).closing()
}

/// Reads on without keeping anything, to the end of the body or of patience.
async fn discard(mut body: Body) {
    let deadline = Instant::now() + DISCARD_TIME;
    let mut left = DISCARD_BYTES;
    while let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await {
        let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
        left = rest;
    }
}

/// What has come so far. One piece, the usual case, is not copied.
#[derive(Default)]
enum Whole {
    #[default]
    Nothing,
    One(Bytes),
    Many(Vec<u8>),
}

impl Whole {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(piece) => piece.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn push(&mut self, piece: Bytes) {
        *self = match std::mem::take(self) {
            Self::Nothing => Self::One(piece),
            Self::One(first) => Self::Many([first, piece].concat()),
            Self::Many(mut bytes) => {
                bytes.extend_from_slice(&piece);
                Self::Many(bytes)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::One(piece) => piece,
            Self::Many(bytes) => bytes.into(),
        }
    }
}
