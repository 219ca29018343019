//! What an evaluation needs besides the answers: the place of a result in a batch, and what made it.

mod result;

#[cfg(test)]
pub(crate) use self::result::tests::result;
pub(crate) use self::result::{Evaluation, Provenance, RunResult};
