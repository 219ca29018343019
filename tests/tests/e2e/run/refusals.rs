//! Errors, which are reported before a model is asked anything, if that is possible.

use std::fs::File;
use std::process::Command;

use rlm_tests::scripted_model::{Rule, ScriptedModel};
use rlm_tests::{Place, program};

use super::{answering, asking, shown, text};

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
    let args = ["run", "--questions", "q.jsonl", "--jobs", "1", "--results", "/dev/full"];
    let output = asking(&place, &model, &args).output().unwrap();
    let words = "rlm: cannot write the results to /dev/full: No space left on device (os error 28)\n";
    assert_eq!((text(&output.stderr), output.status.code()), (words, Some(3)));
    assert_eq!(model.finish().len(), 1, "no more are started");
    place.assert_nothing_left();
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
        let place = Place::new();
        let model = ScriptedModel::start([rule]);
        let output = asking(&place, &model, &["run", "--max-retries", "1", "Why?"]).output().unwrap();
        let (answer, words, status) = shown(&output);
        assert_eq!((answer, status), ("", Some(3)), "{words}");
        let times = if times == 1 { "1 time".to_owned() } else { format!("{times} times") };
        let address = format!("{}/chat/completions", model.base_url());
        let first = format!("rlm: no final answer: {expected} (asked {address} {times}: {advice}");
        assert!(words.starts_with(&first), "{words}");
        let settings = "rlm: settings of the server: model (RLM_MODEL), base_url (RLM_BASE_URL), no key; `rlm config` shows all, `rlm doctor` checks them\n";
        assert!(words.ends_with(settings), "{words}");
        drop(model.finish());
        place.assert_nothing_left();
    }
}

#[test]
fn a_server_that_refuses_tools_is_asked_without_them_and_that_is_said_once() {
    let place = Place::new();
    let in_text = "```bash\nRLM_CONTENT=yes RLM_READY=1\n```";
    let refusal = Rule::any().status(400, "m does not support tools").once();
    let model = ScriptedModel::start([refusal, Rule::any().reply(in_text)]);
    let args = ["run", "--attempts", "3", "--jobs", "1", "--results", "results.jsonl", "Why?"];
    let output = asking(&place, &model, &args).output().unwrap();
    let (answer, words, status) = shown(&output);
    assert_eq!((answer, status), ("", Some(0)), "{words}");
    let warning = "rlm: warning: the model's server refuses tool calls, so code is asked for in fenced blocks; \
                   `tool_calls = false` begins with that; it said: the model's server answered 400: m does not \
                   support tools\n";
    assert!(words.starts_with(warning) && words.matches("warning").count() == 1, "{words}");
    assert_eq!(model.finish().len(), 4, "a request is refused, and each rollout answered by one");
    place.assert_nothing_left();
}

#[test]
fn a_server_that_is_not_there_or_too_slow_is_named_with_what_to_do() {
    let place = Place::new();
    let nobody = ScriptedModel::start([]);
    let address = nobody.base_url();
    drop(nobody.finish());
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
    let output = asking(&place, &slow, &["run", "--request-timeout", "200ms", "Why?"]).output().unwrap();
    let words = text(&output.stderr);
    assert!(
        words.contains("no answer within 0.2 s (asked ")
            && words.contains(" 2 times: `request_timeout` gives"),
        "{words}"
    );
    gate.open();
    place.assert_nothing_left();
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
    let server = ["--model", "m", "--base-url", "http://127.0.0.1:1/v1"];
    let with_server = |args: &[&'static str]| [&["run"], &server[..], args].concat();
    let cases: [(Vec<&str>, &str); 24] = [
        (vec!["run"], "no question: give one, or a file of them with --questions FILE"),
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
            "the variable MISSING, which should hold the key, is not set",
        ),
        (
            with_server(&["--base-url", "host", "Why?"]),
            "the argument '--base-url <URL>' cannot be used multiple times",
        ),
        (
            vec!["run", "--model", "m", "--base-url", "host", "Why?"],
            "the base URL of the models cannot be read",
        ),
        (
            with_server(&["--timeout", "soon", "Why?"]),
            "expected a number of seconds above 0, or a time such as 5m",
        ),
        (
            with_server(&["--max-context-bytes", "1 XB", "Why?"]),
            "expected bytes above 0, such as 500000, 10MB or 1GiB",
        ),
        (
            with_server(&["--language", "perl", "Why?"]),
            "unknown REPL language `perl`: expected `bash` or `python`",
        ),
        (
            with_server(&["--budget-usd", "1", "Why?"]),
            "the price of the model m is unknown: give --prices FILE",
        ),
        (
            with_server(&["--budget-usd", "1", "--prices", "prices.toml", "Why?"]),
            "neither prices.toml nor the built-in prices have one of the model m",
        ),
        (
            with_server(&["--tools", "none.toml", "Why?"]),
            "the tools cannot be read from none.toml: No such file",
        ),
        (
            with_server(&["--questions", "bad.jsonl"]),
            "bad.jsonl:2: unknown field `quest`: did you mean `question`?",
        ),
        (
            with_server(&["--config", "bad.toml", "Why?"]),
            "bad.toml:2: unknown key `max_turn`: did you mean `max_turns`?",
        ),
        (
            with_server(&["--config", "child.toml", "--context", "", "Why?"]),
            "child_tools: no tool is named serch; `tools` and `mcp` define search",
        ),
        (with_server(&["--config", "secret.toml", "Why?"]), "`api_key` does not belong in a file"),
        (with_server(&["--context", "-", "--context", "-", "Why?"]), "standard input can be read once only"),
        (with_server(&["--attempts", "99999999999", "Why?"]), "expected a whole number from 1 to 1000000"),
        (with_server(&["--jobs", "0", "Why?"]), "expected a whole number from 1 to 10000"),
        (
            with_server(&["--dry-run", "--json", "Why?"]),
            "the argument '--dry-run' cannot be used with '--json'",
        ),
        (
            with_server(&["--context", "", "--dry-run", "--attempts", "2", "--max-cost", "1", "Why?"]),
            "--max-cost: the budget is in USD and the model \"m\" has no price",
        ),
        (
            with_server(&["--max-cost", "1", "Why?"]),
            "--max-cost is for a batch: --budget-usd limits one rollout",
        ),
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
    let batch = ["--questions", "q.jsonl", "--results"];
    let cases: [(Vec<&str>, &str); 16] = [
        ([&batch[..], &["hello", "--resume"]].concat(), "hello:1: this is not a result: "),
        ([&batch[..], &["q.jsonl", "--resume"]].concat(), "q.jsonl:1: this is not a result: "),
        (
            [&batch[..], &["/dev/null", "--resume"]].concat(),
            "/dev/null is not a file: it has no results to resume",
        ),
        (
            vec!["--trajectory", "fifo", "Why?"],
            "cannot write the trajectory to fifo: it is a pipe, whose reader",
        ),
        (
            vec!["--trajectory", "ended.jsonl", "Why?"],
            "it is not a trajectory: its first line is not an entry",
        ),
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
            "rlm: sampling (--sampling): `messages` is not a sampling",
        ),
        (
            vec!["--sub-sampling", "{\"n\": 0}", "Why?"],
            "rlm: sub_sampling (--sub-sampling): n must be an int",
        ),
        (vec!["--config", "stream.toml", "Why?"], "stream.toml:2): `stream` is not a sampling parameter"),
        (
            vec!["--config", "nan.toml", "Why?"],
            "nan.toml:1: sampling: temperature: a request cannot hold the number NaN",
        ),
        (
            vec!["--tools", "llm.toml", "Why?"],
            "llm.toml: tool 'llm_batch': this is the name of a built-in tool",
        ),
        (vec!["--tools", "two.toml", "Why?"], "two.toml: tool 'x': the name is taken by another tool"),
    ];
    for (args, message) in cases {
        let server = ["run", "--model", "m", "--base-url", "http://127.0.0.1:1/v1", "--context", ""];
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
    place.assert_nothing_left();
}
