//! The interfaces of models' servers, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The interface of a model's server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Api {
    /// OpenAI's chat completions.
    #[default]
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Anthropic,
}

impl fmt::Display for Api {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
        })
    }
}

impl FromStr for Api {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Chat, Self::Responses, Self::Anthropic]
            .into_iter()
            .find(|api| api.to_string() == text)
            .ok_or_else(|| format!("{text:?} is not an interface: expected chat, responses or anthropic"))
    }
}
