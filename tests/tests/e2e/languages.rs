//! Shared by the tests of sessions: tests of both languages, and sessions as tables.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use rlm_core::protocol::{Answer, Outcome, State};
use rlm_env::SessionConfig;
use rlm_tests::{Place, Setup, Worker, children, default_python, program, wait_until};
use serde_json::json;

/// A language of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Bash,
    Python,
}

impl Language {
    /// The configuration of its worker.
    pub(crate) fn setup(self) -> Setup {
        match self {
            Self::Bash => Setup::bash(),
            Self::Python => Setup::python(),
        }
    }

    /// Its worker with default settings.
    pub(crate) fn start(self) -> Worker {
        self.setup().start()
    }

    /// The one for this language, such as the code that does the same in each.
    pub(crate) fn pick<T>(self, bash: T, python: T) -> T {
        match self {
            Self::Bash => bash,
            Self::Python => python,
        }
    }

    /// The configuration of a session in a directory.
    pub(crate) fn session_config(self, dir: impl Into<PathBuf>) -> SessionConfig {
        let worker = program(self.pick("rlm-worker-bash", "rlm-worker-python"));
        let python = default_python().into_os_string();
        SessionConfig {
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("RLM_PYTHON".into(), python)],
            ..SessionConfig::new(worker, dir)
        }
    }

    /// The worker's command for a place, whose directory `work` is the control directory and that of the session.
    pub(crate) fn worker_in(self, place: &Place) -> Command {
        place.write("rlm_context.json", &json!({"fs_root": place.file("")}).to_string());
        let mut command = place.command(program(self.pick("rlm-worker-bash", "rlm-worker-python")));
        command.arg("--control-dir").arg(place.file("")).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// The words on standard error of a worker that cannot start with these variables.
    #[track_caller]
    pub(crate) fn refuses_to_start(self, env: &[(&str, &str)]) -> String {
        let place = Place::new();
        let output = self.worker_in(&place).envs(env.iter().copied()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{env:?}: {said}");
        said
    }
}

/// Makes a test for each language of functions that take one. At most once in a module.
macro_rules! in_both_languages {
    ($($test:ident),* $(,)?) => {
        mod bash {
            $(#[test] fn $test() { super::$test(crate::languages::Language::Bash) })*
        }
        mod python {
            $(#[test] fn $test() { super::$test(crate::languages::Language::Python) })*
        }
    };
}

/// Makes a test of each row: the arguments of a function.
macro_rules! cases {
    ($function:ident: $($test:ident($($argument:expr),* $(,)?))*) => {
        $(#[test] fn $test() { $function($($argument),*) })*
    };
}

/// Makes a test of each session: calls in a new one, and what each must come to.
macro_rules! sessions {
    ($language:ident: $($(#[$attribute:meta])* $test:ident { $($code:expr => $expected:expr),* $(,)? })*) => {
        $(
            $(#[$attribute])*
            #[test]
            fn $test() {
                let mut worker = crate::languages::Language::$language.start();
                crate::languages::calls(&mut worker, &[$(($code, crate::languages::Expected::from($expected))),*]);
            }
        )*
    };
}

pub(crate) use {cases, in_both_languages, sessions};

/// The outcome that a call must have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected<'a> {
    /// It succeeds, keeps the state, and shows this: its output, and the repr of a cell's value.
    Shows(&'a str),
    /// A cell raises an exception of this type, and the state is kept.
    Raises(&'a str),
    /// It ends its interpreter, leaves this state and, if that is given, shows this output.
    Ends(State, Option<&'a str>),
    /// It succeeds, keeps the state, and leaves an answer, final or not, with this content.
    Answers(bool, &'a str),
}

/// A call must leave this answer, which is not final.
pub(crate) fn draft(content: &str) -> Expected<'_> {
    Expected::Answers(false, content)
}

/// A call must leave this answer, which is final.
pub(crate) fn ready(content: &str) -> Expected<'_> {
    Expected::Answers(true, content)
}

impl<'a> From<&'a str> for Expected<'a> {
    fn from(shown: &'a str) -> Self {
        Self::Shows(shown)
    }
}

impl From<State> for Expected<'_> {
    fn from(state: State) -> Self {
        Self::Ends(state, None)
    }
}

impl<'a> From<(State, &'a str)> for Expected<'a> {
    fn from((state, output): (State, &'a str)) -> Self {
        Self::Ends(state, Some(output))
    }
}

/// Runs calls one after another, and checks what each comes to.
#[track_caller]
pub(crate) fn calls<'a>(worker: &mut Worker, calls: &[(&str, impl Into<Expected<'a>> + Copy)]) {
    for (code, expected) in calls {
        let expected: Expected<'_> = (*expected).into();
        let response = worker.call(code);
        let (outcome, state) = match expected {
            Expected::Shows(_) | Expected::Answers(..) => (Outcome::Ok, State::Kept),
            Expected::Raises(_) => (Outcome::Error, State::Kept),
            Expected::Ends(state, _) => (response.outcome, state),
        };
        assert_eq!((response.outcome, response.state), (outcome, state), "{code:?}: {response:?}");
        match expected {
            Expected::Shows(text) => {
                let shown = response.stdout + &response.result.unwrap_or_default();
                assert_eq!(shown, text, "{code:?}");
            }
            Expected::Raises(kind) => assert_eq!(response.exception.unwrap().kind, kind, "{code:?}"),
            Expected::Answers(ready, content) => {
                let answer = Answer { ready, content: content.to_owned() };
                assert_eq!((&response.answer, &answer_file(worker)), (&answer, &answer), "{code:?}");
            }
            Expected::Ends(_, output) => {
                assert!(matches!(outcome, Outcome::Exited | Outcome::Crashed), "{code:?}: {outcome:?}");
                assert_eq!(response.stdout, output.unwrap_or(&response.stdout), "{code:?}");
            }
        }
    }
}

/// The answer in its file.
pub(crate) fn answer_file(worker: &Worker) -> Answer {
    serde_json::from_slice(&fs::read(worker.control.answer_file()).unwrap()).unwrap()
}

/// Ends the interpreter between two calls, and waits until the worker has seen it.
pub(crate) fn end_interpreter(worker: &Worker, signal: Signal) {
    kill(worker.interpreter(), signal).unwrap();
    wait_until("the worker has reaped it", || children(worker.server()).is_empty());
}
