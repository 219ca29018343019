//! What an evaluation needs besides the answers: the place of a result in a batch, what made it, its score.

mod result;
mod score;
mod statistics;

#[cfg(test)]
pub(crate) use self::result::tests::result;
pub(crate) use self::result::{Evaluation, Provenance, RunResult};
pub(crate) use self::score::{Expected, ScoreMode, Scorer};
pub(crate) use self::statistics::Statistics;
