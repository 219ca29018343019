//! Random choices, which the grammars share.

use fastrand::Rng;
use nix::libc;
use rlm_core::protocol::State;

use super::frame::Language;
use super::step::{Disturbance, Effect, Reading, Step};

/// Productions with their weights.
pub(crate) type Productions = &'static [(u32, fn(&mut Draw<'_>) -> Step)];

/// Random choices of a production.
#[derive(Debug)]
pub(crate) struct Draw<'a> {
    pub(crate) rng: &'a mut Rng,
    /// Number of values made so far: no two are alike.
    pub(crate) values: &'a mut u32,
}

/// Names of variables that calls set.
pub(crate) const NAMES: [&str; 4] = ["v1", "v2", "v3", "v4"];

impl Draw<'_> {
    pub(crate) fn one_of(&mut self, productions: Productions) -> Step {
        let sum: u32 = productions.iter().map(|(weight, _)| weight).sum();
        let mut at = self.rng.u32(..sum);
        let production = productions.iter().find(|(weight, _)| {
            let is_here = at < *weight;
            at = at.saturating_sub(*weight);
            is_here
        });
        production.map_or_else(|| Step::new("nothing", ""), |(_, make)| make(self))
    }

    /// A value that was never used before.
    pub(crate) fn value(&mut self) -> String {
        const ENDS: [&str; 10] =
            ["", "", " two words", "'", "\"", "\nline", "$x `y`", "é 日本 🎉", "\\n\\", "*;&|<>()!#"];
        *self.values += 1;
        let end = self.pick(&ENDS);
        format!("w{}{end}", self.values)
    }

    /// A value that is one word.
    pub(crate) fn word(&mut self) -> String {
        *self.values += 1;
        format!("w{}", self.values)
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    pub(crate) fn name(&mut self) -> &'static str {
        self.pick(&NAMES)
    }

    /// A call that gives a name a value. In the code, VALUE stands for it, as `quote` writes it.
    pub(crate) fn assign(&mut self, kind: &str, name: &str, quote: fn(&str) -> String, code: &str) -> Step {
        let value = self.value();
        Step::new(kind, code.replace("VALUE", &quote(&value))).effects([Effect::set(name, &value)])
    }

    /// [`Self::assign`] with one word, as it is.
    pub(crate) fn assign_word(&mut self, kind: &str, name: &str, code: &str) -> Step {
        let value = self.word();
        Step::new(kind, code.replace("VALUE", &value)).effects([Effect::set(name, &value)])
    }

    /// A call that sets a few variables, each by an assignment in which NAME and VALUE stand for what they are.
    pub(crate) fn set(&mut self, quote: fn(&str) -> String, assignment: &str, separators: &[&str]) -> Step {
        let (mut code, mut effects) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.u32(1..4) {
            let (name, value) = (self.name(), self.value());
            code.push(assignment.replace("NAME", name).replace("VALUE", &quote(&value)));
            effects.push(Effect::set(name, &value));
        }
        Step::new("set", code.join(self.pick(separators))).effects(effects)
    }

    /// A call that writes many lines, with a bound on its output or without. In the code, BYTES and LINES stand for how many.
    pub(crate) fn large_output(&mut self, code: &str) -> Step {
        const LINE: &str = "abcdefghijklmno\n";
        let kib = self.pick(&[5, 64, 300, 3000]) + self.rng.usize(..9);
        let (bytes, lines) = (kib << 10, kib << 6);
        let code = code.replace("BYTES", &bytes.to_string()).replace("LINES", &lines.to_string());
        let step = Step::new("large output", code).effects([Effect::Fill(LINE.to_owned(), lines)]);
        if self.rng.bool() { step } else { step.field("max_output_bytes", self.rng.u32(256..4096)) }
    }

    pub(crate) fn reading(&mut self) -> Reading {
        self.pick(&[Reading::Blocking, Reading::Early, Reading::Late, Reading::Forked])
    }

    /// Disturbs a save or a load.
    pub(crate) fn disturb_saved(&mut self, step: &mut Step) {
        let delay = self.rng.u64(..50_000);
        let signals = [libc::SIGKILL, libc::SIGHUP, libc::SIGTERM];
        step.disturbance = match self.rng.u32(..40) {
            0..=3 => Some(Disturbance::Interrupt(delay)),
            4 => Some(Disturbance::Kill(self.pick(&signals), delay)),
            5 => Some(Disturbance::KillBefore(self.pick(&signals))),
            _ => None,
        };
    }

    pub(crate) fn disturb(&mut self, step: &mut Step, language: Language) {
        let delay = match self.rng.u32(..3) {
            0 => self.rng.u64(..500),
            1 => self.rng.u64(..5_000),
            _ => self.rng.u64(..50_000),
        };
        let signals = [libc::SIGKILL, libc::SIGHUP, libc::SIGTERM];
        // A signal that ends a program must not end the command that shows a value, which nobody repeats.
        step.disturbance = match self.rng.u32(..200) {
            0..=5 => Some(Disturbance::Interrupt(delay)),
            6 => Some(Disturbance::Kill(self.pick(&signals), delay)),
            7 => Some(Disturbance::KillBefore(self.pick(&signals))),
            8 if step.endings[0].state != State::Kept => Some(Disturbance::KillNew(delay)),
            8 if step.is_output_free => Some(Disturbance::KillChild(delay)),
            9..=11 if step.timeout().is_none() => {
                let limit = self.rng.f64() * if language == Language::Bash { 0.02 } else { 0.05 };
                *step = step.clone().field("timeout", (limit * 10_000.0).ceil() / 10_000.0);
                None
            }
            _ => None,
        };
    }
}
