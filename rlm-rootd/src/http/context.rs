//! The state that handlers share, and the way from a request to its rollout.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request};
use axum::http::{Extensions, HeaderMap, header};

use super::error::HttpError;
use super::record::Record;
use crate::error::CallError;
use crate::metrics::Route;
use crate::rollout::Rollout;
use crate::rootd::Shared;

/// The state of handlers.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    /// The server's own URL.
    pub(super) base_url: Arc<str>,
}

/// The id in a path. An id that is not UTF-8 names no rollout.
pub(super) type Id = Result<Path<String>, PathRejection>;

pub(super) fn id(id: Id) -> Result<String, HttpError> {
    id.map(|Path(id)| id).map_err(|_not_text| CallError::NoRollout.into())
}

/// The rollout that a request names and whose secret it presents, and the request's record.
pub(super) fn open(
    context: &Context,
    path: Id,
    request: &Request,
    route: Route,
) -> Result<(Arc<Rollout>, Option<Arc<Record>>), HttpError> {
    let record = record(request.extensions(), route);
    let rollout = context.shared.rollout(&id(path)?).ok_or(CallError::NoRollout)?;
    if !bearer(request.headers()).is_some_and(|secret| rollout.is_secret(secret)) {
        return Err(HttpError::unauthorized());
    }
    if let Some(record) = &record {
        record.set_rollout(&rollout.id);
    }
    Ok((rollout, record))
}

/// The record of a request, which is on this route.
pub(super) fn record(extensions: &Extensions, route: Route) -> Option<Arc<Record>> {
    let record = extensions.get::<Arc<Record>>()?.clone();
    record.set_route(route);
    Some(record)
}

/// The secret in `Authorization: Bearer …`.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, secret) =
        headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| secret.trim_ascii())
}
