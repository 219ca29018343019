//! Settings for the fork server of Python sessions.

use rlm_tests::scripted_model::Rule;
use rlm_tests::{Place, default_python};

use super::{ask, shown, start};

#[test]
fn sessions_of_a_batch_have_what_was_preloaded() {
    let code = "import sys, os, subprocess; parent = open(f'/proc/{os.getppid()}/cmdline', 'rb').read(); \
        answer['content'] = f\"{'json.tool' in sys.modules} {b'--fork-server' in parent}\"; answer['ready'] = True";
    let (place, model) = start([Rule::any().calls("call_python_repl", code)]);
    std::fs::write(place.file("questions.jsonl"), "{\"question\": \"a\"}\n{\"question\": \"b\"}\n").unwrap();
    let python = format!("--python={}", default_python().display());
    let args = ["run", "--questions", "questions.jsonl", "--results", "results.jsonl", &python];
    let output = ask(&place, &model, &[&args[..], &["--set", "python_preload=json.tool"]].concat());
    assert_eq!(shown(&output).2, Some(0), "{}", shown(&output).1);
    let results = std::fs::read_to_string(place.file("results.jsonl")).unwrap();
    assert_eq!(results.matches("\"answer\":\"True True\"").count(), 2, "{results}");
}

#[test]
fn sessions_start_without_what_cannot_be_had_and_somebody_is_told() {
    let place = Place::new();
    let python = format!("--python={}", default_python().display());
    let run = |setting: &str, more: &[&str]| {
        let args = [&["exec", &python, "--set", setting][..], more, &["6 * 7"]].concat();
        let output = place.rlm(&args).output().unwrap();
        let (out, errors, status) = shown(&output);
        assert_eq!((out, status), ("42\n", Some(0)), "{errors}");
        errors.to_owned()
    };
    assert_eq!(run("fork_server=true", &[]), "");
    let absent = run("python_preload=absent", &[]);
    let told = "rlm: sessions start without a fork server: rlm-worker-python: the fork server cannot start: cannot import absent: \
         ModuleNotFoundError: No module named 'absent'\n";
    assert_eq!(absent, told);
    let confined = run("fork_server=true", &["--confine", "try"]);
    let told = "rlm: sessions start without a fork server: they are confined, and have namespaces or rules of their own\n";
    assert!(confined.contains(told), "{confined}");
    let output = place.rlm(&["exec", &python, "--set", "python_preload=a b/c", "1"]).output().unwrap();
    let errors = shown(&output).1;
    assert!(errors.contains("expected names of Python modules, and `b/c` is none"), "{errors}");
}
