//! Routes and their answers.
//!
//! Refusals come in this order: 404 for a rollout that does not exist, 401 for another secret than its own, both before the
//! body is read; then 413, 408 and 400 for the body, 429 where too many requests of the rollout wait.

mod admin;
mod admission;
mod chat;
mod context;
mod error;
mod record;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use hyper_util::service::TowerToHyperService;
use serde_json::json;

use self::context::Context;
use self::error::HttpError;
use self::record::Record;
use crate::metrics::Route;
use crate::rootd::Shared;

/// The endpoint as a service of HTTP requests.
#[derive(Clone)]
pub(crate) struct Service {
    shared: Arc<Shared>,
    router: TowerToHyperService<Router>,
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

    /// Answers one request. Dropping the future, as hyper does when the caller closes the connection, cancels whatever runs
    /// for the request.
    pub(crate) async fn answer<B>(&self, mut request: axum::http::Request<B>) -> Response
    where
        B: axum::body::HttpBody<Data = axum::body::Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let record = Arc::new(Record::begin(self.shared.clone()));
        request.extensions_mut().insert(record.clone());
        let Ok(response) = hyper::service::Service::call(&self.router, request.map(Body::new)).await;
        record.set_status(response.status().as_u16());
        response
    }
}

async fn healthz(request: Request) -> Response {
    context::record(request.extensions(), Route::Health);
    error::json(StatusCode::OK, &json!({"status": "ok"}))
}

async fn metrics(State(context): State<Context>, request: Request) -> Response {
    context::record(request.extensions(), Route::Metrics);
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
