//! The host's side of one worker.
//!
//! A [`Session`] owns the worker's process and, unless given one, its control directory. Calls run strictly one after
//! another, which `&mut self` enforces. The worker's own time limit normally ends a call. The session's limit is that
//! plus a margin; when it passes too, the worker is killed and a new one started.
//!
//! The worker's death is an event on its process descriptor, never a time-out. Dropping a session ends the worker and
//! waits for it, for little more than [`rlm_core::limits::SHUTDOWN_LIMIT`]; [`Session::close`] does the same without
//! blocking and returns how it went.

mod branch;
mod clock;
mod config;
mod error;
mod fork_server;
mod live;
mod process;
mod saved;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rlm_core::control::ControlDir;
use rlm_core::env;
#[doc(inline)]
pub use rlm_core::env::for_workers;
#[doc(inline)]
pub use rlm_core::json::JsonText;
use rlm_core::limits::OPERATION_LIMIT;
use rlm_core::protocol::Context;
#[doc(inline)]
pub use rlm_core::protocol::{
    Answer, Completions, Confine, ConfinementLevel, Exception, Info, Outcome, Response, State, Truncated,
};
use tokio::time::{timeout, timeout_at};

pub(crate) use self::branch::HandedOn;
pub use self::branch::{Branch, BranchDirectory};
pub use self::clock::{CallClock, StandStill};
pub use self::config::{Call, SessionConfig};
pub use self::error::SessionError;
use self::error::io_error;
pub use self::fork_server::{ForkServer, ForkServerError};
use self::live::Live;
pub use self::live::{OutputObserver, OutputStream};
pub use self::process::Interrupter;
use self::process::WorkerProcess;
use self::wire::Wire;
use crate::files::PrivateDir;

/// Time between interrupts, which are repeated until the call has ended.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(250);

/// A worker and its FIFOs.
#[derive(Debug)]
pub struct Session {
    // Field order matters: the worker must end before its directory is removed.
    wire: Wire,
    process: WorkerProcess,
    live: Option<Live>,
    control: ControlDir,
    config: SessionConfig,
    /// The control directory, if it is private.
    _private: Option<PrivateDir>,
    seq: i64,
    stale: Vec<i64>,
    last_answer: Answer,
    executions: u64,
    replacements: u32,
}

impl Session {
    /// Starts a worker and waits until it is ready.
    ///
    /// # Errors
    /// [`SessionError`] says which step failed; nothing is left behind.
    pub async fn start(config: SessionConfig) -> Result<Self, SessionError> {
        Self::begin(config, None).await
    }

    /// Starts a worker, which begins as the branch of this name, if there is one.
    async fn begin(config: SessionConfig, branch: Option<&str>) -> Result<Self, SessionError> {
        let private = match &config.control_dir {
            Some(_) => None,
            None => Some(PrivateDir::create().map_err(io_error("make a private control directory"))?),
        };
        let dir = private
            .as_ref()
            .map(PrivateDir::path)
            .or(config.control_dir.as_deref())
            .unwrap_or(Path::new("."));
        let control = ControlDir::new(dir);
        config.clock.attach(&control);
        let live = live(&config, &control)?;
        let (process, wire) = start_worker(&config, &control, branch).await?;
        Ok(Self {
            wire,
            process,
            live,
            control,
            config,
            _private: private,
            seq: 0,
            stale: Vec::new(),
            last_answer: Answer::default(),
            executions: 0,
            replacements: 0,
        })
    }

    /// Runs one call and waits for its response.
    ///
    /// Cancel-safe: when the future is dropped, the call goes on in the worker; its response is discarded when it comes.
    /// The next call waits for that.
    ///
    /// # Errors
    /// [`SessionError::Died`] as soon as the worker is dead, and from then on until [`Self::restart`]. A worker that
    /// does not answer in time is not an error: it is replaced, and the response says that the state was reset.
    pub async fn execute(&mut self, call: impl Into<Call>) -> Result<Response, SessionError> {
        let call = call.into();
        self.seq += 1;
        // `seq` comes first, because the worker sees only the beginning of a request that is too large.
        let mut request = serde_json::json!({"seq": self.seq, "code": call.code});
        if let Some(source) = call.source {
            request["source"] = source.into();
        }
        if let Some(limit) = call.timeout {
            request["timeout"] = limit.as_secs_f64().into();
        }
        if let Some(bytes) = call.max_output_bytes {
            request["max_output_bytes"] = bytes.into();
        }
        self.config.clock.begin();
        self.wire.queue(request.to_string().as_bytes());
        let limit = call.timeout.or(self.config.exec_timeout).map(|limit| limit + self.config.margin);
        self.response_within(limit).await
    }

    /// Ends everything the session started and gives it a fresh interpreter in the session's directory, with the same
    /// root tools and limits and an empty answer. The response holds the output that was not yet returned. If no
    /// interpreter can be started, the response says so (outcome `error`), and the next call tries again.
    ///
    /// # Errors
    /// As for [`Self::execute`].
    pub async fn reset(&mut self) -> Result<Response, SessionError> {
        self.last_answer = Answer::default();
        self.operate(serde_json::json!({"op": "reset"})).await
    }

    /// Sets variables in the session: Python values, or bash variables and arrays. Sets either all or none; if none,
    /// the response's outcome is `error`, and its `hint` names the variable and says what is wrong with it.
    ///
    /// A value is a [`serde_json::Value`] or a [`JsonText`], which keeps the digits of long numbers.
    ///
    /// # Errors
    /// As for [`Self::execute`].
    pub async fn set<N: Into<String>, V: Into<JsonText>>(
        &mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Response, SessionError> {
        let variables: BTreeMap<String, JsonText> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let variables = serde_json::to_string(&variables).map_err(|error| SessionError::Io {
            operation: "write the variables as JSON",
            source: error.into(),
        })?;
        self.seq += 1;
        // The request is made as text: a `Value` would lose digits.
        let request = format!(r#"{{"op": "set", "seq": {}, "variables": {variables}}}"#, self.seq);
        self.wire.queue(request.as_bytes());
        self.response_within(Some(OPERATION_LIMIT + self.config.margin)).await
    }

    /// Finds what can complete code that is being typed, given the code up to the cursor. The response's `result` is a
    /// [`Completions`] as JSON. Nothing in the session changes; in Python the `__dir__` of an object may run.
    ///
    /// # Errors
    /// As for [`Self::execute`].
    pub async fn complete(&mut self, code: &str) -> Result<Response, SessionError> {
        self.operate(serde_json::json!({"op": "complete", "code": code})).await
    }

    /// Describes the session: language, versions, time, memory, working directory. Changes nothing.
    ///
    /// # Errors
    /// As for [`Self::execute`]; [`SessionError::Protocol`] if the answer is not a description.
    pub async fn info(&mut self) -> Result<Info, SessionError> {
        let response = self.operate(serde_json::json!({"op": "info"})).await?;
        let described = response.result.as_deref().map(serde_json::from_str);
        match described {
            Some(Ok(info)) => Ok(info),
            Some(Err(error)) => Err(SessionError::Protocol(format!("{error} in the answer to `info`"))),
            None => Err(SessionError::Protocol(response.hint.unwrap_or_default())),
        }
    }

    /// Queues a request.
    fn ask(&mut self, mut request: serde_json::Value) {
        self.seq += 1;
        request["seq"] = self.seq.into();
        self.wire.queue(request.to_string().as_bytes());
    }

    async fn operate(&mut self, request: serde_json::Value) -> Result<Response, SessionError> {
        self.ask(request);
        self.response_within(Some(OPERATION_LIMIT + self.config.margin)).await
    }

    /// Waits for the response to the latest request; a worker that does not answer in time is replaced.
    async fn response_within(&mut self, limit: Option<Duration>) -> Result<Response, SessionError> {
        let Some(limit) = limit else { return self.taken().await };
        let began = Instant::now();
        loop {
            let until = began + limit + self.config.clock.stood_still();
            match timeout_at(until.into(), self.taken()).await {
                Ok(result) => return result,
                Err(_elapsed) if began + limit + self.config.clock.stood_still() > Instant::now() => {}
                Err(_elapsed) => return self.replace_mute_worker(limit).await,
            }
        }
    }

    /// The response to the latest request. The session's state is updated from it.
    async fn taken(&mut self) -> Result<Response, SessionError> {
        let response = self.response().await?;
        self.last_answer = response.answer.clone();
        self.executions = response.execution_count;
        Ok(response)
    }

    /// Runs one call, and interrupts it when `stop` completes. The interrupt is repeated until the response comes,
    /// since one that arrives before the worker has read the request is lost.
    ///
    /// # Errors
    /// As for [`Self::execute`].
    pub async fn execute_until(
        &mut self,
        call: impl Into<Call>,
        stop: impl Future<Output = ()>,
    ) -> Result<Response, SessionError> {
        let interrupter = self.interrupter();
        let interrupt = async {
            stop.await;
            loop {
                interrupter.interrupt();
                tokio::time::sleep(INTERRUPT_INTERVAL).await;
            }
        };
        tokio::select! {
            response = self.execute(call) => response,
            never = interrupt => never,
        }
    }

    /// Sends the queued requests and waits for the response to the latest.
    async fn response(&mut self) -> Result<Response, SessionError> {
        loop {
            let document = tokio::select! {
                biased;
                document = self.wire.exchange() => document?,
                never = Live::watch(&mut self.live) => match never {},
                () = self.process.died() => return Err(self.process.death(&self.control)),
            };
            let Some(document) = document else {
                // The worker has closed its end, so it is dying: wait for its status.
                self.process.died().await;
                return Err(self.process.death(&self.control));
            };
            let mut response: Response = serde_json::from_slice(&document).map_err(|error| {
                SessionError::Protocol(format!("{error} in {}", rlm_core::frame::excerpt(&document)))
            })?;
            if response.seq == self.seq {
                if let Some(live) = &mut self.live {
                    live.finish();
                }
                if response.state != State::Kept {
                    // Callers show the hint themselves, and the history has the result without it.
                    response.hide_hint();
                }
                return Ok(response);
            }
            self.stale.push(response.seq);
        }
    }

    /// Replaces a worker that does not respond even at its own time limit.
    async fn replace_mute_worker(&mut self, limit: Duration) -> Result<Response, SessionError> {
        self.replacements = self.replacements.saturating_add(1);
        let answer = self.last_answer.clone();
        self.restart().await?;
        Ok(Response {
            seq: self.seq,
            execution_time: limit.as_secs_f64(),
            answer,
            hint: Some(format!(
                "the worker did not answer within {} s and was replaced: the session's state is lost",
                limit.as_secs_f64()
            )),
            ..Response::new(Outcome::TimedOut, State::Reset)
        })
    }

    /// A response to a call that was not sent to the worker: outcome `error`, and the latest answer.
    pub(crate) fn unsent(&self) -> Response {
        Response {
            seq: self.seq,
            answer: self.last_answer.clone(),
            execution_count: self.executions,
            ..Response::new(Outcome::Error, State::Kept)
        }
    }

    /// Ends the worker if it is alive and starts a new one in the same directories, after repairing any damage to the
    /// control directory. State is lost; `seq` continues.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub async fn restart(&mut self) -> Result<(), SessionError> {
        self.process.end();
        self.control.repair()?;
        // The old FIFOs are removed first.
        self.live = None;
        self.live = live(&self.config, &self.control)?;
        // An answer that was final in the old session is not final in this one.
        self.last_answer.ready = false;
        (self.process, self.wire) = start_worker(&self.config, &self.control, None).await?;
        Ok(())
    }

    /// A handle that can interrupt the running call from another task or thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.process.interrupter()
    }

    /// Process id of the worker.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The death of the worker, if it is dead or dying; waits until it is dead. Returns None at once while it is alive.
    pub(crate) async fn death(&mut self) -> Option<SessionError> {
        if !self.process.is_dead() && self.wire.has_reader() {
            return None;
        }
        self.process.died().await;
        Some(self.process.death(&self.control))
    }

    /// True if the worker may have read the latest request. If false and the worker is dead, the code did not run.
    pub(crate) fn was_read(&self) -> bool {
        self.wire.was_read()
    }

    /// The control directory: the FIFOs, the worker's history, and its log.
    #[must_use]
    pub fn control_dir(&self) -> &Path {
        self.control.path()
    }

    /// The `seq` of each response that was discarded because its call's future had been dropped.
    #[doc(hidden)]
    #[must_use]
    pub fn stale_responses(&self) -> &[i64] {
        &self.stale
    }

    /// Begins a call, though not yet its code.
    pub(crate) fn begin_clock(&self) {
        self.config.clock.begin();
    }

    /// The time that the clock of the running call has stood still.
    pub(crate) fn stood_still(&self) -> Duration {
        self.config.clock.stood_still()
    }

    /// Number of times the worker did not answer and was replaced.
    pub(crate) fn replacements(&self) -> u32 {
        self.replacements
    }

    /// Ends the worker and everything it started, and waits for it.
    ///
    /// # Errors
    /// [`SessionError::Died`] if the worker was already dead, or did not end cleanly.
    pub async fn close(mut self) -> Result<(), SessionError> {
        self.wire.queue(br#"{"shutdown": true}"#);
        let sent = timeout(self.config.margin, async {
            tokio::select! {
                _ = self.wire.exchange() => {}
                () = self.process.died() => {}
            }
            self.process.died().await;
        });
        if sent.await.is_err() {
            self.process.end();
        }
        if self.process.ended_well() { Ok(()) } else { Err(self.process.death(&self.control)) }
    }
}

/// The FIFOs for output, if somebody watches it.
fn live(config: &SessionConfig, control: &ControlDir) -> Result<Option<Live>, SessionError> {
    config.output.clone().map(|observer| Live::make(control, observer)).transpose()
}

async fn start_worker(
    config: &SessionConfig,
    control: &ControlDir,
    branch: Option<&str>,
) -> Result<(WorkerProcess, Wire), SessionError> {
    control.write_context(&Context {
        fs_root: config.fs_root.clone(),
        fs_metadata: config.fs_metadata.clone(),
        allowed_paths: config.allowed_paths.clone(),
    })?;
    let mut variables = config.env.clone();
    let mut set = |name: &str, value: String| env::set(&mut variables, name, value);
    set(env::HOST_PID, std::process::id().to_string());
    if let Some(name) = branch {
        set(env::BRANCH_NAME, name.to_owned());
    }
    if let Some(limit) = config.exec_timeout {
        set(env::EXEC_TIMEOUT, limit.as_secs_f64().to_string());
    }
    if let Some(confine) = config.confine {
        set(env::CONFINE, confine.to_string());
    }
    if let Some(bytes) = config.max_output_bytes {
        set(env::MAX_OUTPUT_BYTES, bytes.to_string());
    }
    let process = WorkerProcess::start(
        &config.worker,
        &config.arguments,
        control.path(),
        &variables,
        config.start_limit,
    )
    .await?;
    let wire = Wire::open(control)?;
    Ok((process, wire))
}
