"""Sessions of both kinds and both languages."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from conftest import NIGHTLY, ended
from rlm_env import (
    Answer,
    BranchError,
    CellException,
    Confinement,
    EndedError,
    Session,
    SessionConfig,
    StartError,
    Truncated,
    UsageError,
)


def test_calls_share_one_state(session: Any, language: str) -> None:
    first, second = ("x=1; echo one", "echo $x") if language == "bash" else ("x = 1; print('one')", "print(x)")
    response = session.execute(first)
    assert (response.status, response.stdout, response.stderr, response.execution_count) == ("ok", "one\n", "", 1)
    assert session.execute(second).stdout == "1\n"
    with pytest.raises(FrozenInstanceError):
        response.stdout = ""


def test_code_that_fails_is_a_response(kind: Any, work: Path) -> None:
    with kind(work) as bash:
        response = bash.execute("false")
        assert (response.outcome, response.exit_code) == ("ok", 1)
        assert ended(bash.execute("x=1; exit 3")) == ("exited", "restored")
        assert bash.execute("echo $x").stdout == "1\n"
    with kind(SessionConfig(work, language="python")) as python:
        response = python.execute("1/0")
        assert response.exception == CellException("ZeroDivisionError", "division by zero")
        assert response.result.endswith("ZeroDivisionError: division by zero")
        response = python.execute("import os; os.kill(os.getpid(), 9)")
        assert ended(response) == ("crashed", "reset")
        assert response.result is None and response.hint, "the hint is a field of its own"


def test_the_answer_comes_with_each_response(session: Any, language: str) -> None:
    assert session.answer == Answer()
    code = (
        "RLM_CONTENT='4 2'; RLM_READY=1" if language == "bash" else "answer['content'] = '4 2'; answer['ready'] = True"
    )
    assert session.execute(code).answer == session.answer == Answer(True, "4 2")
    assert session.reset().answer == session.answer == Answer()


def test_variables_are_set_from_json_values(session: Any, language: str) -> None:
    assert session.set({"question": "it's $5", "ids": [1, 2]}).hint is None
    code = 'echo "$question ${#ids[@]}"' if language == "bash" else "print(question, len(ids))"
    assert session.execute(code).stdout == "it's $5 2\n"
    refused = session.set({"fine": 1, "no name": 2})
    assert refused.outcome == "error" and "no name" in refused.hint
    for value, error in ({1, 2}, TypeError), (float("nan"), ValueError):
        with pytest.raises(error, match="the variable 'odd' cannot be sent as JSON"):
            session.set({"fine": 1, "odd": value})
    assert session.set({"big": "x" * (1 << 20)}).hint.startswith("variable `big` has")


def test_reset_begins_anew(session: Any, language: str) -> None:
    session.execute("x=1; cd /")
    assert session.reset().state == "reset"
    code = "echo ${x-none} $PWD" if language == "bash" else "import os; print(globals().get('x', 'none'), os.getcwd())"
    assert session.execute(code).stdout == f"none {session.config.fs_root}\n"


def test_info_describes_the_session(session: Any, language: str, work: Path) -> None:
    session.execute("1")
    info = session.info()
    assert (info.language, info.calls, info.cwd, info.answer_ready) == (language, 1, str(work), False)
    assert info.memory_bytes > 1 << 20 and info.uptime > 0 and os.path.exists(f"/proc/{info.pid}")


@pytest.mark.parametrize("level", ["full", "landlock"])
def test_a_confined_session_says_so(kind: Any, work: Path, language: Any, level: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("c0ffee")
    read = f"cat {secret} 2>&1" if language == "bash" else f"print(open({str(secret)!r}).read())"
    try:
        with kind(SessionConfig(work, language=language, confine=level)) as session:
            confinement = session.info().confinement
            response = session.execute(read)
    except StartError as error:
        pytest.skip(f"this host does not allow it: {error}")
    assert confinement.level == level and (level == "full" or confinement.landlock >= 6)
    assert "c0ffee" not in f"{response.stdout}{response.result}" and response.outcome != "crashed"
    with kind(SessionConfig(work, language=language, confine="off")) as session:
        assert session.info().confinement == Confinement("off", None)
        assert "c0ffee" in session.execute(read).stdout


@pytest.mark.parametrize("level", ["full", "landlock"])
def test_a_confined_session_has_tools_and_plants_no_links(
    work: Path, language: Any, level: Any, tmp_path: Path
) -> None:
    def double(number: int) -> int:
        return 2 * number

    victim = tmp_path / "victim"
    victim.write_text("as it was")
    call = "double 21" if language == "bash" else "print(double(21))"
    link = f"ln -sf {victim} $CONTROL/rlm_context.json"
    session = Session(SessionConfig(work, language=language, confine=level), tools=[double])
    with contextlib.closing(session):
        try:
            session.start()
        except StartError as error:
            pytest.skip(f"this host does not allow it: {error}")
        assert session.execute(call).stdout == "42\n"
        link = link.replace("$CONTROL", session.control_dir)
        session.execute(link if language == "bash" else f"import os; print(os.system({link!r}))")
        assert os.path.islink(os.path.join(session.control_dir, "rlm_context.json"))
        session.restart()
        assert session.execute(call).stdout == "42\n"
    assert victim.read_text() == "as it was"


def test_a_time_limit_keeps_the_state(session: Any, say: Any, hang: str) -> None:
    session.set({"x": 1})
    response = session.execute(hang, timeout=0.2)
    assert ended(response) == ("timed_out", "kept") and response.stdout.strip() == "begun"
    assert session.execute(say("on")).stdout == "on\n"


def test_limits_of_the_configuration(kind: Any, work: Path, hang: str, language: Any) -> None:
    with kind(SessionConfig(work, language=language, exec_timeout=0.2, max_output_bytes=1000)) as session:
        assert session.execute(hang).outcome == "timed_out"
        long = "printf '%05000d' 1" if language == "bash" else "print('1' * 5000, end='')"
        response = session.execute(long, timeout=20)
        assert isinstance(response.truncated, Truncated) and response.truncated.stdout >= 4000
        assert session.execute(long, timeout=20, max_output_bytes=9000).truncated is None


def test_an_interrupt_ends_the_call(session: Any, hang: str, say: Any) -> None:
    timer = threading.Timer(0.2, lambda: interrupt(session))
    timer.start()
    response = session.execute(hang)
    assert ended(response) == ("interrupted", "kept") and response.stdout.strip() == "begun"
    session.interrupt()  # without a call it does nothing
    assert session.execute(say("on")).stdout == "on\n"
    timer.join()


def interrupt(session: Any) -> None:
    runner = getattr(session, "runner", None)
    if runner is None:
        session.interrupt()
    else:
        runner.call_soon_threadsafe(session.interrupt)


def test_large_texts_go_both_ways(session: Any, language: str) -> None:
    size = (64 if NIGHTLY else 8) << 20
    code = f"head -c {size} /dev/zero | tr '\\0' x" if language == "bash" else f"print('x' * {size}, end='')"
    assert session.execute(code, max_output_bytes=size + 1).stdout == "x" * size
    answer = f"printf -v RLM_CONTENT %{size}s" if language == "bash" else f"answer['content'] = ' ' * {size}"
    assert session.execute(answer).answer.content == " " * size
    comment = "# " + "ü" * (4 << 20)
    assert session.execute(comment).outcome == "ok"
    too_large = session.execute("# " + "x" * (17 << 20))
    assert too_large.outcome == "error" and "16" in too_large.hint


def test_code_and_output_of_any_characters(session: Any, say: Any) -> None:
    for text in ("ünï", "\u2028", "\U0001f600", "a\tb"):
        assert session.execute(say(f"'{text}'" if "echo" in say("x") else text)).stdout == f"{text}\n"
    refused = session.execute("# \ud800")
    assert refused.outcome == "error" and "UTF-8" in refused.hint


def test_a_worker_that_dies_is_an_error_and_can_be_started_again(session: Any, say: Any, hang: str) -> None:
    killer = threading.Timer(0.2, lambda: os.kill(session.pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(EndedError, match=r"SIGKILL.*restart\(\) starts another") as error:
        session.execute(hang)
    assert error.value.status == "SIGKILL"
    killer.join()
    with pytest.raises(EndedError):
        session.execute(say("dead"))
    session.restart()
    assert session.execute(say("alive")).stdout == "alive\n"


def test_restart_of_a_live_worker(session: Any, say: Any) -> None:
    before = session.pid
    session.restart()
    assert session.pid != before and session.execute(say("on")).stdout == "on\n"


def test_closing_ends_what_the_session_started(kind: Any, work: Path) -> None:
    with kind(work) as session:
        pid = int(session.execute("(nohup sleep 1000 >/dev/null 2>&1 & echo $!)").stdout)
    assert not os.path.exists(f"/proc/{pid}")
    session.close()


def test_a_closed_session_says_so(kind: Any, work: Path) -> None:
    session = kind(work)
    with pytest.raises(UsageError, match="has not been started"):
        session.execute(":")
    with session:
        pass
    for call in (lambda: Session.execute(session, ":"),) if kind is Session else ():
        with pytest.raises(UsageError, match="the session is closed: create another from session.config"):
            call()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"worker": "/does/not/exist"}, "cannot start the worker /does/not/exist: No such file"),
        ({"worker": "/bin/false"}, r"the worker ended before it was ready \(exit status 1\)"),
        ({"fs_root": "/does/not/exist"}, r"exit status 3\).*/does/not/exist"),
        ({"control_dir": "/proc/nowhere"}, "cannot write to the control directory /proc/nowhere"),
        ({"worker": "/bin/sh", "start_limit": 0.2}, "ended before it was ready"),
        ({"language": "python", "python": "/bin/false"}, "/bin/false"),
        ({"env": {"RLM_EXEC_TIMEOUT": "soon"}}, "RLM_EXEC_TIMEOUT"),
    ],
)
def test_a_start_that_fails_says_why(kind: Any, work: Path, options: dict[str, Any], words: str) -> None:
    session = kind(SessionConfig(**{"fs_root": work, **options}))
    with pytest.raises(StartError, match=f"(?s){words}"):
        session.start()
    session.close()


def test_a_worker_that_is_never_ready_is_ended(kind: Any, work: Path, tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec sleep 1000\n")
    mute.chmod(0o755)
    session = kind(SessionConfig(work, worker=mute, start_limit=0.3))
    with pytest.raises(StartError, match="was not ready within 0.3 s"):
        session.start()
    session.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"language": "perl"}, 'language must be "bash" or "python", not \'perl\''),
        ({"confine": "ful"}, "confine must be one of off, full, landlock, try, or None, not 'ful'"),
        ({"exec_timeout": 0}, "exec_timeout must be a number of seconds above 0, not 0"),
        ({"exec_timeout": "5"}, "exec_timeout must be a number of seconds, not '5'"),
        ({"margin": -1}, "margin must be a number of seconds above 0, not -1"),
        ({"start_limit": float("inf")}, "start_limit must be a number of seconds above 0, not inf"),
        ({"max_output_bytes": 1.5}, "max_output_bytes must be an int above 0, or None for 16 MiB, not 1.5"),
        ({"fs_root": None}, "fs_root must be a path, not None"),
        ({"control_dir": 5}, "control_dir must be a path, not 5"),
        ({"env": {"A": 1}}, "env must have names and values that are str: not 'A': 1"),
        ({"env": {"A=": "x"}}, "env must have names and values that are str: not 'A='"),
        ({"fs_metadata": object()}, "fs_metadata must be a value that JSON can hold"),
    ],
)
def test_a_wrong_configuration_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        SessionConfig(**options)


def test_wrong_arguments_are_named_and_harm_nothing(bash: Any) -> None:
    bash.execute("RLM_CONTENT=kept")
    for call, words in [
        (lambda: bash.execute(b"x"), "code must be a str, not bytes"),
        (lambda: bash.execute(":", timeout="5"), "timeout must be a number of seconds, not '5'"),
        (lambda: bash.execute(":", timeout=float("nan")), "timeout must be a number of seconds above 0, not nan"),
        (lambda: bash.set(["x"]), "variables must be a dict of names and values, not list"),
    ]:
        with pytest.raises((ValueError, TypeError), match=words):
            call()
    assert bash.execute("echo on", timeout=1e9).stdout == "on\n"
    assert bash.answer.content == "kept"


def test_a_session_stays_in_its_directory(kind: Any, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    with kind() as session:
        monkeypatch.chdir("/")
        session.restart()
        assert session.execute("echo $PWD").stdout == f"{work}\n"


def test_the_worker_gets_no_secret_of_the_environment(kind: Any, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("WANTED", "passed")
    look = "tr '\\0' '\\n' </proc/$PPID/environ | grep -c secret; echo $WANTED"
    with kind(work) as session:
        assert session.execute(look).stdout == "0\n\n"
    monkeypatch.setenv("RLM_PASS_ENV", "WANTED")
    with kind(work) as session:
        assert session.execute(look).stdout == "0\npassed\n"
    with kind(SessionConfig(work, env={"PATH": os.environ["PATH"]})) as session:
        assert session.execute("echo ${HOME-no}").stdout == "no\n"


def test_a_control_directory_of_ones_own_is_kept(kind: Any, work: Path, tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.mkdir()
    with kind(SessionConfig(work, control_dir=control)) as session:
        session.execute("echo kept")
        assert session.control_dir == str(control)
    assert '"code":"echo kept"' in (control / "rlm_history.jsonl").read_text()


def test_python_sessions_run_in_this_interpreter(kind: Any, work: Path) -> None:
    import sys

    with kind(SessionConfig(work, language="python")) as session:
        assert session.execute("import sys; print(sys.prefix)").stdout.strip() == sys.prefix


def test_a_session_goes_on_from_a_file(kind: Any, language: Any, work: Path, tmp_path: Path) -> None:
    file = tmp_path / "saved"
    for confine in ("off", "full"):
        config = SessionConfig(work, language=language, confine=confine)
        set_up, show = (
            ("x=1; RLM_CONTENT=a", "echo $x") if language == "bash" else ("x = 1; answer['content'] = 'a'", "print(x)")
        )
        try:
            old = kind(config)
            old.start()
        except StartError:
            continue  # this host does not allow it
        with old:
            old.execute(set_up)
            assert ended(old.save(file)) == ("ok", "kept")
        with kind(config) as new:
            assert ended(new.load(file)) == ("ok", "restored")
            assert new.answer == Answer(False, "a")
            response = new.execute(show)
            assert (response.stdout, response.execution_count) == ("1\n", 2)
            file.write_text("text")
            response = new.load(file)
            assert ended(response) == ("error", "kept") and "is not a saved session" in response.hint
            assert new.execute(show).stdout == "1\n"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("saved")] == ["saved"]


def test_a_session_branches_with_its_tools_and_its_files(kind: Any, language: Any, work: Path, tmp_path: Path) -> None:
    (work / "file").write_text("1")
    set_up, more, show = (
        ("x=1; RLM_CONTENT=a", "x+=2; echo 2 > file; echo $x", "echo $x; cat file; echo; twice a")
        if language == "bash"
        else (
            "x = '1'; answer['content'] = 'a'",
            "x += '2'; open('file', 'w').write('2')",
            "print(x, open('file').read(), twice('a'))",
        )
    )

    def twice(word: str) -> str:
        return 2 * word

    with kind(SessionConfig(work, language=language), tools=[twice]) as session:
        session.execute(set_up)
        copy = tmp_path / "copies" / "one"
        with session.branch(copy) as branch, branch.branch() as shared:
            assert branch.answer == Answer(False, "a") and branch.is_forked == (language == "python")
            session.execute(more)
            assert branch.execute(show).stdout.split() == ["1", "1", "aa"]
            shared.execute(more)
            assert branch.execute(show).stdout.split() == ["1", "2", "aa"]
            assert shared.execute(show).stdout.split() == ["12", "2", "aa"]
        assert session.execute(show).stdout.split() == ["12", "2", "aa"]
        with pytest.raises(BranchError, match="is not empty"):
            session.branch(copy)
        assert session.execute(show).stdout.split() == ["12", "2", "aa"]
    if language == "python":
        with kind(SessionConfig(work, language=language)) as session:
            session.execute("import threading; lock = threading.Lock(); stop = threading.Event()")
            with session.branch() as branch:
                assert branch.execute("type(lock).__name__").result == "'lock'" and branch.branched.hint is None
            session.execute("threading.Thread(target=stop.wait).start()")
            with session.branch() as branch:
                assert "not forked: a thread that a cell started" in branch.branched.hint
                assert "lock" in branch.branched.hint and not branch.is_forked
            session.execute("stop.set()")
        with kind(SessionConfig(work, language=language)) as session:
            session.execute("import os; x = 1; os.register_at_fork(after_in_parent=lambda: os._exit(1))")
            with pytest.raises(BranchError, match="ended with status 1"):
                session.branch()
