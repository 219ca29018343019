//! A state that a session may be in, and what calls make of it.

use std::collections::BTreeMap;

use rlm_core::protocol::Answer;

use super::frame::Language;
use super::step::Effect;

/// One possible state of a session. A call that was stopped leaves several, and later calls tell which it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct World {
    language: Language,
    values: BTreeMap<String, String>,
    pub(crate) answer: Answer,
    /// Working directory, relative to the session's.
    dir: String,
    /// Prints go elsewhere.
    is_muted: bool,
    /// Bash: `set -x`.
    is_traced: bool,
    /// Bash: `set -e`.
    pub(crate) is_strict: bool,
    /// Bash: the output of the EXIT trap.
    at_exit: Option<String>,
    /// Background programs print at any time.
    is_noisy: bool,
    /// Bash: there is a stopped job.
    pub(crate) has_stopped_job: bool,
    /// A call was stopped. In bash, a program that reads the terminal, and that the stop met before it was in the foreground, is
    /// a stopped job.
    pub(crate) was_stopped: bool,
    /// Python: builtins are broken.
    pub(crate) is_broken: bool,
    /// Output of the last call that was stopped. Its programs may live on and print it in a later call.
    late: Vec<String>,
    /// Bash: outputs of EXIT traps that forks may still have: of a shell that is gone, a fork that has not begun its program;
    /// of any, a job that was stopped before it had begun. It ends with the shell.
    left_traps: Vec<String>,
}

/// The output of a call. A name without a value prints [`GONE`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) result: Option<String>,
}

/// A message of bash's parser, and what an interrupt in the middle of `$(…)` makes of it in later calls.
const END: &str = "syntax error: unexpected end of file";
const WRONG_END: &str = "unexpected EOF while looking for matching `)'";

/// The text for a name without a value.
pub(crate) const GONE: &str = "gone";

impl World {
    /// The state of a new session.
    pub(crate) fn new(language: Language) -> Self {
        Self {
            language,
            values: BTreeMap::new(),
            answer: Answer::default(),
            dir: String::new(),
            is_muted: false,
            is_traced: false,
            is_strict: false,
            at_exit: None,
            is_noisy: false,
            has_stopped_job: false,
            was_stopped: false,
            is_broken: false,
            late: Vec::new(),
            left_traps: Vec::new(),
        }
    }

    /// The state after these effects, and their output.
    pub(crate) fn after(&self, effects: &[Effect]) -> (Self, Output) {
        let (mut world, mut output) = (self.clone(), Output::default());
        for effect in effects {
            world.apply(effect, &mut output);
        }
        (world, output)
    }

    fn apply(&mut self, effect: &Effect, output: &mut Output) {
        match effect {
            Effect::Set(name, value) => {
                self.values.insert(name.clone(), value.clone());
            }
            Effect::Append(name, text) => self.values.entry(name.clone()).or_default().push_str(text),
            Effect::Unset(name) => {
                self.values.remove(name);
            }
            Effect::Show(name) => {
                let shown = self.shown(name);
                self.print(output, &shown);
            }
            Effect::ShowDir => self.print(output, &format!("{}\n", self.dir)),
            Effect::Print(text) => self.print(output, text),
            Effect::Complain(text) => match self.language {
                Language::Bash => output.stdout.push_str(text),
                Language::Python => output.stderr.push_str(text),
            },
            Effect::Fill(text, count) => self.print(output, &text.repeat(*count)),
            Effect::Result(text) => output.result = Some(text.clone()),
            Effect::Content(text) => self.answer.content.clone_from(text),
            Effect::Ready(is_ready) => self.answer.ready = *is_ready,
            Effect::Dir(dir) => self.dir.clone_from(dir),
            Effect::Mute(is_muted) => self.is_muted = *is_muted,
            Effect::Trace(is_traced) => self.is_traced = *is_traced,
            Effect::Strict(is_strict) => self.is_strict = *is_strict,
            Effect::AtExit(text) => self.at_exit = Some(text.clone()),
            Effect::Noisy => self.is_noisy = true,
            Effect::Stopped => {
                self.has_stopped_job = true;
                self.left_traps.extend(self.at_exit.clone());
            }
            Effect::Broken(is_broken) => self.is_broken = *is_broken,
        }
    }

    /// The line that shows the value of a name.
    fn shown(&self, name: &str) -> String {
        format!("{}\n", self.values.get(name).map_or(GONE, String::as_str))
    }

    fn print(&self, output: &mut Output, text: &str) {
        if !self.is_muted {
            output.stdout.push_str(text);
        }
    }

    /// The state after a call with these effects was stopped.
    pub(crate) fn stopped(mut self, effects: &[Effect]) -> Self {
        let text = |effect: &Effect| match effect {
            Effect::Print(text) | Effect::Complain(text) => Some(text.clone()),
            Effect::Show(name) => Some(self.shown(name)),
            _ => None,
        };
        self.late = effects.iter().filter_map(text).collect();
        self.was_stopped = true;
        self
    }

    /// The state of a new shell that has what the old one could save, and what the old one printed at its end.
    pub(crate) fn restored(&self) -> (Self, String) {
        let mut world = self.lost();
        world.values = self.values.clone();
        world.values.retain(|name, _| !name.starts_with('!'));
        // The trap has the shell's output, wherever that goes.
        let said = self.at_exit.clone().filter(|_| !self.is_muted).unwrap_or_default();
        // `set -x` is among the options that are restored.
        world.is_traced = self.is_traced;
        (world, said)
    }

    /// The state of an interpreter that goes on with this one in another process, in the same working directory or at its session's
    /// own. Not carried over are background programs, descriptors and, in Python, signal handlers.
    pub(crate) fn loaded(&self, has_dir: bool) -> Self {
        let mut world = Self::new(self.language);
        world.values = self.values.clone();
        world.values.retain(|name, _| {
            !name.starts_with('!') || (self.language, &**name) == (Language::Bash, "!usr1")
        });
        world.answer = self.answer.clone();
        if has_dir {
            world.dir.clone_from(&self.dir);
        }
        (world.is_traced, world.is_strict) = (self.is_traced, self.is_strict);
        world.at_exit.clone_from(&self.at_exit);
        world
    }

    /// True if the name has a value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// True if the working directory is the session's own.
    pub(crate) fn is_at_home(&self) -> bool {
        self.dir.is_empty()
    }

    /// The state of a new interpreter that has nothing but the answer and, for bash, the working directory.
    pub(crate) fn lost(&self) -> Self {
        let dir = match self.language {
            Language::Bash => self.dir.clone(),
            Language::Python => String::new(),
        };
        // Programs in the background may go on.
        Self {
            answer: self.answer.clone(),
            dir,
            late: self.late.clone(),
            left_traps: self.left_traps.iter().chain(&self.at_exit).cloned().collect(),
            is_noisy: self.is_noisy,
            ..Self::new(self.language)
        }
    }

    /// True if what comes with the output of a call cannot be told in advance.
    pub(crate) fn has_more_output(&self) -> bool {
        self.is_noisy || self.is_traced
    }

    /// True if the output of a call fits what is expected of it in this state.
    pub(crate) fn fits(&self, expected: &str, found: &str) -> bool {
        if expected == found || self.fits_without_late(expected, found) {
            return true;
        }
        let mut found = if self.was_stopped { found.replace(WRONG_END, END) } else { found.to_owned() };
        if !self.left_traps.is_empty() {
            // Such a fork may have `set -x`.
            found = found.split_inclusive('\n').filter(|line| !line.starts_with('+')).collect();
        }
        for late in self.late.iter().chain(&self.left_traps) {
            if found.matches(late).count() > expected.matches(late).count() {
                found = found.replacen(late, "", 1);
            }
        }
        self.fits_without_late(expected, &found)
    }

    /// True if the output fits, in case none of it belongs to an earlier call.
    fn fits_without_late(&self, expected: &str, found: &str) -> bool {
        let (mut expected, mut found) = (expected.to_owned(), found.to_owned());
        for text in [&mut expected, &mut found] {
            if self.is_noisy {
                *text = without_noise(text);
            }
            if self.has_stopped_job {
                // The empty line before such a job may come in the call before.
                *text = text.split_inclusive('\n').filter(|line| *line != "\n").collect();
            }
        }
        if !self.is_traced {
            return expected == found;
        }
        // Between the lines are those of the trace.
        let mut rest = found.as_str();
        expected.lines().all(|line| match rest.find(line) {
            Some(at) => {
                rest = &rest[at + line.len()..];
                true
            }
            None => false,
        })
    }
}

/// The text without lines of background programs, `~bg…~`, and without those of bash about its jobs: `[1] 123`,
/// `[1]+  Done  …`, `(wd now: …)`, an empty line before a job that is stopped, and the traces of programs that began
/// under `set -x`. No other text of a soak has a number
/// in brackets.
fn without_noise(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(at) = rest.find(['~', '[', '(', '+', 'b']) {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let line = rest.lines().next().unwrap_or_default();
        let is_job = line[1..].split_once(']').is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let length = match rest.find('\n') {
            Some(end)
                if is_job
                    || ["~bg", "(wd now: ", "+++ ", "++++ ", "bash: warning: deleting stopped job "]
                        .iter()
                        .any(|noise| line.starts_with(noise)) =>
            {
                end + 1
            }
            _ => 1,
        };
        if length > 1 && is_job && line.contains("Stopped") && kept.ends_with('\n') {
            kept.pop();
        }
        if length == 1 {
            kept.push_str(&rest[..1]);
        }
        rest = &rest[length..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_of_background_programs_is_no_output_of_a_call() {
        let text =
            "[1] 4711\na\n~bg3~\n\n[3]+  Stopped   x\n[2]-  Done   sleep 1  (wd: ~)\n(wd now: ~/x)\nb[x]~";
        assert_eq!(without_noise(text), "a\nb[x]~");
    }
}
