"""Sessions on the nodes of a cluster, by key."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import time
from contextlib import suppress
from functools import partial
from typing import Any

from ray.exceptions import RayError

from .._config import SessionConfig, check_count, check_seconds
from .._errors import UsageError
from .._tools import tools_of
from ._session import CLOSE_LIMIT, SessionActor
from ._tasks import to_its_end


@dataclasses.dataclass
class _Pooled:
    """The session of a key."""

    start: asyncio.Task[SessionActor] = dataclasses.field(init=False)
    end: asyncio.Future[None] | None = None
    """Done when it is dead: until then it has a place."""
    waiting: int = 0
    """The callers that wait for its start."""
    got: float = 0.0
    """When `get` gave it away."""

    @property
    def session(self) -> SessionActor | None:
        """The session, if it has started."""
        has_started = self.start.done() and not self.start.cancelled() and self.start.exception() is None
        return self.start.result() if has_started else None

    def close(self) -> asyncio.Task[None]:
        """Closes it. From now on it takes no call."""
        self.start.cancel()
        if self.session is not None:
            self.session._refuse_calls()
        return asyncio.create_task(self._close())

    async def _close(self) -> None:
        await asyncio.wait([self.start])
        if self.session is None or self.end is None:
            return
        try:
            await self.session.close()
        finally:
            self.end.cancel()


class SessionPool:
    """Sessions by key: for the agent loops of trainers, which have an id for each request.

        async with SessionPool(tools=[search], max_sessions=256) as pool:
            session = await pool.get(request_id)
            response = await session.execute(code)

    A key has one session, also where several ask for it at once. One whose node has died gives EndedError to the call
    that finds that out; `get` then gives the key a new one. A session that nobody has used for `idle_timeout` seconds
    is closed; so is one that is released. With `max_sessions` of them, `get` waits until one is closed or dies: none is
    lost.

    `config` and `options` are those of `SessionActor`, with `tools`, `driver_tools` and `models`. A pool belongs to the
    event loop that uses it.
    """

    def __init__(
        self,
        config: SessionConfig | str | os.PathLike[str] = ".",
        *,
        max_sessions: int = 64,
        idle_timeout: float = 600.0,
        **options: Any,
    ) -> None:
        check_count("max_sessions", max_sessions)
        if idle_timeout != math.inf:
            check_seconds("idle_timeout", idle_timeout)
        for name in ("tools", "driver_tools"):
            # They may be iterators, which can be read once.
            options[name] = tools_of(options.get(name, ()), name).values()
        self._make = partial(SessionActor, config, **options)
        self._make()  # what is wrong is said here
        self._idle_timeout = idle_timeout
        self._sessions: dict[str, _Pooled] = {}
        self._places = asyncio.Semaphore(max_sessions)
        self._loop: asyncio.AbstractEventLoop | None = None
        """That which uses it."""
        self._closing: asyncio.Task[None] | None = None
        self._unwanted: set[asyncio.Task[None]] = set()
        """Ends of sessions for which nobody has waited."""
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def get(self, key: str) -> SessionActor:
        """The session of this key, which is started at the first use. Raises StartError if it cannot be."""
        self._check_loop()
        found = self._sessions.get(key)
        if found is not None and found.session is not None and found.session._has_ended:
            await self.release(key)
            found = self._sessions.get(key)
        if self._is_closed:
            raise UsageError("the pool is closed: create another")
        if self._closing is None:
            self._closing = asyncio.create_task(self._close_idle())
        if found is None:
            found = self._sessions[key] = _Pooled()
            found.start = asyncio.create_task(self._start(found))
        found.waiting += 1
        try:
            session = await asyncio.shield(found.start)
        except asyncio.CancelledError:
            if found.start.cancelled():
                raise UsageError(f"the session of {key!r} was released before it had started") from None
            if found.waiting == 1 and not found.start.done() and self._sessions.get(key) is found:
                del self._sessions[key]
                self._unwanted.add(ending := found.close())
                ending.add_done_callback(self._unwanted.discard)
            raise
        except BaseException:
            if self._sessions.get(key) is found:
                del self._sessions[key]
            raise
        finally:
            found.waiting -= 1
        found.got = time.monotonic()
        return session

    async def release(self, key: str) -> None:
        """Closes the session of this key, if there is one. Those who wait for its start get UsageError."""
        self._check_loop()
        found = self._sessions.pop(key, None)
        if found is not None:
            # Left half way, it would keep its place.
            await to_its_end(found.close())

    async def close(self) -> None:
        """Closes all of them."""
        self._check_loop()
        self._is_closed = True
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        await to_its_end(asyncio.gather(*(self.release(key) for key in list(self._sessions)), *self._unwanted))

    async def __aenter__(self) -> SessionPool:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise UsageError("this pool belongs to another event loop: create one in the loop that uses it")

    async def _start(self, pooled: _Pooled) -> SessionActor:
        await self._places.acquire()
        try:
            session = await self._make().start()
        except BaseException:
            self._places.release()
            raise
        pooled.end = asyncio.create_task(_end(session))
        pooled.end.add_done_callback(lambda _: self._places.release())
        return session

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(min(self._idle_timeout / 4, 10.0))
            await asyncio.gather(*(self._close_if_idle(key, pooled) for key, pooled in list(self._sessions.items())))

    async def _close_if_idle(self, key: str, pooled: _Pooled) -> None:
        if (session := pooled.session) is None:
            return

        def is_idle() -> bool:
            used = max(pooled.got, session._asked)
            return not pooled.waiting and not session._asking and time.monotonic() - used > self._idle_timeout

        if not is_idle():
            return
        try:
            # Other processes may have the session's handle.
            if await asyncio.wait_for(session.actor.idle.remote(), CLOSE_LIMIT) <= self._idle_timeout:
                return
        except asyncio.TimeoutError:
            return  # what holds it up may be a call
        except RayError:
            pass  # it has died
        if is_idle() and self._sessions.get(key) is pooled:
            await self.release(key)


async def _end(session: SessionActor) -> None:
    with suppress(RayError):
        await session.actor.wait.remote()
