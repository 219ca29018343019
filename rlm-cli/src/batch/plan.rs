//! The extent of a run, before it starts.

use std::fmt;

use rlm_core::text::counted;

/// The extent of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(super) questions: usize,
    pub(super) attempts: usize,
    /// Rollouts whose results stay.
    pub(super) done: usize,
    pub(super) jobs: usize,
}

impl Plan {
    /// The extent of a single rollout.
    pub(crate) const ONE: Self = Self { questions: 1, attempts: 1, done: 0, jobs: 1 };

    pub(crate) fn rollouts(&self) -> usize {
        self.questions * self.attempts - self.done
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (questions, attempts) = (self.questions as u64, self.attempts as u64);
        let each = if self.questions > 1 { " at each" } else { "" };
        write!(
            f,
            "{}: {}, {}{each}",
            self.rollouts(),
            counted(questions, "question"),
            counted(attempts, "attempt")
        )?;
        if self.done > 0 {
            write!(f, ", {} done before", self.done)?;
        }
        if self.rollouts() > 1 { write!(f, "; {} at once", self.jobs) } else { Ok(()) }
    }
}
