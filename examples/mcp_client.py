"""A client in Python for `rlm mcp`, with the official SDK (PyPI: mcp). Usage: mcp_client.py RLM DIRECTORY"""

import sys

import anyio
from mcp import StdioServerParameters
from mcp.client.client import Client


async def main(rlm, directory):
    async with Client(StdioServerParameters(command=rlm, args=["mcp", "--workdir", directory])) as client:

        async def call(tool, **arguments):
            result = (await client.call_tool(tool, arguments)).structured_content
            return result["value"] if result["ok"] else f"{result['error']}: {result['hint']}"

        await call("bash", code="x=1; cd /")
        print((await call("bash", code="echo $x in $PWD"))["stdout"], end="")
        print((await call("bash", code="echo ${x-no x}", session="another"))["stdout"], end="")
        stopped = await call("bash", code="sleep 1000", timeout=0.2)
        print("timed out:", stopped["timed_out"], "state:", stopped["state"])
        await call("reset", language="bash")
        print((await call("bash", code="echo ${x-no x}"))["stdout"], end="")


anyio.run(main, *sys.argv[1:])
