//! Attempts that come while others run: lines on standard input, from a program that decides what runs here.

use std::io::BufRead as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use rlm_core::env::LEDGER_SECRET;
use rlm_env::Host;
use rlm_rootd::{Budget, Ledger, RemoteLedger};
use tokio::sync::mpsc::{Sender, channel};

use super::attempts::Attempt;
use super::run_all::run_all;
use super::runner::Runner;
use super::{JOBS, questions};
use crate::arguments::BatchOptions;
use crate::environment::Environment;
use crate::evaluation::Scorer;
use crate::rollouts::{BatchProgress, Events, Requests, Setup, close};
use crate::usage::Usage;

/// A batch whose attempts come on standard input.
#[derive(Debug)]
pub(crate) struct Feed {
    jobs: usize,
    scorer: Scorer,
    /// The ledger of all rollouts, in another program.
    ledger: Option<Arc<RemoteLedger>>,
}

impl Feed {
    pub(crate) fn new(options: &BatchOptions, environment: &Environment) -> Result<Self, Usage> {
        let scorer = Scorer::unchecked(options.score.as_ref(), environment)?;
        let secret = environment.text(LEDGER_SECRET)?;
        let remote = |url: &String| RemoteLedger::new(url, secret);
        let ledger = options.ledger.as_ref().map(remote).transpose();
        let ledger = ledger.map_err(|reason| Usage::new(format!("--ledger: {reason}")))?;
        Ok(Self { jobs: options.jobs.map_or(JOBS, usize::from), scorer, ledger })
    }

    /// Runs attempts until standard input and all rollouts have ended, or a signal ends it.
    pub(crate) async fn run(
        self,
        setup: Setup,
        mut requests: Requests,
        events: Arc<Events>,
    ) -> anyhow::Result<ExitCode> {
        let Setup { host, rollout: mut template, provenance, .. } = setup;
        let in_front =
            |remote| Arc::new(Ledger::new(Budget::default(), host.prices.clone()).within_remote(remote));
        let ledger = self.ledger.map(in_front);
        template.shared_ledger = ledger.clone();
        let host = Host::start(host).await?;
        let runner = Arc::new(Runner { host, template, provenance, scorer: self.scorer, beginnings: None });
        let (sender, mut attempts) = channel(1);
        // The thread ends with the process at the latest.
        thread::Builder::new()
            .name("rlm-feed".to_owned())
            .spawn(move || read(&sender))
            .context("no threads can be started")?;
        let progress = BatchProgress::new(0, None);
        let take = |result: &_| {
            events.result(result);
            Ok(())
        };
        let next = async || attempts.recv().await.transpose();
        let ran = run_all(&runner, next, self.jobs, async || requests.next().await, &progress, take).await;
        if let Ok(runner) = Arc::try_unwrap(runner) {
            close(runner.host).await;
        }
        if let Some(ledger) = ledger {
            ledger.settled().await;
        }
        let ended = ran?;
        events.finish(&mut requests).await?;
        Ok(ended.by_signal.map_or(ExitCode::SUCCESS, ExitCode::from))
    }
}

/// Sends the attempt of each line, the next one when there is room for it.
fn read(attempts: &Sender<anyhow::Result<Attempt>>) {
    for (number, line) in (1..).zip(std::io::stdin().lock().lines()) {
        let attempt = line.context("cannot read the attempts from standard input").and_then(|line| {
            let (number_of_attempt, question) = questions::attempt(&line, number, Path::new(""))?;
            Ok(Attempt { number: number_of_attempt, question: Arc::new(question) })
        });
        let is_wrong = attempt.is_err();
        if attempts.blocking_send(attempt).is_err() || is_wrong {
            return;
        }
    }
}
