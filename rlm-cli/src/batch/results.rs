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

/// How a result begins.
const BEGINNING: &[u8] = b"{\"id\":\"";

/// Where results go.
#[derive(Debug)]
pub(super) enum Results {
    StandardOutput,
    File {
        file: File,
        path: PathBuf,
        /// The lines that it has, and those that are to stay.
        to_take_out: Option<(Vec<u8>, Vec<u8>)>,
    },
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
        Ok(Self::File { file, path: path.to_owned(), to_take_out: None })
    }

    /// Opens a file that may have results. A last line that was cut off is to be taken away, and so are results that do not
    /// stand: by [`Self::take_out`].
    pub(super) fn resume(path: &Path, keep: Keep) -> anyhow::Result<(Self, Done)> {
        let mut file = open(path)?;
        let metadata = file.metadata().with_context(|| format!("cannot use {}", path.display()))?;
        if !metadata.is_file() {
            let path = path.display();
            return Err(Usage::new(format!("{path} is not a file, and has no results to go on with")).into());
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
        let (kept, done) = sift(&bytes, path, keep)?;
        let to_take_out = (kept != bytes).then_some((bytes, kept));
        Ok((Self::File { file, path: path.to_owned(), to_take_out }, done))
    }

    /// Takes out of the file what does not stand.
    pub(super) fn take_out(&mut self) -> anyhow::Result<()> {
        let Self::File { file, path, to_take_out } = self else { return Ok(()) };
        let Some((bytes, kept)) = to_take_out.take() else { return Ok(()) };
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

/// Opens a file and keeps other batches from it.
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

/// Opens a pipe that is being read: what it holds when its last end is closed is lost.
fn open_pipe(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(|error| {
        match Errno::from_raw(error.raw_os_error().unwrap_or_default()) {
            Errno::ENXIO => std::io::Error::other("it is a pipe that nobody reads"),
            _ => error,
        }
    })?;
    fcntl(file.as_fd(), FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(file)
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
            Err(_) if lines.peek().is_none() && is_cut_off(line) => {
                done.notices
                    .push(format!("the last line of {} was cut off, and is taken away", path.display()));
            }
            Err(error) => {
                let (path, fault) = (path.display(), jsonl::fault(&error));
                return Err(Usage::new(format!("{path}:{number}: this is not a result: {fault}")));
            }
        }
    }
    if again > 0 {
        let results = if again == 1 { "1 result is".to_owned() } else { format!("{again} results are") };
        done.notices.push(format!("{results} taken out of {}, and run again", path.display()));
    }
    Ok((kept, done))
}

/// Whether a line is a result but for its end. Of anything else nothing is taken away.
fn is_cut_off(line: &[u8]) -> bool {
    let is_begun = line.starts_with(BEGINNING) || BEGINNING.starts_with(line);
    is_begun && !line.ends_with(b"\n") && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err()
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

    fn resume(path: &Path, keep: Keep) -> (Results, Done) {
        let (mut results, done) = Results::resume(path, keep).unwrap();
        results.take_out().unwrap();
        (results, done)
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
        let (mut results, done) = resume(&path, Keep::Ended);
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
        let (_, done) = resume(&path, Keep::Ended);
        assert_eq!(
            done.notices,
            [format!("the last line of {} was cut off, and is taken away", path.display())]
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), one);
        let (_dir, path) = file(&(one.clone() + two.trim_end()));
        let (_, done) = resume(&path, Keep::Ended);
        assert_eq!((ids(&done), done.notices.len()), (vec!["1", "2"], 0), "it lacks its newline alone");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), one + &two);
    }

    #[test]
    fn what_did_not_end_by_itself_is_run_again() {
        let reasons =
            [StopReason::Answered, StopReason::Stopped, StopReason::ModelFailed, StopReason::Cancelled];
        let text: String = (1..).zip(reasons).map(|(id, reason)| line(&id.to_string(), reason)).collect();
        let (_dir, path) = file(&text);
        let (_, done) = resume(&path, Keep::Ended);
        assert_eq!(ids(&done), ["1", "3"]);
        let notice = format!("2 results are taken out of {}, and run again", path.display());
        assert_eq!(done.notices, [notice]);
        let (_, done) = resume(&path, Keep::Sound);
        assert_eq!(ids(&done), ["1"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), line("1", StopReason::Answered));
    }

    #[test]
    fn a_file_that_holds_something_else_is_left_as_it_is() {
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
