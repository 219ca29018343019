//! Progress of rollouts, on standard error if that is a terminal.

use std::collections::VecDeque;
use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rlm_core::text::{counted, grouped};
use rlm_env::rollout::LeftOut;
use rlm_env::trajectory::{Entry, Event, ModelRetry, OutputPiece, Sink};
use rlm_env::{ReplLanguage, StopReason};

use super::is_failure;
use crate::arguments::{ProgressLevel, RunOptions};
use crate::display::Display;
use crate::environment::Environment;
use crate::live::latest_line;
use crate::lock::lock;
use crate::text::one_line;
use crate::tokens::TokenParts;
use crate::warnings::Warnings;

/// Lines of the running code that are shown.
const CODE_LINES: usize = 3;

/// Characters of each.
const CODE_WIDTH: usize = 76;

/// Waits that are longer are said without a terminal, too.
const LONG_WAIT_SECONDS: f64 = 60.0;

/// Interval at which the clock is redrawn.
const TICK: Duration = Duration::from_millis(200);

/// Counts of turns, calls, tokens and cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) turns: u64,
    pub(crate) calls: u64,
    pub(crate) sub_calls: u64,
    /// Rollouts that code has started.
    pub(crate) children: u64,
    pub(crate) tokens: u64,
    /// The cached ones, those of reasoning and so on.
    pub(crate) parts: TokenParts,
    /// Cost in USD of the calls whose price is known.
    cost_usd: f64,
    /// A model whose price is not known.
    unpriced: Option<String>,
    /// The files that the context of the latest rollout leaves out.
    pub(crate) left_out: Vec<LeftOut>,
}

impl Tally {
    pub(crate) fn count(&mut self, entry: &Entry) {
        let is_child = entry.depth > 0;
        match &entry.event {
            Event::RolloutStarted(_) if is_child => self.children += 1,
            Event::RolloutStarted(started) => self.left_out.clone_from(&started.context_left_out),
            Event::ModelCall(call) => {
                self.turns += u64::from(call.error.is_none() && !call.is_summary && !is_child);
                self.add(
                    &call.model,
                    [call.prompt_tokens, call.completion_tokens],
                    call.into(),
                    call.cost_usd,
                );
            }
            Event::SubCall(call) => {
                self.sub_calls += 1;
                self.add(
                    &call.model,
                    [call.prompt_tokens, call.completion_tokens],
                    call.into(),
                    call.cost_usd,
                );
            }
            Event::CallEnded(_) => self.calls += u64::from(!is_child),
            _ => {}
        }
    }

    fn add(&mut self, model: &str, [prompt, completion]: [u64; 2], parts: TokenParts, cost_usd: Option<f64>) {
        let tokens = prompt.saturating_add(completion);
        self.tokens = self.tokens.saturating_add(tokens);
        self.parts.add(parts);
        match cost_usd {
            Some(cost_usd) => self.cost_usd += cost_usd,
            None if tokens > 0 => _ = self.unpriced.get_or_insert_with(|| model.to_owned()),
            None => {}
        }
    }

    /// The cost in USD, if all prices are known.
    pub(crate) fn cost_usd(&self) -> Option<f64> {
        self.unpriced.is_none().then_some(self.cost_usd)
    }

    /// All counts in words.
    pub(crate) fn words(&self) -> String {
        format!("{} · {}", counted(self.turns, "turn"), self.of_models(TokenParts::default()))
    }

    /// All counts in words, at the end.
    pub(crate) fn summary(&self) -> String {
        let unpriced = self.unpriced.as_ref().map(|model| format!(" · no price of {model}"));
        let counts = self.of_models(self.parts);
        format!("{} · {counts}{}", counted(self.turns, "turn"), unpriced.unwrap_or_default())
    }

    /// All counts but that of turns, with these parts of the tokens.
    fn of_models(&self, parts: TokenParts) -> String {
        let cost = self.cost_usd().filter(|cost| *cost > 0.0).map(|cost| format!(" · {}", money(cost)));
        let children = match self.children {
            0 => String::new(),
            1 => "1 child · ".to_owned(),
            count => format!("{} children · ", grouped(count)),
        };
        format!(
            "{} · {children}{} · {}{}{}",
            counted(self.calls, "call"),
            counted(self.sub_calls, "sub-call"),
            counted(self.tokens, "token"),
            parts.of_all(),
            cost.unwrap_or_default()
        )
    }
}

/// An amount in USD.
pub(crate) fn money(usd: f64) -> String {
    if usd < 1.0 { format!("${usd:.4}") } else { format!("${usd:.2}") }
}

/// How much is to be shown: of lines that are redrawn, nothing without a terminal that can do it.
pub(crate) fn level(options: &RunOptions, environment: &Environment) -> ProgressLevel {
    let given = if options.quiet { Some(ProgressLevel::None) } else { options.progress };
    match given {
        Some(ProgressLevel::Full) => ProgressLevel::Full,
        _ if !can_draw(environment) => ProgressLevel::None,
        given => given.unwrap_or(ProgressLevel::Full),
    }
}

/// Reports whether standard error is a terminal that can show a bar.
pub(crate) fn can_draw(environment: &Environment) -> bool {
    std::io::stderr().is_terminal() && !environment.is_dumb()
}

fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template(template).expect("the template is one"));
    bar.enable_steady_tick(TICK);
    bar
}

/// Shows one rollout: its counts, and the code that runs.
pub(crate) struct Progress {
    bar: ProgressBar,
    max_turns: u32,
    state: Mutex<State>,
    /// Shows everything above the bar.
    display: Option<Display>,
}

#[derive(Debug, Default)]
struct State {
    tally: Tally,
    doing: String,
    code: Vec<String>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("max_turns", &self.max_turns).finish_non_exhaustive()
    }
}

impl Progress {
    /// A display of progress; None if nothing is to be shown.
    pub(crate) fn new(
        level: ProgressLevel,
        max_turns: u32,
        language: ReplLanguage,
        environment: &Environment,
        warnings: &Warnings,
    ) -> Option<Self> {
        if level == ProgressLevel::None {
            return None;
        }
        let bar = match can_draw(environment) {
            true => bar(None, "{spinner} {elapsed} · {prefix}\n{msg}"),
            false => ProgressBar::hidden(),
        };
        bar.set_prefix("preparing");
        warnings.print_above(&bar);
        let display = (level == ProgressLevel::Full).then(|| {
            let has_colours = can_draw(environment) && !environment.wants_no_colour();
            let width = terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| width.0.into());
            let above = bar.clone();
            // Lost lines change nothing else.
            Display::new(has_colours, language, width, move |line| {
                above.suspend(|| _ = writeln!(std::io::stderr(), "{line}"));
            })
        });
        Some(Self { bar, max_turns, state: Mutex::default(), display })
    }

    /// The outcome of the rollout, in one line.
    pub(crate) fn summary(&self, time: Duration) -> String {
        format!("{} · {:.1} s", lock(&self.state).tally.summary(), time.as_secs_f64())
    }

    /// Says something above the bar.
    pub(crate) fn say(&self, message: &str) {
        self.bar.suspend(|| crate::tell(format_args!("rlm: {message}")));
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Draws it again.
    pub(crate) fn go_on(&self) {
        self.bar.reset();
    }
}

impl Sink for Progress {
    fn entry(&self, entry: &Entry) {
        let mut state = lock(&self.state);
        state.take(entry);
        self.bar.set_prefix(format!(
            "turn {} of {} · {} · {}",
            state.tally.turns,
            self.max_turns,
            state.tally.of_models(TokenParts::default()),
            state.doing
        ));
        match &self.display {
            Some(display) => display.entry(entry),
            None => self.bar.set_message(state.code.join("\n")),
        }
        if self.display.is_some() && entry.depth == 0 && matches!(entry.event, Event::CallEnded(_)) {
            self.bar.set_message("");
        }
    }

    fn wants_output(&self) -> bool {
        self.display.is_some()
    }

    /// The latest line is below the bar, as long as the call runs.
    fn output(&self, piece: &OutputPiece<'_>) {
        let Some(display) = &self.display else { return };
        display.output(piece);
        if let Some(line) = latest_line(piece.text) {
            self.bar.set_message(format!("  {}", fitted(line)));
        }
    }
}

impl State {
    fn take(&mut self, entry: &Entry) {
        self.tally.count(entry);
        match &entry.event {
            _ if entry.depth > 0 => {}
            Event::CallStarted(call) => {
                "running".clone_into(&mut self.doing);
                self.code = call.code.as_deref().map(last_lines).unwrap_or_default();
            }
            Event::ModelRetry(retry) => self.doing = retry_words(retry),
            Event::RolloutEnded(_) => "ending".clone_into(&mut self.doing),
            Event::RolloutStarted(_) | Event::CallEnded(_) => {
                "waiting for the model".clone_into(&mut self.doing);
            }
            _ => {}
        }
    }
}

/// Says where a rollout waits for the model's server for long: nothing else shows that without a terminal.
#[derive(Debug)]
pub(crate) struct WaitNotices(pub(crate) Warnings);

impl Sink for WaitNotices {
    fn entry(&self, entry: &Entry) {
        if let Event::ModelRetry(retry) = &entry.event
            && retry.wait_seconds > LONG_WAIT_SECONDS
        {
            self.0.say(format_args!("rlm: {}; asking again in {:.0} s", retry.error, retry.wait_seconds));
        }
    }
}

/// A wait for the model's server.
fn retry_words(retry: &ModelRetry) -> String {
    format!("asking again in {:.1} s: {}", retry.wait_seconds, fitted(&retry.error))
}

/// The last lines of code, cut to the width.
fn last_lines(code: &str) -> Vec<String> {
    let mut lines = VecDeque::new();
    for line in code.lines().filter(|line| !line.trim().is_empty()) {
        lines.push_back(format!("  {}", fitted(line)));
        if lines.len() > CODE_LINES {
            lines.pop_front();
        }
    }
    lines.into()
}

/// A line with its control characters made visible, cut to the width.
fn fitted(line: &str) -> String {
    one_line(line).chars().take(CODE_WIDTH).collect()
}

/// Shows a batch: how many of its rollouts have ended, and counts of all.
#[derive(Debug)]
pub(crate) struct BatchProgress {
    /// The bar; None if nothing is to be drawn.
    bar: Option<ProgressBar>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    tally: Tally,
    answered: u64,
    failed: u64,
    /// Rollouts that ended by a limit, or were stopped.
    unanswered: u64,
}

impl Counts {
    fn count(&mut self, reason: StopReason) {
        *match reason {
            StopReason::Answered => &mut self.answered,
            reason if is_failure(reason) => &mut self.failed,
            _ => &mut self.unanswered,
        } += 1;
    }

    fn words(&self) -> String {
        let some =
            |count: u64, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
        let (failed, unanswered) = (some(self.failed, "failed"), some(self.unanswered, "unanswered"));
        format!("{} answered{failed}{unanswered} · {}", self.answered, self.tally.words())
    }
}

impl BatchProgress {
    /// Draws a bar if given the warnings to print above it.
    pub(crate) fn new(rollouts: usize, draws: Option<&Warnings>) -> Self {
        let length = u64::try_from(rollouts).unwrap_or(u64::MAX);
        let bar = draws.map(|_| {
            bar(Some(length), "{elapsed} [{bar:24}] {pos}/{len}, {per_sec}, {eta} left · {prefix}\n{msg}")
        });
        if let (Some(warnings), Some(bar)) = (draws, &bar) {
            warnings.print_above(bar);
        }
        Self { bar, counts: Mutex::default() }
    }

    /// A rollout has ended, for this reason if it was not aborted.
    pub(crate) fn ended(&self, reason: Option<StopReason>) {
        let mut counts = lock(&self.counts);
        if let Some(reason) = reason {
            counts.count(reason);
        }
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_prefix(counts.words());
        }
    }

    /// Says something above the bar.
    pub(crate) fn say(&self, message: impl fmt::Display) {
        match &self.bar {
            Some(bar) => bar.suspend(|| crate::tell(format_args!("rlm: {message}"))),
            None => crate::tell(format_args!("rlm: {message}")),
        }
    }

    /// Prints while the bar is hidden.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// The counts so far.
    pub(crate) fn tally(&self) -> Tally {
        lock(&self.counts).tally.clone()
    }
}

impl Sink for BatchProgress {
    fn entry(&self, entry: &Entry) {
        let mut counts = lock(&self.counts);
        counts.tally.count(entry);
        if let Some(bar) = &self.bar {
            bar.set_prefix(counts.words());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn model_call(tokens: u64, cost_usd: Option<f64>) -> Entry {
        event(json!({
            "event": "model_call", "turn": 1, "model": "m", "prompt_tokens": tokens, "completion_tokens": 1,
            "is_summary": false, "usage_estimated": false, "cost_usd": cost_usd, "attempts": 1, "seconds": 0.1,
        }))
    }

    fn event(mut json: Value) -> Entry {
        json["rollout"] = "r".into();
        json["time"] = 1.0.into();
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_cost_is_known_while_all_prices_are() {
        let mut tally = Tally::default();
        tally.count(&model_call(999, Some(0.25)));
        assert_eq!((tally.turns, tally.tokens, tally.cost_usd()), (1, 1000, Some(0.25)));
        assert_eq!(tally.of_models(TokenParts::default()), "0 calls · 0 sub-calls · 1,000 tokens · $0.2500");
        tally.count(&model_call(1, None));
        assert_eq!(tally.cost_usd(), None);
        assert_eq!(tally.of_models(TokenParts::default()), "0 calls · 0 sub-calls · 1,002 tokens");
        tally.count(&model_call(u64::MAX, None));
        assert_eq!(tally.tokens, u64::MAX, "a server may say what it likes");
        tally = Tally::default();
        let mut call = model_call(999, Some(0.0));
        let Event::ModelCall(of_call) = &mut call.event else { unreachable!("it is one") };
        (of_call.cached_tokens, of_call.reasoning_tokens) = (900, 1);
        tally.count(&call);
        assert_eq!(tally.words(), "1 turn · 0 calls · 0 sub-calls · 1,000 tokens");
        assert_eq!(
            tally.summary(),
            "1 turn · 0 calls · 0 sub-calls · 1,000 tokens (900 cached, 1 reasoning)"
        );
    }

    #[test]
    fn the_last_lines_of_code_are_shown_and_move_no_cursor() {
        let mut state = State::default();
        let code = format!("a\n\nb\x1b[2J\n\tc\n{}\n", "x".repeat(200));
        state.take(&event(json!({
            "event": "call_started", "turn": 1, "call_id": "c", "tool": "call_bash_repl", "code": code,
        })));
        assert_eq!(state.code, ["  b␛[2J", "   c", &format!("  {}", "x".repeat(76))]);
        assert_eq!(state.doing, "running");
    }

    #[test]
    fn each_rollout_of_a_batch_is_answered_or_failed_or_unanswered() {
        let mut counts = Counts::default();
        assert!(counts.words().starts_with("0 answered · 0 turns"), "{}", counts.words());
        for reason in [
            StopReason::Answered,
            StopReason::ModelFailed,
            StopReason::MaxTurns,
            StopReason::NoToolCall,
            StopReason::Stopped,
        ] {
            counts.count(reason);
        }
        assert!(counts.words().starts_with("1 answered, 1 failed, 3 unanswered · "), "{}", counts.words());
    }

    #[test]
    fn small_amounts_have_more_digits() {
        assert_eq!([0.5, 12.345].map(money), ["$0.5000", "$12.35"]);
    }
}
