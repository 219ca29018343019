//! Sessions of random code, with a model beside each that knows what the documentation promises.
//!
//! A grammar (`bash`, `python`) draws the calls of a session from a seed. Each call says as data (`step::Step`) what
//! it prints and changes and how it may end, and so can be run again in any selection and order. The model
//! (`model::Model`) keeps the states that the session may be in: one, or several after a call that was stopped
//! halfway. A response that fits none of them is a defect. Its session is run again with fewer and fewer calls, and the
//! shortest list that fails is reported.
//!
//! Nothing here panics because of a worker, unless one does not start: whatever it does is an entry of the report.

mod bash;
mod defect;
mod draw;
mod frame;
mod grammar;
mod host;
mod model;
mod python;
mod report;
mod rollouts;
mod session;
mod shrink;
mod step;
mod world;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use fastrand::Rng;

pub use self::defect::{Class, Defect};
pub use self::frame::{End, Frame, Language};
pub use self::report::{Finding, Report, lines, parse};
pub use self::session::{Means, Run};
pub use self::shrink::{Bounds, Shortest, shrink};
pub use self::step::{Disturbance, Effect, Ending, Reading, Request, Step};

use self::grammar::Grammar;
use self::rollouts::Rollouts;

/// The sessions to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Least number of calls in all.
    pub calls: usize,
    /// The seed from which everything is drawn.
    pub seed: u64,
    /// The languages, which take turns.
    pub languages: Vec<Language>,
    /// True if signals and time limits come at random moments.
    pub disturbs: bool,
    /// Percentage of requests that save or load the session.
    pub saves: u32,
    /// Number of sessions at once.
    pub jobs: usize,
    /// Number of rollouts after the sessions.
    pub rollouts: usize,
    /// Programs and patience.
    pub means: Means,
    /// Bounds of the search for the shortest list of calls.
    pub bounds: Bounds,
}

/// A session to run.
#[derive(Debug)]
struct Session {
    number: usize,
    frame: Frame,
    length: usize,
}

impl Plan {
    /// Runs the sessions and rollouts. Each finding is passed to `tell` as soon as it is there.
    pub fn run(&self, tell: impl Fn(&Finding) + Sync) -> Report {
        let begun = Instant::now();
        let report = Mutex::new(Report::default());
        let (sessions, next, seen) = (self.sessions(), AtomicUsize::new(0), Mutex::new(HashSet::new()));
        let work = || {
            while let Some(session) = sessions.get(next.fetch_add(1, Relaxed)) {
                let run = self.run_session(session);
                locked(&report).add_session(session.frame.language, &run);
                let Some(defect) = run.defect else { continue };
                let kind = run.steps.last().map(|step| step.kind.clone());
                let is_new = locked(&seen).insert((session.frame.language, defect.class, kind))
                    // A session of fewer calls does not tell.
                    && defect.class != Class::Growth;
                let shortest = is_new
                    .then(|| shrink(&self.means, &session.frame, &run.steps, defect.class, self.bounds));
                let session = Some((session.number, session.frame.clone()));
                let finding = Finding { session, defect, steps: run.steps, shortest };
                tell(&finding);
                locked(&report).findings.push(finding);
            }
        };
        thread::scope(|scope| (0..self.jobs).for_each(|_| drop(scope.spawn(work))));
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        let rollouts = Rollouts {
            count: self.rollouts,
            seed: self.seed,
            languages: &self.languages,
            disturbs: self.disturbs,
            python: &self.means.python,
        };
        rollouts.run(|ended| match ended {
            Ok(stop_reason) => report.add_rollout(format!("{stop_reason:?}")),
            Err(defect) => {
                report.add_rollout("defect".to_owned());
                let finding = Finding { session: None, defect, steps: Vec::new(), shortest: None };
                tell(&finding);
                report.findings.push(finding);
            }
        });
        report.took = begun.elapsed();
        report
    }

    /// The sessions, with a seed of its own for each.
    fn sessions(&self) -> Vec<Session> {
        const ENDS: [End; 6] =
            [End::Term, End::Term, End::Shutdown, End::Shutdown, End::KillGuard, End::KillServer];
        let mut rng = Rng::with_seed(self.seed);
        let mut sessions = Vec::new();
        let mut calls = 0;
        while calls < self.calls && !self.languages.is_empty() {
            let number = sessions.len();
            let length = match rng.u32(..16) {
                0 => rng.usize(300..600),
                _ => rng.usize(5..60),
            };
            let length = length.min(self.calls - calls);
            let language = self.languages[number % self.languages.len()];
            let frame = Frame { language, end: ENDS[rng.usize(..ENDS.len())], seed: rng.u64(..) };
            sessions.push(Session { number, frame, length });
            calls += length;
        }
        sessions
    }

    fn run_session(&self, session: &Session) -> Run {
        let mut grammar = Grammar::new(
            session.frame.language,
            session.frame.seed,
            session.length,
            self.disturbs,
            self.saves,
        );
        self.means.run(&session.frame, session.length, |doubts| grammar.next(doubts))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
