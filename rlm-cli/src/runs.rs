//! The record of runs: the trajectory of each, below the state directory, and a line about it.
//!
//! | name | what |
//! | --- | --- |
//! | `ID.jsonl` | the trajectory |
//! | `ID.json` | a [`Run`], once it has ended |

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use chrono::{DateTime, Local};
use rlm_core::ids::is_rollout_id;
use rlm_core::text::{counted, cut, one_line};
use rlm_env::rollout::Metrics;
use rlm_env::trajectory::{Event, Line, Writer, images_dir, read};
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::files::write_private;
use crate::rollouts::money;
use crate::standard_output::print;
use crate::tell;
use crate::text::visible;
use crate::tokens::TokenParts;
use crate::usage::Usage;

/// Most bytes of all records together.
const MAX_BYTES: u64 = 1 << 30;

/// A run that has written nothing for so long was killed.
const LONGEST_SILENCE: Duration = Duration::from_hours(24);

/// Characters of a question in the list.
const QUESTION_CHARS: usize = 60;

/// The directory of the records.
#[derive(Clone, Debug)]
pub(crate) struct Runs(PathBuf);

/// The outcome of a run.
#[derive(Debug, Deserialize, Serialize)]
struct Run {
    /// The question, or the first one.
    question: String,
    rollouts: u64,
    answered: u64,
    turns: u64,
    tokens: u64,
    #[serde(flatten)]
    parts: TokenParts,
    cost_usd: Option<f64>,
    seconds: f64,
}

/// A run that is being recorded.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) writer: Arc<Writer>,
    dir: PathBuf,
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl Runs {
    /// `$XDG_STATE_HOME/rlm/runs`, by default under `~/.local/state`; None without a home.
    pub(crate) fn of(environment: &Environment) -> Option<Self> {
        Some(Self(environment.state_dir()?.join("runs")))
    }

    /// Begins to record a run, and removes the oldest records beyond so many.
    pub(crate) fn record(&self, id: &str, most: usize) -> io::Result<Record> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let (mut bytes, mut kept) = (0_u64, 1);
        for held in self.newest_first()? {
            (bytes, kept) = (bytes.saturating_add(held.bytes), kept + 1);
            if (kept > most || bytes > MAX_BYTES) && held.may_go() {
                self.remove(&held.id);
            }
        }
        // An id that is given again stands for the later run.
        self.remove(id);
        let writer = Arc::new(Writer::append(&self.trajectory(id))?);
        Ok(Record { id: id.to_owned(), writer, dir: self.0.clone() })
    }

    fn remove(&self, id: &str) {
        let trajectory = self.trajectory(id);
        // Missing files were removed by another run at the same time.
        _ = fs::remove_dir_all(images_dir(&trajectory));
        for file in [trajectory, self.0.join(format!("{id}.json"))] {
            _ = fs::remove_file(file);
        }
    }

    /// The trajectory of a run.
    pub(crate) fn trajectory(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.jsonl"))
    }

    /// Reports whether a run has ended.
    pub(crate) fn has_ended(&self, id: &str) -> bool {
        self.0.join(format!("{id}.json")).exists()
    }

    /// The id of the run that a file is the trajectory of.
    pub(crate) fn id_of(&self, file: &Path) -> Option<String> {
        let id = file.file_stem()?.to_str()?;
        (self.trajectory(id) == file && is_rollout_id(id)).then(|| id.to_owned())
    }

    /// The latest run.
    pub(crate) fn latest(&self) -> anyhow::Result<PathBuf> {
        let newest = self.listed()?.into_iter().find(|run| run.bytes > 0);
        let newest = newest.ok_or_else(|| {
            Usage::new(format!("no run is recorded in {}: give the file of a trajectory", self.0.display()))
        })?;
        Ok(self.trajectory(&newest.id))
    }

    /// The ids of the runs with the outcome of each, the newest first; empty if they cannot be read.
    pub(crate) fn described(&self) -> Vec<(String, String)> {
        let held = self.listed().unwrap_or_default().into_iter().filter(|held| held.bytes > 0);
        held.map(|held| (held.id.clone(), self.words(&held))).collect()
    }

    /// A run in a line.
    fn words(&self, Held { id, time, .. }: &Held) -> String {
        let run = fs::read(self.0.join(format!("{id}.json"))).ok();
        let run: Option<Run> = run.and_then(|text| serde_json::from_slice(&text).ok());
        let time = DateTime::<Local>::from(*time).format("%Y-%m-%d %H:%M");
        let words = run.map_or("not ended".to_owned(), |run| run.words());
        format!("{id:<28} {time}  {words}")
    }

    /// The runs for a reader, the newest first: none where none was recorded yet.
    fn listed(&self) -> anyhow::Result<Vec<Held>> {
        match self.newest_first() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            all => all.with_context(|| format!("cannot read {}", self.0.display())),
        }
    }

    /// The outcomes of the latest recorded rollouts of this root model, at most so many. Records that cannot be read are left out.
    pub(crate) fn rollouts_of(&self, model: &str, most: usize) -> Vec<Metrics> {
        let mut found = Vec::new();
        for held in self.newest_first().unwrap_or_default() {
            if found.len() >= most {
                break;
            }
            let Ok(file) = fs::File::open(self.trajectory(&held.id)) else { continue };
            let mut of_model = HashSet::new();
            for line in read(BufReader::new(file)).map_while(Result::ok) {
                let Line::Entry(entry) = line else { continue };
                match entry.event {
                    Event::RolloutStarted(started) if started.model == model => {
                        of_model.insert(entry.rollout);
                    }
                    Event::RolloutEnded(ended) if of_model.contains(&entry.rollout) => {
                        found.push(ended.metrics)
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// All records. Files that are not ours are left out.
    fn newest_first(&self) -> io::Result<Vec<Held>> {
        let mut runs = BTreeMap::<String, Held>::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((id, suffix)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
            let Ok(metadata) = entry.metadata() else { continue };
            if !(is_rollout_id(id) && matches!(suffix, "jsonl" | "json") && metadata.is_file()) {
                continue;
            }
            let run = runs.entry(id.to_owned()).or_insert_with(|| Held::new(id));
            run.time = metadata.modified().unwrap_or(UNIX_EPOCH).max(run.time);
            match suffix {
                "jsonl" => run.bytes = metadata.blocks() * 512,
                _ => run.has_ended = true,
            }
        }
        let mut runs: Vec<_> = runs.into_values().collect();
        for run in &mut runs {
            let images = fs::read_dir(images_dir(&self.trajectory(&run.id))).into_iter().flatten().flatten();
            let images = images.filter_map(|image| image.metadata().ok());
            run.bytes += images.map(|metadata| metadata.blocks() * 512).sum::<u64>();
        }
        runs.sort_by(|one, other| (other.time, &other.id).cmp(&(one.time, &one.id)));
        Ok(runs)
    }
}

/// The files of a run.
#[derive(Debug)]
struct Held {
    id: String,
    /// The time of the latest change.
    time: SystemTime,
    /// The size of the trajectory, or 0 without one.
    bytes: u64,
    has_ended: bool,
}

impl Held {
    fn new(id: &str) -> Self {
        Self { id: id.to_owned(), time: UNIX_EPOCH, bytes: 0, has_ended: false }
    }

    /// True unless the run may still be running.
    fn may_go(&self) -> bool {
        self.has_ended || self.time.elapsed().is_ok_and(|age| age > LONGEST_SILENCE)
    }
}

impl Record {
    /// Ends the record, with the outcome of its rollouts.
    pub(crate) fn end(self, question: &str, rollouts: &[Metrics], answered: u64, time: Duration) {
        let run = Run {
            question: question.to_owned(),
            rollouts: rollouts.len() as u64,
            answered,
            turns: rollouts.iter().map(|one| one.root_llm_turns).sum(),
            tokens: rollouts.iter().map(tokens).fold(0, u64::saturating_add),
            parts: rollouts.iter().map(TokenParts::from).fold(TokenParts::default(), |mut sum, of| {
                sum.add(of);
                sum
            }),
            cost_usd: rollouts.iter().map(|one| one.cost_usd).sum(),
            seconds: time.as_secs_f64(),
        };
        let text = serde_json::to_vec(&run).expect("a run can be JSON");
        if let Err(error) = write_private(&self.dir.join(format!("{}.json", self.id)), &text) {
            tell(format_args!("rlm: the record of the run is not complete: {error}"));
        }
    }
}

/// All tokens of a rollout.
pub(crate) fn tokens(metrics: &Metrics) -> u64 {
    let of_root = metrics.root_llm_prompt_tokens.saturating_add(metrics.root_llm_completion_tokens);
    of_root.saturating_add(metrics.sub_llm_prompt_tokens).saturating_add(metrics.sub_llm_completion_tokens)
}

/// `rlm runs`: the list.
pub(crate) fn list(environment: &Environment) -> anyhow::Result<ExitCode> {
    let runs = Runs::of(environment).context("there is no home directory, so no runs are recorded")?;
    let lines = runs.listed()?.into_iter().map(|held| visible(&runs.words(&held)) + "\n");
    print(lines.collect::<String>()).map(|()| ExitCode::SUCCESS)
}

impl Run {
    fn words(&self) -> String {
        let answered = match (self.rollouts, self.answered) {
            (1, 1) => "answered".to_owned(),
            (1, _) => "not answered".to_owned(),
            (all, answered) => format!("{answered} of {all} answered"),
        };
        let cost = self.cost_usd.filter(|cost| *cost > 0.0).map(|cost| format!(", {}", money(cost)));
        let question = cut(&one_line(&self.question), QUESTION_CHARS);
        let (turns, cost) = (counted(self.turns, "turn"), cost.unwrap_or_default());
        let tokens = counted(self.tokens, "token") + &self.parts.of_all();
        format!("{answered:<14} {turns}, {tokens}, {:.1} s{cost}  {question}", self.seconds)
    }
}

/// The file that `rlm view` shows: one that is given, a recorded run of this id, or the latest run.
pub(crate) fn file_or_run(given: Option<&Path>, environment: &Environment) -> anyhow::Result<PathBuf> {
    let runs = Runs::of(environment);
    let Some(given) = given else {
        let runs = runs.ok_or_else(|| {
            Usage::new("give the file of a trajectory: no runs are recorded without a home")
        })?;
        return runs.latest();
    };
    let id = given.to_str().filter(|id| is_rollout_id(id) && !given.exists() && *id != "-");
    let Some(id) = id else { return Ok(given.to_owned()) };
    let of_run = runs.map(|runs| runs.trajectory(id)).filter(|of_run| of_run.is_file());
    of_run
        .with_context(|| format!("{id}: there is no such file, and no run of this id: `rlm runs` lists them"))
}
