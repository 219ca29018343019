//! The serve loop: requests in, responses out, strictly in turn.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::PollFd;
use nix::unistd::{Pid, getppid};

use super::channel::{Channel, Delivery};
use super::descendants;
use super::events::{Events, Exit};
use super::log::Log;
use crate::control::{ControlDir, History};
use crate::error::with_causes;
use crate::frame::{Frame, excerpt};
use crate::json::JsonText;
use crate::limits::{MAX_HISTORY_VARIABLES_BYTES, MAX_REQUEST_BYTES};
use crate::protocol::{
    Answer, BadRequest, Exception, Execute, HistoryEntry, HistorySession, Info, Operation, Outcome,
    PROTOCOL_VERSION, Request, Response, State, Truncated, UNKNOWN_SEQ,
};

/// What an interpreter has to say of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallReport {
    /// How the call ended.
    pub outcome: Outcome,
    /// What is left of the session.
    pub state: State,
    /// Standard output, or the terminal's text.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The value or traceback of a Python cell.
    pub result: Option<String>,
    /// Status of the last command, or of the shell that ended.
    pub exit_code: Option<i32>,
    /// The exception that ended a Python cell.
    pub exception: Option<Exception>,
    /// Bytes dropped from the streams; zeros count as none.
    pub truncated: Truncated,
    /// A sentence for the caller.
    pub hint: Option<String>,
    /// The answer where the call could tell it; None leaves the old one.
    pub answer: Option<Answer>,
}

impl CallReport {
    /// A call of which there is nothing more to say.
    #[must_use]
    pub fn new(outcome: Outcome, state: State) -> Self {
        Self {
            outcome,
            state,
            stdout: String::new(),
            stderr: String::new(),
            result: None,
            exit_code: None,
            exception: None,
            truncated: Truncated::default(),
            hint: None,
            answer: None,
        }
    }

    /// An operation that was not done, and why; nothing has changed.
    #[must_use]
    pub fn refused(fault: String) -> Self {
        Self { hint: Some(fault), ..Self::new(Outcome::Error, State::Kept) }
    }
}

/// What an interpreter is at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// `bash` or `python`.
    pub language: &'static str,
    /// Its version.
    pub version: String,
    /// Its process, while it lives.
    pub pid: Option<Pid>,
    /// Its working directory, or the last one known.
    pub cwd: Option<PathBuf>,
    /// Whether it has `FINAL` and `FINAL_VAR`.
    pub has_final_functions: bool,
}

impl Description {
    /// Describes an interpreter: where its process cannot be asked for its directory, that is `known`.
    #[must_use]
    pub fn new(language: &'static str, version: &str, pid: Option<Pid>, known: Option<PathBuf>) -> Self {
        let asked = pid.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).ok());
        let cwd = asked.or(known);
        Self { language, version: version.to_owned(), pid, cwd, has_final_functions: false }
    }
}

/// A language's session, as the serve loop sees it.
pub trait Interpreter {
    /// Runs one call to its end, whatever that is.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end; the call is then abandoned.
    fn execute(&mut self, call: &Execute, events: &Events) -> Result<CallReport, Exit>;

    /// Ends all that the session started and begins anew, with a fresh interpreter in the session's directory. The report
    /// has the output that nobody has taken yet, and an empty answer. Where no interpreter can be started the report's
    /// outcome is `error`, and the next call tries again.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    fn reset(&mut self, events: &Events) -> Result<CallReport, Exit>;

    /// Gives the session these variables: all, or none and a report with the outcome `error`. It runs none of the code
    /// that a value may look like, and leaves everything else as it is.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    fn set(&mut self, variables: &BTreeMap<String, JsonText>, events: &Events) -> Result<CallReport, Exit>;

    /// Describes the interpreter without asking it anything.
    ///
    /// # Errors
    /// [`Exit`] where the session can no longer be served.
    fn describe(&mut self) -> Result<Description, Exit>;

    /// Adds the descriptors whose readiness [`Self::tend`] acts on while no call runs.
    fn watch<'fds>(&'fds self, fds: &mut Vec<PollFd<'fds>>);

    /// Takes what the session produced between calls. Does nothing where there is nothing.
    ///
    /// # Errors
    /// [`Exit`] where the session can no longer be served.
    fn tend(&mut self) -> Result<(), Exit>;
}

/// Where a session works, and what it can call: what its history tells beside its language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// The session's working directory.
    pub fs_root: PathBuf,
    /// Names of the root tools.
    pub root_tools: Vec<String>,
}

/// Serves requests until the worker has to end, and says why. `on_ready` is called once the ready flag is there.
pub fn serve(
    surroundings: Surroundings,
    interpreter: &mut impl Interpreter,
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
    let Description { language, version, has_final_functions, .. } = match interpreter.describe() {
        Ok(description) => description,
        Err(stop) => return stop,
    };
    let begun = HistorySession {
        language: language.to_owned(),
        version,
        fs_root: surroundings.fs_root.to_string_lossy().into_owned(),
        root_tools: surroundings.root_tools,
        final_functions: has_final_functions,
    };
    let mut server = Server {
        control,
        history,
        begun: Some(begun),
        answer: Answer::default(),
        execution_count: 0,
        ready_since: Instant::now(),
        log,
    };
    if let Err(error) = control.write_answer(&server.answer).and_then(|()| control.set_ready()) {
        return Exit::failed(error);
    }
    on_ready();
    loop {
        let served = channel.next_frame(events, interpreter).and_then(|frame| {
            let response = server.handle(frame, interpreter, events)?;
            let delivery = channel.respond(&response, events, interpreter)?;
            if delivery == Delivery::GivenUp {
                server.log.line("the host closed the response FIFO before it had read the response");
            }
            Ok(())
        });
        if let Err(stop) = served {
            return stop;
        }
    }
}

struct Server<'a> {
    control: &'a ControlDir,
    history: History,
    /// What the first line of the history tells, until it is written.
    begun: Option<HistorySession>,
    answer: Answer,
    execution_count: u64,
    ready_since: Instant,
    log: &'a mut Log,
}

/// What is done for a request, and what the history tells of it.
struct Task {
    seq: i64,
    op: Operation,
    code: String,
    source: Option<String>,
    variables: Option<BTreeMap<String, JsonText>>,
}

impl Task {
    /// A task that brings neither code nor variables.
    fn new(op: Operation, seq: i64) -> Self {
        Self { seq, op, code: String::new(), source: None, variables: None }
    }
}

impl Server<'_> {
    fn handle(
        &mut self,
        frame: Frame,
        interpreter: &mut impl Interpreter,
        events: &Events,
    ) -> Result<Response, Exit> {
        match understand(frame) {
            Ok(Request::Execute(call)) => {
                let done = self.perform(events, || interpreter.execute(&call, events))?;
                self.execution_count += 1;
                let Execute { code, source, seq, .. } = call;
                self.answer(Task { code, source, ..Task::new(Operation::Execute, seq) }, done)
            }
            Ok(Request::Reset { seq }) => {
                let done = self.perform(events, || interpreter.reset(events))?;
                self.answer(Task::new(Operation::Reset, seq), done)
            }
            Ok(Request::Set { seq, variables }) => {
                let done = self.perform(events, || interpreter.set(&variables, events))?;
                let variables = Some(variables);
                self.answer(Task { variables, ..Task::new(Operation::Set, seq) }, done)
            }
            Ok(Request::Info { seq }) => self.describe(seq, interpreter),
            Ok(Request::Shutdown) => Err(Exit::Shutdown),
            Err(refused) => Ok(self.refuse(refused)),
        }
    }

    /// Does what was asked, and takes the time.
    fn perform(
        &mut self,
        events: &Events,
        perform: impl FnOnce() -> Result<CallReport, Exit>,
    ) -> Result<Done, Exit> {
        events.discard_earlier_interrupts()?;
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let started = Instant::now();
        let report = perform()?;
        Ok(Done { report, started_at, execution_time: started.elapsed().as_secs_f64() })
    }

    /// Makes the response, after the answer file and the history have what is new.
    fn answer(&mut self, task: Task, done: Done) -> Result<Response, Exit> {
        let Done { report, started_at, execution_time } = done;
        if let Some(answer) = report.answer
            && answer != self.answer
        {
            self.answer = answer;
            self.control.write_answer(&self.answer).map_err(Exit::failed)?;
        }
        let response = Response {
            status: report.outcome.status(),
            stdout: report.stdout,
            stderr: report.stderr,
            result: report.result,
            execution_count: self.execution_count,
            seq: task.seq,
            answer: self.answer.clone(),
            outcome: report.outcome,
            state: report.state,
            execution_time,
            exit_code: report.exit_code,
            exception: report.exception,
            truncated: (report.truncated != Truncated::default()).then_some(report.truncated),
            hint: report.hint,
            protocol: PROTOCOL_VERSION,
        };
        let (variables, variables_omitted) = task.variables.map(bounded).unzip();
        let entry = HistoryEntry {
            seq: task.seq,
            code: task.code,
            outcome: response.outcome,
            state: response.state,
            exit_code: response.exit_code,
            started_at,
            execution_time,
            op: task.op,
            output_digest: Some(response.output_digest()),
            output_bytes: response.output_bytes(),
            variables,
            variables_omitted: variables_omitted.unwrap_or_default(),
            has_result: response.result.is_some(),
            source: task.source,
            session: self.begun.take(),
        };
        self.history.append(&entry).map_err(Exit::failed)?;
        Ok(response)
    }

    fn describe(&self, seq: i64, interpreter: &mut impl Interpreter) -> Result<Response, Exit> {
        let started = Instant::now();
        let Description { language, version, pid, cwd, .. } = interpreter.describe()?;
        let this = Pid::this();
        let memory_bytes =
            [getppid(), this].into_iter().chain(descendants::below(this)).map(descendants::resident_bytes);
        let info = Info {
            language: language.to_owned(),
            version,
            worker_version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            uptime: self.ready_since.elapsed().as_secs_f64(),
            calls: self.execution_count,
            memory_bytes: memory_bytes.sum(),
            cwd: cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
            pid: pid.map(Pid::as_raw),
            answer_ready: self.answer.ready,
        };
        Ok(Response {
            status: Outcome::Ok.status(),
            outcome: Outcome::Ok,
            result: Some(serde_json::to_string(&info).map_err(Exit::failed)?),
            execution_count: self.execution_count,
            answer: self.answer.clone(),
            execution_time: started.elapsed().as_secs_f64(),
            hint: pid
                .is_none()
                .then(|| "the interpreter has ended; the next call runs in a new one".to_owned()),
            ..Response::refused(seq, String::new())
        })
    }

    fn refuse(&mut self, refused: BadRequest) -> Response {
        self.log.line(format_args!("refused a request: {refused}"));
        Response {
            execution_count: self.execution_count,
            answer: self.answer.clone(),
            ..Response::refused(refused.seq, refused.fault)
        }
    }
}

/// A task, done.
struct Done {
    report: CallReport,
    started_at: f64,
    execution_time: f64,
}

/// The variables that the history keeps, and the names of the others.
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

/// What a caller is told of a call that was stopped at its time limit and whose session goes on.
#[must_use]
pub fn timed_out_hint(limit: Option<Duration>) -> String {
    let seconds = limit.unwrap_or_default().as_secs_f64();
    format!("the call was stopped after its time limit of {seconds} s; the session's state is kept")
}

/// What a caller is told of a session that was reset and has left something behind.
pub const SURVIVORS: &str = "some processes of the old session could not be ended";

/// What a caller is told of a session that was reset and has no interpreter now.
#[must_use]
pub fn no_interpreter(kind: &str, error: &(dyn std::error::Error + 'static)) -> String {
    format!(
        "the session was ended, and no new {kind} could be started: {}; the next call tries again",
        with_causes(error)
    )
}

/// A frame as a request, or why it is none.
fn understand(frame: Frame) -> Result<Request, BadRequest> {
    let (seq, fault) = match frame {
        Frame::Document(document) => return Request::parse(&document),
        Frame::TooLarge { bytes, seq } => {
            (seq, format!("request of {bytes} bytes exceeds the limit of {MAX_REQUEST_BYTES} bytes"))
        }
        Frame::Garbage(piece) => {
            (UNKNOWN_SEQ, format!("request is not valid JSON: expected an object, found {}", excerpt(&piece)))
        }
        Frame::Truncated(piece) => {
            let seq = crate::frame::scan_seq(&piece);
            (
                seq,
                format!(
                    "request was cut off after {} bytes: end of file inside {}",
                    piece.len(),
                    excerpt(&piece)
                ),
            )
        }
    };
    Err(BadRequest { seq, fault })
}
