"""Serves functions of this program to the programs of a session: root tools, and models.

docs/root-tools.md describes the protocol of tools. The socket is in the session's control directory, and a secret goes
with each request.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import hmac
import json
import os
import secrets
import socket
import sys
import threading
import typing
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from ._calls import Answer, Plain, Reply, ToolCalls
from ._errors import StartError
from ._models import ChatModel, completion, read_request
from ._programs import SECRET_VARIABLE
from ._threads import Outcome, Raised, Threads, words_of
from ._tools import Tool, is_async

MAX_BODY_BYTES = 64 << 20
"""Most bytes of the encoded arguments of a call."""

MAX_SOCKET_PATH = 107
"""Longest path of a Unix socket, in bytes."""

_MAX_HEAD_BYTES = 64 << 10
_REFUSED_TIME = 1.0
_CLOSE_TIME = 1.0
_to_json = json.JSONEncoder().encode

Route = Callable[[bytes], Coroutine[Any, Any, Reply]]
"""Answers the body of a request."""


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
        """The models by the part of the path that names them."""
        self.secret = secrets.token_hex(16)
        self.context = contextvars.copy_context()
        self.threads = Threads()
        self._calls = ToolCalls(tools, self.threads)
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

    def answer(self, path: str, body: bytes) -> Answer | Plain:
        """The reply to a request, or what produces it."""
        model = self.models.get(path.removeprefix("/").removesuffix("/v1/chat/completions"))
        if model is not None:
            return lambda: self._ask(model, body)
        if (route := self._routes.get(path)) is not None:
            return lambda: route(body)
        return self._calls.answer(body)

    def cancelled(self, path: str) -> Reply:
        """The reply to a request whose function has cancelled itself."""
        if path == "/tools":
            return 500, {"error": "CancelledError: the tool cancelled its call"}
        return 400, {"error": {"message": "CancelledError: the model cancelled its request"}}

    async def _ask(self, model: ChatModel, body: bytes) -> Reply:
        try:
            messages, tools, sampling = read_request(body)
            return 200, completion(await self.threads.call(model, is_async(model), messages, tools, **sampling))
        except Raised as raised:
            message = words_of(raised.error)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # of the reply's own methods, too
            message = words_of(error)
        # Not a status on which the request is sent again: the function itself retries where that helps.
        return 400, {"error": {"message": message}}


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
        self._is_ended = self._is_busy = self._is_paused = False
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
        if not self._is_ended:
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
        if isinstance(answer, Plain):
            deliver = functools.partial(self._reply_in_thread, context)
            self._server.threads.start(functools.partial(context.run, answer.run), deliver)
        else:
            context.run(self._begin, answer)

    def _begin(self, answer: Answer) -> None:
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

    async def _answer(self, answer: Answer) -> None:
        try:
            reply = await answer() if callable(answer) else answer
        except asyncio.CancelledError:
            if self._is_ended:
                raise
            reply = self._server.cancelled(self._path)
        finally:
            self._task = None
        self._end_call(_message(*reply))

    def _reply_in_thread(self, context: contextvars.Context, outcome: Outcome) -> None:
        """Writes a reply at once: the loop would have to wake up for it first."""
        result, error = outcome
        # An error means that no thread can be started.
        answer: Answer = result if error is None else (500, {"error": words_of(error)})
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
        self._is_ended = True
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
