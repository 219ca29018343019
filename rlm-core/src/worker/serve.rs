//! The serve loop: requests in, responses out, strictly in turn.

mod branch;
mod directory;
mod saved;

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

pub(super) use self::directory::empty;
pub(super) use self::saved::unpack;
use super::channel::{Channel, Delivery};
use super::descendants;
use super::events::Events;
use super::exit::Exit;
use super::interpreter::{CallReport, Description, Interpreter};
use super::log::Log;
use super::resources::ResourceLimits;
use super::supervisor::Supervisor;
use crate::control::{ControlDir, ControlError, History};
use crate::error::with_causes;
use crate::frame::{Frame, excerpt, scan_seq};
use crate::json::JsonText;
use crate::limits::{MAX_HISTORY_VARIABLES_BYTES, MAX_REQUEST_BYTES};
use crate::protocol::{
    Answer, BadRequest, Confinement, HistoryEntry, HistorySession, Info, Limit, Mechanism, Operation,
    Outcome, PROTOCOL_VERSION, Request, Response, State, UNKNOWN_SEQ,
};
use crate::saved::Saved;

/// Serves requests until the worker has to end, and returns the reason. First, the session's answer replaces the answer
/// file. `history_session` goes into the first line of the history; `on_ready` is called once the ready flag is set. A branch goes on
/// with the history and the number of calls of its origin.
pub fn serve(
    session: &mut Supervisor<impl Interpreter>,
    (history_session, confinement, branch): (HistorySession, Confinement, Option<Saved>),
    control: &ControlDir,
    channel: &mut Channel,
    events: &Events,
    log: &mut Log,
    on_ready: impl FnOnce(),
) -> Exit {
    let history = match control.open_history() {
        Ok(history) => history,
        Err(error) => return Exit::failed(error),
    };
    let mut server = Server {
        control,
        confinement,
        resource_limits: session.resource_limits().clone(),
        memory_kills: 0,
        history,
        facts: history_session.clone(),
        history_session: Some(history_session),
        answer: session.answer(),
        answer_is_saved: true,
        has_logged_fault: false,
        execution_count: 0,
        ready_since: Instant::now(),
        log,
    };
    if let Some(saved) = branch
        && let Err(exit) = server.go_on_from(&saved)
    {
        return exit;
    }
    if let Err(error) = control.write_answer(&server.answer).and_then(|()| control.set_ready()) {
        return Exit::failed(error);
    }
    on_ready();
    loop {
        if let Err(exit) = server.serve_one(session, channel, events) {
            return exit;
        }
    }
}

struct Server<'a> {
    control: &'a ControlDir,
    confinement: Confinement,
    resource_limits: ResourceLimits,
    /// [`ResourceLimits::memory_kills`] after the last request.
    memory_kills: u64,
    history: History,
    /// The session that this worker was started for.
    facts: HistorySession,
    /// The session for the first line of the history, until that line is written.
    history_session: Option<HistorySession>,
    answer: Answer,
    /// False while the answer file lacks the answer.
    answer_is_saved: bool,
    /// True once the log has the fault of the files that could not be written last.
    has_logged_fault: bool,
    execution_count: u64,
    ready_since: Instant,
    log: &'a mut Log,
}

impl Server<'_> {
    fn serve_one(
        &mut self,
        session: &mut Supervisor<impl Interpreter>,
        channel: &mut Channel,
        events: &Events,
    ) -> Result<(), Exit> {
        let frame = channel.next_frame(events, session)?;
        let response = match parse(frame) {
            Ok(request) => self.handle(request, session, channel, events)?,
            Err(bad) => self.refuse(bad),
        };
        if channel.respond(&response, events, session)? == Delivery::GivenUp {
            self.log.line("the host closed the response FIFO before it had read the response");
        }
        Ok(())
    }

    fn handle<I: Interpreter>(
        &mut self,
        request: Request,
        session: &mut Supervisor<I>,
        channel: &mut Channel,
        events: &Events,
    ) -> Result<Response, Exit> {
        let mut meanwhile = || channel.prepare();
        match request {
            Request::Execute(call) => {
                let number = self.execution_count + 1;
                let timed = Timed::run(events, || session.execute(&call, number, &mut meanwhile, events))?;
                self.execution_count = number;
                let rest = |entry| HistoryEntry { code: call.code, source: call.source, ..entry };
                let mut response = self.record(timed, Operation::Execute, call.seq, rest)?;
                if I::HAS_RESULTS && response.state != State::Kept {
                    response.show_hint();
                }
                Ok(response)
            }
            Request::Reset { seq } => {
                let timed = Timed::run(events, || session.reset(events))?;
                self.record(timed, Operation::Reset, seq, |entry| entry)
            }
            Request::Set { seq, variables } => {
                let timed = Timed::run(events, || session.set(&variables, &mut meanwhile, events))?;
                let (variables, variables_omitted) = bounded(variables);
                let rest = |entry| HistoryEntry { variables: Some(variables), variables_omitted, ..entry };
                self.record(timed, Operation::Set, seq, rest)
            }
            Request::Complete { code, seq } => {
                let timed = Timed::run(events, || session.complete(&code, &mut meanwhile, events))?;
                Ok(self.respond(timed.report, seq, timed.seconds))
            }
            Request::Save { seq, file, directory } => {
                let timed =
                    Timed::run(events, || self.save((&file, directory), session, &mut meanwhile, events))?;
                self.record(timed, Operation::Save, seq, |entry| HistoryEntry { file: Some(file), ..entry })
            }
            Request::Load { seq, file } => {
                let timed = Timed::run(events, || self.load(&file, session, &mut meanwhile, events))?;
                self.record(timed, Operation::Load, seq, |entry| HistoryEntry { file: Some(file), ..entry })
            }
            Request::Branch { seq, name, directory } => {
                let timed =
                    Timed::run(events, || self.branch((&name, directory), session, &mut meanwhile, events))?;
                Ok(self.respond(timed.report, seq, timed.seconds))
            }
            Request::Info { seq } => self.describe(seq, &session.describe()),
            Request::Shutdown => Err(Exit::Shutdown),
        }
    }

    /// Completes the response, and writes the answer file, if the answer has changed, and the line of the history, to
    /// which `rest` adds what only the request has.
    ///
    /// A request that was served is answered even on a full disk: the response says then which files lack it.
    fn record(
        &mut self,
        Timed { report, started_at, seconds }: Timed,
        op: Operation,
        seq: i64,
        rest: impl FnOnce(HistoryEntry) -> HistoryEntry,
    ) -> Result<Response, Exit> {
        if let Some(answer) = &report.answer
            && *answer != self.answer
        {
            self.answer.clone_from(answer);
            self.answer_is_saved = false;
        }
        let mut response = self.respond(report, seq, seconds);
        let entry = rest(HistoryEntry::of(&response, op, started_at));
        let notices = self.limits_reached(response.exit_code);
        let mut faults = Vec::new();
        if let Err(error) = self.save_answer() {
            if error.is_missing() {
                // Nobody can reach a worker whose directory is gone.
                return Err(Exit::failed(error));
            }
            faults.push(format!("the answer is only in this response: {}", with_causes(&error)));
        }
        if let Err(error) = self.append(entry) {
            faults.push(format!("the history lacks this request: {}", with_causes(&error)));
        }
        if !faults.is_empty() && !self.has_logged_fault {
            self.log.line(faults.join("; "));
        }
        self.has_logged_fault = !faults.is_empty();
        let hints = response.hint.into_iter().chain(notices).chain(faults);
        response.hint = hints.reduce(|hint, fault| format!("{hint}; {fault}"));
        Ok(response)
    }

    /// The limits of resources that were reached since the last request, in words.
    fn limits_reached(&mut self, exit_code: Option<i32>) -> Vec<String> {
        let mut reached = Vec::new();
        let limits = self.resource_limits.limits();
        if let Some(Limit { value, mechanism: Some(Mechanism::Cgroup) }) = limits.memory_bytes {
            let kills = self.resource_limits.memory_kills();
            if kills > self.memory_kills {
                reached.push(format!(
                    "the kernel killed processes of the session at its memory limit of {value} bytes; killed: {}",
                    kills - self.memory_kills
                ));
            }
            self.memory_kills = kills;
        }
        for (limit, signal, of) in [
            (limits.cpu_seconds, Signal::SIGXCPU, "s of CPU time"),
            (limits.file_size_bytes, Signal::SIGXFSZ, "bytes in a file"),
        ] {
            if let Some(Limit { value, .. }) = limit
                && exit_code == Some(128 + signal as i32)
            {
                reached.push(format!("a process reached the limit of {value} {of} ({signal})"));
            }
        }
        reached
    }

    fn save_answer(&mut self) -> Result<(), ControlError> {
        if !self.answer_is_saved {
            self.control.write_answer(&self.answer)?;
            self.answer_is_saved = true;
        }
        Ok(())
    }

    fn append(&mut self, entry: HistoryEntry) -> Result<(), ControlError> {
        let entry = HistoryEntry { session: self.history_session.clone(), ..entry };
        self.history.append(&entry)?;
        self.history_session = None;
        Ok(())
    }

    fn describe(&self, seq: i64, description: &Description) -> Result<Response, Exit> {
        let started = Instant::now();
        let Description { language, version, is_builtin, pid, cwd, .. } = description;
        let this = Pid::this();
        let processes = [getppid(), this].into_iter().chain(descendants::below(this));
        let info = Info {
            language: (*language).to_owned(),
            version: version.clone(),
            builtin: *is_builtin,
            worker_version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            uptime: self.ready_since.elapsed().as_secs_f64(),
            calls: self.execution_count,
            memory_bytes: processes.map(descendants::resident_bytes).sum(),
            cwd: cwd.as_ref().map(|cwd| cwd.to_string_lossy().into_owned()),
            pid: pid.map(Pid::as_raw),
            answer_ready: self.answer.ready,
            confinement: self.confinement,
            limits: self.resource_limits.limits(),
            usage: self.resource_limits.usage(),
        };
        let hint = "the interpreter has ended; the next call runs in a new one";
        let report = CallReport {
            result: Some(serde_json::to_string(&info).map_err(Exit::failed)?),
            hint: pid.is_none().then(|| hint.to_owned()),
            ..CallReport::new(Outcome::Ok, State::Kept)
        };
        Ok(self.respond(report, seq, started.elapsed().as_secs_f64()))
    }

    fn refuse(&mut self, bad: BadRequest) -> Response {
        self.log.line(format_args!("refused a request: {bad}"));
        self.respond(CallReport::refused(bad.fault), bad.seq, 0.0)
    }

    fn respond(&self, report: CallReport, seq: i64, seconds: f64) -> Response {
        report.into_response(seq, self.execution_count, self.answer.clone(), seconds)
    }
}

/// A report with the start and duration of its request.
struct Timed {
    report: CallReport,
    /// Seconds since the Unix epoch.
    started_at: f64,
    seconds: f64,
}

impl Timed {
    fn run(events: &Events, serve: impl FnOnce() -> Result<CallReport, Exit>) -> Result<Self, Exit> {
        events.discard_earlier_interrupts()?;
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let started = Instant::now();
        let report = serve()?;
        Ok(Self { report, started_at, seconds: started.elapsed().as_secs_f64() })
    }
}

/// Splits the variables into those that the history keeps and the names of the others.
fn bounded(mut variables: BTreeMap<String, JsonText>) -> (BTreeMap<String, JsonText>, Vec<String>) {
    let (mut room, mut omitted) = (MAX_HISTORY_VARIABLES_BYTES, Vec::new());
    variables.retain(|name, json| {
        let left = room.checked_sub(json.get().len());
        match left {
            Some(left) => room = left,
            None => omitted.push(name.clone()),
        }
        left.is_some()
    });
    (variables, omitted)
}

fn parse(frame: Frame) -> Result<Request, BadRequest> {
    let (seq, fault) = match frame {
        Frame::Document(document) => return Request::parse(&document),
        Frame::TooLarge { bytes, seq } => {
            (seq, format!("request of {bytes} bytes exceeds the limit of {MAX_REQUEST_BYTES} bytes"))
        }
        Frame::Garbage(piece) => {
            (UNKNOWN_SEQ, format!("request is not valid JSON: expected an object, found {}", excerpt(&piece)))
        }
        Frame::Truncated(piece) => {
            let (bytes, beginning) = (piece.len(), excerpt(&piece));
            let fault = format!("request was cut off after {bytes} bytes: end of file inside {beginning}");
            (scan_seq(&piece), fault)
        }
    };
    Err(BadRequest { seq, fault })
}
