//! The findings of a soak.

use std::cmp::max;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::defect::{Class, Defect};
use super::frame::{Frame, Language};
use super::session::Run;
use super::shrink::Shortest;
use super::step::Step;

/// The result of a soak.
#[derive(Debug, Default)]
pub struct Report {
    /// Calls made, without those of shrinking.
    pub calls: usize,
    /// Rollouts run.
    pub rollouts: usize,
    /// The findings, in order.
    pub findings: Vec<Finding>,
    /// Wall-clock time.
    pub took: Duration,
    sessions: usize,
    endings: BTreeMap<(Language, String), usize>,
    stop_reasons: BTreeMap<String, usize>,
    /// The slowest call: its time beyond its time limit, and what it was.
    slowest: (Duration, String),
    growth: Vec<(i64, i64)>,
}

/// A broken promise, and the calls that lead to it.
#[derive(Debug)]
pub struct Finding {
    /// The fixed parts of the session, and its number; None for a rollout.
    pub session: Option<(usize, Frame)>,
    /// The broken promise.
    pub defect: Defect,
    /// The session's calls up to the one that broke it.
    pub steps: Vec<Step>,
    /// The shortest list of calls that breaks it; None if an earlier finding is of the same kind.
    pub shortest: Option<Shortest>,
}

impl Finding {
    /// The kind of the call that broke the promise.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.steps.last().map_or("", |step| &step.kind)
    }
}

impl Report {
    pub(crate) fn add_session(&mut self, language: Language, run: &Run) {
        self.sessions += 1;
        self.calls += run.steps.len();
        for ending in &run.endings {
            *self.endings.entry((language, ending.clone())).or_default() += 1;
        }
        self.slowest = max(self.slowest.clone(), run.slowest.clone());
        self.growth.extend(run.growth);
    }

    pub(crate) fn add_rollout(&mut self, stop_reason: String) {
        self.rollouts += 1;
        *self.stop_reasons.entry(stop_reason).or_default() += 1;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        writeln!(
            f,
            "{} calls in {} sessions and {} rollouts in {seconds:.0} s: {:.0} calls/s",
            self.calls,
            self.sessions,
            self.rollouts,
            self.calls as f64 / seconds
        )?;
        for ((language, ending), count) in &self.endings {
            writeln!(f, "  {language}: {ending}: {count}")?;
        }
        for (reason, count) in &self.stop_reasons {
            writeln!(f, "  rollout: {reason}: {count}")?;
        }
        let (slowest, call) = &self.slowest;
        writeln!(f, "  slowest call: {:.1} s beyond its time limit, {call}", slowest.as_secs_f64())?;
        let most = |of: fn(&(i64, i64)) -> i64| self.growth.iter().map(of).max().unwrap_or(0);
        writeln!(
            f,
            "  growth in {} long sessions, from 10 % of the calls on, at most: {} KiB, {} descriptors",
            self.growth.len(),
            most(|growth| growth.0),
            most(|growth| growth.1)
        )?;
        let mut classes: BTreeMap<Class, usize> = BTreeMap::new();
        for finding in &self.findings {
            *classes.entry(finding.defect.class).or_default() += 1;
        }
        writeln!(f, "{} defects", self.findings.len())?;
        for (class, count) in classes {
            writeln!(f, "  {class}: {count}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((number, frame)) = &self.session else { return write!(f, "rollout: {}", self.defect) };
        writeln!(
            f,
            "session {number}, seed {}, call {}, {}: {}",
            frame.seed,
            self.steps.len(),
            self.kind(),
            self.defect
        )?;
        match &self.shortest {
            Some(Shortest { steps, failures: (failures, runs) }) => {
                write!(
                    f,
                    "  the shortest that was found fails in {failures} of {runs} runs:\n{}",
                    lines(frame, steps)
                )
            }
            None => writeln!(f, "  an earlier one is of the same kind"),
        }
    }
}

/// The lines of a replay file.
#[must_use]
pub fn lines(frame: &Frame, steps: &[Step]) -> String {
    let steps = steps.iter().map(serde_json::to_string);
    let lines: Result<Vec<_>, _> = [serde_json::to_string(frame)].into_iter().chain(steps).collect();
    lines.map(|lines| lines.join("\n") + "\n").unwrap_or_else(|error| error.to_string())
}

/// Parses the lines of a replay file.
///
/// # Errors
/// A line does not have the form that [`lines`] gives it.
pub fn parse(text: &str) -> serde_json::Result<(Frame, Vec<Step>)> {
    let mut lines = text.lines();
    let frame = serde_json::from_str(lines.next().unwrap_or_default())?;
    Ok((frame, lines.map(serde_json::from_str).collect::<Result<_, _>>()?))
}
