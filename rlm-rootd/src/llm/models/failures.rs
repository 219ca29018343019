//! Failures of requests to models, in words.

use std::time::Duration;

use reqwest::StatusCode;
use rlm_core::text::{cut, one_line};

use super::Models;
use crate::http_client::last_cause;
use crate::llm::error::SubCallError;
use crate::llm::failure::{Cost, Failure, PLAIN_HTTP, Retry, explain, speaks_http, unusable};
use crate::llm::opaque::without_signatures;
use crate::llm::rules::{ErrorKind, is_too_long, telling_part};
use crate::llm::server_error::ServerError;

/// Words beside the error of a server that is not paid any more.
const NO_CREDIT: &str = "the account has no credit";

/// Kinds of errors that are refusals, although some servers call them their own fault.
const REFUSALS: [ErrorKind; 3] = [ErrorKind::ContextFull, ErrorKind::NoTools, ErrorKind::NoImages];

/// Longest text of a server's error, in characters.
const ERROR_CHARS: usize = 300;

impl Models {
    /// An error that a server reports in a reply that it has begun, perhaps with the status that it would have had.
    pub(super) fn failed_midway(&self, error: &ServerError) -> Failure {
        match error.status {
            Some(status) => self.refused(status, None, error),
            None => unusable(self.shorten(&error.message)),
        }
    }

    /// An error of this status. `asked` is the pause that the headers of the response ask for.
    pub(super) fn refused(
        &self,
        status: StatusCode,
        asked: Option<Duration>,
        error: &ServerError,
    ) -> Failure {
        let is_of = |kind: ErrorKind| kind.is_of(&error.words);
        let is_refusal = || REFUSALS.into_iter().any(is_of);
        // Proxies tell faults of servers behind them in a 400 (OpenRouterTeam/python-sdk#391).
        let behind = error.status.filter(|told| status == StatusCode::BAD_REQUEST && may_pass(*told));
        let status = behind.filter(|_| !is_refusal()).unwrap_or(status);
        // Such a limit is that of an account, whatever the model.
        let rules = self.rules(self.model());
        let limit = StatusCode::TOO_MANY_REQUESTS;
        let passes = rules.pause_after(&error.words).filter(|_| status == limit || error.is_in_reply);
        let status = passes.map_or(status, |_| limit);
        let said = self.shorten(&error.message);
        let message = if said.is_empty() {
            status.canonical_reason().unwrap_or("without a reason").to_owned()
        } else {
            said
        };
        let has_no_credit = passes.is_none() && is_of(ErrorKind::NoCredit);
        let message = if has_no_credit { format!("{message} ({NO_CREDIT})") } else { message };
        let message = self.naming_proxy(message);
        let is_own_fault = matches!(status.as_u16(), 500 | 501);
        let is_behind = matches!(status.as_u16(), 502 | 503);
        let retry = if has_no_credit
            || is_own_fault && is_refusal()
            || is_behind && is_too_long(status.as_u16(), &error.words)
        {
            Retry::Never
        } else if may_pass(status) || is_of(ErrorKind::Overloaded) {
            Retry::After(asked.or(error.pause).or(passes))
        } else if is_of(ErrorKind::BadCall) {
            Retry::Once
        } else {
            Retry::Never
        };
        Failure {
            error: SubCallError::Status { status: status.as_u16(), message },
            // A gateway gave up waiting; the model behind it may have answered.
            cost: if matches!(status.as_u16(), 504 | 524) { Cost::Unknown } else { Cost::Nothing },
            retry,
            said: error.words.clone(),
        }
    }

    /// A server that has sent nothing of a reply for too long.
    pub(super) fn silent(&self, after: Duration) -> Failure {
        Failure::new(SubCallError::TimedOut { after, last: None }, Cost::Unknown, Retry::Once)
    }

    pub(super) fn broken(&self, error: &reqwest::Error) -> Failure {
        let reason = self.naming_proxy(self.shorten(&last_cause(error)));
        let again = Retry::After(None);
        let (error, cost, retry) = if speaks_http(error) {
            (SubCallError::Unreachable(PLAIN_HTTP.to_owned()), Cost::Nothing, Retry::Never)
        } else if error.is_connect() {
            (SubCallError::Unreachable(reason), Cost::Nothing, again)
        } else if error.is_timeout() {
            return self.silent(self.config.timeout);
        } else {
            (SubCallError::Broken(reason), Cost::Unknown, again)
        };
        Failure::new(error, cost, retry)
    }

    /// An error in words for people, with the address and what may help. Code in a session gets the error alone.
    pub(in crate::llm) fn explain(&self, error: &SubCallError, attempts: u32) -> String {
        match error {
            // The deadline was nearer than the limit of a request.
            SubCallError::TimedOut { after, .. } if *after < self.config.timeout => error.to_string(),
            _ => explain(error, self.url.clone(), attempts),
        }
    }

    /// The text with the name of the proxy, which may be what failed.
    fn naming_proxy(&self, text: String) -> String {
        match &self.config.proxy {
            Some(proxy) => format!("{text} (over {proxy})"),
            None => text,
        }
    }

    /// A server's text in one short line, without the key, the values of headers, signatures and encrypted reasoning.
    pub(super) fn shorten(&self, text: &str) -> String {
        let secrets = self.config.key.iter().chain(self.config.headers.iter().map(|(_, value)| value));
        let text = secrets.fold(text.to_owned(), |text, secret| secret.redact(&text));
        let text = one_line(&without_signatures(&text));
        match telling_part(&text) {
            // The words by which the kind of error is known are not cut off.
            Some(at) if text[..at].chars().count() > ERROR_CHARS / 2 => {
                format!("{} {}", cut(&text, ERROR_CHARS / 2), cut(&text[at..], ERROR_CHARS / 2))
            }
            _ => cut(&text, ERROR_CHARS),
        }
    }
}

/// True if a request that fails with this status may pass later.
fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 409 | 425 | 429) || status.is_server_error()
}
