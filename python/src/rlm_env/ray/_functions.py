"""Tools that live with the driver: code in a session on another node calls them as any other."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from ray import cloudpickle

from .._threads import Raised, Threads, message_of
from .._tools import AnyTool, Tool, tools_of
from ._hub import HubClient, Key, letters
from ._tasks import mark_seen

_CLOSE_LIMIT = 5.0
"""Seconds for the ends of calls that are cancelled."""

LIMIT = 300.0
"""Seconds of a call of a driver's tool without a limit of its own."""


def declared(tools: Iterable[Tool[..., Any]]) -> list[Tool[..., Any]]:
    """The tools as nodes get them: without their functions and what these hold, which stay with the driver."""
    return [
        dataclasses.replace(
            tool,
            function=_absent,
            is_async=True,
            timeout=tool.timeout or LIMIT,
            signature=_names(tool.signature),
        )
        for tool in tools
    ]


def _names(signature: inspect.Signature) -> inspect.Signature:
    """A signature that takes the same arguments. Defaults and annotations are left out, since they may not pickle."""
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            one.replace(default=empty if one.default is empty else None, annotation=empty)
            for one in signature.parameters.values()
        ]
    )


def _absent() -> None: ...


def tools_apart(
    tools: Iterable[AnyTool], driver_tools: Iterable[AnyTool]
) -> tuple[list[Tool[..., Any]], list[Tool[..., Any]]]:
    """The tools beside the session, and those of the driver. Raises TypeError or ValueError for what cannot be."""
    beside, with_driver = tools_of(tools), tools_of(driver_tools, "driver_tools")
    if twice := beside.keys() & with_driver.keys():
        raise ValueError(f"the tool {min(twice)} is in tools and in driver_tools")
    return list(beside.values()), list(with_driver.values())


def check_pickles(beside: Iterable[Tool[..., Any]], **models: object) -> None:
    """Raises TypeError for a tool or a model that cannot be sent to nodes."""
    hint = "what it needs must be made on the node, by its first call"
    given: list[tuple[str, object, str]] = [(name, model, hint) for name, model in models.items()]
    given += [(f"the tool {tool.name}", tool, f"{hint}, or give it as one of driver_tools") for tool in beside]
    for name, value, hint in given:
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            raise TypeError(f"{name} cannot be pickled ({message_of(error)}): {hint}") from error


def attached(tools: Iterable[Tool[..., Any]], hub: HubClient) -> list[Tool[..., Any]]:
    """Declared tools whose functions call the driver's, by the hub."""

    def caller(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            is_result, value = cloudpickle.loads(await hub.call(name, args, kwargs))
            if is_result:
                return value
            kind, message = value
            # To the caller, a TypeError means that the arguments may not fit.
            raise type(kind, (TypeError if kind == "TypeError" else Exception,), {})(message)

        return call

    return [dataclasses.replace(tool, function=caller(tool.name)) for tool in tools]


class Functions:
    """Runs the calls that come from nodes: async functions on the running loop, plain ones in threads."""

    def __init__(self, tools: Iterable[AnyTool], hub: Any) -> None:
        self._tools = tools_of(tools)
        self._hub = hub
        self._threads = Threads()
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._serving = asyncio.create_task(self._serve())
        self._is_closed = False

    async def wait(self) -> None:
        """Waits until `close`. Raises the error that ended the calls before, such as the death of the hub."""
        await asyncio.shield(self._serving)

    @property
    def error(self) -> BaseException | None:
        """The error that ended the calls, if it was not `close`."""
        if self._is_closed:
            return None
        if self._serving.cancelled() or not self._loop.is_running():
            return RuntimeError("their event loop has ended")
        return self._serving.exception() if self._serving.done() else None

    async def _serve(self) -> None:
        async for key, call in letters(self._hub.calls):
            if call is not None:
                self._begin(key, call)
            elif key in self._running:
                self._running[key].cancel()

    def _begin(self, key: Key, call: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
        task = self._running[key] = asyncio.create_task(self._call(key, *call))
        # Also called for a task that is cancelled before its first step.
        task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _call(self, key: Key, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        outcome = await self._outcome(self._tools[name], args, kwargs)
        try:
            pickled = cloudpickle.dumps(outcome)
        except BaseException as error:  # of the value's own methods
            words = f"the tool {name} returned a value that cannot be pickled: {message_of(error)}"
            pickled = cloudpickle.dumps((False, (type(error).__name__, words)))
        self._hub.answer.remote(key, pickled)

    async def _outcome(self, tool: Tool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        try:
            return True, await self._threads.call(tool.function, tool.is_async, *args, **kwargs)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if sys.version_info < (3, 11) or task is None or task.cancelling() > 0:
                raise
            # The cancellation is not ours: what the tool waited for was cancelled.
            return False, (type(error).__name__, "the tool cancelled its call")
        except Raised as raised:
            return False, (type(raised.error).__name__, message_of(raised.error))

    async def close(self) -> None:
        """Cancels running calls, and waits a moment for them. A plain function that never returns keeps its thread."""
        self._is_closed = True
        tasks = [self._serving, *self._running.values()]
        running = [task for task in tasks if not task.done()]
        if self._loop is asyncio.get_running_loop():
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=_CLOSE_LIMIT)
        elif self._loop.is_running():
            for task in running:
                self._loop.call_soon_threadsafe(task.cancel)
        mark_seen(tasks)
        self._threads.close()
