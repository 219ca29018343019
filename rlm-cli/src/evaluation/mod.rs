//! Evaluation of results: their scores, and the models and settings that made them.

mod result;
mod score;
mod statistics;

#[cfg(test)]
pub(crate) use self::result::tests::result;
pub(crate) use self::result::{Evaluation, Provenance, RunResult};
pub(crate) use self::score::{Expected, ScoreMode, Scorer};
pub(crate) use self::statistics::Statistics;
