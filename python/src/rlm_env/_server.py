"""Serves functions of this program to the programs of a session: root tools, and models.

docs/root-tools.md describes the protocol of tools. The socket is in the session's control directory, and a secret goes
with each request.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import functools
import hmac
import json
import os
import queue
import secrets
import socket
import sys
import threading
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from . import _pickle
from ._errors import StartError
from ._models import ChatModel, Models, completion, read_request
from ._programs import SECRET_VARIABLE
from ._rootd import Rootd
from ._tools import MAX_TIMEOUT, Tool, is_async

MAX_BODY_BYTES = 64 << 20
"""Most bytes of the encoded arguments of a call."""

MAX_SOCKET_PATH = 107
"""Longest path of a Unix socket, in bytes."""

_MAX_HEAD_BYTES = 64 << 10
_REFUSED_TIME = 1.0
_LARGE_BODY = 256 << 10
_CLOSE_TIME = 1.0
_CALL_LIMIT = 300.0
"""Seconds of a call of a tool without a limit of its own."""
_MARGIN = 5.0
_to_json = json.JSONEncoder().encode

_Reply = tuple[int, Mapping[str, Any]]
"""A status, and the body."""
Route = Callable[[bytes], Coroutine[Any, Any, _Reply]]
"""Answers the body of a request."""
_Answer = _Reply | Callable[[], Coroutine[Any, Any, _Reply]]
"""A reply, or a function that produces it on the event loop."""


@dataclass(frozen=True)
class _Plain:
    """A call of a plain function, to run in a thread. It may return something to await."""

    run: Callable[[], _Answer]


class FunctionServer:
    """Serves tools and models on the running event loop."""

    def __init__(
        self,
        tools: Mapping[str, Tool[..., Any]],
        directory: str,
        models: Mapping[str, ChatModel] | None = None,
        routes: Mapping[str, Route] | None = None,
    ) -> None:
        self.tools = tools
        self._routes = {f"/{name}": route for name, route in (routes or {}).items()}
        self.models = models or {}
        """The sessions by the part of the path that names them."""
        self.secret = secrets.token_hex(16)
        self.context = contextvars.copy_context()
        self.threads = Threads()
        self.connections: set[_Connection] = set()
        self._path = os.path.join(directory, "tools.sock")
        self.url = ""
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens. Raises StartError."""
        loop = self._loop = asyncio.get_running_loop()
        try:
            if len(os.fsencode(self._path)) <= MAX_SOCKET_PATH:
                with suppress(FileNotFoundError):
                    os.unlink(self._path)
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.bind(self._path)
                self.url = f"http+unix://{quote(self._path, safe='')}"
            else:
                # The path is too long for a Unix socket.
                self._socket = socket.socket(socket.AF_INET)
                self._socket.bind(("127.0.0.1", 0))
                self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
            is_unix = self._socket.family == socket.AF_UNIX
            serve = loop.create_unix_server if is_unix else loop.create_server
            self._server = await serve(lambda: _Connection(self, loop), sock=self._socket)
        except OSError as error:
            raise StartError(f"cannot listen for calls of tools at {self._path}: {error}") from error

    def model_url(self, name: str) -> str:
        """The base URL of a model."""
        return f"{self.url}/{name}/v1"

    def declarations(self) -> list[dict[str, Any]]:
        """The tools, as a file of `rlm` declares them."""
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "url": f"{self.url}/tools",
                "secret_env": SECRET_VARIABLE,
            }
            for tool in self.tools.values()
        ]

    def enter_context(self) -> None:
        """Lets tools that are called from now on see the caller's context variables."""
        self.context = contextvars.copy_context()

    async def close(self) -> None:
        """Ends connections and running calls."""
        tasks = self._end()
        tasks = {task for task in tasks if task is not asyncio.current_task()}
        if tasks:
            # One of the tasks may be a tool that closes its session.
            await asyncio.wait(tasks, timeout=_CLOSE_TIME)

    def _end(self) -> set[asyncio.Task[None]]:
        self.threads.close()
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()
        ended = [connection.end() for connection in list(self.connections)]
        with suppress(OSError):
            os.unlink(self._path)
        return {task for task in ended if task is not None}

    def abandon(self) -> None:
        """Ends connections and running calls without waiting. Safe from any thread, and after the loop was closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)
            return
        self.threads.close()
        if self._socket is not None:
            self._socket.close()

    def answer(self, path: str, body: bytes) -> _Answer | _Plain:
        """The reply to a request, or what produces it."""
        model = self.models.get(path.removeprefix("/").removesuffix("/v1/chat/completions"))
        if model is not None:
            return lambda: self._ask(model, body)
        if (route := self._routes.get(path)) is not None:
            return lambda: route(body)
        if len(body) > _LARGE_BODY:
            return lambda: self._decode(body)
        try:
            call = _read_call(body)
        except ValueError as error:
            return 400, {"error": str(error)}
        tool = self.tools.get(call.name)
        if tool is None or tool.is_async or tool.timeout is not None:
            return lambda: self._call(call)
        return _Plain(lambda: self._call_plain(tool, call))

    def cancelled(self, path: str) -> _Reply:
        """The reply to a request whose function has cancelled itself."""
        if path == "/tools":
            return 500, {"error": "CancelledError: the tool cancelled its call"}
        return 400, {"error": {"message": "CancelledError: the model cancelled its request"}}

    async def _ask(self, model: ChatModel, body: bytes) -> _Reply:
        try:
            messages, tools, sampling = read_request(body)
            return 200, completion(await self.threads.call(model, is_async(model), messages, tools, **sampling))
        except Raised as raised:
            message = _words(raised.error)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # of the reply's own methods, too
            message = _words(error)
        # Not a status on which the request is sent again: the function itself retries where that helps.
        return 400, {"error": {"message": message}}

    async def _decode(self, body: bytes) -> _Reply:
        try:
            # Read in a thread: that takes a while, in which the loop must go on.
            call = await self.threads.run(lambda: _read_call(body))
        except Raised as raised:
            return 400, {"error": str(raised.error)}
        return await self._call(call)

    async def _call(self, call: _Call) -> _Reply:
        tool = self.tools.get(call.name)
        if tool is None:
            return 404, {"error": f"there is no tool {call.name}: expected one of {', '.join(self.tools)}"}
        return await _reply(tool, call, self._limited(tool, call))

    def _call_plain(self, tool: Tool[..., Any], call: _Call) -> _Answer:
        """Calls a plain function that has no time limit, in a thread. A task on the loop would cost as much again."""
        try:
            result = tool.function(*call.args, **call.kwargs)
            if isinstance(result, Awaitable):
                return lambda: _reply(tool, call, self.threads.call(lambda: result, True))
        except BaseException as error:
            return _failure(tool, call, error)
        return _success(tool, call, result)

    async def _limited(self, tool: Tool[..., Any], call: _Call) -> Any:
        running = self.threads.call(tool.function, tool.is_async, *call.args, **call.kwargs)
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


class Raised(Exception):
    """Wraps any exception of a tool, also of one that runs in a thread."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _reply(tool: Tool[..., Any], call: _Call, running: Coroutine[Any, Any, Any]) -> _Reply:
    try:
        return _success(tool, call, await running)
    except Raised as raised:
        return _failure(tool, call, raised.error)


def _success(tool: Tool[..., Any], call: _Call, result: object) -> _Reply:
    try:
        return 200, _encode(result, call.serialization)
    except _pickle.Unsendable as error:
        return 500, {"error": f"TypeError: the tool {tool.name} returned something else: {error}"}
    except Exception as error:  # of an iterator of the result's own
        return 500, {"error": f"the result of the tool {tool.name} cannot be sent: {_words(error)}"}


def _failure(tool: Tool[..., Any], call: _Call, error: BaseException) -> _Reply:
    if isinstance(error, TypeError):
        try:
            tool.signature.bind(*call.args, **call.kwargs)
        except TypeError as misfit:
            usage = tool.help.partition("\n")[0]
            return 400, {"error": f"TypeError: {tool.name}(): {misfit}; it is {usage}"}
    return 500, {"error": _words(error)}


class ToolServer(FunctionServer):
    """Serves tools and models to one session. If there are models, it also starts their endpoint."""

    def __init__(self, tools: Mapping[str, Tool[..., Any]], models: Models | None, directory: str) -> None:
        function = None if models is None or isinstance(models.model, str) else models.model
        super().__init__(tools, directory, {} if function is None else {"model": function})
        self.rootd = None if models is None else Rootd(models, directory)

    async def start(self) -> None:
        """Listens, and starts the endpoint. Raises StartError."""
        await super().start()
        if (rootd := self.rootd) is not None:
            declarations, base_url = self.declarations(), self.model_url("model")
            try:
                await self.threads.run(lambda: rootd.start(declarations, base_url, self.secret, self.longest))
            except Raised as raised:
                if isinstance(raised.error, RuntimeError):
                    raise StartError(f"cannot start the endpoint of models: {raised.error}") from raised.error
                raise raised.error from None

    def variables(self) -> dict[str, str]:
        """The worker's variables that declare the tools."""
        if self.rootd is not None:
            return self.rootd.variables
        return {
            "RLM_ROOT_TOOL_URL": f"{self.url}/tools",
            "RLM_ROOT_TOOL_NAMES": json.dumps(list(self.tools)),
            "RLM_ROOT_TOOL_SERIALIZATION": "pickle",
            "RLM_INTERCEPTION_SECRET": self.secret,
            **({"RLM_SUB_LLM_TIMEOUT": repr(self.longest)} if self.longest > _CALL_LIMIT else {}),
        }

    @property
    def longest(self) -> float:
        """Seconds in which every tool with a limit of its own has ended."""
        limits = [tool.timeout + _MARGIN for tool in self.tools.values() if tool.timeout is not None]
        return min(max(limits, default=0.0), MAX_TIMEOUT)

    async def close(self) -> None:
        if self.rootd is not None:
            await self.threads.run(self.rootd.close)
        await super().close()

    def abandon(self) -> None:
        if self.rootd is not None:
            self.rootd.kill()
        super().abandon()


class ThreadedToolServer:
    """A `ToolServer` for synchronous code: its event loop has a thread of its own."""

    def __init__(self, tools: Mapping[str, Tool[..., Any]], models: Models | None, directory: str) -> None:
        try:
            self._loop = asyncio.new_event_loop()
        except OSError as error:
            raise StartError(f"cannot make an event loop for the session's tools: {error}") from error
        self._server = ToolServer(tools, models, directory)
        self.rootd = self._server.rootd
        self._thread = threading.Thread(target=self._run, name="rlm-tools", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._loop.close()
            raise StartError(f"cannot start a thread for the session's tools: {error}") from error
        try:
            asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result()
        except BaseException:
            self.close()
            raise
        self.variables = self._server.variables
        self.enter_context = self._server.enter_context

    def _run(self) -> None:
        is_running = True
        while is_running:
            try:
                self._loop.run_forever()
                is_running = False
            except BaseException:
                # SystemExit of a task that a tool has made comes out of the loop. Whoever awaits the task gets it, too.
                continue

    def is_here(self) -> bool:
        """True if the caller runs on the server's event loop."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Ends the server and its thread. Not for callers on its event loop. Safe to repeat."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    abandon = close


@dataclass(frozen=True)
class _Call:
    name: str
    serialization: str
    args: list[Any]
    kwargs: dict[str, Any]


def _read_call(body: bytes) -> _Call:
    """Reads a call. Raises ValueError, which names the field."""
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
        args, kwargs = _unpickle("args", args, ()), _unpickle("kwargs", kwargs, {})
    elif serialization != "json":
        raise ValueError(f'serialization is {serialization!r}, expected "pickle" or "json"')
    args = [] if args is None else args
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(args, (list, tuple)):
        raise ValueError(f"args must be a list, not {type(args).__name__}")
    if not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        raise ValueError("kwargs must be an object with names as keys")
    return _Call(name, serialization, list(args), kwargs)


_EMPTY_DICT = base64.b64encode(_pickle.dumps({})).decode("ascii")


def _unpickle(name: str, encoded: object, absent: Any) -> Any:
    if encoded is None:
        return absent
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


def message_of(error: BaseException) -> str:
    """The error's message, even if asking for it fails."""
    try:
        return str(error).encode(errors="replace").decode()
    except BaseException:
        return "<its message cannot be shown>"


def _words(error: BaseException) -> str:
    message = message_of(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 413: "Content Too Large"}


class _Connection(asyncio.Protocol):
    """One connection of a session: one request after another. Its end cancels the running call."""

    def __init__(self, server: FunctionServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._buffer = bytearray()
        self._length: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._lock = threading.Lock()
        """Held while a thread writes, and while the transport goes: the socket is open in between."""
        self._is_ended = self._is_refused = self._is_busy = self._is_paused = False
        self._head = b""
        self._head_length = 0
        self._path = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = typing.cast("asyncio.Transport", transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        with self._lock:
            self._transport = None
        self._server.connections.discard(self)
        self.end()

    def end(self) -> asyncio.Task[None] | None:
        """Cancels the running call, and closes. Returns the task of the call."""
        self._is_ended = True
        task = self._task
        if task is not None:
            task.cancel()
        if self._transport is not None:
            self._transport.abort()
        return task

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            self._buffer += data
            self._advance()
            if self._is_busy and len(self._buffer) > _MAX_HEAD_BYTES and self._transport is not None:
                self._is_paused = True
                self._transport.pause_reading()

    def _advance(self) -> None:
        if self._is_busy or self._is_ended:
            return
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        if self._length is None:
            end = self._buffer.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
            if end < 0:
                if len(self._buffer) > _MAX_HEAD_BYTES:
                    self._refuse(400, "the head of the request is too long")
                return
            head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            # The heads of most calls are the same.
            if head != self._head:
                if not self._read_head(head.decode("latin-1").split("\r\n")):
                    return
                self._head = head
            self._length = self._head_length
        if len(self._buffer) < self._length:
            return
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        self._length = None
        self._is_busy = True
        context = self._server.context.copy()
        answer = self._server.answer(self._path, body)
        if isinstance(answer, _Plain):
            deliver = functools.partial(self._reply_in_thread, context)
            self._server.threads.start(functools.partial(context.run, answer.run), deliver)
        else:
            context.run(self._begin, answer)

    def _begin(self, answer: _Answer) -> None:
        if self._is_ended:
            return
        task = _start(self._loop, self._answer(answer))
        if not task.done():
            self._task = task

    def _read_head(self, head: list[str]) -> bool:
        headers = {}
        for line in head[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        given = headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self._server.secret}".encode()):
            self._refuse(401, "the secret is wrong or missing")
        elif not head[0].startswith("POST "):
            self._refuse(400, "expected a POST")
        elif not (0 < len(headers.get("content-length", "")) < 20 and headers["content-length"].isdecimal()):
            self._refuse(400, "expected a Content-Length")
        elif (length := int(headers["content-length"])) > MAX_BODY_BYTES:
            self._refuse(413, f"the call has {length} bytes, and at most {MAX_BODY_BYTES} are read")
        else:
            self._head_length = length
            self._path = head[0].split(" ")[1]
            return True
        return False

    async def _answer(self, answer: _Answer) -> None:
        try:
            reply = await answer() if callable(answer) else answer
        except asyncio.CancelledError:
            if self._is_ended:
                raise
            reply = self._server.cancelled(self._path)
        finally:
            self._task = None
        self._end_call(_message(*reply))

    def _reply_in_thread(self, context: contextvars.Context, outcome: _Outcome) -> None:
        """Writes a reply at once: the loop would have to wake up for it first."""
        result, error = outcome
        # An error means that no thread can be started.
        answer: _Answer = result if error is None else (500, {"error": _words(error)})
        if callable(answer):
            self._loop.call_soon_threadsafe(self._begin, answer, context=context)
            return
        message = memoryview(_message(*answer))
        with self._lock:
            transport = self._transport
            # A loop that was closed by now may have taken the socket without a word.
            if transport is None or (connected := transport.get_extra_info("socket")) is None:
                return
            if not transport.get_write_buffer_size():
                with suppress(OSError):
                    message = message[os.write(connected.fileno(), message) :]
        if message:
            self._loop.call_soon_threadsafe(self._end_call, message)
            return
        self._is_busy = False
        if self._buffer:
            self._loop.call_soon_threadsafe(self._advance)

    def _end_call(self, rest: bytes | memoryview) -> None:
        """Writes the rest of a reply, and goes on with what has come since."""
        self._is_busy = False
        if self._transport is not None:
            self._transport.write(rest)
        if self._buffer:
            # Not at once: a task may have begun in this very call.
            self._loop.call_soon(self._advance)

    def _refuse(self, status: int, error: str) -> None:
        """Refuses a request without its body, which the other side may still be sending."""
        self._is_refused = True
        self._buffer.clear()
        if self._transport is not None:
            self._transport.write(_message(status, {"error": error}, "Connection: close\r\n"))
            self._loop.call_later(_REFUSED_TIME, self._transport.abort)


def _message(status: int, reply: Mapping[str, Any], header: str = "") -> bytes:
    body = _to_json(reply)
    reason = _REASONS.get(status, "Internal Server Error")
    return (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n{header}"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )


if sys.version_info >= (3, 12):

    def _start(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task in a copy of the current context, and runs its first step at once."""
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
else:

    def _start(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task in a copy of the current context."""
        return loop.create_task(coroutine)


_Outcome = tuple[Any, "BaseException | None"]
_Work = tuple[Callable[[], Any], Callable[[_Outcome], object]]


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

    def start(self, function: Callable[[], Any], deliver: Callable[[_Outcome], object]) -> None:
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
            outcome: _Outcome
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
