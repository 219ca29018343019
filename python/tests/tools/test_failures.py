"""Calls of tools that raise, hang or are interrupted: the session goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rlm_env import Session, StartError, tool
from tools.calls import call_tool, echo, late


def test_what_a_tool_raises_is_an_error_with_its_type(start: Any) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fails(how: str) -> None:
        raise {"value": ValueError("no\nmore"), "exit": SystemExit(3), "stop": StopIteration(), "odd": Odd()}[how]

    async def fails_async() -> None:
        raise KeyError("key")

    async def cancels() -> None:
        raise asyncio.CancelledError

    usage = "fails(): missing a required argument: 'how'; it is fails(how: 'str') -> 'None'"
    with start(fails, fails_async, cancels) as session:
        for called, error in (
            (["fails", "value"], "ValueError: no\nmore"),
            (["fails", "exit"], "SystemExit: 3"),
            (["fails", "stop"], "StopIteration"),
            (["fails", "odd"], "Odd: <its message cannot be shown>"),
            (["fails_async"], "KeyError: 'key'"),
            (["cancels"], "CancelledError: the tool cancelled its call"),
            (["fails"], f"TypeError: {usage}"),
        ):
            assert call_tool(session, *called) == f"{error}\n"


def test_what_tells_of_a_failure_may_fail(start: Any) -> None:
    class Connection:
        is_open = True

        def __repr__(self) -> str:
            if not self.is_open:
                raise ValueError("closed")
            return "<connection>"

    class Odd(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    connection = Connection()

    def query(text: str, over: Any = connection) -> None:
        pass

    def odd() -> None:
        raise Odd

    async def odd_async() -> None:
        raise Odd

    with start(query, odd, odd_async) as session:
        connection.is_open = False
        words = "too many positional arguments; it is query(text: 'str', over: 'Any' = <connection>)"
        assert call_tool(session, "query", "1", "2", "3").startswith(f"TypeError: query(): {words}")
        for name in ("odd", "odd_async"):
            assert call_tool(session, name) == "Odd: <its message cannot be shown>\n"


def test_a_task_that_exits_ends_its_call_alone(work: Path) -> None:
    async def exits() -> None:
        async def task() -> None:
            raise SystemExit(3)

        await asyncio.gather(task())

    with Session(work, tools=[exits, late]) as session:
        assert "SystemExit: 3" in session.execute("exits", timeout=30).stdout
        assert session.execute("late on").stdout == "on\n"


def test_a_tool_cannot_call_back_into_its_session(kind: Any, work: Path) -> None:
    if kind is Session:

        def back() -> str:
            return session.execute(":").stdout
    else:

        async def back() -> str:  # type: ignore[misc]
            return (await session.session.execute(":")).stdout

    with kind(work, tools=[back]) as session:
        assert "UsageError: another call of this session is running" in session.execute("back").stdout
        assert session.execute("echo on").stdout == "on\n"


def test_an_interrupted_call_cancels_its_tool(start: Any, language: str) -> None:
    events: list[str] = []

    async def slow() -> None:
        events.append("begun")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    with start(slow) as session:
        response = session.execute("slow" + "()" * (language == "python"), timeout=0.3)
        assert response.outcome == "timed_out" and response.state == "kept"
        deadline = time.monotonic() + 30
        while events != ["begun", "cancelled"] and time.monotonic() < deadline:
            session.execute("1" if language == "python" else ":")
        assert events == ["begun", "cancelled"]


def test_a_tool_that_blocks_is_left_behind(start: Any, language: str) -> None:
    release = threading.Event()

    def block() -> str:
        release.wait(60)
        return "late"

    with start(block, late) as session:
        response = session.execute("block" + "()" * (language == "python"), timeout=0.3)
        assert response.outcome == "timed_out"
        assert call_tool(session, "late", "on") == "on\n"
    release.set()


def test_time_limits_of_tools(start: Any) -> None:
    @tool(timeout=0.2)
    async def slow() -> None:
        await asyncio.sleep(1000)

    @tool(timeout=0.2, name="blocked")
    def block() -> None:
        release.wait(60)

    @tool(timeout=60)
    async def raises() -> None:
        raise TimeoutError("mine")

    release = threading.Event()
    with start(slow, block, raises) as session:
        for name in "slow", "blocked":
            words = f"TimeoutError: the tool {name} took longer than its limit of 0.2 s\n"
            assert call_tool(session, name) == words
        assert call_tool(session, "raises") == "TimeoutError: mine\n"
    release.set()


def test_without_a_thread_a_call_fails_and_a_session_does_not_start(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Session(work, tools=[echo, late]) as session:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            assert "RuntimeError: can't start new thread" in session.execute("echo 1").stdout
            with pytest.raises(StartError, match="cannot start a thread for the session's tools: can't start new"):
                Session(work, tools=[echo]).start()
        assert session.execute("echo 1; late on").stdout == "1\non\n"
