//! `rlm run --chat`: further questions to the same rollout.

use std::io::IsTerminal as _;
use std::sync::Arc;

use anyhow::Context as _;
use rlm_env::{Control, Host, RolloutConfig, RolloutResult};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::question::{print_answer, until_end};
use crate::environment::Environment;
use crate::rollouts::{Progress, Requests, ending_words};
use crate::tell;

/// The text before a line that is typed.
const PROMPT: &str = "> ";

/// Questions from standard input.
pub(super) struct Chat {
    /// The editor; None while a line is read.
    editor: Option<DefaultEditor>,
    is_quiet: bool,
}

impl Chat {
    pub(super) fn new(environment: &Environment) -> anyhow::Result<Self> {
        let is_quiet = !std::io::stdin().is_terminal() || environment.is_dumb();
        let editor = DefaultEditor::new().context("cannot read questions from standard input")?;
        Ok(Self { editor: Some(editor), is_quiet })
    }

    /// Runs a rollout, question after question, until there are no more. Returns its result, and the exit status for a signal; no
    /// result if a second signal came.
    pub(super) async fn run(
        mut self,
        host: &Host,
        config: &RolloutConfig,
        requests: &mut Requests,
        progress: &Option<Arc<Progress>>,
    ) -> anyhow::Result<(Option<RolloutResult>, Option<u8>)> {
        let mut config = config.clone();
        if config.question.is_empty() {
            let Some(question) = self.next(requests, progress).await? else { return Ok((None, Some(0))) };
            config.question = question;
        }
        let control = Control::new();
        let mut rollout = match host.begin(&config, &control).await {
            Ok(rollout) => rollout,
            Err(result) => {
                show(&result)?;
                return Ok((Some(*result), None));
            }
        };
        let mut ended = until_end(rollout.answer(&control), &control, requests, progress, true).await;
        while let (Some(result), None) = &ended {
            if let Some(progress) = progress {
                progress.finish();
            }
            show(result)?;
            let Some(question) = self.next(requests, progress).await? else { break };
            let control = Control::new();
            ended = until_end(rollout.ask(&question, &control), &control, requests, progress, true).await;
        }
        let (last, by_signal) = ended;
        // After a second signal nothing is waited for.
        if last.is_none() {
            return Ok((None, by_signal));
        }
        Ok((Some(rollout.end().await), by_signal))
    }

    /// The next line that is not empty. None at the end of input, and at Ctrl-C.
    async fn next(
        &mut self,
        requests: &mut Requests,
        progress: &Option<Arc<Progress>>,
    ) -> anyhow::Result<Option<String>> {
        if let Some(progress) = progress {
            progress.finish();
        }
        requests.begin_again();
        let mut editor = self.editor.take().expect("one line is read at a time");
        let prompt = if self.is_quiet { "" } else { PROMPT };
        let reading = tokio::task::spawn_blocking(move || {
            let line = loop {
                match editor.readline(prompt) {
                    Ok(line) if line.trim().is_empty() => {}
                    line => break line,
                }
            };
            if let Ok(line) = &line {
                // The history is for the keys alone.
                let _is_new = editor.add_history_entry(line);
            }
            (editor, line)
        });
        let read = tokio::select! {
            read = reading => read?,
            _ = requests.next() => return Ok(None),
        };
        let (editor, line) = read;
        self.editor = Some(editor);
        if let Some(progress) = progress {
            progress.go_on();
        }
        match line {
            Ok(line) => Ok(Some(line)),
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
            Err(error) => Err(error).context("cannot read the next question"),
        }
    }
}

/// Prints the answer, or says why there is none.
fn show(result: &RolloutResult) -> anyhow::Result<()> {
    print_answer(result)?;
    if let Some(words) = ending_words(result) {
        tell(format_args!("rlm: {words}"));
    }
    Ok(())
}
