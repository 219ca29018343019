//! Routes and what they answer.
//!
//! Whatever is refused is refused in this order: 404 for a rollout that does not exist, 401 for another secret than its
//! own, both before the body is read; then 413, 408 and 400 for the body, 429 where too many requests of the rollout wait.

mod admin;
mod admission;
mod body;
mod chat;
mod error;
mod record;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use hyper_util::service::TowerToHyperService;
use serde_json::json;

use self::error::HttpError;
pub(crate) use self::error::keeping;
use self::record::Record;
use crate::metrics::Route;
use crate::rollout::Rollout;
use crate::rootd::Shared;

/// Answers requests.
#[derive(Clone)]
pub(crate) struct Service {
    shared: Arc<Shared>,
    router: TowerToHyperService<Router>,
}

/// What handlers know.
#[derive(Clone)]
struct Context {
    shared: Arc<Shared>,
    /// Where this server is reached.
    base_url: Arc<str>,
}

impl Service {
    pub(crate) fn new(shared: Arc<Shared>, base_url: Arc<str>) -> Self {
        let context = Context { shared: shared.clone(), base_url };
        let router = Router::new()
            .route("/rollout/{id}/v1/rlm/tools", post(tools::call))
            .route("/rollout/{id}/v1/chat/completions", post(chat::complete))
            .route("/rollout/{id}", put(admin::register).get(admin::metrics).delete(admin::unregister))
            .route("/healthz", get(healthz))
            .route("/metrics", get(metrics))
            .fallback(not_found)
            .method_not_allowed_fallback(wrong_method)
            .with_state(context);
        Self { shared, router: TowerToHyperService::new(router) }
    }

    /// Answers one request. Dropped when the caller goes away, and with it whatever runs for the request.
    pub(crate) async fn answer<B>(&self, mut request: axum::http::Request<B>) -> Response
    where
        B: axum::body::HttpBody<Data = axum::body::Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let record = Arc::new(Record::begin(self.shared.clone()));
        request.extensions_mut().insert(record.clone());
        let Ok(response) = hyper::service::Service::call(&self.router, request.map(Body::new)).await;
        record.answered(response.status().as_u16());
        response
    }
}

/// The record of a request, from its extensions.
fn record(extensions: &Extensions, route: Route) -> Option<Arc<Record>> {
    let record = extensions.get::<Arc<Record>>()?.clone();
    record.route.get_or_init(|| route);
    Some(record)
}

/// The rollout that a request is for, whose secret it holds, and the request's record.
fn open(
    context: &Context,
    path: Id,
    request: &Request,
    route: Route,
) -> Result<(Arc<Rollout>, Option<Arc<Record>>), HttpError> {
    let record = record(request.extensions(), route);
    let rollout = context.shared.rollout(&id(path)?).ok_or_else(HttpError::no_rollout)?;
    if !bearer(request.headers()).is_some_and(|secret| rollout.is_secret(secret)) {
        return Err(HttpError::unauthorized());
    }
    if let Some(record) = &record {
        record.rollout.get_or_init(|| rollout.id.clone());
    }
    Ok((rollout, record))
}

/// What `Authorization: Bearer …` holds.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, secret) =
        headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| secret.trim_ascii())
}

async fn healthz(request: Request) -> Response {
    record(request.extensions(), Route::Health);
    error::json(StatusCode::OK, &json!({"status": "ok"}))
}

async fn metrics(State(context): State<Context>, request: Request) -> Response {
    record(request.extensions(), Route::Metrics);
    let mut response = Response::new(Body::from(context.shared.metrics_text()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn not_found() -> Response {
    HttpError::new(StatusCode::NOT_FOUND, "Not found").into_response()
}

async fn wrong_method() -> Response {
    HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed").into_response()
}

/// The id in a path. What is not UTF-8 there names no rollout.
type Id = Result<Path<String>, PathRejection>;

fn id(id: Id) -> Result<String, HttpError> {
    id.map(|Path(id)| id).map_err(|_not_text| HttpError::no_rollout())
}
