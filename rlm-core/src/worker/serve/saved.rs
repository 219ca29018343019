//! The requests `save` and `load`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::{Events, Exit, Interpreter, Server, Supervisor};
use crate::error::with_causes;
use crate::protocol::Outcome;
use crate::saved::{self, Contents, HISTORY, Header, STATE, Saved};
use crate::worker::descendants;
use crate::worker::interpreter::CallReport;
use crate::worker::pipes::memory_file;

/// The `result` of a save or a load.
#[derive(Serialize)]
struct Told<'a> {
    file: &'a Path,
    bytes: u64,
    #[serde(flatten)]
    contents: &'a Contents,
}

impl Server<'_> {
    /// Saves the session.
    pub(super) fn save<I: Interpreter>(
        &self,
        file: &Path,
        session: &mut Supervisor<I>,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let mut report = session.save(meanwhile, events)?;
        let Some((bytes, mut contents)) = report.saved.take() else { return Ok(report) };
        let description = session.describe();
        contents.left_out.extend(description.pid.map(programs).unwrap_or_default());
        let header = Header {
            language: self.facts.language.clone(),
            version: description.version,
            worker_version: env!("CARGO_PKG_VERSION").to_owned(),
            saved_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            fs_root: PathBuf::from(&self.facts.fs_root),
            cwd: description.cwd.unwrap_or_else(|| PathBuf::from(&self.facts.fs_root)),
            execution_count: self.execution_count,
            answer: report.answer.clone().unwrap_or_else(|| self.answer.clone()),
            root_tools: self.facts.root_tools.clone(),
            contents,
            parts: Vec::new(),
        };
        let path = self.control.path().join(file);
        let contents = header.contents.clone();
        let (history, history_bytes) = self.history.file();
        let state = session.state_file();
        let parts = [(STATE, state, bytes), (HISTORY, history, history_bytes)];
        match saved::write(&path, header, &parts) {
            Ok(bytes) => tell(&mut report, file, bytes, &contents)?,
            Err(error) => {
                report = CallReport { answer: report.answer, ..CallReport::refused(with_causes(&error)) };
            }
        }
        // Its memory is needed only now.
        let _not_freed = session.state_file().set_len(0);
        Ok(report)
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
        let (cwd, mut notice) = self.place(header);
        let history =
            match memory_file().map(|lines| saved.copy_part(HISTORY, &lines).map(|bytes| (lines, bytes))) {
                Ok(Ok(history)) => history,
                Ok(Err(error)) => return Ok(CallReport::refused(with_causes(&error))),
                Err(error) => return Err(Exit::failed(error)),
            };
        let mut report = session.load(&saved, &cwd, meanwhile, events)?;
        if report.outcome != Outcome::Ok {
            return Ok(report);
        }
        self.execution_count = header.execution_count;
        report.answer.get_or_insert_with(|| header.answer.clone());
        let bytes = header.parts.iter().map(|part| part.bytes).sum();
        let mut contents = Contents { counts: header.contents.counts.clone(), ..Contents::default() };
        contents.left_out = report.saved.take().unwrap_or_default().1.left_out;
        tell(&mut report, file, bytes, &contents)?;
        if let Err(error) = self.history.append_file(&history.0, history.1.unwrap_or(0)) {
            notice.push(format!("the history lacks the saved session's calls: {}", with_causes(&error)));
        }
        // The line of this request says which worker goes on with them.
        self.history_session = Some(self.facts.clone());
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
            Ok(below) => root.join(below),
            Err(_) => header.cwd.clone(),
        };
        if there.is_dir() {
            return (there, Vec::new());
        }
        (root, vec![format!("its working directory {} is not here", there.display())])
    }
}

fn tell(report: &mut CallReport, file: &Path, bytes: u64, contents: &Contents) -> Result<(), Exit> {
    let told = Told { file, bytes, contents };
    report.result = Some(serde_json::to_string(&told).map_err(Exit::failed)?);
    let hints = report.hint.take().into_iter().chain(contents.notice());
    report.hint = hints.reduce(|hint, notice| format!("{hint}; {notice}"));
    Ok(())
}

/// The programs below the interpreter, which no file can have.
fn programs(interpreter: nix::unistd::Pid) -> BTreeMap<String, String> {
    let name = |pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some((format!("process {pid} ({})", name.trim_end()), "it is a running program".to_owned()))
    };
    descendants::below(interpreter).into_iter().filter_map(name).collect()
}
