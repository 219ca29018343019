//! Interception: the host makes the calls of root tools in a session's code before the code runs.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_core::json::JsonText;
use rlm_core::limits::MAX_HISTORY_VARIABLES_BYTES;
use rlm_core::protocol::{Exception, Outcome, Response, State};
use rlm_core::root_tool::{Reply, print};
use rlm_rootd::{CallError, Receipt, Rootd};
use tokio::time::timeout_at;

use super::value::Variable;
use crate::interception::{InterceptedCall, Plan, Planner, Rejections, VariableNames};
use crate::prompts::{CallFailed, CallsRejected, PromptError, Prompts, ResultsCut};
use crate::session::{Call, Session, SessionError};
use crate::terms::ReplLanguage;

/// Exception type of code that is refused before it runs.
const REFUSED: &str = "InterceptionError";

/// Exception type of a failed tool, the same as over HTTP.
const TOOL_FAILED: &str = "RuntimeError";

/// Shortest time limit of the code after its tools have run.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// Largest set of values in one request to the worker, in bytes: as many as a line of its history keeps.
const MAX_SET_BYTES: usize = MAX_HISTORY_VARIABLES_BYTES;

/// The configuration of an [`Interceptor`].
#[derive(Clone, Debug)]
pub(crate) struct InterceptorConfig {
    /// The server that makes the calls.
    pub rootd: Rootd,
    /// The rollout at that server whose tools are called.
    pub rollout: String,
    /// Names of those tools.
    pub tools: Vec<String>,
    /// The session's language.
    pub language: ReplLanguage,
    /// The templates of replies.
    pub prompts: Arc<Prompts>,
}

/// Makes the calls of root tools in a session's code, and runs the code with their values in their places.
///
/// Code that cannot be run this way gets a response of outcome `error`: nothing was run, and `result` (Python) or
/// `stdout` (bash) says what to write instead.
#[derive(Debug)]
pub(crate) struct Interceptor {
    config: InterceptorConfig,
    names: VariableNames,
    /// The version of the session's Python, once it is known.
    python: Option<(u8, u8)>,
}

/// Why intercepted code could not be run.
#[derive(Debug, thiserror::Error)]
pub enum InterceptorError {
    /// The worker died, or broke the protocol.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A custom prompt template cannot be rendered.
    #[error(transparent)]
    Prompt(#[from] PromptError),
}

/// Why a call has no result.
#[derive(Debug)]
enum NoReply {
    /// The time of the whole call was up.
    Late,
    /// The tool failed with this message.
    Failed(String),
}

/// The results of the calls in a piece of code.
#[derive(Debug, Default)]
struct CallResults {
    variables: Vec<(String, JsonText)>,
    /// Lines that the tools print.
    printed: String,
    /// Calls whose results were cut to their beginning.
    cut: Vec<String>,
    /// Receipts for results that are paid for, kept until code has run with them.
    receipts: Vec<Receipt>,
}

impl Interceptor {
    /// An interceptor for one session. It stays valid when the session's worker is replaced.
    ///
    /// # Errors
    /// The system provides no random number for the names of variables.
    pub(crate) fn new(config: InterceptorConfig) -> std::io::Result<Self> {
        Ok(Self { config, names: VariableNames::new(getrandom::u32()?), python: None })
    }

    /// Makes the calls in the code in order, then runs it. The call's time limit covers both. When `stop` completes,
    /// both are stopped.
    pub(crate) async fn execute_until(
        &mut self,
        session: &mut Session,
        call: impl Into<Call>,
        stop: impl Future<Output = ()>,
    ) -> Result<Response, InterceptorError> {
        let (call, started) = (call.into(), Instant::now());
        session.begin_clock();
        let mut stop = pin!(stop);
        if self.config.language == ReplLanguage::Python && self.python.is_none() {
            self.python = python_version(session).await?;
        }
        let tools: Vec<_> = self.config.tools.iter().map(String::as_str).collect();
        let planner = Planner { language: self.config.language, python: self.python, tools: &tools };
        let (calls, code) = match planner.plan(&call.code, &mut self.names) {
            Plan::Untouched => {
                let response = session.execute_until(call, stop).await?;
                return Ok(self.explained(response));
            }
            Plan::Rejected(rejections) => return self.rejected(session, &rejections),
            Plan::Intercepted { calls, code } => (calls, code),
        };
        let results = tokio::select! {
            biased;
            () = stop.as_mut() => Err(Response { outcome: Outcome::Interrupted, ..session.unsent() }),
            results = self.make_calls(session, &calls, call.timeout, started) => results?,
        };
        let results = match results {
            Ok(results) => results,
            Err(response) => {
                return Ok(Response { execution_time: started.elapsed().as_secs_f64(), ..response });
            }
        };
        let limit = call.timeout;
        let taken = started.elapsed().saturating_sub(session.stood_still());
        let timeout = limit.map(|limit| limit.saturating_sub(taken).max(MIN_TIMEOUT));
        let call = Call { source: Some(call.code), code, timeout, ..call };
        let mut response = self.run(session, call, results, started, stop).await?;
        if let (Some(limit), Some(timeout), Some(hint)) = (limit, timeout, &mut response.hint) {
            // The worker names the limit that it was given: put the caller's in its place.
            *hint = hint.replacen(&in_seconds(timeout), &in_seconds(limit), 1);
        }
        Ok(response)
    }

    /// Makes the calls one after another. The inner error: one of them failed.
    async fn make_calls(
        &self,
        session: &Session,
        calls: &[InterceptedCall],
        limit: Option<Duration>,
        started: Instant,
    ) -> Result<Result<CallResults, Response>, InterceptorError> {
        let mut results = CallResults::default();
        for (at, call) in calls.iter().enumerate() {
            let end = || limit.map(|limit| started + limit + session.stood_still());
            let replied = match self.reply(call, end).await {
                Ok((reply, receipt)) => {
                    results.receipts.extend(receipt);
                    Variable::of(&call.call.tool, &reply, self.config.language)
                        .map(|variable| (reply, variable))
                        .map_err(NoReply::Failed)
                }
                Err(none) => Err(none),
            };
            let (reply, variable) = match replied {
                Ok(replied) => replied,
                Err(NoReply::Failed(words)) => return Ok(Err(self.failed(session, call, at, &words)?)),
                Err(NoReply::Late) => return Ok(Err(self.late(session, call, limit.unwrap_or_default()))),
            };
            if variable.is_cut {
                results.cut.push(self.shown(call));
            }
            // In bash, the command substitution takes what a tool prints, but for remarks, which are on standard error.
            let lines: Vec<_> = match self.config.language {
                ReplLanguage::Python => reply.print_lines.iter().map(String::as_str).collect(),
                ReplLanguage::Bash => print::remarks(&call.call.tool, &reply).collect(),
            };
            for line in lines {
                results.printed.push_str(line);
                results.printed.push('\n');
            }
            results.variables.push((call.variable.clone(), variable.json));
        }
        Ok(Ok(results))
    }

    /// Makes a call, until `end`, which moves as long as the clock stands still.
    async fn reply(
        &self,
        call: &InterceptedCall,
        end: impl Fn() -> Option<Instant>,
    ) -> Result<(Reply, Option<Receipt>), NoReply> {
        let mut calling = pin!(self.config.rootd.call(&self.config.rollout, call.call.clone()));
        let replied = loop {
            let Some(until) = end() else { break calling.await };
            match timeout_at(until.into(), calling.as_mut()).await {
                Ok(replied) => break replied,
                Err(_late) if end().is_some_and(|end| end > Instant::now()) => {}
                Err(_late) => return Err(NoReply::Late),
            }
        };
        replied.map_err(|error: CallError| NoReply::Failed(error.to_string()))
    }

    /// Sets the values in the session and runs the code.
    async fn run(
        &self,
        session: &mut Session,
        call: Call,
        results: CallResults,
        started: Instant,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Response, InterceptorError> {
        for values in batches(results.variables) {
            let response = session.set(values).await?;
            if response.outcome != Outcome::Ok {
                return Ok(response);
            }
        }
        let mut response = session.execute_until(call, stop).await?;
        // The values are gone with an interpreter that was killed.
        if response.state != State::Reset {
            results.receipts.iter().for_each(Receipt::sign);
        }
        response.stdout.insert_str(0, &results.printed);
        response.execution_time = started.elapsed().as_secs_f64();
        if !results.cut.is_empty() {
            let warning = ResultsCut { calls: &results.cut }.render(&self.config.prompts)?;
            let hints = response.hint.take().into_iter().chain([warning.trim().to_owned()]);
            response.hint = Some(hints.collect::<Vec<_>>().join("; "));
        }
        Ok(response)
    }

    /// The response to code with a call that cannot be made.
    fn rejected(&self, session: &Session, rejections: &Rejections) -> Result<Response, InterceptorError> {
        let language = self.config.language;
        let text = CallsRejected { language, rejections }.render(&self.config.prompts)?;
        Ok(self.nothing_ran(session, text, REFUSED, rejections.to_string()))
    }

    /// The response to code with a failed call, after this many successful ones.
    fn failed(
        &self,
        session: &Session,
        call: &InterceptedCall,
        calls_before: usize,
        error: &str,
    ) -> Result<Response, InterceptorError> {
        let failed = CallFailed {
            language: self.config.language,
            line: call.line,
            call: &self.shown(call),
            error,
            calls_before,
        };
        let text = failed.render(&self.config.prompts)?;
        Ok(self.nothing_ran(session, text, TOOL_FAILED, error.to_owned()))
    }

    /// The response if the call's time is up while a tool runs.
    fn late(&self, session: &Session, call: &InterceptedCall, limit: Duration) -> Response {
        let (call, limit) = (self.shown(call), in_seconds(limit));
        let hint = format!(
            "the call was stopped after its time limit of {limit} while `{call}` ran, before its code; none of the \
             code was run, and the session's state is kept"
        );
        Response { outcome: Outcome::TimedOut, hint: Some(hint), ..session.unsent() }
    }

    /// Adds a hint if code calls a tool where the host does not look for calls, inside a string for instance.
    fn explained(&self, response: Response) -> Response {
        let is_unknown = |exception: &Exception| {
            exception.kind == "NameError"
                && self
                    .config
                    .tools
                    .iter()
                    .any(|tool| exception.message == format!("name '{tool}' is not defined"))
        };
        let hint = match &response.exception {
            Some(exception) if response.hint.is_none() && is_unknown(exception) => Some(
                "functions of the host are called before the code runs; such a call must be a statement of its own: \
                 name = function(literals)"
                    .to_owned(),
            ),
            _ => return response,
        };
        Response { hint, ..response }
    }

    /// The call as written, shortened.
    fn shown(&self, call: &InterceptedCall) -> String {
        let (tool, arguments) = (&call.call.tool, &call.preview);
        match self.config.language {
            ReplLanguage::Bash => format!("{tool} {arguments}").trim_end().to_owned(),
            ReplLanguage::Python => format!("{tool}({arguments})"),
        }
    }

    /// The response to code that was not run.
    fn nothing_ran(&self, session: &Session, text: String, kind: &str, message: String) -> Response {
        let response = session.unsent();
        match self.config.language {
            ReplLanguage::Bash => Response { stdout: text + "\n", ..response },
            ReplLanguage::Python => Response {
                result: Some(text),
                exception: Some(Exception { kind: kind.to_owned(), message }),
                ..response
            },
        }
    }
}

/// The version of the session's Python, which decides what a syntax error is. None if the session cannot tell.
async fn python_version(session: &mut Session) -> Result<Option<(u8, u8)>, SessionError> {
    let version = match session.info().await {
        Ok(info) => info.version,
        Err(SessionError::Protocol(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    Ok(numbers.next().zip(numbers.next()))
}

fn in_seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Groups values into requests of at most [`MAX_SET_BYTES`].
fn batches(variables: Vec<(String, JsonText)>) -> Vec<Vec<(String, JsonText)>> {
    let mut batches: Vec<Vec<_>> = Vec::new();
    let mut left = 0;
    for (name, json) in variables {
        let bytes = json.get().len();
        match batches.last_mut() {
            Some(batch) if bytes <= left => {
                left -= bytes;
                batch.push((name, json));
            }
            _ => {
                left = MAX_SET_BYTES.saturating_sub(bytes);
                batches.push(vec![(name, json)]);
            }
        }
    }
    batches
}
