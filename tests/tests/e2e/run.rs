//! `rlm run`, `rlm demo` and `rlm config`: what a person types, and a model that follows a script.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_env::{RolloutResult, StopReason};
use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};
use rlm_tests::{Place, program};
use serde_json::{Value, json};

/// `rlm` with a model.
fn asking(place: &Place, model: &ScriptedModel, args: &[&str]) -> Command {
    let mut command = place.rlm(args);
    command.env("RLM_BASE_URL", model.base_url()).env("RLM_MODEL", "root");
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn shown(output: &Output) -> (&str, &str, Option<i32>) {
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// A message that calls the REPL.
fn calling(tool: &str, code: &str) -> Value {
    let arguments = json!({"code": code}).to_string();
    let function = json!({"name": tool, "arguments": arguments});
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": function}]})
}

fn bash(code: &str) -> Rule {
    Rule::any().message(calling("call_bash_repl", code))
}

fn answering(answer: &str) -> Rule {
    bash(&format!("RLM_CONTENT={answer} RLM_READY=1"))
}

#[test]
fn the_answer_goes_to_standard_output_and_nothing_else_does() {
    let place = Place::new();
    place.write("numbers.txt", "one\ntwo\n");
    let model = ScriptedModel::start([answering("\"$(wc -l <numbers.txt) lines\"")]);
    let output =
        asking(&place, &model, &["run", "--context", "numbers.txt", "How many lines?"]).output().unwrap();
    assert_eq!(shown(&output), ("2 lines\n", "", Some(0)));
    let requests = model.finish();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].header("authorization"), "", "there is no key");
    place.assert_nothing_left();
}

#[test]
fn python_standard_input_a_key_and_sampling_reach_the_rollout() {
    let place = Place::new();
    let code = "answer['content'] = open('context.txt').read().upper()\nanswer['ready'] = True";
    let model = ScriptedModel::start([Rule::any().message(calling("call_python_repl", code))]);
    let mut command = asking(
        &place,
        &model,
        &["run", "--python", "--context", "-", "--sampling", "{\"top_p\": 0.5}", "Shout."],
    );
    let mut child = command.env("OPENAI_API_KEY", "k1").stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"quiet").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(shown(&output), ("QUIET\n", "", Some(0)));
    let requests = model.finish();
    assert_eq!(requests[0].header("authorization"), "Bearer k1");
    assert_eq!((&requests[0].body["model"], &requests[0].body["top_p"]), (&json!("root"), &json!(0.5)));
    place.assert_nothing_left();
}

#[test]
fn code_reaches_the_sub_llm_and_tools_from_a_file() {
    let place = Place::new();
    place.write(
        "tools.toml",
        "[[tool]]\nname = \"count\"\ndescription = \"Counts bytes.\"\ncommand = [\"wc\", \"-c\"]\n",
    );
    place.write(
        "prices.toml",
        "[models.root]\nprompt = 1\ncompletion = 1\n[models.small]\nprompt = 1\ncompletion = 1\n",
    );
    let code = "RLM_CONTENT=\"$(llm_batch 'which colour?'), $(count)\" RLM_READY=1";
    let model = ScriptedModel::start([Rule::on("which colour?").reply("blue"), bash(code)]);
    let args = ["run", "--sub-model", "small", "--sub-sampling", "{\"top_p\": 0.5}", "--tools", "tools.toml"];
    let budget = ["--budget-usd", "1", "--prices", "prices.toml", "--json", "Say."];
    let output = asking(&place, &model, &[&args[..], &budget].concat()).output().unwrap();
    let result: RolloutResult = serde_json::from_slice(&output.stdout).unwrap();
    let answer = result.answer.as_deref().unwrap_or_default();
    assert!(answer.starts_with("blue, ") && answer.len() > "blue, ".len(), "{answer}");
    let metrics = &result.metrics;
    assert_eq!((metrics.sub_llm_call_count, metrics.root_tool_calls["count"]), (1, 1));
    assert!(metrics.cost_usd.is_some_and(|cost| cost > 0.0), "{metrics:?}");
    let requests = model.finish();
    let sub = requests.iter().find(|request| request.body["model"] == "small").unwrap();
    assert_eq!(sub.body["top_p"], 0.5);
    assert_eq!(sub.body["messages"][0]["role"], "system", "the sub-LLM is told what it is");
    place.assert_nothing_left();
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    let model = ScriptedModel::start([answering("yes")]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = asking(&place, &model, &["run", "Why?"]).stdout(full).output().unwrap();
    let words = text(&output.stderr);
    assert_eq!(
        (words, output.status.code()),
        ("rlm: cannot write to standard output: No space left on device (os error 28)\n", Some(3))
    );
    drop(model.finish());
    place.assert_nothing_left();
}

#[test]
fn results_that_cannot_be_written_end_the_batch() {
    let place = Place::new();
    place.write("q.jsonl", "{\"question\": \"one?\"}\n{\"question\": \"two?\"}\n");
    let model = ScriptedModel::start([answering("yes")]);
    let args = ["run", "--questions", "q.jsonl", "--parallel", "1", "--results", "/dev/full"];
    let output = asking(&place, &model, &args).output().unwrap();
    let words = "rlm: cannot write the results to /dev/full: No space left on device (os error 28)\n";
    assert_eq!((text(&output.stderr), output.status.code()), (words, Some(3)));
    assert_eq!(model.finish().len(), 1, "no more are started");
    place.assert_nothing_left();
}

#[test]
fn a_session_does_not_get_to_see_the_key() {
    let place = Place::new();
    let model = ScriptedModel::start([bash(
        "RLM_CONTENT=$(env; cat /proc/[0-9]*/environ 2>&1 | tr '\\0' '\\n')\nRLM_READY=1",
    )]);
    let output =
        asking(&place, &model, &["run", "Which key?"]).env("RLM_API_KEY", "k1-secret").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let seen = text(&output.stdout);
    let (own, all) = seen.split_once("\n_=").expect("`env` ends with its own name");
    assert!(own.contains("HOME=") && !own.contains("k1-secret"), "{own}");
    // Root may read any process.
    assert!(nix::unistd::geteuid().is_root() || !all.contains("k1-secret"), "{all}");
    assert_eq!(model.finish()[0].header("authorization"), "Bearer k1-secret");
}

#[test]
fn the_best_answer_so_far_comes_with_the_reason_on_standard_error() {
    let place = Place::new();
    let model = ScriptedModel::start([bash("RLM_CONTENT=perhaps")]);
    let output = asking(&place, &model, &["run", "--max-turns", "2", "Why?"]).output().unwrap();
    let words = "rlm: no final answer: all turns are used (--max-turns); this is the best so far\n";
    assert_eq!(shown(&output), ("perhaps\n", words, Some(1)));
    assert_eq!(model.finish().len(), 2);
    place.assert_nothing_left();
}

#[test]
fn json_is_the_whole_result_on_one_line() {
    let place = Place::new();
    let model = ScriptedModel::start([answering("'a\nb'")]);
    let output = asking(&place, &model, &["run", "--json", "Why?"]).output().unwrap();
    let result: RolloutResult =
        serde_json::from_str(text(&output.stdout).strip_suffix('\n').unwrap()).unwrap();
    assert_eq!((result.answer.as_deref(), result.stop_reason), (Some("a\nb"), StopReason::Answered));
    assert_eq!((result.metrics.root_llm_turns, result.metrics.repl_call_count), (1, 1));
    drop(model.finish());
}

#[test]
fn a_model_that_fails_is_an_environment_error() {
    let place = Place::new();
    let model = ScriptedModel::start([Rule::any().status(401, "who are you?")]);
    let output = asking(&place, &model, &["run", "Why?"]).output().unwrap();
    let (answer, words, status) = shown(&output);
    assert_eq!((answer, status), ("", Some(3)), "{words}");
    assert!(words.starts_with("rlm: no final answer: the model's server failed: "), "{words}");
    assert!(words.contains("who are you?") && words.ends_with("; there is none so far\n"), "{words}");
    drop(model.finish());
    place.assert_nothing_left();
}

#[test]
fn a_context_that_cannot_be_copied_is_an_environment_error() {
    let place = Place::new();
    let model = ScriptedModel::start([]);
    let output = asking(&place, &model, &["run", "--context", "missing", "Why?"]).output().unwrap();
    let (answer, words, status) = shown(&output);
    assert_eq!((answer, status), ("", Some(3)), "{words}");
    assert!(words.contains("the rollout could not be set up") && words.contains("missing"), "{words}");
    assert_eq!(model.finish().len(), 0);
    place.assert_nothing_left();
}

#[test]
fn what_is_missing_or_wrong_is_a_usage_error_that_says_what_to_do() {
    let place = Place::new();
    place.write("prices.toml", "[models.other]\nprompt = 1\ncompletion = 1\n");
    place.write("bad.jsonl", "{\"question\": \"a\"}\n{\"quest\": \"b\"}\n");
    place.write("bad.toml", "\nmax_turn = 3\n");
    place.write("secret.toml", "api_key = \"k\"\n");
    let server = ["--model", "m", "--base-url", "http://127.0.0.1:1/v1"];
    let with_server = |args: &[&'static str]| [&["run"], &server[..], args].concat();
    let cases: [(Vec<&str>, &str); 17] = [
        (vec!["run"], "required arguments were not provided"),
        (vec!["run", "Why?"], "the model is not set: give --model, RLM_MODEL, or `model` in rlm.toml"),
        (
            vec!["run", "--model", "m", "Why?"],
            "the address of the model is not set: give --base-url, RLM_BASE_URL, or",
        ),
        (
            vec!["run", "--model", "m", "--base-url", "https://host/v1", "Why?"],
            "the key for https://host/v1 is not set: set RLM_API_KEY or OPENAI_API_KEY, name another variable with",
        ),
        (
            with_server(&["--api-key-env", "MISSING", "Why?"]),
            "the variable MISSING, which is to hold the key, is not set",
        ),
        (
            with_server(&["--base-url", "host", "Why?"]),
            "the argument '--base-url <URL>' cannot be used multiple times",
        ),
        (
            vec!["run", "--model", "m", "--base-url", "host", "Why?"],
            "the base URL of the models cannot be read",
        ),
        (with_server(&["--timeout", "soon", "Why?"]), "expected a number of seconds above 0"),
        (
            with_server(&["--language", "perl", "Why?"]),
            "unknown REPL language `perl`: expected `bash` or `python`",
        ),
        (
            with_server(&["--budget-usd", "1", "Why?"]),
            "the price of the model m is not known: give --prices FILE",
        ),
        (
            with_server(&["--budget-usd", "1", "--prices", "prices.toml", "Why?"]),
            "the budget is in USD, and prices.toml has no price of the model m",
        ),
        (
            with_server(&["--tools", "none.toml", "Why?"]),
            "the tools cannot be read from none.toml: No such file",
        ),
        (
            with_server(&["--questions", "bad.jsonl"]),
            "bad.jsonl:2: unknown field `quest`: is `question` meant?",
        ),
        (
            with_server(&["--config", "bad.toml", "Why?"]),
            "bad.toml:2: unknown key `max_turn`: is `max_turns` meant?",
        ),
        (with_server(&["--config", "secret.toml", "Why?"]), "`api_key` does not belong into a file"),
        (with_server(&["--context", "-", "--context", "-", "Why?"]), "standard input can be read once only"),
        (with_server(&[" "]), "the question is empty"),
    ];
    for (args, message) in cases {
        let output = place.rlm(&args).output().unwrap();
        let (answer, words, status) = shown(&output);
        assert_eq!((answer, status), ("", Some(2)), "{args:?}: {words}");
        assert!(words.contains(message), "{args:?}: {words}");
    }
    place.assert_nothing_left();
}

#[test]
fn what_a_file_holds_or_is_decides_what_is_done_to_it() {
    let place = Place::new();
    let questions = "{\"question\": \"a\"}\n{\"question\": \"b\"}";
    let files = [
        ("q.jsonl", questions),
        ("ended.jsonl", "{\"question\": \"a\"}\n"),
        ("hello", "hello"),
        ("llm.toml", "[[tool]]\nname = \"llm_batch\"\ndescription = \"d\"\ncommand = [\"wc\"]\n"),
        ("two.toml", &"[[tool]]\nname = \"x\"\ndescription = \"d\"\ncommand = [\"wc\"]\n".repeat(2)),
        ("stream.toml", "max_turns = 3\n[sub_sampling]\nstream = true\n"),
        ("nan.toml", "[sampling]\ntemperature = nan\n"),
    ];
    for (name, text) in files {
        place.write(name, text);
    }
    nix::unistd::mkfifo(&place.file("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let batch = ["--questions", "q.jsonl", "--results"];
    let cases: [(Vec<&str>, &str); 17] = [
        ([&batch[..], &["hello", "--resume"]].concat(), "hello:1: this is no result: "),
        ([&batch[..], &["q.jsonl", "--resume"]].concat(), "q.jsonl:1: this is no result: "),
        ([&batch[..], &["/dev/null", "--resume"]].concat(), "/dev/null is no file, and has no results to"),
        (
            vec!["--trajectory", "fifo", "Why?"],
            "cannot write the trajectory to fifo: it is a pipe, whose reader",
        ),
        (vec!["--trajectory", "/dev/random", "Why?"], "it is a device: name a file"),
        (vec!["--trajectory", "ended.jsonl", "Why?"], "it is no trajectory: its first line is no entry"),
        (
            [&batch[..], &["r.jsonl", "--trajectory", "./q.jsonl"]].concat(),
            "the trajectory and --questions cannot be one file: ./q.jsonl is given for both",
        ),
        (
            [&batch[..], &["r.jsonl", "--trajectory", "./r.jsonl"]].concat(),
            "the trajectory and --results cannot be one file: ./r.jsonl is given for both",
        ),
        (
            vec!["--call-timeout", "1e19", "Why?"],
            "'--call-timeout <SECONDS>': expected at most 604800 seconds",
        ),
        (
            vec!["--call-timeout", "640000", "Why?"],
            "'--call-timeout <SECONDS>': expected at most 604800 seconds",
        ),
        (vec!["--timeout", "1e19", "Why?"], "'--timeout <SECONDS>': expected at most 31622400 seconds"),
        (
            vec!["--sampling", "{\"messages\": []}", "Why?"],
            "rlm: sampling (--sampling): `messages` is no sampling",
        ),
        (
            vec!["--sub-sampling", "{\"n\": 0}", "Why?"],
            "rlm: sub_sampling (--sub-sampling): n must be an int",
        ),
        (vec!["--config", "stream.toml", "Why?"], "stream.toml:2): `stream` is no sampling parameter"),
        (
            vec!["--config", "nan.toml", "Why?"],
            "nan.toml:1: sampling: temperature: a request cannot hold the number NaN",
        ),
        (
            vec!["--tools", "llm.toml", "Why?"],
            "llm.toml: tool 'llm_batch': every rollout has a tool of this name",
        ),
        (vec!["--tools", "two.toml", "Why?"], "two.toml: tool 'x': the name is taken by another tool"),
    ];
    for (args, message) in cases {
        let server = ["run", "--model", "m", "--base-url", "http://127.0.0.1:1/v1"];
        let output = place.rlm(&[&server[..], &args].concat()).output().unwrap();
        let (answer, words, status) = shown(&output);
        assert_eq!((answer, status), ("", Some(2)), "{args:?}: {words}");
        assert!(words.contains(message), "{args:?}: {words}");
    }
    for (name, text) in files {
        assert_eq!(place.read(name), text);
    }
    assert!(!place.file("r.jsonl").exists());
    place.assert_nothing_left();
}

#[test]
fn variables_that_name_a_proxy_are_nothing_to_servers_of_this_machine() {
    let place = Place::new();
    let model = ScriptedModel::start([
        Rule::on("which colour?").reply("blue"),
        bash("RLM_CONTENT=$(llm_batch 'which colour?') RLM_READY=1"),
    ]);
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let proxies = names.map(|name| (name, "http://127.0.0.1:1"));
    let output = asking(&place, &model, &["run", "Say."]).envs(proxies).output().unwrap();
    assert_eq!(shown(&output), ("blue\n", "", Some(0)));
    assert_eq!(model.finish().len(), 2);
    let output = place.rlm(&["demo"]).envs(proxies).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));

    let model = ScriptedModel::start([answering("yes")]);
    let proxy = model.base_url().trim_end_matches("/v1").replace("http://", "http://me:secret@");
    let args = ["run", "--base-url", "http://host.invalid/v1", "--model", "m", "Why?"];
    let output = place.rlm(&args).env("http_proxy", &proxy).output().unwrap();
    assert_eq!(shown(&output), ("yes\n", "", Some(0)));
    let requests = model.finish();
    assert!(!requests[0].header("proxy-authorization").is_empty());
    place.assert_nothing_left();
}

#[test]
fn what_libraries_warn_of_is_told() {
    let place = Place::new();
    let model = ScriptedModel::start([answering("yes")]);
    let output = asking(&place, &model, &["run", "--trajectory", "/dev/full", "Why?"]).output().unwrap();
    let words = "rlm: warning: the trajectory is incomplete; path: /dev/full; error: No space left on device (os error 28)\n";
    assert_eq!(shown(&output), ("yes\n", words, Some(0)));
    let (child, mut terminal) =
        at_terminal(asking(&place, &model, &["run", "--trajectory", "/dev/full", "Why?"]));
    let (seen, _) = read_until(&mut terminal, "");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert!(seen.contains(words.trim_end()), "{seen}");
    drop(model.finish());
    place.assert_nothing_left();
}

#[test]
fn an_answer_that_has_nowhere_to_go_is_not_asked_for() {
    let place = Place::new();
    place.write("q.jsonl", "{\"question\": \"one?\"}\n");
    let model = ScriptedModel::start([answering("yes")]);
    let closed = |args: &[&str]| {
        let asking = asking(&place, &model, &[]);
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(program("rlm")).args(args).env_clear();
        command.envs(asking.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(place.file("")).output().unwrap()
    };
    let words = "rlm: standard output is closed: there is nowhere to write the answer to\n";
    for args in [&["run", "Why?"][..], &["run", "--questions", "q.jsonl"], &["demo"]] {
        assert_eq!(shown(&closed(args)), ("", words, Some(3)), "{args:?}");
    }
    let output = closed(&["run", "--questions", "q.jsonl", "--results", "r.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(model.finish().len(), 1);

    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = place.rlm(&["demo"]).stdout(full).output().unwrap();
    let words = "rlm: cannot write to standard output: No space left on device (os error 28)\n";
    assert_eq!(shown(&output), ("", words, Some(3)));
    place.assert_nothing_left();
}

#[test]
fn results_go_into_a_pipe_that_is_read_alone() {
    let place = Place::new();
    let fifo = place.file("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let model = ScriptedModel::start([answering("yes")]);
    let args = ["run", "--rollouts", "2", "--results", "fifo", "Why?"];
    let output = asking(&place, &model, &args).output().unwrap();
    let words = "rlm: cannot write the results to fifo: it is a pipe that nobody reads\n";
    assert_eq!(shown(&output), ("", words, Some(3)));
    assert_eq!(model.requests().len(), 0);
    let reader = std::thread::spawn(move || std::fs::read_to_string(fifo).unwrap());
    // Opening waits for its reader, which comes when it does.
    let held = File::options().write(true).open(place.file("fifo")).unwrap();
    let output = asking(&place, &model, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    drop(held);
    assert_eq!(results(&reader.join().unwrap()).len(), 2);
    drop(model.finish());
    place.assert_nothing_left();
}

#[test]
fn directories_that_were_kept_make_way_for_rollouts_that_are_run_again() {
    let place = Place::new();
    let args = ["run", "--rollouts", "2", "--results", "r.jsonl", "--keep", "kept", "Why?"];
    let fails = ScriptedModel::start([Rule::any().status(400, "refused")]);
    let output = asking(&place, &fails, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    drop(fails.finish());
    // As one that was killed leaves it: a directory, and no result.
    let first: String = place.read("r.jsonl").lines().take(1).map(|line| format!("{line}\n")).collect();
    place.write("r.jsonl", &first);

    let model = ScriptedModel::start([answering("yes")]);
    let again = [&args[..], &["--resume", "--retry-failed"]].concat();
    let output = asking(&place, &model, &again).output().unwrap();
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}");
    let kept = place.file("kept").canonicalize().unwrap();
    let said =
        format!("rlm: the kept directory {0}/1-1 is now {0}/1-1.old, and so is another\n", kept.display());
    assert!(words.contains(&said), "{words}");
    for name in ["1-1", "1-1.old", "1-2", "1-2.old"] {
        assert!(kept.join(name).join("rlm_fs").is_dir(), "{name}");
    }
    assert!(results(&place.read("r.jsonl")).values().all(|(reason, _)| *reason == StopReason::Answered));
    drop(model.finish());
    place.assert_nothing_left();
}

#[test]
fn config_says_what_is_in_force_and_where_it_came_from() {
    let place = Place::new();
    place.write(
        "rlm.toml",
        "model = \"of-file\"\nmax_turns = 3\nverbosity = \"light\"\napi_key_env = \"MINE\"\n",
    );
    let mut command = place.rlm(&["config", "--json", "--max-turns", "1"]);
    let output = command.env("RLM_VERBOSITY", "heavy").env("MINE", "k1").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = place.file("rlm.toml").display().to_string();
    assert_eq!(shown["file"], file.as_str());
    let at = |name: &str| shown["settings"][name].clone();
    assert_eq!(at("max_turns"), json!({"value": 1, "from": "flag", "where": "--max-turns"}));
    assert_eq!(at("verbosity"), json!({"value": "heavy", "from": "variable", "where": "RLM_VERBOSITY"}));
    assert_eq!(at("model"), json!({"value": "of-file", "from": "file", "where": format!("{file}:1")}));
    assert_eq!(at("language"), json!({"value": "bash", "from": "default", "where": null}));
    assert_eq!(at("timeout"), json!({"value": null, "from": null, "where": null}));
    assert_eq!(shown["api_key"], json!({"is_set": true, "variable": "MINE", "looked_at": ["MINE"]}));
    let as_text = place.rlm(&["config"]).env("MINE", "k1").output().unwrap();
    assert!(
        text(&as_text.stdout).lines().any(|line| line.starts_with("api_key ") && line.ends_with("  MINE"))
    );
    for output in [&output, &as_text] {
        assert!(!text(&output.stdout).contains("k1"), "the key is shown: {}", text(&output.stdout));
    }
}

#[test]
fn the_example_is_a_configuration_file() {
    let place = Place::new();
    let output = place.rlm(&["config", "--example"]).output().unwrap();
    place.write("rlm.toml", &text(&output.stdout).replace("#max_turns = 50", "max_turns = 7"));
    let shown = place.rlm(&["config"]).output().unwrap();
    let line = text(&shown.stdout).lines().find(|line| line.starts_with("max_turns ")).unwrap();
    assert!(line.contains(" 7 ") && line.contains("rlm.toml:"), "{line}");
}

#[test]
fn a_trajectory_and_the_directory_are_kept_on_demand() {
    let place = Place::new();
    let model = ScriptedModel::start([bash(":> made; RLM_CONTENT=done RLM_READY=1")]);
    let args = ["run", "--trajectory", "t.jsonl", "--keep", "kept", "Why?"];
    let output = asking(&place, &model, &args).output().unwrap();
    let (answer, words, status) = shown(&output);
    assert_eq!((answer, status), ("done\n", Some(0)), "{words}");
    let dir = words.trim().strip_prefix("rlm: the rollout's directory is ").unwrap();
    assert!(Path::new(dir).starts_with(place.file("kept").canonicalize().unwrap()));
    assert!(Path::new(dir).join("rlm_fs/made").exists(), "{dir}");
    let events: Vec<Value> =
        place.read("t.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.first().unwrap()["event"], "rollout_started");
    assert_eq!(events.last().unwrap()["event"], "rollout_ended");
    drop(model.finish());
    place.assert_nothing_left();
}

/// The command with a terminal as its standard error, and the terminal's other end.
fn at_terminal(mut command: Command) -> (Child, File) {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let child = command.stderr(terminal.slave).env("TERM", "xterm").spawn().unwrap();
    (child, File::from(terminal.master))
}

/// Reads a terminal until a text is there, or its end, which it tells.
fn read_until(terminal: &mut File, what: &str) -> (String, bool) {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match terminal.read(&mut buffer) {
            // An error is how a terminal ends that nobody has open any more.
            Ok(0) | Err(_) => return (String::from_utf8_lossy(&seen).into_owned(), false),
            Ok(count) => seen.extend_from_slice(&buffer[..count]),
        }
        if !what.is_empty() && String::from_utf8_lossy(&seen).contains(what) {
            return (String::from_utf8_lossy(&seen).into_owned(), true);
        }
    }
}

#[test]
fn progress_is_shown_at_a_terminal_and_goes_away() {
    let place = Place::new();
    let gate = Gate::shut();
    let model =
        ScriptedModel::start([bash("n=$((6 * 7))").usage(1000, 234).once(), answering("$n").after(&gate)]);
    let (child, mut terminal) = at_terminal(asking(&place, &model, &["run", "How many?"]));
    let (seen, found) =
        read_until(&mut terminal, "turn 1 of 50 · 1 call · 0 sub-calls · 1,234 tokens · the model thinks");
    assert!(found && seen.contains("n=$((6 * 7))"), "{seen}");
    gate.open();
    let (rest, _) = read_until(&mut terminal, "");
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), output.status.code()), ("42\n", Some(0)));
    let end = rest.rsplit("\x1b[2K").next().unwrap();
    assert!(!end.contains("turn"), "the bar is left: {rest:?}");
    drop(model.finish());
}

#[test]
fn no_progress_is_shown_where_it_is_not_wanted_or_cannot_be() {
    let place = Place::new();
    for (variables, args) in
        [(&[("TERM", "dumb")][..], &["run", "Why?"][..]), (&[], &["run", "--quiet", "Why?"])]
    {
        let model = ScriptedModel::start([answering("yes")]);
        let terminal = nix::pty::openpty(None, None).unwrap();
        let mut command = asking(&place, &model, args);
        command.env("TERM", "xterm").envs(variables.iter().copied()).stderr(terminal.slave);
        let child = command.spawn().unwrap();
        drop(command);
        let (seen, _) = read_until(&mut File::from(terminal.master), "");
        let output = child.wait_with_output().unwrap();
        assert_eq!((text(&output.stdout), seen.as_str()), ("yes\n", ""));
        drop(model.finish());
    }
}

/// The results on these lines, by their ids.
fn results(lines: &str) -> BTreeMap<String, (StopReason, Option<String>)> {
    let all: Vec<RolloutResult> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let by_id: BTreeMap<_, _> =
        all.iter().map(|result| (result.id.clone(), (result.stop_reason, result.answer.clone()))).collect();
    assert_eq!(by_id.len(), all.len(), "an id is there twice");
    by_id
}

/// A server whose model knows one question, and refuses another.
fn two_questions() -> ScriptedModel {
    ScriptedModel::start([Rule::on("bad").status(400, "refused"), answering("\"$(cat context.txt)\"")])
}

#[test]
fn a_failed_rollout_stops_no_other_and_results_are_lines() {
    let place = Place::new();
    place.write(
        "q.jsonl",
        "{\"question\": \"good?\", \"id\": \"g\", \"context_text\": \"mine\"}\n\n{\"question\": \"bad?\"}\n",
    );
    place.write("context.txt", "shared");
    let model = two_questions();
    let args =
        ["run", "--questions", "q.jsonl", "--rollouts", "2", "--parallel", "2", "--context", "context.txt"];
    let output = asking(&place, &model, &args).output().unwrap();
    let (lines, words, status) = shown(&output);
    let good = || (StopReason::Answered, Some("mine".to_owned()));
    let bad = || (StopReason::ModelFailed, None);
    let expected = [("g-1", good()), ("g-2", good()), ("3-1", bad()), ("3-2", bad())];
    assert_eq!(results(lines), expected.map(|(id, result)| (id.to_owned(), result)).into());
    assert!(
        words.starts_with(
            "rlm: 4 rollouts: 2 answered, 2 model_failed\nrlm: 2 turns, 2 calls, 0 sub-calls, 30 tokens, "
        ),
        "{words}"
    );
    assert_eq!(status, Some(1));
    drop(model.finish());
    place.assert_nothing_left();
}

#[test]
fn resume_runs_what_the_file_has_not() {
    let place = Place::new();
    place.write("context.txt", "text");
    place.write(
        "q.jsonl",
        "{\"question\": \"good?\"}\n{\"question\": \"bad?\"}\n{\"question\": \"good too?\"}\n",
    );
    let run = |more: &[&str]| {
        let model = two_questions();
        let args = ["run", "--questions", "q.jsonl", "--context", "context.txt", "--results", "r.jsonl"];
        let output = asking(&place, &model, &[&args[..], more].concat()).output().unwrap();
        assert_eq!(text(&output.stdout), "");
        (output.status.code(), text(&output.stderr).to_owned(), model.finish().len())
    };
    let (status, words, requests) = run(&[]);
    assert_eq!((status, requests), (Some(1), 3), "{words}");
    let whole = place.read("r.jsonl");
    assert_eq!(results(&whole).len(), 3);

    let (status, words, requests) = run(&[]);
    assert_eq!((status, requests), (Some(2), 0));
    assert_eq!(words, "rlm: r.jsonl has results already: --resume goes on with them\n");

    let (status, words, requests) = run(&["--resume"]);
    assert_eq!((status, requests), (Some(0), 0), "{words}");
    assert!(words.starts_with("rlm: 0 rollouts: 0 answered, 3 done before\n"), "{words}");
    assert_eq!(place.read("r.jsonl"), whole);

    let cut = whole.trim_end().len() - 10;
    let lost: RolloutResult = serde_json::from_str(whole.lines().next_back().unwrap()).unwrap();
    place.write("r.jsonl", &whole[..cut]);
    let (_, words, requests) = run(&["--resume"]);
    assert_eq!(requests, 1, "{words}");
    assert!(words.starts_with("rlm: the last line of r.jsonl was cut off, and is taken away\n"), "{words}");
    assert_eq!(results(&place.read("r.jsonl")).len(), 3);
    assert!(results(&place.read("r.jsonl")).contains_key(&lost.id));

    let (status, words, requests) = run(&["--resume", "--retry-failed"]);
    assert_eq!((status, requests), (Some(3), 1), "{words}");
    place.assert_nothing_left();
}

/// Starts the command, and waits until its rollout runs code.
fn start_and_wait(place: &Place, model: &ScriptedModel, args: &[&str]) -> Child {
    let child = asking(place, model, args).spawn().unwrap();
    rlm_tests::wait_until("the code runs", || place.file("started").exists());
    child
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

/// Code that says that it runs, and waits until a file is there.
fn waiting(place: &Place) -> Rule {
    let (started, go) = (place.file("started"), place.file("go"));
    let code = format!(
        "RLM_CONTENT=partial\n: >{}; until [ -e {} ]; do read -t 0.01 < <(sleep 9); done",
        started.display(),
        go.display()
    );
    bash(&code)
}

#[test]
fn a_first_interrupt_ends_after_the_call_and_gives_the_answer_so_far() {
    let place = Place::new();
    let model = ScriptedModel::start([waiting(&place)]);
    let mut child = start_and_wait(&place, &model, &["run", "Why?"]);
    signal(&child, Signal::SIGINT);
    let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut words = String::new();
    std::io::BufRead::read_line(&mut errors, &mut words).unwrap();
    assert_eq!(words, "rlm: stopping after the call that runs; Ctrl-C again ends at once\n");
    place.write("go", "");
    std::io::Read::read_to_string(&mut errors, &mut words).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(words.ends_with("rlm: no final answer: it was stopped; this is the best so far\n"), "{words}");
    assert_eq!((text(&output.stdout), output.status.code()), ("partial\n", Some(1)));
    assert_eq!(model.finish().len(), 1);
    place.assert_nothing_left();
}

#[test]
fn signals_end_the_rollout_at_once_and_leave_nothing() {
    for (signals, status) in [
        (&[Signal::SIGTERM][..], 143),
        (&[Signal::SIGHUP], 129),
        (&[Signal::SIGQUIT], 131),
        (&[Signal::SIGINT, Signal::SIGINT], 130),
    ] {
        let place = Place::new();
        let model = ScriptedModel::start([waiting(&place)]);
        let mut child = start_and_wait(&place, &model, &["run", "Why?"]);
        let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
        for (at, each) in signals.iter().enumerate() {
            signal(&child, *each);
            if at + 1 < signals.len() {
                std::io::BufRead::read_line(&mut errors, &mut String::new()).unwrap();
            }
        }
        assert_eq!(child.wait().unwrap().code(), Some(status), "{signals:?}");
        drop(model.finish());
        place.assert_nothing_left();
    }
}

#[test]
fn a_batch_that_is_interrupted_is_gone_on_with() {
    let place = Place::new();
    place.write("q.jsonl", "{\"question\": \"one?\"}\n{\"question\": \"two?\"}\n");
    let args = ["run", "--questions", "q.jsonl", "--parallel", "1", "--results", "r.jsonl"];
    let model = ScriptedModel::start([waiting(&place)]);
    let child = start_and_wait(&place, &model, &args);
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143));
    let words = text(&output.stderr);
    assert!(words.contains("rlm: 1 rollout: 0 answered, 1 cancelled, 1 not started\n"), "{words}");
    assert_eq!(results(&place.read("r.jsonl"))["1-1"].0, StopReason::Cancelled);
    drop(model.finish());

    let model = ScriptedModel::start([answering("yes")]);
    let output = asking(&place, &model, &[&args[..], &["--resume"]].concat()).output().unwrap();
    let words = text(&output.stderr);
    assert!(words.starts_with("rlm: 1 result is taken out of r.jsonl, and run again\n"), "{words}");
    assert_eq!(output.status.code(), Some(0), "{words}");
    let answered =
        |id: &str| results(&place.read("r.jsonl"))[id] == (StopReason::Answered, Some("yes".to_owned()));
    assert!(answered("1-1") && answered("2-1"));
    drop(model.finish());
    place.assert_nothing_left();
}

/// Runs the demo, and gives back what it printed.
fn demo(place: &Place, args: &[&str]) -> String {
    let output = place.rlm(&[&["demo"], args].concat()).output().unwrap();
    let (shown, words, status) = shown(&output);
    assert_eq!((words, status), ("", Some(0)), "{shown}");
    shown.to_owned()
}

#[test]
fn the_demo_answers_in_both_languages_and_says_that_its_models_are_scripted() {
    for (args, error) in [
        (&["--trajectory", "t.jsonl"][..], "unknown option --parallel"),
        (&["--python", "--trajectory", "t.jsonl"], "Error in sub-LLM call: "),
    ] {
        let place = Place::new();
        let shown = demo(&place, args);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].ends_with("with scripted models"), "{shown}");
        assert!(lines.contains(&"answer    October 2024: 13 people"), "{shown}");
        assert!(shown.contains("\nverified  "), "{shown}");
        assert!(shown.contains("The models of this rollout were scripted."), "{shown}");
        assert!(
            shown.contains("\n693 verdicts for 693 letters, so none is missing, and 84 say yes."),
            "{shown}"
        );
        assert!(!shown.contains('\x1b'), "colours are for terminals");
        assert_eq!(shown.matches("\nturn ").count(), 6, "{shown}");
        let entries: Vec<Value> =
            place.read("t.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let outputs = entries.iter().filter(|entry| entry["event"] == "call_ended");
        assert!(
            outputs.clone().any(|entry| entry["output"].to_string().contains(error)),
            "the mistake is a real one"
        );
        let ended = entries.last().unwrap();
        assert_eq!((&ended["event"], &ended["stop_reason"]), (&json!("rollout_ended"), &json!("answered")));
        let sub_calls = entries.iter().filter(|entry| entry["event"] == "sub_call").count();
        assert_eq!(ended["metrics"]["sub_llm_call_count"], sub_calls);
        assert!(sub_calls > 10, "{sub_calls}");
        place.assert_nothing_left();
    }
}

#[test]
fn the_demo_has_colours_at_a_terminal_that_wants_them() {
    let place = Place::new();
    for (variable, has_colours) in
        [(("TERM", "xterm"), true), (("NO_COLOR", "1"), false), (("TERM", "dumb"), false)]
    {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let mut command = place.rlm(&["demo"]);
        let child = command.env(variable.0, variable.1).stdout(terminal.slave).spawn().unwrap();
        drop(command);
        let (seen, _) = read_until(&mut File::from(terminal.master), "");
        assert!(child.wait_with_output().unwrap().status.success(), "{seen}");
        assert!(seen.contains("October 2024: 13 people"), "{seen}");
        assert_eq!(seen.contains("\x1b[1m"), has_colours, "{variable:?}: {seen}");
    }
}

#[test]
fn the_demo_needs_no_network_but_the_loopback_device() {
    let place = Place::new();
    let up = ["--net", "--map-root-user", "ip", "link", "set", "lo", "up"];
    let alone = Command::new("unshare").args(up).stderr(Stdio::null()).status();
    if !alone.is_ok_and(|status| status.success()) {
        // Seen where a test's output is looked at.
        #[expect(clippy::print_stdout, reason = "a test says that it tests nothing here")]
        {
            println!("skipped: no network namespace can be made");
        }
        return;
    }
    let demo = place.rlm(&["demo"]);
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--map-root-user", "sh", "-c", "ip link set lo up && exec \"$0\" demo"])
        .arg(program("rlm"));
    for (name, value) in demo.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let output = command.current_dir(place.file("")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("\nverified  "));
}
