"""A model that costs as little as can be, for benches: `python3 model_server.py TURNS SECONDS` prints its port.

Its rollouts take TURNS turns, in the last of which the code makes a sub-call; each completion takes SECONDS. It ends
with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlm_env import find_program

CODE = {
    "bash": ("ls | wc -l", 'RLM_CONTENT="$(llm_batch hello)" RLM_READY=1'),
    "python": (
        "len(__import__('os').listdir())",
        "answer['content'] = llm_batch(['hello'])[0]; answer['ready'] = True",
    ),
}


@contextmanager
def model_server(turns: int, seconds: float) -> Iterator[str]:
    """Runs one, and gives its base URL."""
    command = [sys.executable, str(Path(__file__)), str(turns), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        server.stdin.close()


def rlm_run(directory: str, url: str, language: str, attempts: int, jobs: int) -> list[str | Path]:
    """The command for so many attempts at a question, whose file is made in this directory."""
    questions = Path(directory, "questions.jsonl")
    questions.write_text(json.dumps({"question": "?", "context_text": ""}) + "\n")
    command = [find_program("rlm"), "run", f"--questions={questions}", f"--attempts={attempts}", f"--jobs={jobs}"]
    command += ["--model=m", f"--base-url={url}", "--stream=false", "--no-record"]
    return [*command, "--language=bash" if language == "bash" else f"--python={sys.executable}"]


def _reply(body: bytes, turns: int) -> bytes:
    request = json.loads(body)
    if tools := request.get("tools"):
        name = tools[0]["function"]["name"]
        asked = sum(message["role"] == "assistant" for message in request["messages"])
        code = CODE["python" if "python" in name else "bash"][asked + 1 >= turns]
        call = {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps({"code": code})}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    else:
        message = {"role": "assistant", "content": "a sub-call"}
    usage = {"prompt_tokens": 1000, "completion_tokens": 100}
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}).encode()


class _Connection(asyncio.Protocol):
    def __init__(self, turns: int, seconds: float) -> None:
        self._turns, self._seconds = turns, seconds
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if not end or len(rest) < length:
            return
        self._received = rest[length:]
        if not head.startswith(b"POST"):
            self._transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        body = _reply(rest[:length], self._turns)
        answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
            len(body),
            body,
        )
        asyncio.get_running_loop().call_later(self._seconds, self._transport.write, answer)


async def _serve(turns: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(turns, seconds), "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
