"""An MCP server of the Python SDK, whose tools the tests call.

Usage: mcp_tools.py [ADDRESS-FILE]

It speaks over standard streams, or over HTTP at an address that it writes to the file. Its directory has what the tests
look for: `cancelled` once a call of `wait` is cancelled, and `log` with a line for each start.
"""

import os
import socket
import sys
from pathlib import Path

import anyio
import mcp_types as types
import uvicorn
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from typing_extensions import TypedDict

server = MCPServer("tools")
tool = server.tool(structured_output=False)


class Fact(TypedDict):
    name: str
    legs: list[int]


@tool
def add(a: int, b: int = 1) -> str:
    """Adds two numbers."""
    return str(a + b)


@server.tool()
def fact(name: str) -> Fact:
    """Returns an object."""
    return {"name": name, "legs": [4, 2]}


@server.tool()
def legs(names: list[str]) -> list[int]:
    """Returns what is no object, which the SDK wraps in one."""
    return [len(name) for name in names]


@tool
def fail(reason: str):
    """Fails."""
    raise ToolError(reason)


@tool
def picture():
    """Returns a text and an image."""
    return ["a picture", Image(data=b"12345", format="png")]


@tool
def pid() -> str:
    """Returns the id of the process."""
    return str(os.getpid())


@tool
def knows_token() -> str:
    """Says whether the token came, as a variable or as a header."""
    return "yes" if os.environ.get("TOKEN") == "a-long-secret" else "no"


@tool
async def wait():
    """Waits for ever."""
    Path("waiting").touch()
    try:
        await anyio.sleep_forever()
    finally:
        Path("cancelled").touch()


@tool
def die():
    """Ends the process in the middle of the call."""
    print("my token is", os.environ.get("TOKEN"), file=sys.stderr)
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool(name="odd-name.1")
def odd():
    """Has a name that is not an identifier."""


async def pages():
    """Serves five tools, one a page."""

    async def list_tools(ctx, params):
        at = int(params.cursor or 0) if params else 0
        page = types.Tool(name=f"tool{at}", description=f"Tool {at}.", input_schema={"type": "object"})
        return types.ListToolsResult(tools=[page], next_cursor=str(at + 1) if at < 4 else None)

    async def call_tool(ctx, params):
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"{params.name} {params.arguments}")])

    paged = Server("pages", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await paged.run(reading, writing, paged.create_initialization_options())


async def over_http(address_file):
    app = server.streamable_http_app()

    async def checked(scope, receive, send):
        if scope["type"] == "http" and (b"x-token", b"a-long-secret") not in scope["headers"]:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"a-long-secret is not the token"})
            return
        await app(scope, receive, send)

    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", int(os.environ.get("PORT", 0))))
    bound.listen()
    new = Path(address_file + ".new")
    new.write_text(f"http://127.0.0.1:{bound.getsockname()[1]}/mcp")
    new.rename(address_file)
    await uvicorn.Server(uvicorn.Config(checked, log_level="warning", lifespan="on")).serve(sockets=[bound])


with open("log", "a") as log:
    log.write(f"{os.getpid()}\n")
if sys.argv[1:] == ["pages"]:
    anyio.run(pages)
elif sys.argv[1:]:
    anyio.run(over_http, sys.argv[1])
else:
    server.run()
