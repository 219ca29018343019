//! Copies of contexts into working directories.

mod contents;
mod filters;
mod limits;
mod refusals;

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;

use super::*;
use crate::files::testing::as_nobody;

const LIMITS: CopyLimits = CopyLimits { max_bytes: 1000, max_entries: 100 };

/// A context's directory, and a working directory to fill from it.
struct Ground {
    dir: tempfile::TempDir,
    context: PathBuf,
    fs: PathBuf,
}

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let (context, fs) = (path.join("context"), path.join("fs"));
        fs::create_dir(&context).unwrap();
        fs::create_dir(&fs).unwrap();
        Self { dir, context, fs }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.context.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn fill(&self, context: &Context) -> Result<Summary, ContextError> {
        self.fill_within(context, LIMITS, &|| false)
    }

    fn fill_within(
        &self,
        context: &Context,
        limits: CopyLimits,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Summary, ContextError> {
        self.fill_filtered(context, &ContextFilter::default(), limits, is_stopped)
    }

    fn fill_filtered(
        &self,
        context: &Context,
        filter: &ContextFilter,
        limits: CopyLimits,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Summary, ContextError> {
        fill(&Directory::at_path(&self.fs).unwrap(), &self.fs, context, filter, limits, is_stopped)
    }

    fn whole(&self) -> Context {
        Context::Paths(vec![self.context.clone()])
    }

    /// Fills from the whole directory, which fails and leaves nothing.
    #[track_caller]
    fn check_error(&self, expected: &str) -> ContextError {
        self.check_error_of(&self.whole(), expected)
    }

    #[track_caller]
    fn check_error_of(&self, context: &Context, expected: &str) -> ContextError {
        let error = self.fill(context).unwrap_err();
        let shown = error.to_string().replace(self.context.to_str().unwrap(), "CONTEXT");
        assert_eq!(shown.replace(self.fs.to_str().unwrap(), "FS"), expected);
        self.check_empty();
        error
    }

    /// Fills from these paths, and checks which files lie in the working directory and what was left out.
    #[track_caller]
    fn check_filtered(
        &self,
        paths: Vec<PathBuf>,
        filter: &ContextFilter,
        files: &[&str],
        left_out: &[(LeftOutReason, u64, &[&str])],
    ) {
        let summary = self.fill_filtered(&Context::Paths(paths), filter, LIMITS, &|| false).unwrap();
        assert_eq!(self.files(), files);
        let found: Vec<_> = summary
            .left_out()
            .iter()
            .map(|left_out| (left_out.reason, left_out.count, left_out.names.clone()))
            .collect();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected: Vec<_> =
            left_out.iter().map(|(reason, count, list)| (*reason, *count, names(list))).collect();
        assert_eq!(found, expected);
        self.clear();
    }

    fn clear(&self) {
        files::clear(&Directory::at_path(&self.fs).unwrap()).unwrap();
    }

    /// Paths of the files in the working directory, sorted.
    fn files(&self) -> Vec<String> {
        let (mut files, mut open) = (Vec::new(), vec![self.fs.clone()]);
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => open.push(path),
                    false => files.push(path.strip_prefix(&self.fs).unwrap().display().to_string()),
                }
            }
        }
        files.sort();
        files
    }

    #[track_caller]
    fn check_empty(&self) {
        assert_eq!(fs::read_dir(&self.fs).unwrap().count(), 0, "something is left of the copy");
    }

    fn read(&self, name: impl AsRef<Path>) -> String {
        fs::read_to_string(self.fs.join(name)).unwrap()
    }
}
