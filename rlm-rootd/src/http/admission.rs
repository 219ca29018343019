//! What a request of a rollout passes before anything runs for it.
//!
//! A rollout has room for two of the largest bodies: a further one waits unread, and small ones need none. Then it has so
//! many places for requests that are worked on, and further ones wait. What one session sends costs others neither memory
//! nor time, and a slow body holds up no small one.

use axum::body::{Bytes, HttpBody as _};
use axum::extract::Request;
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};

use super::body;
use super::error::HttpError;
use crate::call::CallError;
use crate::offload::LARGE_BYTES;
use crate::rollout::Rollout;
use crate::rootd::RootdConfig;

/// A request that has its place.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    pub(super) body: Bytes,
    /// Kept until the response is sent: one that nobody reads takes a place too.
    pub(super) place: OwnedSemaphorePermit,
    pub(super) room: Option<SemaphorePermit<'a>>,
}

/// Waits for room, reads the body, and waits for a place.
///
/// # Errors
/// 429 where too many wait already, 410 where the rollout ends, and those of the body.
pub(super) async fn admit<'a>(
    config: &RootdConfig,
    rollout: &'a Rollout,
    request: Request,
) -> Result<Admitted<'a>, HttpError> {
    tokio::select! {
        biased;
        () = rollout.ended.cancelled() => Err(HttpError::ended().closing()),
        admitted = wait(config, rollout, request) => admitted,
    }
}

async fn wait<'a>(
    config: &RootdConfig,
    rollout: &'a Rollout,
    request: Request,
) -> Result<Admitted<'a>, HttpError> {
    // What comes in chunks may be of any length.
    let length = request.body().size_hint().upper().map_or(config.max_body_bytes, saturated);
    let mut room = None;
    // What is over the limit is refused unread.
    if length > LARGE_BYTES && length <= config.max_body_bytes {
        room = rollout.room.acquire_many(kib(length)).await.ok();
    }
    let body = body::read(request, config.max_body_bytes, config.body_time_limit).await?;
    if let Some(room) = &mut room {
        let surplus = kib(length).saturating_sub(kib(body.len()));
        drop(room.split(surplus as usize));
    }
    let place = rollout.place().await.ok_or(CallError::Busy)?;
    Ok(Admitted { body, place, room })
}

fn saturated(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX)
}
