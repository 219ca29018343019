//! The headers of requests to models.

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::Models;
use super::config::key_header;
use crate::llm::request_ids::RequestIds;
use crate::llm::rules::Rules;

/// Headers with the id of a request, the same in each attempt: for logs, and for trainers.
const REQUEST_ID_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-request-id"), HeaderName::from_static("x-acp-model-request-id")];

/// Header for servers that count a repeated request once.
const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Header with the id of the batch that a request belongs to.
const BATCH_ID_HEADER: HeaderName = HeaderName::from_static("x-rlm-batch-id");

impl Models {
    /// The headers with the key, as these rules have it. Those of the user replace our own.
    pub(super) fn headers(&self, rules: &Rules) -> HeaderMap {
        let mut headers = self.headers.clone();
        let key = self.config.key.as_ref();
        if let Some((name, value)) = key.and_then(|key| key_header(key, rules.key_header(self.api))) {
            headers.entry(name).or_insert(value);
        }
        headers
    }

    /// The headers of a request. An id that a header cannot hold is left out.
    pub(super) fn headers_with(&self, ids: &RequestIds<'_>, rules: &Rules) -> HeaderMap {
        let mut headers = self.headers(rules);
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        if let Ok(id) = HeaderValue::from_str(ids.id) {
            for name in REQUEST_ID_HEADERS {
                headers.entry(name).or_insert_with(|| id.clone());
            }
        }
        if let Ok(key) = HeaderValue::from_str(ids.key()) {
            headers.entry(KEY_HEADER).or_insert(key);
        }
        if let Ok(batch) = HeaderValue::from_str(ids.batch) {
            headers.entry(BATCH_ID_HEADER).or_insert(batch);
        }
        headers
    }
}
