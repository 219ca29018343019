"""The actor beside the driver: the ledger of a batch, and the way from nodes to functions of the driver."""

# pyright: reportAttributeAccessIssue=false, reportMissingImports=false
# Ray need not be here.
from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._models import Budget, Spending
from ._ledger import Exhausted, Ledger

Outcome = bytes
"""A pickle: true and a result, or false and the type and message of an error. Only node and driver know its classes."""


@dataclass
class News:
    """What a node has spent since it told that before."""

    settled: list[Mapping[str, Any]] = field(default_factory=list)
    """Ends of reservations."""
    spent: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Of requests for which nothing is reserved: ids of rollouts, and what."""


@dataclass
class _Post:
    """Calls of functions that wait for the driver."""

    new: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    """Id, name and arguments."""
    cancelled: list[str] = field(default_factory=list)
    answers: dict[str, asyncio.Future[Outcome]] = field(default_factory=dict)
    came: asyncio.Event = field(default_factory=asyncio.Event)


class _Hub:
    def __init__(self, budget: Budget | None) -> None:
        self._ledger = Ledger(budget or Budget())
        self._post = _Post()

    async def reserve(self, actor: str, request: Mapping[str, Any], news: News) -> int | str:
        """The bound on the completion, or why there is no room."""
        await self.tell(news)
        try:
            return await self._ledger.reserve(actor, request)
        except Exhausted as error:
            return str(error)

    async def tell(self, news: News) -> None:
        """Takes in what a node has spent."""
        for settled in news.settled:
            self._ledger.settle(settled)
        for rollout, spent in news.spent:
            self._ledger.count(rollout, spent)

    async def lose(self, actor: str, rollouts: list[str]) -> list[Spending]:
        """What these rollouts had spent on a node that died."""
        self._ledger.lose(actor)
        return await self.take(rollouts)

    async def take(self, rollouts: list[str]) -> list[Spending]:
        """What these rollouts have spent, which have ended and are to be begun again."""
        return [self._ledger.take(rollout) for rollout in rollouts]

    async def spent(self) -> Spending:
        return self._ledger.spent

    async def call(self, key: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Calls a function of the driver."""
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._post.answers[key] = answer
        self._post.new.append((key, name, args, kwargs))
        self._post.came.set()
        try:
            return await answer
        finally:
            del self._post.answers[key]

    async def cancel(self, key: str) -> None:
        """Nobody waits for this call any more."""
        answer = self._post.answers.get(key)
        if answer is not None:
            answer.cancel()
            self._post.cancelled.append(key)
            self._post.came.set()

    async def calls(self) -> tuple[list[Any], list[str]]:
        """The calls that have come since, and those that were cancelled. Waits until there is one."""
        await self._post.came.wait()
        self._post.came.clear()
        new, cancelled = self._post.new, self._post.cancelled
        self._post.new, self._post.cancelled = [], []
        return new, cancelled

    async def answer(self, key: str, outcome: Outcome) -> None:
        future = self._post.answers.get(key)
        if future is not None and not future.done():
            future.set_result(outcome)


_Actor: Any = ray.remote(num_cpus=0, max_concurrency=10_000)(_Hub)
"""Without a share of a CPU: it only waits."""

_START_LIMIT = 30.0


async def start_hub(budget: Budget | None) -> Any:
    """Starts one on the node of this program, so that no other node's death can end it."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    deadline = time.monotonic() + _START_LIMIT
    while True:
        hub = _Actor.options(scheduling_strategy=here).remote(budget)
        try:
            await hub.spent.remote()
            return hub
        except ActorUnschedulableError:
            # Ray lets any node place it, also one that has not heard of this node yet.
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
