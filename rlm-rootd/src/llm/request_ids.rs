//! The ids of a request, which are sent in headers.

use std::sync::Arc;

use uuid::Builder;

use super::rules::Rules;

/// The ids of a request.
#[derive(Debug)]
pub(super) struct RequestIds<'a> {
    pub(super) id: &'a str,
    pub(super) batch: &'a str,
    key: String,
    /// The form in which the key was sent.
    form: Option<Form>,
}

/// The form in which a request is sent. Requests of the same form have the same body.
#[derive(Debug, PartialEq)]
pub(super) struct Form {
    pub(super) rules: Arc<Rules>,
    pub(super) streams: bool,
    /// The bound on the completion.
    pub(super) bound: Option<u64>,
}

impl<'a> RequestIds<'a> {
    pub(super) fn new(id: &'a str, batch: &'a str) -> Self {
        Self { id, batch, key: id.to_owned(), form: None }
    }

    /// The idempotency key.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Takes another key if the request was sent in another form: a server may answer a repeated key as before.
    pub(super) fn send_as(&mut self, form: Form) {
        if self.form.as_ref().is_some_and(|before| *before != form) {
            self.key = new_request_id();
        }
        self.form = Some(form);
    }

    /// Takes another key, since the last reply is not what is wanted again.
    pub(super) fn renew_key(&mut self) {
        self.key = new_request_id();
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
        let mut sent_as = |streams, bound| {
            ids.send_as(Form { rules: Arc::default(), streams, bound });
            ids.key().to_owned()
        };
        let mut keys =
            vec![sent_as(true, None), sent_as(true, None), sent_as(false, None), sent_as(false, None)];
        keys.push(sent_as(false, Some(7)));
        ids.renew_key();
        keys.push(ids.key().to_owned());
        assert_eq!((keys[0].as_str(), keys[1].as_str()), ("id", "id"));
        assert!(
            keys[1] != keys[2] && keys[2] == keys[3] && keys[3] != keys[4] && keys[4] != keys[5],
            "{keys:?}"
        );
    }
}
