"""A client of the Agent Client Protocol, version 1: JSON-RPC 2.0 over an agent's standard streams, a message per line.

The agent's requests for permission are granted. Any other request of the agent is refused: this client offers neither
files nor terminals.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Protocol

_MAX_LINE_BYTES = 64 << 20


class AgentStreams(Protocol):
    """The standard streams of an agent's process."""

    @property
    def stdout(self) -> AsyncIterator[bytes]: ...

    async def write(self, data: bytes) -> None: ...


class AgentError(Exception):
    """A request failed: the agent answered with an error, or has ended. `data` is the error's data."""

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.data: dict[str, Any] = data if isinstance(data, dict) else {}


class AgentConnection:
    """A connection to a running agent. Needs a running event loop; `close` ends it, but not the agent."""

    def __init__(self, streams: AgentStreams) -> None:
        self.reply = ""
        """The last message of the agent. A prompt begins with an empty one."""
        self._message_id: Any = None
        self._streams = streams
        self._writing = asyncio.Lock()
        self._last_id = 0
        self._responses: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def prompt(self, session: str, texts: list[str]) -> dict[str, Any]:
        """Runs a prompt, and returns its response. Raises AgentError."""
        self.reply, self._message_id = "", None
        blocks = [{"type": "text", "text": text} for text in texts]
        return await self.request("session/prompt", {"sessionId": session, "prompt": blocks})

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Returns the result of a request. Raises AgentError."""
        self._last_id += 1
        number, future = self._last_id, asyncio.get_running_loop().create_future()
        self._responses[number] = future
        try:
            if self._reader.done():
                raise AgentError("the agent has ended")
            await self._send({"id": number, "method": method, "params": params})
            response = await future
        except OSError as error:
            raise AgentError("the agent has ended") from error
        finally:
            del self._responses[number]
        if "error" in response:
            problem = response["error"]
            raise AgentError(problem["message"], problem.get("data"))
        return response.get("result") or {}

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.wait([self._reader])

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._writing:
            await self._streams.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _read(self) -> None:
        error = AgentError("the agent has ended")
        try:
            async for line in _lines(self._streams.stdout):
                await self._take(json.loads(line))
        except Exception as cause:
            error = AgentError(f"the agent sent something other than the protocol: {cause}")
        finally:
            for future in self._responses.values():
                if not future.done():
                    future.set_exception(error)

    async def _take(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if method is None:
            future = self._responses.get(message["id"])
            if future is not None and not future.done():
                future.set_result(message)
        elif method == "session/update":
            self._update(params["update"])
        elif "id" in message:
            await self._send({"id": message["id"], **_answer(method, params)})

    def _update(self, update: dict[str, Any]) -> None:
        if update["sessionUpdate"] != "agent_message_chunk" or update["content"]["type"] != "text":
            return
        message_id = update.get("messageId")
        if message_id is not None and message_id != self._message_id:
            self.reply, self._message_id = "", message_id
        self.reply += update["content"]["text"]


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request of the agent."""
    if method != "session/request_permission":
        return {"error": {"code": -32601, "message": f"this client has no method {method}"}}
    allowing = [option for option in params["options"] if option["kind"] == "allow_once"]
    if not allowing:
        return {"result": {"outcome": {"outcome": "cancelled"}}}
    return {"result": {"outcome": {"outcome": "selected", "optionId": allowing[0]["optionId"]}}}


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        if b"\n" in chunk:
            *lines, rest = rest.split(b"\n")
            for line in lines:
                if line.strip():
                    yield bytes(line)
        if len(rest) > _MAX_LINE_BYTES:
            raise ValueError(f"a line exceeds {_MAX_LINE_BYTES >> 20} MiB")
