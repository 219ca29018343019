//! `rlm completions`: in real shells.

use std::io::{Read as _, Write as _};
use std::process::Output;

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use rlm_tests::{Place, program};

fn install(place: &Place, arguments: &[&str], shell: &str) -> Output {
    place.rlm(&[&["completions", "--install"], arguments].concat()).env("SHELL", shell).output().unwrap()
}

fn words(output: &Output) -> &str {
    assert_eq!(str::from_utf8(&output.stdout).unwrap(), "");
    str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn a_real_bash_completes_with_what_was_installed() {
    let place = Place::new();
    let output = install(&place, &[], "/usr/bin/bash");
    let file = place.path("home/.local/share/bash-completion/completions/rlm");
    let said = format!("rlm: the completions for bash are in {}; a new shell has them\n", file.display());
    assert_eq!((words(&output), output.status.code()), (said.as_str(), Some(0)));
    let terminal = native_pty_system().openpty(PtySize::default()).unwrap();
    let mut command = CommandBuilder::new("bash");
    command.args(["--norc", "--noprofile", "-i"]);
    command.env_clear();
    command.env("HOME", place.path("home"));
    command.env("TERM", "dumb");
    command.env("PS1", "$ ");
    command.env("PATH", format!("{}:/usr/bin:/bin", program("rlm").parent().unwrap().display()));
    for (name, value) in place.mark() {
        command.env(name, value);
    }
    let mut child = terminal.slave.spawn_command(command).unwrap();
    drop(terminal.slave);
    let mut input = terminal.master.take_writer().unwrap();
    let mut output = terminal.master.try_clone_reader().unwrap();
    // Where bash-completion is installed, it finds the file by itself.
    let loader = "/usr/share/bash-completion/bash_completion";
    let load = format!("if [ -e {loader} ]; then . {loader}; else . '{}'; fi\n", file.display());
    input.write_all(load.as_bytes()).unwrap();
    input.write_all(b"rlm ru\t --hel\t >/dev/null; echo status $?; exit\n").unwrap();
    let mut seen = Vec::new();
    // Reading a terminal fails once nobody has it open any more.
    let _ended = output.read_to_end(&mut seen);
    // The terminal rings where more than one word is possible.
    let seen = String::from_utf8_lossy(&seen).replace('\x07', "");
    assert!(seen.contains("rlm run --help") && seen.contains("status 0"), "{seen}");
    child.wait().unwrap();
    place.assert_nothing_left();
}

#[test]
fn each_shell_has_its_place_and_others_are_told() {
    let place = Place::new();
    let output = install(&place, &["fish"], "/bin/bash");
    assert!(words(&output).contains("home/.config/fish/completions/rlm.fish; a new shell"));
    let output = install(&place, &[], "/bin/zsh");
    assert!(words(&output).contains("home/.local/share/zsh/site-functions/_rlm; a new shell"));
    assert!(words(&output).contains("add to ~/.zshrc, before compinit: fpath=('"));
    for (arguments, shell, said) in [
        (&["elvish"][..], "/bin/bash", "rlm: --install is for bash, zsh and fish: "),
        (&[], "/bin/login", "rlm: SHELL names no known shell: give one"),
    ] {
        let output = install(&place, arguments, shell);
        assert!(words(&output).starts_with(said), "{}", words(&output));
        assert_eq!(output.status.code(), Some(2));
    }
    for file in [".config/fish/completions/rlm.fish", ".local/share/zsh/site-functions/_rlm"] {
        let written = std::fs::read_to_string(place.path("home").join(file)).unwrap();
        assert!(written.contains("rlm"), "{file}");
    }
}
