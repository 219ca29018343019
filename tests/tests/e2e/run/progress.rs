//! The progress display.

use std::fs::File;

use rlm_tests::Place;
use rlm_tests::scripted_model::{Gate, ScriptedModel};

use super::{answering, asking, at_terminal, bash, read_until, text};

#[test]
fn progress_is_shown_at_a_terminal_and_goes_away() {
    let place = Place::new();
    let gate = Gate::shut();
    let model =
        ScriptedModel::start([bash("n=$((6 * 7))").usage(1000, 234).once(), answering("$n").after(&gate)]);
    let (child, mut terminal) = at_terminal(asking(&place, &model, &["run", "How many?"]));
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
