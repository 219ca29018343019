//! The requests `save` and `load`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::libc;
use serde::Serialize;

use super::{ControlError, Description, Events, Exit, Interpreter, Server, Supervisor, directory};
use crate::error::with_causes;
use crate::protocol::Outcome;
use crate::saved::{self, Contents, DIRECTORY, Directory, HISTORY, Header, STATE, Saved};
use crate::worker::descendants;
use crate::worker::interpreter::CallReport;
use crate::worker::pipes::memory_file;

/// The saved session, in the `result` of a save or a load.
#[derive(Serialize)]
struct SavedFile<'a> {
    file: &'a Path,
    bytes: u64,
}

/// The `result` of a request that passes on the state.
#[derive(Serialize)]
struct Told<'a, T> {
    #[serde(flatten)]
    to: T,
    #[serde(flatten)]
    contents: &'a Contents,
}

impl Server<'_> {
    /// Saves the session.
    pub(super) fn save<I: Interpreter>(
        &self,
        (file, has_directory): (&Path, bool),
        session: &mut Supervisor<I>,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let mut report = session.save(meanwhile, events)?;
        let Some((bytes, mut contents)) = report.saved.take() else { return Ok(report) };
        let description = session.describe();
        contents.left_out.extend(description.pid.map(programs).unwrap_or_default());
        let path = self.control.path().join(file);
        let packed = match has_directory.then(|| self.pack(&path, &mut contents.left_out)).transpose() {
            Ok(packed) => packed,
            Err(fault) => return Ok(CallReport { answer: report.answer, ..CallReport::refused(fault) }),
        };
        let header = Header {
            answer: report.answer.clone().unwrap_or_else(|| self.answer.clone()),
            contents,
            directory: packed.as_ref().map(|(_, directory)| *directory),
            ..self.header(description)
        };
        let contents = header.contents.clone();
        let parts = [(STATE, session.state_file(), 0..bytes)].into_iter().chain(self.parts(packed.as_ref()));
        match saved::write(&path, header, &parts.collect::<Vec<_>>()) {
            Ok(bytes) => tell(&mut report, SavedFile { file, bytes }, &contents)?,
            Err(error) => {
                report = CallReport { answer: report.answer, ..CallReport::refused(with_causes(&error)) };
            }
        }
        // Its memory is needed only now.
        let _not_freed = session.state_file().set_len(0);
        Ok(report)
    }

    /// The header of a file with this session.
    pub(super) fn header(&self, description: Description) -> Header {
        let root = PathBuf::from(&self.facts.fs_root);
        Header {
            language: self.facts.language.clone(),
            version: description.version,
            worker_version: env!("CARGO_PKG_VERSION").to_owned(),
            saved_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            cwd: description.cwd.unwrap_or_else(|| root.clone()),
            fs_root: root,
            execution_count: self.execution_count,
            answer: self.answer.clone(),
            root_tools: self.facts.root_tools.clone(),
            contents: Contents::default(),
            directory: None,
            parts: Vec::new(),
        }
    }

    /// The parts of a file with this session that are not its interpreter's.
    pub(super) fn parts<'a>(
        &'a self,
        packed: Option<&'a (File, Directory)>,
    ) -> impl Iterator<Item = (&'static str, &'a File, Range<u64>)> {
        let (history, lines) = self.history.of_session();
        let archive = packed.map(|(archive, _)| {
            (DIRECTORY, archive, 0..archive.metadata().map_or(0, |metadata| metadata.len()))
        });
        [(HISTORY, history, lines)].into_iter().chain(archive)
    }

    /// Packs the session's directory into a file without a name, beside the one that will have it if that can be.
    ///
    /// # Errors
    /// The reason, in words.
    pub(super) fn pack(
        &self,
        beside: &Path,
        left_out: &mut BTreeMap<String, String>,
    ) -> Result<(File, Directory), String> {
        let root = Path::new(&self.facts.fs_root);
        let mut pack = || {
            if root == self.control.path() {
                return Err(io::Error::other("it is the control directory"));
            }
            let file = file_without_name(beside.parent().unwrap_or(root))?;
            directory::pack(root, self.control.path(), &file, left_out).map(|packed| (file, packed))
        };
        pack().map_err(|error| format!("cannot pack {}: {error}", root.display()))
    }

    /// Goes on with the history and the number of calls of another session.
    pub(super) fn adopt(&mut self, saved: &Saved, history: &(File, Option<u64>)) -> Result<(), ControlError> {
        self.execution_count = saved.header().execution_count;
        // The line of the next request says which worker goes on.
        self.history_session = Some(self.facts.clone());
        self.history.append_loaded(&history.0, history.1.unwrap_or(0))
    }

    /// Goes on with a saved session.
    pub(super) fn load<I: Interpreter>(
        &mut self,
        file: &Path,
        session: &mut Supervisor<I>,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let path = self.control.path().join(file);
        let saved = match Saved::open(&path) {
            Ok(saved) => saved,
            Err(error) => return Ok(CallReport::refused(with_causes(&error))),
        };
        let header = saved.header();
        if let Some(fault) = self.unfit(header, &session.describe().version) {
            return Ok(CallReport::refused(format!("cannot load {}: {fault}", path.display())));
        }
        let is_unpacked = match unpack(&saved, Path::new(&self.facts.fs_root)) {
            Ok(is_unpacked) => is_unpacked,
            Err(error) => {
                return Ok(CallReport::refused(format!(
                    "cannot load {}: {}",
                    path.display(),
                    with_causes(&error)
                )));
            }
        };
        let (cwd, mut notice) = self.place(header);
        let history = match history(&saved)? {
            Ok(history) => history,
            Err(fault) => return Ok(CallReport::refused(fault)),
        };
        let mut report = session.load(&saved, &cwd, meanwhile, events)?;
        if report.outcome != Outcome::Ok {
            if is_unpacked {
                directory::empty(Path::new(&self.facts.fs_root));
            }
            return Ok(report);
        }
        report.answer.get_or_insert_with(|| header.answer.clone());
        let bytes = header.parts.iter().map(|part| part.bytes).sum();
        let mut contents = Contents { counts: header.contents.counts.clone(), ..Contents::default() };
        contents.left_out = report.saved.take().unwrap_or_default().1.left_out;
        tell(&mut report, SavedFile { file, bytes }, &contents)?;
        if let Err(error) = self.adopt(&saved, &history) {
            notice.push(format!("the history lacks the saved session's calls: {}", with_causes(&error)));
        }
        report.hint =
            report.hint.into_iter().chain(notice).reduce(|hint, notice| format!("{hint}; {notice}"));
        Ok(report)
    }

    /// The reason why this session cannot go on with that one.
    fn unfit(&self, header: &Header, version: &str) -> Option<String> {
        let minor = |version: &str| version.split('.').take(2).collect::<Vec<_>>().join(".");
        let ours = &self.facts.language;
        if header.language != *ours {
            return Some(format!(
                "it is a {0} session, and this is a {ours} session: load it in a {0} session",
                header.language
            ));
        }
        let (saved, here) = (minor(&header.version), minor(version));
        // The code of functions is that of one version.
        (header.language == "python" && saved != here).then(|| {
            format!(
                "it was saved by Python {}, and this is Python {version}: load it in a session with Python {saved}",
                header.version
            )
        })
    }

    /// The working directory to go on in, and a remark if it is another one.
    fn place(&self, header: &Header) -> (PathBuf, Vec<String>) {
        let root = PathBuf::from(&self.facts.fs_root);
        let there = match header.cwd.strip_prefix(&header.fs_root) {
            // Without a slash at the end, if it is the root itself.
            Ok(below) => root.join(below).components().collect(),
            Err(_) => header.cwd.clone(),
        };
        if there.is_dir() {
            return (there, Vec::new());
        }
        (root, vec![format!("its working directory {} is not here", there.display())])
    }
}

/// The history of a saved session, in memory, and its size. Inner `Err`: the reason, in words.
pub(super) fn history(saved: &Saved) -> Result<Result<(File, Option<u64>), String>, Exit> {
    let lines = memory_file().map_err(Exit::failed)?;
    let copied = saved.copy_part(HISTORY, &lines).map_err(|error| with_causes(&error));
    Ok(copied.map(|bytes| (lines, bytes)))
}

/// Unpacks the directory of a saved session, if it has one. True if it has.
pub(in crate::worker) fn unpack(saved: &Saved, root: &Path) -> io::Result<bool> {
    let Some(promised) = &saved.header().directory else { return Ok(false) };
    let mut archive = file_without_name(root)?;
    saved.copy_part(DIRECTORY, &archive).map_err(io::Error::other)?;
    directory::unpack(&mut archive, root, promised).map(|()| true)
}

/// A file without a name in a directory, or in memory where the file system has none.
fn file_without_name(dir: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600);
    options.open(dir).or_else(|_unsupported| memory_file())
}

/// Adds to a report where the state went, and what it has and has not.
pub(super) fn tell(report: &mut CallReport, to: impl Serialize, contents: &Contents) -> Result<(), Exit> {
    let told = Told { to, contents };
    report.result = Some(serde_json::to_string(&told).map_err(Exit::failed)?);
    let hints = report.hint.take().into_iter().chain(contents.notice());
    report.hint = hints.reduce(|hint, notice| format!("{hint}; {notice}"));
    Ok(())
}

/// The programs below the interpreter, which no file can have.
pub(super) fn programs(interpreter: nix::unistd::Pid) -> BTreeMap<String, String> {
    let name = |pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some((format!("process {pid} ({})", name.trim_end()), "it is a running program".to_owned()))
    };
    descendants::below(interpreter).into_iter().filter_map(name).collect()
}
