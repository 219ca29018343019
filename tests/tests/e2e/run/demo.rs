//! `rlm demo`: scripted models over bundled data.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rlm_tests::{Place, program};
use serde_json::{Value, json};

use super::{read_until, shown, text};

/// Runs the demo, and returns its output.
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
    }
}

#[test]
fn the_recursive_demo_divides_its_work_two_levels_deep_and_the_view_shows_the_tree() {
    let place = Place::new();
    for args in [&["--recursive"][..], &["--recursive", "--python"]] {
        let trajectory = place.file(if args.len() == 1 { "bash.jsonl" } else { "python.jsonl" });
        let file = trajectory.to_str().unwrap();
        let kept = place.path(if args.len() == 1 { "bash" } else { "python" });
        let shown = demo(&place, &[args, &["--trajectory", file, "--keep", kept.to_str().unwrap()]].concat());
        assert!(shown.contains("verified  "), "{shown}");
        assert!(shown.contains("rollouts below it        14, 2 levels deep"), "{shown}");
        assert_eq!(shown.matches(" answers: ").count(), 14);
        let viewed = place.rlm(&["view", "--no-pager", file]).env("COLUMNS", "400").output().unwrap();
        let viewed = String::from_utf8(viewed.stdout).unwrap();
        let head: Vec<_> = viewed.lines().take_while(|line| !line.is_empty()).collect();
        let depth = |line: &&str| line.len() - line.trim_start().len();
        let depths: Vec<_> = head.iter().map(depth).collect();
        assert_eq!(depths, [&[0, 2][..], &[4; 6], &[2], &[4; 6]].concat(), "{viewed}");
        assert!(head.iter().any(|line| line.ends_with(" → 2024-10 13")), "{viewed}");
        assert_eq!(viewed.matches("\nrollout ").count(), 1, "the others are folded");
        let script = place.rlm(&["script", file]).output().unwrap();
        assert!(script.status.success(), "{script:?}");
        // The children answer as they did, without a model.
        let files = rollout_with_the_shortest_id(&kept).join("rlm_fs");
        let replayed = place.rlm(&["replay", file, "--context", files.to_str().unwrap()]).output().unwrap();
        let shown = text(&replayed.stdout);
        if args.len() == 1 {
            // Numbers of processes differ, and the directory has what the code has written.
            assert!(shown.ends_with("different: call 1, 2 of 3\n"), "{shown}");
        } else {
            assert_eq!(replayed.status.code(), Some(0), "{shown}");
        }
        // So does a recording of that, in another directory.
        let recording = format!("{file}.recording");
        for recorded in ["--record", "--recorded"] {
            let args = ["replay", file, "--context", files.to_str().unwrap(), recorded, &recording];
            // Numbers of processes differ each time.
            let last = |shown: &str| shown.lines().last().map(str::to_owned);
            assert_eq!(last(text(&place.rlm(&args).output().unwrap().stdout)), last(shown), "{recorded}");
        }
        let script = place.rlm(&["script", file, "--recorded", &recording]).output().unwrap();
        if args.len() == 1 {
            let mut bash = Command::new("bash");
            let ran = bash.args(["-c", text(&script.stdout)]).current_dir(&files).output().unwrap();
            assert!(text(&ran.stdout).ends_with("\nOctober 2024: 13 people\n"), "{ran:?}");
        }
    }
}

/// The directory of the root among those that were kept.
fn rollout_with_the_shortest_id(kept: &Path) -> PathBuf {
    let paths = std::fs::read_dir(kept).unwrap().map(|entry| entry.unwrap().path());
    paths.min_by_key(|path| path.as_os_str().len()).unwrap()
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
        return rlm_tests::skipped("no network namespace can be made");
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
