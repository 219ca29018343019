//! Live display of the demo's rollout.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rlm_core::protocol::Response;
use rlm_core::text::{counted, cut, grouped};
use rlm_env::rollout::Metrics;
use rlm_env::trajectory::Sink;
use rlm_env::trajectory::{CallEnded, Entry, Event, MessageKind, SubCall};

/// Most lines of an output that are shown.
const OUTPUT_LINES: usize = 24;

/// Most characters of a line.
const WIDTH: usize = 110;

/// Style of text at a terminal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Style {
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

/// Prints to standard output.
#[derive(Debug)]
pub(super) struct Display {
    has_colours: bool,
    prompt: &'static str,
    /// The sub-calls of the running call.
    sub_calls: Mutex<SubCalls>,
    /// The first error of printing.
    failed: Mutex<Option<io::Error>>,
}

#[derive(Debug, Default)]
struct SubCalls {
    count: u64,
    tokens: u64,
    first: Option<String>,
}

impl Display {
    pub(super) fn new(has_colours: bool, prompt: &'static str) -> Self {
        Self { has_colours, prompt, sub_calls: Mutex::default(), failed: Mutex::default() }
    }

    /// Prints a line. If that fails, the rollout continues.
    pub(super) fn line(&self, style: Style, text: impl fmt::Display) {
        let sequence = style.sequence();
        let mut output = std::io::stdout().lock();
        let printed = match self.has_colours && !sequence.is_empty() {
            true => writeln!(output, "{sequence}{text}\x1b[0m"),
            false => writeln!(output, "{text}"),
        };
        if let Err(error) = printed {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// The first error of printing. A reader that closed the pipe is not an error.
    pub(super) fn failure(&self) -> Option<io::Error> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }

    /// Prints the lines of a text, each after a margin.
    fn block(&self, style: Style, margin: &str, text: &str) {
        for line in text.lines() {
            self.line(style, format_args!("{margin}{line}"));
        }
    }

    fn sub_calls(&self) -> MutexGuard<'_, SubCalls> {
        self.sub_calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, call: &CallEnded) {
        if let Some(output) = &call.output {
            let text = text_of(output);
            let style = if has_failed(&text) { Style::Bad } else { Style::Plain };
            self.block(style, "  │ ", &shortened(&text));
        }
        if let Some(error) = &call.error {
            self.block(Style::Bad, "  │ ", error);
        }
        let sub_calls = std::mem::take(&mut *self.sub_calls());
        if sub_calls.count > 0 {
            let (requests, tokens) =
                (counted(sub_calls.count, "request"), counted(sub_calls.tokens, "token"));
            self.line(Style::Faint, format_args!("  llm_batch sent the sub-LLM {requests}, {tokens}"));
        }
        if let Some(first) = sub_calls.first {
            self.line(Style::Faint, format_args!("  its first answer begins: {first}"));
        }
        self.line(Style::Faint, format_args!("  {:.1} ms", call.seconds * 1e3));
    }
}

impl Sink for Display {
    fn entry(&self, entry: &Entry) {
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
                let text = message.message["content"].as_str().unwrap_or_default();
                self.block(Style::Plain, "", &wrapped(text, WIDTH));
            }
            Event::CallStarted(call) => {
                let margin = format!("  {} ", self.prompt);
                self.block(Style::Code, &margin, call.code.as_deref().unwrap_or_default());
            }
            Event::SubCall(call) => self.sub_calls().add(call),
            Event::CallEnded(call) => self.ended(call),
            _ => {}
        }
    }
}

impl SubCalls {
    fn add(&mut self, call: &SubCall) {
        self.count += 1;
        self.tokens = self.tokens.saturating_add(call.prompt_tokens).saturating_add(call.completion_tokens);
        let answer = call.reply.as_ref().and_then(|reply| reply["content"].as_str());
        let first = || answer.and_then(|answer| answer.lines().next()).unwrap_or_default().to_owned();
        if call.index == 0 {
            self.first = Some(first());
        }
    }
}

/// The output of a call, as one text.
fn text_of(output: &Response) -> String {
    let parts = [Some(output.stdout.as_str()), Some(output.stderr.as_str()), output.result.as_deref()];
    let mut text = String::new();
    for part in parts.into_iter().flatten().filter(|part| !part.is_empty()) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text += part;
    }
    text
}

/// Reports whether an output shows an error.
fn has_failed(output: &str) -> bool {
    output.contains("Error: ")
}

/// The text without control characters, its lines cut to the width, and the middle of many lines left out.
fn shortened(text: &str) -> String {
    let fitted = |line: &str| -> String {
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if line.chars().count() <= WIDTH { line } else { cut(&line, WIDTH - 1) }
    };
    let lines: Vec<String> = text.lines().map(fitted).collect();
    if lines.len() <= OUTPUT_LINES {
        return lines.join("\n");
    }
    let (head, tail) = (&lines[..OUTPUT_LINES - 3], &lines[lines.len() - 2..]);
    let left_out = format!("… {} more lines …", lines.len() - head.len() - tail.len());
    [head, &[left_out], tail].concat().join("\n")
}

/// A text wrapped to lines of this many characters. A longer word has its own line.
pub(super) fn wrapped(text: &str, width: usize) -> String {
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

/// The metrics, one per line.
pub(super) fn metrics(metrics: &Metrics) -> String {
    let requests = counted(metrics.sub_llm_call_count, "request");
    let batches = counted(metrics.sub_llm_batch_count, "call");
    let tokens = counted(metrics.sub_llm_prompt_tokens + metrics.sub_llm_completion_tokens, "token");
    format!(
        "turns of the root model  {}\n\
         calls of the session     {}, {:.1} ms each on average\n\
         sub-LLM                  {requests} by {batches} of llm_batch, {tokens}\n\
         the whole rollout        {:.2} s",
        metrics.root_llm_turns,
        metrics.repl_call_count,
        metrics.repl_mean_time_seconds * 1e3,
        metrics.total_time_seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_outputs_keep_their_head_and_their_end() {
        assert_eq!(shortened("a\nb\x1b[2J\n"), "a\nb [2J");
        let lines: Vec<String> = (1..=40).map(|line| line.to_string()).collect();
        let shown = shortened(&lines.join("\n"));
        assert_eq!(shown.lines().count(), OUTPUT_LINES);
        assert!(shown.ends_with("21\n… 17 more lines …\n39\n40"), "{shown}");
        assert_eq!(shortened(&"x".repeat(200)).chars().count(), WIDTH);
    }
}
