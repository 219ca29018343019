"""Calls of tools: the body of a request becomes the call of a function, and its outcome a reply."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from . import _pickle
from ._threads import Raised, Threads, words_of
from ._tools import Tool

Reply = tuple[int, Mapping[str, Any]]
"""A status, and the body."""
Answer = Reply | Callable[[], Coroutine[Any, Any, Reply]]
"""A reply, or a function that produces it on the event loop."""

_LARGE_BODY = 256 << 10


@dataclass(frozen=True)
class Plain:
    """A call of a plain function, to run in a thread. It may return something to await."""

    run: Callable[[], Answer]


class ToolCalls:
    """Answers calls of these tools."""

    def __init__(self, tools: Mapping[str, Tool[..., Any]], threads: Threads) -> None:
        self._tools = tools
        self._threads = threads

    def answer(self, body: bytes) -> Answer | Plain:
        """The reply to a request, or what produces it."""
        if len(body) > _LARGE_BODY:
            return lambda: self._decode(body)
        try:
            call = self._read(body)
        except _Refusal as refusal:
            return refusal.reply
        if call.tool.is_async or call.tool.timeout is not None:
            return lambda: call.reply(self._limited(call))
        return Plain(lambda: self._call_plain(call))

    async def _decode(self, body: bytes) -> Reply:
        try:
            # Read in a thread: that takes a while, in which the loop must go on.
            call: _Call = await self._threads.run(lambda: self._read(body))
        except Raised as raised:
            return raised.error.reply if isinstance(raised.error, _Refusal) else (400, {"error": str(raised.error)})
        return await call.reply(self._limited(call))

    def _read(self, body: bytes) -> _Call:
        """Reads a call. Raises _Refusal."""
        try:
            name, serialization, args, kwargs = _read_call(body)
        except ValueError as error:
            raise _Refusal(400, str(error)) from None
        tool = self._tools.get(name)
        if tool is None:
            raise _Refusal(404, f"there is no tool {name}: expected one of {', '.join(self._tools)}")
        return _Call(tool, serialization, args, kwargs)

    def _call_plain(self, call: _Call) -> Answer:
        """Calls a plain function that has no time limit, in a thread. A task on the loop would cost as much again."""
        try:
            result = call.tool.function(*call.args, **call.kwargs)
            if isinstance(result, Awaitable):
                return lambda: call.reply(self._threads.call(lambda: result, True))
        except BaseException as error:
            return call.failure(error)
        return call.success(result)

    async def _limited(self, call: _Call) -> Any:
        tool = call.tool
        running = self._threads.call(tool.function, tool.is_async, *call.args, **call.kwargs)
        if tool.timeout is None:
            return await running
        task = asyncio.create_task(running)
        try:
            if not (await asyncio.wait([task], timeout=tool.timeout))[0]:
                message = f"the tool {tool.name} took longer than its limit of {tool.timeout:g} s"
                raise Raised(TimeoutError(message))
            return task.result()
        finally:
            task.cancel()


class _Refusal(Exception):
    """A request that calls no tool."""

    def __init__(self, status: int, error: str) -> None:
        self.reply: Reply = status, {"error": error}


@dataclass(frozen=True)
class _Call:
    tool: Tool[..., Any]
    serialization: str
    args: list[Any]
    kwargs: dict[str, Any]

    async def reply(self, running: Coroutine[Any, Any, Any]) -> Reply:
        try:
            return self.success(await running)
        except Raised as raised:
            return self.failure(raised.error)

    def success(self, result: object) -> Reply:
        try:
            return 200, _encode(result, self.serialization)
        except _pickle.Unsendable as error:
            return 500, {"error": f"TypeError: the tool {self.tool.name} returned something else: {error}"}
        except Exception as error:  # of an iterator of the result's own
            return 500, {"error": f"the result of the tool {self.tool.name} cannot be sent: {words_of(error)}"}

    def failure(self, error: BaseException) -> Reply:
        if isinstance(error, TypeError):
            try:
                self.tool.signature.bind(*self.args, **self.kwargs)
            except TypeError as misfit:
                usage = self.tool.help.partition("\n")[0]
                return 400, {"error": f"TypeError: {self.tool.name}(): {misfit}; it is {usage}"}
        return 500, {"error": words_of(error)}


def _read_call(body: bytes) -> tuple[str, str, list[Any], dict[str, Any]]:
    """The tool's name, the serialization, and the arguments. Raises ValueError, which names the field."""
    try:
        call = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"Invalid JSON: {error}") from None
    if not isinstance(call, dict):
        raise ValueError("Invalid JSON: the body must be a JSON object")
    name = call.get("tool_name")
    if not isinstance(name, str):
        raise ValueError("Tool name not provided")
    serialization = call.get("serialization", "pickle")
    args, kwargs = call.get("args"), call.get("kwargs")
    if serialization == "pickle":
        args, kwargs = _unpickle("args", args), _unpickle("kwargs", kwargs)
    elif serialization != "json":
        raise ValueError(f'serialization is {serialization!r}, expected "pickle" or "json"')
    args = [] if args is None else args
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(args, (list, tuple)):
        raise ValueError(f"args must be a list, not {type(args).__name__}")
    if not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        raise ValueError("kwargs must be an object with names as keys")
    return name, serialization, list(args), kwargs


_EMPTY_DICT = base64.b64encode(_pickle.dumps({})).decode("ascii")


def _unpickle(name: str, encoded: object) -> Any:
    if encoded is None:
        return None
    if not isinstance(encoded, str):
        raise ValueError(f"{name} must be base64 of a pickle, not {type(encoded).__name__}")
    try:
        return {} if encoded == _EMPTY_DICT else _pickle.loads(base64.b64decode(encoded, validate=True))
    except _pickle.Refused as error:
        raise ValueError(f"{name} is refused: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name} is not base64: {error}") from None


def _encode(result: object, serialization: str) -> dict[str, Any]:
    if serialization == "pickle":
        return {"result": base64.b64encode(_pickle.dumps(result)).decode("ascii")}
    value = _pickle.plain(result)
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return {"result_repr": repr(value)}
    return {"result": value}
