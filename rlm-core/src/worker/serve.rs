//! The serve loop: requests in, responses out, strictly in turn.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::PollFd;

use super::channel::{Channel, Delivery};
use super::events::{Events, Stop};
use super::log::Log;
use crate::control::{ControlDir, History};
use crate::frame::{Frame, excerpt};
use crate::limits::MAX_REQUEST_BYTES;
use crate::protocol::{
    Answer, BadRequest, Exception, Execute, HistoryEntry, Outcome, PROTOCOL_VERSION, Request, Response,
    State, Truncated, UNKNOWN_SEQ,
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
}

/// A language's session, as the serve loop sees it.
pub trait Interpreter {
    /// Runs one call to its end, whatever that is.
    ///
    /// # Errors
    /// [`Stop`] as soon as the worker has to end; the call is then abandoned.
    fn execute(&mut self, call: &Execute, events: &Events) -> Result<CallReport, Stop>;

    /// Adds the descriptors whose readiness [`Self::tend`] acts on while no call runs.
    fn watch<'fds>(&'fds self, fds: &mut Vec<PollFd<'fds>>);

    /// Takes what the session produced between calls. Does nothing where there is nothing.
    ///
    /// # Errors
    /// [`Stop`] where the session can no longer be served.
    fn tend(&mut self) -> Result<(), Stop>;
}

/// Serves requests until the worker has to end, and says why. `on_ready` is called once the ready flag is there.
pub fn serve(
    interpreter: &mut impl Interpreter,
    control: &ControlDir,
    channel: &mut Channel,
    events: &Events,
    log: &mut Log,
    on_ready: impl FnOnce(),
) -> Stop {
    let history = match control.open_history() {
        Ok(history) => history,
        Err(error) => return Stop::failed(error),
    };
    let mut server = Server { control, history, answer: Answer::default(), execution_count: 0, log };
    if let Err(error) = control.write_answer(&server.answer).and_then(|()| control.set_ready()) {
        return Stop::failed(error);
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
    answer: Answer,
    execution_count: u64,
    log: &'a mut Log,
}

impl Server<'_> {
    fn handle(
        &mut self,
        frame: Frame,
        interpreter: &mut impl Interpreter,
        events: &Events,
    ) -> Result<Response, Stop> {
        let request = understand(frame);
        match request {
            Ok(Request::Execute(call)) => self.execute(&call, interpreter, events),
            Ok(Request::Shutdown) => Err(Stop::Shutdown),
            Ok(Request::Reset { seq } | Request::Set { seq, .. } | Request::Info { seq }) => {
                let fault = "this worker serves the op `execute` only".to_owned();
                Ok(self.refuse(BadRequest { seq, fault }))
            }
            Err(refused) => Ok(self.refuse(refused)),
        }
    }

    fn execute(
        &mut self,
        call: &Execute,
        interpreter: &mut impl Interpreter,
        events: &Events,
    ) -> Result<Response, Stop> {
        events.discard_earlier_interrupts()?;
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let started = Instant::now();
        let report = interpreter.execute(call, events)?;
        let execution_time = started.elapsed().as_secs_f64();
        self.execution_count += 1;
        if let Some(answer) = report.answer
            && answer != self.answer
        {
            self.answer = answer;
            self.control.write_answer(&self.answer).map_err(Stop::failed)?;
        }
        self.history
            .append(&HistoryEntry {
                seq: call.seq,
                code: call.code.clone(),
                outcome: report.outcome,
                state: report.state,
                exit_code: report.exit_code,
                started_at,
                execution_time,
            })
            .map_err(Stop::failed)?;
        Ok(Response {
            status: report.outcome.status(),
            stdout: report.stdout,
            stderr: report.stderr,
            result: report.result,
            execution_count: self.execution_count,
            seq: call.seq,
            answer: self.answer.clone(),
            outcome: report.outcome,
            state: report.state,
            execution_time,
            exit_code: report.exit_code,
            exception: report.exception,
            truncated: (report.truncated != Truncated::default()).then_some(report.truncated),
            hint: report.hint,
            protocol: PROTOCOL_VERSION,
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

/// What a caller is told of a call that was stopped at its time limit and whose session goes on.
#[must_use]
pub fn timed_out_hint(limit: Option<Duration>) -> String {
    let seconds = limit.unwrap_or_default().as_secs_f64();
    format!("the call was stopped after its time limit of {seconds} s; the session's state is kept")
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
