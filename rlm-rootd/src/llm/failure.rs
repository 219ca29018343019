//! Failures of requests to models: the server's words, whether a retry helps, and how the failure is reported.

use std::error::Error;
use std::io;
use std::time::Duration;

use reqwest::Url;
use rlm_core::text::counted;
use serde_json::Value as Json;

use super::error::SubCallError;
use super::reply::Reply;
use super::rules::ErrorKind;

/// An attempt without a reply.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: SubCallError,
    pub(super) cost: Cost,
    pub(super) retry: Retry,
    /// The server's own words, not shortened; empty where it said nothing.
    pub(super) said: String,
}

/// The charge for an attempt without a reply.
#[derive(Debug)]
pub(super) enum Cost {
    Nothing,
    /// All that was estimated: the model may have answered, and nothing says how much.
    Unknown,
    /// The prompt, and the part of the completion that came before the server's error.
    Part(Box<Reply>),
}

impl Failure {
    /// A failure about which the server said nothing.
    pub(super) fn new(error: SubCallError, cost: Cost, retry: Retry) -> Self {
        Self { error, cost, retry, said: String::new() }
    }

    /// True if the model has replied, and another reply to the same request may be fine.
    pub(super) fn wants_another_sample(&self) -> bool {
        self.retry == Retry::Once && !matches!(self.error, SubCallError::TimedOut { .. })
    }

    /// The failure of a reply of which this body came before.
    pub(super) fn after(self, came: Json) -> Self {
        Self { cost: Cost::Part(Box::new(Reply::new(came))), ..self }
    }
}

/// Whether the same request can be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    Never,
    /// Once more: this reply is unusable, but the next may be fine.
    Once,
    /// After a pause, which the server may have specified.
    After(Option<Duration>),
}

/// The reason why a server without TLS cannot be reached over `https`.
pub(super) const PLAIN_HTTP: &str = "the server speaks http, not https";

/// Reports whether a server answered the beginning of TLS with something else.
pub(super) fn speaks_http(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.any(|cause| {
        matches!(
            tls_error(cause),
            Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))
        )
    })
}

/// The error of TLS in an error, which may be wrapped as one of input and output.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    error.downcast_ref().or_else(|| tls_error(error.downcast_ref::<io::Error>()?.get_ref()?))
}

/// An error, the address that was asked, and what may help.
pub(super) fn explain(error: &SubCallError, mut address: Url, attempts: u32) -> String {
    use SubCallError::{Broken, Malformed, MustWait, Status, TimedOut, Unreachable};
    let advice = match error {
        Unreachable(reason) if reason == PLAIN_HTTP => ": does the base URL begin with http://?",
        Unreachable(_) => ": does a server run there?",
        Status { message, .. } if ErrorKind::NoCredit.is_of(message) => "",
        Status { status: 401 | 403, .. } => ": is the key right?",
        Status { status: 404, .. } => {
            ": does the base URL end with its version, such as /v1, and is the model's name right?"
        }
        Status { message, .. } if ErrorKind::OtherWire.is_of(message) => {
            ": `api = \"responses\"` asks the other interface"
        }
        Status { status: 429, .. } => {
            ": more retries (`max_retries`) or fewer requests at once (`server_parallelism`) may help"
        }
        Status { status: 502..=504, .. } => ": does the server behind it run?",
        Malformed(_) => ": is this an interface like OpenAI's?",
        TimedOut { .. } => ": `request_timeout` gives a request more time",
        Status { .. } | MustWait { .. } | Broken(_) => "",
        _ => return error.to_string(),
    };
    // A key may be in it.
    address.set_query(None);
    format!("{error} (asked {address} {}{advice})", counted(attempts.into(), "time"))
}

pub(super) fn unusable(why: String) -> Failure {
    Failure::new(SubCallError::Malformed(why), Cost::Unknown, Retry::Once)
}
