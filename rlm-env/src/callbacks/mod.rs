//! How code in a session calls root tools.

mod interceptor;
mod root_tools;
mod value;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::interceptor::{Interceptor, InterceptorConfig, InterceptorError};
pub use self::root_tools::{RootTools, RootToolsError};

/// How code in a session calls root tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Callbacks {
    /// Over HTTP, from anywhere in the code.
    #[default]
    Network,
    /// Not at all: the host finds the calls in the code before it runs, makes them, and puts the values in their places.
    /// Such a call is a statement of its own, `name = tool(literals)`. See [`crate::interception`].
    Intercept,
}

impl fmt::Display for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "network",
            Self::Intercept => "intercept",
        })
    }
}

/// A way of calling that there is none of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown callbacks `{0}`: expected `network` or `intercept`")]
pub struct UnknownCallbacks(String);

impl FromStr for Callbacks {
    type Err = UnknownCallbacks;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "network" => Ok(Self::Network),
            "intercept" => Ok(Self::Intercept),
            other => Err(UnknownCallbacks(other.to_owned())),
        }
    }
}
