"""A persistent session on a node of a cluster, for programs that drive it themselves."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from .._asyncio import AsyncSession
from .._config import SessionConfig
from .._core import INTERRUPT_INTERVAL, Result, check_variables
from .._documents import Info, Response
from .._errors import EndedError, SessionError, StartError, UsageError
from .._files import PrivateDirectory
from .._session import handed_on
from .._tools import AnyTool, Tool
from ._failures import constructor_error, first_line
from ._functions import Functions, attached, check_pickles, declared, tools_apart
from ._hub import HubClient, start_hub

if TYPE_CHECKING:
    from .._models import ChatModel, Models, Spending

_CONCURRENCY = 1000
"""Calls of an actor that are under way at once: one that interrupts must get through."""

_KEPT = 300.0
"""Seconds for which a result can be asked for again: Ray does that as soon as it reaches the actor."""

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _again(method: _Method) -> _Method:
    """A method that Ray calls again where a call or its reply was lost on the way."""
    called_again: _Method = ray.method(max_task_retries=-1)(method)
    return called_again


class _Session:
    """The session in its actor, which ends with its owner; the worker ends with the actor."""

    def __init__(
        self,
        config: SessionConfig,
        tools: list[Any],
        driver_tools: list[Tool[..., Any]],
        models: Models | ChatModel | None,
        hub: Any,
    ) -> None:
        self._directory = PrivateDirectory() if os.fspath(config.fs_root) == "." else None
        if self._directory is not None:
            config = dataclasses.replace(config, fs_root=self._directory.path)
        functions = attached(driver_tools, HubClient(hub, uuid.uuid4().hex))
        self._session = AsyncSession(config, tools=[*tools, *functions], models=models)
        self._calls: dict[str, asyncio.Future[Any]] = {}
        """The results of `once`, by their keys."""
        self._interrupted: set[str] = set()
        """Keys of calls to be interrupted, which may not have come."""
        self._ended = asyncio.Event()
        self._running = 0
        self._used = time.monotonic()

    async def start(self) -> str:
        """Returns the address of the node."""
        try:
            await self._session.start()
        except BaseException:
            self._remove()
            raise
        return str(ray.util.get_node_ip_address())

    @_again
    async def once(self, key: str, had: list[str], method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a method, once for each key, however often Ray makes this call. Its result is kept until it is one that
        the caller has had, or for a while: a handle may not be used again."""
        for one in had:
            self._calls.pop(one, None)
        if key not in self._calls:
            self._keep(key, asyncio.create_task(getattr(self, method)(*args, **kwargs)))
            if key in self._interrupted:
                asyncio.get_running_loop().call_soon(self._stop, key)
        return await asyncio.shield(self._calls[key])

    @_again
    async def cancel(self, key: str) -> None:
        """Cancels the call with this key, also before it comes: large code travels longer than a word."""
        if key not in self._calls:
            self._keep(key, asyncio.get_running_loop().create_future())
        self._calls[key].cancel()

    def _keep(self, key: str, call: asyncio.Future[Any]) -> None:
        self._calls[key] = call
        forget, loop = self._calls.pop, asyncio.get_running_loop()
        call.add_done_callback(lambda _: loop.call_later(_KEPT, forget, key, None))

    async def execute(self, code: str, **options: Any) -> Response:
        return await self._in_use(self._session.execute(code, **options))

    async def set(self, variables: Mapping[str, Any]) -> Response:
        return await self._in_use(self._session.set(variables))

    async def reset(self) -> Response:
        return await self._in_use(self._session.reset())

    async def info(self) -> Info:
        return await self._in_use(self._session.info())

    async def spent(self) -> Spending:
        return await self._in_use(self._session.spent())

    async def save_state(self, directory: bool) -> bytes:
        """The session's state, as the bytes of a saved session."""
        with PrivateDirectory() as place:
            file = f"{place}/state"
            handed_on(await self._in_use(self._session.save(file, directory=directory)))
            with open(file, "rb") as state:
                return state.read()

    async def load_state(self, state: bytes) -> None:
        with PrivateDirectory() as place:
            file = f"{place}/state"
            with open(file, "wb") as copy:
                copy.write(state)
            handed_on(await self._in_use(self._session.load(file)))

    async def interrupt(self, keys: Collection[str] = ()) -> None:
        """Interrupts the running call: with keys, only these, also where one comes later."""
        if not keys:
            self._session.interrupt()
        for key in set(keys) - self._interrupted:
            self._interrupted.add(key)
            asyncio.get_running_loop().call_later(_KEPT, self._interrupted.discard, key)
            self._stop(key)

    def _stop(self, key: str) -> None:
        """Interrupts a call until it ends: it may wait for one that was given up."""
        call = self._calls.get(key)
        if call is not None and not call.done():
            self._session.interrupt()
            asyncio.get_running_loop().call_later(INTERRUPT_INTERVAL, self._stop, key)

    async def restart(self) -> None:
        await self._in_use(self._session.restart())

    @_again
    async def idle(self) -> float:
        """Seconds since the end of the last call: 0 while one runs, whoever makes it."""
        return 0.0 if self._running else time.monotonic() - self._used

    @_again
    async def wait(self) -> None:
        """Waits for the end. Ray ends this call with the actor."""
        await self._ended.wait()

    @_again
    async def close(self) -> None:
        await self._session.close()
        self._remove()
        self._ended.set()

    async def _in_use(self, call: Awaitable[Result]) -> Result:
        self._running += 1
        try:
            return await call
        finally:
            self._running -= 1
            self._used = time.monotonic()

    def _remove(self) -> None:
        if self._directory is not None:
            self._directory.remove()
            self._directory = None


CLOSE_LIMIT = 10.0
"""Seconds for the end of a session; then its actor is killed."""

_Actor: Any = ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=_CONCURRENCY)(_Session)


class SessionActor:
    """A persistent bash or Python session on a node of a Ray cluster: `AsyncSession`, elsewhere.

        async with SessionActor() as session:
            response = await session.execute("ls")

    Without a directory in `config`, or with ".", the session has a new one on its node, which is removed with it; any
    other is one of that node. `tools` run beside the session, pickled by cloudpickle; `driver_tools` here, as long as
    this event loop runs. `options` are those of Ray's actors: `num_cpus` (0.1 by default), `scheduling_strategy`, …

    It pickles, as Ray's handles do: whoever gets it calls the same session. `actor` is Ray's handle, for
    `ray.get(session.actor.execute.remote("ls"))` in synchronous code. The session ends with the program that has
    started it, and with its node: then EndedError names that, and its state is lost.
    """

    def __init__(
        self,
        config: SessionConfig | str | os.PathLike[str] = ".",
        *,
        tools: Iterable[AnyTool] = (),
        driver_tools: Iterable[AnyTool] = (),
        models: Models | ChatModel | None = None,
        **options: Any,
    ) -> None:
        config = config if isinstance(config, SessionConfig) else SessionConfig(config)
        beside, self._driver_tools = tools_apart(tools, driver_tools)
        check_pickles(beside, models=models)
        self.node = ""
        """The address of its node, once it runs."""
        self.actor: Any = None
        self._is_handle = False
        self._given: dict[str, Any] = {"tools": beside, "driver_tools": self._driver_tools, "models": models}
        self._arguments = (config, beside, declared(self._driver_tools), models)
        self._options = {"num_cpus": 0.1, **options}
        self._hub: Any = None
        self._functions: Functions | None = None
        self._starting = asyncio.Lock()
        self._end: tuple[type[SessionError], str] | None = None
        """The error of every call from now on."""
        self._given_up: dict[str, Any] = {}
        """Ray's references to interrupts, and to calls that were cancelled, which may be under way, by their keys."""
        self._had: list[str] = []
        """Keys of calls with a result, which the actor may forget."""
        self._asking: dict[str, str] = {}
        """Methods of calls by this handle that are under way, perhaps not yet there, by the keys."""
        self._asked = 0.0
        """When the last one of them ended."""

    def __reduce__(self) -> Any:
        if self.actor is None:
            raise UsageError("the session has not been started: call start(), or use it in an `async with` statement")
        return _handle, (self.actor, self.node)

    async def start(self) -> SessionActor:
        """Starts it where the cluster has room, and waits until it is ready. Raises StartError if it cannot be."""
        async with self._starting:
            if self._has_ended:
                raise UsageError("the session has ended: start another")
            if self.actor is None:
                try:
                    await self._start()
                except BaseException:
                    await self.close()
                    self.actor = self._end = None
                    raise
        return self

    @property
    def _has_ended(self) -> bool:
        """True once it takes no more calls."""
        return self._end is not None or self._tools_failure is not None

    @property
    def _tools_failure(self) -> BaseException | None:
        """Why the driver's tools cannot be called any more."""
        return None if self._functions is None else self._functions.error

    async def _start(self) -> None:
        if self._driver_tools:
            self._hub = await start_hub(None)
            self._functions = Functions(self._driver_tools, self._hub)
        self.actor = _Actor.options(**self._options).remote(*self._arguments, self._hub)
        self.node = await self._ask("start")

    async def execute(self, code: str, **options: Any) -> Response:
        """Runs code, and returns how that went. The options are those of `AsyncSession.execute`.

        A call whose `await` is cancelled is interrupted.
        """
        response: Response = await self._ask("execute", code, **options)
        return response

    async def set(self, variables: Mapping[str, Any]) -> Response:
        """Sets variables from values that JSON can hold. Raises TypeError or ValueError for another one."""
        check_variables(variables)
        response: Response = await self._ask("set", variables)
        return response

    async def reset(self) -> Response:
        """Ends everything that the session started, and gives it a new interpreter and an empty answer."""
        response: Response = await self._ask("reset")
        return response

    async def branch(self, **options: Any) -> SessionActor:
        """Begins another session with the state of this one, and the same settings and functions. Both go on.

        It runs where the cluster has room; `options` are those of its actor, and this one's by default. If this session
        has a directory of its own, that goes along; any other is one of the node.

        Raises BranchError if the state cannot be handed on.
        """
        if self._is_handle:
            raise UsageError("a session is branched by the program that has started it, where it was started")
        config = self._arguments[0]
        state: bytes = await self._ask("save_state", os.fspath(config.fs_root) == ".")
        branch = SessionActor(config, **self._given, **{**self._options, **options})
        await branch.start()
        try:
            await branch._ask("load_state", state)
        except BaseException:
            await branch.close()
            raise
        return branch

    async def info(self) -> Info:
        """Describes the session."""
        info: Info = await self._ask("info")
        return info

    async def spent(self) -> Spending:
        """The session's spending on models."""
        spending: Spending = await self._ask("spent")
        return spending

    def interrupt(self) -> None:
        """Interrupts the running call: it returns with outcome `interrupted` and its output so far."""
        if self.actor is not None and self._end is None:
            key, keys = uuid.uuid4().hex, [key for key, method in self._asking.items() if method == "execute"]
            # No later call is sent before it has come.
            self._given_up[key] = self.actor.once.remote(key, [], "interrupt", keys)

    async def restart(self) -> None:
        """Ends the worker, dead or alive, and starts another in the same directories. The state is lost."""
        await self._ask("restart")

    async def close(self) -> None:
        """Ends the session and everything it started. Safe to repeat."""
        self._refuse_calls()
        try:
            if self.actor is not None:
                with suppress(RayError, asyncio.TimeoutError):
                    # A session that has found no room yet answers nothing.
                    await asyncio.wait_for(self.actor.close.remote(), CLOSE_LIMIT)
        finally:
            for actor in (self.actor, self._hub):
                if actor is not None:
                    ray.kill(actor)
            functions, self._functions, self._hub = self._functions, None, None
            if functions is not None:
                await functions.close()

    def _refuse_calls(self) -> None:
        """Begins its end: it takes no call that would be cut off."""
        if self.actor is not None:
            self._end = self._end or (UsageError, "the session is closed: start another")

    async def __aenter__(self) -> SessionActor:
        return await self.start()

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _ask(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        if self.actor is None:
            raise UsageError("the session has not been started: call start(), or use it in an `async with` statement")
        if self._end is not None:
            kind, words = self._end
            raise kind(words)
        if (failure := self._tools_failure) is not None:
            raise EndedError(
                f"driver_tools cannot be called any more: start another session ({first_line(failure)})"
            ) from failure
        key = uuid.uuid4().hex
        self._asking[key] = method
        try:
            if method != "restart":
                await self._let_end()
            return await self._once(key, method, *args, **kwargs)
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            kind, words = self._end = self._loss(error)
            raise kind(words) from error
        finally:
            del self._asking[key]
            self._asked = time.monotonic()

    def _loss(self, error: RayError) -> tuple[type[SessionError], str]:
        if (reason := constructor_error(error)) is not None:
            return StartError, f"the session cannot be started on its node: {reason}"
        place = f"on the node {self.node}" if self.node else "that was to start"
        return EndedError, f"the session {place} has ended, and its state is lost: start another ({first_line(error)})"

    async def _let_end(self) -> None:
        """Waits for what may be under way and must not meet the next call."""
        for key, reply in list(self._given_up.items()):
            with suppress(Exception):
                await reply
            if self._given_up.pop(key, None) is not None:
                self._had.append(key)

    async def _once(self, key: str, method: str, /, *args: Any, **kwargs: Any) -> Any:
        had, self._had = self._had, []
        reply = self.actor.once.remote(key, had, method, *args, **kwargs)
        try:
            return await reply
        except asyncio.CancelledError:
            self._given_up[key] = reply
            if method == "execute":
                self.actor.cancel.remote(key)
            raise
        finally:
            if key not in self._given_up:
                self._had.append(key)


def _handle(actor: Any, node: str) -> SessionActor:
    """The session in another process."""
    session = SessionActor()
    session.actor, session.node, session._is_handle = actor, node, True
    return session
