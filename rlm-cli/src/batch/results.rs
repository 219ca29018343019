//! The results of a batch: JSON lines, each appended when its rollout has ended.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rlm_core::jsonl;
use rlm_env::{RolloutResult, StopReason};

use crate::run::is_failure;
use crate::usage::Usage;

/// The first bytes of a result.
const BEGINNING: &[u8] = b"{\"id\":\"";

/// The destination of results.
#[derive(Debug)]
pub(super) enum Results {
    StandardOutput,
    File {
        file: File,
        path: PathBuf,
        /// The file's bytes, and those that remain once results to run again are removed.
        to_remove: Option<(Vec<u8>, Vec<u8>)>,
    },
}

/// The results that a file has already.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Finished {
    /// Ids of rollouts that have ended.
    pub(super) ids: HashSet<String>,
    /// Messages about the file for the user.
    pub(super) notices: Vec<String>,
}

/// The results of a file that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Those of rollouts that were not stopped or cancelled.
    Ended,
    /// Those of rollouts that, in addition, did not fail.
    Sound,
}

impl Results {
    /// Opens a file that has no results yet.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = open(path)?;
        let metadata = file.metadata().with_context(|| format!("cannot use {}", path.display()))?;
        if metadata.is_file() && metadata.len() > 0 {
            let path = path.display();
            return Err(Usage::new(format!("{path} has results already: continue with --resume")).into());
        }
        Ok(Self::File { file, path: path.to_owned(), to_remove: None })
    }

    /// Opens a file that may have results. [`Self::remove_unkept`] then removes an incomplete last line and results that
    /// are not kept.
    pub(super) fn resume(path: &Path, keep: Keep) -> anyhow::Result<(Self, Finished)> {
        let mut file = open(path)?;
        let metadata = file.metadata().with_context(|| format!("cannot use {}", path.display()))?;
        if !metadata.is_file() {
            let path = path.display();
            return Err(Usage::new(format!("{path} is not a file: it has no results to resume")).into());
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
        let (kept, done) = parse(&bytes, path, keep)?;
        let to_remove = (kept != bytes).then_some((bytes, kept));
        Ok((Self::File { file, path: path.to_owned(), to_remove }, done))
    }

    /// Removes from the file the lines that are not kept.
    pub(super) fn remove_unkept(&mut self) -> anyhow::Result<()> {
        let Self::File { file, path, to_remove } = self else { return Ok(()) };
        let Some((bytes, kept)) = to_remove.take() else { return Ok(()) };
        rewrite(file, &bytes, &kept).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Appends a result as one whole line.
    pub(super) fn append(&mut self, result: &RolloutResult) -> anyhow::Result<()> {
        let line = jsonl::line(result)?;
        match self {
            Self::StandardOutput => {
                let mut output = std::io::stdout().lock();
                output
                    .write_all(&line)
                    .and_then(|()| output.flush())
                    .context("cannot write to standard output")
            }
            Self::File { file, path, .. } => jsonl::append(file, &line)
                .with_context(|| format!("cannot write the results to {}", path.display())),
        }
    }
}

/// Opens a file and locks it against other batches.
fn open(path: &Path) -> anyhow::Result<File> {
    let cannot = || format!("cannot write the results to {}", path.display());
    if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        return open_pipe(path).with_context(cannot);
    }
    let file = OpenOptions::new().read(true).append(true).create(true).open(path).with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Usage::new(format!("{} is being written by another batch", path.display())).into())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(cannot),
    }
}

/// Opens a pipe. It must have a reader: a pipe loses its bytes when its last end is closed.
fn open_pipe(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(|error| {
        match Errno::from_raw(error.raw_os_error().unwrap_or_default()) {
            Errno::ENXIO => std::io::Error::other("it is a pipe without a reader"),
            _ => error,
        }
    })?;
    fcntl(file.as_fd(), FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(file)
}

/// Rewrites a file with some of its lines removed. If this ends halfway, only results after the first removed line are
/// lost.
fn rewrite(file: &mut File, old: &[u8], new: &[u8]) -> std::io::Result<()> {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let from = new[..same].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    file.set_len(u64::try_from(from).expect("a length fits"))?;
    file.write_all(&new[from..])?;
    file.sync_data()
}

/// The lines that are kept, and the results in them.
fn parse(bytes: &[u8], path: &Path, keep: Keep) -> Result<(Vec<u8>, Finished), Usage> {
    let (mut kept, mut done, mut again) = (Vec::with_capacity(bytes.len()), Finished::default(), 0);
    let mut lines = (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')).peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<RolloutResult>(line) {
            Ok(result) if is_kept(result.stop_reason, keep) => {
                kept.extend_from_slice(line.trim_ascii_end());
                kept.push(b'\n');
                if !done.ids.insert(result.id.clone()) {
                    let (path, id) = (path.display(), result.id);
                    return Err(Usage::new(format!("{path}:{number}: the id `{id}` occurs twice")));
                }
            }
            Ok(_) => again += 1,
            Err(_) if lines.peek().is_none() && is_cut_off(line) => {
                done.notices
                    .push(format!("the last line of {} is incomplete, and is removed", path.display()));
            }
            Err(error) => {
                let (path, fault) = (path.display(), jsonl::fault(&error));
                return Err(Usage::new(format!("{path}:{number}: this is not a result: {fault}")));
            }
        }
    }
    if again > 0 {
        let results = if again == 1 { "1 result is".to_owned() } else { format!("{again} results are") };
        done.notices.push(format!("{results} removed from {}, and run again", path.display()));
    }
    Ok((kept, done))
}

/// Reports whether a line is the beginning of a result. Anything else is never removed.
fn is_cut_off(line: &[u8]) -> bool {
    let is_begun = line.starts_with(BEGINNING) || BEGINNING.starts_with(line);
    is_begun && !line.ends_with(b"\n") && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err()
}

fn is_kept(reason: StopReason, keep: Keep) -> bool {
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

    fn resume(path: &Path, keep: Keep) -> (Results, Finished) {
        let (mut results, done) = Results::resume(path, keep).unwrap();
        results.remove_unkept().unwrap();
        (results, done)
    }

    fn ids(done: &Finished) -> Vec<&str> {
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
            format!("{} has results already: continue with --resume", path.display())
        );
        let (mut results, done) = resume(&path, Keep::Ended);
        assert_eq!((ids(&done), done.notices.len()), (vec!["1-1"], 0));
        results.append(&result("1-2", StopReason::MaxTurns, Some("a"))).unwrap();
        let both = line("1-1", StopReason::Answered) + &line("1-2", StopReason::MaxTurns);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), both);
    }

    #[test]
    fn an_incomplete_last_line_is_removed() {
        let (one, two) = (line("1", StopReason::Answered), line("2", StopReason::Answered));
        for cut in 0..two.len() - 1 {
            let bytes = (one.clone() + &two[..cut]).into_bytes();
            let (kept, done) = parse(&bytes, Path::new("r.jsonl"), Keep::Ended).unwrap();
            assert_eq!((kept.as_slice(), ids(&done)), (one.as_bytes(), vec!["1"]), "{cut}");
            assert_eq!(done.notices.len(), usize::from(cut > 0));
        }
        let (_dir, path) = file(&(one.clone() + &two[..20]));
        let (_, done) = resume(&path, Keep::Ended);
        assert_eq!(
            done.notices,
            [format!("the last line of {} is incomplete, and is removed", path.display())]
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), one);
        let (_dir, path) = file(&(one.clone() + two.trim_end()));
        let (_, done) = resume(&path, Keep::Ended);
        assert_eq!((ids(&done), done.notices.len()), (vec!["1", "2"], 0), "only its newline is missing");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), one + &two);
    }

    #[test]
    fn rollouts_that_were_stopped_or_cancelled_are_run_again() {
        let reasons =
            [StopReason::Answered, StopReason::Stopped, StopReason::ModelFailed, StopReason::Cancelled];
        let text: String = (1..).zip(reasons).map(|(id, reason)| line(&id.to_string(), reason)).collect();
        let (_dir, path) = file(&text);
        let (_, done) = resume(&path, Keep::Ended);
        assert_eq!(ids(&done), ["1", "3"]);
        let notice = format!("2 results are removed from {}, and run again", path.display());
        assert_eq!(done.notices, [notice]);
        let (_, done) = resume(&path, Keep::Sound);
        assert_eq!(ids(&done), ["1"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), line("1", StopReason::Answered));
    }

    #[test]
    fn a_file_with_other_lines_is_refused_and_not_changed() {
        let result = line("1", StopReason::Answered);
        for (text, number) in [
            ("{\"id\": 1}\n".to_owned() + &result, 1),
            ("hello".to_owned(), 1),
            ("{\"question\": \"why?\"}".to_owned(), 1),
            ("{\"id\":\"1\",\"question\":\"why?\"}".to_owned(), 1),
            (result.clone() + "notes", 2),
        ] {
            let (_dir, path) = file(&text);
            let error = Results::resume(&path, Keep::Ended).unwrap_err();
            assert!(error.is::<Usage>());
            let expected = format!("{}:{number}: this is not a result: ", path.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let (_dir, path) = file(&line("1", StopReason::Answered).repeat(2));
        let error = Results::resume(&path, Keep::Ended).unwrap_err().to_string();
        assert!(error.ends_with(":2: the id `1` occurs twice"), "{error}");
    }

    #[test]
    fn two_batches_do_not_share_a_file() {
        let (_dir, path) = file("");
        let _first = Results::create(&path).unwrap();
        let error = Results::create(&path).unwrap_err().to_string();
        assert_eq!(error, format!("{} is being written by another batch", path.display()));
    }
}
