"""A client of the Python SDK (PyPI: mcp) that speaks with `rlm mcp`.

Usage: mcp_client.py RLM DIRECTORY

Starts the server on DIRECTORY, in each of the protocol's two modes, and checks what a client sees: tools, texts, facts,
state, a call that is cancelled, files. Prints a line at the end.
"""

import os
import sys
from pathlib import Path

import anyio
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError


async def outcome(client, name, **arguments):
    """The text of a call that must succeed, and its facts."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error and result.structured_content is None, result
    [content] = result.content
    return content.text, (result.meta or {}).get("rlm/call")


async def call(client, name, **arguments):
    """The text of a call that must succeed."""
    text, _ = await outcome(client, name, **arguments)
    return text


async def failure(client, name, **arguments):
    """The text of a call that must fail."""
    result = await client.call_tool(name, arguments)
    assert result.is_error, result
    return result.content[0].text


async def wait_for(path):
    with anyio.fail_after(60):
        while not path.exists():
            await anyio.sleep(0.01)


async def check_tools(client):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == ["bash", "python", "reset", "session_script"], tools
    assert tools["bash"].input_schema["required"] == ["code"]
    assert all(tool.description and not tool.output_schema for tool in tools.values())


async def check_state(client):
    await call(client, "bash", code="x=1; cd /")
    assert await call(client, "bash", code="echo $x $PWD") == "1 /\n"
    assert await call(client, "bash", code="echo ${x-unset}", session="other") == "unset\n"
    text, failed = await outcome(client, "bash", code="false")
    assert text == "(no output)\n[exit status 1]", text
    assert failed["completed"] and not failed["success"] and failed["exit_code"] == 1, failed
    await call(client, "python", code="x = 2")
    assert await call(client, "python", code="x ** 10") == "Out[2]: 1024"
    text, raised = await outcome(client, "python", code="1 / 0")
    assert text.endswith("ZeroDivisionError: division by zero") and not raised["success"], (text, raised)
    text, slow = await outcome(client, "python", code="while True: pass", timeout=0.3)
    assert slow["timed_out"] and slow["state"] == "kept" and "[timed out: " in text, (text, slow)
    await call(client, "reset", language="python")
    assert (await call(client, "python", code="'x' in dir()")).endswith(": False")
    script = await call(client, "session_script", language="bash")
    assert "\nx=1; cd /\n" in script, script


async def check_cancellation(client, root):
    begun = root / "begun"
    async with anyio.create_task_group() as tasks:
        code = f"touch {begun}; sleep 1000"
        tasks.start_soon(client.call_tool, "bash", {"code": code, "timeout": 1000})
        await wait_for(begun)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(60):
        assert await call(client, "bash", code="echo $x") == "1\n"
    begun.unlink()


async def check_progress(client, root):
    heard, go = [], root / "go"

    async def hear(progress, total, message):
        heard.append(progress)
        if len(heard) == 2:
            go.touch()

    code = f"until [ -e {go} ]; do sleep 0.01; done"
    await client.call_tool("bash", {"code": code}, progress_callback=hear)
    assert heard[0] < heard[1], heard
    go.unlink()


async def check_refusals(client):
    try:
        await client.call_tool("perl", {})
        raise AssertionError("there is no such tool")
    except MCPError as error:
        assert error.error.code == -32602, error
    assert "missing field `code`" in await failure(client, "bash")
    large = await failure(client, "bash", code="x" * ((1 << 20) + 1))
    assert "the code has 1,048,577 bytes, the limit is 1,048,576 bytes" in large, large
    try:
        await client.read_resource("file:///etc/passwd")
        raise AssertionError("a file outside the directory was read")
    except MCPError as error:
        assert "outside the working directory" in str(error), error


async def check_files(client, root):
    (root / "a.txt").write_text("text\n")
    (root / "a.ts").write_text("let x: number\n")
    listed = {resource.name: resource for resource in (await client.list_resources()).resources}
    assert listed["a.txt"].mime_type == "text/plain", listed
    assert listed["a.ts"].mime_type == "text/x-typescript", listed
    contents = (await client.read_resource(listed["a.txt"].uri)).contents
    assert contents[0].text == "text\n", contents


async def main(rlm, root):
    # The server's environment has only the variables that the SDK passes, and these.
    environment = {"RLM_PYTHON": os.environ["RLM_PYTHON"]}
    server = StdioServerParameters(command=rlm, args=["mcp", "--workdir", str(root)], env=environment)
    for mode in ["legacy", "auto"]:
        async with Client(server, mode=mode) as client:
            await check_tools(client)
            await check_state(client)
            await check_cancellation(client, root)
            await check_progress(client, root)
            await check_refusals(client)
            await check_files(client, root)
    print("all is well")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]).resolve())
