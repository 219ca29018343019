//! The calls of a session, drawn from the grammar of its language, and requests that are not calls.

use fastrand::Rng;
use rlm_core::protocol::{Outcome, State};
use serde_json::{Value, json};

use super::draw::{Draw, Productions};
use super::frame::Language;
use super::step::{Effect, Request, Step};
use crate::malformed::MALFORMED;

/// Makes the calls of a session.
#[derive(Debug)]
pub(crate) struct Grammar {
    language: Language,
    rng: Rng,
    /// Number of values made so far: no two are alike.
    values: u32,
    left: usize,
    /// True if signals and time limits come at random moments.
    disturbs: bool,
    /// Percentage of saves and loads.
    saves: u32,
    /// True if the file has the session's directory, which is for another worker.
    has_directory: bool,
    /// The call that comes next, whatever is drawn.
    next: Option<Step>,
}

/// Number of possible states from which on a call shows everything.
const MANY_DOUBTS: usize = 8;

impl Grammar {
    pub(crate) fn new(language: Language, seed: u64, length: usize, disturbs: bool, saves: u32) -> Self {
        Self {
            language,
            rng: Rng::with_seed(seed),
            values: 0,
            left: length,
            disturbs,
            saves,
            has_directory: false,
            next: None,
        }
    }

    pub(crate) fn next(&mut self, doubts: usize) -> Option<Step> {
        self.left = self.left.checked_sub(1)?;
        let mut draw = Draw { rng: &mut self.rng, values: &mut self.values };
        if doubts > MANY_DOUBTS || self.left == 0 {
            return Some(self.language.show_all());
        }
        if let Some(step) = self.next.take() {
            return Some(step);
        }
        let mut step = match draw.rng.u32(..100) {
            percent if percent >= 100 - self.saves => saved(&mut draw, &mut self.has_directory),
            0..=7 => shared(&mut draw, self.language),
            _ => draw.one_of(self.language.productions()),
        };
        if step.is_of_saved_session() {
            if self.disturbs {
                draw.disturb_saved(&mut step);
            }
            step.reading = draw.reading();
            // Everything that a session has is to be there after a load, and is to be known before a save.
            let (first, second) = if step.operation() == Some("load") {
                (step, self.language.show_all())
            } else if doubts > 1 {
                (self.language.show_all(), step)
            } else {
                return Some(step);
            };
            self.next = Some(second);
            return Some(first);
        }
        if step.effects.contains(&Effect::Broken(true)) {
            self.next = Some(super::python::mend());
        }
        if self.disturbs && step.operation() == Some("execute") && !step.imports_package() {
            draw.disturb(&mut step, self.language);
        }
        step.reading = draw.reading();
        Some(step)
    }
}

impl Step {
    /// True if a cell imports a package of many modules. Once interrupted, Python cannot import such a package any more.
    fn imports_package(&self) -> bool {
        self.code().is_some_and(|code| code.contains("asyncio"))
    }
}

/// A save or a load of the session, by the same worker or by a new one.
fn saved(draw: &mut Draw<'_>, has_directory: &mut bool) -> Step {
    let request = |op: &str| Request::Document(json!({"op": op, "file": "saved"}));
    if draw.rng.bool() {
        *has_directory = draw.rng.u32(..3) == 0;
        let step = Step::of("op save", request("save"));
        return if *has_directory { step.field("directory", true) } else { step };
    }
    let starts_worker = *has_directory || draw.rng.bool();
    let kind = if starts_worker { "op load, new worker" } else { "op load" };
    Step { starts_worker, ..Step::of(kind, request("load")).ends(Outcome::Ok, State::Restored) }
}

/// A request that is not a call.
fn shared(draw: &mut Draw<'_>, language: Language) -> Step {
    match draw.rng.u32(..20) {
        0..=1 => {
            Step::of("op reset", Request::Document(json!({"op": "reset"}))).ends(Outcome::Ok, State::Reset)
        }
        2..=7 => Step::of("op info", Request::Document(json!({"op": "info"}))),
        8..=11 => {
            let (first, second) = (draw.value(), draw.value());
            let variables = json!({"v1": first, "v3": second});
            // Variables are set in the order of their names.
            Step::of("op set", Request::Document(json!({"op": "set", "variables": variables})))
                .effects([Effect::Set("v1".to_owned(), first), Effect::Set("v3".to_owned(), second)])
        }
        12 => refused(
            Step::of(
                "op set refused",
                Request::Document(json!({"op": "set", "variables": language.refused()})),
            ),
            "",
        ),
        _ => malformed(draw),
    }
}

fn refused(step: Step, fault: &str) -> Step {
    Step { fault: Some(fault.to_owned()), ..step.ends(Outcome::Error, State::Kept) }
}

/// Input that is not a request.
fn malformed(draw: &mut Draw<'_>) -> Step {
    match draw.rng.u32(..40) {
        0 => refused(Step::of("malformed: too large", Request::TooLarge), "exceeds the limit"),
        1..=2 => {
            let deep = "[".repeat(draw.rng.usize(1000..100_000));
            refused(Step::of("malformed: deep", Request::Bytes(deep, -1)), "cut off")
        }
        3..=4 => {
            let garbage: String =
                (0..draw.rng.usize(1..60_000)).map(|_| draw.pick(&['x', '\u{ff}', ' ', '7'])).collect();
            refused(Step::of("malformed: garbage", Request::Bytes(format!("x{garbage}"), -1)), "found ")
        }
        _ => {
            let (text, seq, fault) = draw.pick(&MALFORMED);
            refused(Step::of("malformed", Request::Bytes(text.to_owned(), seq)), fault)
        }
    }
}

impl Language {
    fn productions(self) -> Productions {
        match self {
            Self::Bash => super::bash::PRODUCTIONS,
            Self::Python => super::python::PRODUCTIONS,
        }
    }

    fn show_all(self) -> Step {
        match self {
            Self::Bash => super::bash::show_all(),
            Self::Python => super::python::show_all(),
        }
    }

    /// Variables, one of which cannot be set.
    fn refused(self) -> Value {
        match self {
            Self::Bash => json!({"v1": "never", "UID": "x"}),
            Self::Python => json!({"v1": "never", "not a name": "x"}),
        }
    }
}
