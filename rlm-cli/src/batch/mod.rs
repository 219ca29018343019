//! Many rollouts: questions, attempts, results, and a summary.

mod attempts;
mod beginnings;
mod feed;
mod kept;
mod plan;
mod questions;
mod results;
mod run_all;
mod runner;
mod summary;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use rlm_core::error::with_causes;
use rlm_core::text::{cut, one_line};
use rlm_env::{Host, HostConfig, RolloutResult};
use rlm_rootd::{Budget, Ledger};

use self::attempts::{Place, Places, attempts};
use self::beginnings::Beginnings;
pub(crate) use self::feed::Feed;
pub(crate) use self::plan::Plan;
use self::questions::Question;
use self::results::{Finished, Keep, Results, SYNC, SyncFile};
use self::run_all::run_all;
use self::runner::Runner;
use self::summary::Summary;
pub(crate) use self::summary::percentiles;
use crate::arguments::{BatchOptions, Resume};
use crate::environment::Environment;
use crate::evaluation::{Provenance, RunResult, Scorer};
use crate::rollouts::{BatchProgress, Events, Requests, Setup, close};
use crate::runs::Record;
use crate::usage::{Usage, refuse};
use crate::warnings::Warnings;

/// Characters of a question in an error.
const SHOWN_CHARS: usize = 60;

/// Contexts in an error.
const SHOWN_ERRORS: usize = 3;

/// Rollouts at once by default.
const JOBS: usize = 4;

/// A batch to run.
#[derive(Debug)]
pub(crate) struct Batch {
    questions: Vec<Arc<Question>>,
    attempts: usize,
    jobs: usize,
    /// The file for results, and which of its results to keep. None: standard output.
    results: Option<(PathBuf, Option<Keep>)>,
    /// The results to go on from.
    resume: Option<Resume>,
    /// Saves results to the disk. None leaves that to the system.
    sync: Option<SyncFile>,
    /// The most that all rollouts may cost, in USD.
    max_cost: Option<f64>,
    scorer: Scorer,
    /// The turns that the attempts at a question share.
    branch_at: Option<u32>,
}

impl Batch {
    /// Reports what the batch would run. Changes nothing.
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
            branch_at: options.branch_at.map(u32::from),
        })
    }

    /// Checks that the contexts of questions can be opened. `require_shared` refuses a question without a context, by its place.
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

    /// Runs the batch until every rollout has ended or a signal ends it.
    pub(crate) async fn run(
        self,
        Setup { host, rollout: mut template, provenance, .. }: Setup,
        mut requests: Requests,
        draws: Option<&Warnings>,
        events: Option<Arc<Events>>,
        record: Option<Record>,
    ) -> anyhow::Result<ExitCode> {
        if self.branch_at.is_some() && template.messages_in_context {
            refuse!(
                "--branch-at cannot be had with messages_in_context: the conversation is a file of the directory then"
            );
        }
        let begun = Instant::now();
        let (mut results, done) = open(self.results.as_ref(), self.sync, events.is_some())?;
        template.shared_ledger = self.ledger(&host, done.results.values().map(|done| &done.rollout));
        let before = self.results_before(&done, &provenance)?;
        let host = Host::start(host).await?;
        let mut notices = done.notices.clone();
        if let (Some((_, Some(_))), Some(keep)) = (&self.results, &template.keep) {
            let places = Places::new(&self.questions, self.attempts);
            // Includes the rollouts that an attempt has started.
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
        let attempts = attempts(&self.questions, self.attempts, self.branch_at.is_some())
            .filter(|attempt| !done.results.contains_key(&attempt.id()));
        let mut attempts = attempts.map(Ok);
        let beginnings = self.branch_at.map(|turns| Beginnings::new(turns, self.attempts));
        let runner = Arc::new(Runner { host, template, provenance, scorer: self.scorer, beginnings });
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
        let ran_once = runner.beginnings.as_ref().map(|beginnings| {
            summary.shared_costs.push(beginnings.cost_usd());
            beginnings.text(summary.rollouts.len())
        });
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
        if let Some(ran_once) = ran_once {
            crate::tell(ran_once);
        }
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
        refuse!(
            "{}: the result {} is of another question (\"{}\", not \"{}\"): give questions an `id` that stays, or \
             another file",
            self.results_file().display(),
            result.id,
            shown(&result.question),
            shown(&question.question)
        )
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
        refuse!("{file}: the result {id} is {what}: give another file, or --resume=any to have both in one")
    }

    fn results_file(&self) -> &Path {
        self.results.as_ref().map_or(Path::new(""), |(path, _)| path)
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

#[cfg(test)]
mod tests;
