"""The actor on each node: it runs attempts in one `rlm run --feed`."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

import ray

from .._errors import ProtocolError
from .._models import ChatModel
from .._rollouts import Process, running
from .._tools import Tool
from ._context import Packed, Unpacker
from ._functions import attached
from ._hub import HubClient, News
from ._versions import Versions, versions

_TELL_INTERVAL = 0.25
"""Seconds after which the hub is told what was spent, unless a reservation or a result tells it before."""

_GATHER_LIMIT = 0.25
"""Most seconds for which a result waits for others, so that they cost the driver one message. Half as many as run at
most (`concurrency`) are enough, and so are those of all that run."""

_COUNTED = ("prompt_tokens", "completion_tokens", "cost_usd")
_HEAD = re.compile(rb'\{"rollout":"(?P<rollout>[^"]*)","time":[^,]*,"event":"(?P<event>[^"]*)"')
"""The beginning of a line."""


@dataclass(frozen=True)
class Job:
    """The parts that all attempts of a batch share."""

    arguments: list[str]
    model: str | ChatModel | None
    sub_model: str | ChatModel | None
    tools: list[Any]
    """Functions that run beside the session."""
    driver_tools: list[Tool[..., Any]]
    """The driver's tools, without their functions."""
    settings: Mapping[str, Any]
    has_budget: bool
    concurrency: int
    """Attempts that run at once."""


@dataclass(frozen=True)
class Given:
    """An attempt for a node."""

    rollout: str
    """The id of the rollout."""
    question: Mapping[str, Any]
    number: int
    context: Packed | list[str] | None


class _Node:
    """Attempts on one node. It ends with its owner; `rlm` ends with it, and sessions with that."""

    def __init__(self, job: Job, key: str) -> None:
        self._job = job
        self._key = key
        self._stack = AsyncExitStack()
        self._working: list[asyncio.Task[None]] = []
        self._waiting: deque[Given] = deque()
        """Attempts that `rlm` has not been given: as many as run at once are enough for it."""
        self._running: set[str] = set()
        self._changed = asyncio.Event()
        """Set when there may be an attempt and room for it."""
        self._results: list[bytes] = []
        self._has_enough = asyncio.Event()
        """Set when no result need wait for others."""
        self._error: Exception | None = None
        """The error with which `rlm` ended."""
        self._exhausted: str | None = None
        """Why the budget has no room for another attempt: `rlm` begins no more."""
        self._came = asyncio.Event()
        """Set for the newest exchange: there are results, or an error, or a newer one."""
        self._news = News()
        self._telling: asyncio.Task[None] | None = None

    async def versions(self) -> Versions:
        return versions()

    async def start(self, hub: Any) -> None:
        """Raises StartError if a setting is wrong, or something is missing on this node."""
        job, self._hub = self._job, HubClient(hub, self._key)
        self._telling = asyncio.create_task(self._tell())
        process = running(
            job.arguments,
            None,
            model=job.model,
            sub_model=job.sub_model,
            tools=[*job.tools, *attached(job.driver_tools, self._hub)],
            settings=job.settings,
            ledger=self._reserve_or_settle if job.has_budget else None,
        )
        self._process: Process = await self._stack.enter_async_context(process)
        self._contexts = Unpacker(self._process.directory)
        self._stack.push_async_callback(self._contexts.close)
        works = self._feed(), self._read(), self._end_if_lost()
        self._working = [asyncio.create_task(self._guarded(work)) for work in works]

    async def exchange(self, attempts: list[Given]) -> list[bytes]:
        """Takes attempts to run in this order, and returns the lines of results that have come since.

        Waits until there are some; a newer exchange ends the wait of the one before, and takes the results.
        Raises what ended `rlm`, if that did.
        """
        self._waiting.extend(attempts)
        self._give_back_waiting()
        self._changed.set()
        self._came.set()
        came = self._came = asyncio.Event()
        if not self._results and self._error is None:
            await came.wait()
        if (self._running or self._waiting) and self._error is None:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._has_enough.wait(), _GATHER_LIMIT)
        if came is not self._came:
            return []
        results, self._results = self._results, []
        self._has_enough.clear()
        if not results and self._error is not None:
            raise self._error
        # The hub hears what a rollout has spent before the driver gets its result.
        await self._tell_news()
        return results

    async def take_back(self, most: int) -> list[str]:
        """The ids of attempts that have not begun, and will not."""
        return [self._waiting.pop().rollout for _ in range(min(most, len(self._waiting)))]

    async def close(self) -> None:
        await self._stack.aclose()
        for task in self._working:
            task.cancel()
        if self._telling is not None:
            self._telling.cancel()
            await self._tell_news()
            self._hub.close()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._error = self._error or error
            self._has_enough.set()
            self._came.set()

    async def _feed(self) -> None:
        """Gives `rlm` as many attempts as it runs at once, each with its context."""
        while True:
            while not self._waiting or len(self._running) >= self._job.concurrency:
                self._changed.clear()
                await self._changed.wait()
            attempt = self._waiting.popleft()
            self._running.add(attempt.rollout)
            line, context = {**attempt.question, "attempt": attempt.number}, attempt.context
            try:
                if context is not None:
                    line["context"] = await self._contexts.paths(context) if isinstance(context, Packed) else context
            except OSError as error:
                self._end(attempt.rollout, "cancelled", f"its context cannot be unpacked there: {error}")
                continue
            self._process.feed(json.dumps(line, allow_nan=False).encode() + b"\n")

    async def _end_if_lost(self) -> None:
        """Ends `rlm` where the driver has taken this node for dead, so that it spends nothing more."""
        await self._hub.lost.wait()
        await self._stack.aclose()

    async def _read(self) -> None:
        async for line in self._process.lines:
            self._take(line)
        if self._exhausted is None or await self._process.status() != 0:
            raise await self._process.error("while rollouts were running")
        for rollout in list(self._running):  # It was given these, and has not begun them.
            self._end(rollout, "stopped", self._exhausted)

    def _take(self, line: bytes) -> None:
        head = _HEAD.match(line)
        if head is None:
            raise ProtocolError(f"rlm run printed something other than an event: {line[:200]!r}")
        event = head["event"]
        if event == b"result":
            # The driver reads the rest.
            self._give(head["rollout"].decode(), line)
            if self._job.has_budget and b'"stopped"' in line:
                self._stop_if_exhausted(json.loads(line)["result"])
        elif event in (b"model_call", b"sub_call") and not self._job.has_budget:
            self._count(json.loads(line))

    def _stop_if_exhausted(self, result: Mapping[str, Any]) -> None:
        if result["stop_reason"] == "stopped":
            self._exhausted = result["error"] or "the budget is exhausted"
            self._give_back_waiting()

    def _give_back_waiting(self) -> None:
        """Gives attempts back for which the budget has no room."""
        while self._exhausted is not None and self._waiting:
            self._end(self._waiting.popleft().rollout, "stopped", self._exhausted)

    def _end(self, rollout: str, stop_reason: str, error: str) -> None:
        """Gives an attempt back that does not run here."""
        result = {"id": rollout, "stop_reason": stop_reason, "error": error}
        self._give(rollout, json.dumps({"result": result}).encode())

    def _give(self, rollout: str, line: bytes) -> None:
        self._running.discard(rollout)
        self._results.append(line)
        if len(self._results) * 2 >= self._job.concurrency or not self._running:
            self._has_enough.set()
        self._came.set()
        self._changed.set()

    def _attempt_of(self, rollout: str) -> str:
        """The attempt that has this rollout in its tree: ids of children are those of their parents with a number."""
        while rollout not in self._running and "." in rollout:
            rollout = rollout.rpartition(".")[0]
        return rollout

    def _count(self, call: Mapping[str, Any]) -> None:
        """Notes what a request has cost, which the hub must know where this node dies."""
        spent = {"calls": call["attempts"], **{name: call[name] for name in _COUNTED}}
        self._news.spent.append((self._attempt_of(call["rollout"]), spent))

    async def _reserve_or_settle(self, body: bytes) -> tuple[int, Mapping[str, Any]]:
        request = json.loads(body)
        if "settle" in request:
            self._news.settled.append(request["settle"])
            return 200, {}
        reserve = {**request["reserve"], "rollout": self._attempt_of(request["reserve"]["rollout"])}
        room = await self._hub.reserve(reserve, self._take_news())
        return (402, {"error": room}) if isinstance(room, str) else (200, {"completion_tokens": room})

    async def _tell(self) -> None:
        """Tells the hub what was spent: not before it has heard the last of it, so that it is never overrun."""
        while True:
            await asyncio.sleep(_TELL_INTERVAL)
            await self._tell_news()

    async def _tell_news(self) -> None:
        if self._news.settled or self._news.spent:
            await self._hub.tell(self._take_news())
        await self._hub.has_heard()

    def _take_news(self) -> News:
        news, self._news = self._news, News(number=self._news.number + 1)
        return news


Node: Any = ray.remote(max_restarts=0, max_task_retries=0)(_Node)
