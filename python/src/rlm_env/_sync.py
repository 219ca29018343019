"""Sessions for synchronous code."""

from __future__ import annotations

import os
import select
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._config import SessionConfig
from ._core import Core, Result, Steps, refuse_pickle
from ._documents import Answer, Info, Response
from ._link import now
from ._tools import ThreadedToolServer, Tool, tools_of


class Session:
    """A bash or Python session: one worker, which takes one call at a time.

        with Session("data") as session:
            print(session.execute("wc -l *.txt | tail -n 1").stdout)

    `tools` are functions of this program that code in the session can call by name; see `tool`. They run in threads of
    their own, so a call can wait for them.

    Works in any thread, and where an event loop already runs, as in a notebook. Ctrl-C interrupts the running call, and
    the next one is clean. Close it: `with` does, and so does the end of the program.
    """

    def __init__(
        self,
        config: SessionConfig | str | os.PathLike[str] = ".",
        *,
        tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
    ) -> None:
        self.config = config if isinstance(config, SessionConfig) else SessionConfig(config)
        """How the session was started. It pickles; the session does not."""
        self._tools = tools_of(tools)
        self._watcher = _PollWatcher()
        self._core = Core(self.config, self._watcher)
        self._server: ThreadedToolServer | None = None
        self._lock = threading.RLock()
        self._finalizer = weakref.finalize(self, _abandon, self._core, self._watcher)

    def start(self) -> Session:
        """Starts the worker, and waits until it is ready. Without effect on a session that runs.

        Raises StartError, which says what is wrong; nothing is left behind then.
        """
        if self._core.link is not None:
            return self
        try:
            if self._tools:
                self._core.make_directory()
                self._server = ThreadedToolServer(self._tools, self._core.control)
                self._core.variables = self._server.variables()
            with self._lock:
                self._run(self._core.start())
        except BaseException:
            self.close()
            raise
        return self

    def execute(
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

        Raises EndedError if the worker is dead: `restart` starts another. One that does not answer is replaced, and the
        response says that the state was reset.
        """
        return self._call(self._core.execute(code, timeout, max_output_bytes, source))

    def set(self, variables: Mapping[str, Any]) -> Response:
        """Sets variables from values that JSON can hold: all, or none, and then `hint` says why.

        A value has at most 1 MiB of JSON text. Raises TypeError or ValueError for one that is not JSON.
        """
        return self._call(self._core.set(variables))

    def reset(self) -> Response:
        """Ends everything that the session started, and gives it a new interpreter and an empty answer."""
        return self._call(self._core.reset())

    def info(self) -> Info:
        """Describes the session: interpreter, memory, working directory, limits. Changes nothing."""
        return self._call(self._core.info())

    def interrupt(self) -> None:
        """Interrupts the running call, from another thread: it returns with outcome `interrupted`."""
        self._core.interrupt()

    def restart(self) -> None:
        """Ends the worker, dead or alive, and starts another in the same directories. The state is lost."""
        with self._lock:
            self._run(self._core.restart())

    def close(self) -> None:
        """Ends the worker and everything it started. A call of another thread ends with EndedError. Safe to repeat."""
        self._core.begin_close()
        try:
            with self._lock:
                self._run(self._core.close())
        finally:
            self._finalizer()
            if self._server is not None:
                server, self._server = self._server, None
                server.close()

    @property
    def answer(self) -> Answer:
        """The answer after the latest call."""
        return self._core.answer

    @property
    def pid(self) -> int | None:
        """The worker's process."""
        return None if self._core.link is None else self._core.link.pid

    @property
    def control_dir(self) -> str:
        """The directory of the FIFOs, the history and the worker's log."""
        return self._core.control

    def __enter__(self) -> Session:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return refuse_pickle(self)

    def __del__(self) -> None:
        finalizer = getattr(self, "_finalizer", None)  # not there if the arguments were wrong
        if finalizer is not None and finalizer.alive and self._core.link is not None:
            warnings.warn(f"a Session was not closed: {self.config}", ResourceWarning, source=self, stacklevel=1)

    def _call(self, steps: Steps[Result]) -> Result:
        self._core.check()
        if self._server is not None:
            self._server.enter_context()
        with self._lock:
            return self._run(steps)

    def _run(self, steps: Steps[Result]) -> Result:
        try:
            return self._watcher.run(steps)
        except (KeyboardInterrupt, SystemExit):
            # The code ends before its caller goes on. A second Ctrl-C leaves the rest of the wait to the next call.
            steps.close()
            if self._core.give_up():
                self._watcher.run(self._core.settle())
            raise


def _abandon(core: Core, watcher: _PollWatcher) -> None:
    core.abandon()
    watcher.close()


class _PollWatcher:
    """Waits in `poll`, in the caller's thread."""

    def __init__(self) -> None:
        self._events = select.poll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.watch_reads(self._alarm, self._silence)

    def run(self, steps: Steps[Result]) -> Result:
        try:
            deadline = next(steps)
            while True:
                wait = None if deadline is None else max(0.0, deadline - now()) * 1000
                for fd, _events in self._events.poll(wait):
                    if (callback := self._callbacks.get(fd)) is not None:
                        callback()
                deadline = steps.send(None)
        except StopIteration as end:
            result: Result = end.value
            return result

    def wake(self) -> None:
        if self._alarm >= 0:
            os.eventfd_write(self._alarm, 1)

    def _silence(self) -> None:
        os.eventfd_read(self._alarm)

    def close(self) -> None:
        if self._alarm >= 0:
            os.close(self._alarm)
        self._alarm = -1

    def watch_reads(self, fd: int, callback: Callable[[], object]) -> None:
        self._callbacks[fd] = callback
        self._events.register(fd, select.POLLIN)

    def watch_writes(self, fd: int, callback: Callable[[], object]) -> None:
        self._callbacks[fd] = callback
        self._events.register(fd, select.POLLOUT)

    def forget_reads(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._events.unregister(fd)

    forget_writes = forget_reads
