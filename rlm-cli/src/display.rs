//! A rollout as it happens, for people.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::lock;
use crate::replies::{Thought, message_words, reply_words};
use crate::text::{joined, one_line, visible};
use crate::tokens::TokenParts;
use rlm_core::protocol::Outcome;
use rlm_core::text::{counted, cut, grouped};
use rlm_env::ReplLanguage;
use rlm_env::session::OutputStream;
use rlm_env::trajectory::{CallEnded, Entry, Event, MessageKind, OutputPiece, Sink, SubCall};

/// Most lines of an output that are shown.
const OUTPUT_LINES: usize = 24;

/// Lines at the beginning of a longer output that are shown.
const HEAD_LINES: usize = OUTPUT_LINES - 3;

/// The text before a line of output.
const OUTPUT_MARGIN: &str = "  │ ";

/// Most characters of a line.
const MAX_WIDTH: usize = 110;

/// Columns for what stands before a line of code or output.
const MARGIN: usize = 4;

/// Style of text at a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    Plain,
    Strong,
    Faint,
    Code,
    Good,
    Bad,
}

impl Style {
    fn sequence(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Code => "\x1b[36m",
            Self::Good => "\x1b[1;32m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// Prints a rollout line by line.
pub(crate) struct Display {
    has_colours: bool,
    prompt: &'static str,
    width: usize,
    print: Box<dyn Fn(&str) + Send + Sync>,
    /// The sub-calls of the running call.
    sub_calls: Mutex<SubCalls>,
    /// Tokens of the reasoning of the reply that comes next.
    reasoning_tokens: AtomicU64,
    /// The output of the running call so far.
    live: Mutex<LiveLines>,
}

/// The output of a running call.
#[derive(Debug, Default)]
struct LiveLines {
    /// Lines that are shown.
    shown: usize,
    /// The line that has begun.
    begun: String,
}

impl fmt::Debug for Display {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Display").field("width", &self.width).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct SubCalls {
    count: u64,
    tokens: u64,
    parts: TokenParts,
    failed: u64,
    /// The first error, of one that failed.
    error: Option<String>,
    first: Option<String>,
}

impl Display {
    /// A display for a terminal of this width, of a session in this language. `print` gets one line at a time, without its end.
    pub(crate) fn new(
        has_colours: bool,
        language: ReplLanguage,
        width: Option<usize>,
        print: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let prompt = if language == ReplLanguage::Python { ">" } else { "$" };
        let width = width.unwrap_or(MAX_WIDTH).clamp(2 * MARGIN, MAX_WIDTH);
        Self {
            has_colours,
            prompt,
            width,
            print: Box::new(print),
            sub_calls: Mutex::default(),
            reasoning_tokens: AtomicU64::new(0),
            live: Mutex::default(),
        }
    }

    /// Prints a line.
    pub(crate) fn line(&self, style: Style, text: impl fmt::Display) {
        let (sequence, text) = (style.sequence(), visible(&text.to_string()));
        (self.print)(&match self.has_colours && !sequence.is_empty() {
            true => format!("{sequence}{text}\x1b[0m"),
            false => text,
        });
    }

    /// Prints the lines of a text, each after a margin, cut to the width; of many lines, the beginning and the end.
    fn block(&self, style: Style, margin: &str, text: &str) {
        self.rest_of_block(style, margin, text, 0);
    }

    /// Like [`Self::block`], without the first lines.
    fn rest_of_block(&self, style: Style, margin: &str, text: &str, shown: usize) {
        for line in shortened(text, self.width - MARGIN).lines().skip(shown) {
            self.line(style, format_args!("{margin}{line}"));
        }
    }

    fn ended(&self, call: &CallEnded) {
        let LiveLines { shown, .. } = std::mem::take(&mut *lock(&self.live));
        if let Some(output) = &call.output {
            let has_failed = output.outcome != Outcome::Ok || output.exit_code.is_some_and(|code| code != 0);
            let style = if has_failed { Style::Bad } else { Style::Plain };
            let texts = [Some(&output.stdout), Some(&output.stderr), output.result.as_ref()];
            self.rest_of_block(style, OUTPUT_MARGIN, &joined(texts), shown);
            if let Some(code) = output.exit_code.filter(|code| *code != 0) {
                self.line(Style::Bad, format_args!("  exit status {code}"));
            }
        }
        if let Some(error) = &call.error {
            self.block(Style::Bad, OUTPUT_MARGIN, error);
        }
        let sub_calls = std::mem::take(&mut *lock(&self.sub_calls));
        if sub_calls.count > 0 {
            let (requests, tokens) =
                (counted(sub_calls.count, "request"), counted(sub_calls.tokens, "token"));
            let parts = sub_calls.parts.of_all();
            self.line(Style::Faint, format_args!("  llm_batch sent the sub-LLM {requests}, {tokens}{parts}"));
        }
        if let Some(error) = sub_calls.error {
            self.block(Style::Bad, "  ", &format!("{} failed: {error}", sub_calls.failed));
        }
        if let Some(first) = sub_calls.first {
            self.line(Style::Faint, format_args!("  its first answer begins: {first}"));
        }
        self.line(Style::Faint, format_args!("  {:.1} ms", call.seconds * 1e3));
    }
}

impl Display {
    /// Begin and end of a rollout that code has started.
    fn child(&self, entry: &Entry) {
        let margin = "  ".repeat(usize::try_from(entry.depth).unwrap_or(1).min(8));
        match &entry.event {
            Event::RolloutStarted(started) => {
                self.line(
                    Style::Faint,
                    format_args!("{margin}{} asks: {}", entry.rollout, one_line(&started.question)),
                );
            }
            Event::RolloutEnded(ended) => {
                let (style, words) = match &ended.answer {
                    Some(answer) if ended.answer_ready => (Style::Faint, one_line(answer)),
                    _ => (Style::Bad, format!("no final answer: {:?}", ended.stop_reason)),
                };
                self.line(style, format_args!("{margin}{} answers: {words}", entry.rollout));
            }
            _ => {}
        }
    }
}

impl Sink for Display {
    fn entry(&self, entry: &Entry) {
        if entry.depth > 0 {
            return self.child(entry);
        }
        match &entry.event {
            Event::RolloutStarted(started) => {
                let (model, sub_model) = (&started.model, started.sub_model.as_deref().unwrap_or("none"));
                self.line(Style::Strong, format_args!("\nquestion  {}", started.question));
                let (files, bytes) = (started.context_files, grouped(started.context_bytes));
                self.line(Style::Plain, format_args!("context   {files} files, {bytes} bytes"));
                self.line(Style::Plain, format_args!("models    {model}, {sub_model}"));
            }
            Event::Message(message) if message.kind == MessageKind::Reply => {
                self.line(Style::Strong, format_args!("\nturn {}", message.turn));
                let tokens = self.reasoning_tokens.swap(0, Ordering::Relaxed);
                if let Some(thought) = Thought::of(&message.message, tokens) {
                    self.line(Style::Faint, fitted(&thought.line(), self.width));
                }
                let text = reply_words(&message.message);
                self.block(
                    Style::Plain,
                    "",
                    &text
                        .lines()
                        .map(|line| wrapped(line, self.width - MARGIN))
                        .collect::<Vec<_>>()
                        .join("\n"),
                );
            }
            Event::Message(message) if matches!(message.kind, MessageKind::Notice | MessageKind::Summary) => {
                self.block(Style::Faint, "  ", &message_words(&message.message));
            }
            Event::ModelRetry(retry) => {
                let (error, wait) = (&retry.error, retry.wait_seconds);
                self.block(Style::Faint, "  ", &format!("{error}; asking again in {wait:.1} s"));
            }
            Event::ModelCall(call) => {
                self.reasoning_tokens.store(call.reasoning_tokens, Ordering::Relaxed);
                if let Some(error) = &call.error {
                    self.block(Style::Bad, "  ", error);
                }
            }
            Event::CallStarted(call) => {
                let margin = format!("  {} ", self.prompt);
                match &call.code {
                    Some(code) => self.block(Style::Code, &margin, code),
                    None => self.line(Style::Code, format_args!("{margin}{}", call.tool)),
                }
            }
            Event::SubCall(call) => lock(&self.sub_calls).add(call),
            Event::CallEnded(call) => self.ended(call),
            _ => {}
        }
    }

    fn wants_output(&self) -> bool {
        true
    }

    /// Shows the first lines as they come; the last ones follow when the call has ended.
    fn output(&self, piece: &OutputPiece<'_>) {
        if piece.stream != OutputStream::Stdout {
            return;
        }
        let LiveLines { shown, begun } = &mut *lock(&self.live);
        for line in piece.text.split_inclusive('\n') {
            if *shown == HEAD_LINES {
                return;
            }
            begun.push_str(line);
            if begun.ends_with('\n') {
                let line = fitted(begun.lines().next().unwrap_or_default(), self.width - MARGIN);
                self.line(Style::Plain, format_args!("{OUTPUT_MARGIN}{line}"));
                begun.clear();
                *shown += 1;
            }
        }
    }
}

impl SubCalls {
    fn add(&mut self, call: &SubCall) {
        self.count += 1;
        self.tokens = self.tokens.saturating_add(call.prompt_tokens).saturating_add(call.completion_tokens);
        self.parts.add(call.into());
        if let Some(error) = &call.error {
            self.failed += 1;
            self.error.get_or_insert_with(|| error.clone());
        }
        let answer = call.reply.as_ref().map(reply_words).filter(|answer| !answer.is_empty());
        if call.index == 0 {
            self.first = answer.map(|answer| answer.lines().next().unwrap_or_default().to_owned());
        }
    }
}

/// A line with its control characters made visible, cut to the width.
fn fitted(line: &str, width: usize) -> String {
    let line = one_line(line);
    if line.chars().count() <= width { line } else { cut(&line, width - 1) }
}

/// The text with its control characters made visible, its lines cut to the width, and the middle of many lines left out.
fn shortened(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| fitted(line, width)).collect();
    if lines.len() <= OUTPUT_LINES {
        return lines.join("\n");
    }
    let (head, tail) = (&lines[..HEAD_LINES], &lines[lines.len() - 2..]);
    let left_out = format!("… {} more lines …", lines.len() - head.len() - tail.len());
    [head, &[left_out], tail].concat().join("\n")
}

/// A text wrapped to lines of this many characters. A longer word has its own line.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_outputs_keep_their_head_and_their_end() {
        assert_eq!(shortened("a\nb\x1b[2J\n", 100), "a\nb␛[2J");
        let lines: Vec<String> = (1..=40).map(|line| line.to_string()).collect();
        let shown = shortened(&lines.join("\n"), 100);
        assert_eq!(shown.lines().count(), OUTPUT_LINES);
        assert!(shown.ends_with("21\n… 17 more lines …\n39\n40"), "{shown}");
        assert_eq!(shortened(&"x".repeat(200), 100).chars().count(), 100);
    }
}
