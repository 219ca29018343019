"""Rollouts from Python: a question, its events, a batch. The model is a function here, so no server is needed."""

import asyncio
import json
import sys
from typing import Any

import rlm_env


def population(city: str) -> int:
    """The number of people who live in a city."""
    return {"Oslo": 724_290, "Bergen": 291_940}[city]


async def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
    """A model that knows what to do. A real one: `await client.chat.completions.create(…)`."""
    if not tools:
        # A sub-call of `llm_batch`.
        return "a city of letters"
    code = 'city=$(head -n 1 cities.txt); RLM_CONTENT="$city: $(population "$city"), $(llm_batch "$city")"; RLM_READY=1'
    call = {"name": "call_bash_repl", "arguments": json.dumps({"code": code})}
    return {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": call}]}


async def main(directory: str) -> None:
    result = await rlm_env.run("Which city?", context=directory, model=model, tools=[population])
    print(result.stop_reason, result.answer)

    async for event in rlm_env.stream("Which city?", context=directory, model=model, tools=[population]):
        if isinstance(event, rlm_env.CallStarted):
            print(event.turn, event.tool)

    questions = ["Which city?", "Which one is it?"]
    results = rlm_env.batch(questions, attempts=2, parallel=2, context=directory, model=model, tools=[population])
    print(sorted([result.id async for result in results]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
