"""Sessions for synchronous code."""

from __future__ import annotations

import dataclasses
import os
import select
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ._core import Result, Steps
from ._documents import Info, Response
from ._errors import StartError, UsageError
from ._files import PrivateDirectory
from ._link import now
from ._models import Spending
from ._session import BaseSession, can_branch, handed_on, new_name
from ._tool_server import ThreadedToolServer


class Session(BaseSession):
    """A bash or Python session: one worker, which takes one call at a time.

        with Session("data") as session:
            print(session.execute("wc -l *.txt | tail -n 1").stdout)

    `tools` are functions of this program that code in the session can call by name; see `tool`. They run in threads of
    their own, so a call can wait for them. With `models`, it can also ask a model by `llm_batch`, within a budget; see
    `Models`.

    Works in any thread, and where an event loop already runs, as in a notebook. Ctrl-C interrupts the running call, and
    the next one is clean. Close it: `with` does, and so does the end of the program.
    """

    def _set_up(self) -> None:
        self._watcher = _PollWatcher()
        self._use(self._watcher)
        self._server: ThreadedToolServer | None = None
        self._runner: int | None = None
        """The thread that waits for a call."""
        self._lock = threading.RLock()

    def start(self) -> Session:
        """Starts the worker, and waits until it is ready. Without effect on a session that runs.

        Raises StartError, which says what is wrong; nothing is left behind then.
        """
        with self._lock:
            if self._core.link is not None:
                self._core.check_place()
                return self
            try:
                if self._tools or self._models is not None:
                    self._core.make_directory()
                    self._core.tools = self._server = ThreadedToolServer(self._tools, self._models, self._core.control)
                self._run(self._core.start())
            except BaseException:
                self._close()
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

        Raises EndedError if the worker is dead: `restart` starts another. A worker that does not answer is replaced:
        the response says that the state was reset.
        """
        return self._call(self._core.execute(code, timeout, max_output_bytes, source))

    def set(self, variables: Mapping[str, Any]) -> Response:
        """Sets variables from values that JSON can hold. If one cannot be set, none is, and `hint` says why.

        A value has at most 1 MiB of JSON text. Raises TypeError or ValueError for one that is not JSON.
        """
        return self._call(self._core.set(variables))

    def reset(self) -> Response:
        """Ends everything that the session started, and gives it a new interpreter and an empty answer."""
        return self._call(self._core.reset())

    def save(self, file: str | os.PathLike[str], *, directory: bool = False) -> Response:
        """Writes the session's state to a file, which replaces one that is there once it is whole. The session goes on.

        With `directory`, the session's directory goes along: a load unpacks it into an empty one.
        What cannot be saved is in `result`, as JSON, and in `hint`. If nothing was saved, `outcome` is not "ok".
        """
        return self._call(self._core.save(file, directory))

    def load(self, file: str | os.PathLike[str]) -> Response:
        """Ends everything that the session started, and goes on with the session in a file: with this one's tools.

        The file is a program: it runs with the rights of the session. If it cannot be loaded, `outcome` is not "ok",
        `hint` says why, and the session is as it was.
        """
        return self._call(self._core.load(file))

    def branch(self, directory: str | os.PathLike[str] | None = None) -> Session:
        """Begins another session with the state of this one, and the same settings and functions. Both go on.

        None: in the same directory. A path: in a copy of the directory there; it must be empty, or not exist.
        The interpreter is forked if it can be, as `is_forked` of the new one says. Otherwise the state is saved and
        loaded. `branched` names what the branch has not. Close it like any other.

        Raises BranchError if the state cannot be handed on; nothing is left of the branch then.
        """
        name = new_name()
        forked = can_branch(self._call(self._core.branch(name, directory is not None)))
        if forked.outcome == "ok":
            branch: Session = self._new_branch(directory, name)
            try:
                branch.start()
            except StartError as error:
                forked = dataclasses.replace(forked, hint=str(error))
            else:
                branch._has_forked(forked)
                return branch
        with PrivateDirectory() as place:
            file = f"{place}/state"
            saved = handed_on(self.save(file, directory=directory is not None))
            branch = self._new_branch(directory)
            try:
                branch.start()
                branch._has_loaded(forked, saved, branch.load(file))
            except BaseException:
                branch.close()
                raise
        return branch

    def info(self) -> Info:
        """Describes the session: interpreter, memory, working directory, limits. Changes nothing."""
        return self._call(self._core.info())

    def spent(self) -> Spending:
        """The session's spending on models, also after its end. Raises UsageError if the session has no models."""
        return self._rootd().spent()

    def interrupt(self) -> None:
        """Interrupts the running call, from another thread: it returns with outcome `interrupted`."""
        self._core.interrupt()

    def restart(self) -> None:
        """Ends the worker, dead or alive, and starts another in the same directories. The state is lost.

        A running call of another thread ends with EndedError.
        """
        self._core.end_call()
        with self._lock:
            self._run(self._core.restart())

    def close(self) -> None:
        """Ends the worker and everything it started. A call of another thread ends with EndedError. Safe to repeat.

        In a signal handler or a tool, it ends the running call, whose caller then closes the session. Does nothing in a
        forked process, to which the session does not belong.
        """
        if self._core.is_foreign:
            return
        self._core.begin_close()
        if self._runner == threading.get_ident():
            return  # a signal handler: the call that it interrupted closes
        if self._server is not None and self._server.is_here():
            # A tool cannot wait for the end of its own thread.
            threading.Thread(target=self.close, name="rlm-close").start()
            return
        with self._lock:
            self._close()

    def _close(self) -> None:
        try:
            self._run(self._core.end())
            if self._server is not None:
                self._server.close()
        finally:
            self._finalizer()

    def __enter__(self) -> Session:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _call(self, steps: Steps[Result]) -> Result:
        self._core.check()
        with self._lock:
            self._runner = threading.get_ident()
            try:
                return self._run(steps)
            finally:
                self._runner = None
                if self._core.is_closing:
                    self._close()

    def _run(self, steps: Steps[Result]) -> Result:
        try:
            return self._watcher.run(steps)
        except UsageError:
            raise
        except BaseException:
            # After Ctrl-C, or an exception of a signal handler, the code ends before its caller goes on. A second one
            # leaves the rest of the wait to the next call.
            steps.close()
            if self._core.give_up():
                self._watcher.run(self._core.settle())
            raise


# A signal that comes between the interpreter's last check for one and the system call does not end the system call.
_LONGEST_WAIT = 0.5


class _PollWatcher:
    """Waits in `poll`, in the caller's thread."""

    def __init__(self) -> None:
        self._events = select.poll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        try:
            self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError as error:
            raise StartError(f"cannot make the session's event descriptor: {error}") from error
        self.watch_reads(self._alarm, self._silence)

    def run(self, steps: Steps[Result]) -> Result:
        try:
            deadline = next(steps)
            while True:
                wait = _LONGEST_WAIT if deadline is None else min(max(0.0, deadline - now()), _LONGEST_WAIT)
                for fd, _events in self._events.poll(wait * 1000):
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
            self.forget_reads(self._alarm)
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
