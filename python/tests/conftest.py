"""Every test runs against the real programs, and leaves no process, descriptor or directory behind."""

from __future__ import annotations

import asyncio
import gc
import http.server
import inspect
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlm_env import AsyncSession, Response, Session, SessionConfig

NIGHTLY = "RLM_NIGHTLY" in os.environ
"""True for all tests, and for numbers as large as they are promised."""

DAY = int(os.environ.get("RLM_DAY") or time.time() // 86400)
"""Tests with the mark `nightly` take turns: a fifth of them runs each day. `RLM_DAY` repeats another day's choice."""

IN_TURNS = "RLM_IN_TURNS" in os.environ
"""True if all tests take turns, as those in the oldest CPython do."""

TURNS = 5

PATIENCE = 240.0
"""A bound, in seconds, for what has to happen: actors start in a second on an idle machine, in thirty on a busy one."""

LONGEST = 1200.0
"""Seconds after which a test that is a coroutine hangs, and is ended."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    fixtures = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**fixtures), LONGEST))
    return True


def pytest_report_header() -> str:
    which = "all" if IN_TURNS else "the nightly"
    return "all tests run, as each night" if NIGHTLY else f"a fifth of {which} tests runs, that of RLM_DAY={DAY}"


def is_due(item: pytest.Item) -> bool:
    takes_turns = IN_TURNS or item.get_closest_marker("nightly") is not None
    return NIGHTLY or not takes_turns or zlib.crc32(item.nodeid.encode()) % TURNS == DAY % TURNS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # A test that is asked for by its name runs.
    if not any("::" in argument for argument in config.args) and not config.option.keyword:
        config.hook.pytest_deselected(items=[item for item in items if not is_due(item)])
        items[:] = filter(is_due, items)
    # Ray leaves threads behind, which have descriptors: other tests would take them for their own.
    items.sort(key=lambda item: item.path.parent.name == "clusters")


def descriptors() -> dict[str, str]:
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            pass  # that of the listing
    return found


def children() -> list[int]:
    """Child processes of this one, but those that pytest or a plugin had before."""
    found = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                found += [int(pid) for pid in file.read().split()]
        except FileNotFoundError:
            pass
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for temporary files of its own, which must be empty at the end."""
    directory = tmp_path_factory.mktemp("tmp")
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    before, had = descriptors(), children()
    yield directory
    gc.collect()
    assert [pid for pid in children() if pid not in had] == [], "a process is left"
    assert list(directory.iterdir()) == [], "a directory is left"
    left = {fd: at for fd, at in descriptors().items() if fd not in before}
    assert left == {}, "a descriptor is left"


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Waits for a condition for which there is no event."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {what}"
        time.sleep(0.01)


async def until(condition: Callable[[], Any]) -> None:
    """The same in an event loop."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s"
        await asyncio.sleep(0.01)


class Asynchronous:
    """An AsyncSession, driven from synchronous tests: so each of them is one for both kinds."""

    is_branch = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.runner = asyncio.new_event_loop()
        self.session = AsyncSession(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.session, name)
        if not asyncio.iscoroutinefunction(attribute):
            return attribute
        run = asyncio.run if self.runner.is_closed() else self.runner.run_until_complete
        return lambda *arguments, **options: run(attribute(*arguments, **options))

    def start(self) -> Asynchronous:
        try:
            self.runner.run_until_complete(self.session.start())
        except BaseException:
            self.runner.close()
            raise
        return self

    def branch(self, *arguments: Any) -> Asynchronous:
        branch = object.__new__(Asynchronous)
        branch.runner = self.runner
        branch.session = self.runner.run_until_complete(self.session.branch(*arguments))
        branch.is_branch = True
        return branch

    def close(self) -> None:
        if not self.runner.is_closed():
            self.runner.run_until_complete(self.session.close())
            if not self.is_branch:
                self.runner.close()

    def __enter__(self) -> Asynchronous:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.close()


@pytest.fixture(params=["sync", "asyncio"])
def kind(request: pytest.FixtureRequest) -> Any:
    """The class of sessions under test."""
    return Session if request.param == "sync" else Asynchronous


@pytest.fixture(params=["bash", "python"])
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The session's directory."""
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def session(kind: Any, language: Any, work: Path) -> Iterator[Any]:
    """A session of either kind in either language."""
    with kind(SessionConfig(work, language=language)) as started:
        yield started


@pytest.fixture
def bash(kind: Any, work: Path) -> Iterator[Any]:
    """A bash session of either kind."""
    with kind(SessionConfig(work)) as started:
        yield started


@pytest.fixture
def say(language: str) -> Callable[[str], str]:
    """Code that prints a word."""
    return lambda word: f"echo {word}" if language == "bash" else f"print({word!r})"


@pytest.fixture
def hang(language: str) -> str:
    """Code that says that it has begun, and never ends."""
    return (
        "echo begun; sleep 1000" if language == "bash" else "print('begun', flush=True)\nimport time; time.sleep(1000)"
    )


def ended(response: Response) -> tuple[str, str]:
    return response.outcome, response.state


@contextmanager
def json_server(reply: Callable[[str, Any, Any], tuple[int, Any]]) -> Iterator[str]:
    """A server on loopback: `reply(path, headers, body)` gives the status and a JSON document, or a text of events."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, document = reply(self.path, self.headers, body)
            is_events = isinstance(document, str)
            text = (document if is_events else json.dumps(document)).encode()
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if is_events else "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
