"""A client of the Python SDK that asks `ask_directory` of `rlm mcp`.

Usage: mcp_ask.py RLM DIRECTORY

Starts the server on DIRECTORY/work with the environment of this process, whose model answers as the test has scripted
it, and checks an answer with its progress, a call that is cancelled, refusals. Prints a line at the end.
"""

import os
import sys
from pathlib import Path

import anyio
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp_client import failure, wait_for


async def until(holds):
    with anyio.fail_after(60):
        while not holds():
            await anyio.sleep(0.01)


async def check_answer(client, work):
    heard = []

    async def hear(progress, total, message):
        heard.append((progress, message))
        if "· 1 turn ·" in message:
            (work / "go").touch()

    (work / "logs" / "way").symlink_to("a.log")
    arguments = {"question": "Which host failed first?", "path": "logs"}
    result = await client.call_tool("ask_directory", arguments, progress_callback=hear)
    [content] = result.content
    counts = "2 turns · 2 calls · 0 sub-calls · 30 tokens"
    assert not result.is_error and result.structured_content is None, result
    assert content.text == f"web-3\n\n[answered; {counts}; left out of the context: 1 symbolic link]", content.text
    facts = result.meta["rlm/ask"]
    assert facts.pop("seconds") > 0, facts
    expected = {"turns": 2, "calls": 2, "sub_calls": 0, "tokens": 30, "cost_usd": None}
    assert facts.pop("context_left_out") == [{"reason": "symbolic_link", "count": 1, "names": ["way"]}], facts
    assert facts == {"answer_ready": True, "stop_reason": "answered", **expected}, facts
    assert all(one < other for one, other in zip(heard, heard[1:])), heard
    assert [file.name for file in (work / "logs").iterdir() if not file.is_symlink()] == ["a.log"], (
        "the rollout has a copy"
    )


async def check_cancellation(client, work, tmp):
    begun = work / "begun"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "ask_directory", {"question": "Wait for ever.", "path": "logs"})
        await wait_for(begun)
        tasks.cancel_scope.cancel()
    process = Path("/proc") / begun.read_text().strip()
    await until(lambda: not process.exists() and not any(tmp.iterdir()))


async def check_refusals(client):
    assert "is outside the working directory" in await failure(client, "ask_directory", question="?", path="..")
    assert "is outside the working directory" in await failure(client, "ask_directory", question="?", path="link")
    assert "cannot find none" in await failure(client, "ask_directory", question="?", path="none")
    assert "the question is empty" in await failure(client, "ask_directory", question=" ")
    assert "missing field `question`" in await failure(client, "ask_directory", path="logs")
    failed = await failure(client, "ask_directory", question="Fail.", path="logs")
    assert "the model's server failed" in failed and "no such model" in failed, failed


async def main(rlm, directory):
    work = directory / "work"
    server = StdioServerParameters(command=rlm, args=["mcp", "--workdir", str(work)], env=dict(os.environ))
    async with Client(server) as client:
        assert "ask_directory" in [tool.name for tool in (await client.list_tools()).tools]
        await check_answer(client, work)
        await check_cancellation(client, work, directory / "tmp")
        await check_refusals(client)
    print("all is well")


anyio.run(main, sys.argv[1], Path(sys.argv[2]).resolve())
