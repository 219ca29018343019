"""Tools beside the session, and with the driver."""

from __future__ import annotations

import asyncio
import collections
import functools
import os
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from clusters.models import running
from clusters.readers import close_while_read
from conftest import until
from rlm_env import EndedError, UsageError, tool
from rlm_env.ray import SessionActor, _functions, run_batch


class Leaving:
    """Ends the program that pickles it."""

    def __reduce__(self) -> Any:
        raise SystemExit("no")


def test_tools_run_beside_the_session_or_with_the_driver() -> None:
    calls = []

    def here(word: str) -> str:
        """Runs with the driver."""
        calls.append(word)
        return f"{word} of {os.getpid()}"

    @tool(timeout=1)
    def hangs() -> None:
        """Never returns in time."""
        time.sleep(5)

    def fails() -> None:
        """Raises."""
        raise ValueError("no")

    held = threading.Lock()

    def lock(value: Any = held, kept: Any = collections.defaultdict(lambda: held)) -> Any:
        """Returns what no other process can have."""
        return value

    async def later(word: str) -> str:
        """Runs on the driver's event loop."""
        return f"later {word}"

    @functools.wraps(later)
    def wrapped(word: str) -> Any:
        return later(word)

    def leaves() -> Any:
        """Returns what ends the program that pickles it."""
        return Leaving()

    def beside() -> str:
        """Runs beside the session."""
        return "elsewhere" if os.getppid() != driver else "here"

    driver = os.getpid()
    code = (
        'RLM_CONTENT="$(here x), $(beside), $(later y), $(here 2>&1), $(fails 2>&1), $(hangs 2>&1), $(leaves 2>&1), '
        '$(lock 2>&1)"; RLM_READY=1'
    )
    with_driver = [here, wrapped, hangs, fails, leaves, lock]
    [result] = run_batch("?", model=running(code), tools=[beside], driver_tools=with_driver)
    limit = "Error: TimeoutError: the tool hangs took longer than its limit of 1 s"
    left = "Error: SystemExit: the tool leaves returned a value that cannot be pickled: no"
    failed = f"Error: ValueError: no, {limit}, {left}, Error: TypeError: the tool lock returned a"
    usage = "Error: TypeError: here(): missing a required argument: 'word'; it is here(word: 'str') -> 'str'"
    start = f"x of {os.getpid()}, elsewhere, later y, {usage}, {failed}"
    assert result.answer is not None
    assert result.answer.startswith(f"{start} value that cannot be pickled: "), result.answer
    assert calls == ["x"]


@pytest.mark.nightly
def test_a_tool_that_a_busy_driver_does_not_answer_fails_in_time() -> None:
    async def block() -> None:
        """Holds the driver's event loop."""
        time.sleep(6)

    @tool(timeout=1)
    async def quick() -> str:
        """Is quick, where it gets its turn."""
        return "quick"

    code = 'block & sleep 0.5; RLM_CONTENT="$(quick 2>&1)"; wait; RLM_CONTENT="$RLM_CONTENT, $(quick)" RLM_READY=1'

    async def use() -> list[Any]:
        return [result async for result in run_batch("?", model=running(code), driver_tools=[block, quick])]

    [result] = asyncio.run(use())
    assert result.answer == "Error: TimeoutError: the tool quick took longer than its limit of 1 s, quick"


@pytest.mark.nightly
async def test_a_tool_that_does_not_end_keeps_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def stubborn() -> None:
        """Does not end."""
        begun.set()
        while not ended.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    monkeypatch.setattr(_functions, "_CLOSE_LIMIT", 0.5)
    batch = run_batch("?", model=running("stubborn"), driver_tools=[stubborn])
    close_while_read(batch, begun.is_set, "the tool")
    begun.clear()
    async with SessionActor(driver_tools=[stubborn], num_cpus=0.01) as session:
        call = asyncio.ensure_future(session.execute("stubborn"))
        await until(begun.is_set)
    with pytest.raises((EndedError, UsageError)):
        await call
    ended.set()


def test_a_thread_that_a_tool_waits_for_keeps_no_batch_open() -> None:
    ended = threading.Event()

    async def in_a_thread() -> None:
        """Waits for a thread."""
        await asyncio.to_thread(ended.wait)

    code = "in_a_thread 2> /dev/null; RLM_CONTENT=late RLM_READY=1"
    given_up = threading.Timer(60, ended.set)
    given_up.start()
    try:
        [result] = run_batch("?", model=running(code), driver_tools=[tool(timeout=1.0)(in_a_thread)])
        assert (result.answer, ended.is_set()) == ("late", False)
    finally:
        ended.set()
        given_up.cancel()
