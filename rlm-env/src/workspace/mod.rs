//! Directories of rollouts: creation, filling with the context, removal.
//!
//! | name | what |
//! | --- | --- |
//! | `rlm-host-XXXXXX/` | private to a host process; the next one removes it if its host was killed |
//! | `rlm-host-XXXXXX/ID/` | the directory of a rollout; or `KEEP/ID/`, where it is to be kept |
//! | `…/ID/rlm_fs/` | the session's working directory: the context |
//! | `…/ID/rlm_messages.jsonl` | the transcript |
//! | `…/ID/rlm_control/` | where host and worker meet |
//!
//! All functions block on files on the caller's thread, except that the context is copied on another one.

mod context;
mod copy;
mod filter;
mod lines;
mod summary;
mod transcript;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rlm_core::dirfd::Directory;
use rlm_core::ids::is_rollout_id;
use tokio_util::sync::CancellationToken;

pub use context::{Context, ContextError, PathWithin};
pub(crate) use copy::CopyLimits;
pub use filter::ContextFilter;
pub(crate) use summary::Summary;
use transcript::MESSAGES_IN_CONTEXT;
pub(crate) use transcript::Transcript;

use crate::files::{HostDir, remove_all, shown};

const FS: &str = "rlm_fs";
const CONTROL: &str = "rlm_control";
const MESSAGES: &str = "rlm_messages.jsonl";

/// Why a rollout's directory cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspaceError {
    /// The rollout's id is not a valid directory name.
    #[error(
        "`{0}` is not a valid id of a rollout: expected 1 to 128 of a-z, A-Z, 0-9, `_`, `-` and `.`, not all of them dots"
    )]
    BadId(String),
    /// The path already exists.
    #[error("{} exists already: remove it, or take another id or directory", shown(.0))]
    Exists(PathBuf),
    /// The file system refused.
    #[error("cannot make {}", shown(path))]
    Make {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A rollout's directory. Dropping it removes it, unless it is to be kept and has been filled.
#[derive(Debug)]
pub(crate) struct Workspace {
    tree: Arc<Tree>,
    fs: Directory,
    fs_path: PathBuf,
    control_path: PathBuf,
}

impl Workspace {
    /// Makes a rollout's directory in that of its host, or in `keep`, which is created if it is missing.
    ///
    /// # Errors
    /// [`WorkspaceError`]; nothing is left behind.
    pub(crate) fn create(host: &HostDir, id: &str, keep: Option<&Path>) -> Result<Self, WorkspaceError> {
        if !is_rollout_id(id) {
            return Err(WorkspaceError::BadId(id.to_owned()));
        }
        let (parent, path) = match keep {
            None => (Parent::Host(host.clone()), host.path().to_owned()),
            Some(keep) => open_keep(keep).map_err(cannot_make(keep))?,
        };
        let path = path.join(id);
        match parent.directory().create_directory(OsStr::new(id)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(WorkspaceError::Exists(path));
            }
            Err(error) => return Err(cannot_make(&path)(error)),
        }
        let tree = Tree {
            parent,
            id: id.to_owned(),
            path,
            is_filled: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            copying: Mutex::new(()),
        };
        let fs = tree.make_inner().map_err(cannot_make(&tree.path))?;
        let (fs_path, control_path) = (tree.path.join(FS), tree.path.join(CONTROL));
        Ok(Self { tree: Arc::new(tree), fs, fs_path, control_path })
    }

    /// The rollout's directory.
    pub(crate) fn path(&self) -> &Path {
        &self.tree.path
    }

    /// The session's working directory.
    pub(crate) fn fs_path(&self) -> &Path {
        &self.fs_path
    }

    /// The control directory.
    pub(crate) fn control_path(&self) -> &Path {
        &self.control_path
    }

    /// True if the directory stays when the rollout has ended.
    pub(crate) fn is_kept(&self) -> bool {
        self.tree.is_kept()
    }

    /// Copies the context, as its filter says, into the empty working directory and returns its summary. From then on, a
    /// directory that is to be kept is kept.
    ///
    /// Cancelling stops the copy soon, and the future waits for that. Dropping the future stops it too; the directory
    /// is then removed once the copy has stopped.
    ///
    /// # Errors
    /// [`ContextError`]; nothing of the context is left in the directory.
    pub(crate) async fn fill(
        &self,
        context: Context,
        filter: ContextFilter,
        limits: CopyLimits,
        cancelled: CancellationToken,
    ) -> Result<Summary, ContextError> {
        let dropped = CancellationToken::new();
        let _cancels_when_dropped = dropped.clone().drop_guard();
        let fs = self
            .fs
            .try_clone()
            .map_err(|source| ContextError::Write { path: self.fs_path.clone(), source })?;
        let fs_path = self.fs_path.clone();
        let tree = Arc::clone(&self.tree);
        let copying = tokio::task::spawn_blocking(move || {
            let _copying = tree.copying.lock().unwrap_or_else(PoisonError::into_inner);
            let is_stopped = || dropped.is_cancelled() || cancelled.is_cancelled();
            let summary = copy::fill(&fs, &fs_path, &context, &filter, limits, &is_stopped)?;
            tree.is_filled.store(true, Ordering::Release);
            Ok(summary)
        });
        match copying.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_runtime_ends) => Err(ContextError::Cancelled),
        }
    }

    /// Creates the transcript: `rlm_messages.jsonl`, or `.messages` in the working directory.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn transcript(&self, in_context: bool) -> io::Result<Transcript> {
        if in_context {
            return Transcript::create(self.fs.try_clone()?, &self.fs_path, MESSAGES_IN_CONTEXT);
        }
        let directory = self.tree.parent.directory().directory(OsStr::new(&self.tree.id))?;
        Transcript::create(directory, &self.tree.path, MESSAGES)
    }

    /// Removes the directory, unless it is kept. Blocks; waits for a cancelled copy to stop.
    ///
    /// # Errors
    /// The first entry that could not be removed, with its path.
    pub(crate) fn remove(self) -> io::Result<()> {
        let _no_copy = self.tree.copying.lock().unwrap_or_else(PoisonError::into_inner);
        self.tree.remove()
    }
}

/// The part of a workspace that lives on until its copy has stopped.
#[derive(Debug)]
struct Tree {
    parent: Parent,
    id: String,
    path: PathBuf,
    is_filled: AtomicBool,
    is_removed: AtomicBool,
    /// Locked during the copy of the context.
    copying: Mutex<()>,
}

impl Tree {
    fn make_inner(&self) -> io::Result<Directory> {
        let directory = self.parent.directory().directory(OsStr::new(&self.id))?;
        for inner in [FS, CONTROL] {
            directory.create_directory(OsStr::new(inner))?;
        }
        directory.directory(OsStr::new(FS))
    }

    fn is_kept(&self) -> bool {
        matches!(self.parent, Parent::Keep(_)) && self.is_filled.load(Ordering::Acquire)
    }

    /// Removes the directory; does nothing a second time.
    fn remove(&self) -> io::Result<()> {
        if self.is_kept() || self.is_removed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        remove_all(self.parent.directory(), OsStr::new(&self.id))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the rollout's directory");
        }
    }
}

/// The parent of a rollout's directory.
#[derive(Debug)]
enum Parent {
    Host(HostDir),
    Keep(Directory),
}

impl Parent {
    fn directory(&self) -> &Directory {
        match self {
            Self::Host(host) => host.directory(),
            Self::Keep(directory) => directory,
        }
    }
}

fn open_keep(keep: &Path) -> io::Result<(Parent, PathBuf)> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(keep)?;
    let path = fs::canonicalize(keep)?;
    Ok((Parent::Keep(Directory::at_path(&path)?), path))
}

fn cannot_make(path: &Path) -> impl FnOnce(io::Error) -> WorkspaceError {
    let path = path.to_owned();
    move |source| WorkspaceError::Make { path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::sync::mpsc;

    use super::*;

    fn host() -> (tempfile::TempDir, HostDir) {
        let parent = tempfile::tempdir().unwrap();
        let host = HostDir::create(parent.path()).unwrap();
        (parent, host)
    }

    async fn fill(workspace: &Workspace, context: Context) -> Result<Summary, ContextError> {
        let filter = ContextFilter::default();
        workspace.fill(context, filter, CopyLimits::default(), CancellationToken::new()).await
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[tokio::test]
    async fn the_directory_is_private_and_removed_with_its_contents() {
        let (_parent, host) = host();
        let workspace = Workspace::create(&host, "a.1", None).unwrap();
        assert_eq!(workspace.path(), host.path().join("a.1"));
        for path in [workspace.path(), workspace.fs_path(), workspace.control_path()] {
            assert_eq!(mode(path), 0o700);
        }
        fill(&workspace, Context::Text("x".into())).await.unwrap();
        for (in_context, path) in [(false, "rlm_messages.jsonl"), (true, "rlm_fs/.messages")] {
            let mut transcript = workspace.transcript(in_context).unwrap();
            transcript.append(&serde_json::Value::Null);
            assert_eq!(transcript.path(), workspace.path().join(path));
            assert_eq!(fs::read_to_string(transcript.path()).unwrap(), "null\n");
        }
        fs::write(workspace.control_path().join("rlm_worker.log"), "x").unwrap();
        let path = workspace.path().to_owned();
        workspace.remove().unwrap();
        assert!(!path.exists());
        let workspace = Workspace::create(&host, "a.1", None).unwrap();
        drop(workspace);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_kept_one_stays_once_it_is_filled() {
        let (parent, host) = host();
        let keep = parent.path().join("new/keep");
        drop(Workspace::create(&host, "early", Some(&keep)).unwrap());
        let workspace = Workspace::create(&host, "failed", Some(&keep)).unwrap();
        let missing = Context::Paths(vec!["/does/not/exist".into()]);
        fill(&workspace, missing).await.unwrap_err();
        drop(workspace);
        for end in [drop, |workspace: Workspace| workspace.remove().unwrap()] {
            assert_eq!(fs::read_dir(&keep).unwrap().count(), 0);
            let workspace = Workspace::create(&host, "kept", Some(&keep)).unwrap();
            fill(&workspace, Context::Text("x".into())).await.unwrap();
            assert!(workspace.is_kept());
            end(workspace);
            assert_eq!(fs::read_to_string(keep.join("kept/rlm_fs/context.txt")).unwrap(), "x");
            fs::remove_dir_all(keep.join("kept")).unwrap();
        }
    }

    #[test]
    fn existing_directories_are_named_and_left_alone() {
        let (parent, host) = host();
        let theirs = parent.path().join("taken");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("file"), "mine").unwrap();
        let error = Workspace::create(&host, "taken", Some(parent.path())).unwrap_err();
        let path = theirs.canonicalize().unwrap();
        assert_eq!(
            error.to_string(),
            format!("{} exists already: remove it, or take another id or directory", path.display())
        );
        assert_eq!(fs::read_to_string(theirs.join("file")).unwrap(), "mine");
        let _first = Workspace::create(&host, "twice", None).unwrap();
        let error = Workspace::create(&host, "twice", None).unwrap_err();
        assert!(matches!(error, WorkspaceError::Exists(_)), "{error}");
    }

    #[test]
    fn ids_are_names() {
        let (_parent, host) = host();
        for id in ["", ".", "..", "a/b", "a b", "rlm@lock", "é", &"x".repeat(129)] {
            let error = Workspace::create(&host, id, None).unwrap_err();
            assert!(matches!(&error, WorkspaceError::BadId(bad) if bad == id), "{error}");
        }
    }

    #[test]
    fn a_keep_directory_that_cannot_be_made_is_named() {
        let (parent, host) = host();
        fs::write(parent.path().join("file"), "").unwrap();
        let keep = parent.path().join("file/keep");
        let error = Workspace::create(&host, "a", Some(&keep)).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot make {}", keep.display()));
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_is_not_followed() {
        let (parent, host) = host();
        let outside = parent.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "mine").unwrap();
        let workspace = Workspace::create(&host, "a", None).unwrap();
        fs::rename(workspace.path(), parent.path().join("moved")).unwrap();
        symlink(&outside, workspace.path()).unwrap();
        workspace.remove().unwrap();
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "mine");
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 1, "the lock alone");
    }

    /// The copy waits for a thread when its future is dropped, and starts when the workspace is gone.
    #[test]
    fn a_copy_whose_future_was_dropped_does_not_outlive_the_directory() {
        let (_parent, host) = host();
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (release, wait) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || wait.recv());
            let workspace = Workspace::create(&host, "a", None).unwrap();
            let path = workspace.path().to_owned();
            {
                let mut fill = Box::pin(fill(&workspace, Context::Text("x".into())));
                std::future::poll_fn(|cx| {
                    assert!(fill.as_mut().poll(cx).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
            }
            drop(workspace);
            assert!(path.exists(), "the copy may still write");
            release.send(()).unwrap();
            busy.await.unwrap().unwrap();
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert!(!path.exists());
        });
    }
}
