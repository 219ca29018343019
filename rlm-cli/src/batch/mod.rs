//! Many rollouts: questions, attempts, results, and a summary.

mod feed;
mod kept;
mod questions;
mod results;
mod summary;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use rlm_core::error::with_causes;
use rlm_core::text::{counted, cut, one_line};
use rlm_env::trajectory::{Entry, Event, RolloutScored};
use rlm_env::{Control, Host, HostConfig, RolloutConfig, RolloutResult, StopReason};
use rlm_rootd::{Budget, Ledger};
use tokio::task::JoinSet;

pub(crate) use self::feed::Feed;
use self::questions::Question;
use self::results::{Finished, Keep, Results, SYNC, SyncFile};
use self::summary::Summary;
pub(crate) use self::summary::percentiles;
use crate::arguments::{BatchOptions, Resume};
use crate::environment::Environment;
use crate::evaluation::{Evaluation, Provenance, RunResult, Scorer};
use crate::run::{BatchProgress, Events, Request, Requests, Setup, close};
use crate::runs::Record;
use crate::usage::Usage;
use crate::warnings::Warnings;

/// Characters of a question in an error.
const SHOWN_CHARS: usize = 60;

/// Contexts in an error.
const SHOWN_ERRORS: usize = 3;

/// Rollouts at once by default.
const JOBS: usize = 4;

/// Runs attempts: a host, or a script in tests.
pub(crate) trait RunAttempt: Send + Sync + 'static {
    /// Runs it to its end.
    fn run_attempt<'a>(
        &'a self,
        attempt: Attempt,
        control: &'a Control,
    ) -> Pin<Box<dyn Future<Output = RunResult> + Send + 'a>>;
}

/// A host, and what all rollouts of a batch have in common.
struct Runner {
    host: Host,
    template: RolloutConfig,
    provenance: Provenance,
    scorer: Scorer,
}

impl RunAttempt for Runner {
    fn run_attempt<'a>(
        &'a self,
        attempt: Attempt,
        control: &'a Control,
    ) -> Pin<Box<dyn Future<Output = RunResult> + Send + 'a>> {
        Box::pin(async move {
            let rollout = self.host.run(attempt.rollout(&self.template), control).await;
            let Question { id, expected, metadata, .. } = &*attempt.question;
            let score = tokio::select! {
                biased;
                score = self.scorer.score(&rollout, expected.as_ref(), metadata.as_ref()) => score,
                () = control.cancelled() => Some(Err("the batch ended before it was scored".to_owned())),
            };
            if let Some(score) = score.clone() {
                let scored = Event::RolloutScored(RolloutScored::new(score));
                let entry = Entry::now(rollout.id.clone(), 0, scored);
                self.template.sinks.iter().for_each(|sink| sink.entry(&entry));
            }
            let (score, score_error) = match score {
                None => (None, None),
                Some(Ok(score)) => (Some(Some(score)), None),
                Some(Err(reason)) => (Some(None), Some(reason)),
            };
            let evaluation = Evaluation {
                question_id: Some(id.clone()),
                attempt: Some(attempt.number),
                metadata: metadata.clone(),
                expected: expected.as_ref().map(|expected| expected.json().clone()),
                score,
                score_error,
            };
            RunResult { rollout, evaluation, provenance: Some(self.provenance.clone()) }
        })
    }
}

/// A batch to run.
#[derive(Debug)]
pub(crate) struct Batch {
    questions: Vec<Arc<Question>>,
    attempts: usize,
    jobs: usize,
    /// The file for results, and those of its results to keep. None is standard output.
    results: Option<(PathBuf, Option<Keep>)>,
    /// The results to go on from.
    resume: Option<Resume>,
    /// Saves results to the disk; None leaves that to the system.
    sync: Option<SyncFile>,
    /// Most that all of it may cost, in USD.
    max_cost: Option<f64>,
    scorer: Scorer,
}

/// The extent of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    questions: usize,
    attempts: usize,
    /// Rollouts whose results stay.
    done: usize,
    jobs: usize,
}

impl Plan {
    /// One rollout.
    pub(crate) const ONE: Self = Self { questions: 1, attempts: 1, done: 0, jobs: 1 };

    pub(crate) fn rollouts(&self) -> usize {
        self.questions * self.attempts - self.done
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (questions, attempts) = (self.questions as u64, self.attempts as u64);
        let each = if self.questions > 1 { " at each" } else { "" };
        write!(
            f,
            "{}: {}, {}{each}",
            self.rollouts(),
            counted(questions, "question"),
            counted(attempts, "attempt")
        )?;
        if self.done > 0 {
            write!(f, ", {} done before", self.done)?;
        }
        if self.rollouts() > 1 { write!(f, "; {} at once", self.jobs) } else { Ok(()) }
    }
}

impl Batch {
    /// What it would run. Changes nothing.
    pub(crate) fn plan(&self, provenance: &Provenance) -> anyhow::Result<Plan> {
        let done = match &self.results {
            Some((path, _)) if path.is_file() => open(self.results.as_ref(), None, false)?.1,
            _ => Finished::default(),
        };
        Ok(self.extent(self.results_before(&done, provenance)?.len()))
    }

    fn extent(&self, done: usize) -> Plan {
        Plan { questions: self.questions.len(), attempts: self.attempts, done, jobs: self.jobs }
    }

    /// The results that stay, in the order of their attempts.
    fn results_before<'a>(
        &self,
        done: &'a Finished,
        provenance: &Provenance,
    ) -> Result<BTreeMap<Place, &'a RunResult>, Usage> {
        let before = Places::new(&self.questions, self.attempts).in_order(done);
        for (&(_, question), result) in &before {
            self.check_question(&self.questions[question], &result.rollout)?;
        }
        self.check_provenance(done, provenance)?;
        Ok(before)
    }

    /// Reads the questions, all of them, before anything starts.
    pub(crate) fn new(
        question: Option<&str>,
        options: &BatchOptions,
        is_synced: bool,
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        let questions = match (&options.questions, question) {
            (Some(file), _) => questions::read(file)?,
            (None, question) => vec![Question {
                id: "1".to_owned(),
                place: None,
                question: question.expect("the command line has a question or a file of them").to_owned(),
                context: None,
                expected: None,
                metadata: None,
            }],
        };
        let expected = questions.iter().map(|question| (question.id.as_str(), question.expected.as_ref()));
        let scorer = Scorer::new(options.score.as_ref(), expected, environment)?;
        let keep = if options.retry_failed { Keep::Sound } else { Keep::Ended };
        let results = options.results.clone().map(|file| (file, options.resume.map(|_| keep)));
        Ok(Self {
            questions: questions.into_iter().map(Arc::new).collect(),
            attempts: options.attempts.map_or(1, usize::from),
            jobs: options.jobs.map_or(JOBS, usize::from),
            results,
            resume: options.resume,
            sync: is_synced.then_some(SYNC),
            max_cost: options.max_cost,
            scorer,
        })
    }

    /// Checks that the contexts of its questions can be opened. `require_shared` refuses a question at a place without one.
    pub(crate) fn check_contexts(
        &self,
        require_shared: impl Fn(Option<&str>) -> Result<(), Usage>,
    ) -> Result<(), Usage> {
        let mut wrong = Vec::new();
        for Question { place, context, .. } in self.questions.iter().map(AsRef::as_ref) {
            let Some(context) = context else {
                require_shared(place.as_deref())?;
                continue;
            };
            if let Err(error) = context.check() {
                wrong.push(format!("{}: {}", place.as_deref().unwrap_or_default(), with_causes(&error)));
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let others = wrong.len().saturating_sub(SHOWN_ERRORS);
        wrong.truncate(SHOWN_ERRORS);
        let more = if others > 0 { format!("; and {others} more") } else { String::new() };
        Err(Usage::new(wrong.join("; ") + &more))
    }

    /// Runs it until every rollout has ended or a signal ends it.
    pub(crate) async fn run(
        self,
        Setup { host, rollout: mut template, provenance, .. }: Setup,
        mut requests: Requests,
        draws: Option<&Warnings>,
        events: Option<Arc<Events>>,
        record: Option<Record>,
    ) -> anyhow::Result<ExitCode> {
        let begun = Instant::now();
        let (mut results, done) = open(self.results.as_ref(), self.sync, events.is_some())?;
        template.shared_ledger = self.ledger(&host, done.results.values().map(|done| &done.rollout));
        let before = self.results_before(&done, &provenance)?;
        let host = Host::start(host).await?;
        let mut notices = done.notices.clone();
        if let (Some((_, Some(_))), Some(keep)) = (&self.results, &template.keep) {
            let places = Places::new(&self.questions, self.attempts);
            // With those that it has started.
            let runs = |id: &str| {
                let id = kept::root_of(id);
                places.of(id).is_some() && !done.results.contains_key(id)
            };
            notices.extend(kept::rename_old(keep, runs)?);
        }
        results.remove_unkept()?;
        let left = self.extent(before.len()).rollouts();
        let progress = Arc::new(BatchProgress::new(left, draws));
        template.sinks.push(progress.clone());
        for notice in &notices {
            progress.say(notice);
        }
        let mut summary = Summary::default();
        for result in before.values() {
            summary.count_before(result);
            if let Some(events) = &events {
                events.result(result);
            }
        }
        let attempts = attempts(&self.questions, self.attempts)
            .filter(|attempt| !done.results.contains_key(&attempt.id()));
        let mut attempts = attempts.map(Ok);
        let runner = Arc::new(Runner { host, template, provenance, scorer: self.scorer });
        let ran = run_all(
            &runner,
            async || attempts.next().transpose(),
            self.jobs,
            async || requests.next().await,
            &progress,
            |result| {
                summary.count(result);
                progress.suspend(|| results.append(result))?;
                if let Some(events) = &events {
                    events.result(result);
                }
                Ok(())
            },
        )
        .await;
        progress.finish();
        // Only rollouts that were aborted still hold the host.
        if let Ok(runner) = Arc::try_unwrap(runner) {
            close(runner.host).await;
        }
        let ended = ran?;
        if let Some(events) = &events {
            events.finish(&mut requests).await?;
        }
        summary.not_started = left - ended.started;
        if let (Some(record), Some(first)) = (record, self.questions.first()) {
            record.end(&first.question, &summary.rollouts, summary.answered, begun.elapsed());
        }
        crate::tell(summary.text(&progress.tally(), begun.elapsed()));
        Ok(ExitCode::from(ended.by_signal.unwrap_or_else(|| summary.status())))
    }

    /// The ledger of all rollouts together, if their cost has a limit, without what earlier results have cost.
    fn ledger<'a>(
        &self,
        host: &HostConfig,
        done: impl Iterator<Item = &'a RolloutResult>,
    ) -> Option<Arc<Ledger>> {
        let max_cost = self.max_cost?;
        let spent: f64 = done.filter_map(|result| result.metrics.cost_usd).sum();
        let budget = Budget { cost_usd: Some(max_cost - spent), ..Budget::default() };
        Some(Arc::new(Ledger::new(budget, host.prices.clone())))
    }

    /// Refuses a result of another question, as of a list that has changed.
    fn check_question(&self, question: &Question, result: &RolloutResult) -> Result<(), Usage> {
        if result.question == question.question {
            return Ok(());
        }
        let shown = |question: &str| cut(&one_line(question), SHOWN_CHARS);
        Err(Usage::new(format!(
            "{}: the result {} is of another question (\"{}\", not \"{}\"): give questions an `id` that stays, or \
             another file",
            self.results_file().display(),
            result.id,
            shown(&result.question),
            shown(&question.question)
        )))
    }

    /// Refuses a result of another model or of other settings. A line without them is an older one.
    fn check_provenance(&self, done: &Finished, now: &Provenance) -> Result<(), Usage> {
        if self.resume == Some(Resume::Any) {
            return Ok(());
        }
        let has_another = |result: &&RunResult| result.provenance.as_ref().is_some_and(|made| made != now);
        let others = done.results.values().filter(has_another);
        // The first by its id, so that the error stays the same.
        let Some(other) = others.min_by_key(|result| &result.rollout.id) else { return Ok(()) };
        let made = other.provenance.clone().unwrap_or_default();
        let what = if made.model != now.model {
            format!("of another model ({}, not {})", made.model, now.model)
        } else if made.sub_model != now.sub_model {
            format!("of another sub-model ({}, not {})", made.sub_model, now.sub_model)
        } else {
            let (made, now) = (made.settings, &now.settings);
            format!("of other settings (digest {made}, not {now}; `rlm config` shows those in force)")
        };
        let (file, id) = (self.results_file().display(), &other.rollout.id);
        Err(Usage::new(format!(
            "{file}: the result {id} is {what}: give another file, or --resume=any to have both in one"
        )))
    }

    fn results_file(&self) -> &Path {
        self.results.as_ref().map_or(Path::new(""), |(path, _)| path)
    }
}

/// All attempts: the first at each question, then the second at each, …
fn attempts(questions: &[Arc<Question>], attempts: usize) -> impl Iterator<Item = Attempt> {
    let of_number =
        |number| questions.iter().map(move |question| Attempt { number, question: question.clone() });
    (1..=attempts).flat_map(of_number)
}

/// Finds the attempts of a batch by their ids.
struct Places<'a> {
    questions: HashMap<&'a str, usize>,
    attempts: usize,
}

/// An attempt's number, and its question's index: attempts run in this order.
type Place = (usize, usize);

impl<'a> Places<'a> {
    fn new(questions: &'a [Arc<Question>], attempts: usize) -> Self {
        let ids = questions.iter().enumerate().map(|(index, question)| (question.id.as_str(), index));
        Self { questions: ids.collect(), attempts }
    }

    fn of(&self, id: &str) -> Option<Place> {
        let (question, number) = id.rsplit_once('-')?;
        let number = number.parse().ok().filter(|number| (1..=self.attempts).contains(number))?;
        Some((number, *self.questions.get(question)?))
    }

    /// The results of attempts of this batch.
    fn in_order<'b>(&self, done: &'b Finished) -> BTreeMap<Place, &'b RunResult> {
        done.results.iter().filter_map(|(id, result)| Some((self.of(id)?, result))).collect()
    }
}

/// An attempt at a question.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// From 1.
    number: usize,
    question: Arc<Question>,
}

impl Attempt {
    fn id(&self) -> String {
        format!("{}-{}", self.question.id, self.number)
    }

    /// Its rollout: the template with its own id, question and context.
    fn rollout(&self, template: &RolloutConfig) -> RolloutConfig {
        let own = self.question.context.as_ref();
        RolloutConfig {
            id: self.id(),
            question: self.question.question.clone(),
            context: own.unwrap_or(&template.context).clone(),
            ..template.clone()
        }
    }
}

fn open(
    results: Option<&(PathBuf, Option<Keep>)>,
    sync: Option<SyncFile>,
    are_events: bool,
) -> anyhow::Result<(Results, Finished)> {
    match results.map(|(path, keep)| (path.as_path(), keep)) {
        None if are_events => Ok((Results::Events, Finished::default())),
        None => Ok((Results::StandardOutput, Finished::default())),
        Some((path, None)) => Ok((Results::create(path, sync)?, Finished::default())),
        Some((path, Some(keep))) => Results::resume(path as &Path, *keep, sync),
    }
}

/// The end of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
struct BatchEnd {
    started: usize,
    /// The exit status for the signal that ended it.
    by_signal: Option<u8>,
}

/// Runs up to `jobs` rollouts at once and passes each result to `take`. If `take` or `next_attempt` fails, all rollouts are
/// cancelled. `next_attempt` must be cancel-safe.
async fn run_all(
    runner: &Arc<impl RunAttempt>,
    mut next_attempt: impl AsyncFnMut() -> anyhow::Result<Option<Attempt>>,
    jobs: usize,
    mut next_request: impl AsyncFnMut() -> Request,
    progress: &BatchProgress,
    mut take: impl FnMut(&RunResult) -> anyhow::Result<()>,
) -> anyhow::Result<BatchEnd> {
    let control = Control::new();
    let mut running = JoinSet::new();
    let mut ended = BatchEnd::default();
    let (mut is_stopping, mut failed) = (false, None);
    while !(is_stopping && running.is_empty()) {
        tokio::select! {
            attempt = next_attempt(), if !is_stopping && running.len() < jobs => match attempt {
                Ok(Some(attempt)) => {
                    let (runner, control) = (runner.clone(), control.clone());
                    running.spawn(async move { runner.run_attempt(attempt, &control).await });
                    ended.started += 1;
                }
                Ok(None) => is_stopping = true,
                Err(error) => {
                    failed = Some(error);
                    is_stopping = true;
                    control.cancel();
                }
            },
            Some(joined) = running.join_next() => {
                progress.ended(joined.as_ref().ok().map(|result| result.rollout.stop_reason));
                if let Ok(RolloutResult { stop_reason: StopReason::Stopped, error: Some(error), .. }) =
                    joined.as_ref().map(|result| &result.rollout)
                    && !is_stopping
                {
                    progress.say(format!("starting no more rollouts: {error}"));
                    is_stopping = true;
                }
                let taken = match joined {
                    Err(error) if error.is_cancelled() => continue,
                    joined => joined.map_err(anyhow::Error::from).and_then(|result| take(&result)),
                };
                if let Err(error) = taken && failed.is_none() {
                    failed = Some(error);
                    is_stopping = true;
                    control.cancel();
                }
            }
            request = next_request() => match request {
                Request::Stop => {
                    progress.say("starting no more rollouts, stopping the running ones; Ctrl-C again ends at once");
                    is_stopping = true;
                    control.stop();
                }
                Request::Cancel(status) if ended.by_signal.is_none() => {
                    ended.by_signal = Some(status);
                    is_stopping = true;
                    control.cancel();
                }
                Request::Cancel(_) => running.abort_all(),
            }
        }
    }
    failed.map_or(Ok(ended), Err)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rlm_env::Context;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::evaluation::result;

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
        fn run_attempt<'a>(
            &'a self,
            attempt: Attempt,
            _control: &'a Control,
        ) -> Pin<Box<dyn Future<Output = RunResult> + Send + 'a>> {
            Box::pin(async move {
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
            })
        }
    }

    fn question(id: &str, question: &str, context: Option<Context>) -> Arc<Question> {
        let (id, question) = (id.to_owned(), question.to_owned());
        Arc::new(Question { id, place: None, question, context, expected: None, metadata: None })
    }

    fn first_attempts(questions: &[&str]) -> impl AsyncFnMut() -> anyhow::Result<Option<Attempt>> {
        let named = (1..).zip(questions);
        let mut attempts = named.map(|(id, text): (u32, _)| Attempt {
            number: 1,
            question: question(&id.to_string(), text, None),
        });
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
        let rollouts = attempts(&questions, 2).map(|attempt| attempt.rollout(&template));
        let made: Vec<_> = rollouts.map(|rollout| (rollout.id, rollout.question, rollout.context)).collect();
        let expected = [
            ("a-1", "a?", text("shared")),
            ("b-1", "b?", text("own")),
            ("a-2", "a?", text("shared")),
            ("b-2", "b?", text("own")),
        ];
        assert_eq!(
            made,
            expected.map(|(id, question, context)| (id.to_owned(), question.to_owned(), context))
        );
        let places = Places::new(&questions, 2);
        let ids = ["a-1", "b-1", "a-2", "b-2", "a-0", "a-3", "c-1", "a", "a-x"];
        assert_eq!(
            ids.map(|id| places.of(id)),
            [Some((1, 0)), Some((1, 1)), Some((2, 0)), Some((2, 1)), None, None, None, None, None]
        );
    }
}
