//! The sources of settings, and the effects of other environment variables.

use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::{Value, json};

use super::{answering, ask, asking, at_terminal, bash, read_until, shown, start, text};

#[test]
fn config_says_what_is_in_force_and_where_it_came_from() {
    let place = Place::new();
    place.write(
        "rlm.toml",
        "model = \"of-file\"\nmax_turns = 3\nverbosity = \"light\"\napi_key_env = \"MINE\"\nheaders = { api-key = \"k1\", X-Key = \"$MY_KEY\" }\n",
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
    assert_eq!(at("headers")["value"], json!({"api-key": "…", "X-Key": "$MY_KEY"}));
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
fn limits_that_are_not_set_come_from_the_servers_list_of_models() {
    for (more, bound, is_warned) in [
        (&[][..], 700, true),
        (&["--max-completion-tokens", "600"][..], 600, true),
        (&["--max-completion-tokens", "800", "--context-tokens", "100000"][..], 800, false),
    ] {
        let (place, model) = start([bash(":").usage(3000, 100).once(), answering("yes").usage(3000, 100)]);
        model.set_models(json!([
            {"id": "other", "context_window": 1, "max_completion_tokens": 1},
            {"id": "root", "context_window": 4000, "max_completion_tokens": 700},
        ]));
        let args = [&["run", "--budget-tokens", "100000", "Why?"][..], more].concat();
        let output = ask(&place, &model, &args);
        assert_eq!(shown(&output), ("yes\n", "", Some(0)), "{more:?}");
        let requests = model.finish();
        assert!(requests.iter().all(|request| request.body["max_tokens"] == bound), "{more:?}");
        let last = requests[1].body.to_string();
        assert_eq!(last.contains("of 4,000 tokens are left in this conversation"), is_warned, "{last}");
    }
}

#[test]
fn the_prompt_that_is_shown_is_the_one_that_is_sent() {
    for more in [
        &[][..],
        &["--python", "--verbosity", "heavy"],
        &["--tool-calls", "false", "--context-tokens", "9000"],
    ] {
        let (place, model) = start([Rule::any().status(400, "no")]);
        std::fs::create_dir(place.file("data")).unwrap();
        place.write("data/a.txt", "1");
        let shared = [&["--context", "data"][..], more].concat();
        let shown = place.rlm(&[&["prompts", "--show"], &shared[..]].concat()).output().unwrap();
        assert_eq!((text(&shown.stderr), shown.status.code()), ("", Some(0)));
        drop(ask(&place, &model, &[&["run"], &shared[..], &["Why?"]].concat()));
        let request = model.finish().remove(0).body;
        let system = request["messages"][0]["content"].as_str().unwrap();
        let tools: String =
            request["tools"].as_array().into_iter().flatten().map(|tool| format!("{tool:#}\n")).collect();
        let between = if tools.is_empty() { "\n" } else { "\n\n" };
        assert_eq!(text(&shown.stdout), format!("{system}{between}{tools}"));
        assert!(system.contains("a.txt"), "{system}");
    }
    let refused = Place::new().rlm(&["prompts", "--show", "--context", "/dev/null"]).output().unwrap();
    let words = "rlm: --context: the context contains a character device, /dev/null: expected only files and directories\n";
    assert_eq!((text(&refused.stderr), refused.status.code()), (words, Some(2)));
    let listed = Place::new().rlm(&["prompts"]).output().unwrap();
    assert!(text(&listed.stdout).lines().any(|name| name == "bash/system.md"), "{}", text(&listed.stdout));
}

#[test]
fn proxy_variables_do_not_apply_to_servers_on_this_machine() {
    let (place, model) = start([
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
    let args = ["run", "--base-url", "http://host.invalid/v1", "--model", "m", "--context", "", "Why?"];
    let output = place.rlm(&args).env("http_proxy", &proxy).output().unwrap();
    assert_eq!(shown(&output), ("yes\n", "", Some(0)));
    let requests = model.finish();
    assert!(!requests[0].header("proxy-authorization").is_empty());
}

#[test]
fn headers_go_to_their_own_server_and_may_come_from_variables() {
    let place = Place::new();
    let root = ScriptedModel::start([
        bash("llm_batch judge").once(),
        Rule::any().calls("call_bash_repl", "RLM_CONTENT=yes RLM_READY=1"),
    ]);
    let sub = ScriptedModel::start([Rule::any()]);
    place.write("rlm.toml", "[headers]\napi-key = \"$MY_KEY\"\nX-Title = \"$$mine\"\n");
    let args = ["run", "--sub-base-url", &sub.base_url(), "Why?"];
    let output = asking(&place, &root, &args).env("MY_KEY", "sk-very-secret").output().unwrap();
    assert_eq!(shown(&output), ("yes\n", "", Some(0)));
    for request in root.finish() {
        assert_eq!((request.header("api-key"), request.header("x-title")), ("sk-very-secret", "$mine"));
    }
    assert_eq!(sub.finish()[0].header("api-key"), "", "another server gets none of them");
    let model = ScriptedModel::start([]);
    let output = ask(&place, &model, &["run", "Why?"]);
    let words = text(&output.stderr);
    let expected = "rlm.toml:1): the variable MY_KEY, which should hold the header api-key, is not set\n";
    assert!(words.starts_with("rlm: headers (") && words.ends_with(expected), "{words}");
    assert_eq!(output.status.code(), Some(2));
    let output = ask(&place, &model, &["run", "--headers", "{\"a b\": \"c\"}", "Why?"]);
    assert!(
        text(&output.stderr).contains("the header a b of the models has a name or a value"),
        "{output:?}"
    );
}

#[test]
fn warnings_of_libraries_are_shown() {
    let (place, model) = start([answering("yes")]);
    let output = ask(&place, &model, &["run", "--trajectory", "/dev/full", "Why?"]);
    let words = "rlm: warning: the trajectory is incomplete; path: /dev/full; error: No space left on device (os error 28)\n";
    assert_eq!(shown(&output), ("yes\n", words, Some(0)));
    let (child, mut terminal) =
        at_terminal(asking(&place, &model, &["run", "--trajectory", "/dev/full", "Why?"]));
    let (seen, _) = read_until(&mut terminal, "");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert!(seen.contains(words.trim_end()), "{seen}");
}
