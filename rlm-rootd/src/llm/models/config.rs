//! The configuration of the models.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use rlm_core::root_tool::client::Endpoint;

use crate::http_client::{bearer, header};
use crate::llm::api::Api;
use crate::llm::key::Key;
use crate::llm::retry::Retries;
use crate::llm::rules::{KeyHeader, Rules};
use crate::proxy::Proxy;

/// The version of Anthropic's interface (<https://docs.anthropic.com/en/api/versioning>).
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Header with the key of Anthropic's interface.
const ANTHROPIC_KEY: &str = "x-api-key";

/// The server of the models, and the limits of calls to it.
#[derive(Clone, Debug)]
pub struct ModelsConfig {
    /// The address of the server's interface, up to and with its version: `https://host/v1`, or, on a Unix socket,
    /// `http+unix://SOCKET/v1` with the slashes of SOCKET as %2F.
    pub base_url: String,
    /// The model that is called unless a rollout names another.
    pub model: String,
    /// The interface; by default the one that the table of servers names for this address, or else chat completions.
    pub api: Option<Api>,
    /// The row of the table of servers; by default the one with this address, or with what the server lists as its owner.
    pub server: Option<String>,
    /// Rules that override those of the table.
    pub rules: Rules,
    /// True to ask for the ids and log probabilities of tokens, from servers that return them. False by default.
    pub token_ids: bool,
    /// The key, sent as `Authorization: Bearer …`, or to Anthropic's interface as `x-api-key`, unless the server's rules say otherwise.
    pub key: Option<Key>,
    /// Further headers of each request. A value is a secret, like a key.
    pub headers: Vec<(String, Key)>,
    /// The proxy for requests; none by default, whatever the environment says.
    pub proxy: Option<Proxy>,
    /// Requests of this process that run at once; 64 by default.
    pub parallelism: usize,
    /// The retries of a request.
    pub retries: Retries,
    /// Time limit of one attempt until its response is read or, where that is streamed, of a silence in it; 120 s by default, so
    /// that a call of 300 s has a second attempt. None for a server on a Unix socket, which is the program that asks.
    pub timeout: Duration,
    /// True, the default, to ask for replies in pieces. Replies are asked for whole from a server on a Unix socket, and from any
    /// server once it refuses pieces or does not report their usage.
    pub stream: bool,
}

impl ModelsConfig {
    /// A configuration with default limits and no key.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            api: None,
            server: None,
            rules: Rules::default(),
            token_ids: false,
            key: None,
            headers: Vec::new(),
            proxy: None,
            parallelism: 64,
            retries: Retries::default(),
            timeout: Duration::from_secs(120),
            stream: true,
        }
    }
}

/// An invalid configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    /// The base URL cannot be called.
    #[error("the base URL of the models {0}")]
    BaseUrl(String),
    /// The table of servers has no such row.
    #[error("{0}")]
    Server(String),
    /// The name of the model is empty.
    #[error("the name of the model is empty")]
    NoModel,
    /// A parallelism of 0.
    #[error("the parallelism of the models is 0, expected 1 or more")]
    NoParallelism,
    /// The key cannot be sent in a header.
    #[error("the key of the models has characters that a header cannot hold")]
    Key,
    /// A header cannot be sent.
    #[error("the header {0} of the models has a name or a value that cannot be sent")]
    Header(String),
    /// The kind of proxy is not supported.
    #[error("{0}")]
    Proxy(String),
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made: {0}")]
    Client(String),
}

/// The headers of each request, without the key, which is only checked. A configured header replaces our own.
pub(super) fn headers(config: &ModelsConfig, api: Api) -> Result<HeaderMap, ModelsError> {
    // With room for the key and the ids: each request has a copy.
    let mut headers = HeaderMap::with_capacity(16);
    if api == Api::Anthropic {
        let (name, version) = ANTHROPIC_VERSION;
        headers.insert(name, HeaderValue::from_static(version));
    }
    if let Some(key) = &config.key {
        key_header(key, KeyHeader::Authorization).ok_or(ModelsError::Key)?;
    }
    for (name, value) in &config.headers {
        let cannot = || ModelsError::Header(name.clone());
        let (name, value) = header(name, value.reveal()).ok_or_else(cannot)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The header with a key. None if a header cannot hold it.
pub(super) fn key_header(key: &Key, form: KeyHeader) -> Option<(HeaderName, HeaderValue)> {
    match form {
        KeyHeader::Authorization => Some((AUTHORIZATION, bearer(key.reveal()).ok()?)),
        KeyHeader::XApiKey => header(ANTHROPIC_KEY, key.reveal()),
    }
}

/// The base URL, and the Unix socket that requests go to, if there is one.
pub(super) fn base_url(base_url: &str) -> Result<(Url, Option<PathBuf>), String> {
    if base_url.starts_with("http+unix:") {
        let endpoint =
            Endpoint::new(base_url, None).map_err(|error| format!("cannot be used: {}", error.fault))?;
        let (url, _) = self::base_url(&endpoint.http_url())?;
        return Ok((url, endpoint.socket().map(Into::into)));
    }
    // The text itself is not repeated where a key may be in it.
    let mut url = Url::parse(base_url).map_err(|error| {
        format!("cannot be read: {error}; expected http://… or https://…, up to the version")
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("begins with {}:, expected http: or https:", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user name or password in it: give a key instead".to_owned());
    }
    url.path_segments_mut().expect("http has a path").pop_if_empty();
    Ok((url, None))
}

/// The host of a URL, with its port if the URL names one.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"))
}
