"""Tasks, a model for them, and agents."""

from __future__ import annotations

import json
import sys
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.runtimes import SubprocessConfig

SET = {
    "bash": ("n=$(wc -l <a.txt)", 'RLM_CONTENT="$n lines, $KIND" RLM_READY=1'),
    "python": (
        "import os; n = len(open('a.txt').readlines())",
        "answer['content'] = f\"{n} lines, {os.environ['KIND']}\"; answer['ready'] = True",
    ),
}


IN: dict[str, dict[str, Any]] = {
    "bash": {"language": "bash"},
    "python": {"language": "python", "python": sys.executable},
}


class Lines(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    def runtime_env(self) -> dict[str, str]:
        return {"KIND": "text"}

    async def setup(self, runtime: Any) -> None:
        await runtime.write("a.txt", b"one\ntwo\n")

    @vf.reward
    async def is_right(self, trace: Any) -> float:
        return float(trace.root_reply == "2 lines, text")


def task(prompt: Any = "How many lines has a.txt?") -> Lines:
    return Lines(vf.TaskData(prompt=prompt, system_prompt="Be exact."))


class Model:
    """A server that answers with one message after the other, and keeps the requests. An int is a status."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.requests: list[Any] = []
        self.url = ""

    def answer(self, _path: str, _headers: Any, body: Any) -> tuple[int, Any]:
        self.requests.append(body)
        reply = self.replies.pop(0)
        if isinstance(reply, int):
            return reply, {"error": {"message": "no such luck"}}
        finish_reason = "tool_calls" if "tool_calls" in reply else "stop"
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        choice = {"index": 0, "delta" if body.get("stream") else "message": reply, "finish_reason": finish_reason}
        completion = {"id": "1", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        if not body.get("stream"):
            return 200, {"object": "chat.completion", **completion}
        chunk = json.dumps({"object": "chat.completion.chunk", **completion})
        return 200, f"data: {chunk}\n\ndata: [DONE]\n\n"


def calls(language: str, *codes: str) -> list[Any]:
    """Messages of a model that run these codes."""
    functions = [{"name": f"call_{language}_repl", "arguments": json.dumps({"code": code})} for code in codes]
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"index": 0, "id": f"c{n}", "type": "function", "function": function}],
        }
        for n, function in enumerate(functions)
    ]


def agent(model: Model, **fields: Any) -> Any:
    fields = {"id": "rlm_env_harness", "env": {"RLM_MAX_RETRIES": "0"}, **fields}
    client = vf.EvalClientConfig(base_url=model.url, api_key_var="NO_SUCH_KEY")
    return vf.Agent(vf.AgentConfig(harness=fields, runtime=SubprocessConfig(), model="m", client=client))


def check(trace: Any) -> None:
    assert trace.errors == [], trace.errors[0].message
    assert (trace.ok, trace.root_reply, trace.reward) == (True, "2 lines, text", 1.0)
    assert trace.stop_condition == "agent_completed"
    assert (trace.metrics["root_llm_turns"], trace.metrics["root_llm_prompt_tokens"]) == (2, 20)
    assert (trace.num_turns, len(trace.branches)) == (2, 1)


def edges(trace: Any) -> list[tuple[int, int, str]]:
    """The edges of a trace, between the numbers of its calls."""
    number = {call.node: n for n, call in enumerate(trace.calls)}
    links = [(node, link) for node in number for link in trace.nodes[node].semantic_parents]
    return sorted((number[link.node], number[node], link.type) for node, link in links)
