//! Every environment variable of the project, in one place. Only a `main` reads them.

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
/// How many sub-LLM calls of one rollout run at once.
pub const MAX_SUB_LLM_PARALLELISM: &str = "RLM_MAX_SUB_LLM_PARALLELISM";
/// Default time limit of a call in seconds, a decimal number. No limit when absent.
pub const EXEC_TIMEOUT: &str = "RLM_EXEC_TIMEOUT";
/// Default bound on the bytes of output returned per stream, 16 MiB when absent.
pub const MAX_OUTPUT_BYTES: &str = "RLM_MAX_OUTPUT_BYTES";
/// Process id of the host: the worker ends when that process does.
pub const HOST_PID: &str = "RLM_HOST_PID";
/// `TERM` of a session, default `dumb`.
pub const TERM: &str = "RLM_TERM";
/// Width of a bash session's terminal, default 80.
pub const COLUMNS: &str = "RLM_COLUMNS";
/// Height of a bash session's terminal, default 24.
pub const ROWS: &str = "RLM_ROWS";
/// Names of host variables that the session may see, separated by commas or spaces; `*` passes all.
pub const PASS_ENV: &str = "RLM_PASS_ENV";
/// The bash that `rlm-worker-bash` runs, a path; default `bash` on the worker's own `PATH`.
pub const BASH: &str = "RLM_BASH";

/// The Python that `rlm-worker-python` runs, a path or a name; see its `--python`.
pub const PYTHON: &str = "RLM_PYTHON";
/// Modules that Python cells may not import, separated by commas or spaces.
pub const DISALLOWED_MODULES: &str = "RLM_DISALLOWED_MODULES";
/// Builtins that Python cells may not use, separated by commas or spaces.
pub const DISALLOWED_BUILTINS: &str = "RLM_DISALLOWED_BUILTINS";
/// `1` or `true`: Python cells reach no file outside `fs_root`, `allowed_paths` and the interpreter's own library.
pub const FS_JAIL: &str = "RLM_FS_JAIL";

/// The `RLM_*` names that a session itself gets: what code in the REPL needs to call back.
pub const SESSION_NAMES: [&str; 8] = [
    ROOT_TOOL_URL,
    ROOT_TOOL_NAMES,
    ROOT_TOOL_SERIALIZATION,
    INTERCEPTION_SECRET,
    INTERCEPTION_URL,
    SUB_MODEL,
    SUB_LLM_TIMEOUT,
    MAX_SUB_LLM_PARALLELISM,
];
