//! Batches of questions: results as lines, and resuming.

use std::fs::File;

use rlm_env::{RolloutResult, StopReason};
use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::{Value, json};

use super::{answering, ask, asking, results, shown, start, text};

/// Runs these arguments with this model: the exit status, what is said, and the number of requests.
fn run(place: &Place, model: ScriptedModel, args: &[&[&str]]) -> (Option<i32>, String, usize) {
    let output = ask(place, &model, &args.concat());
    assert_eq!(text(&output.stdout), "", "the results go to a file");
    (output.status.code(), text(&output.stderr).to_owned(), model.finish().len())
}

/// A server whose model answers one question and refuses another.
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
        ["run", "--questions", "q.jsonl", "--attempts", "2", "--jobs", "2", "--context", "context.txt"];
    let output = ask(&place, &model, &args);
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
}

#[test]
fn resume_runs_the_questions_without_a_result() {
    let place = Place::new();
    place.write("context.txt", "text");
    place.write(
        "q.jsonl",
        "{\"question\": \"good?\"}\n{\"question\": \"bad?\"}\n{\"question\": \"good too?\"}\n",
    );
    let args = ["run", "--questions", "q.jsonl", "--context", "context.txt", "--results", "r.jsonl"];
    let run = |more: &[&str]| run(&place, two_questions(), &[&args, more]);
    let (status, words, requests) = run(&[]);
    assert_eq!((status, requests), (Some(1), 3), "{words}");
    let whole = place.read("r.jsonl");
    assert_eq!(results(&whole).len(), 3);

    let (status, words, requests) = run(&[]);
    assert_eq!((status, requests), (Some(2), 0));
    assert_eq!(words, "rlm: r.jsonl has results already: continue with --resume\n");

    let (status, words, requests) = run(&["--resume"]);
    assert_eq!((status, requests), (Some(1), 0), "one was not answered: {words}");
    assert!(words.starts_with("rlm: 0 rollouts: 0 answered, 3 done before\n"), "{words}");
    assert_eq!(place.read("r.jsonl"), whole);

    let cut = whole.trim_end().len() - 10;
    let lost: RolloutResult = serde_json::from_str(whole.lines().next_back().unwrap()).unwrap();
    place.write("r.jsonl", &whole[..cut]);
    let (_, words, requests) = run(&["--resume"]);
    assert_eq!(requests, 1, "{words}");
    assert!(words.starts_with("rlm: the last line of r.jsonl is incomplete, and is removed\n"), "{words}");
    assert_eq!(results(&place.read("r.jsonl")).len(), 3);
    assert!(results(&place.read("r.jsonl")).contains_key(&lost.id));

    let (status, words, requests) = run(&["--resume", "--retry-failed"]);
    assert_eq!((status, requests), (Some(1), 1), "the others are answered: {words}");
}

#[test]
fn results_of_other_questions_are_refused() {
    let place = Place::new();
    let run = |questions: &str| {
        place.write("q.jsonl", questions);
        let args = ["run", "--questions", "q.jsonl", "--results", "r.jsonl", "--resume"];
        run(&place, ScriptedModel::start([answering("1")]), &[&args])
    };
    let (status, words, _) = run("{\"question\": \"Spain?\"}\n{\"question\": \"France?\"}\n");
    assert_eq!(status, Some(0), "{words}");
    let before = place.read("r.jsonl");
    let (status, words, requests) = run("{\"question\": \"Italy?\"}\n{\"question\": \"France?\"}\n");
    assert_eq!(
        (status, words.as_str(), requests),
        (
            Some(2),
            "rlm: r.jsonl: the result 1-1 is of another question (\"Spain?\", not \"Italy?\"): give questions an `id` that \
             stays, or another file\n",
            0
        )
    );
    assert_eq!(place.read("r.jsonl"), before);
}

#[test]
fn a_dry_run_asks_nothing_and_estimates_from_what_is_recorded() {
    let (place, model) = start([answering("yes").usage(2000, 100)]);
    place.write("prices.toml", "[models.root]\nprompt = 10\ncompletion = 30\n");
    place.write("q.jsonl", "{\"question\": \"one?\"}\n{\"question\": \"two?\", \"context\": \"none\"}\n");
    let run = |args: &[&str]| {
        let all = [&["run", "--prices", "prices.toml"][..], args].concat();
        let output = ask(&place, &model, &all);
        (text(&output.stdout).to_owned(), text(&output.stderr).to_owned(), output.status.code())
    };
    let (_, words, status) = run(&["--questions", "q.jsonl", "--dry-run"]);
    assert!(words.contains("q.jsonl:2: cannot "), "{words}");
    assert_eq!(status, Some(2));
    place.write("none", "");
    let dry =
        ["--questions", "q.jsonl", "--attempts", "3", "--budget-usd", "0.5", "--max-cost", "2", "--dry-run"];
    let expected = |estimate: &str| {
        let text = format!(
            "rollouts  6: 2 questions, 3 attempts at each; 4 at once\n\
             models    root at $10 and $30 per million prompt and completion tokens\n\
             limits    at most 50 turns, $0.5000 each, $2.00 in all\n\
             estimate  {estimate}\n"
        );
        (text, String::new(), Some(0))
    };
    let none = "none: no rollout of root with a known cost is recorded; run one first";
    assert_eq!(run(&dry), expected(none));
    let files = ["--keep", "kept", "--trajectory", "t.jsonl", "--results", "r.jsonl"];
    assert_eq!(run(&[&dry[..], &files].concat()), expected(none));
    assert!(["kept", "t.jsonl", "r.jsonl"].iter().all(|name| !place.file(name).exists()));
    assert_eq!(model.requests().len(), 0);
    run(&["Why?"]);
    assert_eq!(
        run(&dry),
        expected("$0.1380, at most $0.1380, if they are like 1 recorded rollout of this model")
    );
    assert_eq!(model.requests().len(), 1);
    let again = ["--questions", "q.jsonl", "--results", "r.jsonl"];
    run(&again);
    let before = place.read("r.jsonl");
    let (_, words, status) = run(&[&again[..], &["--dry-run"]].concat());
    assert_eq!((words.contains("r.jsonl has results already"), status), (true, Some(2)), "{words}");
    let (plan, ..) = run(&[&again[..], &["--attempts", "2", "--resume", "--dry-run"]].concat());
    let left = "rollouts  2: 2 questions, 2 attempts at each, 2 done before; 4 at once\n";
    assert!(plan.starts_with(left), "{plan}");
    assert_eq!(place.read("r.jsonl"), before);
    assert_eq!(model.finish().len(), 3);
}

#[test]
fn a_batch_spends_no_more_than_its_most() {
    let place = Place::new();
    place.write("prices.toml", "[models.root]\nprompt = 10\ncompletion = 30\n");
    let args = ["run", "Why?", "--attempts", "20", "--jobs", "3", "--results", "r.jsonl"];
    let run = |more: &[&str]| {
        let model = ScriptedModel::start([answering("yes").usage(2000, 100)]);
        let (status, words, _) = run(&place, model, &[&args, more]);
        (status, words)
    };
    let cost = || -> f64 {
        let results = place.read("r.jsonl");
        let all = results.lines().map(|line| serde_json::from_str::<RolloutResult>(line).unwrap());
        all.map(|result| result.metrics.cost_usd.unwrap()).sum()
    };
    let answered = || {
        let results = results(&place.read("r.jsonl"));
        results.values().filter(|(reason, _)| *reason == StopReason::Answered).count()
    };
    assert_eq!(
        run(&["--max-cost", "0.3"]),
        (
            Some(2),
            "rlm: --max-cost: the budget is in USD and the model \"root\" has no price: add it to the file of prices \
             (--prices FILE)\n"
                .to_owned()
        )
    );
    let (status, words) = run(&["--max-cost", "0.3", "--prices", "prices.toml"]);
    assert_eq!(status, Some(1), "{words}");
    assert!(
        words.starts_with(
            "rlm: starting no more rollouts: the budget of all rollouts together is exhausted: the call may cost "
        ) && words.contains(" not started\n"),
        "{words}"
    );
    // Each rollout costs 0.023, and may cost 0.028 when it begins.
    assert_eq!(answered(), 12, "{} {words}", cost());
    // The cost so far counts when the batch is resumed.
    let (_, words) = run(&["--max-cost", "0.3", "--prices", "prices.toml", "--resume"]);
    assert_eq!(answered(), 12, "{} {words}", cost());
    let (status, words) = run(&["--max-cost", "1", "--prices", "prices.toml", "--resume"]);
    assert_eq!((status, answered()), (Some(0), 20), "{words}");
}

#[test]
fn results_say_what_made_them_and_of_which_question_they_are() {
    let (place, model) = start([answering("1")]);
    place.write(
        "q.jsonl",
        "{\"question\": \"Spain?\", \"id\": \"es\", \"metadata\": {\"gold\": 7}}\n{\"question\": \"France?\"}\n",
    );
    let args = ["run", "--questions", "q.jsonl", "--attempts", "2", "--sub-model", "small"];
    let output = ask(&place, &model, &[&args[..], &["--events"]].concat());
    let lines = text(&output.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut results: Vec<_> =
        lines.filter(|line| line["event"] == "result").map(|line| line["result"].clone()).collect();
    results.sort_by_key(|result| result["id"].to_string());
    let shown = ask(&place, &model, &["config", "--json", "--sub-model", "small"]);
    let digest = serde_json::from_slice::<Value>(&shown.stdout).unwrap()["digest"].clone();
    assert_eq!(digest.as_str().unwrap().len(), 16);
    let expected = [("2", 1), ("2", 2), ("es", 1), ("es", 2)];
    for (result, (id, attempt)) in results.iter().zip(expected) {
        assert_eq!((&result["question_id"], &result["attempt"]), (&json!(id), &json!(attempt)));
        let made = ["model", "sub_model", "settings"].map(|field| &result[field]);
        assert_eq!(made, [&json!("root"), &json!("small"), &digest]);
        let metadata = (id == "es").then(|| json!({"gold": 7}));
        assert_eq!(result.get("metadata"), metadata.as_ref());
    }
    assert_eq!(results.len(), 4);
    let output = ask(&place, &model, &["run", "--json", "--sub-model", "small", "Why?"]);
    let one: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&one["model"], &one["settings"], one.get("attempt")), (&json!("root"), &digest, None));
}

#[test]
fn results_of_another_model_or_of_other_settings_are_refused_unless_they_are_wanted() {
    let place = Place::new();
    let args = ["run", "--attempts", "2", "--results", "r.jsonl", "Why?"];
    let run = |more: &[&str]| run(&place, ScriptedModel::start([answering("1")]), &[&args, more]);
    let refused = |more: &[&str], what: &str| {
        let before = place.read("r.jsonl");
        let (status, words, requests) = run(more);
        assert_eq!((status, requests), (Some(2), 0), "{words}");
        assert!(words.starts_with(&format!("rlm: r.jsonl: the result 1-1 is of {what}")), "{words}");
        assert!(words.ends_with(": give another file, or --resume=any to have both in one\n"), "{words}");
        assert_eq!(place.read("r.jsonl"), before);
    };
    assert_eq!(run(&[]).0, Some(0));
    refused(&["--resume", "--model", "other"], "another model (root, not other)");
    refused(&["--resume", "--sub-model", "small"], "another sub-model (root, not small)");
    refused(&["--resume", "--max-turns", "7"], "other settings (digest ");
    refused(&["--resume", "--retry-failed", "--max-turns", "7"], "other settings (digest ");
    assert_eq!((run(&["--resume"]).0, run(&["--resume=same", "--max-retries", "1"]).0), (Some(0), Some(0)));
    let first: Vec<String> = place.read("r.jsonl").lines().take(1).map(|line| format!("{line}\n")).collect();
    place.write("r.jsonl", &first[0]);
    let (status, words, requests) = run(&["--resume=any", "--model", "other"]);
    assert_eq!((status, requests), (Some(0), 1), "{words}");

    // Lines of earlier versions have none of this.
    let mut older: Value = serde_json::from_str(&first[0]).unwrap();
    for field in ["question_id", "attempt", "model", "sub_model", "settings"] {
        assert!(older.as_object_mut().unwrap().remove(field).is_some(), "{field}");
    }
    place.write("r.jsonl", &format!("{older}\n"));
    let (status, words, requests) = run(&["--resume", "--model", "other"]);
    assert_eq!((status, requests), (Some(0), 1), "{words}");
}

#[test]
fn results_can_go_into_a_fifo_that_has_a_reader() {
    let (place, model) = start([answering("yes")]);
    let fifo = place.file("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let args = ["run", "--attempts", "2", "--results", "fifo", "Why?"];
    let output = ask(&place, &model, &args);
    let words = "rlm: cannot write the results to fifo: it is a pipe without a reader\n";
    assert_eq!(shown(&output), ("", words, Some(3)));
    assert_eq!(model.requests().len(), 0);
    let reader = std::thread::spawn(move || std::fs::read_to_string(fifo).unwrap());
    // Opening blocks until there is a reader.
    let held = File::options().write(true).open(place.file("fifo")).unwrap();
    let output = ask(&place, &model, &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    drop(held);
    assert_eq!(results(&reader.join().unwrap()).len(), 2);
}

#[test]
fn directories_that_were_kept_make_way_for_rollouts_that_are_run_again() {
    let place = Place::new();
    let args = ["run", "--attempts", "2", "--results", "r.jsonl", "--keep", "kept", "Why?"];
    let fails = ScriptedModel::start([Rule::any().status(400, "refused")]);
    let output = ask(&place, &fails, &args);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    drop(fails.finish());
    // The remains of a killed rollout: a directory without a result.
    let first: String = place.read("r.jsonl").lines().take(1).map(|line| format!("{line}\n")).collect();
    place.write("r.jsonl", &first);

    let model = ScriptedModel::start([answering("yes")]);
    let again = [&args[..], &["--resume", "--retry-failed"]].concat();
    let output = ask(&place, &model, &again);
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
}

/// A batch of two results under `strace`, which counts the calls of `fdatasync`, and lets some of them fail. None: this
/// machine has no `strace`.
fn under_strace(place: &Place, inject: &str, more: &[&str]) -> Option<(String, Option<i32>, usize)> {
    let model = ScriptedModel::start([answering("yes")]);
    let args = ["run", "--attempts", "2", "--jobs", "1", "--results", "r.jsonl", "Why?"];
    let rlm = asking(place, &model, &[&args[..], more].concat());
    let mut traced = place.at_work("strace");
    traced.args(["-f", "--seccomp-bpf", "-o", "calls", "-e", "trace=fdatasync", "-e", inject, "--"]);
    traced.arg(rlm.get_program()).args(rlm.get_args());
    traced.envs(rlm.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = match traced.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            rlm_tests::skipped("there is no strace");
            return None;
        }
        output => output.unwrap(),
    };
    place.assert_nothing_left();
    let calls = place.read("calls").lines().filter(|line| line.contains("fdatasync(")).count();
    Some((text(&output.stderr).to_owned(), output.status.code(), calls))
}

#[test]
fn each_result_is_saved_to_the_disk_unless_the_user_turns_that_off() {
    for (more, expected) in [(&[][..], 3), (&["--sync-results", "false"][..], 0)] {
        let place = Place::new();
        let Some((words, status, calls)) = under_strace(&place, "fault=none", more) else { return };
        assert_eq!((status, calls), (Some(0), expected), "the directory and two results: {words}");
        assert_eq!(results(&place.read("r.jsonl")).len(), 2);
    }
}

#[test]
fn a_disk_that_does_not_save_a_result_ends_the_batch_with_the_reason() {
    let place = Place::new();
    let fails = "fault=fdatasync:error=ENOSPC:when=2";
    let Some((words, status, _)) = under_strace(&place, fails, &[]) else { return };
    let expected =
        "rlm: cannot save the results in r.jsonl to the disk: No space left on device (os error 28)\n";
    assert_eq!((words.as_str(), status), (expected, Some(3)));
    assert_eq!(results(&place.read("r.jsonl")).len(), 1, "the second rollout did not start");
}

#[test]
fn attempts_go_on_from_one_beginning_that_is_run_once() {
    let place = Place::new();
    place.write("q.jsonl", "{\"question\": \"a?\"}\n{\"question\": \"b?\"}\n{\"question\": \"at once?\"}\n");
    place.write("context.txt", "text");
    let model = ScriptedModel::start([
        Rule::on("at once?").calls("call_bash_repl", "RLM_CONTENT=early RLM_READY=1"),
        Rule::on("?").calls("call_bash_repl", "n=$RANDOM$RANDOM; echo began > began; echo go on"),
        Rule::on("go on").calls("call_bash_repl", "RLM_CONTENT=\"$n $(cat began)\" RLM_READY=1"),
    ]);
    let args = [
        "run",
        "--questions",
        "q.jsonl",
        "--attempts",
        "3",
        "--branch-at",
        "1",
        "--context",
        "context.txt",
        "--trajectory",
        "t.jsonl",
    ];
    let output = ask(&place, &model, &args);
    let (lines, words, status) = shown(&output);
    let results = results(lines);
    assert_eq!((results.len(), status), (9, Some(0)), "{words}");
    for question in ["1", "2", "3"] {
        let answers: Vec<_> =
            (1..=3).map(|attempt| results[&format!("{question}-{attempt}")].clone()).collect();
        assert_eq!(answers[0].0, StopReason::Answered);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        let content = answers[0].1.as_deref().unwrap();
        assert!(content == "early" || content.ends_with(" began"), "{content}");
    }
    assert_eq!(model.finish().len(), 3 + 6, "each beginning is run once");
    let once = "rlm: 3 beginnings of 3 turns ran once for 9 attempts: 45 tokens, and 90 tokens saved";
    assert!(words.contains(once), "{words}");
    // They are drawn below it.
    let tree = place.rlm(&["view", "t.jsonl"]).output().unwrap();
    let tree = text(&tree.stdout);
    let line = |id: &str| tree.lines().find(|line| line.contains(id)).unwrap_or_default().to_owned();
    assert!(line("1-beginning").contains("branched"), "{tree}");
    let indent = |id: &str| line(id).find(id).unwrap();
    assert!(indent("1-2") > indent("1-beginning"), "{tree}");
}

#[test]
fn attempts_with_the_conversation_in_their_directory_have_no_beginning_together() {
    let place = Place::new();
    let model = answering("x");
    let model = ScriptedModel::start([model]);
    let args = [
        "run",
        "a?",
        "--attempts",
        "2",
        "--branch-at",
        "1",
        "--set",
        "messages_in_context=true",
        "--context",
        "",
    ];
    let output = ask(&place, &model, &args);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let words = text(&output.stderr);
    assert!(words.contains("--branch-at cannot be had with messages_in_context"), "{words}");
    assert_eq!(model.finish().len(), 0);
}
