//! Rollouts as a tree in the terminal.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use rlm_core::protocol::{Outcome, State};
use rlm_core::text::{grouped, size};
use rlm_env::trajectory::{ImagePlace, MessageKind};
use unicode_width::UnicodeWidthStr;

use super::facts;
use super::rollouts::{Batch, Call, End, Output, Prompt, Rollout, Rollouts, Start, Step, Thought, Turn};
use crate::text::{Text, without_tabs, word, wrap};

/// Narrowest that text is wrapped to, in columns.
const MIN_WIDTH: usize = 20;

/// Most levels of a tree that are indented.
const MAX_INDENTS: usize = 20;

/// Prompts of a batch that are shown unless all are: this many from its beginning, and as many further ones that failed.
const SHOWN_PROMPTS: usize = 3;

const PLAIN: Style = Style::new();
const HEAD: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();
const CODE: Style = AnsiColor::Cyan.on_default();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const NOTICE: Style = AnsiColor::Yellow.on_default();

/// Width and style of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeStyle {
    /// Columns of the terminal.
    pub(super) width: usize,
    pub(super) has_colours: bool,
    /// True if nothing is left out.
    pub(super) is_full: bool,
}

/// Prints rollouts. Several are first listed, one line each, as a tree. Then rollouts of the lowest depth are printed, and the
/// others only if nothing is to be left out.
pub(super) fn print(rollouts: &Rollouts, look: TreeStyle, output: &mut dyn Write) -> io::Result<()> {
    let mut tree = Tree { look, output };
    if rollouts.list.len() > 1 {
        for node in rollouts.in_tree_order() {
            tree.listed(node.rollout, node.level)?;
        }
        tree.line("", PLAIN, "")?;
    }
    let least = rollouts.list.iter().map(|rollout| rollout.depth).min();
    let whole = rollouts.list.iter().filter(|rollout| look.is_full || Some(rollout.depth) == least);
    for (at, rollout) in whole.enumerate() {
        if at > 0 {
            tree.line("", PLAIN, "")?;
        }
        tree.rollout(rollout)?;
    }
    Ok(())
}

/// Rollouts that are printed as they go on: each turn once the next one has begun, or the rollout has ended.
#[derive(Debug)]
pub(super) struct Following {
    look: TreeStyle,
    /// The parts of each rollout that are printed, by its number.
    printed: Vec<Printed>,
    /// The rollout of the latest line.
    latest: Option<usize>,
}

#[derive(Clone, Debug, Default)]
struct Printed {
    has_head: bool,
    turns: usize,
    has_end: bool,
}

impl Following {
    pub(super) fn new(look: TreeStyle) -> Self {
        Self { look, printed: Vec::new(), latest: None }
    }

    /// Prints the parts that have come since the last call.
    pub(super) fn print(&mut self, rollouts: &Rollouts, output: &mut dyn Write) -> io::Result<()> {
        let mut tree = Tree { look: self.look, output };
        self.printed.resize(rollouts.list.len(), Printed::default());
        for (rollout, printed) in rollouts.list.iter().zip(&mut self.printed) {
            let done = rollout.turns.len() - usize::from(rollout.end.is_none()).min(rollout.turns.len());
            let end = rollout.end.as_ref().filter(|_| !printed.has_end);
            if printed.has_head && printed.turns == done && end.is_none() {
                continue;
            }
            if self.latest.replace(rollout.at) != Some(rollout.at) {
                tree.wrapped("", HEAD, &format!("rollout {}", rollout.id))?;
            }
            if let Some(start) = rollout.start.as_ref().filter(|_| !printed.has_head) {
                tree.started(start)?;
            }
            for turn in &rollout.turns[printed.turns.min(done)..done] {
                tree.turn(turn)?;
            }
            if let Some(end) = end {
                tree.end(end, rollout)?;
            }
            *printed = Printed { has_head: true, turns: done, has_end: rollout.end.is_some() };
        }
        tree.output.flush()
    }
}

struct Tree<'a> {
    look: TreeStyle,
    output: &'a mut dyn Write,
}

impl Tree<'_> {
    fn listed(&mut self, rollout: &Rollout, level: usize) -> io::Result<()> {
        let question =
            rollout.start.as_ref().map_or("", |start| start.question.head.lines().next().unwrap_or(""));
        let answer = rollout.end.as_ref().and_then(|end| end.answer.as_ref()).filter(|_| rollout.depth > 0);
        let answer =
            answer.map_or(String::new(), |answer| format!(" → {}", answer.head.lines().next().unwrap_or("")));
        let line =
            format!("{} · {} · {question}{answer}", rollout.id, facts::of_rollout(rollout).join(" · "));
        let line = without_tabs(&line);
        let guide = "  ".repeat(level.min(MAX_INDENTS));
        self.row(&guide, if facts::has_answer(rollout) { GOOD } else { BAD }, &line)
    }

    fn rollout(&mut self, rollout: &Rollout) -> io::Result<()> {
        self.wrapped(
            "",
            HEAD,
            &format!("rollout {} · {}", rollout.id, facts::of_rollout(rollout).join(" · ")),
        )?;
        if let Some(start) = &rollout.start {
            self.started(start)?;
        }
        if let Some(system) = rollout.system.as_ref().filter(|_| self.look.is_full) {
            self.line("│ ", FAINT, "system prompt:")?;
            self.text("│   ", FAINT, system)?;
        }
        for turn in &rollout.turns {
            self.turn(turn)?;
        }
        match &rollout.end {
            Some(end) => self.end(end, rollout),
            None => self.line("└─ ", NOTICE, "no end: it runs, or its host was killed"),
        }
    }

    fn started(&mut self, start: &Start) -> io::Result<()> {
        self.text("│ ", HEAD, &start.question)?;
        self.wrapped("│ ", FAINT, &facts::of_start(start).join(" · "))
    }

    fn turn(&mut self, turn: &Turn) -> io::Result<()> {
        self.line("│", PLAIN, "")?;
        self.wrapped("├─ ", HEAD, &facts::of_turn(turn).join(" · "))?;
        for step in &turn.steps {
            match step {
                Step::Model(call) => {
                    for sentence in &call.adapted {
                        self.wrapped("│  ", NOTICE, &facts::of_adapted(sentence))?;
                    }
                    self.text("│  ", BAD, &call.error)?;
                }
                Step::Image(ImagePlace::File(file, _)) => {
                    self.line("│  ", NOTICE, &format!("image: {}", word(&file.display().to_string())))?;
                }
                Step::Image(ImagePlace::Url(_)) => self.line("│  ", NOTICE, "image")?,
                Step::Thought(thought) => self.thought("│  ", thought)?,
                Step::Message(MessageKind::Reply, text) => self.text("│  ", PLAIN, text)?,
                Step::Message(kind, text) => {
                    self.line("│  ", NOTICE, facts::of_message(*kind))?;
                    self.text("│    ", NOTICE, text)?;
                }
                Step::Retry(error) => {
                    self.line("│  ", BAD, facts::RETRIED)?;
                    self.text("│    ", BAD, error)?;
                }
                Step::Call(call) => self.call(call)?,
                Step::Batch(batch) => self.batch("│  ", batch)?,
            }
        }
        Ok(())
    }

    /// A reasoning: a line, or all of it if nothing is to be left out.
    fn thought(&mut self, guide: &str, thought: &Thought) -> io::Result<()> {
        self.row(guide, FAINT, &thought.line)?;
        if self.look.is_full { self.text(&format!("{guide}  "), FAINT, &thought.text) } else { Ok(()) }
    }

    fn call(&mut self, call: &Call) -> io::Result<()> {
        self.wrapped("│  ", if call.has_failed() { BAD } else { HEAD }, &facts::of_call(call).join(" · "))?;
        self.text("│  ▏ ", CODE, &call.input)?;
        for batch in &call.batches {
            self.batch("│    ", batch)?;
        }
        self.text("│    ", PLAIN, &call.message)?;
        self.text("│    ", BAD, &call.error)?;
        call.output.as_ref().map_or(Ok(()), |output| self.call_output(output))
    }

    fn call_output(&mut self, output: &Output) -> io::Result<()> {
        let has_failed = output.response.outcome == Outcome::Error;
        self.text("│    ", PLAIN, &output.stdout)?;
        self.text("│    ", NOTICE, &output.stderr)?;
        self.text("│    ", if has_failed { BAD } else { PLAIN }, &output.result)?;
        let is_good = output.response.outcome == Outcome::Ok && output.response.state == State::Kept;
        let facts = facts::of_output(output).join(" · ");
        self.wrapped("│    ", if is_good { FAINT } else { BAD }, &facts)?;
        self.text("│    ", NOTICE, &output.hint)?;
        if let Some((answer, is_ready)) = &output.answer {
            self.line("│    ", GOOD, if *is_ready { "answer, final:" } else { "answer, not final:" })?;
            self.text("│      ", GOOD, answer)?;
        }
        Ok(())
    }

    fn batch(&mut self, guide: &str, batch: &Batch) -> io::Result<()> {
        let style = if batch.failed() > 0 { BAD } else { HEAD };
        self.wrapped(guide, style, &facts::of_batch(batch).join(" · "))?;
        let mut failures = 0;
        let is_shown = |(place, prompt): &(usize, (&usize, &Prompt))| {
            if self.look.is_full || *place < SHOWN_PROMPTS {
                return true;
            }
            failures += usize::from(prompt.1.error.is_some());
            prompt.1.error.is_some() && failures <= SHOWN_PROMPTS
        };
        let shown: Vec<_> =
            batch.prompts.iter().enumerate().filter(is_shown).map(|(_, prompt)| prompt).collect();
        let more = batch.prompts.len() - shown.len();
        for (index, prompt) in shown {
            let facts = facts::of_prompt(prompt).join(" · ");
            self.wrapped(&format!("{guide}├─ "), FAINT, &format!("#{index} · {facts}"))?;
            self.text(&format!("{guide}│  ▏ "), CODE, &prompt.prompt)?;
            if let Some(thought) = &prompt.thought {
                self.thought(&format!("{guide}│  "), thought)?;
            }
            self.text(&format!("{guide}│  "), PLAIN, &prompt.reply)?;
            self.text(&format!("{guide}│  "), BAD, &prompt.error)?;
        }
        if more > 0 {
            self.line(&format!("{guide}└─ "), FAINT, &format!("{} more", grouped(more as u64)))?;
        }
        Ok(())
    }

    fn end(&mut self, end: &End, rollout: &Rollout) -> io::Result<()> {
        self.line("│", PLAIN, "")?;
        let style = if facts::has_answer(rollout) { GOOD } else { BAD };
        self.wrapped("└─ ", style.bold(), &facts::of_end(end).join(" · "))?;
        self.text("   ", BAD, &end.error)?;
        self.text("   ", style, &end.answer)?;
        let metrics: Vec<_> = end.metrics.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.wrapped("   ", FAINT, &metrics.join(", "))
    }

    /// Shows a text with wrapped lines, and a line for the part that is left out. Without a text, nothing is shown.
    fn text<'t>(&mut self, guide: &str, style: Style, text: impl Into<Option<&'t Text>>) -> io::Result<()> {
        let Some(text) = text.into().filter(|text| !text.is_empty()) else { return Ok(()) };
        for line in text.head.split('\n') {
            self.wrapped_or_blank(guide, style, line)?;
        }
        let Some(left_out) = text.left_out else { return Ok(()) };
        let size = size(left_out.bytes as u64);
        let what = match left_out.lines {
            0 => size,
            lines => format!("{} lines, {size}", grouped(lines as u64)),
        };
        self.line(guide, FAINT, &format!("… {what} left out (--full shows it)"))?;
        for line in text.tail.split('\n') {
            self.wrapped_or_blank(guide, style, line)?;
        }
        Ok(())
    }

    /// The first row of a line.
    fn row(&mut self, guide: &str, style: Style, line: &str) -> io::Result<()> {
        let rows = wrap(line, self.width(guide).saturating_sub(1));
        let more = if rows.len() > 1 { "…" } else { "" };
        self.line(guide, style, &format!("{}{more}", rows[0].trim_end()))
    }

    /// A line of facts; nothing if it is empty.
    fn wrapped(&mut self, guide: &str, style: Style, line: &str) -> io::Result<()> {
        if line.is_empty() { Ok(()) } else { self.wrapped_or_blank(guide, style, line) }
    }

    /// A line. Further rows of it have the guide without its branch.
    fn wrapped_or_blank(&mut self, guide: &str, style: Style, line: &str) -> io::Result<()> {
        let line = without_tabs(line);
        let rest = guide.replace('├', "│").replace(['└', '─'], " ");
        for (at, row) in wrap(&line, self.width(guide)).into_iter().enumerate() {
            self.line(if at == 0 { guide } else { &rest }, style, row.trim_end())?;
        }
        Ok(())
    }

    fn line(&mut self, guide: &str, style: Style, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return writeln!(self.output, "{}", guide.trim_end());
        }
        if !self.look.has_colours {
            return writeln!(self.output, "{guide}{text}");
        }
        if !guide.is_empty() {
            write!(self.output, "{FAINT}{guide}{FAINT:#}")?;
        }
        writeln!(self.output, "{style}{text}{style:#}")
    }

    fn width(&self, guide: &str) -> usize {
        self.look.width.saturating_sub(guide.width()).max(MIN_WIDTH)
    }
}
