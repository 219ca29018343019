//! The HTTP proxy between us and a model's server.

use std::fmt;
use std::net::IpAddr;

use axum::http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;

/// A proxy for requests. No formatting shows its user and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// The address of the proxy, without a user or a password.
    url: String,
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// The proxy that variables name for the server at this address: `HTTP_PROXY` or `HTTPS_PROXY`, depending on the scheme,
    /// or `ALL_PROXY`, unless `NO_PROXY` names the server; each also in lower case. A server on the loopback device or a Unix
    /// socket has no proxy.
    pub fn of_variables(base_url: &str, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        if is_local(&Url::parse(base_url).ok()?) {
            return None;
        }
        let value = |name: &str| {
            let either = variable(name).or_else(|| variable(&name.to_ascii_lowercase()));
            either.unwrap_or_default()
        };
        let matcher = Matcher::builder()
            .http(value("HTTP_PROXY"))
            .https(value("HTTPS_PROXY"))
            .all(value("ALL_PROXY"))
            .no(value("NO_PROXY"))
            .build();
        let found = matcher.intercept(&base_url.parse::<Uri>().ok()?)?;
        let url = found.uri().to_string();
        Some(Self { url: url.trim_end_matches('/').to_owned(), authorization: found.basic_auth().cloned() })
    }

    /// True if the connection to the proxy itself uses TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.url.starts_with("https:")
    }

    /// The proxy in the form of the HTTP client.
    pub(crate) fn for_client(&self) -> Result<reqwest::Proxy, String> {
        if !self.has_tls() && !self.url.starts_with("http:") {
            return Err(format!("{self} cannot be used: expected one that begins with http: or https:"));
        }
        let proxy =
            reqwest::Proxy::all(&self.url).map_err(|error| format!("{self} cannot be used: {error}"))?;
        Ok(match &self.authorization {
            Some(authorization) => proxy.custom_http_auth(authorization.clone()),
            None => proxy,
        })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {}", self.url)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("url", &self.url).finish_non_exhaustive()
    }
}

fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    url.scheme() == "http+unix"
        || host == "localhost"
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(base_url: &str, variables: &[(&str, &str)]) -> Option<String> {
        let value = |name: &str| variables.iter().find(|(held, _)| *held == name);
        let proxy = Proxy::of_variables(base_url, |name| value(name).map(|(_, value)| (*value).to_owned()));
        proxy.map(|proxy| proxy.url)
    }

    #[test]
    fn variables_name_the_proxy_of_servers_elsewhere() {
        let all = [("HTTP_PROXY", "http://a:1"), ("https_proxy", "b:2"), ("ALL_PROXY", "c:3")];
        assert_eq!(proxy("http://host/v1", &all).as_deref(), Some("http://a:1"));
        assert_eq!(proxy("https://host/v1", &all).as_deref(), Some("http://b:2"));
        assert_eq!(proxy("https://host/v1", &all[2..]).as_deref(), Some("http://c:3"));
        assert_eq!(proxy("https://host/v1", &[]), None);
        assert_eq!(proxy("https://host/v1", &[("HTTPS_PROXY", "b:2"), ("no_proxy", "host")]), None);
    }

    #[test]
    fn a_server_on_the_loopback_device_has_no_proxy() {
        let all = [("HTTP_PROXY", "http://a:1"), ("ALL_PROXY", "http://a:1")];
        for host in
            ["127.0.0.1:8000", "127.9.9.9", "localhost", "LOCALHOST:1", "[::1]:1", "[::ffff:127.0.0.1]"]
        {
            assert_eq!(proxy(&format!("http://{host}/v1"), &all), None, "{host}");
        }
        for host in ["localhost.example", "128.0.0.1", "[::2]"] {
            assert!(proxy(&format!("http://{host}/v1"), &all).is_some(), "{host}");
        }
    }

    #[test]
    fn the_credentials_of_a_proxy_are_not_shown() {
        let proxy = Proxy::of_variables("http://host", |name| {
            (name == "HTTP_PROXY").then(|| "http://me:secret@a:1".to_owned())
        });
        let proxy = proxy.unwrap();
        assert!(proxy.authorization.is_some());
        assert_eq!(proxy.to_string(), "the proxy http://a:1");
        assert!(!format!("{proxy:?}").contains("secret"));
    }

    #[test]
    fn a_kind_of_proxy_that_is_not_known_is_refused() {
        let proxy = Proxy { url: "socks5://a:1".to_owned(), authorization: None };
        assert_eq!(
            proxy.for_client().unwrap_err(),
            "the proxy socks5://a:1 cannot be used: expected one that begins with http: or https:"
        );
    }
}
