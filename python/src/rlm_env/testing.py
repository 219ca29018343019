"""The promises of a session as cases, for whatever gives sessions to others: an adapter, a wrapper, a tool.

    from rlm_env.testing import Adapter, cases

    @asynccontextmanager
    async def open(language, tools, timeout):
        async with MySession(language, tools, timeout) as session:
            yield session.run  # async, from code to all that its caller is told, as one text

    for name, case in cases(Adapter("mine", open)):
        asyncio.run(case())

A case raises AssertionError where a promise is not kept. docs/conformance.md lists them.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from ._documents import Language

Call = Callable[[str], Awaitable[str]]
"""Runs code. The text is everything that its caller is told: output, value, error, hint."""
Open = Callable[[Language, list[Callable[..., Any]], float], AbstractAsyncContextManager[Call]]
"""Opens a session in a language, with functions that code can call, and with a time limit of its calls in seconds."""

MOST_CHARACTERS = 40 << 20
"""The text of a call is shorter, whatever its output."""

LIMIT = 1.0
"""Seconds in which a cancelled call must have ended, with what it started."""

_PATIENCE = 60.0


@dataclass(frozen=True)
class Adapter:
    """The subject of the cases.

    With `ends_with_interpreter`, a call whose interpreter dies may end the session: further calls fail. `leaves_out`
    has names of cases that the adapter cannot keep.
    """

    name: str
    open: Open
    languages: tuple[Language, ...] = ("bash", "python")
    ends_with_interpreter: bool = False
    leaves_out: Set[str] = frozenset()


def cases(adapter: Adapter) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """The cases by name, in each language of the adapter."""
    for case in _CASES:
        for language in adapter.languages:
            if case.__name__ not in adapter.leaves_out:
                yield f"{case.__name__}-{language}", _bound(case, adapter, language)


def _bound(case: Any, adapter: Adapter, language: Language) -> Callable[[], Awaitable[None]]:
    return lambda: case(adapter, language, _CODE[language])


_CODE: dict[Language, dict[str, str]] = {
    "bash": {
        "set": "kept=41; plus() { echo result $((kept + $1)); }; cd /",
        "get": "plus 1; pwd",
        "other": "echo value ${kept-absent}",
        "slow": "kept=42; echo begun; sleep 1000",
        "hang": "kept=42; begun now; sleep {mark}",
        "again": "echo kept $kept",
        "flood": "kept=43; yes 'a line of thirty characters...' | head -c 60000000",
        "die": "kill -9 $$",
        "tool": "lookup one; lookup none; echo status $?",
        "orphan": "setsid nohup sleep {mark} >/dev/null 2>&1 & (sleep {mark} &) ; echo started",
    },
    "python": {
        "set": "kept = 41\ndef plus(n): print('result', kept + n)\nimport os; os.chdir('/')",
        "get": "plus(1); print(os.getcwd())",
        "other": "print('value', globals().get('kept', 'absent'))",
        "slow": "import time\nkept = 42\nprint('begun', flush=True)\ntime.sleep(1000)",
        "hang": (
            "import subprocess\nkept = 42\nprocess = subprocess.Popen(['sleep', '{mark}'])\n"
            "try:\n    begun('now')\n    process.wait()\nfinally:\n    process.kill()"
        ),
        "again": "print('kept', kept)",
        "flood": "kept = 43\nprint('a line of thirty characters...\\n' * 2_000_000)",
        "die": "import os; os.kill(os.getpid(), 9)",
        "tool": (
            "print(lookup('one'))\ntry:\n    lookup('none')\nexcept Exception as error:\n    print(error, 'status 1')"
        ),
        "orphan": (
            "import subprocess\nfor _ in range(2): subprocess.Popen(['sleep', '{mark}'], start_new_session=True)\n"
            "print('started')"
        ),
    },
}


async def state_persists(adapter: Adapter, language: Language, code: dict[str, str]) -> None:
    async with adapter.open(language, [], 30.0) as call:
        await call(code["set"])
        said = await call(code["get"])
        assert "result 42" in said and "/" in said.splitlines(), said


async def time_limit_keeps_state(adapter: Adapter, language: Language, code: dict[str, str]) -> None:
    async with adapter.open(language, [], 0.5) as call:
        began = time.monotonic()
        said = await call(code["slow"])
        assert time.monotonic() - began < 10, "the limit was 0.5 s"
        assert "begun" in said and "time limit" in said, said
        said = await call(code["again"])
        assert "kept 42" in said, said


async def output_is_bounded(adapter: Adapter, language: Language, code: dict[str, str]) -> None:
    async with adapter.open(language, [], 60.0) as call:
        said = await call(code["flood"])
        assert 0 < len(said) < MOST_CHARACTERS, len(said)
        said = await call(code["again"])
        assert "kept 43" in said, said


async def death_is_told(adapter: Adapter, language: Language, code: dict[str, str]) -> None:
    async with adapter.open(language, [], 30.0) as call:
        await call(code["set"])
        said = await call(code["die"])
        assert "137" in said or "SIGKILL" in said, said
        try:
            said = await call(code["other"])
        except Exception:
            assert adapter.ends_with_interpreter, "the next call failed"
        else:
            assert "value" in said, said


async def sessions_are_separate(adapter: Adapter, language: Language, code: dict[str, str]) -> None:
    async with adapter.open(language, [], 30.0) as one, adapter.open(language, [], 30.0) as other:
        await asyncio.gather(one(code["set"]), other(code["other"]))
        said = await other(code["other"])
        assert "value absent" in said, said
        said = await one(code["get"])
        assert "result 42" in said, said


async def cancellation_ends_a_call(adapter: Adapter, language: Language, code: dict[str, str]) -> None:
    mark = _mark()
    words: list[str] = []

    def begun(word: str) -> str:
        """Says that the call has begun."""
        words.append(word)
        return word

    async with adapter.open(language, [begun], 300.0) as call:
        running = asyncio.ensure_future(call(code["hang"].replace("{mark}", mark)))
        await _until(lambda: running.done() or (words and _processes(mark)), "the call to begin")
        assert not running.done(), running.result()
        running.cancel()
        began = time.monotonic()
        await asyncio.wait([running])
        await _until(lambda: not _processes(mark), "its processes to end")
        assert time.monotonic() - began < LIMIT, f"it took {time.monotonic() - began:.1f} s"
        assert running.cancelled(), running
        said = await call(code["again"])
        assert "kept 42" in said, said


async def errors_of_tools_reach_the_code(adapter: Adapter, language: Language, code: dict[str, str]) -> None:
    def lookup(word: str) -> str:
        """Looks a word up."""
        if word == "none":
            raise ValueError("there is no such word")
        return word.upper()

    async with adapter.open(language, [lookup], 30.0) as call:
        said = await call(code["tool"])
        assert "ONE" in said and "there is no such word" in said and "status 1" in said, said


async def nothing_is_left(adapter: Adapter, language: Language, code: dict[str, str]) -> None:
    mark = _mark()
    async with adapter.open(language, [], 30.0) as call:
        said = await call(code["orphan"].replace("{mark}", mark))
        assert "started" in said, said
        await _until(lambda: len(_processes(mark)) == 2, "both processes to begin")
    assert _processes(mark) == [], "processes of the session still run"


_CASES = (
    state_persists,
    time_limit_keeps_state,
    output_is_bounded,
    death_is_told,
    sessions_are_separate,
    cancellation_ends_a_call,
    errors_of_tools_reach_the_code,
    nothing_is_left,
)


def _mark() -> str:
    """A number of seconds to sleep, by which the processes of a case are found."""
    return f"{1000 + uuid.uuid4().int % 10**9}.5"


def _processes(mark: str) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[0] == b"sleep" and mark.encode() in words:
            found.append(int(pid))
    return found


async def _until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {_PATIENCE:.0f} s for {what}"
        await asyncio.sleep(0.01)
