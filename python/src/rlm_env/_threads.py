"""Threads in which plain functions of this program run."""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

Outcome = tuple[Any, "BaseException | None"]
_Work = tuple[Callable[[], Any], Callable[[Outcome], object]]


class Raised(Exception):
    """Wraps any exception of a tool, also of one that runs in a thread."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Threads:
    """Daemon threads, used again: one that never returns keeps nothing from ending, and none waits for another."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[_Work | None]] = []
        self._is_closed = False
        self._owner = os.getpid()

    async def call(self, function: Callable[..., Any], is_async: bool, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function: an async one on the event loop, a plain one in a thread. Raises Raised for all that it
        raises, except where it is cancelled."""
        try:
            if is_async:
                return await function(*args, **kwargs)
            context = contextvars.copy_context()
            result = await self.run(lambda: context.run(function, *args, **kwargs))
            return await result if isinstance(result, Awaitable) else result
        except (asyncio.CancelledError, Raised):
            raise
        except BaseException as error:
            raise Raised(error) from None

    async def run(self, function: Callable[[], Any]) -> Any:
        """Runs a function in a thread. If this is cancelled, its result is dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self.start(function, lambda outcome: loop.call_soon_threadsafe(_settle, future, outcome))
        result, error = await future
        if error is not None:
            raise Raised(error)
        return result

    def start(self, function: Callable[[], Any], deliver: Callable[[Outcome], object]) -> None:
        """Runs a function in a thread, and then `deliver` with its outcome, which takes no time."""
        try:
            works = self._idle.pop()
        except IndexError:
            works = queue.SimpleQueue()
            try:
                threading.Thread(target=self._serve, args=(works,), name="rlm-tool", daemon=True).start()
            except RuntimeError as error:  # there are too many
                deliver((None, error))
                return
        works.put((function, deliver))

    def close(self) -> None:
        """Ends the threads. Busy ones end when they are done."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _serve(self, works: queue.SimpleQueue[_Work | None]) -> None:
        while (work := works.get()) is not None:
            function, deliver = work
            outcome: Outcome
            try:
                outcome = (function(), None)
            except BaseException as error:
                outcome = (None, error)
            if os.getpid() != self._owner:
                os._exit(0)  # the function has forked, and this is the child: the reply is the parent's
            # Before `deliver`: the next call then finds this thread, and need not start another.
            self._idle.append(works)
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                deliver(outcome)
            del work, function, deliver, outcome
            if self._is_closed:
                self.close()


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if not future.done():
        future.set_result(outcome)


def message_of(error: BaseException) -> str:
    """The error's message, even if asking for it fails."""
    try:
        return str(error).encode(errors="replace").decode()
    except BaseException:
        return "<its message cannot be shown>"


def words_of(error: BaseException) -> str:
    """The error's type and message."""
    message = message_of(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
