"""Clients of the Python SDK that speak with `rlm mcp --listen`.

Usage: mcp_http.py URL TOKEN DIRECTORY

Checks who is let in, that each MCP session has sessions of its own, which end with it, and what works over stdio. Then
prints a line, in the middle of a call, and waits for the server to end.
"""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import mcp_client
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_client import call, wait_for


@asynccontextmanager
async def connected(url, token, mode="auto"):
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            yield client


async def check_who_is_let_in(url, token):
    hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    right = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient() as http:

        async def status(**headers):
            return (await http.post(url, json=hello, headers=right | headers)).status_code

        assert await status(Authorization="") == 401
        assert await status(Authorization=f"Bearer {token}x") == 401
        assert await status(Authorization=f"Basic {token}") == 401
        assert await status(Host="attacker.example") == 403
        assert await status(Origin="http://attacker.example") == 403
        assert await status(Origin="null") == 403
        assert await status() not in (401, 403)


async def check_sessions(url, token):
    async with connected(url, token) as one:
        process = Path("/proc") / (await call(one, "bash", code="x=1; echo $$")).strip()
        async with connected(url, token) as other:
            assert await call(other, "bash", code="echo ${x-unset}") == "unset\n"
        assert await call(one, "bash", code="echo $x; env | grep -c TOKEN; true") == "1\n0\n"
        assert process.exists()
    with anyio.fail_after(60):
        while process.exists():
            await anyio.sleep(0.01)


async def check_end_in_a_call(url, token, root):
    """A client that ends its MCP session while its call runs ends the call too."""
    headers = {"Authorization": f"Bearer {token}"}

    async def note(response):
        if session := response.headers.get("mcp-session-id"):
            headers["mcp-session-id"] = session

    hooks = {"response": [note]}
    async with httpx2.AsyncClient(headers=dict(headers), timeout=60, event_hooks=hooks) as http:
        async with Client(streamable_http_client(url, http_client=http, terminate_on_close=False)) as client:
            async with anyio.create_task_group() as tasks:
                code = "echo $$ >pid; mv pid ended; sleep 1000"
                tasks.start_soon(client.call_tool, "bash", {"code": code, "timeout": 1000})
                await wait_for(root / "ended")
                process = Path("/proc") / (root / "ended").read_text().strip()
                assert process.exists()
                async with httpx2.AsyncClient(headers=headers) as other:
                    assert (await other.delete(url)).status_code == 202
                with anyio.fail_after(60):
                    while process.exists():
                        await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()


async def main(url, token, root):
    await check_who_is_let_in(url, token)
    await check_sessions(url, token)
    await check_end_in_a_call(url, token, root)
    for mode in ["legacy", "auto"]:
        async with connected(url, token, mode) as client:
            await mcp_client.check_tools(client)
            await mcp_client.check_state(client)
            await mcp_client.check_cancellation(client, root)
            await mcp_client.check_progress(client, root)
            await mcp_client.check_refusals(client)
            await mcp_client.check_files(client, root)
    async with connected(url, token) as client, anyio.create_task_group() as tasks:
        code = "nohup setsid sleep 1000 >/dev/null 2>&1 & touch begun; sleep 1000"
        tasks.start_soon(client.call_tool, "bash", {"code": code, "timeout": 1000})
        await wait_for(root / "begun")
        print("in the middle of a call", flush=True)


anyio.run(main, sys.argv[1], sys.argv[2], Path(sys.argv[3]).resolve())
