//! Every setting, stated once.

use std::path::PathBuf;
use std::time::Duration;

use rlm_core::protocol::Confine;
use rlm_env::ReplLanguage;
use rlm_env::rollout::{Callbacks, Verbosity};
use rlm_rootd::{Api, ServerRules};

use super::contents;
use super::setting::{
    AnySetting, Effect, Fields, Form, Setting, any_text, api, bytes, call_seconds, callbacks, confine, count,
    fields, flag, headers, language, names, path, paths, patterns, seconds, server, some_text, usd,
    verbosity, whole,
};

/// A setting with a name, a form, an effect and a parser, and nothing else.
const fn setting<T>(
    name: &'static str,
    form: Form,
    effect: Effect,
    parse: fn(&str) -> Result<T, String>,
) -> Setting<T> {
    Setting {
        name,
        former_name: None,
        variable: None,
        fallback_variable: None,
        value_name: "",
        help: "",
        default: None,
        example: "",
        form,
        effect,
        parse,
    }
}

/// The root model.
pub(crate) static MODEL: Setting<String> = Setting {
    value_name: "NAME",
    help: "The root model, and the model of `llm_batch` unless --sub-model names another",
    example: "large-model",
    ..setting("model", Form::Text, Effect::Value, some_text)
};

/// The model of sub-LLMs.
pub(crate) static SUB_MODEL: Setting<String> = Setting {
    variable: Some(rlm_core::env::SUB_MODEL),
    value_name: "NAME",
    help: "The model of `llm_batch`; that of --model by default",
    example: "small-model",
    ..setting("sub_model", Form::Text, Effect::Value, some_text)
};

/// The address of the root model's server.
pub(crate) static BASE_URL: Setting<String> = Setting {
    fallback_variable: Some("OPENAI_BASE_URL"),
    value_name: "URL",
    help: "Base URL of the model's server, with its version: https://host/v1; OPENAI_BASE_URL by default",
    example: "https://host/v1",
    ..setting("base_url", Form::Text, Effect::Nothing, some_text)
};

/// The address of the sub-LLMs' server.
pub(crate) static SUB_BASE_URL: Setting<String> = Setting {
    value_name: "URL",
    help: "The same for the model of `llm_batch`; the root model's by default",
    example: "http://127.0.0.1:8000/v1",
    ..setting("sub_base_url", Form::Text, Effect::Nothing, some_text)
};

/// The interface of the root model's server.
pub(crate) static API: Setting<Api> = Setting {
    value_name: "API",
    help: "The server's interface: `chat` (OpenAI's chat completions), `responses` (OpenAI's Responses) or `anthropic` (Anthropic's \
           Messages); by default that of a known address, or else `chat`",
    example: "chat",
    ..setting("api", Form::Text, Effect::Nothing, api)
};

/// The interface of the sub-LLMs' server.
pub(crate) static SUB_API: Setting<Api> = Setting {
    value_name: "API",
    help: "The same for the model of `llm_batch`; by default that of `api` if the server is the same",
    example: "chat",
    ..setting("sub_api", Form::Text, Effect::Nothing, api)
};

/// The known facts of the root model's server.
pub(crate) static SERVER: Setting<ServerRules> = Setting {
    value_name: "NAME|JSON",
    help: "The kind of server, such as `deepseek`, `vllm` or `litellm`, whose rules requests follow, or a table of rules of its own; \
           by default known by its address, or by what it lists (docs/models.md)",
    example: "vllm",
    ..setting("server", Form::TextOrTable, Effect::Nothing, server)
};

/// The known facts of the sub-LLMs' server.
pub(crate) static SUB_SERVER: Setting<ServerRules> = Setting {
    value_name: "NAME|JSON",
    help: "The same for the model of `llm_batch`; by default that of `server` if the server is the same",
    example: "vllm",
    ..setting("sub_server", Form::TextOrTable, Effect::Nothing, server)
};

/// Whether servers return the ids of tokens.
pub(crate) static TOKEN_IDS: Setting<bool> = Setting {
    value_name: "BOOL",
    help: "Ask models for the ids and log probabilities of the tokens of each reply, for training; vLLM, SGLang and \
           Fireworks return them, and the trajectory has them in `extra`",
    default: Some("false"),
    ..setting("token_ids", Form::Flag, Effect::Nothing, flag)
};

/// The variable with the root model's key.
pub(crate) static API_KEY_ENV: Setting<String> = Setting {
    value_name: "VARIABLE",
    help: "Name of the variable that holds the key; RLM_API_KEY or OPENAI_API_KEY by default; empty: no key is sent",
    example: "MY_API_KEY",
    ..setting("api_key_env", Form::Text, Effect::Nothing, any_text)
};

/// The variable with the key for the sub-LLMs' server.
pub(crate) static SUB_API_KEY_ENV: Setting<String> = Setting {
    value_name: "VARIABLE",
    help: "The same for `sub_base_url`; RLM_SUB_API_KEY by default",
    example: "MY_OTHER_API_KEY",
    ..setting("sub_api_key_env", Form::Text, Effect::Nothing, any_text)
};

/// Headers of requests to the root model's server.
pub(crate) static HEADERS: Setting<Fields> = Setting {
    value_name: "JSON",
    help: "Further headers of each request; $NAME as a value is the variable NAME, so that a secret need not be in a file",
    example: "{ api-key = \"$MY_API_KEY\" }",
    ..setting("headers", Form::Table, Effect::Nothing, headers)
};

/// Headers of requests to the sub-LLMs' server.
pub(crate) static SUB_HEADERS: Setting<Fields> = Setting {
    value_name: "JSON",
    help: "The same for the model of `llm_batch`; by default those of `headers` if the server is the same",
    example: "{ X-Title = \"rlm\" }",
    ..setting("sub_headers", Form::Table, Effect::Nothing, headers)
};

/// Whether replies are streamed.
pub(crate) static STREAM: Setting<bool> = Setting {
    value_name: "BOOL",
    help: "Ask models for replies in pieces, so that a long one is not cut off; a server that cannot is asked for whole ones",
    default: Some("true"),
    ..setting("stream", Form::Flag, Effect::Nothing, flag)
};

/// Time of a request.
pub(crate) static REQUEST_TIMEOUT: Setting<Duration> = Setting {
    value_name: "SECONDS",
    help: "Longest silence of a model's server in one request, and where replies are not streamed the time limit of the \
           request; it is sent once more after that",
    default: Some("600"),
    ..setting("request_timeout", Form::Amount, Effect::Nothing, seconds)
};

/// Retries of a request.
pub(crate) static MAX_RETRIES: Setting<u32> = Setting {
    value_name: "N",
    help: "Most times that a request to a model is sent again: after 408, 429, 5xx, and a connection that broke",
    default: Some("4"),
    ..setting("max_retries", Form::Number, Effect::Nothing, whole)
};

/// The language of the REPL.
pub(crate) static LANGUAGE: Setting<ReplLanguage> = Setting {
    value_name: "LANGUAGE",
    help: "Language of the REPL: bash or python",
    default: Some("bash"),
    ..setting("language", Form::Text, Effect::Value, language)
};

/// The Python of Python sessions.
pub(crate) static PYTHON: Setting<PathBuf> = Setting {
    variable: Some(rlm_core::env::PYTHON),
    value_name: "PATH",
    help: "The Python of Python sessions: a program, its name on PATH, a virtual environment, or `builtin`; VIRTUAL_ENV, python3 on \
           PATH or the built-in one by default. The flag implies `--language python`, and needs no value",
    example: ".venv",
    ..setting("python", Form::Program, Effect::Nothing, path)
};

/// Turns of the root model.
pub(crate) static MAX_TURNS: Setting<u32> = Setting {
    value_name: "N",
    help: "Most turns of the root model; the last one is announced to it",
    default: Some("50"),
    ..setting("max_turns", Form::Number, Effect::Value, count)
};

/// Time of a rollout.
pub(crate) static TIMEOUT: Setting<Duration> = Setting {
    value_name: "SECONDS",
    help: "Time limit of a whole rollout",
    example: "1800",
    ..setting("timeout", Form::Amount, Effect::Value, seconds)
};

/// Time of a call of the REPL.
pub(crate) static CALL_TIMEOUT: Setting<Duration> = Setting {
    variable: Some(rlm_core::env::EXEC_TIMEOUT),
    value_name: "SECONDS",
    help: "Time limit of one call; the session keeps its state",
    default: Some("120"),
    ..setting("call_timeout", Form::Amount, Effect::Value, call_seconds)
};

/// Money that a rollout may spend.
pub(crate) static BUDGET_USD: Setting<f64> = Setting {
    value_name: "USD",
    help: "Most that a rollout may spend on models; needs their prices",
    example: "2.5",
    ..setting("budget_usd", Form::Number, Effect::Value, usd)
};

/// Tokens that a rollout may spend.
pub(crate) static BUDGET_TOKENS: Setting<u64> = Setting {
    value_name: "N",
    help: "Most tokens that a rollout may use, prompts and completions of all models together",
    example: "1000000",
    ..setting("budget_tokens", Form::Number, Effect::Value, count)
};

/// The root model's window.
pub(crate) static CONTEXT_TOKENS: Setting<u64> = Setting {
    value_name: "N",
    help: "Size of the root model's context window, prompt and completion together; the model is warned before it is full",
    example: "128000",
    ..setting("context_tokens", Form::Number, Effect::Value, count)
};

/// Tokens of a completion.
pub(crate) static MAX_COMPLETION_TOKENS: Setting<u64> = Setting {
    value_name: "N",
    help: "Most tokens of one completion of the root model; the model's own limit by default",
    example: "8192",
    ..setting("max_completion_tokens", Form::Number, Effect::Value, count)
};

/// Characters of output that the model gets.
pub(crate) static MAX_OUTPUT_CHARS: Setting<usize> = Setting {
    former_name: Some("max_output_length"),
    variable: Some("RLM_MAX_OUTPUT_LENGTH"),
    value_name: "N",
    help: "Most characters of a call's output that the root model gets",
    default: Some("8192"),
    ..setting("max_output_chars", Form::Number, Effect::Value, count)
};

/// Bytes of the context.
pub(crate) static MAX_CONTEXT_BYTES: Setting<u64> = Setting {
    value_name: "BYTES",
    help: "Largest context",
    default: Some("1000000000"),
    ..setting("max_context_bytes", Form::Amount, Effect::Value, bytes)
};

/// The rules of `.gitignore` files.
pub(crate) static GITIGNORE: Setting<bool> = Setting {
    value_name: "BOOL",
    help: "Leave out of the context what .gitignore files in it exclude, and .git; false copies everything",
    default: Some("true"),
    ..setting("gitignore", Form::Flag, Effect::Value, flag)
};

/// Patterns of what the context does not hold.
pub(crate) static EXCLUDE: Setting<Vec<String>> = Setting {
    value_name: "GLOB",
    help: "Leave out of the context what a pattern in the syntax of .gitignore matches, from the top of each directory \
           that is given",
    example: "[\"*.csv\", \"/data/\"]",
    ..setting("exclude", Form::List, Effect::Value, patterns)
};

/// The part of this host that sessions can reach.
pub(crate) static CONFINE: Setting<Confine> = Setting {
    value_name: "LEVEL",
    help: "What code can reach: `full`: its own directory, the system's programs and its endpoint; `landlock`: nearly so, without \
           namespaces; `try`: the first of these that can be had; `off`: all that you can, the default",
    example: "full",
    ..setting("confine", Form::Text, Effect::Value, confine)
};

/// Paths that a confined session can read.
pub(crate) static CONFINE_READ: Setting<Vec<PathBuf>> = Setting {
    value_name: "PATH",
    help: "A path that a confined session can read besides its own",
    example: "[\"/data\"]",
    ..setting("confine_read", Form::List, Effect::Value, paths)
};

/// Paths that a confined session can write.
pub(crate) static CONFINE_WRITE: Setting<Vec<PathBuf>> = Setting {
    value_name: "PATH",
    help: "A path that a confined session can read and write besides its own",
    example: "[\"/scratch\"]",
    ..setting("confine_write", Form::List, Effect::Value, paths)
};

/// Size of a confined session's `/tmp`.
pub(crate) static CONFINE_TMP: Setting<u64> = Setting {
    value_name: "BYTES",
    help: "Most bytes in each of /tmp, /var/tmp and /dev/shm of a fully confined session; they are memory [default: 1GiB]",
    example: "\"200MB\"",
    ..setting("confine_tmp", Form::Amount, Effect::Value, bytes)
};

/// Parallel sub-LLM requests of a rollout.
pub(crate) static SUB_PARALLELISM: Setting<usize> = Setting {
    variable: Some(rlm_core::env::MAX_SUB_LLM_PARALLELISM),
    value_name: "N",
    help: "Parallel requests of `llm_batch`, per rollout",
    default: Some("5"),
    ..setting("sub_parallelism", Form::Number, Effect::Nothing, count)
};

/// Parallel requests of this process to a server.
pub(crate) static SERVER_PARALLELISM: Setting<usize> = Setting {
    former_name: Some("max_parallel"),
    variable: Some("RLM_MAX_PARALLEL"),
    value_name: "N",
    help: "Parallel requests to a model server, all rollouts together",
    default: Some("64"),
    ..setting("server_parallelism", Form::Number, Effect::Nothing, count)
};

/// Levels of rollouts that code may start.
pub(crate) static MAX_DEPTH: Setting<u32> = Setting {
    value_name: "N",
    help: "Levels of rollouts that code in the REPL may start by `rlm_query`, its children: with 1, they have none of \
           their own; 0: none",
    default: Some("1"),
    ..setting("max_depth", Form::Number, Effect::Value, whole)
};

/// Models of children.
pub(crate) static DEPTH_MODELS: Setting<Vec<String>> = Setting {
    value_name: "NAME",
    help: "The models that lead children, of the same server, the first for the first level; where there are fewer, \
           the last one goes on; by default the root model",
    example: "[\"small-model\"]",
    ..setting("depth_models", Form::List, Effect::Value, names)
};

/// Tools of children.
pub(crate) static CHILD_TOOLS: Setting<Vec<String>> = Setting {
    value_name: "NAME",
    help: "The tools of `tools` and `mcp` that children have; all by default",
    example: "[\"search\"]",
    ..setting("child_tools", Form::List, Effect::Value, names)
};

/// Children at once.
pub(crate) static MAX_CHILDREN: Setting<usize> = Setting {
    value_name: "N",
    help: "Children of a rollout, and theirs, that run at once; one that waits for its own does not count",
    default: Some("8"),
    ..setting("max_children", Form::Number, Effect::Nothing, count)
};

/// The verbosity of the system prompt.
pub(crate) static VERBOSITY: Setting<Verbosity> = Setting {
    value_name: "LEVEL",
    help: "Detail of the system prompt: light, medium or heavy",
    default: Some("medium"),
    ..setting("verbosity", Form::Text, Effect::Value, verbosity)
};

/// When turns are summarised.
pub(crate) static SUMMARIZE_TURNS: Setting<u32> = Setting {
    value_name: "N",
    help: "Summarise old turns, except this many of the newest; off by default",
    example: "10",
    ..setting("summarize_turns", Form::Number, Effect::Value, count)
};

/// The place of the file with the conversation.
pub(crate) static MESSAGES_IN_CONTEXT: Setting<bool> = Setting {
    value_name: "BOOL",
    help: "Put the file with the conversation into the working directory, as .messages, for prompts that name it there",
    default: Some("false"),
    ..setting("messages_in_context", Form::Flag, Effect::Value, flag)
};

/// Prompts that replace built-in ones.
pub(crate) static PROMPTS: Setting<PathBuf> = Setting {
    value_name: "DIR",
    help: "Directory with prompts that replace built-in ones of the same name",
    example: "prompts",
    ..setting("prompts", Form::Path, Effect::Contents(contents::of_directory), path)
};

/// The prices of models.
pub(crate) static PRICES: Setting<PathBuf> = Setting {
    value_name: "FILE",
    help: "TOML file of model prices, which come before the built-in ones of usual models",
    example: "prices.toml",
    ..setting("prices", Form::Path, Effect::Nothing, path)
};

/// Root tools.
pub(crate) static TOOLS: Setting<PathBuf> = Setting {
    value_name: "FILE",
    help: "TOML file of tools that code in the REPL can call",
    example: "tools.toml",
    ..setting("tools", Form::Path, Effect::Contents(contents::of_tools), path)
};

/// MCP servers whose tools are root tools.
pub(crate) static MCP: Setting<PathBuf> = Setting {
    value_name: "FILE",
    help: "JSON file of MCP servers, {\"mcpServers\": {…}}, whose tools code in the REPL can call as SERVER_TOOL",
    example: "mcp.json",
    ..setting("mcp", Form::Path, Effect::Contents(contents::of_mcp_servers), path)
};

/// The callback mode.
pub(crate) static CALLBACKS: Setting<Callbacks> = Setting {
    value_name: "HOW",
    help: "Callback mode of tools: network, where code calls them over HTTP; or intercept, where the \
           host finds the calls in the code and makes them before it runs, for sessions without a network",
    default: Some("network"),
    ..setting("callbacks", Form::Text, Effect::Value, callbacks)
};

/// Navigation tools for the session's working directory.
pub(crate) static NAVIGATION: Setting<bool> = Setting {
    value_name: "BOOL",
    help: "Let code in the REPL call nav_info, nav_ls, nav_outline, nav_read and nav_search for its directory; true \
           by default if calls are intercepted",
    example: "true",
    ..setting("navigation", Form::Flag, Effect::Value, flag)
};

/// The functions `FINAL` and `FINAL_VAR`, which set the answer.
pub(crate) static FINAL_FUNCTIONS: Setting<bool> = Setting {
    variable: Some(rlm_core::env::FINAL_FUNCTIONS),
    value_name: "BOOL",
    help: "Give Python sessions FINAL(value) and FINAL_VAR(\"name\"), for models trained to give the \
           answer with them",
    default: Some("false"),
    ..setting("final_functions", Form::Flag, Effect::Value, flag)
};

/// The function `show`, which shows the root model an image.
pub(crate) static SHOW_IMAGES: Setting<bool> = Setting {
    value_name: "BOOL",
    help: "Give code show(path), by which a root model that takes images sees one: PNG, JPEG, GIF or WebP",
    default: Some("false"),
    ..setting("show_images", Form::Flag, Effect::Value, flag)
};

/// The schema of answers.
pub(crate) static ANSWER_SCHEMA: Setting<PathBuf> = Setting {
    value_name: "FILE",
    help: "JSON schema that final answers must fit; the model gets one that does not back with its faults",
    example: "answer.json",
    ..setting("answer_schema", Form::Path, Effect::Contents(contents::of_file), path)
};

/// The root model's use of tool calls.
pub(crate) static TOOL_CALLS: Setting<bool> = Setting {
    value_name: "BOOL",
    help: "Let the root model call tools; false: it writes code in fenced blocks, for models without tool calls",
    default: Some("true"),
    ..setting("tool_calls", Form::Flag, Effect::Value, flag)
};

/// Fields of the root model's requests.
pub(crate) static SAMPLING: Setting<Fields> = Setting {
    value_name: "JSON",
    help: "Fields of each request to the root model",
    example: "{ temperature = 0.2 }",
    ..setting("sampling", Form::Table, Effect::Value, fields)
};

/// Fields of the sub-LLMs' requests.
pub(crate) static SUB_SAMPLING: Setting<Fields> = Setting {
    value_name: "JSON",
    help: "Fields of each request of `llm_batch`",
    example: "{ temperature = 0.0 }",
    ..setting("sub_sampling", Form::Table, Effect::Value, fields)
};

/// The file for the trajectory.
pub(crate) static TRAJECTORY: Setting<PathBuf> = Setting {
    value_name: "FILE",
    help: "Append the trajectory to this file, as JSON lines",
    example: "trajectory.jsonl",
    ..setting("trajectory", Form::Path, Effect::Nothing, path)
};

/// The part of the model's reasoning that is kept.
pub(crate) static KEEP_REASONING: Setting<bool> = Setting {
    value_name: "BOOL",
    help: "Keep what models think, and what signs or encrypts it, in trajectories and in the file with the conversation; false \
           leaves it out there, and says so: they cannot be replayed to a server",
    default: Some("true"),
    ..setting("keep_reasoning", Form::Flag, Effect::Nothing, flag)
};

/// The runs that are recorded.
pub(crate) static MAX_RECORDED_RUNS: Setting<u32> = Setting {
    value_name: "N",
    help: "Runs of which a record is kept for `rlm runs` and `rlm view`, and at most 1 GiB of them; 0: none",
    default: Some("100"),
    ..setting("max_recorded_runs", Form::Number, Effect::Nothing, whole)
};

/// The saving of a batch's results to the disk.
pub(crate) static SYNC_RESULTS: Setting<bool> = Setting {
    value_name: "BOOL",
    help: "Save each result of a batch to the disk (fsync) before the next, so that a power cut loses none",
    default: Some("true"),
    ..setting("sync_results", Form::Flag, Effect::Nothing, flag)
};

/// The directory for rollouts that are kept.
pub(crate) static KEEP: Setting<PathBuf> = Setting {
    value_name: "DIR",
    help: "Make the rollout's directory in this one, and keep it",
    example: "kept",
    ..setting("keep", Form::Path, Effect::Nothing, path)
};

/// Names of the settings whose flags help shows.
pub(crate) static COMMON: [&str; 8] =
    ["model", "base_url", "python", "max_turns", "budget_usd", "confine", "tools", "mcp"];

/// All settings, in display order.
pub(crate) static ALL: [&dyn AnySetting; 59] = [
    &MODEL,
    &BASE_URL,
    &API,
    &SERVER,
    &API_KEY_ENV,
    &HEADERS,
    &SAMPLING,
    &TOKEN_IDS,
    &TOOL_CALLS,
    &SUB_MODEL,
    &SUB_BASE_URL,
    &SUB_API,
    &SUB_SERVER,
    &SUB_API_KEY_ENV,
    &SUB_HEADERS,
    &SUB_SAMPLING,
    &LANGUAGE,
    &PYTHON,
    &FINAL_FUNCTIONS,
    &SHOW_IMAGES,
    &ANSWER_SCHEMA,
    &CALLBACKS,
    &NAVIGATION,
    &TOOLS,
    &MCP,
    &PRICES,
    &MAX_DEPTH,
    &DEPTH_MODELS,
    &CHILD_TOOLS,
    &MAX_CHILDREN,
    &MAX_TURNS,
    &TIMEOUT,
    &CALL_TIMEOUT,
    &BUDGET_USD,
    &BUDGET_TOKENS,
    &CONTEXT_TOKENS,
    &MAX_COMPLETION_TOKENS,
    &MAX_OUTPUT_CHARS,
    &MAX_CONTEXT_BYTES,
    &GITIGNORE,
    &EXCLUDE,
    &CONFINE,
    &CONFINE_READ,
    &CONFINE_WRITE,
    &CONFINE_TMP,
    &SUB_PARALLELISM,
    &SERVER_PARALLELISM,
    &STREAM,
    &REQUEST_TIMEOUT,
    &MAX_RETRIES,
    &VERBOSITY,
    &PROMPTS,
    &SUMMARIZE_TURNS,
    &MESSAGES_IN_CONTEXT,
    &TRAJECTORY,
    &KEEP_REASONING,
    &MAX_RECORDED_RUNS,
    &KEEP,
    &SYNC_RESULTS,
];

/// The settings of confinement.
pub(crate) static OF_CONFINEMENT: [&dyn AnySetting; 4] =
    [&CONFINE, &CONFINE_READ, &CONFINE_WRITE, &CONFINE_TMP];

/// The settings for confinement, root tools and their model.
pub(crate) static OF_TOOLS: [&dyn AnySetting; 27] = [
    &CONFINE,
    &CONFINE_READ,
    &CONFINE_WRITE,
    &CONFINE_TMP,
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
        for setting in ALL {
            let former = setting.former_name().map(str::to_owned);
            for name in [setting.name().to_owned(), setting.flag() + "-", setting.variable()]
                .into_iter()
                .chain(former)
            {
                assert!(names.insert(name.clone()), "{name} is there twice");
            }
            assert!(setting.variable().starts_with("RLM_"), "{setting:?}");
            for text in [setting.value_name(), setting.help(), setting.example()] {
                assert!(!text.is_empty(), "{setting:?}");
            }
        }
    }

    #[test]
    fn defaults_are_values_and_those_of_the_library() {
        for setting in ALL {
            if let Some(default) = setting.default() {
                assert_eq!(setting.check(default), Ok(()), "{}", setting.name());
            }
        }
        let limits = Limits::default();
        let text = |setting: &dyn AnySetting| setting.default().unwrap().to_owned();
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
        let ours: BTreeSet<String> = ALL.iter().map(|setting| setting.variable()).collect();
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
