//! The request `branch`, and the beginning of a branch.

use std::path::Path;

use serde::Serialize;

use super::saved::{history, programs, tell};
use super::{Events, Exit, Interpreter, Server, Supervisor};
use crate::error::with_causes;
use crate::protocol::{Limits, Outcome};
use crate::saved::{self, Contents, Header, Saved};
use crate::worker::interpreter::CallReport;
use crate::worker::pipes::memory_file;

/// The branch, in the `result` of a request for it.
#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

impl Server<'_> {
    /// Leaves a copy of the session for another worker.
    pub(super) fn branch<I: Interpreter>(
        &self,
        (name, has_directory): (&str, bool),
        session: &mut Supervisor<I>,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let refused = |fault: &str| Ok(CallReport::refused(fault.to_owned()));
        if !self.confinement.is_off() {
            return refused("the session is confined, and a copy would share its namespaces and rules");
        }
        if self.resource_limits.limits() != Limits::default() {
            return refused("the session has limits, and a copy would count towards them");
        }
        let file = memory_file().map_err(Exit::failed)?;
        let mut report = session.branch((name, &file), meanwhile, events)?;
        if report.outcome != Outcome::Ok {
            return Ok(report);
        }
        // Nobody reads the file before the response has come. If it cannot be written, the copy ends by itself.
        let description = session.describe();
        let mut contents = Contents::default();
        contents.left_out.extend(description.pid.map(programs).unwrap_or_default());
        let packed = has_directory.then(|| self.pack(Path::new(&self.facts.fs_root), &mut contents.left_out));
        let packed = match packed.transpose() {
            Ok(packed) => packed,
            Err(fault) => return Ok(CallReport::refused(fault)),
        };
        let header = Header {
            directory: packed.as_ref().map(|(_, directory)| *directory),
            ..self.header(description)
        };
        let parts: Vec<_> = self.parts(packed.as_ref()).collect();
        if let Err(error) = saved::write_to(&file, Path::new("the state of a branch"), header, &parts) {
            return Ok(CallReport::refused(with_causes(&error)));
        }
        tell(&mut report, Named { name }, &contents)?;
        Ok(report)
    }

    /// Goes on as a branch of the session in this file.
    pub(super) fn go_on_from(&mut self, saved: &Saved) -> Result<(), Exit> {
        self.answer = saved.header().answer.clone();
        let history = history(saved)?.map_err(Exit::failed)?;
        self.adopt(saved, &history).map_err(Exit::failed)
    }
}
