//! `rlm conformance`: checks the promises of `docs/protocol.md` against any worker.

mod cases;
mod check;
mod host;
mod snippets;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rlm_env::ReplLanguage;
use rlm_env::unstable::PrivateDir;
use serde_json::json;

use self::cases::{Case, Needs};
use self::check::{Check, Fault, fault};
use self::host::{DIR, Stand};
use self::snippets::Snippets;
use crate::arguments::ConformanceOptions;
use crate::usage::Usage;

/// Exit status if a case failed.
const FAILED: u8 = 1;

pub(crate) fn run(options: &ConformanceOptions) -> anyhow::Result<ExitCode> {
    let filter = options.filter.as_deref().unwrap_or_default();
    let cases: Vec<Case> = cases::all().filter(|case| case.id.contains(filter)).collect();
    if cases.is_empty() {
        return Err(Usage::new(format!("no case has `{filter}` in its name: see --list")).into());
    }
    if options.list {
        return list(&cases, options.json);
    }
    if !options.command.iter().any(|word| word.to_string_lossy().contains(DIR)) {
        let message = format!("the command has no `{DIR}`: it stands for the control directory of each case");
        return Err(Usage::new(message).into());
    }
    let private = PrivateDir::create().context("cannot make a directory for temporary files")?;
    let mut suite = Suite {
        command: &options.command,
        parent: private.path(),
        time_limit: options.timeout,
        language: options.language,
    };
    if suite.language.is_none() {
        match suite.ask_for_language() {
            Ok(language) => suite.language = Some(language),
            Err(Fault { expected, seen }) => crate::tell(format_args!(
                "rlm: the worker's language is not known: expected {expected}, seen: {seen}"
            )),
        }
    }
    let mut report = Report { json: options.json, passed: 0, failed: 0, skipped: 0 };
    suite
        .run_all(&cases, usize::from(options.jobs), |case, verdict, took| report.add(case, verdict, took))?;
    report.finish()?;
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn list(cases: &[Case], as_json: bool) -> anyhow::Result<ExitCode> {
    let mut output = std::io::stdout().lock();
    for case in cases {
        let (id, section, promise) = (case.id, case.section, case.promise);
        match as_json {
            true => writeln!(output, "{}", json!({"id": id, "section": section, "promise": promise}))?,
            false => writeln!(output, "{id}\n    {promise} ({section})")?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The end of a case.
#[derive(Debug)]
enum Verdict {
    Passed,
    Failed(Fault),
    /// Not run, for this reason.
    Skipped(String),
}

#[derive(Debug)]
struct Suite<'a> {
    command: &'a [OsString],
    /// The directory for the directories of cases.
    parent: &'a Path,
    /// Time limit of a case.
    time_limit: Duration,
    /// The worker's language, if it is known.
    language: Option<ReplLanguage>,
}

impl Suite<'_> {
    /// Asks a worker by op `info`.
    fn ask_for_language(&self) -> Check<ReplLanguage> {
        // No code is run.
        let stand = self.stand(Snippets::of(ReplLanguage::Bash))?;
        let language = cases::info(&mut stand.start()?)?["language"].clone();
        let known = language.as_str().and_then(|name| name.parse().ok());
        known.map_or_else(|| fault("the language bash or python", &language), Ok)
    }

    fn stand<'a>(&'a self, code: &'a Snippets) -> Check<Stand<'a>> {
        host::or_fault(
            "a directory for the case",
            Stand::new(self.command, code, self.parent, self.time_limit),
        )
    }

    /// Runs cases, some at once, and reports each in their order.
    fn run_all(
        &self,
        cases: &[Case],
        jobs: usize,
        mut report: impl FnMut(&Case, &Verdict, Duration) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let left = Mutex::new(cases.iter().enumerate());
        let (sender, ended) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                let (left, sender) = (&left, sender.clone());
                scope.spawn(move || {
                    while let Some((at, case)) = next(left) {
                        let begun = Instant::now();
                        let verdict = self.run(case);
                        // The report has failed: nobody wants it any more.
                        if sender.send((at, verdict, begun.elapsed())).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let (mut waiting, mut shown) = (BTreeMap::new(), 0);
            for (at, verdict, took) in ended {
                waiting.insert(at, (verdict, took));
                while let Some((verdict, took)) = waiting.remove(&shown) {
                    report(&cases[shown], &verdict, took)?;
                    shown += 1;
                }
            }
            Ok(())
        })
    }

    fn run(&self, case: &Case) -> Verdict {
        let language = match (case.needs, self.language) {
            // The case runs no code.
            (Needs::Nothing, _) => ReplLanguage::Bash,
            (_, None) => {
                return Verdict::Skipped("the worker's language is not known: give --language".to_owned());
            }
            (Needs::Only(only), Some(language)) if only != language => {
                return Verdict::Skipped(format!("for {only} only"));
            }
            (_, Some(language)) => language,
        };
        match self.stand(Snippets::of(language)).and_then(|stand| case.run.on(&stand)) {
            Ok(()) => Verdict::Passed,
            Err(fault) => Verdict::Failed(fault),
        }
    }
}

fn next<T>(left: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    left.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// Prints the cases as they end, and counts them.
#[derive(Debug)]
struct Report {
    json: bool,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Report {
    fn add(&mut self, case: &Case, verdict: &Verdict, took: Duration) -> std::io::Result<()> {
        *match verdict {
            Verdict::Passed => &mut self.passed,
            Verdict::Failed(_) => &mut self.failed,
            Verdict::Skipped(_) => &mut self.skipped,
        } += 1;
        let (id, section, promise) = (case.id, case.section, case.promise);
        let mut output = std::io::stdout().lock();
        if self.json {
            let mut line =
                json!({"id": id, "section": section, "promise": promise, "seconds": took.as_secs_f64()});
            match verdict {
                Verdict::Passed => line["result"] = "passed".into(),
                Verdict::Failed(Fault { expected, seen }) => {
                    line["result"] = "failed".into();
                    line["expected"] = expected.as_str().into();
                    line["seen"] = seen.as_str().into();
                }
                Verdict::Skipped(reason) => {
                    line["result"] = "skipped".into();
                    line["reason"] = reason.as_str().into();
                }
            }
            return writeln!(output, "{line}");
        }
        match verdict {
            Verdict::Passed => writeln!(output, "ok      {id}"),
            Verdict::Skipped(reason) => writeln!(output, "skipped {id}: {}", crate::text::visible(reason)),
            Verdict::Failed(Fault { expected, seen }) => writeln!(
                output,
                "FAILED  {id}\n    promise: {promise} (docs/protocol.md, {section})\n    expected: {}\n    seen: {}",
                crate::text::visible(expected),
                crate::text::visible(seen)
            ),
        }
    }

    fn finish(&self) -> std::io::Result<()> {
        if self.json {
            return Ok(());
        }
        let Self { passed, failed, skipped, .. } = self;
        let all = passed + failed + skipped;
        writeln!(std::io::stdout(), "{all} cases: {passed} passed, {failed} failed, {skipped} skipped")
    }
}
