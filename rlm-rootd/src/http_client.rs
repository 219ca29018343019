//! The parts that all requests to other servers share.

use std::error::Error as _;
use std::path::Path;

use reqwest::header::{HeaderName, HeaderValue, InvalidHeaderValue};
use reqwest::redirect::Policy;
use reqwest::retry::never;
use reqwest::{Client, ClientBuilder, Response, Url};

use crate::proxy::Proxy;

/// A client that does what it is told: no redirect, which could take a key to another server, and no proxy of the environment.
/// It connects to the socket, whatever host a URL names.
pub(crate) fn builder(socket: Option<&Path>) -> ClientBuilder {
    // A provider that was installed before stays, and works as well.
    drop(rustls::crypto::ring::default_provider().install_default());
    // Its own retries are for HTTP/2, and copy each request.
    let builder = Client::builder().redirect(Policy::none()).retry(never()).no_proxy();
    match socket {
        Some(path) => builder.unix_socket(path),
        None => builder,
    }
}

/// The builder for addresses that begin with `http:`. The certificates of the machine are not needed, and there may be none.
pub(crate) fn without_tls(builder: ClientBuilder) -> ClientBuilder {
    builder.tls_certs_only([])
}

/// The builder for requests to this address, over a proxy if there is one.
///
/// # Errors
/// A sentence on a proxy that cannot be used.
pub(crate) fn over(
    builder: ClientBuilder,
    url: &Url,
    proxy: Option<&Proxy>,
) -> Result<ClientBuilder, String> {
    let builder = match proxy {
        Some(proxy) => builder.proxy(proxy.for_client()?),
        None => builder,
    };
    let needs_tls = url.scheme() != "http" || proxy.is_some_and(Proxy::has_tls);
    Ok(if needs_tls { builder } else { without_tls(builder) })
}

/// A header of a secret. None if its name or its value cannot be sent.
pub(crate) fn header(name: &str, secret: &str) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::from_str(secret).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
}

/// The value of `Authorization` for a secret. It is marked as sensitive, which keeps it out of formatted requests.
pub(crate) fn bearer(secret: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {secret}"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads a body of at most `most` bytes; None if it is larger.
pub(crate) async fn read(mut response: Response, most: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > most {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

/// The innermost cause: the outer ones only repeat the address.
pub(crate) fn last_cause(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    let mut text = None;
    while let Some(inner) = cause {
        text = Some(inner.to_string());
        cause = inner.source();
    }
    text.unwrap_or_else(|| "no reason given".to_owned())
}
