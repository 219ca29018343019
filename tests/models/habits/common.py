"""Parts of replies and rules that several kinds of habits have."""

import json
from collections.abc import Callable
from typing import Any

from servers import THOUGHT, Json, Request, said
from wires import Refusal, Turn

Events = list[tuple[str | None, Json]]
Dress = Callable[[int, Json], None]


def calls_of(message: Json) -> list[Json]:
    return message.get("tool_calls") or []


def said_by_model(request: Request) -> list[Json]:
    return [message for message in request.body["messages"] if message["role"] == "assistant"]


def thinks(name: str) -> Dress:
    """Reasoning in a field of the message."""
    return lambda n, message: message.update({name: message[THOUGHT]} if THOUGHT in message else {})


def with_text(message: Json) -> Json:
    return message | {"content": message["content"] or ""}


def without(name: str) -> Callable[[Json], Json]:
    return lambda message: {other: value for other, value in message.items() if other != name}


def mended(message: Json) -> Json:
    """Servers that parse arguments get an object in place of some that are not JSON."""
    for call in calls_of(message):
        if '"}' not in call["function"]["arguments"].replace(" ", ""):
            call["function"]["arguments"] = "{}"
    return message


def vllm_error(message: str) -> Refusal:
    return 400, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}


def no_null_content(words: str) -> Callable[[Request], Refusal | None]:
    return lambda request: (
        said(words) if None in [line.get("content", "") for line in request.body["messages"]] else None
    )


WRONG_ANSWER = "```bash\nRLM_CONTENT=wrong RLM_READY=1\n```"


def fenced(beginning: str) -> Dress:
    """Code in fences of the text, in place of calls."""

    def dress(n: int, message: Json) -> None:
        codes = [json.loads(call["function"]["arguments"]).get("code") for call in message.pop("tool_calls")]
        blocks = [f"```bash\n{code}\n```" for code in codes if code]
        message["content"] = "\n".join([beginning, message["content"] or "", *blocks])

    return dress


def tagged(n: int, message: Json) -> None:
    """Calls as Hermes and Qwen write them, where nothing parses them."""
    functions = [call["function"] for call in message.pop("tool_calls")]
    calls = [{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in functions]
    texts = [f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls]
    message["content"] = "\n".join([message["content"] or "", *texts])


def third(turn: Turn) -> Callable[[list[Turn]], list[Turn]]:
    """Puts a turn in place of the malformed call."""
    return lambda turns: [*turns[:2], turn, *turns[3:]]


CUT_ARGUMENTS = third(Turn("Long.", "I write.", ('{"code": "echo ',), end="length"))


def on_calls(change: Callable[[Json], Any]) -> Dress:
    """Changes the calls of a reply."""
    return lambda n, body: [change(call) for call in calls_of(body["choices"][0]["message"])] and None


SILENT = "Nothing to say."


def silent(turns: list[Turn]) -> list[Turn]:
    """With a reply of thinking alone."""
    return [turns[0], Turn(None, SILENT), *turns[1:]]


def spoken(unit: Json) -> Json | None:
    return None if SILENT in json.dumps(unit) else unit


def nothing_silent(words: str) -> Callable[[Request], Refusal | None]:
    def rule(request: Request) -> Refusal | None:
        is_silent = any(not message["content"] and not calls_of(message) for message in said_by_model(request))
        return said(words) if is_silent else None

    return rule


# Fields that the SDKs do not know.
THINKS = ("messages.reasoning",)
CALLS = ("messages.tool_calls", "choices.message.tool_calls", "choices.delta.tool_calls")
BOTH = {"languages": ("bash", "python")}
STREAMED: Json = {"modes": ("streamed",)}
NOTES: Json = {"source": "known"}
