//! OpenAI's Responses API, between chat form and native form.
//!
//! A reply's message keeps its native items in the field `responses`, and the next request sends them back unchanged: only
//! they have the model's reasoning. Requests are stateless: the server stores nothing, and each request has the whole
//! conversation. The input of a request begins with that of the one before, so that servers can cache it.

mod events;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub(super) use self::events::Events;
pub(super) use self::reply::reply;
pub(super) use self::request::request;
