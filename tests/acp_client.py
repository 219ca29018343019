"""The official SDK's client of the Agent Client Protocol, driven by lines of JSON.

Arguments: the agent's command. Each line of standard input is a command: `op`, its arguments, and a `name` for its
result. Standard output has a line for each update, question for permission, and result.
"""

import asyncio
import json
import sys

import acp
from acp.schema import AllowedOutcome, RequestPermissionResponse


def show(**event):
    print(json.dumps(event), flush=True)


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True) if model is not None else None


class Client(acp.Client):
    permission = "allow"

    async def session_update(self, session_id, update, **_):
        show(session=session_id, update=plain(update))

    async def request_permission(self, session_id, tool_call, options, **_):
        show(session=session_id, asked=plain(tool_call), options=[plain(option) for option in options])
        if self.permission == "never":
            await asyncio.Event().wait()
        outcome = AllowedOutcome(outcome="selected", option_id=self.permission)
        return RequestPermissionResponse(outcome=outcome)


async def run(connection, client, op, name, arguments):
    try:
        if op == "initialize":
            result = await connection.initialize(protocol_version=1)
        elif op == "new":
            servers = arguments.get("servers", [])
            parsed = acp.NewSessionRequest.model_validate({"cwd": arguments["cwd"], "mcpServers": servers})
            result = await connection.new_session(
                cwd=arguments["cwd"], mcp_servers=parsed.mcp_servers, **arguments.get("meta", {})
            )
        elif op == "prompt":
            block = arguments.get("blocks") or [{"type": "text", "text": arguments["text"]}]
            parsed = acp.PromptRequest.model_validate({"sessionId": arguments["session"], "prompt": block})
            result = await connection.prompt(session_id=arguments["session"], prompt=parsed.prompt)
        elif op == "cancel":
            result = await connection.cancel(session_id=arguments["session"])
        elif op == "close":
            result = await connection.close_session(session_id=arguments["session"])
        elif op == "set":
            result = await connection.set_config_option(
                config_id=arguments["option"], session_id=arguments["session"], value=arguments["value"]
            )
        elif op == "permission":
            client.permission = arguments["answer"]
            result = None
        show(name=name, result=plain(result))
    except acp.RequestError as error:
        show(name=name, error={"code": error.code, "message": str(error), "data": error.data})


async def main():
    client = Client()
    command, *arguments = sys.argv[1:]
    limits = {"limit": 64 << 20}
    tasks = set()
    async with acp.spawn_agent_process(
        client, command, *arguments, transport_kwargs=limits, use_unstable_protocol=True
    ) as (connection, process):
        reader = asyncio.StreamReader(limit=64 << 20)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            request = json.loads(line)
            task = asyncio.create_task(run(connection, client, request.pop("op"), request.pop("name"), request))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    show(exit=process.returncode)


asyncio.run(main())
