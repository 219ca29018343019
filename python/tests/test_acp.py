"""The client of the Agent Client Protocol, with a scripted agent in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rlm_env._acp import AgentConnection, AgentError


class Agent:
    """An agent that answers a message with these lines. None ends it."""

    def __init__(self, script: Callable[[dict[str, Any]], list[Any]]) -> None:
        self.script = script
        self.received: list[dict[str, Any]] = []
        self.chunks: asyncio.Queue[bytes | None] = asyncio.Queue()

    @property
    async def stdout(self) -> AsyncIterator[bytes]:
        while (chunk := await self.chunks.get()) is not None:
            yield chunk

    async def write(self, data: bytes) -> None:
        message = json.loads(data)
        assert data.count(b"\n") == 1 and message["jsonrpc"] == "2.0"
        self.received.append(message)
        for line in self.script(message):
            if line is None:
                self.chunks.put_nowait(None)
                continue
            sent = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            # Lines come in pieces.
            for start in range(0, len(sent), 50):
                self.chunks.put_nowait(sent[start : start + 50])


def chunk(text: str, message_id: str | None = None) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": message_id}
    return {"method": "session/update", "params": {"sessionId": "s", "update": update}}


def prompted(script: Callable[[dict[str, Any]], list[Any]]) -> tuple[Any, str, Agent]:
    """The response to a prompt or its error, the reply, and the agent."""

    async def main() -> tuple[Any, str, Agent]:
        agent = Agent(script)
        connection = AgentConnection(agent)
        try:
            response: Any = await asyncio.wait_for(connection.prompt("s", ["é\n", "b"]), 10)
        except AgentError as error:
            response = error
        await connection.close()
        return response, connection.reply, agent

    return asyncio.run(main())


def test_the_last_message_is_the_reply() -> None:
    thought = {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}
    image = {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": ""}}
    others = [{"method": "session/update", "params": {"update": update}} for update in (thought, image)]
    chunks = [chunk("a", "1"), chunk("b", "1"), chunk("c", "2"), *others, chunk("d" * 300, "2"), chunk("e")]
    response, reply, agent = prompted(lambda _: [*chunks, b"\n", {"id": 1, "result": {"stopReason": "end_turn"}}])
    assert (response, reply) == ({"stopReason": "end_turn"}, "c" + "d" * 300 + "e")
    blocks = [{"type": "text", "text": text} for text in ("é\n", "b")]
    assert agent.received[0]["params"] == {"sessionId": "s", "prompt": blocks}


@pytest.mark.parametrize(
    ("kinds", "outcome"),
    [
        (["allow_always", "allow_once", "reject_once"], {"outcome": "selected", "optionId": "id-allow_once"}),
        (["reject_once"], {"outcome": "cancelled"}),
    ],
)
def test_permission_is_given_once(kinds: list[str], outcome: dict[str, str]) -> None:
    options = [{"kind": kind, "optionId": f"id-{kind}"} for kind in kinds]
    question = {"id": "q", "method": "session/request_permission", "params": {"options": options}}

    def script(message: dict[str, Any]) -> list[Any]:
        return [question] if "method" in message else [{"id": 1, "result": {}}]

    response, _, agent = prompted(script)
    assert response == {}
    assert agent.received[1] == {"jsonrpc": "2.0", "id": "q", "result": {"outcome": outcome}}


def test_other_requests_are_refused() -> None:
    def script(message: dict[str, Any]) -> list[Any]:
        if "method" not in message:
            return [{"id": 1, "result": None}]
        return [{"method": "unknown/notification"}, {"id": 7, "method": "fs/read_text_file", "params": {}}]

    response, _, agent = prompted(script)
    assert response == {}
    assert agent.received[1]["error"] == {"code": -32601, "message": "this client has no method fs/read_text_file"}


@pytest.mark.parametrize(
    ("lines", "message", "data"),
    [
        ([{"id": 1, "error": {"code": 1, "message": "no"}}], "no", {}),
        ([{"id": 1, "error": {"code": 1, "message": "no", "data": {"kind": "session"}}}], "no", {"kind": "session"}),
        ([{"id": 1, "error": {"code": 1, "message": "no", "data": "text"}}], "no", {}),
        ([chunk("a"), None], "the agent has ended", {}),
        ([b"hello\n"], "the agent sent something other than the protocol: Expecting value", {}),
        ([b"[]\n"], "the agent sent something other than the protocol", {}),
        ([{"id": 9, "result": {}}, {"result": {}}], "the agent sent something other than the protocol", {}),
    ],
)
def test_failures(lines: list[Any], message: str, data: Any) -> None:
    error, _, _ = prompted(lambda _: lines)
    assert isinstance(error, AgentError)
    assert str(error).startswith(message) and error.data == data


async def test_a_request_after_the_end_fails_at_once() -> None:
    connection = AgentConnection(Agent(lambda _: [None]))
    for _ in range(2):
        with pytest.raises(AgentError, match="the agent has ended"):
            await asyncio.wait_for(connection.request("initialize", {}), 10)
    await connection.close()
