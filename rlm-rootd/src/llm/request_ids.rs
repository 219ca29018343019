//! The ids of a request, which are sent in headers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use uuid::Builder;

/// The ids of a request.
#[derive(Debug)]
pub(super) struct RequestIds<'a> {
    pub(super) id: &'a str,
    pub(super) batch: &'a str,
    key: String,
    /// Hash of the body that the key was sent with.
    body: Option<u64>,
}

impl<'a> RequestIds<'a> {
    pub(super) fn new(id: &'a str, batch: &'a str) -> Self {
        Self { id, batch, key: id.to_owned(), body: None }
    }

    /// The idempotency key for this body. A server may answer a repeated key as before, so each other body has another one.
    pub(super) fn key(&mut self, body: &[u8]) -> &str {
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let hash = hasher.finish();
        if self.body.replace(hash).is_some_and(|before| before != hash) {
            self.key = new_request_id();
        }
        &self.key
    }

    /// Takes another key, since the last reply is not what is wanted again.
    pub(super) fn renew_key(&mut self) {
        (self.key, self.body) = (new_request_id(), None);
    }
}

/// A unique id for a request: a UUID, since some servers take no other (starlette-context, which llama-cpp-python has).
pub(super) fn new_request_id() -> String {
    Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_a_body_and_a_sample() {
        let mut ids = RequestIds::new("id", "b");
        let mut keys: Vec<_> =
            [b"a", b"a", b"b", b"b"].iter().map(|body| ids.key(*body).to_owned()).collect();
        ids.renew_key();
        keys.push(ids.key(b"b").to_owned());
        assert_eq!((keys[0].as_str(), keys[1].as_str()), ("id", "id"));
        assert!(keys[1] != keys[2] && keys[2] == keys[3] && keys[3] != keys[4], "{keys:?}");
    }
}
