"""The actor beside the driver: the ledger of a batch, and the way from nodes to functions of the driver.

Ray runs a bounded number of an actor's calls at once, and whatever waits for an answer must not keep out the call that
brings it. So the only calls that wait are those for the letters in a mailbox: one of the driver, and one of each actor
on a node.
"""

# pyright: reportAttributeAccessIssue=false, reportMissingImports=false
# Ray need not be here.
from __future__ import annotations

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._errors import EndedError
from .._models import Budget, Spending
from ._ledger import LOST, Ledger

Outcome = bytes
"""A pickle: true and a result, or false and the type and message of an error. Only node and driver know its classes."""


@dataclass
class News:
    """What a node has spent since it told that before."""

    settled: list[Mapping[str, Any]] = field(default_factory=list)
    """Ends of reservations."""
    spent: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Of requests for which nothing is reserved: ids of rollouts, and what."""


class _Mailbox:
    """Letters to one reader."""

    def __init__(self) -> None:
        self._letters: list[Any] = []
        self._came = asyncio.Event()
        """Of the newest call of `take`: there are letters, or a newer call."""

    def put(self, letter: Any) -> None:
        self._letters.append(letter)
        self._came.set()

    async def take(self) -> list[Any]:
        """Waits until there are some. A newer call ends the wait of the one before, whose reader may be cut off."""
        self.end_wait()
        came = self._came
        if not self._letters:
            await came.wait()
        if came is not self._came:
            return []
        letters, self._letters = self._letters, []
        return letters

    def end_wait(self) -> None:
        self._came.set()
        self._came = asyncio.Event()


class _Hub:
    def __init__(self, budget: Budget | None) -> None:
        self._ledger = Ledger(budget or Budget(), self._send)
        self._calls = _Mailbox()
        """To the driver: calls of its functions by their ids, with name and arguments; None: it was cancelled."""
        self._callers: dict[str, str] = {}
        """The actors that wait for answers, by the ids of their calls."""
        self._answers: defaultdict[str, _Mailbox] = defaultdict(_Mailbox)
        """To actors, by their keys: ids of what they have asked, and the answers."""

    async def reserve(self, actor: str, request: Mapping[str, Any], news: News) -> int | str | None:
        """The bound on the completion, or why there is no room. None: it waits, and is answered by `answers`."""
        await self.tell(actor, news)
        return self._ledger.reserve(actor, request)

    async def tell(self, actor: str, news: News) -> bool:
        """Takes in what a node has spent. False: it was taken for dead, and must end what it runs."""
        for settled in news.settled:
            self._ledger.settle(settled)
        for rollout, spent in news.spent:
            self._ledger.count(actor, rollout, spent)
        return not self._ledger.is_lost(actor)

    async def lose(self, actor: str, rollouts: list[str]) -> list[Spending]:
        """What these rollouts had spent on a node that died, or is only cut off: then it hears of that by its calls."""
        self._ledger.lose(actor)
        for key in [key for key, caller in self._callers.items() if caller == actor]:
            await self.cancel(key)
        if (box := self._answers.pop(actor, None)) is not None:
            box.end_wait()
        return await self.take(rollouts)

    async def take(self, rollouts: list[str]) -> list[Spending]:
        """What these rollouts have spent, which have ended and are to be begun again."""
        return [self._ledger.take(rollout) for rollout in rollouts]

    async def spent(self) -> Spending:
        return self._ledger.spent

    async def call(self, actor: str, key: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Calls a function of the driver, which is answered by `answers`."""
        if self._ledger.is_lost(actor):
            return  # `answers` tells it
        self._callers[key] = actor
        self._calls.put((key, (name, args, kwargs)))

    async def cancel(self, key: str) -> None:
        """Nobody waits for this call any more."""
        if self._callers.pop(key, None) is not None:
            self._calls.put((key, None))

    async def calls(self) -> list[Any]:
        """What has come for the driver. Waits until there is something."""
        return await self._calls.take()

    async def answer(self, key: str, outcome: Outcome) -> None:
        if (actor := self._callers.pop(key, None)) is not None:
            self._send(actor, key, outcome)

    async def answers(self, actor: str) -> list[Any] | None:
        """What has come for an actor. Waits until there is something. None: the actor was taken for dead."""
        answers = [] if self._ledger.is_lost(actor) else await self._answers[actor].take()
        return None if self._ledger.is_lost(actor) else answers

    def _send(self, actor: str, key: str, answer: Any) -> None:
        self._answers[actor].put((key, answer))


_Actor: Any = ray.remote(num_cpus=0, max_concurrency=10_000)(_Hub)
"""Without a share of a CPU: it only waits. Each actor on a node always has one call here."""


class HubClient:
    """The hub, for an actor on a node."""

    def __init__(self, hub: Any, actor: str) -> None:
        self._hub = hub
        self._actor = actor
        self.lost = asyncio.Event()
        """Set when the hub says that this actor was taken for dead."""
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        """What it has asked, by the ids."""
        self._listening: asyncio.Task[None] | None = None

    async def tell(self, news: News) -> None:
        if not await self._hub.tell.remote(self._actor, news):
            self.lost.set()

    async def reserve(self, request: Mapping[str, Any], news: News) -> int | str:
        """The bound on the completion, or why there is no room. Waits while others may give it back."""
        with self._asked(request["id"]) as answer:
            room: int | str | None = await self._hub.reserve.remote(self._actor, request, news)
            if room == LOST:
                self.lost.set()
            try:
                return await answer if room is None else room
            except EndedError as error:
                return str(error)

    async def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Calls a function of the driver."""
        key = uuid.uuid4().hex
        with self._asked(key) as answer:
            try:
                await self._hub.call.remote(self._actor, key, name, args, kwargs)
                outcome: Outcome = await answer
            except asyncio.CancelledError:
                self._hub.cancel.remote(key)
                raise
        return outcome

    def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    @contextmanager
    def _asked(self, key: str) -> Iterator[asyncio.Future[Any]]:
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            yield self._waiting[key]
        finally:
            del self._waiting[key]

    async def _listen(self) -> None:
        error: Exception = EndedError(LOST)
        try:
            while (answers := await self._hub.answers.remote(self._actor)) is not None:
                for key, answer in answers:
                    if key in self._waiting and not self._waiting[key].done():
                        self._waiting[key].set_result(answer)
            self.lost.set()
        except RayError as lost_hub:
            error = lost_hub
        self._listening = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)


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
