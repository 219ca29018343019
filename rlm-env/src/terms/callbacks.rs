//! The ways in which code in a session calls root tools.

use serde::{Deserialize, Serialize};

/// The way in which code in a session calls root tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Callbacks {
    /// Over HTTP, from anywhere in the code.
    #[default]
    Network,
    /// The host makes them: it finds the calls in the code before the code runs, makes them, and puts the values in their
    /// places. Such a call is a statement of its own, `name = tool(literals)`. See `docs/interception.md`.
    Intercept,
}

named!(Callbacks, UnknownCallbacks, "callback mode", { Network = "network", Intercept = "intercept" });
