//! Calls that end the shell, or that only their time limit ends.

use rlm_core::protocol::{Outcome, State};

use super::super::draw::Draw;
use super::super::step::{Effect, Step};
use super::quote;

pub(super) fn exit(draw: &mut Draw<'_>) -> Step {
    let (name, value, code) = (draw.name(), draw.value(), draw.rng.i32(0..256));
    // Bash leaves a function with arguments in a bad state if an interrupt hits its `exit`.
    let how = draw.pick(&["exit CODE", "(exit 1); exit CODE", "die() { exit CODE; }; die"]);
    let how = how.replace("CODE", &code.to_string());
    Step::new("exit", format!("{name}={}; {how}", quote(&value)))
        .effects([Effect::set(name, &value), Effect::complain("exit\n")])
        .ends(Outcome::Exited, State::Restored)
        .exit_code(code)
        .failing()
}

pub(super) fn errexit(draw: &mut Draw<'_>) -> Step {
    let (name, value) = (draw.name(), draw.value());
    let code = format!("set -e; {name}={}; echo before; false; echo never", quote(&value));
    Step::new("errexit", code)
        .effects([Effect::Strict(true), Effect::set(name, &value), Effect::print("before\n")])
        .ends(Outcome::Exited, State::Restored)
        .exit_code(1)
}

pub(super) fn exit_trap(draw: &mut Draw<'_>) -> Step {
    let word = draw.word();
    Step::new("trap EXIT", format!("trap 'echo {word}' EXIT")).effects([Effect::AtExit(format!("{word}\n"))])
}

pub(super) fn exit_with_trap(draw: &mut Draw<'_>) -> Step {
    let (word, value) = (draw.word(), draw.value());
    Step::new("exit with trap", format!("v1={}; trap 'echo {word}' EXIT; exit 5", quote(&value)))
        .effects([Effect::set("v1", &value), Effect::AtExit(format!("{word}\n")), Effect::complain("exit\n")])
        .ends(Outcome::Exited, State::Restored)
        .exit_code(5)
}

pub(super) fn kill_itself(draw: &mut Draw<'_>) -> Step {
    let value = draw.value();
    Step::new("kill -9 $$", format!("v1={}; echo last; kill -9 $$; sleep 100", quote(&value)))
        .effects([Effect::set("v1", &value), Effect::print("last\n")])
        .ends(Outcome::Exited, State::Reset)
        .exit_code(137)
}

pub(super) fn hang_up(draw: &mut Draw<'_>) -> Step {
    let value = draw.value();
    Step::new("kill -HUP $$", format!("v1={}; kill -HUP $$; sleep 5", quote(&value)))
        .effects([Effect::set("v1", &value)])
        .ends(Outcome::Exited, State::Restored)
        .exit_code(129)
}

pub(super) fn exec(draw: &mut Draw<'_>) -> Step {
    let (word, value) = (draw.word(), draw.value());
    Step::new("exec program", format!("v1={}; exec echo {word}", quote(&value)))
        .effects([Effect::set("v1", &value), Effect::print(&format!("{word}\n"))])
        .ends(Outcome::Exited, State::Reset)
        .exit_code(0)
}

/// Code that runs until its time limit.
fn endless(draw: &mut Draw<'_>, kind: &str, code: &str) -> Step {
    let (name, value) = (draw.name(), draw.value());
    let code = format!("{name}={}; {code}", quote(&value));
    Step::new(kind, code)
        .effects([Effect::set(name, &value)])
        .ends(Outcome::TimedOut, State::Kept)
        .field("timeout", f64::from(draw.rng.u32(1..30)) / 100.0)
        .failing()
}

pub(super) fn endless_loop(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "while :; do :; done",
        "until false; do x=$((${x-0} + 1)); done",
        "f() { f; }; for ((;;)); do :; done",
    ]);
    endless(draw, "endless loop", code)
}

pub(super) fn endless_sleep(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "sleep 1000",
        "sleep 1000 | cat | cat",
        "x=$(sleep 1000)",
        "sleep 1000 & wait",
        "cat <(sleep 1000)",
    ]);
    endless(draw, "endless sleep", code).effects([Effect::Noisy])
}

pub(super) fn deaf_program(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "sh -c 'trap \"\" INT; while :; do sleep 0.1; done'",
        "sh -c 'trap \"\" INT TERM; while :; do sleep 0.1; done'",
    ]);
    endless(draw, "deaf program", code)
}

pub(super) fn loop_of_programs(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&[
        "while :; do /bin/true; done",
        "while :; do x=$(/bin/echo); done",
        "while :; do sleep 0.01; done",
    ]);
    endless(draw, "loop of programs", code)
}

pub(super) fn deaf_shell(draw: &mut Draw<'_>) -> Step {
    let code = draw.pick(&["trap '' INT TERM; while :; do :; done", "trap '' INT HUP; while :; do :; done"]);
    endless(draw, "deaf shell", code).ends(Outcome::TimedOut, State::Restored)
}
