//! Prices of models.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Prices by the name of the model.
///
/// ```toml
/// [models."small-model"]
/// prompt = 0.15      # USD per million tokens
/// completion = 0.60
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    #[serde(default)]
    models: BTreeMap<String, Price>,
}

/// The price of one model.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// USD per million tokens of prompts.
    pub prompt: f64,
    /// USD per million tokens of completions.
    pub completion: f64,
}

/// Prices that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PricesError {
    /// The file cannot be read.
    #[error("prices cannot be read from {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The text is not TOML of this shape.
    #[error("invalid prices: {0}")]
    Toml(String),
    /// A negative, infinite or undefined price.
    #[error("the {of} price of {model} is {price}, expected USD per million tokens")]
    Price {
        /// The model.
        model: String,
        /// `prompt` or `completion`.
        of: &'static str,
        /// The price in the file.
        price: f64,
    },
}

impl Prices {
    /// Reads prices from a TOML file.
    ///
    /// # Errors
    /// [`PricesError`].
    pub fn read(path: &Path) -> Result<Self, PricesError> {
        let text =
            fs::read_to_string(path).map_err(|source| PricesError::Read { path: path.to_owned(), source })?;
        Self::from_toml(&text)
    }

    /// Reads prices from TOML text.
    ///
    /// # Errors
    /// [`PricesError::Toml`] and [`PricesError::Price`].
    pub fn from_toml(text: &str) -> Result<Self, PricesError> {
        let prices: Self =
            toml::from_str(text).map_err(|error| PricesError::Toml(error.to_string().trim().to_owned()))?;
        for (model, price) in &prices.models {
            for (of, price) in [("prompt", price.prompt), ("completion", price.completion)] {
                if !(price.is_finite() && price >= 0.0) {
                    return Err(PricesError::Price { model: model.clone(), of, price });
                }
            }
        }
        Ok(prices)
    }

    /// The price of a model, where it is known.
    #[must_use]
    pub fn get(&self, model: &str) -> Option<Price> {
        self.models.get(model).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_by_model() {
        let prices = Prices::from_toml("[models.\"a/b\"]\nprompt = 0.15\ncompletion = 1\n").unwrap();
        assert_eq!(prices.get("a/b"), Some(Price { prompt: 0.15, completion: 1.0 }));
        assert_eq!(prices.get("a"), None);
        assert_eq!(Prices::from_toml("").unwrap(), Prices::default());
    }

    #[test]
    fn faults_in_prices_are_named() {
        let error = |text| Prices::from_toml(text).unwrap_err().to_string();
        assert_eq!(
            error("[models.m]\nprompt = -1\ncompletion = 1"),
            "the prompt price of m is -1, expected USD per million tokens"
        );
        assert!(error("[models.m]\nprompt = 1").contains("missing field `completion`"));
        assert!(
            error("[models.m]\nprompt = 1\ncompletion = 1\ncached = 1").contains("unknown field `cached`")
        );
        let missing = Prices::read(Path::new("/nowhere/prices.toml")).unwrap_err().to_string();
        assert_eq!(missing, "prices cannot be read from /nowhere/prices.toml");
    }
}
