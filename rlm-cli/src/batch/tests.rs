use std::sync::atomic::{AtomicUsize, Ordering};

use rlm_env::{Context, Control, RolloutConfig, StopReason};
use tokio::sync::Semaphore;

use super::attempts::Attempt;
use super::run_all::BatchEnd;
use super::runner::RunAttempt;
use super::*;
use crate::evaluation::result;
use crate::rollouts::Request;

/// Ends each rollout as its question says, once the gate has a permit.
struct Scripted {
    gate: Semaphore,
    started: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Scripted {
    fn new(permits: usize) -> Arc<Self> {
        let [started, running, most] = [0; 3].map(AtomicUsize::new);
        Arc::new(Self { gate: Semaphore::new(permits), started, running, most })
    }
}

impl RunAttempt for Scripted {
    async fn run_attempt(&self, attempt: Attempt, _control: &Control) -> RunResult {
        self.started.fetch_add(1, Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        // Lets the other rollouts start.
        tokio::task::yield_now().await;
        self.gate.acquire().await.unwrap().forget();
        self.running.fetch_sub(1, Ordering::SeqCst);
        let fails = attempt.question.question == "fails";
        let reason = if fails { StopReason::ModelFailed } else { StopReason::Answered };
        result(&attempt.id(), reason, None)
    }
}

fn question(id: &str, question: &str, context: Option<Context>) -> Arc<Question> {
    let (id, question) = (id.to_owned(), question.to_owned());
    Arc::new(Question { id, place: None, question, context, expected: None, metadata: None })
}

fn first_attempts(questions: &[&str]) -> impl AsyncFnMut() -> anyhow::Result<Option<Attempt>> {
    let named = (1..).zip(questions);
    let mut attempts = named
        .map(|(id, text): (u32, _)| Attempt { number: 1, question: question(&id.to_string(), text, None) });
    async move || Ok(attempts.next())
}

fn progress() -> BatchProgress {
    BatchProgress::new(1, None)
}

async fn no_request() -> Request {
    std::future::pending().await
}

#[tokio::test]
async fn a_failed_rollout_stops_no_other_and_at_most_jobs_run_at_once() {
    let host = Scripted::new(Semaphore::MAX_PERMITS);
    let mut ids = Vec::new();
    let all = first_attempts(&["a", "fails", "c", "d", "e"]);
    let take = |result: &RunResult| {
        ids.push(result.rollout.id.clone());
        Ok(())
    };
    let ended = run_all(&host, all, 2, no_request, &progress(), take).await.unwrap();
    ids.sort();
    assert_eq!(ids, ["1-1", "2-1", "3-1", "4-1", "5-1"]);
    assert_eq!(ended, BatchEnd { started: 5, by_signal: None });
    assert_eq!(host.most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_first_interrupt_starts_no_more_and_waits_for_those_that_run() {
    let host = Scripted::new(0);
    let mut asked = 0;
    // The second call comes after the first request is carried out: only then may rollouts end.
    let requests = async || {
        while host.started.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        asked += 1;
        if asked == 1 {
            return Request::Stop;
        }
        host.gate.add_permits(100);
        std::future::pending().await
    };
    let mut results = 0;
    let take = |_: &RunResult| {
        results += 1;
        Ok(())
    };
    let ended = run_all(&host, first_attempts(&["a"; 5]), 2, requests, &progress(), take).await.unwrap();
    assert_eq!(ended, BatchEnd { started: 2, by_signal: None });
    assert_eq!(results, 2);
}

#[tokio::test]
async fn results_that_cannot_be_written_end_the_batch_with_the_reason() {
    let host = Scripted::new(Semaphore::MAX_PERMITS);
    let take = |_: &RunResult| anyhow::bail!("disk full");
    let error =
        run_all(&host, first_attempts(&["a"; 9]), 1, no_request, &progress(), take).await.unwrap_err();
    assert_eq!(error.to_string(), "disk full");
    assert_eq!(host.started.load(Ordering::SeqCst), 1);
}

#[test]
fn attempts_are_told_apart() {
    let text = |text: &str| Context::Text(text.to_owned());
    let questions = vec![question("a", "a?", None), question("b", "b?", Some(text("own")))];
    let template = RolloutConfig { context: text("shared"), ..RolloutConfig::new("", "") };
    let rollouts = attempts(&questions, 2, false).map(|attempt| attempt.rollout(&template));
    let made: Vec<_> = rollouts.map(|rollout| (rollout.id, rollout.question, rollout.context)).collect();
    let expected = [
        ("a-1", "a?", text("shared")),
        ("b-1", "b?", text("own")),
        ("a-2", "a?", text("shared")),
        ("b-2", "b?", text("own")),
    ];
    assert_eq!(made, expected.map(|(id, question, context)| (id.to_owned(), question.to_owned(), context)));
    let places = Places::new(&questions, 2);
    let ids = ["a-1", "b-1", "a-2", "b-2", "a-0", "a-3", "c-1", "a", "a-x"];
    assert_eq!(
        ids.map(|id| places.of(id)),
        [Some((1, 0)), Some((1, 1)), Some((2, 0)), Some((2, 1)), None, None, None, None, None]
    );
}
