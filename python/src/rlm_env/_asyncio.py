"""Sessions for asyncio."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ._core import Result, Steps
from ._documents import Info, Response
from ._errors import StartError, UsageError
from ._files import PrivateDirectory
from ._link import now
from ._models import Spending
from ._session import BaseSession, can_branch, handed_on, new_name
from ._tool_server import ToolServer


class AsyncSession(BaseSession):
    """A bash or Python session for asyncio code: one worker, which takes one call at a time.

        async with AsyncSession("data") as session:
            response = await session.execute("wc -l *.txt | tail -n 1")

    `tools` are functions of this program that code in the session can call by name; see `tool`. With `models`, it can
    also ask a model by `llm_batch`, within a budget; see `Models`.

    A call whose `await` is cancelled is interrupted; the next call waits until it has ended. The session belongs to the
    event loop that started it. Close it: `async with` does, and so does the end of the program.
    """

    def _set_up(self) -> None:
        self._watcher = _LoopWatcher()
        self._use(self._watcher)
        self._server: ToolServer | None = None
        self._turn = asyncio.Lock()
        """Held by what starts or ends the worker."""
        self._settling: asyncio.Task[None] | None = None

    async def start(self) -> AsyncSession:
        """Starts the worker, and waits until it is ready. Without effect on a session that runs.

        Raises StartError, which says what is wrong; nothing is left behind then.
        """
        async with self._turn:
            if self._core.link is not None:
                self._core.check_place()
                return self
            self._watcher.loop = asyncio.get_running_loop()
            try:
                if self._tools or self._models is not None:
                    self._core.make_directory()
                    self._core.tools = self._server = ToolServer(self._tools, self._models, self._core.control)
                    await self._server.start()
                await self._run(self._core.start())
            except BaseException:
                await self._close()
                raise
        return self

    async def execute(
        self,
        code: str,
        *,
        timeout: float | None = None,
        max_output_bytes: int | None = None,
        source: str | None = None,
    ) -> Response:
        """Runs code, and returns how that went: code that fails is not an error.

        `timeout` is in seconds; at that limit the code is stopped, and its output so far and the state are kept.
        `source` is the code as written, if other code runs: see docs/protocol.md.

        Raises EndedError if the worker is dead: `restart` starts another. A worker that does not answer is replaced:
        the response says that the state was reset.
        """
        return await self._call(self._core.execute(code, timeout, max_output_bytes, source))

    async def set(self, variables: Mapping[str, Any]) -> Response:
        """Sets variables from values that JSON can hold. If one cannot be set, none is, and `hint` says why.

        A value has at most 1 MiB of JSON text. Raises TypeError or ValueError for one that is not JSON.
        """
        return await self._call(self._core.set(variables))

    async def reset(self) -> Response:
        """Ends everything that the session started, and gives it a new interpreter and an empty answer."""
        return await self._call(self._core.reset())

    async def save(self, file: str | os.PathLike[str], *, directory: bool = False) -> Response:
        """Writes the session's state to a file, which replaces one that is there once it is whole. The session goes on.

        With `directory`, the session's directory goes along: a load unpacks it into an empty one.
        What cannot be saved is in `result`, as JSON, and in `hint`. If nothing was saved, `outcome` is not "ok".
        """
        return await self._call(self._core.save(file, directory))

    async def load(self, file: str | os.PathLike[str]) -> Response:
        """Ends everything that the session started, and goes on with the session in a file: with this one's tools.

        The file is a program: it runs with the rights of the session. If it cannot be loaded, `outcome` is not "ok",
        `hint` says why, and the session is as it was.
        """
        return await self._call(self._core.load(file))

    async def branch(self, directory: str | os.PathLike[str] | None = None) -> AsyncSession:
        """Begins another session with the state of this one, and the same settings and functions. Both go on.

        None: in the same directory. A path: in a copy of the directory there; it must be empty, or not exist.
        The interpreter is forked if it can be, as `is_forked` of the new one says. Otherwise the state is saved and
        loaded. `branched` names what the branch has not. Close it like any other.

        Raises BranchError if the state cannot be handed on; nothing is left of the branch then.
        """
        name = new_name()
        forked = can_branch(await self._call(self._core.branch(name, directory is not None)))
        if forked.outcome == "ok":
            branch: AsyncSession = self._new_branch(directory, name)
            try:
                await branch.start()
            except StartError as error:
                forked = dataclasses.replace(forked, hint=str(error))
            else:
                branch._has_forked(forked)
                return branch
        with PrivateDirectory() as place:
            file = f"{place}/state"
            saved = handed_on(await self.save(file, directory=directory is not None))
            branch = self._new_branch(directory)
            try:
                await branch.start()
                branch._has_loaded(forked, saved, await branch.load(file))
            except BaseException:
                await branch.close()
                raise
        return branch

    async def info(self) -> Info:
        """Describes the session: interpreter, memory, working directory, limits. Changes nothing."""
        return await self._call(self._core.info())

    async def spent(self) -> Spending:
        """The session's spending on models, also after its end. Raises UsageError if the session has no models."""
        return await asyncio.to_thread(self._rootd().spent)

    def interrupt(self) -> None:
        """Interrupts the running call: it returns with outcome `interrupted` and its output so far.

        From another thread: `loop.call_soon_threadsafe(session.interrupt)`.
        """
        self._core.interrupt()

    async def restart(self) -> None:
        """Ends the worker, dead or alive, and starts another in the same directories. The state is lost.

        A running call ends with EndedError.
        """
        async with self._turn:
            await self._run(self._core.restart())

    async def close(self) -> None:
        """Ends the worker and everything it started. A running call ends with EndedError. Safe to repeat.

        Does nothing in a forked process, to which the session does not belong.
        """
        if self._core.is_foreign:
            return
        self._core.begin_close()
        async with self._turn:
            await self._close()

    async def _close(self) -> None:
        is_here = asyncio.get_running_loop() is self._watcher.loop
        try:
            if is_here:
                await self._run(self._core.end())
                if self._server is not None:
                    await self._server.close()
        finally:
            self._finalizer()

    async def __aenter__(self) -> AsyncSession:
        return await self.start()

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _call(self, steps: Steps[Result]) -> Result:
        if self._watcher.loop not in (None, asyncio.get_running_loop()):
            raise UsageError("this session belongs to another event loop: create one in the loop that uses it")
        if self._settling is not None:
            await asyncio.wait([self._settling])
        return await self._run(steps)

    async def _run(self, steps: Steps[Result]) -> Result:
        try:
            return await self._watcher.run(steps)
        except asyncio.CancelledError:
            steps.close()
            if self._core.give_up():
                self._settling = asyncio.create_task(self._watcher.run(self._core.settle()))
            raise


class _LoopWatcher:
    """The event loop's readers and writers, and the tasks that wait for any of them: a call, and perhaps `close`."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[None]] = set()

    async def run(self, steps: Steps[Result]) -> Result:
        try:
            deadline = next(steps)
            while True:
                await self.news(deadline)
                deadline = steps.send(None)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def news(self, deadline: float | None) -> None:
        """Waits until a callback has run, or until the deadline."""
        assert self.loop is not None
        waiter = self.loop.create_future()
        self._waiters.add(waiter)
        timer = None if deadline is None else self.loop.call_later(deadline - now(), self._resume)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """Does nothing: the descriptors belong to others."""

    def wake(self) -> None:
        """Resumes the steps that wait. From any thread."""
        if self._waiters and self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self.loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _call(self, callback: Callable[[], object]) -> None:
        callback()
        self._resume()

    def watch_reads(self, fd: int, callback: Callable[[], object]) -> None:
        assert self.loop is not None
        self.loop.add_reader(fd, self._call, callback)

    def watch_writes(self, fd: int, callback: Callable[[], object]) -> None:
        assert self.loop is not None
        self.loop.add_writer(fd, self._call, callback)

    def forget_reads(self, fd: int) -> None:
        self._forget("remove_reader", fd)

    def forget_writes(self, fd: int) -> None:
        self._forget("remove_writer", fd)

    def _forget(self, method: str, fd: int) -> None:
        if self.loop is not None and not self.loop.is_closed():
            getattr(self.loop, method)(fd)
