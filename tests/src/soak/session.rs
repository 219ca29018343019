//! One session: a worker, its host, its model, and calls until they end or a promise is broken.

use std::cmp::max;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rlm_core::protocol::Response;

use super::defect::{Class, Defect};
use super::frame::{Frame, Language};
use super::host::{Host, Resources};
use super::model::Model;
use super::step::Step;
use crate::Setup;

/// The number of calls from which on a session's resources are compared.
const LONG: usize = 300;

/// Number of calls in a row before which resources are looked at. The least memory counts, since the allocator holds back what
/// the last large call had, for a while; and the most descriptors.
const LOOKS: usize = 20;

/// The record of a session.
#[derive(Debug)]
pub struct Run {
    /// The calls that were made.
    pub steps: Vec<Step>,
    /// The kind and the ending of each call, for the statistics.
    pub(crate) endings: Vec<String>,
    /// The promise that was broken, after which nothing more was called.
    pub defect: Option<Defect>,
    /// The longest time that a call took beyond its time limit, and the call.
    pub(crate) slowest: (Duration, String),
    /// Growth of a long session's memory in KiB and of its descriptors, from 10 % of its calls to its end.
    pub(crate) growth: Option<(i64, i64)>,
}

/// The means of a session.
#[derive(Clone, Debug)]
pub struct Means {
    /// The Python of Python sessions.
    pub python: PathBuf,
    /// The time that a response may take beyond its call's time limit.
    pub patience: Duration,
}

impl Means {
    /// Runs the calls that `next` returns, until there are no more or a promise is broken. `next` gets the number of
    /// states that the session may be in.
    pub(crate) fn run(
        &self,
        frame: &Frame,
        length: usize,
        mut next: impl FnMut(usize) -> Option<Step>,
    ) -> Run {
        let start = || match frame.language {
            Language::Bash => Setup::bash().start(),
            Language::Python => Setup::python_at(&self.python).start(),
        };
        let dir = tempfile::tempdir().expect("the directory for temporary files takes another one");
        let mut host = Host::new(start(), self.patience, dir.path().join("saved"));
        let mut model = Model::new(frame.language);
        let mut run = Run {
            steps: Vec::new(),
            endings: Vec::new(),
            defect: None,
            slowest: (Duration::ZERO, String::new()),
            growth: None,
        };
        let places = [length / 10, length / 2, length.saturating_sub(LOOKS)];
        let mut samples = [None; 3];
        while let Some(step) = next(model.doubts()) {
            for (place, sample) in places.iter().zip(&mut samples) {
                if (*place..place + LOOKS).contains(&run.steps.len()) {
                    *sample = combined(*sample, host.resources());
                }
            }
            run.steps.push(step.clone());
            let begun = Instant::now();
            let replaced = if step.starts_worker { host.replace_worker(start(), frame.end) } else { Ok(()) };
            let called = replaced.and_then(|()| host.call(&step));
            let beyond =
                begun.elapsed().saturating_sub(Duration::from_secs_f64(step.timeout().unwrap_or(0.0)));
            let shown = || match step.disturbance {
                Some(disturbance) => format!("{} with {disturbance:?}", step.kind),
                None => step.kind.clone(),
            };
            run.slowest = max(run.slowest, (beyond, shown()));
            let taken = called.and_then(|response| {
                run.endings.push(describe(&response));
                model.take(&step, &response).map_err(|defect| with_context(defect, &response))
            });
            if let Err(defect) = taken {
                run.defect = Some(defect);
                host.abandon();
                return run;
            }
        }
        if length >= LONG
            && let [Some(first), Some(middle), Some(last)] = samples
        {
            run.growth = Some(growth(first, last));
            run.defect = grown(first, last).and(grown(middle, last));
        }
        if let Err(defect) = host.end(frame.end) {
            run.defect = Some(defect);
        }
        run
    }

    /// Runs these calls.
    pub fn replay(&self, frame: &Frame, steps: &[Step]) -> Run {
        let mut steps = steps.iter().cloned();
        self.run(frame, steps.len(), |_| steps.next())
    }
}

fn combined(one: Option<Resources>, other: Option<Resources>) -> Option<Resources> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    Some(Resources {
        memory_kib: one.memory_kib.min(other.memory_kib),
        descriptors: one.descriptors.max(other.descriptors),
    })
}

fn growth(first: Resources, last: Resources) -> (i64, i64) {
    let difference =
        |first: u64, last: u64| i64::try_from(last).unwrap_or(0) - i64::try_from(first).unwrap_or(0);
    (
        difference(first.memory_kib, last.memory_kib),
        difference(first.descriptors as u64, last.descriptors as u64),
    )
}

/// Growth by more than five percent, and by what the allocator keeps once something large was freed.
fn grown(first: Resources, last: Resources) -> Option<Defect> {
    let is_grown = last.memory_kib > first.memory_kib + first.memory_kib / 20 + 512
        || last.descriptors > first.descriptors;
    is_grown.then(|| Defect::new(Class::Growth, format!("{first:?}, then {last:?}")))
}

fn describe(response: &Response) -> String {
    format!("{:?} {:?}", response.outcome, response.state).to_lowercase()
}

fn with_context(defect: Defect, response: &Response) -> Defect {
    let mut response = response.clone();
    for text in [&mut response.stdout, &mut response.stderr, &mut response.answer.content] {
        if let Some((end, _)) = text.char_indices().nth(300) {
            text.truncate(end);
        }
    }
    let shown = serde_json::to_string(&response).unwrap_or_default();
    Defect { what: format!("{}\n    response: {shown}", defect.what), ..defect }
}
