//! Anthropic's Messages API, translated from and to chat completions.
//!
//! Conversations are kept in OpenAI's chat form. A reply becomes the body of a chat completion, and its message keeps the
//! native content blocks under `anthropic.content`. The next request sends these blocks back as they came, in order:
//! signatures of thinking, redacted thinking, calls of server tools, and blocks and fields that we do not know. Thinking is
//! signed together with all that precedes it, so a request must only add to the one before.
//!
//! A request is not checked: the API refuses what it does not accept, and says why. The translation leaves out only what
//! chat completions allow and the API always refuses, such as empty texts.

mod events;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub(super) use self::events::Events;
pub(super) use self::reply::reply;
pub(super) use self::request::request;
