//! The context: required, filtered, and checked before a model is asked.

use std::os::unix::fs::symlink;

use rlm_env::trajectory::{Entry, Event};
use rlm_tests::Place;
use rlm_tests::scripted_model::ScriptedModel;

use super::{answering, ask, asking, results, shown, start, text};

/// Runs these arguments, which are wrong, and returns what is said about it.
#[track_caller]
fn refused(place: &Place, args: &[&str]) -> String {
    let model = ScriptedModel::start([]);
    let mut command = place.rlm(&[&["run"], args].concat());
    command.env("RLM_BASE_URL", model.base_url()).env("RLM_MODEL", "root");
    let output = command.output().unwrap();
    let (answer, words, status) = shown(&output);
    assert_eq!((answer, status), ("", Some(2)), "{args:?}: {words}");
    assert_eq!(model.finish().len(), 0, "{args:?}");
    words.to_owned()
}

#[test]
fn a_run_without_a_context_is_refused_before_any_request() {
    let place = Place::new();
    place.write("q.jsonl", "{\"question\": \"a?\", \"context_text\": \"t\"}\n{\"question\": \"b?\"}\n");
    let advice = "--context PATH copies files for the model, `--context .` those of this directory; with `--context ''` it has \
                  none";
    let none = format!("rlm: no context is given: {advice}\n");
    assert_eq!(refused(&place, &["Why?"]), none);
    assert_eq!(refused(&place, &["--attempts", "2", "Why?"]), none);
    let of_line =
        format!("rlm: q.jsonl:2: the question has no context, and no --context is given: {advice}\n");
    assert_eq!(refused(&place, &["--questions", "q.jsonl"]), of_line);
    let words = refused(&place, &["--context", "", "--context", "q.jsonl", "Why?"]);
    assert_eq!(words, "rlm: --context '' is an empty directory: give it alone\n");

    let model = ScriptedModel::start([answering("\"$(ls -A | wc -l)\"")]);
    let mut piped = place.rlm(&["run", "Why?"]);
    piped.env("RLM_BASE_URL", model.base_url()).env("RLM_MODEL", "root");
    let (reader, writer) = std::io::pipe().unwrap();
    let output = piped.stdin(reader).output().unwrap();
    drop(writer);
    assert!(text(&output.stderr).ends_with("; `--context -` reads standard input, which is a pipe\n"));
    let output = ask(&place, &model, &["run", "--context", "", "Why?"]);
    assert_eq!(shown(&output), ("0\n", "", Some(0)));
    assert_eq!(model.finish().len(), 1);
}

/// A project with files that git ignores, and a link.
fn project() -> Place {
    let place = Place::new();
    for (name, text) in [
        ("work/.gitignore", "target/\n*.log\n"),
        ("work/.git/HEAD", "ref"),
        ("work/target/a", "1"),
        ("work/a.log", "2"),
        ("work/b.log", "3"),
        ("work/data/c.csv", "4"),
        ("work/d.txt", "5"),
    ] {
        let path = place.file(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    symlink("d.txt", place.file("work/way")).unwrap();
    place
}

const FILES: &str = "\"$(find . -type f | sort | tr '\\n' ' ')\"";

#[test]
fn what_git_ignores_and_what_is_excluded_is_left_out_and_that_is_said_once() {
    let place = project();
    let model = ScriptedModel::start([answering(FILES)]);
    let run = |args: &[&str]| {
        let output =
            asking(&place, &model, &[&["run", "--context", "work"], args, &["What?"]].concat()).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (text(&output.stdout).trim_end().to_owned(), text(&output.stderr).to_owned())
    };
    let ignored = ".git/, a.log, b.log and 1 other (.gitignore; --gitignore false copies them)";
    let said = |what: &str| format!("rlm: left out of the context: {what}, 1 symbolic link\n");
    let (files, words) = run(&["--trajectory", "t.jsonl"]);
    assert_eq!(files, "./.gitignore ./d.txt ./data/c.csv");
    assert_eq!(words, said(ignored));
    let started: Entry = serde_json::from_str(place.read("t.jsonl").lines().next().unwrap()).unwrap();
    let Event::RolloutStarted(started) = started.event else { panic!("{started:?}") };
    assert_eq!(
        serde_json::to_value(&started.context_left_out).unwrap(),
        serde_json::json!([
            {"reason": "gitignore", "count": 4, "names": [".git/", "a.log", "b.log"]},
            {"reason": "symbolic_link", "count": 1, "names": ["way"]},
        ])
    );

    let (files, words) = run(&["--exclude", "*.csv", "--exclude", "!a.log"]);
    assert_eq!(files, "./.gitignore ./a.log ./d.txt");
    let ignored = ".git/, b.log, target/ (.gitignore; --gitignore false copies them), data/c.csv (exclude)";
    assert_eq!(words, said(ignored));

    place.write("some.toml", "gitignore = false\nexclude = [\"/data/\", \".git\"]\n");
    let (files, words) = run(&["--config", "some.toml"]);
    assert_eq!(files, "./.gitignore ./a.log ./b.log ./d.txt ./target/a");
    assert_eq!(words, said(".git/, data/ (exclude)"));

    let (lines, words) = run(&["--attempts", "3"]);
    assert_eq!(results(&lines).len(), 3);
    assert_eq!(words.matches("left out").count(), 1, "{words}");

    let (files, words) = run(&["--context", "work/a.log", "--exclude", "*.log"]);
    assert!(files.contains("./a.log ") && !files.contains("b.log"), "{files}");
    assert!(words.contains("work/.git/, work/target/ (.gitignore; "), "{words}");
    assert!(words.contains("work/a.log, work/b.log (exclude)"), "{words}");
    place.assert_nothing_left();
}

#[test]
fn all_paths_are_checked_before_any_request() {
    let place = Place::new();
    place.write("data", "x");
    let line = |context: &str| format!("{{\"question\": \"?\", \"context\": \"{context}\"}}\n");
    place.write("q.jsonl", &["data", "a", "b", "data", "c", "d"].map(line).concat());
    let batch = ["--questions", "q.jsonl", "--results", "r.jsonl", "--no-record"];
    assert_eq!(
        refused(&place, &batch),
        "rlm: q.jsonl:2: cannot read a: No such file or directory (os error 2); q.jsonl:3: cannot read b: No such file or \
         directory (os error 2); q.jsonl:5: cannot read c: No such file or directory (os error 2); and 1 more\n"
    );
    assert!(!place.file("r.jsonl").exists());
    place.write("q.jsonl", &line("data"));
    for (args, expected) in [
        (&["--context", "nope"][..], "--context: cannot read nope: No such file or directory (os error 2)"),
        (
            &["--context", "data", "--context", "./data"],
            "--context: data and ./data would both be `data`: rename one of them",
        ),
        (
            &["--context", "/dev/zero"],
            "--context: the context contains a character device, /dev/zero: expected only files and directories",
        ),
        (&["--keep", "/proc"], "cannot make a directory in /proc: No such file or directory (os error 2)"),
        (&["--keep", "data/kept"], "cannot make the directory data/kept: Not a directory (os error 20)"),
        (
            &["--trajectory", "none/t.jsonl"],
            "cannot write the trajectory to none/t.jsonl: No such file or directory (os error 2)",
        ),
        (
            &["--results", "none/r.jsonl"],
            "cannot write the results to none/r.jsonl: No such file or directory (os error 2)",
        ),
    ] {
        let words = refused(&place, &[&["--questions", "q.jsonl", "--no-record"], args].concat());
        assert!(words.starts_with(&format!("rlm: {expected}")), "{args:?}: {words}");
    }
}

#[test]
fn a_context_that_is_too_large_is_refused_with_the_flags_that_help() {
    let (place, model) = start([]);
    place.write("data", "too much");
    let args = ["run", "--context", "data", "--max-context-bytes", "5", "Why?"];
    let output = ask(&place, &model, &args);
    let words = "rlm: no final answer: the rollout could not be set up: the context has at least 8 bytes, more than the limit of \
                 5: give a part of it, leave files out with --exclude, or raise --max-context-bytes\n";
    assert_eq!(shown(&output), ("", words, Some(3)));
    assert_eq!(model.finish().len(), 0);
}
