//! The promises of the documentation about a session, call by call.

use rlm_core::protocol::{Info, Outcome, Response, State};
use rlm_core::saved::Contents;

use super::defect::{Class, Defect, cut, is_excerpt};
use super::frame::Language;
use super::step::{Disturbance, Effect, Ending, Step};
use super::world::{Output, World};
use nix::libc;

/// A time limit below this may end any call, in seconds.
const SHORT: f64 = 3.0;

/// Number of calls after its own that an interrupt may stop on a busy machine.
const LATE_CALLS: u32 = 3;

/// The states that a session may be in, and what was reported about it so far.
#[derive(Debug)]
pub(crate) struct Model {
    language: Language,
    worlds: Vec<World>,
    executed: u64,
    /// True if the last report of a loss said that the state was restored, and nothing was found missing since.
    was_restored: bool,
    /// A signal to the interpreter that may have come after the last call.
    late_signal: Option<i32>,
    /// Number of calls that an interrupt may still stop, because the host has sent one that did not stop its own: the process
    /// that passes it on may come to that only later.
    late_interrupt_calls: u32,
    /// Number of workers so far.
    workers: u32,
    saved: Option<Saved>,
}

/// A session in a file.
#[derive(Debug)]
struct Saved {
    worlds: Vec<World>,
    executed: u64,
    /// True if its directory is in the file.
    has_directory: bool,
    /// Number of the worker that saved it.
    worker: u32,
}

impl Model {
    pub(crate) fn new(language: Language) -> Self {
        Self {
            language,
            worlds: vec![World::new(language)],
            executed: 0,
            was_restored: false,
            late_signal: None,
            late_interrupt_calls: 0,
            workers: 1,
            saved: None,
        }
    }

    /// Number of states that the session may be in.
    pub(crate) fn doubts(&self) -> usize {
        self.worlds.len()
    }

    /// Compares a response with what may come, and keeps the states that it allows.
    pub(crate) fn take(&mut self, step: &Step, response: &Response) -> Result<(), Defect> {
        if step.starts_worker {
            *self = Self { workers: self.workers + 1, saved: self.saved.take(), ..Self::new(self.language) };
        }
        match (step.operation(), &self.saved) {
            (Some("execute"), _) => self.executed += 1,
            (Some("load"), Some(saved)) if response.outcome == Outcome::Ok => self.executed = saved.executed,
            _ => {}
        }
        self.check_form(step, response)?;
        let response = &self.without_hint(step, response)?;
        if step.operation() == Some("info") {
            return self.check_info(response);
        }
        let mut fitting = Vec::new();
        let mut fault: Option<(u8, Defect)> = None;
        for world in &self.worlds {
            let successors = match self.successors(world, step, response) {
                Ok(successors) => successors,
                Err(defect) => {
                    fault.get_or_insert((0, defect));
                    continue;
                }
            };
            for (next, output) in successors {
                match self.compare(world, step, &next, output.as_ref(), response) {
                    Ok(()) if fitting.contains(&next) => {}
                    Ok(()) => fitting.push(next),
                    // The state that comes closest tells best what is wrong.
                    Err((closeness, defect)) if fault.as_ref().is_none_or(|(best, _)| *best < closeness) => {
                        fault = Some((closeness, defect));
                    }
                    Err(_) => {}
                }
            }
        }
        if fitting.is_empty() {
            let unknown = || Defect::new(Class::WrongOutput, "no state of the session fits".to_owned());
            return Err(fault.map_or_else(unknown, |(_, defect)| defect));
        }
        self.worlds = fitting;
        match step.disturbance {
            Some(Disturbance::Kill(signal, _) | Disturbance::KillBefore(signal))
                if response.state == State::Kept =>
            {
                self.late_signal = Some(signal)
            }
            Some(Disturbance::KillNew(_)) => self.late_signal = Some(libc::SIGKILL),
            // A load that is refused does not look at the interpreter.
            _ if step.operation() == Some("load") && response.state == State::Kept => {}
            _ if step.operation().is_some() => self.late_signal = None,
            _ => {}
        }
        if step.operation() == Some("save") && response.outcome == Outcome::Ok {
            let has_directory = step.is_with_directory();
            let (worlds, executed, worker) = (self.worlds.clone(), self.executed, self.workers);
            self.saved = Some(Saved { worlds, executed, has_directory, worker });
        }
        if step.operation() == Some("execute") || step.is_of_saved_session() {
            let is_sent = matches!(step.disturbance, Some(Disturbance::Interrupt(_)));
            self.late_interrupt_calls = match response.outcome {
                Outcome::Interrupted => 0,
                _ if is_sent => LATE_CALLS,
                _ => self.late_interrupt_calls.saturating_sub(1),
            };
        }
        match response.state {
            State::Kept => {}
            State::Restored => self.was_restored = true,
            State::Reset => self.was_restored = false,
        }
        Ok(())
    }

    /// The response as it was before the worker added to what a model sees: the hint of a lost state, the contents of a file.
    fn without_hint(&self, step: &Step, response: &Response) -> Result<Response, Defect> {
        let mut response = response.clone();
        if step.is_of_saved_session() && response.outcome == Outcome::Ok {
            self.check_told(&response.result.take().unwrap_or_default())?;
        }
        if step.operation() != Some("execute") {
            return Ok(response);
        }
        let hint = response.hint.clone().unwrap_or_default();
        let is_shown = match (self.language, response.state) {
            (Language::Bash, State::Reset) => {
                let shown = format!("{hint}\n");
                let before = response.stdout.strip_suffix(&shown).map(str::to_owned);
                before.map(|before| response.stdout = before).is_some()
            }
            (Language::Python, State::Restored | State::Reset) => {
                let is_shown = response.result.as_deref().unwrap_or_default().starts_with(&hint);
                response.hide_hint();
                is_shown
            }
            (Language::Bash, State::Kept | State::Restored) | (Language::Python, State::Kept) => true,
        };
        let silent = || Defect::new(Class::SilentLoss, format!("a model does not see the hint {hint:?}"));
        if is_shown { Ok(response) } else { Err(silent()) }
    }

    /// The checks that are the same for every response.
    fn check_form(&self, step: &Step, response: &Response) -> Result<(), Defect> {
        let damaged = |what: String| Err(Defect::new(Class::Damaged, what));
        if response.status != response.outcome.status() {
            return damaged(format!("status {:?} with outcome {:?}", response.status, response.outcome));
        }
        if response.execution_count != self.executed {
            return damaged(format!(
                "execution_count is {}, not {}",
                response.execution_count, self.executed
            ));
        }
        let text = format!("{}{}", response.stdout, response.result.as_deref().unwrap_or_default());
        if text.contains("__rlm") {
            return Err(Defect::new(Class::WrongOutput, "the output shows the driver".to_owned()));
        }
        let is_lost = response.state != State::Kept && !matches!(step.operation(), Some("reset" | "load"));
        if (is_lost || response.outcome == Outcome::TimedOut)
            && response.hint.as_deref().unwrap_or_default().is_empty()
        {
            return Err(Defect::new(Class::SilentLoss, format!("no hint with {:?}", ending(response))));
        }
        if let Some(fault) = &step.fault {
            let hint = response.hint.as_deref().unwrap_or_default();
            if !hint.contains(fault) {
                return Err(Defect::new(
                    Class::WrongEnding,
                    format!("the hint {hint:?} does not say {fault:?}"),
                ));
            }
        }
        Ok(())
    }

    fn check_info(&self, response: &Response) -> Result<(), Defect> {
        let text = response.result.as_deref().unwrap_or_default();
        let info: Info = serde_json::from_str(text)
            .map_err(|error| Defect::new(Class::Damaged, format!("info {text:?}: {error}")))?;
        if info.calls != self.executed {
            return Err(Defect::new(Class::WrongOutput, format!("info: {} calls", info.calls)));
        }
        if !self.worlds.iter().any(|world| world.answer.ready == info.answer_ready) {
            return Err(Defect::new(Class::WrongAnswer, format!("info: answer_ready {}", info.answer_ready)));
        }
        Ok(())
    }

    /// Checks what a save or a load tells: no value of a call may be left out.
    fn check_told(&self, result: &str) -> Result<(), Defect> {
        let told: Contents = serde_json::from_str(result)
            .map_err(|error| Defect::new(Class::Damaged, format!("result {result:?}: {error}")))?;
        match told.left_out.iter().find(|(name, _)| self.worlds.iter().any(|world| world.has(name))) {
            Some(lost) => Err(Defect::new(Class::BrokenPromise, format!("left out: {lost:?}"))),
            None => Ok(()),
        }
    }

    /// The states after a response with this ending, with the output where it is known.
    fn successors(
        &self,
        world: &World,
        step: &Step,
        response: &Response,
    ) -> Result<Vec<(World, Option<Output>)>, Defect> {
        let (outcome, state) = (response.outcome, response.state);
        if step.operation() == Some("reset") {
            let fresh = World::new(self.language);
            return self.allow(step, response, &step.endings.clone()).map(|()| vec![(fresh, None)]);
        }
        if step.operation() == Some("load") && outcome == Outcome::Ok {
            self.allow(step, response, &self.endings(world, step))?;
            return Ok(self.loaded(response)?.into_iter().map(|world| (world, None)).collect());
        }
        let is_signalled = self.signals(step).next().is_some();
        // An ending that a signal may have caused says nothing about how much of the code has run.
        let has_ended = matches!(outcome, Outcome::Exited | Outcome::Crashed);
        let planned = step.endings.iter().any(|ending| (ending.outcome, ending.state) == (outcome, state))
            && !(has_ended && is_signalled);
        self.allow(step, response, &self.endings(world, step))?;
        let is_stopped = matches!(outcome, Outcome::TimedOut | Outcome::Interrupted);
        let exact = |base: &World| {
            let (next, output) = base.after(&step.effects);
            let is_known = !step.is_output_free && !is_stopped && !base.is_broken;
            (next, is_known.then_some(output))
        };
        let begun = || {
            let states = (0..=step.effects.len()).map(|count| world.after(&step.effects[..count]).0);
            states.map(|state| if is_stopped || is_signalled { state.stopped(&step.effects) } else { state })
        };
        Ok(match state {
            State::Kept if outcome == Outcome::Error && !planned && !world.is_broken => {
                vec![(world.clone(), None)]
            }
            State::Kept if is_stopped || world.is_broken || !planned => {
                begun().map(|next| (next, None)).collect()
            }
            State::Kept => vec![exact(world)],
            State::Restored
                if has_ended && planned && !(world.is_strict && (step.fails || world.has_stopped_job)) =>
            {
                let (next, output) = exact(world);
                let (mut restored, said) = next.restored();
                if step.effects.iter().any(|effect| matches!(effect, Effect::AtExit(_))) {
                    // The trap replaces the one by which the driver hands the state on.
                    restored = world.restored().0;
                }
                let output = output.map(|output| Output { stdout: output.stdout + &said, ..output });
                vec![(restored, output)]
            }
            State::Restored if has_ended || is_stopped => {
                begun().map(|next| (next.restored().0, None)).collect()
            }
            State::Restored => vec![self.after_loss(&world.restored().0, step)],
            State::Reset if has_ended && planned => vec![(world.lost(), exact(world).1)],
            // A call that was stopped, or has ended its interpreter, may have begun in a new one.
            State::Reset if is_signalled && (is_stopped || has_ended) => {
                let lost = world.lost();
                let begun = (0..=step.effects.len()).map(|count| lost.after(&step.effects[..count]).0);
                let states = begun.map(|state| if has_ended { state.restored().0 } else { state });
                states.chain([lost.clone()]).map(|state| (state.stopped(&step.effects), None)).collect()
            }
            State::Reset if has_ended || is_stopped => vec![(world.lost().stopped(&step.effects), None)],
            State::Reset => vec![self.after_loss(&world.lost(), step)],
        })
    }

    /// The states after a load.
    fn loaded(&self, response: &Response) -> Result<Vec<World>, Defect> {
        let Some(Saved { worlds, has_directory, worker, .. }) = &self.saved else { return Ok(Vec::new()) };
        let has_dir = !response.hint.as_deref().unwrap_or_default().contains("is not here");
        let is_promised = *has_directory || *worker == self.workers || worlds.iter().all(World::is_at_home);
        if is_promised && !has_dir {
            let what = format!("the working directory: {:?}", response.hint);
            return Err(Defect::new(Class::BrokenPromise, what));
        }
        Ok(worlds.iter().map(|world| world.loaded(has_dir)).collect())
    }

    /// The call ran in a new interpreter. Its output may follow that of the old one's end.
    fn after_loss(&self, base: &World, step: &Step) -> (World, Option<Output>) {
        (base.after(&step.effects).0, None)
    }

    fn allow(&self, step: &Step, response: &Response, endings: &[Ending]) -> Result<(), Defect> {
        let is_of =
            |allowed: &&Ending| (allowed.outcome, allowed.state) == (response.outcome, response.state);
        let mut matching = endings.iter().filter(is_of).peekable();
        if matching.peek().is_none() {
            let worst = endings.iter().map(|ending| ending.state).max().unwrap_or(State::Kept);
            let class = if response.state > worst { Class::BrokenPromise } else { Class::WrongEnding };
            let pairs: Vec<_> = endings.iter().map(|ending| (ending.outcome, ending.state)).collect();
            return Err(Defect::new(class, format!("{:?}, expected one of {pairs:?}", ending(response))));
        }
        let fits = |ending: &Ending| ending.exit_code.is_none_or(|code| response.exit_code == Some(code));
        if !matching.any(fits) {
            let what = format!("exit code {:?}, expected of {:?}", response.exit_code, step.endings);
            return Err(Defect::new(Class::WrongEnding, what));
        }
        if response.outcome == Outcome::Error && step.exception.is_some() {
            let found = response.exception.as_ref().map(|exception| exception.kind.as_str());
            let is_planned =
                response.outcome == step.endings[0].outcome && found == step.exception.as_deref();
            if !is_planned && !self.worlds.iter().any(|world| world.is_broken) {
                let what = format!("exception {found:?}, expected {:?}", step.exception);
                return Err(Defect::new(Class::WrongEnding, what));
            }
        }
        Ok(())
    }

    /// All endings that are allowed in this state: the step's own, and those that its surroundings add.
    fn endings(&self, world: &World, step: &Step) -> Vec<Ending> {
        let mut endings = step.endings.clone();
        let ended = match self.language {
            Language::Bash => Outcome::Exited,
            Language::Python => Outcome::Crashed,
        };
        if step.operation() == Some("load") {
            let is_for_others =
                self.saved.as_ref().is_some_and(|saved| saved.has_directory && !step.starts_worker);
            if self.saved.is_none() {
                endings.clear();
            }
            if self.saved.is_none() || is_for_others || world.is_broken {
                endings.push(Ending::new(Outcome::Error, State::Kept));
            }
        }
        let mut add = |outcome, state| endings.push(Ending { outcome, state, exit_code: None });
        let is_short = step.timeout().is_some_and(|limit| limit < SHORT);
        let may_be_interrupted =
            self.late_interrupt_calls > 0 || matches!(step.disturbance, Some(Disturbance::Interrupt(_)));
        let stops = [(is_short, Outcome::TimedOut), (may_be_interrupted, Outcome::Interrupted)];
        if step.operation() == Some("execute") {
            // `set -e` may end the shell; a program that a stop ends has failed, too.
            let at_failure = (world.is_strict && step.fails).then_some(State::Restored);
            let at_stop = world.is_strict.then_some(State::Restored);
            // A stop that comes right before the EXIT trap keeps bash from running it: docs/bash-session.md.
            let has_exit = at_failure.is_some() || step.endings.iter().any(|ending| ending.outcome == ended);
            let without_trap = (self.language == Language::Bash && has_exit).then_some(State::Reset);
            // A stop that meets the shell in the middle of `name=(...)` ends it, too.
            let reads_array =
                self.language == Language::Bash && step.code().is_some_and(|code| code.contains("=("));
            let in_array = reads_array.then_some(State::Restored);
            let own = step.endings.iter().map(|ending| ending.state);
            let planned = own.chain([State::Kept]).chain(at_stop).chain(without_trap).chain(in_array);
            for (may_stop, outcome) in stops {
                planned.clone().filter(|_| may_stop).for_each(|state| add(outcome, state));
            }
            if let Some(state) = at_failure {
                add(Outcome::Exited, state);
            }
            if world.is_broken {
                add(Outcome::Error, State::Kept);
                add(Outcome::Ok, State::Kept);
            }
            let may_have_job = world.has_stopped_job || world.was_stopped;
            if may_have_job && step.endings.iter().any(|ending| ending.outcome == Outcome::Exited) {
                add(Outcome::Ok, State::Kept);
                if world.is_strict {
                    // `exit` is refused, and fails.
                    add(Outcome::Exited, State::Restored);
                }
            }
        }
        if step.is_of_saved_session() {
            stops
                .iter()
                .filter(|(may_stop, _)| *may_stop)
                .for_each(|(_, outcome)| add(*outcome, State::Kept));
            if world.is_broken || self.signals(step).next().is_some() {
                add(Outcome::Error, State::Kept);
            }
        }
        for signal in self.signals(step) {
            // A program that has taken the shell's place dies of any signal, and so may a shell that has handed its state on.
            let own = step.endings.iter().filter(|ending| ending.outcome == ended);
            endings.extend(own.map(|ending| Ending { exit_code: None, ..*ending }));
            let left = match (self.language, signal) {
                (Language::Bash, libc::SIGHUP) => State::Restored,
                // An interactive shell ignores it.
                (Language::Bash, libc::SIGTERM) => continue,
                _ => State::Reset,
            };
            for ending in endings.clone() {
                // The interpreter was replaced before the call.
                endings.push(Ending { state: left.max(ending.state), ..ending });
            }
            endings.push(Ending { outcome: ended, state: left, exit_code: None });
            // A stop or a second end that comes right before the EXIT trap keeps bash from running it.
            let ends = step.endings.iter().any(|ending| ending.outcome == ended);
            for (_, outcome) in stops.into_iter().chain([(ends, ended)]).filter(|(may, _)| *may) {
                endings.push(Ending { outcome, state: State::Reset, exit_code: None });
            }
            if self.language == Language::Bash && step.mentions_traps() {
                // The state from before the call.
                endings.push(Ending { outcome: ended, state: State::Restored, exit_code: None });
            }
        }
        endings
    }

    /// The signals that the interpreter may get in this call, or got since the last one.
    fn signals(&self, step: &Step) -> impl Iterator<Item = i32> {
        let own = match step.disturbance {
            Some(Disturbance::KillBefore(signal) | Disturbance::Kill(signal, _)) => Some(signal),
            Some(Disturbance::KillNew(_)) => Some(libc::SIGKILL),
            _ => None,
        };
        self.late_signal.into_iter().chain(own)
    }

    /// Tells by a number how close a state is that does not fit.
    fn compare(
        &self,
        world: &World,
        step: &Step,
        next: &World,
        output: Option<&Output>,
        response: &Response,
    ) -> Result<(), (u8, Defect)> {
        if next.answer != response.answer {
            let what = format!("answer {}, expected {}", cut(&response.answer), cut(&next.answer));
            return Err((1, Defect::new(Class::WrongAnswer, what)));
        }
        let Some(output) = output else { return Ok(()) };
        let streams =
            [("stdout", &output.stdout, &response.stdout), ("stderr", &output.stderr, &response.stderr)];
        for (name, expected, found) in streams {
            let is_cut = step.max_output().is_some_and(|limit| expected.len() > limit);
            let fits = match (is_cut, step.exception.is_some() && name == "stderr") {
                (true, _) => {
                    response.truncated.is_some() && (next.has_more_output() || is_excerpt(expected, found))
                }
                (false, true) => true,
                (false, false) => {
                    // The hint of a lost state begins on a line of its own.
                    let on_own_line = found.strip_suffix('\n').filter(|_| response.state == State::Reset);
                    [Some(found.as_str()), on_own_line]
                        .into_iter()
                        .flatten()
                        .any(|found| world.fits(expected, found) || next.fits(expected, found))
                }
            };
            if !fits {
                let what = format!("{name} {}, expected {}", cut(found), cut(expected));
                return Err((2, Defect::new(self.class(expected, found), what)));
            }
        }
        if step.exception.is_none() && output.result != response.result {
            let what = format!("result {:?}, expected {:?}", response.result, output.result);
            return Err((3, Defect::new(Class::WrongOutput, what)));
        }
        Ok(())
    }

    /// The class of a wrong output: a value that is missing was lost.
    fn class(&self, expected: &str, found: &str) -> Class {
        let is_missing =
            |(expected, found): (&str, &str)| expected != found && found.ends_with(super::world::GONE);
        if !expected.lines().zip(found.lines()).any(is_missing) {
            return Class::WrongOutput;
        }
        if self.was_restored { Class::BrokenPromise } else { Class::SilentLoss }
    }
}

fn ending(response: &Response) -> (Outcome, State) {
    (response.outcome, response.state)
}
