//! The progress display.

use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;

use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};
use rlm_tests::{Place, signal};

use nix::sys::signal::Signal;
use nix::sys::termios::LocalFlags;
use portable_pty::{PtySize, native_pty_system};
use serde_json::json;

use super::{answering, ask, asking, at_terminal, bash, calling, read_until, shown, start, text};
use crate::pty::at_pty;

#[test]
fn progress_is_shown_at_a_terminal_and_goes_away() {
    let place = Place::new();
    let gate = Gate::shut();
    let model =
        ScriptedModel::start([bash("n=$((6 * 7))").usage(1000, 234).once(), answering("$n").after(&gate)]);
    let (child, mut terminal) =
        at_terminal(asking(&place, &model, &["run", "--progress", "line", "How many?"]));
    let (seen, found) = read_until(
        &mut terminal,
        "turn 1 of 50 · 1 call · 0 sub-calls · 1,234 tokens · waiting for the model",
    );
    assert!(found && seen.contains("n=$((6 * 7))"), "{seen}");
    gate.open();
    let (rest, _) = read_until(&mut terminal, "");
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), output.status.code()), ("42\n", Some(0)));
    let end = rest.rsplit("\x1b[2K").next().unwrap();
    assert!(!end.contains("turn 2 of"), "the bar is left: {rest:?}");
    assert!(end.contains("rlm: 2 turns · 2 calls · 0 sub-calls · "), "{end:?}");
    assert!(!format!("{seen}{rest}").contains("question"), "{seen}{rest}");
}

#[test]
fn a_wait_for_the_server_is_shown_as_one() {
    let place = Place::new();
    for level in ["line", "full"] {
        let busy = Rule::any().status(429, "slow \u{1b}[2Jdown").header("retry-after", "60").once();
        let model = ScriptedModel::start([busy, answering("yes")]);
        let (mut child, mut terminal) =
            at_terminal(asking(&place, &model, &["run", "--progress", level, "Why?"]));
        let (seen, found) = read_until(&mut terminal, "asking again in 60");
        assert!(
            found && seen.contains("answered 429: slow ") && !seen.contains("\u{1b}[2J"),
            "{level}: {seen}"
        );
        signal(&child, Signal::SIGTERM);
        drop(terminal);
        child.wait().unwrap();
        assert_eq!(model.finish().len(), 1);
    }
}

#[test]
fn a_long_wait_for_the_server_is_said_without_a_terminal() {
    let place = Place::new();
    let busy = Rule::any().status(429, "slow \u{1b}[2Jdown").header("retry-after", "61").once();
    let model = ScriptedModel::start([busy, answering("yes")]);
    let mut child = asking(&place, &model, &["run", "Why?"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = child.stderr.take().unwrap();
    let (seen, found) = read_until(&mut errors, "slow ␛[2Jdown; asking again in 61 s\n");
    assert!(found && seen.starts_with("rlm: the model's server answered 429: "), "{seen}");
    signal(&child, Signal::SIGTERM);
    drop(errors);
    child.wait().unwrap();
    assert_eq!(model.finish().len(), 1);
}

#[test]
fn output_is_shown_as_it_comes_and_once() {
    let gate = Gate::shut();
    let (place, model) = start([
        Rule::on("judge").reply("yes").after(&gate),
        bash("seq -f 'line %g' 23; llm_batch judge; echo last").once(),
        answering("42"),
    ]);
    let (child, mut terminal) = at_terminal(asking(&place, &model, &["run", "Why?"]));
    // The first lines stay; the latest one is below the bar.
    let (seen, found) = read_until(&mut terminal, "  │ line 21");
    assert!(found, "{seen}");
    let (more, found) = read_until(&mut terminal, "  line 23");
    assert!(found && !format!("{seen}{more}").contains("│ line 22"), "{more}");
    gate.open();
    let (rest, _) = read_until(&mut terminal, "");
    assert!(child.wait_with_output().unwrap().status.success());
    let all = format!("{seen}{more}{rest}");
    assert!(
        rest.contains("  │ … 2 more lines …") && rest.contains("  │ yes") && rest.contains("  │ last"),
        "{rest}"
    );
    assert_eq!(all.matches("  │ line 7\r\n").count(), 1, "{all}");
}

#[test]
fn ctrl_c_leaves_no_line_of_the_bar() {
    let place = Place::new();
    place.write("q.jsonl", "{\"question\": \"one?\"}\n");
    let batch = ["run", "--questions", "q.jsonl", "--results", "r.jsonl"];
    for args in [&["run", "Why?"][..], &["run", "--progress", "line", "Why?"], &batch] {
        let gate = Gate::shut();
        let model = ScriptedModel::start([answering("yes").after(&gate)]);
        let terminal = native_pty_system().openpty(PtySize::default()).unwrap();
        let command = at_pty(&place, &asking(&place, &model, args));
        let mut child = terminal.slave.spawn_command(command).unwrap();
        let shows_control_keys =
            || terminal.master.get_termios().unwrap().local_flags.bits() & LocalFlags::ECHOCTL.bits() != 0;
        let mut output = terminal.master.try_clone_reader().unwrap();
        let (seen, found) = read_until(&mut output, "0 tokens");
        assert!(found && !shows_control_keys(), "{seen}");
        terminal.master.take_writer().unwrap().write_all(b"\x03").unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.exit_code(), 1);
        assert!(shows_control_keys(), "the terminal's settings are not restored");
        drop(terminal.slave);
        let (rest, _) = read_until(&mut output, "");
        assert!(rest.contains("Ctrl-C again ends at once") && !rest.contains("^C"), "{rest:?}");
        gate.open();
    }
}

/// A rollout with a failed call, two sub-calls, a long output, and text beside the code.
fn eventful() -> ScriptedModel {
    let says = "First I look at \u{1b}]0;title\u{7}the files\u{202e}.\u{200b}";
    let mut message = calling("call_bash_repl", "cat missing; llm_batch 'judge a' 'judge b'");
    message["content"] = says.into();
    ScriptedModel::start([
        Rule::on("judge").reply("yes \u{1b}]0;title\u{7}\u{9b}2J").usage(10, 2),
        Rule::any().message(message).usage(1000, 234).once(),
        bash("seq 100; false").usage(1500, 20).once(),
        answering("42").usage(1600, 20),
    ])
}

/// The whole screen, without colours.
const SHOWN: [&str; 14] = [
    "question  How many?",
    "turn 1",
    "First I look at ",
    "the files<U+202E>.<U+200B>",
    "  $ cat missing; llm_batch 'judge a' 'judge b'",
    "  │ cat: missing: No such file or directory",
    "  │ yes",
    "  llm_batch sent the sub-LLM 2 requests, 24 tokens",
    "turn 2",
    "  $ seq 100; false",
    "  │ … 77 more lines …",
    "  exit status 1",
    "turn 3",
    "  $ RLM_CONTENT=42 RLM_READY=1",
];

/// Checks that these are in a text, in this order.
fn check_order(text: &str, expected: &[&str]) {
    let mut rest = text;
    for line in expected {
        let (_, after) =
            rest.split_once(line).unwrap_or_else(|| panic!("`{line}` is missing or too late: {text}"));
        rest = after;
    }
}

#[test]
fn a_rollout_can_be_watched() {
    let place = Place::new();
    for (variables, has_colours) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let model = eventful();
        let mut command = asking(&place, &model, &["run", "How many?\u{1b}]0;title\u{7}"]);
        command.envs(variables.iter().copied()).stdout(std::process::Stdio::piped());
        let (child, mut terminal) = at_terminal(command);
        let (seen, _) = read_until(&mut terminal, "");
        assert_eq!(text(&child.wait_with_output().unwrap().stdout), "42\n");
        check_order(&seen, &SHOWN);
        check_order(
            &seen,
            &["turn 3", "rlm: 3 turns · 3 calls · 2 sub-calls · 4,398 tokens · ", " s · rlm view run-"],
        );
        assert_eq!(seen.contains("\u{1b}[36m"), has_colours, "{seen}");
        assert!(!seen.contains("\u{1b}]0;") && !seen.contains('\u{7}') && !seen.contains('\u{9b}'), "{seen}");
    }
}

#[test]
fn reasoning_is_a_line_and_nobody_sees_what_only_servers_read() {
    const SECRET: &str = "SECRET-SIGNATURE";
    let place = Place::new();
    let mut message = calling("call_bash_repl", "llm_query 'judge a'");
    message["content"] = "<think>\nFirst the\nfiles.\n</think>\n\nI look.".into();
    message["tool_calls"][0]["extra_content"] = json!({"google": {"thought_signature": SECRET}});
    message["reasoning_details"] = json!([{"type": "reasoning.encrypted", "data": SECRET}]);
    message["anthropic"] = json!({"content": [{"type": "thinking", "thinking": "", "signature": SECRET}]});
    let usage = json!({
        "prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 900},
        "completion_tokens": 200, "completion_tokens_details": {"reasoning_tokens": 150},
    });
    let body = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage});
    let judged = json!({"role": "assistant", "content": "<think>Hm.</think>yes", "signature": SECRET});
    for at_a_terminal in [false, true] {
        let model = ScriptedModel::start([
            Rule::on("judge").message(judged.clone()).usage(10, 2),
            Rule::any().body(body.to_string()).once(),
            answering("42").usage(1300, 20),
        ]);
        let mut command = asking(&place, &model, &["run", "--progress", "full", "--id", "thinking", "Why?"]);
        command.stdout(std::process::Stdio::piped()).env("NO_COLOR", "1");
        let (answer, seen) = if at_a_terminal {
            let (child, mut terminal) = at_terminal(command);
            let (seen, _) = read_until(&mut terminal, "");
            (child.wait_with_output().unwrap().stdout, seen)
        } else {
            let output = command.output().unwrap();
            (output.stdout, text(&output.stderr).to_owned())
        };
        assert_eq!(text(&answer), "42\n");
        let shown =
            ["turn 1", "thought, 150 tokens: First the files.", "I look.", "  its first answer begins: yes"];
        check_order(&seen, &shown);
        check_order(
            &seen,
            &["rlm: 2 turns · 2 calls · 1 sub-call · 2,532 tokens (900 cached, 150 reasoning) · "],
        );
        assert!(!seen.contains(SECRET) && !seen.contains("think>"), "{seen}");
    }
    let record = place.path("home").join(".local/state/rlm/runs/thinking.jsonl");
    assert!(std::fs::read_to_string(record).unwrap().contains(SECRET), "a replay needs it");
    for args in
        [&["view"][..], &["view", "--full"], &["view", "--html", "-"], &["view", "--to", "rlms"], &["runs"]]
    {
        let output = place.rlm(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let printed = text(&output.stdout);
        assert!(!printed.contains(SECRET), "{args:?}: {printed}");
        if args == ["runs"] {
            assert!(printed.contains("2 turns, 2,532 tokens (900 cached, 150 reasoning), "), "{printed}");
        }
    }
}

#[test]
fn sub_calls_that_fail_are_shown_with_the_reason() {
    let (place, model) = start([
        Rule::on("judge").status(404, "no model \u{202e}small"),
        bash("llm_batch 'judge a' 'judge b' >/dev/null; RLM_CONTENT=42 RLM_READY=1"),
    ]);
    let output = ask(&place, &model, &["run", "--progress", "full", "How many?"]);
    let (answer, seen, status) = shown(&output);
    assert_eq!((answer, status), ("42\n", Some(0)));
    let failed = "  2 failed: the model's server answered 404: no model <U+202E>small\n";
    check_order(seen, &["  llm_batch sent the sub-LLM 2 requests, 0 tokens\n", failed]);
    assert!(!seen.contains("its first answer begins"), "{seen}");
}

#[test]
fn a_rollout_can_be_watched_without_a_terminal() {
    let place = Place::new();
    let model = eventful();
    let output = ask(&place, &model, &["run", "--progress", "full", "How many?"]);
    let (answer, seen, status) = shown(&output);
    assert_eq!((answer, status), ("42\n", Some(0)));
    check_order(seen, &SHOWN);
    assert!(!seen.contains('\u{1b}'), "{seen}");
    assert!(seen.lines().last().unwrap().starts_with("rlm: 3 turns · "), "{seen}");
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
    }
}
