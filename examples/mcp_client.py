"""A client in Python for `rlm mcp`, with the official SDK (PyPI: mcp). Usage: mcp_client.py RLM DIRECTORY"""

import sys

import anyio
from mcp import StdioServerParameters
from mcp.client.client import Client


async def main(rlm, directory):
    async with Client(StdioServerParameters(command=rlm, args=["mcp", "--workdir", directory])) as client:

        async def call(tool, **arguments):
            result = await client.call_tool(tool, arguments)
            return result.content[0].text, (result.meta or {}).get("rlm/call")

        await call("bash", code="x=1; cd /")
        print((await call("bash", code="echo $x in $PWD"))[0], end="")
        print((await call("bash", code="echo ${x-no x}", session="another"))[0], end="")
        text, facts = await call("bash", code="sleep 1000", timeout=0.2)
        print("timed out:", facts["timed_out"], "state:", facts["state"])
        await call("reset", language="bash")
        print((await call("bash", code="echo ${x-no x}"))[0], end="")


anyio.run(main, *sys.argv[1:])
