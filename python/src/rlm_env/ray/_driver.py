"""The driver of a batch: it gives attempts to the nodes, and takes exactly one result of each."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._errors import EndedError, StartError
from .._events import RolloutResult, read_result
from .._files import PrivateDirectory
from .._models import Spending
from .._rollouts import Question
from ._context import Packed, Packer
from ._failures import constructor_error, first_line
from ._functions import Functions
from ._hub import start_hub
from ._node import Given, Node
from ._plan import Attempt, Place, Plan, State
from ._results import Results
from ._versions import check, versions

_LOOK_INTERVAL = 1.0
"""Seconds between looks at the cluster's nodes, and between questions for what was spent."""

_ROOM_LIMIT = 60.0
"""Seconds for which a batch waits for a node with room: of a cluster that starts or has lost some, others may come."""

_FREE_LIMIT = 10.0
"""Seconds for which no node has begun after which that is said: what has their CPUs may be waiting for this batch."""

_MOST_STARTS = 3
"""Starts of an actor on a node, after which a batch ends that cannot load what it needs."""

MAX_UNREAD = 1000
"""Results that wait here, and as many again for the program; with more of them, no attempt is begun."""

_CLOSE_LIMIT = 15.0

_probe: Any = ray.remote(num_cpus=0)(versions)


class Driver:
    """A batch under way, on an event loop."""

    def __init__(self, plan: Plan, state: State, file: Results | None, words: Callable[[], str]) -> None:
        self._plan = plan
        self._state = state
        self._file = file
        self._words = words
        """The progress, as a line."""
        self._came: asyncio.Queue[RolloutResult | BaseException | None] = asyncio.Queue()
        """None: that is the end."""
        self._changed = asyncio.Event()
        """Set when there may be something to begin, or nothing is left to wait for."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._packer = Packer(with_git=plan.job.settings.get("gitignore") is False)
        self._documents = {question.id: question.document() for question in plan.questions}
        self._functions: Functions | None = None
        self._exhausted: str | None = None
        self._versions = versions()
        self._hub: Any = None
        self._has_hub = asyncio.Event()
        self._failed_starts: dict[str, int] = {}
        """The number of failed starts, by the ids of nodes."""
        self._ending: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        """The error that has ended the batch."""

    async def results(self) -> AsyncGenerator[RolloutResult, None]:
        """The results of all attempts that wait, until `close`. Raises what ends the batch."""
        left = len(self._state.waiting)
        self._total = self._state.done + left
        for work in (self._look(), self._start()):
            self._begin(work)
        while left > 0:
            one = await self._came.get()
            if self._came.qsize() == MAX_UNREAD - 1:
                self._changed.set()
            if one is None:
                break
            if isinstance(one, BaseException):
                raise one
            left -= 1
            yield one

    def close(self) -> asyncio.Task[None]:
        """Ends the results and what runs. Safe to repeat."""
        while not self._came.empty():
            self._came.get_nowait()
        self._came.put_nowait(None)
        return self._end_all()

    def _end_all(self) -> asyncio.Task[None]:
        """Ends what runs. Results that have come stay."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_tasks())
            # The callback also runs if the end of the event loop cancels the task, perhaps before its first step.
            self._ending.add_done_callback(lambda _: self._let_go())
        return self._ending

    async def _start(self) -> None:
        self._hub = await start_hub(self._plan.budget)
        self._has_hub.set()
        if self._plan.driver_tools:
            self._functions = Functions(self._plan.driver_tools, self._hub)
            self._begin(self._functions.wait())
        for work in (self._dispatch(), self._count()):
            self._begin(work)

    async def _end_tasks(self) -> None:
        """Nodes end their rollouts, and remove their directories."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._error is not None:
            self._came.put_nowait(self._error)  # no result comes after it
        await self._packer.close()
        if begun := [place.actor for place in self._state.places.values() if place.has_begun]:
            closing = [asyncio.ensure_future(_closed(actor)) for actor in begun]
            _, late = await asyncio.wait(closing, timeout=_CLOSE_LIMIT)
            for one in late:
                one.cancel()
        if self._functions is not None:
            await self._functions.close()
        if self._hub is not None:
            with suppress(RayError, asyncio.TimeoutError):
                self._state.spent = await asyncio.wait_for(self._hub.spent.remote(), _CLOSE_LIMIT)
        self._let_go()
        # Lost actors of this machine have left their directories.
        await asyncio.to_thread(lambda: PrivateDirectory().remove())
        self._show("\n")

    def _let_go(self) -> None:
        """Kills the actors; what they had waits again. Safe to repeat."""
        actors = [self._hub, *(place.actor for place in self._state.places.values())]
        for place in self._state.places.values():
            self._state.waiting.extend(place.given.values())
        self._state.places.clear()
        self._hub = None
        for actor in actors:
            if actor is not None:
                ray.kill(actor)

    def _show(self, end: str) -> None:
        if self._plan.shows:
            with suppress(OSError, ValueError):  # nobody reads it any more
                sys.stderr.write(f"\r\x1b[K{self._words()}{end}")
                sys.stderr.flush()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a task whose error ends the batch, and comes after the results."""

        def fail(error: BaseException) -> None:
            if self._error is None:
                self._error = error
            self._end_all()

        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except RayError as error:
                words = "the batch has lost its ledger: with results=, go on from them with resume=True"
                fail(EndedError(f"{words} ({first_line(error)})"))
            except BaseException as error:
                fail(error)

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that was cancelled before it began has not awaited its work.
        task.add_done_callback(lambda _: work.close())

    async def _look(self) -> None:
        """Takes in the nodes that come, also back from an accident, as long as the batch runs."""
        deadline: float | None = None
        begun = time.monotonic()
        is_wait_said = False
        while True:
            nodes = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"]]
            most = max((node["Resources"].get("CPU", 0) for node in nodes), default=0)
            words = (
                f"no node has room: {self._plan.job.concurrency} rollouts (concurrency_per_node) of "
                f"{self._plan.num_cpus:g} CPUs (num_cpus) need {self._plan.cpus:g} CPUs, "
                f"the largest node has {most:g}"
            )
            if most >= self._plan.cpus:
                deadline = None
            elif deadline is None:
                deadline = time.monotonic() + _ROOM_LIMIT
                _warn(f"{words}: waiting {_ROOM_LIMIT:g} s for another")
            elif time.monotonic() > deadline:
                raise StartError(words)
            for node in nodes:
                has_room = node["Resources"].get("CPU", 0) >= self._plan.cpus
                if has_room and node["NodeID"] not in self._state.places:
                    address = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
                    place = self._state.places[node["NodeID"]] = Place(node["NodeID"], address)
                    self._begin(self._open(place))
            places = list(self._state.places.values())
            if any(place.is_ready for place in places) or not places:
                begun = time.monotonic()
            elif not is_wait_said and time.monotonic() - begun > _FREE_LIMIT:
                _warn(_words_of_wait(places, self._plan.cpus))
                is_wait_said = True
            await asyncio.sleep(_LOOK_INTERVAL)

    async def _open(self, place: Place) -> None:
        """Starts the actor of a node."""
        where = NodeAffinitySchedulingStrategy(place.node, soft=False)
        try:
            # The actor's process starts while that of the hub does.
            place.actor = Node.options(
                num_cpus=self._plan.cpus,
                scheduling_strategy=where,
            ).remote(self._plan.job, place.key)
            await self._has_hub.wait()
            found = await place.actor.versions.remote()
            place.has_begun = True
            check(place.address, found, self._versions)
            await place.actor.start.remote(self._hub)
        except RayError as error:
            cause = error.cause if isinstance(error, RayTaskError) else None
            if not isinstance(cause, StartError):
                # The node's package may be another version, or missing, so the probe travels as code.
                with suppress(RayError):
                    check(place.address, await _probe.options(scheduling_strategy=where).remote(), self._versions)
            if (reason := constructor_error(error)) is not None:
                raise StartError(f"the node {place.address} cannot load the model or the tools: {reason}") from error
            if cause is not None:
                raise StartError(f"the node {place.address} cannot run rollouts: {cause}") from error
            self._forget(place)
            self._failed_starts[place.node] = self._failed_starts.get(place.node, 0) + 1
            if self._failed_starts[place.node] >= _MOST_STARTS:
                words = f"an actor on the node {place.address} died {_MOST_STARTS} times while it started"
                raise StartError(f"{words}, last: {error}") from error
            return
        place.is_ready = True
        self._failed_starts.pop(place.node, None)
        self._changed.set()

    def _forget(self, place: Place) -> None:
        """Forgets a place whose actor has died. If the node has not, the next look finds it."""
        if self._state.places.get(place.node) is place:
            del self._state.places[place.node]
            place.is_ready = False
            if place.actor is not None:
                ray.kill(place.actor)

    async def _dispatch(self) -> None:
        """Gives nodes the attempts for which they have room, and asks for results where attempts run."""
        while True:
            self._changed.clear()
            places = [place for place in self._state.places.values() if place.is_ready]
            new = {place.key: self._give(place, self._plan.job.concurrency) for place in places}
            # A node starts what it has in advance without waiting for a message. It gets that only while enough is left
            # for every node, including those that are still starting.
            if len(self._state.waiting) > self._plan.job.concurrency * len(self._state.places):
                for place in places:
                    new[place.key] += self._give(place, self._plan.job.concurrency * 2)
            for place in places:
                ready: list[Attempt] = []
                to_pack: list[Attempt] = []
                for attempt in new[place.key]:
                    (ready if self._is_packed(attempt) else to_pack).append(attempt)
                if ready or place.exchanges == 0:
                    place.exchanges += 1
                    self._begin(self._exchange(place, ready))
                if to_pack:
                    self._begin(self._pack(place, to_pack))
            if not self._state.waiting:
                self._even_out(places)
            if self._exhausted is not None and self._state.done + len(self._state.waiting) == self._total:
                raise EndedError(
                    f"{len(self._state.waiting)} attempts were not run: {self._exhausted}", "budget exhausted"
                )
            await self._changed.wait()

    def _give(self, place: Place, limit: int) -> list[Attempt]:
        """Takes attempts for a node until it has as many as this."""
        new = []
        while len(place.given) < limit and self._exhausted is None and self._came.qsize() < MAX_UNREAD:
            attempt = self._next(place)
            if attempt is None:
                break
            attempt.is_sent = False
            place.given[attempt.id] = attempt
            new.append(attempt)
        return new

    def _next(self, place: Place) -> Attempt | None:
        """Takes the first attempt that waits. Those that were lost twice run one at a time on a node: one of them may
        be the cause, and the others would be lost with it."""
        is_suspect = any(attempt.losses > 1 for attempt in place.given.values())
        for at, attempt in enumerate(self._state.waiting):
            if attempt.losses < 2 or not is_suspect:
                del self._state.waiting[at]
                return attempt
        return None

    async def _pack(self, place: Place, new: list[Attempt]) -> None:
        """Sends attempts whose contexts take a while."""
        packed = []
        for attempt in new:
            try:
                await self._context(attempt.question)
            except StartError as error:
                if place.given.pop(attempt.id, None) is not None:
                    self._end(attempt.failure(place.address, str(error)))
            else:
                packed.append(attempt)
        place.exchanges += 1
        await self._exchange(place, packed)

    async def _exchange(self, place: Place, new: list[Attempt]) -> None:
        """Sends attempts to a node, and takes the results that it has. If it is lost, its attempts wait again."""
        try:
            given = [await self._given(attempt) for attempt in new]
            if not place.is_ready:
                return  # it has died, and they wait again
            for one in new:
                # The attempts are in the order in which the node begins them.
                place.given[one.id] = place.given.pop(one.id)
                one.is_sent = True
            lines = await place.actor.exchange.remote(given)
        except RayError as error:
            await self._lose_all(place, error)
        else:
            cancelled = []
            for line in lines:
                document = json.loads(line)["result"]
                if document["stop_reason"] == "cancelled":
                    cancelled.append(document)
                elif (attempt := place.given.get(document["id"])) is not None:
                    self._take(place, attempt, document)
                    del place.given[attempt.id]
            if cancelled:
                await self._lose_cancelled(place, cancelled)
        finally:
            place.exchanges -= 1
            self._changed.set()

    def _even_out(self, places: list[Place]) -> None:
        """Takes back what nodes have in advance, for others that have room."""
        most = self._plan.job.concurrency
        room = sum(max(most - len(place.given), 0) for place in places)
        for place in places:
            spare = min(len(place.given) - most, room)
            if spare > 0 and not place.is_asked_back:
                place.is_asked_back = True
                room -= spare
                self._begin(self._take_back(place, spare))

    async def _take_back(self, place: Place, most: int) -> None:
        try:
            for rollout in await place.actor.take_back.remote(most):
                if (attempt := place.given.pop(rollout, None)) is not None:
                    self._state.waiting.append(attempt)
        except RayError as error:
            await self._lose_all(place, error)
        finally:
            place.is_asked_back = False
            self._changed.set()

    async def _given(self, attempt: Attempt) -> Given:
        question = attempt.question
        return Given(attempt.id, self._documents[question.id], attempt.number, await self._context(question))

    def _take(self, place: Place, attempt: Attempt, document: dict[str, Any]) -> None:
        if document["stop_reason"] == "stopped" and self._plan.budget is not None:
            # The budget has no room for the first turn of an attempt.
            self._exhausted = document["error"] or "the budget is exhausted"
            self._state.waiting.append(attempt)
            return
        document["node"] = place.address
        if attempt.losses > 0:
            document["metrics"].update(attempt.loss_metrics)
        self._end(document)

    async def _lose_cancelled(self, place: Place, documents: list[dict[str, Any]]) -> None:
        """Loses cancelled attempts. Nobody here cancels any: their node ends, or has no room for their contexts."""
        spent = await self._hub.spent_by.remote([document["id"] for document in documents])
        for document, lost in zip(documents, spent, strict=True):
            if (attempt := place.given.pop(document["id"], None)) is not None:
                self._lose(place, attempt, lost, document["error"] or "its rollouts were cancelled there")

    async def _lose_all(self, place: Place, error: RayError) -> None:
        """Loses the attempts that a node was given: they wait again."""
        cause = error.cause if isinstance(error, RayTaskError) else error
        if isinstance(cause, StartError):
            raise StartError(f"the node {place.address} cannot run rollouts: {cause}") from error
        if not place.is_ready:
            return  # that has been noticed before
        place.is_ready = False
        sent = [attempt for attempt in place.given.values() if attempt.is_sent]
        spent = await self._hub.lose.remote(place.key, [attempt.id for attempt in sent])
        self._forget(place)
        given, place.given = place.given, {}
        # An attempt that has spent something has begun. Its result may have been lost on the way here.
        begun = {
            attempt.id: (attempt, lost)
            for at, (attempt, lost) in enumerate(zip(sent, spent, strict=True))
            if attempt.id in given and (at < self._plan.job.concurrency or lost != attempt.lost)
        }
        self._state.waiting.extendleft(given[one] for one in reversed(given) if one not in begun)
        for attempt, lost in begun.values():
            self._lose(place, attempt, lost, cause)

    def _lose(self, place: Place, attempt: Attempt, lost: Spending, cause: object) -> None:
        attempt.losses += 1
        attempt.lost = lost
        self._state.losses += 1
        if attempt.losses <= self._plan.max_losses:
            self._state.waiting.appendleft(attempt)
            return
        reason = f"it was lost {attempt.losses} times, at last with the node {place.address}: {cause}"
        self._end(attempt.failure(place.address, reason))

    def _end(self, document: Mapping[str, Any]) -> None:
        result = read_result(document)
        if self._file is not None:
            self._file.append(document)
        self._state.count(result)
        self._came.put_nowait(result)

    async def _context(self, question: Question) -> Packed | list[str] | None:
        paths = self._plan.paths(question)
        return paths if paths is None or self._plan.shared_storage else await self._packer.pack(paths)

    def _is_packed(self, attempt: Attempt) -> bool:
        paths = self._plan.paths(attempt.question)
        return paths is None or self._plan.shared_storage or self._packer.has(paths)

    async def _count(self) -> None:
        """Learns what was spent, and shows the progress."""
        while True:
            self._state.spent = await self._hub.spent.remote()
            self._show("")
            await asyncio.sleep(_LOOK_INTERVAL)


def _words_of_wait(places: list[Place], cpus: float) -> str:
    others = f" and {len(places) - 1} others" if len(places) > 1 else ""
    return (
        f"no node has begun after {_FREE_LIMIT:g} s: Ray is still starting its processes, or this batch waits for "
        f"{cpus:g} free CPUs (num_cpus * concurrency_per_node) on the node {places[0].address}{others}. "
        "If they are taken by other tasks, perhaps by the one that calls run_batch, give that num_cpus=0"
    )


def _warn(words: str) -> None:
    """Warns also if an earlier batch did, in the same words."""
    warnings.warn_explicit(words, UserWarning, __file__, 0)


async def _closed(actor: Any) -> None:
    with suppress(RayError):
        await actor.close.remote()
