//! One question of a command: its work until it ends or a signal ends it, and its answer.

use std::io::IsTerminal as _;
use std::sync::Arc;

use rlm_env::{Control, RolloutResult};

use crate::rollouts::{Progress, Request, Requests};
use crate::standard_output::print;
use crate::tell;
use crate::text::visible;

/// Runs a rollout, or one question of it, until it ends by itself or by a signal: its result, and the exit status for the signal.
/// No result means that a second signal came before the cancelled rollout had ended. `goes_on`: a first Ctrl-C ends the question,
/// and more may follow.
pub(super) async fn until_end(
    running: impl Future<Output = RolloutResult>,
    control: &Control,
    requests: &mut Requests,
    progress: &Option<Arc<Progress>>,
    goes_on: bool,
) -> (Option<RolloutResult>, Option<u8>) {
    let say = |message: &str| match progress {
        Some(progress) => progress.say(message),
        None => tell(format_args!("rlm: {message}")),
    };
    let mut running = std::pin::pin!(running);
    let mut ended_by = None;
    loop {
        tokio::select! {
            result = &mut running => return (Some(result), ended_by),
            request = requests.next() => match request {
                Request::Stop if goes_on => {
                    say("interrupting; Ctrl-C again ends the chat");
                    control.cancel();
                }
                Request::Stop => {
                    say("stopping after the running call; Ctrl-C again ends at once");
                    control.stop();
                }
                Request::Cancel(status) if ended_by.is_none() => {
                    control.cancel();
                    ended_by = Some(status);
                }
                Request::Cancel(status) => return (None, Some(status)),
            }
        }
    }
}

/// Prints the answer, if there is one.
pub(super) fn print_answer(result: &RolloutResult) -> anyhow::Result<()> {
    let Some(answer) = &result.answer else { return Ok(()) };
    print_line(if std::io::stdout().is_terminal() { visible(answer) } else { answer.clone() })
}

/// Prints a text with a newline at its end.
pub(super) fn print_line(mut text: String) -> anyhow::Result<()> {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    print(text)
}
