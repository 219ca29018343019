//! Every environment variable of the project, in one place. Only a `main` reads them.

use std::ffi::{OsStr, OsString};

/// URL of the root-tool endpoint.
pub const ROOT_TOOL_URL: &str = "RLM_ROOT_TOOL_URL";
/// Names of the root tools, a JSON list.
pub const ROOT_TOOL_NAMES: &str = "RLM_ROOT_TOOL_NAMES";
/// `pickle` (default) or `json`.
pub const ROOT_TOOL_SERIALIZATION: &str = "RLM_ROOT_TOOL_SERIALIZATION";
/// Sent to the endpoint as `Authorization: Bearer …` when set.
pub const INTERCEPTION_SECRET: &str = "RLM_INTERCEPTION_SECRET";
/// URL of the sub-LLM proxy.
pub const INTERCEPTION_URL: &str = "RLM_INTERCEPTION_URL";
/// Name of the model that `llm_batch` calls.
pub const SUB_MODEL: &str = "RLM_SUB_MODEL";
/// Time limit of a root-tool call in seconds, default 300.
pub const SUB_LLM_TIMEOUT: &str = "RLM_SUB_LLM_TIMEOUT";
/// Path of the file with the rollout's conversation, for code in the session to read.
pub const MESSAGES: &str = "RLM_MESSAGES";
/// Most sub-LLM calls of one rollout that run at once.
pub const MAX_SUB_LLM_PARALLELISM: &str = "RLM_MAX_SUB_LLM_PARALLELISM";
/// Default time limit of a call in seconds, a decimal number. No limit when absent.
pub const EXEC_TIMEOUT: &str = "RLM_EXEC_TIMEOUT";
/// Default bound on the bytes of output returned per stream, 16 MiB when absent.
pub const MAX_OUTPUT_BYTES: &str = "RLM_MAX_OUTPUT_BYTES";
/// Process id of the host: the worker ends when that process ends.
pub const HOST_PID: &str = "RLM_HOST_PID";
/// Most processes and threads of a session. No limit when absent.
pub const LIMIT_PROCESSES: &str = "RLM_LIMIT_PROCESSES";
/// Most memory of a session in bytes. No limit when absent.
pub const LIMIT_MEMORY: &str = "RLM_LIMIT_MEMORY";
/// Largest file that a session can write, in bytes. No limit when absent.
pub const LIMIT_FILE_SIZE: &str = "RLM_LIMIT_FILE_SIZE";
/// Most CPU time of one process of a session, in seconds. No limit when absent.
pub const LIMIT_CPU: &str = "RLM_LIMIT_CPU";
/// Directory of the cgroup in which sessions with limits get theirs, default the worker's own.
pub const CGROUP: &str = "RLM_CGROUP";
/// `TERM` of a session, default `dumb`.
pub const TERM: &str = "RLM_TERM";
/// Width of a bash session's terminal, default 80.
pub const COLUMNS: &str = "RLM_COLUMNS";
/// Height of a bash session's terminal, default 24.
pub const ROWS: &str = "RLM_ROWS";
/// The secret that `rlm run --ledger` presents to the program that keeps the ledger.
pub const LEDGER_SECRET: &str = "RLM_LEDGER_SECRET";
/// The token that clients of `rlm mcp --listen` present.
pub const MCP_TOKEN: &str = "RLM_MCP_TOKEN";
/// Names of host variables that the session may see, separated by commas or spaces; `*` passes all.
pub const PASS_ENV: &str = "RLM_PASS_ENV";
/// Directory of the programs, if it is not that of the running one.
pub const BIN_DIR: &str = "RLM_BIN_DIR";
/// The bash that `rlm-worker-bash` runs, a path; default `bash` on the worker's own `PATH`.
pub const BASH: &str = "RLM_BASH";

/// The Python that `rlm-worker-python` runs, a path or a name; see its `--python`.
pub const PYTHON: &str = "RLM_PYTHON";
/// Modules that Python cells may not import, separated by commas or spaces.
pub const DISALLOWED_MODULES: &str = "RLM_DISALLOWED_MODULES";
/// Builtins that Python cells may not use, separated by commas or spaces.
pub const DISALLOWED_BUILTINS: &str = "RLM_DISALLOWED_BUILTINS";
/// `1` or `true`: Python cells cannot reach files outside `fs_root`, `allowed_paths` and the interpreter's own library.
pub const FS_JAIL: &str = "RLM_FS_JAIL";
/// `1` or `true`: Python sessions have the functions `FINAL` and `FINAL_VAR`, which set the answer.
pub const FINAL_FUNCTIONS: &str = "RLM_FINAL_FUNCTIONS";

/// `1`, or most bytes of memory: a session whose interpreter dies goes on as it was before the call.
pub const CHECKPOINT: &str = "RLM_CHECKPOINT";

/// Name of the fork server from which Python sessions come.
pub const FORK_SERVER_NAME: &str = "RLM_FORK_SERVER_NAME";
/// Name of the branch of a session as which this one begins.
pub const BRANCH_NAME: &str = "RLM_BRANCH_NAME";
/// Modules that a fork server imports before its first session, separated by commas or spaces.
pub const PYTHON_PRELOAD: &str = "RLM_PYTHON_PRELOAD";

/// `full`, `try` or `off`: what of the host a session can reach.
pub const CONFINE: &str = "RLM_CONFINE";
/// Paths that a confined session can read besides its own, with colons between them.
pub const CONFINE_READ: &str = "RLM_CONFINE_READ";
/// Paths that it can write.
pub const CONFINE_WRITE: &str = "RLM_CONFINE_WRITE";
/// Most bytes in each of its `/tmp`, `/var/tmp` and `/dev/shm`.
pub const CONFINE_TMP: &str = "RLM_CONFINE_TMP";

/// The limits of a session's resources.
pub const LIMITS: [&str; 4] = [LIMIT_PROCESSES, LIMIT_MEMORY, LIMIT_FILE_SIZE, LIMIT_CPU];

/// The `RLM_*` names that a session itself gets: what code in the REPL needs to call back.
pub const SESSION_NAMES: [&str; 9] = [
    ROOT_TOOL_URL,
    ROOT_TOOL_NAMES,
    ROOT_TOOL_SERIALIZATION,
    INTERCEPTION_SECRET,
    INTERCEPTION_URL,
    SUB_MODEL,
    SUB_LLM_TIMEOUT,
    MAX_SUB_LLM_PARALLELISM,
    MESSAGES,
];

/// The `RLM_*` names that configure a worker, and that a person may have set for it.
const WORKER_NAMES: [&str; 24] = [
    BIN_DIR,
    MAX_OUTPUT_BYTES,
    LIMIT_PROCESSES,
    LIMIT_MEMORY,
    LIMIT_FILE_SIZE,
    LIMIT_CPU,
    CGROUP,
    CONFINE,
    CONFINE_READ,
    CONFINE_WRITE,
    CONFINE_TMP,
    TERM,
    COLUMNS,
    ROWS,
    PASS_ENV,
    BASH,
    PYTHON,
    DISALLOWED_MODULES,
    DISALLOWED_BUILTINS,
    FS_JAIL,
    FINAL_FUNCTIONS,
    CHECKPOINT,
    FORK_SERVER_NAME,
    PYTHON_PRELOAD,
];

/// The variables that a worker needs to find its interpreter.
const PROGRAM_NAMES: [&str; 2] = ["PATH", "VIRTUAL_ENV"];

/// Host variables that every session may see, besides the locale's.
const SESSION_BASE: [&str; 8] = ["HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"];

/// True if every session may see this host variable.
#[must_use]
pub fn is_for_sessions(name: &str) -> bool {
    SESSION_BASE.contains(&name) || name.starts_with("LC_")
}

/// The part of a host's environment that its workers get: the variables they need, and those named in [`PASS_ENV`].
/// Code in the session could read anything else there, such as a model's API key.
#[must_use]
pub fn for_workers(environment: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let passed = environment.iter().find(|(name, _)| name == PASS_ENV).map(|(_, names)| names.as_os_str());
    let passed = passed.and_then(OsStr::to_str).unwrap_or_default();
    let is_passed = |name: &OsString| name.to_str().is_some_and(|name| is_for_workers(name, passed));
    environment.iter().filter(|(name, _)| is_passed(name)).cloned().collect()
}

/// True for a variable that a worker reads or passes on, where these are the names in [`PASS_ENV`].
#[must_use]
pub fn is_of_workers(name: &str, passed: &str) -> bool {
    let of_its_host = SESSION_NAMES.contains(&name) || [EXEC_TIMEOUT, HOST_PID, BRANCH_NAME].contains(&name);
    of_its_host || is_for_workers(name, passed)
}

fn is_for_workers(name: &str, passed: &str) -> bool {
    let is_known = PROGRAM_NAMES.contains(&name) || WORKER_NAMES.contains(&name) || is_for_sessions(name);
    is_known || list(passed).any(|passed| passed == name || passed == "*")
}

/// Names, separated by commas or white space.
pub fn list(names: &str) -> impl Iterator<Item = &str> {
    names.split(|c: char| c == ',' || c.is_whitespace()).filter(|name| !name.is_empty())
}

/// Sets a variable in place of the first one of that name, and removes the others.
pub fn set(variables: &mut Vec<(OsString, OsString)>, name: impl Into<OsString>, value: impl Into<OsString>) {
    let (name, mut value) = (name.into(), Some(value.into()));
    variables.retain_mut(|(held, old)| *held != name || value.take().map(|value| *old = value).is_some());
    variables.extend(value.map(|value| (name, value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_get_no_key_unless_it_is_named() {
        let names = |pass: &str| {
            let all = ["PATH", "HOME", "LC_ALL", "OPENAI_API_KEY", "RLM_API_KEY", "RLM_BASH", "OTHER"];
            let mut variables: Vec<_> =
                all.iter().map(|name| (OsString::from(name), OsString::from("v"))).collect();
            variables.push((PASS_ENV.into(), pass.into()));
            let names = for_workers(&variables).into_iter().map(|(name, _)| name.into_string().unwrap());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(""), "PATH HOME LC_ALL RLM_BASH RLM_PASS_ENV");
        assert_eq!(names("OTHER, X"), "PATH HOME LC_ALL RLM_BASH OTHER RLM_PASS_ENV");
        assert!(names("*").contains("OPENAI_API_KEY"));
    }

    #[test]
    fn a_variable_that_is_set_replaces_those_of_its_name() {
        let mut variables =
            vec![("A".into(), "1".into()), ("B".into(), "2".into()), ("A".into(), "3".into())];
        set(&mut variables, "A", "4");
        set(&mut variables, "C", "5");
        let expected = [("A", "4"), ("B", "2"), ("C", "5")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(variables, expected);
    }
}
