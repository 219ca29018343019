//! The state of a session and its worker, and the limits of its resources.

use serde::{Deserialize, Serialize};

use super::Confinement;

/// The current session and worker: `result` of the response to op `info`, as JSON text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// `bash` or `python`.
    pub language: String,
    /// Version of the interpreter, `5.2.15(1)-release` or `3.11.2`.
    pub version: String,
    /// True for the Python that is packed with the programs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub builtin: bool,
    /// Version of the worker program.
    pub worker_version: String,
    /// [`super::PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Seconds since the worker became ready.
    pub uptime: f64,
    /// Calls executed so far.
    pub calls: u64,
    /// Resident memory of the worker, the interpreter and everything they started, in bytes. Shared pages are counted
    /// once for each process.
    pub memory_bytes: u64,
    /// Working directory of the interpreter, without symbolic links; the last known one if no interpreter is running,
    /// or null.
    pub cwd: Option<String>,
    /// Process id of the interpreter; null if it has ended and the next call starts another.
    pub pid: Option<i32>,
    /// True if the answer was declared final.
    pub answer_ready: bool,
    /// The part of the host that the session can reach.
    #[serde(default, skip_serializing_if = "Confinement::is_off")]
    pub confinement: Confinement,
    /// Limits of the session's resources.
    #[serde(default)]
    pub limits: Limits,
    /// The most that the session has used of them so far.
    #[serde(default)]
    pub usage: Usage,
}

/// Limits of a session's resources; null for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes and threads; by `rlimit` without full confinement, those of the user.
    pub processes: Option<Limit>,
    /// Memory in bytes; by `rlimit`, the address space of each process.
    pub memory_bytes: Option<Limit>,
    /// Size of each file in bytes.
    pub file_size_bytes: Option<Limit>,
    /// CPU time of each process in seconds.
    pub cpu_seconds: Option<Limit>,
}

/// A limit in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The limit, in the unit of its field.
    pub value: u64,
    /// The part of the kernel that enforces it; null if the kernel cannot, for this user.
    pub mechanism: Option<Mechanism>,
}

/// The part of the kernel that enforces a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// The session's cgroup: the limit is for all of its processes together.
    Cgroup,
    /// A resource limit of each process.
    Rlimit,
    /// The session's namespace of process ids: the limit is for all of its processes together.
    PidNamespace,
}

/// The most that a session has used of its resources so far; null where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Processes and threads that ran at once.
    pub peak_processes: Option<u64>,
    /// Memory in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// CPU time in seconds of everything that the session has started.
    pub cpu_seconds: Option<f64>,
}
