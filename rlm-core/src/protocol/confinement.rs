//! The part of its host that a session can reach: what is wanted, and what holds.

use serde::{Deserialize, Serialize};

/// The part of its host that a session can reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The part of the host that is out of reach.
    pub level: ConfinementLevel,
    /// The version of Landlock that holds for the session; null: the kernel has none.
    #[serde(default)]
    pub landlock: Option<u32>,
}

impl Confinement {
    /// True without any.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.level == ConfinementLevel::Off
    }
}

/// The part of its host that is out of a session's reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfinementLevel {
    /// Nothing: it has the rights of its user.
    #[default]
    Off,
    /// The contents of files, other processes and the network, but for its own directories, the system's programs and its endpoint.
    Landlock,
    /// Everything but those.
    Full,
}

/// The confinement that a host wants for a session: the setting `RLM_CONFINE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    /// No confinement: the session has the rights of its user.
    #[default]
    Off,
    /// The full one, or no session.
    Full,
    /// The level that needs no namespaces, or no session.
    Landlock,
    /// The first of these that the host allows, or none.
    Try,
}

impl Confine {
    /// The values that are accepted, for error messages.
    pub const EXPECTED: &str = "off, full, landlock or try";

    /// The name of the level.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Full => "full",
            Self::Landlock => "landlock",
            Self::Try => "try",
        }
    }

    /// The levels to try, in order.
    #[must_use]
    pub const fn levels(self) -> &'static [ConfinementLevel] {
        match self {
            Self::Off => &[],
            Self::Full => &[ConfinementLevel::Full],
            Self::Landlock => &[ConfinementLevel::Landlock],
            Self::Try => &[ConfinementLevel::Full, ConfinementLevel::Landlock],
        }
    }
}

impl std::str::FromStr for Confine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Off, Self::Full, Self::Landlock, Self::Try];
        let named = all.into_iter().find(|wanted| wanted.as_str() == text);
        named.ok_or_else(|| format!("expected {}", Self::EXPECTED))
    }
}

impl std::fmt::Display for Confine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}
