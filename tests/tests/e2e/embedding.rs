//! `docs/embedding.md`: its examples are the files in the repository, and each of them runs.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_tests::{Place, children, default_python, program, programs, repository, wait_until};

use super::venv::python_with_mcp;

/// An example, or a program that it uses.
fn example(place: &Place, program: impl AsRef<Path>) -> Command {
    let mut command = place.command(program);
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command
}

/// The FIFO client with a worker, in a directory.
fn fifo_client(place: &Place, worker: impl AsRef<Path>, calls: &[&str]) -> Command {
    let mut client = example(place, default_python());
    client.arg(repository().join("examples/fifo_client.py")).arg(worker.as_ref());
    client.arg(place.path("work")).args(calls);
    client
}

#[track_caller]
fn printed(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success() && stderr.is_empty(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn page() -> String {
    std::fs::read_to_string(repository().join("docs/embedding.md")).unwrap()
}

/// The text of all fenced blocks of one kind.
fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let open = format!("\n```{kind}\n");
    page.split(&open).skip(1).map(|block| block.split_once("```").unwrap().0).collect()
}

#[test]
fn the_page_shows_the_examples_as_they_are() {
    let page = page();
    let of = |path: &str, first: &str| {
        let text = std::fs::read_to_string(repository().join(path)).unwrap();
        text[text.find(first).unwrap()..].to_owned()
    };
    let session = of("rlm-env/examples/session.rs", "use std::");
    let tool = of("rlm-env/examples/session_tool.rs", "use std::");
    let rollout = of("rlm-env/examples/rollout.rs", "use std::");
    assert_eq!(blocks(&page, "rust"), [session, tool, rollout]);
    assert_eq!(blocks(&page, "python"), [of("examples/mcp_client.py", "import sys")]);
}

#[test]
fn the_session_example_runs() {
    let place = Place::new();
    let mut example = example(&place, program("examples/session"));
    example.arg(program("rlm-worker-bash")).arg(place.path("work"));
    assert_eq!(
        printed(example),
        "Ok, exit status Some(1)\n\
         it's $5, 2 ids\n\
         TimedOut, state Kept: begun\n\
         1 in /\n\
         the answer: 42 (true)\n\
         no x\n\
         on\n"
    );
    place.assert_nothing_left();
}

#[test]
fn the_tool_example_runs() {
    let place = Place::new();
    let mut example = example(&place, program("examples/session_tool"));
    example.arg(program("rlm-worker-bash")).arg(place.path("work"));
    let output = printed(example);
    let lines: Vec<_> = output.lines().collect();
    let [first, failed, last] = lines[..] else { panic!("{output}") };
    assert_eq!((first, last), ("Kept: 1", "Reset: no x"));
    assert!(failed.starts_with("failed. ") && failed.len() > "failed. ".len(), "{failed}");
    place.assert_nothing_left();
}

#[test]
fn the_rollout_example_runs() {
    let place = Place::new();
    let mut example = example(&place, program("examples/rollout"));
    example.arg(programs());
    assert_eq!(printed(example), "Answered: DEAR ALL,\n");
    place.assert_nothing_left();
}

/// The page's command, and its output.
#[test]
fn the_fifo_client_prints_what_the_page_says() {
    let page = page();
    let place = Place::new();
    let [command] = blocks(&page, "sh")[..] else { panic!() };
    let command = command
        .replace(
            "python3 examples",
            &format!("{} {}/examples", default_python().display(), repository().display()),
        )
        .replace("target/release/rlm-worker-bash", program("rlm-worker-bash").to_str().unwrap());
    let mut shell = example(&place, "bash");
    shell.arg("-c").arg(command).current_dir(place.path("work"));
    assert_eq!([printed(shell).as_str()], blocks(&page, "text")[..]);
    place.assert_nothing_left();
}

#[test]
fn the_fifo_client_is_short_and_needs_nothing_but_python() {
    let client = std::fs::read_to_string(repository().join("examples/fifo_client.py")).unwrap();
    assert!(client.lines().count() < 65);
    let place = Place::new();
    let large = format!("x = {:?}; len(x)", "é".repeat(200_000));
    let calls = ["import os; x = 1; print('é')", "x + 1", "1 / 0", "os._exit(3)", "'x' in dir()"];
    let output = printed(fifo_client(&place, program("rlm-worker-python"), &calls));
    assert!(output.starts_with("é\n[ok, state kept]\n2[ok, state kept]\nTraceback"), "{output}");
    // The client shows no hints, but a lost state.
    let lost = "[error, state kept]\nthe interpreter ended with status 3; a new one has only the answer: ";
    assert!(output.contains(lost), "{output}");
    assert!(output.ends_with("were ended[crashed, state reset]\nFalse[ok, state kept]\n"), "{output}");
    // More than a FIFO holds, in both directions. As a file, because no argument can be that long.
    let ask = format!(
        "import sys; sys.path.insert(0, {:?}); from fifo_client import Session; from contextlib import closing\n\
         with closing(Session(*sys.argv[1:])) as session:\n\
         \x20   code = open('code').read()\n\
         \x20   print(session.ask(code=code)['result'], len(session.ask(code='print(x)')['stdout']))\n\
         \x20   print(session.ask(op='set', variables={{'y': [1, None]}})['outcome'], session.ask(code='y')['result'])\n\
         \x20   print(session.ask(op='reset')['state'], session.ask(code='y')['exception']['type'])\n",
        repository().join("examples")
    );
    std::fs::write(place.path("work/code"), large).unwrap();
    let mut client = example(&place, default_python());
    client.args(["-B", "-c", &ask]).arg(program("rlm-worker-python")).arg(place.path("work"));
    client.current_dir(place.path("work"));
    assert_eq!(printed(client), "200000 200001\nok [1, None]\nreset NameError\n");
    place.assert_nothing_left();
}

#[test]
fn the_fifo_client_says_that_the_worker_died() {
    let place = Place::new();
    for (worker, calls, words) in [
        (
            program("rlm-worker-bash"),
            ["echo on", "kill -9 $PPID; sleep 1000"],
            "gave no response: its exit status is ",
        ),
        (
            program("rlm-worker-python"),
            ["print('on')", "import os; os.kill(os.getppid(), 9)"],
            "gave no response: its exit status is ",
        ),
        ("/bin/false".into(), ["", ""], "did not start: its exit status is 1"),
    ] {
        let output = fifo_client(&place, worker, &calls).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        // The worker's own line, if it has one, comes before or after.
        let said = format!("the worker {words}");
        assert_eq!(errors.lines().filter(|line| line.starts_with(&said)).count(), 1, "{errors}");
        assert!(
            errors.lines().all(|line| line.starts_with(&said) || line.starts_with("rlm-worker-")),
            "{errors}"
        );
        place.assert_nothing_left();
    }
}

#[test]
fn killing_either_end_of_the_fifos_in_the_middle_of_a_call_leaves_nothing() {
    let place = Place::new();
    let code = "nohup setsid sleep 1000 >/dev/null 2>&1 & touch begun; sleep 1000";
    for is_worker in [true, false] {
        let client =
            fifo_client(&place, program("rlm-worker-bash"), &[code]).stderr(Stdio::piped()).spawn().unwrap();
        let begun = place.path("work/begun");
        wait_until("the call has begun", || begun.exists());
        let pid = Pid::from_raw(i32::try_from(client.id()).unwrap());
        let [worker] = children(pid)[..] else { panic!("{:?}", children(pid)) };
        kill(if is_worker { worker } else { pid }, Signal::SIGKILL).unwrap();
        let output = client.wait_with_output().unwrap();
        if is_worker {
            let errors = String::from_utf8(output.stderr).unwrap();
            // The server may say why it ends: the client has removed the directory of its log.
            assert!(errors.starts_with("the worker gave no response: its exit status is -9\n"), "{errors}");
        }
        wait_until("every process is gone", || place.processes().is_empty());
        std::fs::remove_file(begun).unwrap();
    }
    place.remove_temporary();
}

#[test]
fn the_mcp_client_runs() {
    let Some(python) = python_with_mcp() else { return };
    let place = Place::new();
    let mut client = example(&place, python);
    client.arg(repository().join("examples/mcp_client.py")).arg(program("rlm")).arg(place.path("work"));
    assert_eq!(printed(client), "1 in /\nno x\ntimed out: True state: kept\nno x\n");
    assert_eq!(place.processes(), [], "processes outlive what started them");
}
