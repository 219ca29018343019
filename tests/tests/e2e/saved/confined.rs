//! Saved sessions of confined workers, which reach no other file of their host; and the hosts that pass them on.

use std::fs;
use std::process::Command;

use rlm_core::protocol::{Confine, Outcome, State};
use rlm_env::{Session, SessionConfig};
use rlm_tests::program;

use super::{load, place, save};
use crate::confine::can_have;
use crate::languages::{Language, in_both_languages};

in_both_languages!(
    a_confined_session_is_saved_and_loaded_by_its_host,
    the_command_saves_loads_and_describes,
    a_replay_has_the_calls_that_led_to_a_session_which_was_loaded,
);

fn a_confined_session_is_saved_and_loaded_by_its_host(language: Language) {
    for (confine, level) in [(Confine::Full, "full"), (Confine::Landlock, "landlock"), (Confine::Off, "off")]
    {
        if !can_have(level) {
            continue;
        }
        let (dir, file) = place();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let work = dir.path().join("work");
            fs::create_dir(&work).unwrap();
            let config = SessionConfig { confine: Some(confine), ..language.session_config(&work) };
            let mut session = Session::start(config.clone()).await.unwrap();
            session
                .execute(language.pick("x=1; f() { echo $x; }", "x = 1\ndef f(): print(x)"))
                .await
                .unwrap();
            let response = session.save(&file).await.unwrap();
            assert_eq!(
                (response.outcome, response.state),
                (Outcome::Ok, State::Kept),
                "{level}: {response:?}"
            );
            session.close().await.unwrap();
            let mut session = Session::start(config).await.unwrap();
            let response = session.load(&file).await.unwrap();
            assert_eq!(
                (response.outcome, response.state),
                (Outcome::Ok, State::Restored),
                "{level}: {response:?}"
            );
            let response = session.execute(language.pick("f", "f()")).await.unwrap();
            assert_eq!(response.stdout, "1\n", "{level}: {response:?}");
            assert!(!session.control_dir().join("rlm_saved").exists());
            session.close().await.unwrap();
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "a copy is left");
    }
}

fn the_command_saves_loads_and_describes(language: Language) {
    let (dir, file) = place();
    let rlm = |arguments: &[&str]| {
        let mut command = Command::new(program("rlm"));
        command.args(arguments).current_dir(dir.path());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let kind = language.pick("--repl-language=bash", "--repl-language=python");
    let (set, show) = language.pick(("x=1", "echo $x"), ("x = 1", "print(x)"));
    assert_eq!(rlm(&["exec", kind, "--save", "session", set]), (Some(0), String::new(), String::new()));
    assert_eq!(rlm(&["exec", kind, "--load", "session", show]), (Some(0), "1\n".to_owned(), String::new()));
    let (status, described, _) = rlm(&["saved", "session"]);
    let name = language.pick("bash ", "python ");
    assert!(
        status == Some(0) && described.starts_with(name) && described.contains("\ncalls      1\n"),
        "{described}"
    );
    assert!(rlm(&["saved", "--json", "session"]).1.starts_with(r#"{"language":""#));
    fs::write(&file, "text").unwrap();
    let (status, _, told) = rlm(&["saved", "session"]);
    assert_eq!(
        (status, told.as_str()),
        (Some(3), "rlm: session is not a saved session: expected a file that `save` has written\n")
    );
    let (status, _, told) = rlm(&["exec", kind, "--load", "session", show]);
    assert!(status == Some(3) && told.contains("is not a saved session"), "{told}");
}

fn a_replay_has_the_calls_that_led_to_a_session_which_was_loaded(language: Language) {
    let (dir, file) = place();
    let (set, add) = language.pick(("x=1", "x=$((x + 1)); echo $x"), ("x = 1", "x += 1; print(x)"));
    let mut old = language.start();
    old.output(set);
    save(&old, &file);
    old.output("");
    let mut new = language.start();
    new.output(&set.replace('1', "7"));
    load(&new, &file);
    assert_eq!(new.output(add), "2\n");
    let output =
        Command::new(program("rlm")).arg("replay").arg(new.control.path()).current_dir(dir.path()).output();
    let output = output.unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), told.as_str()), (Some(0), "equal: 3 calls\n"));
}

#[test]
fn the_page_begins_with_an_example_that_works_as_printed() {
    let (dir, _file) = place();
    let page = include_str!("../../../../docs/saved-sessions.md");
    let example = page.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let path = format!("{}:/usr/bin:/bin", rlm_tests::programs().display());
    let output = Command::new("bash")
        .args(["-ec", example])
        .current_dir(dir.path())
        .env("PATH", path)
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && printed.starts_with("8\npython "), "{printed}");
}
