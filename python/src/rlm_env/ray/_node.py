"""The actor on each node: it runs attempts in one `rlm run --feed`."""

# pyright: reportAttributeAccessIssue=false, reportMissingImports=false
# Ray need not be here.
from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import ray

from .._errors import EndedError
from .._models import ChatModel
from .._rollouts import Process, running
from .._tools import Tool
from ._context import Packed, Unpacker, document
from ._functions import attached

_COUNT_INTERVAL = 0.25
"""Seconds between messages about what was spent."""

_EVENT = b'"event":"'
_COUNTED = ("prompt_tokens", "completion_tokens", "cost_usd")
_HEAD_BYTES = 400
"""The event of a line is among its first bytes: before it are an id and a time."""


@dataclass(frozen=True)
class Job:
    """What all attempts of a batch have in common."""

    arguments: list[str]
    model: str | ChatModel | None
    sub_model: str | ChatModel | None
    tools: list[Any]
    """Functions that run beside the session."""
    driver_tools: list[Tool[..., Any]]
    """Without their functions."""
    settings: Mapping[str, Any]
    has_budget: bool


class _Node:
    """Attempts on one node. It ends with its owner; `rlm` ends with it, and sessions with that."""

    def __init__(self, job: Job, hub: Any, node: str) -> None:
        self._job = job
        self._hub = hub
        self._node = node
        self._stack = AsyncExitStack()
        self._running: dict[str, asyncio.Future[bytes]] = {}
        self._spent: list[tuple[str, Mapping[str, Any]]] = []
        self._counting: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Raises StartError if a setting is wrong, or something is missing on this node."""
        job = self._job
        routes = {"ledger": self._reserve_or_settle} if job.has_budget else None
        process = running(
            job.arguments,
            None,
            model=job.model,
            sub_model=job.sub_model,
            tools=[*job.tools, *attached(job.driver_tools, self._hub)],
            settings=job.settings,
            routes=routes,
        )
        self._process: Process = await self._stack.enter_async_context(process)
        self._contexts = Unpacker(self._process.directory)
        self._reading = asyncio.create_task(self._read())

    async def attempt(
        self, rollout: str, question: Mapping[str, Any], number: int, context: Packed | list[str] | None
    ) -> bytes:
        """Runs an attempt, and returns the line of its result. Raises what ended `rlm`, if that did."""
        paths = await self._contexts.paths(context) if isinstance(context, Packed) else context
        line = json.dumps(document(question, number, paths), allow_nan=False)
        if self._reading.done():
            raise self._reading.exception() or EndedError("rlm run has ended")
        result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._running[rollout] = result
        self._process.feed(line.encode() + b"\n")
        try:
            return await result
        finally:
            del self._running[rollout]

    async def close(self) -> None:
        await self._stack.aclose()
        if self._counting is not None:
            self._counting.cancel()
            await self._hub.count.remote(self._spent)

    async def _read(self) -> None:
        error: BaseException | None = None
        try:
            async for line in self._process.lines:
                self._take(line)
            error = await self._process.error("while rollouts were running")
            raise error
        finally:
            for result in self._running.values():
                if not result.done():
                    result.set_exception(error or EndedError("the node was closed"))

    def _take(self, line: bytes) -> None:
        at = line.find(_EVENT, 0, _HEAD_BYTES) + len(_EVENT)
        event = line[at : line.index(b'"', at)]
        if event == b"result":
            result = self._running.get(json.loads(line)["rollout"])
            if result is not None and not result.done():
                result.set_result(line)
        elif event in (b"model_call", b"sub_call") and not self._job.has_budget:
            self._count(json.loads(line))

    def _count(self, call: Mapping[str, Any]) -> None:
        """Tells the hub, soon, what a request has cost, so that it is known where this node dies."""
        self._spent.append((call["rollout"], {"calls": call["attempts"], **{name: call[name] for name in _COUNTED}}))
        if self._counting is None:
            self._counting = asyncio.get_running_loop().call_later(_COUNT_INTERVAL, self._tell)

    def _tell(self) -> None:
        self._hub.count.remote(self._spent)
        self._spent, self._counting = [], None

    async def _reserve_or_settle(self, body: bytes) -> tuple[int, Mapping[str, Any]]:
        request = json.loads(body)
        if "settle" in request:
            await self._hub.settle.remote(request["settle"])
            return 200, {}
        room = await self._hub.reserve.remote(self._node, request["reserve"])
        return (402, {"error": room}) if isinstance(room, str) else (200, {"completion_tokens": room})


Node: Any = ray.remote(max_restarts=0, max_task_retries=0)(_Node)
