"""The actor beside the driver: the ledger of a batch, and the way from nodes to functions of the driver.

Ray runs a bounded number of an actor's calls at once, and whatever waits for an answer must not keep out the call that
brings it. So the only calls that wait are those for the letters in a mailbox: one of the driver, and one of each actor
on a node.

If a call or its reply is lost on the way, the call is made again. A message that comes twice, or late, counts once.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._errors import EndedError
from .._models import Budget, Spending
from ._ledger import LOST, Ledger

Outcome = bytes
"""A pickle: true and a result, or false and the type and message of an error. Only node and driver know its classes."""


@dataclass
class News:
    """The spending of a node since its last news."""

    settled: list[Mapping[str, Any]] = field(default_factory=list)
    """Ends of reservations."""
    spent: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """The spending of requests for which nothing is reserved: ids of rollouts, and amounts."""
    number: int = 0
    """Number of earlier news from the same node."""


class _Numbers:
    """The numbers, from 0, of messages of one sender, which come in any order."""

    def __init__(self) -> None:
        self._next = 0
        """All below have come."""
        self._later: set[int] = set()

    def add(self, number: int) -> bool:
        """True if the number comes for the first time."""
        if number < self._next or number in self._later:
            return False
        self._later.add(number)
        while self._next in self._later:
            self._later.remove(self._next)
            self._next += 1
        return True


class _Mailbox:
    """Letters to one reader, each of which is kept until the reader says that it has come."""

    def __init__(self) -> None:
        self._had = 0
        self._letters: list[Any] = []
        """The letters after the first ones that the reader has had."""
        self._came = asyncio.Event()
        """Set for the newest call of `take`: there are letters, or a newer call."""

    def put(self, letter: Any) -> None:
        self._letters.append(letter)
        self._came.set()

    async def take(self, had: int) -> list[Any]:
        """The letters for a reader that has had so many. Waits until there are some, or a newer call."""
        self.end_wait()
        came = self._came
        del self._letters[: max(had - self._had, 0)]
        self._had = max(had, self._had)
        if not self._letters:
            await came.wait()
        return list(self._letters)

    def end_wait(self) -> None:
        self._came.set()
        self._came = asyncio.Event()


@dataclass
class _Asker:
    """The hub's knowledge of an actor on a node."""

    answers: _Mailbox = field(default_factory=_Mailbox)
    """The answers to the actor's questions, with their keys."""
    news: _Numbers = field(default_factory=_Numbers)
    calls: _Numbers = field(default_factory=_Numbers)


Key = tuple[str, int]
"""The name of a function's call: its actor, and its number there."""


class _Hub:
    def __init__(self, budget: Budget | None) -> None:
        self._ledger = Ledger(budget or Budget(), self._send)
        self._calls = _Mailbox()
        """To the driver: calls of its functions by their keys, with name and arguments; None: it was cancelled."""
        self._waiting: set[Key] = set()
        """The calls that have no answer."""
        self._askers: defaultdict[str, _Asker] = defaultdict(_Asker)

    async def reserve(self, actor: str, request: Mapping[str, Any], news: News) -> int | str | None:
        """The bound on the completion, or why there is no room. None: the request waits for `answers`."""
        await self.tell(actor, news)
        return self._ledger.reserve(actor, request)

    async def tell(self, actor: str, news: News) -> bool:
        """Takes in what a node has spent. False: the node was taken for dead, and must end its rollouts."""
        if self._askers[actor].news.add(news.number):
            for settled in news.settled:
                self._ledger.settle(settled)
            for rollout, spent in news.spent:
                self._ledger.count(actor, rollout, spent)
        return not self._ledger.is_lost(actor)

    async def lose(self, actor: str, rollouts: list[str]) -> list[Spending]:
        """The spending of these rollouts. Their node has died, or is cut off: then it hears of that by its calls."""
        self._ledger.lose(actor)
        for key in [key for key in self._waiting if key[0] == actor]:
            await self.cancel(key)
        self._askers[actor].answers.end_wait()
        return await self.spent_by(rollouts)

    async def spent_by(self, rollouts: list[str]) -> list[Spending]:
        """The spending of these rollouts, on all nodes where they were begun."""
        return [self._ledger.spent_by(rollout) for rollout in rollouts]

    async def spent(self) -> Spending:
        return self._ledger.spent

    async def call(self, key: Key, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Calls a function of the driver, which is answered by `answers`."""
        actor, number = key
        # An actor that was lost hears of that by `answers`.
        if self._askers[actor].calls.add(number) and not self._ledger.is_lost(actor):
            self._waiting.add(key)
            self._calls.put((key, (name, args, kwargs)))

    async def cancel(self, key: Key) -> None:
        """Records that nobody waits for this call any more. A call that has not come yet then comes too late."""
        actor, number = key
        self._askers[actor].calls.add(number)
        if key in self._waiting:
            self._waiting.remove(key)
            self._calls.put((key, None))

    async def calls(self, had: int) -> list[Any]:
        """The letters for the driver, which has had so many. Waits until there are some."""
        return await self._calls.take(had)

    async def answer(self, key: Key, outcome: Outcome) -> None:
        if key in self._waiting:
            self._waiting.remove(key)
            self._send(key[0], key, outcome)

    async def answers(self, actor: str, had: int) -> list[Any] | None:
        """The letters for an actor that has had so many. Waits until there are some. None: it was taken for dead."""
        answers = [] if self._ledger.is_lost(actor) else await self._askers[actor].answers.take(had)
        return None if self._ledger.is_lost(actor) else answers

    def _send(self, actor: str, key: Any, answer: Any) -> None:
        self._askers[actor].answers.put((key, answer))


_Actor: Any = ray.remote(num_cpus=0, max_concurrency=10_000, max_task_retries=-1)(_Hub)
"""The hub as an actor, without a share of a CPU: it only waits. Each actor on a node always has one call here."""

_RETRY_PAUSE = 0.1


async def letters(take: Any, *args: Any) -> AsyncGenerator[Any, None]:
    """The letters in a mailbox of the hub, each once, until the hub says that there will be no more."""
    had = 0
    while True:
        try:
            # Not repeated by Ray: if the end of the hub cuts a call off, Ray says on the terminal that it repeats it.
            came = await take.options(max_task_retries=0).remote(*args, had)
        except ActorUnavailableError:
            await asyncio.sleep(_RETRY_PAUSE)
            continue
        if came is None:
            return
        had += len(came)
        for one in came:
            yield one


class HubClient:
    """The hub, for an actor on a node."""

    def __init__(self, hub: Any, actor: str) -> None:
        self._hub = hub
        self._actor = actor
        self.lost = asyncio.Event()
        """Set when the hub says that this actor was taken for dead."""
        self._called = 0
        self._waiting: dict[Any, asyncio.Future[Any]] = {}
        """The requests of the actor, by their keys."""
        self._listening: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Future[Any]] = set()
        """Calls with news that are on their way."""

    async def tell(self, news: News) -> None:
        if not await self._told(self._hub.tell.remote(self._actor, news)):
            self.lost.set()

    async def has_heard(self) -> None:
        """Waits until the hub has heard all news, including those of calls that were given up."""
        if self._telling:
            await asyncio.wait(self._telling)

    async def _told(self, reply: Awaitable[Any]) -> Any:
        call = asyncio.ensure_future(reply)
        self._telling.add(call)
        call.add_done_callback(self._telling.discard)
        return await asyncio.shield(call)

    async def reserve(self, request: Mapping[str, Any], news: News) -> int | str:
        """The bound on the completion, or why there is no room. Waits while others may give room back."""
        with self._asked(request["id"]) as answer:
            room: int | str | None = await self._told(self._hub.reserve.remote(self._actor, request, news))
            if room == LOST:
                self.lost.set()
            try:
                return await answer if room is None else room
            except EndedError as error:
                return str(error)

    async def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Calls a function of the driver."""
        key, self._called = (self._actor, self._called), self._called + 1
        with self._asked(key) as answer:
            try:
                await self._hub.call.remote(key, name, args, kwargs)
                outcome: Outcome = await answer
            except asyncio.CancelledError:
                self._hub.cancel.remote(key)
                raise
        return outcome

    def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    @contextmanager
    def _asked(self, key: Any) -> Iterator[asyncio.Future[Any]]:
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
            async for key, answer in letters(self._hub.answers, self._actor):
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
    """Starts a hub on the node of this program, so that no other node's death can end it."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    deadline = time.monotonic() + _START_LIMIT
    while True:
        hub = _Actor.options(scheduling_strategy=here).remote(budget)
        try:
            await hub.spent.remote()
            return hub
        except ActorUnschedulableError:
            # Ray lets any node place the actor, even one that has not heard of this node yet.
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
