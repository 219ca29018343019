//! The results of a batch: JSON lines, each appended when its rollout has ended.
//!
//! With [`SYNC`], a result in a regular file is on the disk before the next one is taken, and so is the file's name in its
//! directory: a power cut loses no result that was written.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rlm_core::jsonl;
use rlm_env::StopReason;

use crate::evaluation::RunResult;
use crate::rollouts::is_failure;
use crate::standard_output::print;
use crate::usage::{Usage, refuse};

/// The first bytes of a result.
const BEGINNING: &[u8] = b"{\"id\":\"";

/// Waits until what was written to a file or directory is on the disk.
pub(super) type SyncFile = fn(&File) -> std::io::Result<()>;

/// Saves a file's data and length.
pub(super) const SYNC: SyncFile = File::sync_data;

/// The destination of results.
#[derive(Debug)]
pub(super) enum Results {
    StandardOutput,
    /// Results are events, and go nowhere else.
    Events,
    File {
        file: File,
        path: PathBuf,
        /// Saves each result. None: the system writes results within seconds, as it does for pipes and devices.
        sync: Option<SyncFile>,
        /// The lines that remain once results to run again are removed.
        to_keep: Option<Vec<u8>>,
    },
}

/// The results that a file has already.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// The results of rollouts that have ended, by their ids.
    pub(super) results: HashMap<String, RunResult>,
    /// Messages about the file for the user.
    pub(super) notices: Vec<String>,
}

/// The results of a file that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Results of rollouts that were not stopped or cancelled.
    Ended,
    /// Results of rollouts that, in addition, did not fail, had budget enough and could be scored.
    Sound,
}

impl Results {
    /// Opens a file that has no results yet.
    pub(super) fn create(path: &Path, sync: Option<SyncFile>) -> anyhow::Result<Self> {
        let file = open(path)?;
        let metadata = file.metadata().with_context(|| format!("cannot use {}", path.display()))?;
        if metadata.is_file() && metadata.len() > 0 {
            let path = path.display();
            refuse!("{path} has results already: continue with --resume");
        }
        let sync = sync.filter(|_| metadata.is_file());
        if let Some(sync) = sync {
            sync_directory(path, sync).with_context(|| not_saved(path))?;
        }
        Ok(Self::File { file, path: path.to_owned(), sync, to_keep: None })
    }

    /// Opens a file that may have results. [`Self::remove_unkept`] then removes an incomplete last line and results that
    /// are not kept.
    pub(super) fn resume(
        path: &Path,
        keep: Keep,
        sync: Option<SyncFile>,
    ) -> anyhow::Result<(Self, Finished)> {
        let mut file = open(path)?;
        let metadata = file.metadata().with_context(|| format!("cannot use {}", path.display()))?;
        if !metadata.is_file() {
            let path = path.display();
            refuse!("{path} is not a file: it has no results to resume");
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
        let (kept, done) = parse(&bytes, path, keep)?;
        if let Some(sync) = sync {
            // An earlier batch may have left its results to the system.
            sync(&file).and_then(|()| sync_directory(path, sync)).with_context(|| not_saved(path))?;
        }
        let to_keep = (kept != bytes).then_some(kept);
        Ok((Self::File { file, path: path.to_owned(), sync, to_keep }, done))
    }

    /// Removes from the file the lines that are not kept. If this ends halfway, the file is as before.
    pub(super) fn remove_unkept(&mut self) -> anyhow::Result<()> {
        let Self::File { file, path, sync, to_keep } = self else { return Ok(()) };
        let Some(kept) = to_keep.take() else { return Ok(()) };
        *file =
            rewrite(file, path, &kept, *sync).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }

    /// Appends a result as one whole line, and waits until it is on the disk.
    pub(super) fn append(&mut self, result: &RunResult) -> anyhow::Result<()> {
        let line = jsonl::line(result)?;
        match self {
            Self::Events => Ok(()),
            Self::StandardOutput => print(line),
            Self::File { file, path, sync, .. } => {
                jsonl::append(file, &line)
                    .with_context(|| format!("cannot write the results to {}", path.display()))?;
                sync.map_or(Ok(()), |sync| sync(file)).with_context(|| not_saved(path))
            }
        }
    }
}

fn not_saved(path: &Path) -> String {
    format!("cannot save the results in {} to the disk", path.display())
}

/// Opens a file and locks it against other batches.
fn open(path: &Path) -> anyhow::Result<File> {
    let cannot = || format!("cannot write the results to {}", path.display());
    if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        return open_pipe(path).with_context(cannot);
    }
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let file = file.map_err(|error| Usage::new(format!("{}: {error}", cannot())))?;
    let is_ours = match file.try_lock() {
        // Without a link, the file was replaced by another batch since it was opened.
        Ok(()) => file.metadata().with_context(cannot)?.nlink() > 0,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
    };
    if !is_ours {
        refuse!("{} is being written by another batch", path.display());
    }
    Ok(file)
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

/// Replaces a file by one with these bytes, which has its permissions and is locked too.
fn rewrite(old: &File, path: &Path, bytes: &[u8], sync: Option<SyncFile>) -> std::io::Result<File> {
    // A link stays a link.
    let path = path.canonicalize()?;
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".rlm-new");
    let new_path = path.with_file_name(name);
    // The old file's lock is held, so what is there was left by a killed batch.
    let mut options = OpenOptions::new();
    let mut new = options
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(&new_path)?;
    let replaced = new
        .set_len(0)
        .and_then(|()| new.set_permissions(old.metadata()?.permissions()))
        .and_then(|()| Ok(new.try_lock()?))
        .and_then(|()| new.write_all(bytes))
        .and_then(|()| sync.map_or(Ok(()), |sync| sync(&new)))
        .and_then(|()| std::fs::rename(&new_path, &path));
    if let Err(error) = replaced {
        // If the new file stays, the next batch uses it.
        let _left = std::fs::remove_file(&new_path);
        return Err(error);
    }
    sync.map_or(Ok(()), |sync| sync_directory(&path, sync))?;
    Ok(new)
}

/// Saves a file's name in its directory.
fn sync_directory(path: &Path, sync: SyncFile) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    sync(&File::open(path.parent().unwrap_or(Path::new("/")))?)
}

/// The lines that are kept, and the results in them.
fn parse(bytes: &[u8], path: &Path, keep: Keep) -> Result<(Vec<u8>, Finished), Usage> {
    let (mut kept, mut done, mut again) = (Vec::with_capacity(bytes.len()), Finished::default(), 0);
    let mut lines = (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')).peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<RunResult>(line) {
            Ok(result) if is_kept(&result, keep) => {
                kept.extend_from_slice(line.trim_ascii_end());
                kept.push(b'\n');
                if let Some(first) = done.results.insert(result.rollout.id.clone(), result) {
                    let (path, id) = (path.display(), first.rollout.id);
                    refuse!("{path}:{number}: the id `{id}` occurs twice");
                }
            }
            Ok(_) => again += 1,
            Err(_) if lines.peek().is_none() && is_cut_off(line) => {
                done.notices
                    .push(format!("the last line of {} is incomplete, and is removed", path.display()));
            }
            Err(error) => {
                let (path, fault) = (path.display(), jsonl::fault(&error));
                refuse!("{path}:{number}: this is not a result: {fault}");
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

fn is_kept(result: &RunResult, keep: Keep) -> bool {
    let reason = result.rollout.stop_reason;
    let has_ended = !matches!(reason, StopReason::Stopped | StopReason::Cancelled);
    let is_sound = !is_failure(reason)
        && reason != StopReason::BudgetExhausted
        && result.evaluation.score_error.is_none();
    has_ended && (keep == Keep::Ended || is_sound)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::evaluation::result;

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
        let (mut results, done) = Results::resume(path, keep, None).unwrap();
        results.remove_unkept().unwrap();
        (results, done)
    }

    fn ids(done: &Finished) -> Vec<&str> {
        let mut ids: Vec<_> = done.results.keys().map(String::as_str).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn results_are_appended_to_what_the_file_has() {
        let (_dir, path) = file("");
        let mut results = Results::create(&path, None).unwrap();
        results.append(&result("1-1", StopReason::Answered, Some("a"))).unwrap();
        drop(results);
        let refused = Results::create(&path, None).unwrap_err();
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
    fn those_without_a_score_are_run_again_with_those_that_failed() {
        let mut unscored = result("2", StopReason::Answered, Some("a"));
        unscored.evaluation.score_error = Some("it was late".to_owned());
        let text =
            line("1", StopReason::Answered) + str::from_utf8(&jsonl::line(&unscored).unwrap()).unwrap();
        let text = text + &line("3", StopReason::BudgetExhausted);
        let (_dir, path) = file(&text);
        assert_eq!(ids(&resume(&path, Keep::Ended).1), ["1", "2", "3"]);
        assert_eq!(ids(&resume(&path, Keep::Sound).1), ["1"]);
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
            let error = Results::resume(&path, Keep::Ended, None).unwrap_err();
            assert!(error.is::<Usage>());
            let expected = format!("{}:{number}: this is not a result: ", path.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let (_dir, path) = file(&line("1", StopReason::Answered).repeat(2));
        let error = Results::resume(&path, Keep::Ended, None).unwrap_err().to_string();
        assert!(error.ends_with(":2: the id `1` occurs twice"), "{error}");
    }

    #[test]
    fn two_batches_do_not_share_a_file() {
        let (_dir, path) = file("");
        let _first = Results::create(&path, None).unwrap();
        let error = Results::create(&path, None).unwrap_err().to_string();
        assert_eq!(error, format!("{} is being written by another batch", path.display()));
    }

    thread_local! {
        /// Files and directories that were saved, by their inodes.
        static SAVED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    fn record(file: &File) -> std::io::Result<()> {
        SAVED.with_borrow_mut(|saved| saved.push(file.metadata().unwrap().ino()));
        Ok(())
    }

    fn fail(_file: &File) -> std::io::Result<()> {
        Err(Errno::ENOSPC.into())
    }

    #[test]
    fn each_result_and_each_name_of_the_file_is_saved() {
        let (dir, path) = file("");
        let inode = |path: &Path| path.metadata().unwrap().ino();
        let mut results = Results::create(&path, Some(record)).unwrap();
        assert_eq!(SAVED.take(), [inode(dir.path())]);
        for (id, reason) in [("1", StopReason::Answered), ("2", StopReason::Stopped)] {
            results.append(&result(id, reason, Some("a"))).unwrap();
            assert_eq!(SAVED.take(), [inode(&path)]);
        }
        drop(results);
        let old = inode(&path);
        let (mut results, _) = Results::resume(&path, Keep::Ended, Some(record)).unwrap();
        assert_eq!(SAVED.take(), [old, inode(dir.path())]);
        results.remove_unkept().unwrap();
        assert_eq!(SAVED.take(), [inode(&path), inode(dir.path())]);
        assert_ne!(inode(&path), old, "it is replaced, not changed");
        results.append(&result("1", StopReason::Answered, Some("a"))).unwrap();
        assert_eq!(SAVED.take(), [inode(&path)]);
    }

    #[test]
    fn nothing_is_saved_if_the_user_does_not_want_it_or_the_destination_is_not_a_file() {
        let (_dir, path) = file("");
        for (path, sync) in [(path.as_path(), None), (Path::new("/dev/null"), Some(record as SyncFile))] {
            let mut results = Results::create(path, sync).unwrap();
            results.append(&result("1", StopReason::Answered, Some("a"))).unwrap();
            assert!(SAVED.take().is_empty(), "{}", path.display());
        }
    }

    #[test]
    fn a_disk_that_does_not_save_is_an_error() {
        let (_dir, path) = file("");
        let expected = format!(
            "cannot save the results in {} to the disk: No space left on device (os error 28)",
            path.display()
        );
        let error = Results::create(&path, Some(fail)).unwrap_err();
        assert_eq!(format!("{error:#}"), expected);
        let mut results = Results::create(&path, None).unwrap();
        let Results::File { sync, .. } = &mut results else { unreachable!("it is a file") };
        *sync = Some(fail);
        let error = results.append(&result("1", StopReason::Answered, Some("a"))).unwrap_err();
        assert_eq!(format!("{error:#}"), expected);
    }

    #[test]
    fn a_rewrite_that_fails_leaves_the_file_as_it_was() {
        let text = line("1", StopReason::Answered) + &line("2", StopReason::Stopped);
        let (dir, path) = file(&text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let (mut results, _) = Results::resume(&link, Keep::Ended, None).unwrap();
        let Results::File { sync, to_keep, .. } = &mut results else { unreachable!("it is a file") };
        *sync = Some(fail);
        let kept = to_keep.clone();
        results.remove_unkept().unwrap_err();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no other file is left");
        let Results::File { sync, to_keep, .. } = &mut results else { unreachable!("it is a file") };
        (*sync, *to_keep) = (None, kept);
        results.remove_unkept().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), line("1", StopReason::Answered));
        assert!(link.is_symlink());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
        let error = Results::resume(&path, Keep::Ended, None).unwrap_err().to_string();
        assert!(error.ends_with("is being written by another batch"), "the new file is locked too: {error}");
    }
}
