//! Typed lines, put together to complete code, and the questions for completions.
//!
//! The line editor blocks, and signals must be handled while it does, so it has a thread. It edits one line at a time:
//! code that needs another line continues at another prompt.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use rlm_core::protocol::{Completions, State};
use rlm_env::{ReplLanguage, Session};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event as KeyPress, EventContext,
    EventHandler, Helper, Highlighter, Hinter, KeyEvent, RepeatCount, Validator,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::completeness::Parser;
use crate::tell;

/// Longest wait for completions. The session itself looks for no longer than a second.
const PATIENCE: Duration = Duration::from_secs(2);

/// The line editor.
pub(super) struct Lines {
    requests: mpsc::Sender<Ahead>,
    events: UnboundedReceiver<Event>,
    editor: JoinHandle<()>,
}

/// The fate of text that was typed ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ahead {
    Keep,
    /// Ctrl-C has stopped a call. The terminal has dropped its part; the editor has the rest.
    Drop,
}

enum Event {
    /// Complete code, or the end.
    Line(rustyline::Result<String>),
    /// Somebody has pressed Tab after this code.
    Tab { code: String, reply: mpsc::Sender<Completions> },
}

impl Lines {
    pub(super) fn start(language: ReplLanguage, history: Option<PathBuf>) -> anyhow::Result<Self> {
        let (sender, events) = unbounded_channel();
        let clears = Arc::new(AtomicBool::new(false));
        let mut editor = editor(language, FileHistory::default(), &clears, &sender)?;
        if let Some(history) = &history {
            // The file does not exist before the first session.
            let _missing = editor.load_history(history);
        }
        let (requests, requested) = mpsc::channel();
        let thread = Thread { editor, language, clears, parser: None, history, events: sender };
        let editor = std::thread::Builder::new()
            .name("line editor".to_owned())
            .spawn(move || thread.serve(&requested))
            .context("cannot start the line editor")?;
        Ok(Self { requests, events, editor })
    }

    /// The next complete code; None after the editor has ended. The session answers what is asked in between.
    pub(super) async fn next(
        &mut self,
        ahead: Ahead,
        session: &mut Session,
    ) -> Option<rustyline::Result<String>> {
        self.requests.send(ahead).ok()?;
        loop {
            match self.events.recv().await? {
                Event::Line(line) => return Some(line),
                Event::Tab { code, reply } => {
                    // The editor may wait no longer.
                    let _given_up = reply.send(completions(session, &code).await);
                }
            }
        }
    }

    /// Saves the history. Must not be called while the editor waits for a line.
    pub(super) fn finish(self) {
        drop(self.requests);
        // A panic has printed its message already.
        let _panicked = self.editor.join();
    }
}

/// The names that the session knows. A session that cannot answer knows none; the next call says why.
async fn completions(session: &mut Session, code: &str) -> Completions {
    let Ok(response) = session.complete(code).await else { return Completions::default() };
    if response.state != State::Kept {
        tell(format_args!("rlm: {}", response.hint.unwrap_or_default()));
    }
    response.result.and_then(|result| serde_json::from_str(&result).ok()).unwrap_or_default()
}

fn editor(
    language: ReplLanguage,
    history: FileHistory,
    clears: &Arc<AtomicBool>,
    events: &UnboundedSender<Event>,
) -> rustyline::Result<Editor<Typing, FileHistory>> {
    let config = Config::builder().completion_type(CompletionType::List).build();
    let mut editor = Editor::with_history(config, history)?;
    editor.set_helper(Some(Typing { language, before: String::new(), events: events.clone() }));
    let clear = EventHandler::Conditional(Box::new(Clear(clears.clone())));
    editor.bind_sequence(KeyEvent::ctrl('C'), clear);
    Ok(editor)
}

struct Thread {
    editor: Editor<Typing, FileHistory>,
    language: ReplLanguage,
    /// True after Ctrl-C.
    clears: Arc<AtomicBool>,
    /// The parser; None until the first line.
    parser: Option<Parser>,
    history: Option<PathBuf>,
    events: UnboundedSender<Event>,
}

impl Thread {
    fn serve(mut self, requested: &mpsc::Receiver<Ahead>) {
        while let Ok(ahead) = requested.recv() {
            let code = self.drop_ahead(ahead).and_then(|()| self.read());
            if let Ok(code) = &code
                && !code.trim().is_empty()
                && let Err(error) = self.editor.add_history_entry(code)
            {
                tell(format_args!("rlm: cannot keep the line for later: {error}"));
            }
            if self.events.send(Event::Line(code)).is_err() {
                return;
            }
        }
        if let Some(history) = &self.history
            && let Err(error) = self.editor.save_history(history)
        {
            tell(format_args!("rlm: cannot save the history to {}: {error}", history.display()));
        }
    }

    /// Only an editor's end drops what it has read.
    fn drop_ahead(&mut self, ahead: Ahead) -> rustyline::Result<()> {
        if ahead == Ahead::Drop {
            let history = std::mem::take(self.editor.history_mut());
            self.editor = editor(self.language, history, &self.clears, &self.events)?;
        }
        Ok(())
    }

    /// Reads lines until the code is complete.
    fn read(&mut self) -> rustyline::Result<String> {
        // Both prompts have one width, so that lines stand below each other.
        let [first, next] = match self.language {
            ReplLanguage::Bash => ["bash> ", "    > "],
            ReplLanguage::Python => ["python> ", "    ... "],
        };
        // The editor prints prompts for a pipe, too, if TERM is `dumb`.
        let next = if std::io::stdin().is_terminal() { next } else { "" };
        let mut code = self.line(first, "")?;
        while self.parser.get_or_insert_with(|| Parser::new(self.language)).wants_more(&code) {
            code.push('\n');
            code += &self.line(next, &code)?;
        }
        Ok(code)
    }

    fn line(&mut self, prompt: &str, before: &str) -> rustyline::Result<String> {
        if let Some(typing) = self.editor.helper_mut() {
            before.clone_into(&mut typing.before);
        }
        let line = self.editor.readline(prompt)?;
        if self.clears.swap(false, Ordering::Relaxed) { Err(ReadlineError::Interrupted) } else { Ok(line) }
    }
}

/// Ctrl-C ends the line like Enter: the editor's own interrupt would drop what was typed ahead after it.
struct Clear(Arc<AtomicBool>);

impl ConditionalEventHandler for Clear {
    fn handle(&self, _: &KeyPress, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(true, Ordering::Relaxed);
        Some(Cmd::AcceptLine)
    }
}

/// The questions of the editor while a line is being typed.
#[derive(Helper, Highlighter, Hinter, Validator)]
struct Typing {
    language: ReplLanguage,
    /// The lines before this one.
    before: String,
    events: UnboundedSender<Event>,
}

impl Completer for Typing {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let line = &line[..cursor];
        if self.language == ReplLanguage::Python
            && line.lines().next_back().is_none_or(|line| line.trim().is_empty())
        {
            return Ok((cursor, vec!["    ".to_owned()]));
        }
        let (reply, answer) = mpsc::channel();
        let sent = self.events.send(Event::Tab { code: format!("{}{line}", self.before), reply });
        let found = sent.ok().and_then(|()| answer.recv_timeout(PATIENCE).ok()).unwrap_or_default();
        // A word that begins in an earlier line cannot be replaced here.
        Ok(match found.start.checked_sub(self.before.len()) {
            Some(start) if line.is_char_boundary(start) => (start, found.candidates),
            _ => (cursor, Vec::new()),
        })
    }
}
