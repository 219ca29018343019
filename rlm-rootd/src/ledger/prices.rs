//! Prices of models.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use serde::Deserialize;

/// The prices of usual models, as `update_prices.py` writes them.
static BUILT_IN: LazyLock<Prices> =
    LazyLock::new(|| Prices::from_toml(include_str!("prices.toml")).expect("the built-in prices are valid"));

/// Prices by the name of the model. A name with a slash has the price of its last part if it has none of its own:
/// `openai/gpt-4o` that of `gpt-4o`.
///
/// ```toml
/// [models."small-model"]
/// prompt = 0.15      # USD per million tokens
/// completion = 0.60
/// cached = 0.015     # of a prompt, what is read from the server's cache; `prompt` by default
/// cache_write = 0.19 # of a prompt, what is written to it; `prompt` by default. For an hour, twice `prompt`
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    models: Arc<BTreeMap<String, Price>>,
}

/// A file of prices.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
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
    /// USD per million tokens of prompts that are read from the server's cache; by default the price of other prompt tokens.
    #[serde(default)]
    pub cached: Option<f64>,
    /// USD per million tokens of prompts that are written to the server's cache; by default the price of other prompt tokens.
    #[serde(default)]
    pub cache_write: Option<f64>,
}

impl Price {
    /// The price of a model whose server has no cache, or no separate price for it.
    #[must_use]
    pub fn new(prompt: f64, completion: f64) -> Self {
        Self { prompt, completion, cached: None, cache_write: None }
    }

    /// USD per million tokens that are written to a cache which keeps them for an hour, where writing has a price: twice that of
    /// other prompt tokens, for every model that litellm 1.110.2 knows.
    pub(super) fn hour_cache_write(&self) -> f64 {
        self.cache_write.map_or(self.prompt, |written| written.max(2.0 * self.prompt))
    }
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
        /// The price's name in the file.
        of: &'static str,
        /// The price in the file.
        price: f64,
    },
}

impl Prices {
    /// The date of the built-in prices.
    pub const BUILT_IN_DATE: &str = "2026-11-27";

    /// The prices of usual models on [`Self::BUILT_IN_DATE`].
    #[must_use]
    pub fn built_in() -> Self {
        BUILT_IN.clone()
    }

    /// These prices, replaced by the others for the same models.
    #[must_use]
    pub fn with(mut self, others: &Self) -> Self {
        Arc::make_mut(&mut self.models)
            .extend(others.models.iter().map(|(name, price)| (name.clone(), *price)));
        self
    }

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
        let File { models } =
            toml::from_str(text).map_err(|error| PricesError::Toml(error.to_string().trim().to_owned()))?;
        for (model, price) in &models {
            let given = [
                ("prompt", Some(price.prompt)),
                ("completion", Some(price.completion)),
                ("cached", price.cached),
                ("cache_write", price.cache_write),
            ];
            for (of, price) in given.into_iter().filter_map(|(of, price)| Some((of, price?))) {
                if !(price.is_finite() && price >= 0.0) {
                    return Err(PricesError::Price { model: model.clone(), of, price });
                }
            }
        }
        Ok(Self { models: models.into() })
    }

    /// The price of a model, where it is known.
    #[must_use]
    pub fn get(&self, model: &str) -> Option<Price> {
        let last_part = || self.models.get(model.rsplit_once('/')?.1);
        self.models.get(model).or_else(last_part).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_by_model() {
        let prices = Prices::from_toml("[models.\"a/b\"]\nprompt = 0.15\ncompletion = 1\n").unwrap();
        assert_eq!(prices.get("a/b"), Some(Price::new(0.15, 1.0)));
        assert_eq!(prices.get("a"), None);
        assert_eq!(Prices::from_toml("").unwrap(), Prices::default());
    }

    #[test]
    fn own_prices_come_before_the_built_in_ones() {
        assert!(include_str!("prices.toml").starts_with(&format!("# Prices of {},", Prices::BUILT_IN_DATE)));
        let price = Prices::built_in().get("gpt-4o").expect("it is a usual model");
        assert!(price.prompt > 0.0 && price.completion > price.prompt);
        assert_eq!(Prices::built_in().get("openai/gpt-4o"), Some(price));
        assert_eq!(Prices::built_in().get("gpt-4o/mine"), None);
        let own = "[models.gpt-4o]\nprompt = 1\ncompletion = 2\n[models.mine]\nprompt = 3\ncompletion = 4\n";
        let all = Prices::built_in().with(&Prices::from_toml(own).unwrap());
        assert_eq!(all.get("gpt-4o"), Some(Price::new(1.0, 2.0)));
        assert_eq!(all.get("mine"), Some(Price::new(3.0, 4.0)));
        assert_eq!(all.get("gpt-4o-mini"), Prices::built_in().get("gpt-4o-mini"));
    }

    #[test]
    fn faults_in_prices_are_named() {
        let error = |text| Prices::from_toml(text).unwrap_err().to_string();
        assert_eq!(
            error("[models.m]\nprompt = -1\ncompletion = 1"),
            "the prompt price of m is -1, expected USD per million tokens"
        );
        assert!(error("[models.m]\nprompt = 1").contains("missing field `completion`"));
        assert_eq!(
            error("[models.m]\nprompt = 1\ncompletion = 1\ncached = -1"),
            "the cached price of m is -1, expected USD per million tokens"
        );
        assert!(error("[models.m]\nprompt = 1\ncompletion = 1\nbatch = 1").contains("unknown field `batch`"));
        let missing = Prices::read(Path::new("/nowhere/prices.toml")).unwrap_err().to_string();
        assert_eq!(missing, "prices cannot be read from /nowhere/prices.toml");
    }
}
