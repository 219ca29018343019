//! Every setting, stated once.

use std::path::PathBuf;
use std::time::Duration;

use rlm_core::protocol::Confine;
use rlm_env::ReplLanguage;
use rlm_env::rollout::{Callbacks, Verbosity};
use rlm_rootd::{Api, ServerRules};

use super::contents;
use super::setting::{
    AnySetting, Effect, Fields, Form, Setting, any_text, bytes, call_seconds, checkpoint, count, fields,
    flag, headers, modules, names, parsed, path, paths, patterns, seconds, setting, some_text, usd, whole,
};

/// Defines the settings, and [`ALL`] of them.
macro_rules! settings {
    ($($name:ident: $type:ty = $setting:expr;)*) => {
        $(pub(crate) static $name: Setting<$type> = $setting;)*

        /// All settings, in display order.
        pub(crate) static ALL: &[&dyn AnySetting] = &[$(&$name),*];
    };
}

settings! {
    MODEL: String = setting("model", "NAME", Form::Text, Effect::Value, some_text)
        .help("The root model, and the model of `llm_batch` unless --sub-model names another")
        .example("large-model");
    BASE_URL: String = setting("base_url", "URL", Form::Text, Effect::Nothing, some_text)
        .fallback_variable("OPENAI_BASE_URL")
        .help("Base URL of the model's server, with its version: https://host/v1; OPENAI_BASE_URL by default")
        .example("https://host/v1");
    API: Api = setting("api", "API", Form::Text, Effect::Nothing, parsed)
        .help("The server's interface: `chat` (OpenAI's chat completions), `responses` (OpenAI's Responses) or `anthropic` (Anthropic's \
               Messages); by default that of a known address, or else `chat`")
        .example("chat");
    SERVER: ServerRules = setting("server", "NAME|JSON", Form::TextOrTable, Effect::Part(contents::of_server), parsed)
        .help("The kind of server, such as `deepseek`, `vllm` or `litellm`, whose rules requests follow, or a table of rules of its own; \
               by default known by its address, or by what it lists (docs/models.md)")
        .example("vllm");
    API_KEY_ENV: String = setting("api_key_env", "VARIABLE", Form::Text, Effect::Nothing, any_text)
        .help("Name of the variable that holds the key; RLM_API_KEY or OPENAI_API_KEY by default; empty: no key is sent")
        .example("MY_API_KEY");
    HEADERS: Fields = setting("headers", "JSON", Form::Table, Effect::Nothing, headers)
        .help("Further headers of each request; $NAME as a value is the variable NAME, so that a secret need not be in a file")
        .example("{ api-key = \"$MY_API_KEY\" }");
    SAMPLING: Fields = setting("sampling", "JSON", Form::Table, Effect::Value, fields)
        .help("Fields of each request to the root model")
        .example("{ temperature = 0.2 }");
    TOKEN_IDS: bool = setting("token_ids", "BOOL", Form::Flag, Effect::Nothing, flag)
        .help("Ask models for the ids and log probabilities of the tokens of each reply, for training; vLLM, SGLang and \
               Fireworks return them, and the trajectory has them in `extra`")
        .default("false");
    TOOL_CALLS: bool = setting("tool_calls", "BOOL", Form::Flag, Effect::Value, flag)
        .help("Let the root model call tools; false: it writes code in fenced blocks, for models without tool calls")
        .default("true");

    SUB_MODEL: String = setting("sub_model", "NAME", Form::Text, Effect::Value, some_text)
        .variable(rlm_core::env::SUB_MODEL)
        .help("The model of `llm_batch`; that of --model by default")
        .example("small-model");
    SUB_BASE_URL: String = setting("sub_base_url", "URL", Form::Text, Effect::Nothing, some_text)
        .help("The same for the model of `llm_batch`; the root model's by default")
        .example("http://127.0.0.1:8000/v1");
    SUB_API: Api = setting("sub_api", "API", Form::Text, Effect::Nothing, parsed)
        .help("The same for the model of `llm_batch`; by default that of `api` if the server is the same")
        .example("chat");
    SUB_SERVER: ServerRules = setting("sub_server", "NAME|JSON", Form::TextOrTable, Effect::Part(contents::of_server), parsed)
        .help("The same for the model of `llm_batch`; by default that of `server` if the server is the same")
        .example("vllm");
    SUB_API_KEY_ENV: String = setting("sub_api_key_env", "VARIABLE", Form::Text, Effect::Nothing, any_text)
        .help("The same for `sub_base_url`; RLM_SUB_API_KEY by default")
        .example("MY_OTHER_API_KEY");
    SUB_HEADERS: Fields = setting("sub_headers", "JSON", Form::Table, Effect::Nothing, headers)
        .help("The same for the model of `llm_batch`; by default those of `headers` if the server is the same")
        .example("{ X-Title = \"rlm\" }");
    SUB_SAMPLING: Fields = setting("sub_sampling", "JSON", Form::Table, Effect::Value, fields)
        .help("Fields of each request of `llm_batch`")
        .example("{ temperature = 0.0 }");

    LANGUAGE: ReplLanguage = setting("language", "LANGUAGE", Form::Text, Effect::Value, parsed)
        .help("Language of the REPL: bash or python")
        .default("bash");
    PYTHON: PathBuf = setting("python", "PATH", Form::Program, Effect::Nothing, path)
        .variable(rlm_core::env::PYTHON)
        .help("The Python of Python sessions: a program, its name on PATH, a virtual environment, or `builtin`; VIRTUAL_ENV, python3 on \
               PATH or the built-in one by default. The flag implies `--language python`, and needs no value")
        .example(".venv");
    FINAL_FUNCTIONS: bool = setting("final_functions", "BOOL", Form::Flag, Effect::Value, flag)
        .variable(rlm_core::env::FINAL_FUNCTIONS)
        .help("Give Python sessions FINAL(value) and FINAL_VAR(\"name\"), for models trained to give the \
               answer with them")
        .default("false");
    SHOW_IMAGES: bool = setting("show_images", "BOOL", Form::Flag, Effect::Value, flag)
        .help("Give code show(path), by which a root model that takes images sees one: PNG, JPEG, GIF or WebP")
        .default("false");
    ANSWER_SCHEMA: PathBuf = setting("answer_schema", "FILE", Form::Path, Effect::Contents(contents::of_file), path)
        .help("JSON schema that final answers must fit; the model gets one that does not back with its faults")
        .example("answer.json");

    CALLBACKS: Callbacks = setting("callbacks", "HOW", Form::Text, Effect::Value, parsed)
        .help("Callback mode of tools: network, where code calls them over HTTP; or intercept, where the \
               host finds the calls in the code and makes them before it runs, for sessions without a network")
        .default("network");
    NAVIGATION: bool = setting("navigation", "BOOL", Form::Flag, Effect::Value, flag)
        .help("Let code in the REPL call nav_info, nav_ls, nav_outline, nav_read and nav_search for its directory; true \
               by default if calls are intercepted")
        .example("true");
    TOOLS: PathBuf = setting("tools", "FILE", Form::Path, Effect::Contents(contents::of_tools), path)
        .help("TOML file of tools that code in the REPL can call")
        .example("tools.toml");
    MCP: PathBuf = setting("mcp", "FILE", Form::Path, Effect::Contents(contents::of_mcp_servers), path)
        .help("JSON file of MCP servers, {\"mcpServers\": {…}}, whose tools code in the REPL can call as SERVER_TOOL")
        .example("mcp.json");
    PRICES: PathBuf = setting("prices", "FILE", Form::Path, Effect::Nothing, path)
        .help("TOML file of model prices, which come before the built-in ones of usual models")
        .example("prices.toml");

    MAX_DEPTH: u32 = setting("max_depth", "N", Form::Number, Effect::Value, whole)
        .help("Levels of rollouts that code in the REPL may start by `rlm_query`, its children: with 1, they have none of \
               their own; 0: none")
        .default("1");
    DEPTH_MODELS: Vec<String> = setting("depth_models", "NAME", Form::List, Effect::Value, names)
        .help("The models that lead children, of the same server, the first for the first level; where there are fewer, \
               the last one goes on; by default the root model")
        .example("[\"small-model\"]");
    CHILD_TOOLS: Vec<String> = setting("child_tools", "NAME", Form::List, Effect::Value, names)
        .help("The tools of `tools` and `mcp` that children have; all by default")
        .example("[\"search\"]");
    MAX_CHILDREN: usize = setting("max_children", "N", Form::Number, Effect::Nothing, count)
        .help("Children of a rollout, and theirs, that run at once; one that waits for its own does not count")
        .default("8");

    MAX_TURNS: u32 = setting("max_turns", "N", Form::Number, Effect::Value, count)
        .help("Most turns of the root model; the last one is announced to it")
        .default("50");
    TIMEOUT: Duration = setting("timeout", "SECONDS", Form::Amount, Effect::Value, seconds)
        .help("Time limit of a whole rollout")
        .example("1800");
    CALL_TIMEOUT: Duration = setting("call_timeout", "SECONDS", Form::Amount, Effect::Value, call_seconds)
        .variable(rlm_core::env::EXEC_TIMEOUT)
        .help("Time limit of one call; the session keeps its state")
        .default("120");
    BUDGET_USD: f64 = setting("budget_usd", "USD", Form::Number, Effect::Value, usd)
        .help("Most that a rollout may spend on models; needs their prices")
        .example("2.5");
    BUDGET_TOKENS: u64 = setting("budget_tokens", "N", Form::Number, Effect::Value, count)
        .help("Most tokens that a rollout may use, prompts and completions of all models together")
        .example("1000000");
    CONTEXT_TOKENS: u64 = setting("context_tokens", "N", Form::Number, Effect::Value, count)
        .help("Size of the root model's context window, prompt and completion together; the model is warned before it is full")
        .example("128000");
    MAX_COMPLETION_TOKENS: u64 = setting("max_completion_tokens", "N", Form::Number, Effect::Value, count)
        .help("Most tokens of one completion of the root model; the model's own limit by default")
        .example("8192");
    MAX_OUTPUT_CHARS: usize = setting("max_output_chars", "N", Form::Number, Effect::Value, count)
        .former_name("max_output_length")
        .variable("RLM_MAX_OUTPUT_LENGTH")
        .help("Most characters of a call's output that the root model gets")
        .default("8192");
    MAX_CONTEXT_BYTES: u64 = setting("max_context_bytes", "BYTES", Form::Amount, Effect::Value, bytes)
        .help("Largest context")
        .default("1000000000");

    GITIGNORE: bool = setting("gitignore", "BOOL", Form::Flag, Effect::Value, flag)
        .help("Leave out of the context what .gitignore files in it exclude, and .git; false copies everything")
        .default("true");
    EXCLUDE: Vec<String> = setting("exclude", "GLOB", Form::List, Effect::Value, patterns)
        .help("Leave out of the context what a pattern in the syntax of .gitignore matches, from the top of each directory \
               that is given")
        .example("[\"*.csv\", \"/data/\"]");

    CONFINE: Confine = setting("confine", "LEVEL", Form::Text, Effect::Value, parsed)
        .help("What code can reach: `full`: its own directory, the system's programs and its endpoint; `landlock`: nearly so, without \
               namespaces; `try`: the first of these that can be had; `off`: all that you can, the default")
        .example("full");
    CONFINE_READ: Vec<PathBuf> = setting("confine_read", "PATH", Form::List, Effect::Value, paths)
        .help("A path that a confined session can read besides its own")
        .example("[\"/data\"]");
    CONFINE_WRITE: Vec<PathBuf> = setting("confine_write", "PATH", Form::List, Effect::Value, paths)
        .help("A path that a confined session can read and write besides its own")
        .example("[\"/scratch\"]");
    CONFINE_TMP: u64 = setting("confine_tmp", "BYTES", Form::Amount, Effect::Value, bytes)
        .help("Most bytes in each of /tmp, /var/tmp and /dev/shm of a fully confined session; they are memory [default: 1GiB]")
        .example("\"200MB\"");
    CHECKPOINT: String = setting("checkpoint", "BOOL|BYTES", Form::Text, Effect::Value, checkpoint)
        .variable(rlm_core::env::CHECKPOINT)
        .help("Go on with the state from before the call when a call ends its interpreter: true, or the most memory of a Python of \
               which a copy is kept; true is 256M")
        .example("true");

    FORK_SERVER: bool = setting("fork_server", "BOOL", Form::Flag, Effect::Nothing, flag)
        .help("Fork the interpreters of Python sessions from one that is ready, instead of starting each; confined sessions are started")
        .default("false");
    PYTHON_PRELOAD: Vec<String> = setting("python_preload", "MODULE", Form::List, Effect::Nothing, modules)
        .variable(rlm_core::env::PYTHON_PRELOAD)
        .help("A module that the fork server imports before its first session, for all of them; implies `fork_server`")
        .example("[\"numpy\", \"pandas\"]");

    SUB_PARALLELISM: usize = setting("sub_parallelism", "N", Form::Number, Effect::Nothing, count)
        .variable(rlm_core::env::MAX_SUB_LLM_PARALLELISM)
        .help("Parallel requests of `llm_batch`, per rollout")
        .default("5");
    SERVER_PARALLELISM: usize = setting("server_parallelism", "N", Form::Number, Effect::Nothing, count)
        .former_name("max_parallel")
        .variable("RLM_MAX_PARALLEL")
        .help("Parallel requests to a model server, all rollouts together")
        .default("64");
    STREAM: bool = setting("stream", "BOOL", Form::Flag, Effect::Nothing, flag)
        .help("Ask models for replies in pieces, so that a long one is not cut off; a server that cannot is asked for whole ones")
        .default("true");
    REQUEST_TIMEOUT: Duration = setting("request_timeout", "SECONDS", Form::Amount, Effect::Nothing, seconds)
        .help("Longest silence of a model's server in one request, and where replies are not streamed the time limit of the \
               request; it is sent once more after that")
        .default("600");
    MAX_RETRIES: u32 = setting("max_retries", "N", Form::Number, Effect::Nothing, whole)
        .help("Most times that a request to a model is sent again: after 408, 429, 5xx, and a connection that broke")
        .default("4");

    VERBOSITY: Verbosity = setting("verbosity", "LEVEL", Form::Text, Effect::Value, parsed)
        .help("Detail of the system prompt: light, medium or heavy")
        .default("medium");
    PROMPTS: PathBuf = setting("prompts", "DIR", Form::Path, Effect::Contents(contents::of_directory), path)
        .help("Directory with prompts that replace built-in ones of the same name")
        .example("prompts");
    SUMMARIZE_TURNS: u32 = setting("summarize_turns", "N", Form::Number, Effect::Value, count)
        .help("Summarise old turns, except this many of the newest; off by default")
        .example("10");
    MESSAGES_IN_CONTEXT: bool = setting("messages_in_context", "BOOL", Form::Flag, Effect::Value, flag)
        .help("Put the file with the conversation into the working directory, as .messages, for prompts that name it there")
        .default("false");

    TRAJECTORY: PathBuf = setting("trajectory", "FILE", Form::Path, Effect::Nothing, path)
        .help("Append the trajectory to this file, as JSON lines")
        .example("trajectory.jsonl");
    KEEP_REASONING: bool = setting("keep_reasoning", "BOOL", Form::Flag, Effect::Nothing, flag)
        .help("Keep what models think, and what signs or encrypts it, in trajectories and in the file with the conversation; false \
               leaves it out there, and says so: they cannot be replayed to a server")
        .default("true");
    MAX_RECORDED_RUNS: u32 = setting("max_recorded_runs", "N", Form::Number, Effect::Nothing, whole)
        .help("Runs of which a record is kept for `rlm runs` and `rlm view`, and at most 1 GiB of them; 0: none")
        .default("100");
    KEEP: PathBuf = setting("keep", "DIR", Form::Path, Effect::Nothing, path)
        .help("Make the rollout's directory in this one, and keep it")
        .example("kept");
    SYNC_RESULTS: bool = setting("sync_results", "BOOL", Form::Flag, Effect::Nothing, flag)
        .help("Save each result of a batch to the disk (fsync) before the next, so that a power cut loses none")
        .default("true");
}

/// Names of the settings whose flags help shows.
pub(crate) static COMMON: [&str; 8] =
    ["model", "base_url", "python", "max_turns", "budget_usd", "confine", "tools", "mcp"];

/// The settings of sessions themselves.
pub(crate) static OF_SESSIONS: [&dyn AnySetting; 7] =
    [&CONFINE, &CONFINE_READ, &CONFINE_WRITE, &CONFINE_TMP, &CHECKPOINT, &FORK_SERVER, &PYTHON_PRELOAD];

/// The settings of sessions, root tools and their model.
pub(crate) static OF_TOOLS: [&dyn AnySetting; 30] = [
    &CONFINE,
    &CONFINE_READ,
    &CONFINE_WRITE,
    &CONFINE_TMP,
    &CHECKPOINT,
    &FORK_SERVER,
    &PYTHON_PRELOAD,
    &TOOLS,
    &MCP,
    &MODEL,
    &BASE_URL,
    &API,
    &SERVER,
    &API_KEY_ENV,
    &HEADERS,
    &SUB_MODEL,
    &SUB_BASE_URL,
    &SUB_API,
    &SUB_SERVER,
    &SUB_API_KEY_ENV,
    &SUB_HEADERS,
    &SUB_SAMPLING,
    &SUB_PARALLELISM,
    &SERVER_PARALLELISM,
    &STREAM,
    &REQUEST_TIMEOUT,
    &MAX_RETRIES,
    &PRICES,
    &BUDGET_USD,
    &BUDGET_TOKENS,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rlm_env::Limits;
    use rlm_env::rollout::Recursion;

    use super::*;

    #[test]
    fn each_setting_has_names_of_its_own_a_help_and_an_example() {
        let mut names = BTreeSet::new();
        for &setting in ALL {
            let former = setting.former_name.map(str::to_owned);
            for name in [setting.name.to_owned(), setting.flag() + "-", setting.variable_name()]
                .into_iter()
                .chain(former)
            {
                assert!(names.insert(name.clone()), "{name} is there twice");
            }
            assert!(setting.variable_name().starts_with("RLM_"), "{setting:?}");
            for text in [setting.value_name, setting.help, setting.example_value()] {
                assert!(!text.is_empty(), "{setting:?}");
            }
        }
    }

    #[test]
    fn defaults_are_values_and_those_of_the_library() {
        for &setting in ALL {
            if let Some(default) = setting.default {
                assert_eq!(setting.check(default), Ok(()), "{}", setting.name);
            }
        }
        let limits = Limits::default();
        let text = |setting: &dyn AnySetting| setting.default.unwrap().to_owned();
        assert_eq!(text(&MAX_TURNS), limits.max_turns.to_string());
        assert_eq!(text(&CALL_TIMEOUT), limits.call_timeout.as_secs().to_string());
        assert_eq!(text(&MAX_OUTPUT_CHARS), limits.max_output_length.to_string());
        assert_eq!(text(&MAX_CONTEXT_BYTES), limits.max_context_bytes.to_string());
        assert_eq!(text(&LANGUAGE), ReplLanguage::default().to_string());
        assert_eq!(text(&CALLBACKS), Callbacks::default().to_string());
        assert_eq!(text(&VERBOSITY), Verbosity::default().to_string());
        assert_eq!(text(&MAX_CHILDREN), Recursion::new(1).max_running.to_string());
        assert_eq!(text(&SUB_PARALLELISM), rlm_rootd::SubLlmOptions::default().parallelism.to_string());
        assert_eq!(text(&SERVER_PARALLELISM), rlm_rootd::ModelsConfig::new("", "").parallelism.to_string());
    }

    #[test]
    fn variables_that_workers_know_keep_their_meaning() {
        use rlm_core::env;
        let ours: BTreeSet<String> = ALL.iter().map(|setting| setting.variable_name()).collect();
        let shared = [
            env::SUB_MODEL,
            env::PYTHON,
            env::EXEC_TIMEOUT,
            env::MAX_SUB_LLM_PARALLELISM,
            env::FINAL_FUNCTIONS,
            env::CONFINE,
            env::CONFINE_READ,
            env::CONFINE_WRITE,
            env::CONFINE_TMP,
            env::CHECKPOINT,
            env::PYTHON_PRELOAD,
        ];
        let others = [
            env::ROOT_TOOL_URL,
            env::INTERCEPTION_URL,
            env::SUB_LLM_TIMEOUT,
            env::MAX_OUTPUT_BYTES,
            env::HOST_PID,
            env::TERM,
            env::BASH,
        ];
        assert!(shared.iter().all(|name| ours.contains(*name)));
        assert!(!others.iter().any(|name| ours.contains(*name)));
    }
}
