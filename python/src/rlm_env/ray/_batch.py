"""Batches on a cluster, and the way of their results to the program."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import ray

from .._config import check_count
from .._errors import StartError
from .._events import RolloutResult
from .._models import Budget, ChatModel, Spending
from .._rollouts import Path, Question, absolute_paths, check_settings, questions_of
from .._threads import Threads
from .._tools import AnyTool
from ._context import check_path
from ._driver import MAX_UNREAD, Driver
from ._functions import check_pickles, declared, tools_apart
from ._node import Job
from ._plan import Attempt, Plan, State
from ._results import Results, check_same
from ._tasks import to_its_end

if TYPE_CHECKING:
    from typing_extensions import Unpack  # pyright: ignore[reportMissingModuleSource]

    from .._rollouts import Settings

_MAX_ID = 112
"""Longest id of a question. The id of a rollout also has the number of the attempt."""


@dataclass(frozen=True)
class Progress:
    """A batch at one moment."""

    done: int
    """Attempts with a result, including those that a file of results had."""
    failed: int
    """Failed attempts among those: attempts without an answer."""
    waiting: int
    running: Mapping[str, int]
    """Running attempts by the address of their node."""
    losses: int
    """Number of times that an attempt was lost with its node, and begun again."""
    spent: Spending
    """The spending of this program's rollouts."""

    def __str__(self) -> str:
        nodes = "".join(f" · {name} {count}" for name, count in sorted(self.running.items()))
        losses = f", {self.losses} begun again" if self.losses else ""
        cost = "" if self.spent.cost_usd is None else f" · {self.spent.cost_usd:.4f} USD"
        return (
            f"{self.done} done, {self.failed} failed, {sum(self.running.values())} running, {self.waiting} waiting"
            f"{losses} · {self.spent.tokens} tokens{cost}{nodes}"
        )


def run_batch(
    questions: str | Question | Iterable[str | Question],
    *,
    attempts: int = 1,
    model: str | ChatModel | None = None,
    sub_model: str | ChatModel | None = None,
    tools: Iterable[AnyTool] = (),
    driver_tools: Iterable[AnyTool] = (),
    context: Path | Iterable[Path] | None = None,
    shared_storage: bool = False,
    concurrency_per_node: int = 8,
    num_cpus: float = 0.1,
    budget: Budget | None = None,
    results: Path | None = None,
    resume: bool = False,
    score: str | None = None,
    max_losses: int = 3,
    progress: bool | None = None,
    **settings: Unpack[Settings],
) -> Batch:
    """Rollouts on all nodes of a Ray cluster: an iterable of their results as they come, for `for` and `async for`.

        for result in run_batch(questions, attempts=8, model="large-model", base_url=url, results="results.jsonl"):

    Each attempt has exactly one result. One that is lost with its node is begun again on another, `max_losses` times.

    `tools` run beside the session, pickled by cloudpickle; `driver_tools` run in this program, called from the nodes.
    A `context` is packed here and sent through the object store, once; with `shared_storage` its paths are those of
    the nodes. `concurrency_per_node` bounds the rollouts of a node, each of which takes `num_cpus` of Ray's CPUs there.
    `budget` is for all rollouts together; where it has no room for another one, EndedError follows the last result.

    With `results`, each result is also appended to that file; with `resume`, those that it has come first and are not
    run again. `progress` shows a line on standard error; None: if that is a terminal. `settings` are those of
    `rlm run`; files that they name are those of the nodes.

    Raises ValueError for a question that cannot be sent, and StartError if something is wrong or missing, here or on a
    node.
    """
    check_count("attempts", attempts)
    check_count("concurrency_per_node", concurrency_per_node)
    if type(max_losses) is not int or max_losses < 0:
        raise ValueError(f"max_losses must be an int from 0, not {max_losses!r}")
    if isinstance(num_cpus, bool) or not isinstance(num_cpus, (int, float)) or not 0 <= num_cpus < 1e6:
        raise ValueError(f"num_cpus must be a number from 0, not {num_cpus!r}")
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget, not {budget!r}")
    if resume and results is None:
        raise ValueError("resume=True goes on from a file: give it as results=")
    for name, given in (("model", model), ("sub_model", sub_model)):
        if given is not None and not isinstance(given, str) and not callable(given):
            raise TypeError(f"{name} must be a name or a function, not {given!r}")
    if results is not None and not isinstance(results, (str, os.PathLike)):
        raise TypeError(f"results must be a path, not {results!r}")
    check_settings(settings)
    beside, with_driver = tools_apart(tools, driver_tools)
    check_pickles(beside, model=model, sub_model=sub_model)
    shared = [] if context is None else absolute_paths(context)
    for path in shared:
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the path {path!r} of a context is not UTF-8") from error
    asked = questions_of(questions)
    for one in asked:
        one.line()
        if not re.fullmatch(rf"[A-Za-z0-9_.-]{{1,{_MAX_ID}}}", one.id or ""):
            raise ValueError(f"the id {one.id!r} of a question must be 1 to {_MAX_ID} of a-z A-Z 0-9 _ - .")
    # Attempts begin later, when the program may be in another directory.
    asked = [one if one.context is None else replace(one, context=absolute_paths(one.context)) for one in asked]
    if not shared_storage:
        contexts = (shared if one.context is None else absolute_paths(one.context) for one in asked)
        for path in {path for paths in contexts for path in paths}:
            try:
                check_path(path)
            except OSError as error:
                raise StartError(f"a context cannot be read: {error}") from error
    for repeated, count in Counter(one.id for one in asked).items():
        if count > 1:
            raise ValueError(f"there are {count} questions with the id {repeated}")
    job = Job(
        arguments=[f"--jobs={concurrency_per_node}", "--context=", *([] if score is None else [f"--score={score}"])],
        model=model,
        sub_model=sub_model,
        tools=beside,
        driver_tools=declared(with_driver),
        settings=settings,
        has_budget=budget is not None,
        concurrency=concurrency_per_node,
    )
    plan = Plan(
        questions=asked,
        attempts=attempts,
        job=job,
        driver_tools=with_driver,
        context=None if context is None else shared,
        shared_storage=shared_storage,
        num_cpus=num_cpus,
        budget=budget,
        max_losses=max_losses,
        shows=sys.stderr.isatty() if progress is None else progress,
    )
    return Batch(plan, None if results is None else os.path.abspath(results), resume=resume)


class Batch:
    """The results of a batch as they come: an iterable, sync or async, that can be used once.

    Ending the loop early ends the rollouts: call `close` where you do, or use the batch in a `with` statement.
    """

    def __init__(self, plan: Plan, path: str | None, *, resume: bool) -> None:
        self._plan = plan
        self._path = path
        self._resume = resume
        self._state = State()
        self._is_used = False
        self._iterator: Generator[RolloutResult, None, None] | None = None
        self._reader: int | None = None
        """The thread that has the synchronous loop."""
        self._end: Callable[[], object] | None = None
        """Ends what runs, called in any thread."""
        self._is_closed = False

    @property
    def progress(self) -> Progress:
        """The progress of the batch."""
        state = self._state
        running, waiting = {}, len(state.waiting)
        for place in list(state.places.values()):
            if place.given:
                running[place.address] = min(len(place.given), self._plan.job.concurrency)
                waiting += len(place.given) - running[place.address]
        return Progress(state.done, state.failed, waiting, running, state.losses, state.spent)

    def __aiter__(self) -> AsyncIterator[RolloutResult]:
        self._use()
        return self._results()

    def __iter__(self) -> Iterator[RolloutResult]:
        self._use()
        self._iterator, self._reader = self._in_thread(), threading.get_ident()
        return self._iterator

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the rollouts, and the loop over their results, also one of another task or thread, or that begins later.

        Of a synchronous loop of this thread, all have ended when it returns.
        """
        self._stop()
        if self._reader == threading.get_ident() and self._iterator is not None:
            self._iterator.close()

    def _stop(self) -> None:
        self._is_closed = True
        if self._end is not None:
            with suppress(RuntimeError):  # its event loop has ended
                self._end()

    def _use(self) -> None:
        if self._is_used:
            raise RuntimeError("the results of a batch come once: call run_batch again, with resume=True")
        self._is_used = True

    async def _results(self) -> AsyncGenerator[RolloutResult, None]:
        file = None if self._path is None else Results(self._path, resume=self._resume)
        try:
            before = {} if file is None else file.before
            check_same(self._path or "", before, self._plan.questions)
            for number in range(1, self._plan.attempts + 1):
                for question in self._plan.questions:
                    attempt = Attempt(question, number)
                    if (result := before.get(attempt.id)) is None:
                        self._state.waiting.append(attempt)
                        continue
                    self._state.count(result)
                    yield result
            if not self._state.waiting:
                return
            driver = Driver(self._plan, self._state, file, lambda: str(self.progress))
            self._end = partial(asyncio.get_running_loop().call_soon_threadsafe, driver.close)
            if self._is_closed:
                return
            if not ray.is_initialized():
                raise StartError('Ray is not initialized: call ray.init(), or ray.init("auto") for a cluster that runs')
            try:
                async with aclosing(driver.results()) as results:
                    async for result in results:
                        yield result
            finally:
                await to_its_end(driver.close())
        finally:
            if file is not None:
                file.close()

    def _in_thread(self) -> Generator[RolloutResult, None, None]:
        """The results for synchronous code: attempts go on in a thread, whatever the program does in between."""
        came: queue.Queue[RolloutResult | BaseException | None] = queue.Queue(MAX_UNREAD)
        loop = asyncio.new_event_loop()
        loop.set_default_executor(_DaemonExecutor())

        async def main() -> None:
            async with aclosing(self._results()) as results:
                async for result in results:
                    try:
                        came.put_nowait(result)
                    except queue.Full:
                        await asyncio.to_thread(came.put, result)

        def run() -> None:
            end: BaseException | None = None
            try:
                loop.run_until_complete(task)
            except BaseException as error:
                end = error
                if not task.done():  # SystemExit and KeyboardInterrupt of any task end the loop
                    task.cancel()
                    while not task.done():
                        with suppress(BaseException):
                            loop.run_until_complete(task)
            finally:
                came.put(end)
            loop.close()

        task = loop.create_task(main())
        thread = threading.Thread(target=run, name="rlm-batch", daemon=True)
        thread.start()
        is_over = False
        try:
            while isinstance(one := came.get(), RolloutResult):
                yield one
            is_over = True
            if one is not None:
                raise one
        finally:
            if not is_over:
                self._stop()
                while isinstance(came.get(), RolloutResult):
                    pass
            thread.join()


class _DaemonExecutor(ThreadPoolExecutor):
    """Daemon threads for `asyncio.to_thread`: no function in one keeps the batch, or the program, from ending."""

    def __init__(self) -> None:
        super().__init__()
        self._daemons = Threads()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def deliver(outcome: tuple[Any, BaseException | None]) -> None:
            value, error = outcome
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        self._daemons.start(lambda: fn(*args, **kwargs), deliver)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._daemons.close()
