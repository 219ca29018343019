"""Calls of tools: their arguments and results, one after another and many at once."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import os
import threading
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import pytest

from conftest import NIGHTLY, PATIENCE
from rlm_env import AsyncSession, Session, SessionConfig, _server
from tools.calls import call, call_tool, echo, late, search


def test_functions_are_called_by_name(start: Any, language: str) -> None:
    with start(search, late, echo) as session:
        if language == "python":
            assert call(session, "search('red', limit=2)") == "['red 0', 'red 1']\n"
            assert call(session, "late(('a', {1: {2, 3}}, b'x', None, 1.5))") == "('a', {1: {2, 3}}, b'x', None, 1.5)\n"
            assert call(session, "echo(bytearray(b'x'), frozenset({1}), 2**100, k='ü\\ud800')[:3]") == (
                "[bytearray(b'x'), frozenset({1}), 1267650600228229401496703205376]\n"
            )
        else:
            assert call(session, "search red 2") == '["red 0", "red 1"]\n'
            assert call(session, "late --str 5") == "5\n"
            assert call(session, """printf '{"value": [1, {"a": null}]}' | late""") == '[1, {"a": null}]\n'


def test_results_of_subclasses_huge_and_shared_ones_arrive(kind: Any, work: Path) -> None:
    class Rows(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise ValueError("lazy")

    class Colour(str, enum.Enum):
        RED = "red"

    class Size(enum.IntEnum):
        LARGE = 3

    def give(what: str) -> Any:
        shared: Any = []
        for _ in range(60):
            shared = [shared, shared]
        return {
            "rows": Rows(a=1),
            "enum": [Colour.RED, Size.LARGE, True],
            "huge": {10**5000: 1},
            "shared": shared,
        }[what]

    with kind(SessionConfig(work, language="python"), tools=[give]) as session:
        assert session.execute("give('rows')").result == "{'a': 1}"
        assert session.execute("give('enum')").result == "['red', 3, True]"
        assert session.execute("len(give('huge'))").result == "1"
        assert session.execute("d = give('shared'); d[0] is d[1]").result == "True"


def test_what_cannot_be_sent_is_named(start: Any, language: str) -> None:
    Point = namedtuple("Point", "x y")

    def give(what: str) -> Any:
        loop: list[Any] = []
        loop.append(loop)
        return {
            "object": {"rows": [1, object()]},
            "loop": loop,
            "point": [Point(1, 2), OrderedDict(a=True)],
            "function": give,
        }[what]

    with start(give) as session:
        assert call_tool(session, "give", "object").startswith(
            "TypeError: the tool give returned something else: the result['rows'][1] is a builtins.object, which a"
        )
        assert "is nested deeper than 200 levels, or contains itself" in call_tool(session, "give", "loop")
        assert "is a builtins.function" in call_tool(session, "give", "function")
        expected = "[(1, 2), {'a': True}]\n" if language == "python" else '[[1, 2], {"a": true}]\n'
        assert call_tool(session, "give", "point") == expected


def test_large_arguments_and_results(start: Any, language: str) -> None:
    with start(late) as session:
        size = 8 << 20
        code = (
            f"print(len(late('x' * {size})))"
            if language == "python"
            else f"head -c {size} /dev/zero | tr '\\0' x >file; late @file | wc -c"
        )
        expected = size if language == "python" else size + 1
        assert session.execute(code).stdout == f"{expected}\n"


def test_64_calls_at_once(kind: Any, work: Path) -> None:
    barrier = threading.Barrier(64)

    def meet(number: int) -> int:
        barrier.wait(30)
        return number

    with kind(SessionConfig(work, language="python"), tools=[meet]) as session:
        code = "from concurrent.futures import ThreadPoolExecutor\nsorted(ThreadPoolExecutor(64).map(meet, range(64)))"
        assert session.execute(code).result == str(list(range(64)))
    with kind(work, tools=[meet]) as session:
        printed = session.execute("for i in {0..63}; do meet $i & done >numbers 2>&1; wait; sort -n numbers").stdout
        assert [line for line in printed.splitlines() if line.isdecimal()] == [str(number) for number in range(64)]


def test_10_000_calls(start: Any, language: str) -> None:
    calls = 10_000 if NIGHTLY else 1_000
    with start(late) as session:
        if language == "python":
            assert session.execute(f"sum(late(n) for n in range({calls}))").result == str(sum(range(calls)))
        else:
            calls //= 10
            code = f"n=0; for i in {{1..{calls}}}; do ((n += $(late $i))); done; printf $n"
            assert session.execute(code).stdout == str(sum(range(calls + 1)))


CALLER = contextvars.ContextVar("CALLER", default="nobody")


def who() -> str:
    return CALLER.get()


async def who_async() -> str:
    return CALLER.get()


def test_context_variables_are_those_of_the_caller(kind: Any, work: Path) -> None:
    with kind(SessionConfig(work, language="python"), tools=[who, who_async]) as session:
        for name in "Ada", "Grace":
            token = CALLER.set(name)
            assert session.execute("who(), who_async()").result == f"('{name}', '{name}')"
            CALLER.reset(token)


async def test_tools_of_an_async_session_run_on_its_loop(work: Path) -> None:
    loop = asyncio.get_running_loop()

    async def here() -> bool:
        return asyncio.get_running_loop() is loop

    def elsewhere() -> bool:
        return threading.current_thread() is not threading.main_thread()

    config = SessionConfig(work, language="python")
    async with AsyncSession(config, tools=[here, elsewhere]) as session:
        assert (await session.execute("here(), elsewhere()")).result == "(True, True)"


def test_a_plain_function_may_return_something_to_await(start: Any, language: str) -> None:
    def later(value: int) -> Any:
        return late(value)

    def fails() -> Any:
        async def fail() -> None:
            raise KeyError("later")

        return fail()

    def who_later() -> Any:
        return who_async()

    with start(later, fails, who_later) as session:
        assert call(session, "later(5)" if language == "python" else "later 5") == "5\n"
        assert call_tool(session, "fails") == "KeyError: 'later'\n"
        token = CALLER.set("me")
        try:
            assert call_tool(session, "who_later") == "me\n"
        finally:
            CALLER.reset(token)


def test_what_a_plain_function_returns_is_not_awaited_after_the_call(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended, go, has_returned, awaited = (threading.Event() for _ in range(5))
    end = _server._Connection.connection_lost

    def connection_lost(connection: Any, error: Exception | None) -> None:
        end(connection, error)
        if begun.is_set():
            ended.set()

    monkeypatch.setattr(_server._Connection, "connection_lost", connection_lost)

    class Later:
        def __await__(self) -> Any:
            awaited.set()
            yield from ()

    def slow() -> Any:
        begun.set()
        try:
            go.wait(PATIENCE)
            return Later()
        finally:
            has_returned.set()

    with Session(work, tools=[slow, late]) as session:
        assert session.execute("slow", timeout=1).outcome == "timed_out"
        # The session says so before the host has heard of it.
        assert ended.wait(PATIENCE)
        go.set()
        assert has_returned.wait(PATIENCE)
        # The next call goes through the same loop.
        assert session.execute("late on").stdout == "on\n"
        assert not awaited.is_set()


def test_tools_survive_reset_and_restart(start: Any) -> None:
    with start(echo, late) as session:
        session.reset()
        assert call_tool(session, "late", "on") == "on\n"
        session.restart()
        assert call_tool(session, "late", "on") == "on\n"


def test_a_socket_name_that_would_be_too_long(kind: Any, work: Path, tmp_path: Path) -> None:
    control = tmp_path / ("long" * 40)
    control.mkdir()
    with kind(SessionConfig(work, control_dir=control), tools=[late]) as session:
        assert session.execute("late on").stdout == "on\n"


def test_a_plain_function_that_forks_has_the_reply_of_the_parent(work: Path) -> None:
    children = []

    def forks() -> str:
        if child := os.fork():
            children.append(child)
            return "parent"
        return "child"

    with Session(work, tools=[forks]) as session:
        assert session.execute("forks").stdout == "parent\n"
        assert os.waitpid(children[0], 0)[1] == 0
