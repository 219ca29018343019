"""A session's logic, once for asyncio and for synchronous code.

Each operation is a generator of steps: it yields the moment until which it can wait for news of its worker (None:
without end), and is resumed when there is some, or at that moment. `AsyncSession` and `Session` only wait, each in its
own way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import suppress
from signal import Signals
from typing import Any, Protocol, TypeVar

from ._config import SessionConfig, check_seconds
from ._documents import Answer, Info, Response
from ._errors import EndedError, ProtocolError, SessionError, StartError, UsageError
from ._files import PrivateDirectory, copy_own_file, write_own_file
from ._link import END_LIMIT, Link, Watcher, now
from ._programs import find_program
from ._rootd import Rootd

Result = TypeVar("Result")
Steps = Generator["float | None", None, Result]

OPERATION_LIMIT = 100.0
"""Seconds in which a worker answers to `reset`, `set` and `info`, whatever the session does."""

SETTLE_LIMIT = 30.0
"""Seconds in which an interrupted call must end. Otherwise its worker is replaced."""

INTERRUPT_INTERVAL = 0.25
"""Seconds between interrupts. They are repeated: one that comes before the worker has read the request is lost."""

_to_json = json.JSONEncoder(ensure_ascii=False).encode

_SAVED = "rlm_saved"
"""Name in the control directory of a copy of a saved session: a confined worker reaches no other file."""

_FILES = ("rlm_cmd", "rlm_cmd.new", "rlm_res", "rlm_res.new", "rlm_ready", "rlm_answer.json")


class Tools(Protocol):
    """The server of a session's tools."""

    rootd: Rootd | None

    def variables(self) -> dict[str, str]: ...
    def enter_context(self) -> None: ...
    def abandon(self) -> None: ...


class Core:
    """One worker, which takes one call at a time."""

    def __init__(self, config: SessionConfig, watcher: Watcher) -> None:
        self.config = config
        # Made absolute once: the program may change its directory before a restart.
        self._root = os.path.abspath(config.fs_root)
        self.control = "" if config.control_dir is None else os.path.abspath(config.control_dir)
        self.link: Link | None = None
        """The worker, from its readiness to its end."""
        self.answer = Answer()
        self.executions = 0
        self.tools: Tools | None = None
        self.branch_name: str | None = None
        """The branch as which the worker begins."""
        self.is_closing = False
        self._watcher = watcher
        self._private: PrivateDirectory | None = None
        self._owner = os.getpid()
        self._is_closed = False
        self._starting: Link | None = None
        self._is_stopping = False
        self._seq = 0
        self._running: tuple[int, float | None] | None = None
        """The call that the worker has: its number, and the moment at which the worker is given up."""
        self._is_waiting = False
        """Somebody waits for that call."""
        self._loss: Response | None = None

    # The life of the worker

    @property
    def is_foreign(self) -> bool:
        """True if this process is a fork of the one that the session belongs to."""
        return os.getpid() != self._owner

    def check(self) -> Link:
        """The worker, if a call can be made now."""
        self.check_place()
        if self._starting is not None:
            raise UsageError("the session is being started: wait until start() has returned")
        if self.link is None:
            raise UsageError("the session has not been started: call start(), or use it in a `with` statement")
        if self._is_waiting:
            raise UsageError(
                "another call of this session is running, and a session runs one at a time: "
                "use a session for each task; a tool cannot call back into the session that called it"
            )
        return self.link

    def check_place(self) -> None:
        """Refuses a forked process, and a session that is closed."""
        if self.is_foreign:
            raise UsageError(
                f"this session belongs to process {self._owner}, of which this one is a fork: "
                "create a session of its own here, from session.config"
            )
        if self._is_closed or self.is_closing:
            raise UsageError("the session is closed: create another from session.config")

    def make_directory(self) -> None:
        """Makes the control directory, if it is private."""
        self.check_place()
        if self.config.control_dir is None and self._private is None:
            try:
                self._private = PrivateDirectory()
            except OSError as error:
                raise StartError(f"cannot make a private control directory: {error}") from error
            self.control = self._private.path

    def start(self) -> Steps[None]:
        """Starts the worker, and waits until it is ready."""
        config = self.config
        try:
            worker = str(config.worker or find_program(f"rlm-worker-{config.language}"))
        except FileNotFoundError as error:
            raise StartError(str(error)) from None
        self.make_directory()
        context = json.dumps({"fs_root": self._root, "fs_metadata": config.fs_metadata})
        try:
            write_own_file(f"{self.control}/rlm_context.json", context)
        except OSError as error:
            raise StartError(f"cannot write to the control directory {self.control}: {error}") from error
        environment = {**config.environment(), "RLM_HOST_PID": str(os.getpid())}
        if self.branch_name is not None:
            # A worker that takes its place does not begin there.
            environment["RLM_BRANCH_NAME"], self.branch_name = self.branch_name, None
        if self.tools is not None:
            environment.update(self.tools.variables())
        if config.exec_timeout is not None:
            environment["RLM_EXEC_TIMEOUT"] = repr(float(config.exec_timeout))
        if config.max_output_bytes is not None:
            environment["RLM_MAX_OUTPUT_BYTES"] = str(config.max_output_bytes)
        link = self._starting = Link(self._watcher, worker, self.control, environment)
        try:
            deadline = now() + config.start_limit
            while not link.is_ready and not link.is_dead and now() < deadline:
                yield deadline
            if self.is_closing or self._is_closed:
                raise UsageError("the session was closed while it was being started")
            if not link.is_ready:
                was_late = not link.is_dead
                link.end()
                if was_late:
                    raise StartError(f"the worker was not ready within {config.start_limit:g} s, and was ended")
                words = link.last_words() or f"it said nothing; is {worker} a worker?"
                raise StartError(f"the worker ended before it was ready ({link.status()}): {words}")
            link.open_fifos()
        except BaseException:
            link.end()
            link.close()
            raise
        finally:
            self._starting = None
        self.link = link

    def restart(self) -> Steps[None]:
        """Ends the worker, and starts another in the same directories. The state is lost."""
        self.check_place()
        link = self.link
        if link is not None:
            self.end_call()
            while self._is_waiting:  # its caller is about to learn of it
                yield now() + 0.01
            yield from self._end(link)
        yield from self._start_again()

    def _start_again(self) -> Steps[None]:
        self.link = self._running = self._loss = None
        self.answer = Answer()
        # The session may have damaged the directories.
        os.makedirs(self.control, exist_ok=True)
        for name in _FILES:
            with suppress(OSError):
                os.unlink(f"{self.control}/{name}")
        yield from self.start()

    def begin_close(self) -> None:
        """Ends a start or a call that somebody waits for."""
        if self.is_foreign or self._is_closed:
            return
        self.is_closing = True
        if self._starting is not None:
            self._starting.terminate(Signals.SIGTERM)
        self.end_call()

    def end_call(self) -> None:
        """Ends the worker if somebody waits for a call."""
        if self._is_waiting and self.link is not None and not self.is_foreign:
            self.link.terminate(Signals.SIGTERM)

    def end(self) -> Steps[None]:
        """Ends the worker and everything it started; `abandon` ends the rest. Safe to repeat."""
        if self.is_foreign or self._is_closed:
            return
        self.is_closing = True
        link = self.link
        if link is not None and not link.is_dead and self._running is None:
            link.send(b'{"shutdown": true}\n')
            deadline = now() + self.config.margin
            while not link.is_dead and now() < deadline:
                yield deadline
        if link is not None:
            yield from self._end(link)

    def _end(self, link: Link) -> Steps[None]:
        if not link.is_dead:
            link.terminate(Signals.SIGTERM)
            deadline = now() + END_LIMIT
            while not link.is_dead and now() < deadline:
                yield deadline
        link.end()
        link.close()

    def abandon(self) -> None:
        """Ends everything at once. Blocks; safe to repeat, and without effect in a forked child."""
        if self.is_foreign:
            return
        self._is_closed = True
        for link in (self._starting, self.link):
            if link is not None:
                link.end()
                link.close()
        if self.tools is not None:
            self.tools.abandon()
        self._watcher.close()
        if self._private is not None:
            self._private.remove()
            self._private = None

    # Calls

    def execute(
        self, code: str, timeout: float | None, max_output_bytes: int | None, source: str | None
    ) -> Steps[Response]:
        if not isinstance(code, str):
            raise TypeError(f"code must be a str, not {type(code).__name__}")
        request: dict[str, Any] = {"code": code}
        if source is not None:
            request["source"] = source
        if timeout is not None:
            check_seconds("timeout", timeout)
            request["timeout"] = timeout
        if max_output_bytes is not None:
            request["max_output_bytes"] = max_output_bytes
        limit = self.config.exec_timeout if timeout is None else timeout
        return self._ask(request, None if limit is None else limit + self.config.margin)

    def reset(self) -> Steps[Response]:
        return self._operate({"op": "reset"})

    def set(self, variables: Mapping[str, Any]) -> Steps[Response]:
        check_variables(variables)
        return self._operate({"op": "set", "variables": dict(variables)})

    def info(self) -> Steps[Info]:
        response = yield from self._operate({"op": "info"})
        if response.result is None:
            raise ProtocolError(response.hint or "the worker does not describe the session")
        return Info.from_json(response.result)

    def save(self, file: str | os.PathLike[str], directory: bool) -> Steps[Response]:
        path = os.path.abspath(file)
        if not self._is_confined():
            return (yield from self._pass("save", path, directory))
        copy = f"{self.control}/{_SAVED}"
        response = yield from self._pass("save", _SAVED, directory)
        if response.outcome == "ok":
            copy_own_file(copy, path)
            os.unlink(copy)
        return response

    def load(self, file: str | os.PathLike[str]) -> Steps[Response]:
        path = os.path.abspath(file)
        if not self._is_confined():
            return (yield from self._pass("load", path))
        self.check()
        copy = f"{self.control}/{_SAVED}"
        copy_own_file(os.path.realpath(path), copy)
        try:
            return (yield from self._pass("load", _SAVED))
        finally:
            os.unlink(copy)

    def branch(self, name: str, directory: bool) -> Steps[Response]:
        return self._ask({"op": "branch", "name": name, "directory": directory}, self._state_limit())

    def _is_confined(self) -> bool:
        return self.config.environment().get("RLM_CONFINE", "off") not in ("", "off")

    def _pass(self, op: str, file: str, directory: bool = False) -> Steps[Response]:
        request = {"op": op, "file": file, **({"directory": True} if directory else {})}
        return self._ask(request, self._state_limit())

    def _state_limit(self) -> float | None:
        limit = self.config.exec_timeout
        return None if limit is None else limit + OPERATION_LIMIT + self.config.margin

    def _operate(self, request: dict[str, Any]) -> Steps[Response]:
        return self._ask(request, OPERATION_LIMIT + self.config.margin)

    def _ask(self, request: dict[str, Any], limit: float | None) -> Steps[Response]:
        link = self.check()
        if self._running is not None:
            yield from self.settle()
            link = self.check()
        if self._loss is not None:
            loss, self._loss = self._loss, None
            return loss
        if link.is_dead:
            raise link.death()
        if self.tools is not None:
            self.tools.enter_context()
        self._seq += 1
        # The worker sees only the beginning of a request that is too large, so the number comes first. Half a surrogate
        # pair is not UTF-8: the worker refuses it with a hint that says so.
        document = _to_json({"seq": self._seq, **request}).encode(errors="surrogatepass") + b"\n"
        link.has_sent = False
        self._running = (self._seq, None if limit is None else now() + limit)
        self._is_waiting = True
        self._is_stopping = False
        try:
            link.send(document)
            response = yield from self._response(link)
            if response is None:
                response = yield from self._replace(limit)
            return response
        finally:
            self._is_waiting = False

    def _response(self, link: Link) -> Steps[Response | None]:
        """Waits for the response to the running call. None: the worker did not answer in time."""
        assert self._running is not None
        seq, deadline = self._running
        try:
            while True:
                while link.responses:
                    response = Response.from_json(link.responses.popleft())
                    if response.seq == seq:
                        self._running = None
                        self.answer = response.answer
                        self.executions = response.execution_count
                        return response
                if link.fault is not None:
                    raise link.fault
                if link.is_dead:
                    if self._is_closed or self.is_closing:
                        raise EndedError("the session was closed while the call was running")
                    raise link.death()
                if deadline is not None and now() >= deadline:
                    return None
                if self._is_stopping:
                    link.signal(Signals.SIGINT)
                    pause = now() + INTERRUPT_INTERVAL
                    yield pause if deadline is None else min(deadline, pause)
                else:
                    yield deadline
        except SessionError:
            self._running = None
            raise

    def _replace(self, limit: float | None) -> Steps[Response]:
        """Replaces a worker that does not even answer at its own time limit."""
        answer = self.answer
        if self.link is not None:
            yield from self._end(self.link)
        yield from self._start_again()
        self.answer = answer
        hint = f"the worker did not answer within {limit or 0:g} s and was replaced: the session's state is lost"
        return Response(
            status="error",
            stdout="",
            stderr="",
            result=None,
            execution_count=self.executions,
            seq=self._seq,
            answer=answer,
            outcome="timed_out",
            state="reset",
            execution_time=limit or 0.0,
            exit_code=None,
            exception=None,
            truncated=None,
            hint=hint,
        )

    # Calls that their callers have given up

    def give_up(self) -> bool:
        """Interrupts the running call after its caller has gone. True if `settle` has to wait for its end."""
        if self._running is None or self._is_closed or self.link is None or self.is_foreign:
            return False
        if not self.link.has_sent:
            self.link.take_back()
            self._running = None
            return False
        self._is_stopping = True
        self.link.signal(Signals.SIGINT)
        return True

    def settle(self) -> Steps[None]:
        """Waits for the response to a call that its caller has given up, and interrupts the call until then."""
        if self._running is None or self.link is None:
            return
        seq, deadline = self._running
        limit = now() + SETTLE_LIMIT
        self._running = (seq, limit if deadline is None else min(deadline, limit))
        self._is_stopping = self._is_waiting = True
        try:
            if (yield from self._response(self.link)) is None:
                self._loss = yield from self._replace(SETTLE_LIMIT)
        except (EndedError, ProtocolError):
            pass  # the next call meets it, too
        finally:
            self._is_waiting = False

    def interrupt(self) -> None:
        """Interrupts the running call until it ends. Does nothing if no call runs."""
        if self._running is not None and self.link is not None and not self.is_foreign:
            self._is_stopping = True
            self.link.signal(Signals.SIGINT)
            self._watcher.wake()


def check_variables(variables: Mapping[str, Any]) -> None:
    """Raises TypeError or ValueError for what `set` cannot send."""
    if not isinstance(variables, Mapping):
        raise TypeError(f"variables must be a dict of names and values, not {type(variables).__name__}")
    for name, value in variables.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise type(error)(f"the variable {name!r} cannot be sent as JSON: {error}") from None
