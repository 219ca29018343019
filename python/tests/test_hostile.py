"""The ugly cases: workers that die or lie, hosts that are killed or forked, directories that are removed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import ended, wait_until
from rlm_env import AsyncSession, EndedError, ProtocolError, Session, SessionConfig, UsageError


@pytest.fixture
def fake(kind: Any, work: Path, tmp_path: Path) -> Any:
    """A session with the worker that has a fault."""
    program = tmp_path / "worker"
    script = Path(__file__).with_name("fake_worker.py")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {script} "$@"\n')
    program.chmod(0o755)

    def make(fault: str, **options: Any) -> Any:
        return kind(SessionConfig(work, worker=program, env={"FAULT": fault}, **options))

    return make


def test_a_worker_that_dies_in_the_middle_of_a_response(fake: Any) -> None:
    with fake("half") as session:
        with pytest.raises(EndedError, match="SIGKILL"):
            session.execute(":")


def test_a_mute_worker_is_replaced(fake: Any) -> None:
    with fake("mute", margin=0.1) as session:
        before = session.pid
        response = session.execute(":", timeout=0.1)
        assert ended(response) == ("timed_out", "reset") and session.pid != before
        assert response.hint == "the worker did not answer within 0.2 s and was replaced: the session's state is lost"


def test_a_late_response_is_dropped(fake: Any) -> None:
    with fake("late") as session:
        assert session.execute(":").stdout == "" and session.execute(":").seq == 2


def test_a_response_in_pieces(fake: Any) -> None:
    with fake("pieces") as session:
        assert session.execute(":").outcome == "ok"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not JSON", "a response is not JSON"),
        ("[" * 100_000, "a response is not JSON"),
        ("[1]", "a response must be an object"),
        ("{}", "a response has no field `status`: expected one of ok, error"),
        ('{"status": 1}', "`status` of a response must be one of ok, error, not 1"),
        ("\x80", "a response is not JSON"),
    ],
)
def test_something_other_than_a_response(fake: Any, text: str, words: str) -> None:
    with fake(text) as session:
        with pytest.raises(ProtocolError, match=words):
            session.execute(":")


def test_the_control_directory_is_removed(kind: Any, work: Path, tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.mkdir()
    with kind(SessionConfig(work, control_dir=control)) as session:
        shutil.rmtree(control, ignore_errors=True)  # the worker, which sees it go, removes a file, too
        with pytest.raises(EndedError, match="exit status 3"):
            session.execute("sleep 1")
        session.restart()
        assert session.execute("echo again").stdout == "again\n"


def test_a_session_that_fills_and_closes_its_directories(kind: Any, work: Path) -> None:
    with kind(work) as session:
        control = session.control_dir
        session.execute(f"mkdir -p {control}/a/b; touch {control}/a/b/c; chmod 0 {control}/a/b {control}/a")


def test_a_session_does_not_pickle_and_its_configuration_does(session: Any) -> None:
    session = getattr(session, "session", session)
    with pytest.raises(TypeError, match=r"cannot be pickled.*pickle session.config"):
        pickle.dumps(session)
    assert pickle.loads(pickle.dumps(session.config)) == session.config


def test_a_fork_cannot_use_or_end_the_session(bash: Any) -> None:
    session = getattr(bash, "session", bash)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            if isinstance(session, Session):
                session.execute("echo child")
            else:
                next(session._core.execute("echo child", None, None, None))
        except UsageError as error:
            said = str(error)
        session._finalizer()
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        assert f"belongs to process {os.getpid()}, of which this one is a fork" in pipe.read()
    assert bash.execute("echo parent").stdout == "parent\n"


def in_child(config: SessionConfig) -> str:
    with Session(config) as session:
        return session.execute("echo child").stdout


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_processes_have_sessions_of_their_own(bash: Any, work: Path) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(in_child, [SessionConfig(work)] * 4) == ["child\n"] * 4
        pool.close()
        pool.join()
    assert bash.execute("echo parent").stdout == "parent\n"


def test_a_configuration_goes_to_another_process(work: Path) -> None:
    program = (
        "import pickle, sys; from rlm_env import *; print(Session(pickle.load(sys.stdin.buffer)).start().info().cwd)"
    )
    config = pickle.dumps(SessionConfig(work))
    printed = subprocess.run([sys.executable, "-c", program], input=config, capture_output=True, check=True)
    assert printed.stdout.decode().strip() == str(work)


HOST = """
import sys, time
from rlm_env import Session, SessionConfig
session = Session(SessionConfig(sys.argv[1], language=sys.argv[2])).start()
session.execute(sys.argv[3])
print(session.pid, session.control_dir, flush=True)
{end}
"""


def host(work: Path, language: str, code: str, end: str) -> tuple[subprocess.Popen[str], int, Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOST.format(end=end), str(work), language, code], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pid, control = process.stdout.readline().split()
    return process, int(pid), Path(control)


def test_a_killed_host_leaves_nothing(work: Path, language: str) -> None:
    code = "sleep 1000 & :" if language == "bash" else "import subprocess; p = subprocess.Popen(['sleep', '1000'])"
    process, pid, control = host(work, language, code, "time.sleep(1000)")
    process.kill()
    process.communicate()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the worker")
    assert control.exists()
    with Session(work):
        assert not control.parent.exists(), "the next host has removed the directory of the killed one"


def test_a_program_that_just_ends_leaves_nothing(work: Path, language: str) -> None:
    for end in ("", "raise SystemExit(3)", "session.close()"):
        process, pid, control = host(work, language, "1", end)
        process.communicate()
        assert not os.path.exists(f"/proc/{pid}") and not control.exists()


@contextmanager
def handled(number: signal.Signals, handler: Any) -> Iterator[None]:
    """Has a handler of a signal."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_ctrl_c_interrupts_the_call_and_the_next_one_is_clean(work: Path, language: Any, hang: str, say: Any) -> None:
    main = threading.main_thread().ident
    assert main is not None
    # A shell that starts this in the background has it ignored.
    with (
        handled(signal.SIGINT, signal.default_int_handler),
        Session(SessionConfig(work, language=language)) as session,
    ):
        for _ in range(5):
            timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                session.execute(hang)
            timer.join()
            response = session.execute(say("next"))
            assert response.stdout.split() == ["next"] and ended(response) == ("ok", "kept")


def test_a_call_of_another_thread_is_refused_and_closing_ends_it(work: Path) -> None:
    with ThreadPoolExecutor(1) as thread, Session(work) as session:
        running = thread.submit(session.execute, "echo begun > begun; sleep 1000")
        wait_until((work / "begun").exists, "the call")
        with pytest.raises(UsageError, match="another call of this session is running"):
            session.execute(":")
        session.close()
        with pytest.raises(EndedError, match="^the session was closed while the call was running$"):
            running.result()


@pytest.mark.filterwarnings("always::ResourceWarning")
def test_a_forgotten_session_is_ended_and_says_so(work: Path) -> None:
    session = Session(work).start()
    pid = session.pid
    with pytest.warns(ResourceWarning, match="a Session was not closed"):
        del session
    assert not os.path.exists(f"/proc/{pid}")


async def test_a_synchronous_session_works_where_a_loop_runs(work: Path) -> None:
    with Session(work) as session:
        assert session.execute("echo hi").stdout == "hi\n"


def test_directories_of_other_programs_are_left_alone(work: Path, nothing_is_left: Path) -> None:
    directory = nothing_is_left
    (directory / "rlm-host-file").write_text("x")
    (directory / "rlm-host-notes").mkdir()
    (directory / "rlm-host-notes/mine").write_text("x")
    (directory / "rlm-host-link").symlink_to("rlm-host-notes")
    (directory / "rlm-host-odd/rlm@lock").mkdir(parents=True)
    (directory / "rlm-host-empty").mkdir()
    with Session(work):
        pass
    assert tempfile.gettempdir() == str(directory)
    left = sorted(path.name for path in directory.iterdir())
    assert left == ["rlm-host-file", "rlm-host-link", "rlm-host-notes", "rlm-host-odd"]
    assert (directory / "rlm-host-notes/mine").exists()
    for name in left:
        path = directory / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def test_many_threads_have_sessions_at_once(work: Path) -> None:
    def run(number: int) -> None:
        with Session(work) as session:
            for _ in range(20):
                assert session.execute(f"echo {number}").stdout == f"{number}\n"

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(run, range(16)))


def test_it_works_with_no_descriptor_left(work: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Session(work) as session:
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
        try:
            assert session.execute("echo hi").stdout == "hi\n"
            with pytest.raises(Exception, match="Too many open files"):
                Session(work).start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_asyncio_sessions_close_with_their_loop(work: Path) -> None:
    """A program that ends its loop while a call is being interrupted."""

    async def main() -> AsyncSession:
        session = await AsyncSession(work).start()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.execute("sleep 1000"), 0.05)
        return session

    session = asyncio.run(main())
    asyncio.run(session.close())


def test_a_signal_handler_that_raises_ends_the_call(work: Path) -> None:
    def late(*_arguments: object) -> None:
        raise TimeoutError("mine")

    with handled(signal.SIGALRM, late), Session(work) as session:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(TimeoutError, match="mine") as kept:
            session.execute("sleep 1; echo ran > ran")
        assert session.execute("echo next").stdout == "next\n" and kept
        assert session.execute("sleep 1; ls").stdout == ""


@pytest.mark.parametrize("tools", [[], [len]], ids=["no tools", "tools"])
def test_a_signal_handler_can_close_the_session(work: Path, tools: Any) -> None:
    session = Session(work, tools=tools).start()
    with handled(signal.SIGALRM, lambda *_: session.close()):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(EndedError, match="the session was closed"):
            session.execute("sleep 1000")
        with pytest.raises(UsageError, match="is closed"):
            session.execute(":")


def test_an_interrupt_before_the_request_is_sent_costs_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(work) as session:
        session.execute("x=1")

        def interrupted(_document: bytes) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(session._core.link, "send", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.execute("x=2")
        assert session.execute("echo $x").stdout == "1\n"


@pytest.mark.parametrize("tools", [[], [len]], ids=["no tools", "tools"])
def test_a_fork_that_closes_the_session_leaves_it_alone(work: Path, tools: Any) -> None:
    with Session(work, tools=tools) as session:
        child = os.fork()
        if child == 0:
            try:
                session.close()
                session.__exit__()
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert session.execute("len three" if tools else "echo 5").stdout == "5\n"


def test_threads_that_start_or_restart_one_session(work: Path) -> None:
    session = Session(work, tools=[len])

    def together(*calls: Any) -> list[Any]:
        with ThreadPoolExecutor(len(calls)) as threads:
            outcomes = [threads.submit(call) for call in calls]
        return [outcome.exception() or outcome.result() for outcome in outcomes]

    assert together(session.start, session.start) == [session, session]
    together(session.restart, session.restart)
    assert session.execute("echo on").stdout == "on\n"

    def restart_soon() -> None:
        wait_until((work / "begun").exists, "the call")
        session.restart()

    begun, restarted = together(lambda: session.execute("echo >begun; sleep 1000"), restart_soon)
    assert isinstance(begun, EndedError) and restarted is None
    assert session.execute("echo on").stdout == "on\n"
    together(session.close, session.close)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_sessions_with_tools_leave_no_threads(work: Path) -> None:
    def wait_for_threads(name: str) -> int:
        deadline = time.monotonic() + 30
        while (count := sum(thread.name == name for thread in threading.enumerate())) and time.monotonic() < deadline:
            time.sleep(0.01)
        return count

    for end in (lambda session: session.close(), lambda session: None):
        for _ in range(3):
            session = Session(work, tools=[len]).start()
            assert session.execute("len three & len three & wait").stdout.split().count("5") == 2
            end(session)
            del session
        assert wait_for_threads("rlm-tool") == wait_for_threads("rlm-tools") == 0


def test_few_descriptors_are_a_start_error_and_leave_nothing(work: Path, tmp_path: Path) -> None:
    program = f"""
import asyncio, os, resource
from rlm_env import AsyncSession, Session, StartError

def double(number: int) -> int:
    return 2 * number

async def start(tools):
    async with AsyncSession({str(work)!r}, tools=tools):
        pass

def starts(limit, kind, tools):
    loop = asyncio.new_event_loop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 4096))
    try:
        if kind is Session:
            Session({str(work)!r}, tools=tools).start()
        else:
            loop.run_until_complete(start(tools))
    except StartError:
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
        loop.close()

for kind in (Session, AsyncSession):
    for tools in ([], [double]):
        for spare in range(12):
            starts(len(os.listdir("/proc/self/fd")) + 3 + spare, kind, tools)
Session({str(work)!r}).start().close()
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=100)
    assert list(tmp_path.iterdir()) == [work]
