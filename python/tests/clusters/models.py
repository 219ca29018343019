"""Models of rollouts on a cluster, and servers of models."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import json_server

CONCURRENCY = 2
"""Rollouts at once on a node, where they do not take turns."""


def scripted(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
    """A model that answers with a sub-call. It runs beside the sessions."""
    if not tools:
        return "a sub-call"
    name = tools[0]["function"]["name"]
    code = 'RLM_CONTENT="$(llm_batch hello): $(ls | wc -l)" RLM_READY=1'
    if "python" in name:
        code = (
            "import os\nanswer['content'] = f\"{llm_batch(['hello'])[0]}: {len(os.listdir())}\"; answer['ready'] = True"
        )
    function = {"name": name, "arguments": json.dumps({"code": code})}
    return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


class WithSmallFiles:
    """The model `scripted` for nodes that cannot write files of more than 1 MiB."""

    def __reduce__(self) -> Any:
        return scripted_with_small_files, ()

    __call__ = staticmethod(scripted)


def scripted_with_small_files() -> Any:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    return scripted


def settings_of(base_url: str) -> dict[str, Any]:
    """The settings of a model on this server."""
    return {"model": "m", "base_url": base_url, "stream": False}


@contextmanager
def served(answer: Any) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The settings of a model whose server says `answer(body)`, and the paths of the requests that it has got."""
    asked: list[str] = []

    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        asked.append(path)
        return completion(answer(body))

    with json_server(reply) as url:
        yield settings_of(f"{url}/v1"), asked


def completion(message: Any) -> tuple[int, Any]:
    """The answer of a model's server that says this."""
    message = {"role": "assistant", **(message if isinstance(message, dict) else {"content": message})}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


def here() -> str:
    """Runs with the driver."""
    return "here"


def holding(value: Any) -> Any:
    """A function that has this value."""

    def holds(*_: Any, **__: Any) -> str:
        return str(value)

    return holds


def running(code: str) -> Any:
    """A model that runs this code, and nothing else."""

    def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        function = {"name": "call_bash_repl", "arguments": json.dumps({"code": code})}
        return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}

    return model


def until_there(path: Path) -> str:
    """Code that waits for a file."""
    return f"until [ -e {path} ]; do sleep 0.05; done"


def ids_of(attempts: int, questions: int = 1) -> list[str]:
    """The sorted ids of all attempts at so many questions."""
    return sorted(f"{question + 1}-{attempt + 1}" for question in range(questions) for attempt in range(attempts))
