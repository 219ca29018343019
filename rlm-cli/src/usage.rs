//! Errors of usage: exit status 2.

/// A wrong or missing value on the command line, in a variable or in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Usage(String);

impl Usage {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Returns an error of usage with this message, in the form of `format!`.
macro_rules! refuse {
    ($($message:tt)*) => {
        return Err($crate::usage::Usage::new(format!($($message)*)).into())
    };
}

pub(crate) use refuse;

/// The known name most similar to a misspelt one, if one is similar.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.into_iter().map(|known| (strsim::jaro_winkler(name, known), known));
    let best = near.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (best.0 > 0.8).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_if_one_is_similar() {
        let names = ["max_turns", "model", "timeout"];
        assert_eq!(nearest("maxturns", names), Some("max_turns"));
        assert_eq!(nearest("modell", names), Some("model"));
        assert_eq!(nearest("colour", names), None);
    }
}
