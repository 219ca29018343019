//! Streamable HTTP on a loopback address: each MCP session of a client has sessions of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use rlm_core::env::MCP_TOKEN;
use rlm_rootd::Secret;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;

use super::requests::MAX_MESSAGE_BYTES;
use super::server::Servers;
use crate::environment::Environment;
use crate::tell;
use crate::usage::{Usage, refuse};

/// An MCP session ends after this time without a request.
const IDLE: Duration = Duration::from_secs(3600);

/// The address to listen at, and the secret that clients must present.
#[derive(Debug)]
pub(super) struct Listen {
    address: SocketAddr,
    secret: Secret,
}

impl Listen {
    pub(super) fn new(address: SocketAddr, environment: &Environment) -> Result<Self, Usage> {
        if !address.ip().is_loopback() {
            refuse!("--listen {address}: expected a loopback address, 127.0.0.1 or [::1]");
        }
        let secret = environment.text(MCP_TOKEN)?.map(Secret::new).ok_or_else(|| {
            Usage::new(format!(
                "{MCP_TOKEN} is not set: it must hold the token that clients of --listen present"
            ))
        })?;
        Ok(Self { address, secret })
    }

    /// Serves until the process ends.
    pub(super) async fn serve(&self, servers: Arc<Servers>) -> anyhow::Result<()> {
        let listener = TcpListener::bind(self.address).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", self.address))?;
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(IDLE);
        // The SDK checks Host: by default it must name the loopback device.
        let config = StreamableHttpServerConfig::default()
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_MESSAGE_BYTES);
        let service = StreamableHttpService::new(move || Ok(servers.open()), Arc::new(sessions), config);
        let app = Router::new()
            .route_service("/mcp", service)
            .layer(from_fn_with_state(self.secret.clone(), check_token));
        tell(format_args!("rlm: serving MCP on http://{}/mcp", listener.local_addr()?));
        axum::serve(listener, app).await.context("cannot accept connections")
    }
}

async fn check_token(State(secret): State<Secret>, request: Request, next: Next) -> Response {
    let presented = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
    let mut response = match presented.and_then(|value| value.strip_prefix(b"Bearer ")) {
        Some(token) if secret.is(token) => next.run(request).await,
        _ => (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response(),
    };
    if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        // The body was not read, so the connection ends: a client must not send its next request there.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
