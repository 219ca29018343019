//! Errors, which are reported before a model is asked anything, if that is possible.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::Command;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, socket};
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use rlm_tests::{Place, program};

use super::{answering, ask, asking, shown, start, text};

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let (place, model) = start([answering("yes")]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = asking(&place, &model, &["run", "Why?"]).stdout(full).output().unwrap();
    let words = text(&output.stderr);
    assert_eq!(
        (words, output.status.code()),
        ("rlm: cannot write to standard output: No space left on device (os error 28)\n", Some(3))
    );
}

#[test]
fn results_that_cannot_be_written_end_the_batch() {
    let (place, model) = start([answering("yes")]);
    place.write("q.jsonl", "{\"question\": \"one?\"}\n{\"question\": \"two?\"}\n");
    let args = ["run", "--questions", "q.jsonl", "--jobs", "1", "--results", "/dev/full"];
    let output = ask(&place, &model, &args);
    let words = "rlm: cannot write the results to /dev/full: No space left on device (os error 28)\n";
    assert_eq!((text(&output.stderr), output.status.code()), (words, Some(3)));
    assert_eq!(model.finish().len(), 1, "no more are started");
}

#[test]
fn a_model_that_fails_is_an_environment_error_that_says_what_to_do() {
    let page = "<html><head><title>502 Bad Gateway</title></head></html>";
    let long = "x".repeat(500);
    for (rule, expected, advice, times) in [
        (
            Rule::any().status(401, "who are you?"),
            "the model's server answered 401: who are you?",
            "is the key right?",
            1,
        ),
        (
            Rule::any().status(404, "no page"),
            "the model's server answered 404: no page",
            "does the base URL end with its version, such as /v1, and is the model's name right?",
            1,
        ),
        (
            Rule::any().status(429, "slow down").header("retry-after", "0"),
            "the model's server answered 429: slow down",
            "more retries (`max_retries`) or fewer requests at once (`server_parallelism`) may help",
            2,
        ),
        (
            Rule::any().status(502, "").body(page),
            "the model's server answered 502: an HTML page, \"502 Bad Gateway\"",
            "does the server behind it run?",
            2,
        ),
        (
            Rule::any().body(page),
            "the model's reply is malformed: an HTML page, \"502 Bad Gateway\"",
            "is this an interface like OpenAI's?",
            2,
        ),
        (
            Rule::any().body(format!("<p>{long}")),
            "the model's reply is malformed: an HTML page",
            "is this an interface",
            2,
        ),
    ] {
        let (place, model) = start([rule]);
        let output = ask(&place, &model, &["run", "--max-retries", "1", "Why?"]);
        let (answer, words, status) = shown(&output);
        assert_eq!((answer, status), ("", Some(3)), "{words}");
        let times = if times == 1 { "1 time".to_owned() } else { format!("{times} times") };
        let address = format!("{}/chat/completions", model.base_url());
        let first = format!("rlm: no final answer: {expected} (asked {address} {times}: {advice}");
        assert!(words.starts_with(&first), "{words}");
        let settings = "rlm: settings of the server: model (RLM_MODEL), base_url (RLM_BASE_URL), no key; `rlm config` shows all, `rlm doctor` checks them\n";
        assert!(words.ends_with(settings), "{words}");
    }
}

#[test]
fn a_server_that_refuses_tools_is_asked_without_them_and_that_is_said_once() {
    let in_text = "```bash\nRLM_CONTENT=yes RLM_READY=1\n```";
    let refusal = Rule::any().status(400, "m does not support tools").once();
    let (place, model) = start([refusal, Rule::any().reply(in_text)]);
    let args = ["run", "--attempts", "3", "--jobs", "1", "--results", "results.jsonl", "Why?"];
    let output = ask(&place, &model, &args);
    let (answer, words, status) = shown(&output);
    assert_eq!((answer, status), ("", Some(0)), "{words}");
    let warning = "rlm: warning: the model's server refuses tool calls, so code is asked for in fenced blocks; \
                   `tool_calls = false` begins with that; it said: the model's server answered 400: m does not \
                   support tools\n";
    assert!(words.starts_with(warning) && words.matches("warning").count() == 1, "{words}");
    assert_eq!(model.finish().len(), 4, "a request is refused, and each rollout answered by one");
}

#[test]
fn a_server_that_is_not_there_or_too_slow_is_named_with_what_to_do() {
    let place = Place::new();
    // The socket has the port for as long as it is there, and does not listen.
    let nobody = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(nobody.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    let address = format!("http://{}/v1", getsockname::<SockaddrIn>(nobody.as_raw_fd()).unwrap());
    let server = ["--model", "m", "--base-url", &address, "--max-retries", "1"];
    let output = place.rlm(&[&["run"], &server[..], &["--context", "", "Why?"]].concat()).output().unwrap();
    let words = text(&output.stderr);
    let first = "rlm: no final answer: the model's server cannot be reached: Connection refused (os error 111) (asked ";
    assert!(
        words.starts_with(&format!("{first}{address}/chat/completions 2 times: does a server run there?)\n")),
        "{words}"
    );
    assert!(words.contains("model (--model), base_url (--base-url), no key"), "{words}");

    let plain = ScriptedModel::start([]);
    let address = plain.base_url().replace("http:", "https:");
    let server =
        ["run", "--model", "m", "--base-url", &address, "--api-key-env", "", "--context", "", "Why?"];
    let output = place.rlm(&server).output().unwrap();
    let words = text(&output.stderr);
    let first = format!(
        "rlm: no final answer: the model's server cannot be reached: the server speaks http, not https (asked \
         {address}/chat/completions 1 time: does the base URL begin with http://?)\n"
    );
    assert!(words.starts_with(&first), "{words}");
    drop(plain.finish());

    let gate = rlm_tests::scripted_model::Gate::shut();
    let slow = ScriptedModel::start([Rule::any().after(&gate)]);
    let output = ask(&place, &slow, &["run", "--request-timeout", "200ms", "Why?"]);
    let words = text(&output.stderr);
    assert!(
        words.contains("no answer within 0.2 s (asked ")
            && words.contains(" 2 times: `request_timeout` gives"),
        "{words}"
    );
    gate.open();
}

#[test]
fn missing_and_invalid_settings_are_usage_errors_that_say_what_to_do() {
    let place = Place::new();
    place.write("prices.toml", "[models.other]\nprompt = 1\ncompletion = 1\n");
    place.write("bad.jsonl", "{\"question\": \"a\"}\n{\"quest\": \"b\"}\n");
    place.write("bad.toml", "\nmax_turn = 3\n");
    place.write("child.toml", "tools = \"tools.toml\"\nchild_tools = [\"llm_batch\", \"serch\"]\n");
    place.write("tools.toml", "[[tool]]\nname = \"search\"\ndescription = \"finds\"\ncommand = [\"true\"]\n");
    place.write("secret.toml", "api_key = \"k\"\n");
    for (args, message) in [
        ("run", "no question: give one, or a file of them with --questions FILE"),
        ("run Why?", "the model is not set: give --model, RLM_MODEL, or `model` in rlm.toml"),
        ("run --model m Why?", "the address of the model is not set: give --base-url, RLM_BASE_URL, or"),
        (
            "run --model m --base-url https://host/v1 Why?",
            "the key for https://host/v1 is not set: set RLM_API_KEY or OPENAI_API_KEY, name another variable with",
        ),
        ("run --model m --base-url host Why?", "the base URL of the models cannot be read"),
    ] {
        refused(&place, &words(args), message);
    }
    for (args, message) in [
        ("--api-key-env MISSING Why?", "the variable MISSING, which should hold the key, is not set"),
        ("--base-url host Why?", "the argument '--base-url <URL>' cannot be used multiple times"),
        ("--timeout soon Why?", "expected a number of seconds above 0, or a time such as 5m"),
        ("--max-context-bytes 1XB Why?", "expected bytes above 0, such as 500000, 10MB or 1GiB"),
        ("--language perl Why?", "unknown REPL language `perl`: expected `bash` or `python`"),
        ("--budget-usd 1 Why?", "the price of the model m is unknown: give --prices FILE"),
        (
            "--budget-usd 1 --prices prices.toml Why?",
            "neither prices.toml nor the built-in prices have one of the model m",
        ),
        ("--tools none.toml Why?", "the tools cannot be read from none.toml: No such file"),
        ("--questions bad.jsonl", "bad.jsonl:2: unknown field `quest`: did you mean `question`?"),
        ("--config bad.toml Why?", "bad.toml:2: unknown key `max_turn`: did you mean `max_turns`?"),
        (
            "--config child.toml --context . Why?",
            "child_tools: no tool is named serch; `tools` and `mcp` define search",
        ),
        ("--config secret.toml Why?", "`api_key` does not belong in a file"),
        ("--context - --context - Why?", "standard input can be read once only"),
        ("--attempts 99999999999 Why?", "expected a whole number from 1 to 1000000"),
        ("--jobs 0 Why?", "expected a whole number from 1 to 10000"),
        ("--dry-run --json Why?", "the argument '--dry-run' cannot be used with '--json'"),
        (
            "--context . --dry-run --attempts 2 --max-cost 1 Why?",
            "--max-cost: the budget is in USD and the model \"m\" has no price",
        ),
        ("--max-cost 1 Why?", "--max-cost is for a batch: --budget-usd limits one rollout"),
    ] {
        refused(&place, &[&SERVER[..], &words(args)].concat(), message);
    }
    refused(&place, &[&SERVER[..], &[" "]].concat(), "the question is empty");
}

/// A run with a server that nobody asks.
const SERVER: [&str; 5] = ["run", "--model", "m", "--base-url", "http://127.0.0.1:1/v1"];

fn words(args: &str) -> Vec<&str> {
    args.split(' ').collect()
}

/// Checks that these arguments are refused with this message, and that nothing is answered.
#[track_caller]
fn refused(place: &Place, args: &[&str], message: &str) {
    let output = place.rlm(args).output().unwrap();
    let (answer, words, status) = shown(&output);
    assert_eq!((answer, status), ("", Some(2)), "{args:?}: {words}");
    assert!(words.contains(message), "{args:?}: {words}");
}

#[test]
fn files_are_checked_by_content_and_kind() {
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
    for (args, message) in [
        ("--questions q.jsonl --results hello --resume", "hello:1: this is not a result: "),
        ("--questions q.jsonl --results q.jsonl --resume", "q.jsonl:1: this is not a result: "),
        (
            "--questions q.jsonl --results /dev/null --resume",
            "/dev/null is not a file: it has no results to resume",
        ),
        ("--trajectory fifo Why?", "cannot write the trajectory to fifo: it is a pipe, whose reader"),
        ("--trajectory ended.jsonl Why?", "it is not a trajectory: its first line is not an entry"),
        (
            "--questions q.jsonl --results r.jsonl --trajectory ./q.jsonl",
            "the trajectory and --questions cannot be one file: ./q.jsonl is given for both",
        ),
        (
            "--questions q.jsonl --results r.jsonl --trajectory ./r.jsonl",
            "the trajectory and --results cannot be one file: ./r.jsonl is given for both",
        ),
        ("--call-timeout 1e19 Why?", "'--call-timeout <SECONDS>': expected at most 604800 seconds"),
        ("--call-timeout 640000 Why?", "'--call-timeout <SECONDS>': expected at most 604800 seconds"),
        ("--timeout 1e19 Why?", "'--timeout <SECONDS>': expected at most 31622400 seconds"),
        ("--sampling {\"messages\":[]} Why?", "rlm: sampling (--sampling): `messages` is not a sampling"),
        ("--sub-sampling {\"n\":0} Why?", "rlm: sub_sampling (--sub-sampling): n must be an int"),
        ("--config stream.toml Why?", "stream.toml:2): `stream` is not a sampling parameter"),
        ("--config nan.toml Why?", "nan.toml:1: sampling: temperature: a request cannot hold the number NaN"),
        ("--tools llm.toml Why?", "llm.toml: tool 'llm_batch': this is the name of a built-in tool"),
        ("--tools two.toml Why?", "two.toml: tool 'x': the name is taken by another tool"),
    ] {
        refused(&place, &[&SERVER[..], &["--context", ""], &words(args)].concat(), message);
    }
    for (name, text) in files {
        assert_eq!(place.read(name), text);
    }
    assert!(!place.file("r.jsonl").exists());
}

#[test]
fn an_answer_that_has_nowhere_to_go_is_not_asked_for() {
    let (place, model) = start([answering("yes")]);
    place.write("q.jsonl", "{\"question\": \"one?\"}\n");
    let closed = |args: &[&str]| {
        let asking = asking(&place, &model, &[]);
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(program("rlm")).args(args).env_clear();
        command.envs(asking.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(place.file("")).output().unwrap()
    };
    let words = "rlm: standard output is closed: there is nowhere to write to\n";
    let batch = ["run", "--context", "", "--questions", "q.jsonl"];
    for args in [&["run", "Why?"][..], &batch, &["demo"], &["exec", "echo 1"], &["repl"]] {
        assert_eq!(shown(&closed(args)), ("", words, Some(3)), "{args:?}");
    }
    let output = closed(&[&batch[..], &["--results", "r.jsonl"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(model.finish().len(), 1);

    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = place.rlm(&["demo"]).stdout(full).output().unwrap();
    let words = "rlm: cannot write to standard output: No space left on device (os error 28)\n";
    assert_eq!(shown(&output), ("", words, Some(3)));
}
