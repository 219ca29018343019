//! The results of a batch: JSON lines, each appended when its rollout has ended.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rlm_env::{RolloutResult, StopReason};

use crate::run::is_failure;
use crate::usage::Usage;

/// Where results go.
#[derive(Debug)]
pub(super) enum Results {
    StandardOutput,
    File { file: File, path: PathBuf },
}

/// What a file has already.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Ids of rollouts that have ended.
    pub(super) ids: HashSet<String>,
    /// What a person should know of the file.
    pub(super) notices: Vec<String>,
}

/// Which results of a file stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Those of rollouts that were not stopped or cancelled.
    Ended,
    /// Of these, those without a failure.
    Sound,
}

impl Results {
    /// Opens a file that has no results yet.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = open(path)?;
        let metadata = file.metadata().with_context(|| format!("cannot use {}", path.display()))?;
        if metadata.is_file() && metadata.len() > 0 {
            let path = path.display();
            return Err(Usage::new(format!("{path} has results already: --resume goes on with them")).into());
        }
        Ok(Self::File { file, path: path.to_owned() })
    }

    /// Opens a file that may have results. A last line that was cut off is taken away, and so are results that do not
    /// stand.
    pub(super) fn resume(path: &Path, keep: Keep) -> anyhow::Result<(Self, Done)> {
        let mut file = open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
        let (kept, done) = sift(&bytes, path, keep)?;
        if kept != bytes {
            rewrite(&mut file, &bytes, &kept).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok((Self::File { file, path: path.to_owned() }, done))
    }

    /// Appends a result as one whole line.
    pub(super) fn append(&mut self, result: &RolloutResult) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(result)?;
        line.push(b'\n');
        match self {
            Self::StandardOutput => {
                let mut output = std::io::stdout().lock();
                output
                    .write_all(&line)
                    .and_then(|()| output.flush())
                    .context("cannot write to standard output")
            }
            Self::File { file, path } => {
                append(file, &line).with_context(|| format!("cannot write the results to {}", path.display()))
            }
        }
    }
}

/// Opens a file and keeps other batches from it.
fn open(path: &Path) -> anyhow::Result<File> {
    let cannot = || format!("cannot write the results to {}", path.display());
    let file = OpenOptions::new().read(true).append(true).create(true).open(path).with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Usage::new(format!("{} is being written by another batch", path.display())).into())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(cannot),
    }
}

/// Appends a line, or nothing.
fn append(file: &mut File, line: &[u8]) -> std::io::Result<()> {
    let length = file.seek(SeekFrom::End(0));
    file.write_all(line).inspect_err(|_| {
        if let Ok(length) = length {
            // What is left of the line is repaired by the next batch that goes on here.
            let _cut_off = file.set_len(length);
        }
    })
}

/// Puts other lines into a file. They are its own with some taken out, so that nothing is lost where this ends halfway but
/// what the notices name.
fn rewrite(file: &mut File, old: &[u8], new: &[u8]) -> std::io::Result<()> {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let from = new[..same].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    file.set_len(u64::try_from(from).expect("a length fits"))?;
    file.write_all(&new[from..])?;
    file.sync_data()
}

/// The lines that stand, and what they are.
fn sift(bytes: &[u8], path: &Path, keep: Keep) -> Result<(Vec<u8>, Done), Usage> {
    let (mut kept, mut done, mut again) = (Vec::with_capacity(bytes.len()), Done::default(), 0);
    let mut lines = (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')).peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<RolloutResult>(line) {
            Ok(result) if stands(result.stop_reason, keep) => {
                kept.extend_from_slice(line.trim_ascii_end());
                kept.push(b'\n');
                if !done.ids.insert(result.id.clone()) {
                    let (path, id) = (path.display(), result.id);
                    return Err(Usage::new(format!("{path}:{number}: the id `{id}` is there twice")));
                }
            }
            Ok(_) => again += 1,
            Err(_) if lines.peek().is_none() && !line.ends_with(b"\n") => {
                done.notices
                    .push(format!("the last line of {} was cut off, and is taken away", path.display()));
            }
            Err(error) => {
                return Err(Usage::new(format!("{}:{number}: this is no result: {error}", path.display())));
            }
        }
    }
    if again > 0 {
        let results = if again == 1 { "1 result is".to_owned() } else { format!("{again} results are") };
        done.notices.push(format!("{results} taken out of {}, and run again", path.display()));
    }
    Ok((kept, done))
}

fn stands(reason: StopReason, keep: Keep) -> bool {
    let has_ended = !matches!(reason, StopReason::Stopped | StopReason::Cancelled);
    has_ended && (keep == Keep::Ended || !is_failure(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::result;

    fn line(id: &str, reason: StopReason) -> String {
        serde_json::to_string(&result(id, reason, Some("a"))).unwrap() + "\n"
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.jsonl");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn ids(done: &Done) -> Vec<&str> {
        let mut ids: Vec<_> = done.ids.iter().map(String::as_str).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn results_are_appended_to_what_the_file_has() {
        let (_dir, path) = file("");
        let mut results = Results::create(&path).unwrap();
        results.append(&result("1-1", StopReason::Answered, Some("a"))).unwrap();
        drop(results);
        let refused = Results::create(&path).unwrap_err();
        assert!(refused.is::<Usage>());
        assert_eq!(
            refused.to_string(),
            format!("{} has results already: --resume goes on with them", path.display())
        );
        let (mut results, done) = Results::resume(&path, Keep::Ended).unwrap();
        assert_eq!((ids(&done), done.notices.len()), (vec!["1-1"], 0));
        results.append(&result("1-2", StopReason::MaxTurns, Some("a"))).unwrap();
        let both = line("1-1", StopReason::Answered) + &line("1-2", StopReason::MaxTurns);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), both);
    }

    #[test]
    fn a_last_line_that_was_cut_off_anywhere_is_taken_away() {
        let (one, two) = (line("1", StopReason::Answered), line("2", StopReason::Answered));
        for cut in 0..two.len() - 1 {
            let bytes = (one.clone() + &two[..cut]).into_bytes();
            let (kept, done) = sift(&bytes, Path::new("r.jsonl"), Keep::Ended).unwrap();
            assert_eq!((kept.as_slice(), ids(&done)), (one.as_bytes(), vec!["1"]), "{cut}");
            assert_eq!(done.notices.len(), usize::from(cut > 0));
        }
        let (_dir, path) = file(&(one.clone() + &two[..20]));
        let (_, done) = Results::resume(&path, Keep::Ended).unwrap();
        assert_eq!(
            done.notices,
            [format!("the last line of {} was cut off, and is taken away", path.display())]
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), one);
        let (_dir, path) = file(&(one.clone() + two.trim_end()));
        let (_, done) = Results::resume(&path, Keep::Ended).unwrap();
        assert_eq!((ids(&done), done.notices.len()), (vec!["1", "2"], 0), "it lacks its newline alone");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), one + &two);
    }

    #[test]
    fn what_did_not_end_by_itself_is_run_again() {
        let reasons =
            [StopReason::Answered, StopReason::Stopped, StopReason::ModelFailed, StopReason::Cancelled];
        let text: String = (1..).zip(reasons).map(|(id, reason)| line(&id.to_string(), reason)).collect();
        let (_dir, path) = file(&text);
        let (_, done) = Results::resume(&path, Keep::Ended).unwrap();
        assert_eq!(ids(&done), ["1", "3"]);
        let notice = format!("2 results are taken out of {}, and run again", path.display());
        assert_eq!(done.notices, [notice]);
        let (_, done) = Results::resume(&path, Keep::Sound).unwrap();
        assert_eq!(ids(&done), ["1"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), line("1", StopReason::Answered));
    }

    #[test]
    fn a_file_that_holds_something_else_is_left_as_it_is() {
        let text = "{\"id\": 1}\n".to_owned() + &line("1", StopReason::Answered);
        let (_dir, path) = file(&text);
        let error = Results::resume(&path, Keep::Ended).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}:1: this is no result: ", path.display())), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        let (_dir, path) = file(&line("1", StopReason::Answered).repeat(2));
        let error = Results::resume(&path, Keep::Ended).unwrap_err().to_string();
        assert!(error.ends_with(":2: the id `1` is there twice"), "{error}");
    }

    #[test]
    fn two_batches_do_not_share_a_file() {
        let (_dir, path) = file("");
        let _first = Results::create(&path).unwrap();
        let error = Results::create(&path).unwrap_err().to_string();
        assert_eq!(error, format!("{} is being written by another batch", path.display()));
    }
}
