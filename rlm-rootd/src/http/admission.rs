//! Admission of a request: its body is read, and it has a place among the rollout's requests.
//!
//! A rollout holds two of the largest bodies at once: a further large body waits unread, and small ones need not wait. Then
//! the rollout works on a fixed number of requests at once, and further ones wait. The same goes for arguments that are large
//! once they are decoded.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::error::HttpError;
use crate::error::CallError;
use crate::memory::{LARGE_BLOCK_BYTES, give_back};
use crate::offload::LARGE_BYTES;
use crate::rollout::{ARGUMENT_KIB, Rollout};
use crate::rootd::RootdConfig;

/// Decoded arguments up to this many bytes need no share of their rollout's limit.
const SMALL_ARGUMENT_BYTES: usize = 1 << 20;

/// An admitted request.
pub(super) struct Admission {
    pub(super) body: Vec<u8>,
    pub(super) permits: Permits,
}

/// A request's share of its rollout's limits, kept until the response is sent: an unread response takes a place too.
pub(super) struct Permits {
    pub(super) arguments: ArgumentShare,
    _place: OwnedSemaphorePermit,
    _body_kib: Option<OwnedSemaphorePermit>,
    body_bytes: usize,
}

/// The decoded arguments of a request, as a share of those of its rollout. A few bytes of a body can become a hundred.
#[derive(Default)]
pub(super) struct ArgumentShare(Mutex<Option<OwnedSemaphorePermit>>);

impl ArgumentShare {
    /// Waits until the rollout may hold this many bytes of arguments. An earlier share is given back first, so that no two
    /// requests wait for each other.
    ///
    /// # Errors
    /// [`CallError::Ended`] if the rollout ends.
    pub(super) async fn hold(&self, rollout: &Rollout, bytes: usize) -> Result<(), CallError> {
        drop(self.lock().take());
        if bytes <= SMALL_ARGUMENT_BYTES {
            return Ok(());
        }
        let share = rollout.argument_kib.clone().acquire_many_owned(kib(bytes).min(ARGUMENT_KIB));
        let share = tokio::select! {
            biased;
            () = rollout.ended.cancelled() => return Err(CallError::Ended),
            share = share => share.ok(),
        };
        *self.lock() = share;
        Ok(())
    }

    /// Gives back all but this many bytes; waits only if the share was smaller.
    ///
    /// # Errors
    /// [`CallError::Ended`] if the rollout ends.
    pub(super) async fn settle(&self, rollout: &Rollout, bytes: usize) -> Result<(), CallError> {
        let wanted = kib(bytes).min(ARGUMENT_KIB) as usize;
        if let Some(share) = &mut *self.lock()
            && let Some(surplus) = share.num_permits().checked_sub(wanted)
        {
            drop(share.split(surplus));
            return Ok(());
        }
        self.hold(rollout, bytes).await
    }

    fn lock(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        // The many small values of a large body leave the allocator's arenas full of holes.
        if self.body_bytes > LARGE_BLOCK_BYTES
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn_blocking(give_back);
        }
    }
}

/// Waits until the rollout may hold the body, reads it, and waits for a place.
///
/// # Errors
/// 413, 408 and 400 for the body, 429 where too many requests wait already, 410 where the rollout ends.
pub(super) async fn admit(
    config: &RootdConfig,
    rollout: &Rollout,
    request: Request,
) -> Result<Admission, HttpError> {
    let (body, _body_kib) = tokio::select! {
        biased;
        () = rollout.ended.cancelled() => return Err(HttpError::ended().closing()),
        body = bounded_body(config, rollout, request) => body?,
    };
    let _place = rollout.place().await?;
    let body_bytes = body.len();
    Ok(Admission {
        body,
        permits: Permits { arguments: ArgumentShare::default(), _place, _body_kib, body_bytes },
    })
}

async fn bounded_body(
    config: &RootdConfig,
    rollout: &Rollout,
    request: Request,
) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), HttpError> {
    // A body in chunks may be of any length.
    let length = request.body().size_hint().upper().map_or(config.max_body_bytes, saturated);
    let mut permit = None;
    // A body over the limit is refused unread.
    if length > LARGE_BYTES && length <= config.max_body_bytes {
        permit = rollout.body_kib.clone().acquire_many_owned(kib(length)).await.ok();
    }
    let body = read_body(request, config.max_body_bytes, config.body_time_limit).await?;
    if let Some(permit) = &mut permit {
        let surplus = kib(length).saturating_sub(kib(body.len()));
        drop(permit.split(surplus as usize));
    }
    Ok((body, permit))
}

/// Reads a body of at most `max_bytes`.
///
/// # Errors
/// 413, 408, or 400 where the body does not end well.
pub(super) async fn read_body(
    request: Request,
    max_bytes: usize,
    limit: Duration,
) -> Result<Vec<u8>, HttpError> {
    let too_large = || {
        let message = format!("the body is larger than {max_bytes} bytes");
        Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message).closing())
    };
    let mut body = request.into_body();
    let length = saturated(body.size_hint().lower());
    if length > max_bytes {
        return too_large();
    }
    let read = async {
        let mut bytes = Vec::with_capacity(length);
        while let Some(frame) = body.frame().await {
            let invalid = |error| HttpError::bad_request(format!("Invalid body: {error}")).closing();
            // Trailers are ignored.
            let Ok(piece) = frame.map_err(invalid)?.into_data() else { continue };
            if bytes.len() + piece.len() > max_bytes {
                return too_large();
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    };
    timeout(limit, read).await.unwrap_or_else(|_late| {
        let message = format!("the body took longer than {} s", limit.as_secs_f64());
        Err(HttpError::new(StatusCode::REQUEST_TIMEOUT, message).closing())
    })
}

/// Upper estimate of the bytes that the values of a JSON text take in memory, beside its strings.
pub(super) fn json_value_bytes(text: &[u8]) -> usize {
    /// A value in a list, and its allocation.
    const VALUE_BYTES: usize = 64;
    VALUE_BYTES * text.iter().filter(|byte| matches!(byte, b',' | b':')).count()
}

fn saturated(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX)
}
