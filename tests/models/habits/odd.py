"""Parts of replies in odd forms."""

import json
from collections.abc import Callable

from servers import Habit, Json
from wires import Turn

from habits.common import CALLS, NOTES, STREAMED, WRONG_ANSWER, Events, calls_of, fenced, on_calls, tagged, third


def renamed(n: int, message: Json) -> None:
    for at, call in enumerate(calls_of(message)):
        name = call["function"]["name"]
        call["function"]["name"] = [f"functions.{name}", f"{name}:{at}", f"functions.{name}:{at}"][(n + at) % 3]


def legacy(n: int, message: Json) -> None:
    message["function_call"] = message.pop("tool_calls")[0]["function"]


def one_call(turns: list[Turn]) -> list[Turn]:
    code = "\n".join(json.loads(call)["code"] for call in turns[1].calls)
    return [turns[0], Turn("Both.", "", (json.dumps({"code": code}),)), *turns[2:]]


CUT_BEHIND = third(Turn("So:\n```bash\necho half\n```\nand then", end="length"))
OTHER_LANGUAGE = third(Turn("So:\n```python\nprint('other')\n```"))


def as_object(call: Json) -> None:
    call["function"]["arguments"] = json.loads(call["function"]["arguments"])


def raw_newline(call: Json) -> None:
    call["function"]["arguments"] = call["function"]["arguments"].replace('"}', '\n\t"}') + " \n"


def two_choices(n: int, body: Json) -> None:
    other = {"role": "assistant", "content": WRONG_ANSWER}
    body["choices"].append({"index": 1, "message": other, "logprobs": None, "finish_reason": "stop"})


def stops(n: int, body: Json) -> None:
    body["choices"][0]["finish_reason"] = "stop"


def on_deltas(change: Callable[[Json, Json], None]) -> Callable[[Events], Events]:
    """Changes the calls in the events of a stream; the second argument is the delta that has begun the call."""

    def odd(events: Events) -> Events:
        begun: Json = {}
        for call in (
            call for _, event in events if event["choices"] for call in calls_of(event["choices"][0]["delta"])
        ):
            begun = call if "id" in call else begun
            change(call, begun)
        return events

    return odd


def no_index(call: Json, begun: Json) -> None:
    del call["index"]


def repeated(call: Json, begun: Json) -> None:
    call |= {"id": begun["id"], "type": "function", "function": {"name": begun["function"]["name"], **call["function"]}}


def null_at_first(call: Json, begun: Json) -> None:
    if call is begun:
        call["function"]["arguments"] = None
    else:
        call |= {"id": None, "type": None, "function": {"name": None, **call["function"]}}


SSE: dict[str, Callable[[str | None, str], bytes]] = {
    "sse-crlf": lambda event, text: f"data: {text}\r\n\r\n".encode(),
    "sse-cr": lambda event, text: f"data: {text}\r\r".encode(),
    "sse-comments": lambda event, text: f": ping\n\n:\ndata:{text}\n: more\n\n".encode(),
    "sse-fields": lambda event, text: f"event: message\nid: 7\nretry: 3000\nodd\ndata: {text}\n\n".encode(),
    "sse-no-data": lambda event, text: f"event: ping\n\nid: 1\n\ndata: {text}\n\n".encode(),
    "sse-two-lines": lambda event, text: f"data: {text}\n\n".replace('{"id"', '{\ndata: "id"', 1).encode(),
    "sse-no-unicode": lambda event, text: f"data: {text}\n\n".encode().replace("ü".encode(), b"\xff"),
}


def replaced(message: Json) -> Json:
    return json.loads(json.dumps(message, ensure_ascii=False).replace("ü", "\ufffd"))


STANDARD: Json = {"source": "the standard of server-sent events", **STREAMED}


# fmt: off
ODD = [
    Habit("code in fences", "models without tool calls", dress=fenced("")),
    Habit("thoughts in the text", "models without a parser", dress=fenced(f"<think>I try\n{WRONG_ANSWER}\n</think>")),
    Habit("thoughts that the template begins", "Qwen and DeepSeek without a parser",
          dress=fenced(f"I try\n{WRONG_ANSWER}</think>So:")),
    Habit("thoughts in capitals", dress=fenced(f'<THINK lang="en">I try\n{WRONG_ANSWER}\n</THINK>'), **NOTES),
    Habit("calls in the text", "Qwen and Hermes without a parser", dress=tagged),
    Habit("names", "gpt-oss, Kimi", dress=renamed),
    Habit("function_call", "OpenAI's API of 2023", dress=legacy, turns=one_call),
    Habit("a raw newline", "small models", odd=on_calls(raw_newline)),
    Habit("cut behind a block", "known", turns=CUT_BEHIND, told={4: "What would have followed it is lost."}),
    Habit("other language", "a model of 135M", turns=OTHER_LANGUAGE, told={4: "python"}),
    Habit("arguments as an object", odd=on_calls(as_object), allowed=CALLS, modes=("whole",), **NOTES),
    Habit("no id", odd=on_calls(lambda call: call.pop("id")), allowed=CALLS, has_pairs=False, **NOTES),
    Habit("empty ids", odd=on_calls(lambda call: call.update(id="")), has_pairs=False, **NOTES),
    Habit("one id for all", odd=on_calls(lambda call: call.update(id="c")), has_pairs=False, **NOTES),
    Habit("no usage", odd=lambda n, body: body.pop("usage"), **NOTES),
    Habit("stop beside calls", odd=stops, **NOTES),
    Habit("two choices", odd=two_choices, **NOTES),
    Habit("no index", odd_events=on_deltas(no_index), **NOTES, **STREAMED),
    Habit("all in each delta", odd_events=on_deltas(repeated), **NOTES, **STREAMED),
    Habit("null at first", odd_events=on_deltas(null_at_first), **NOTES, **STREAMED),
    *(Habit(name, sse=sse, back=replaced if "unicode" in name else None, **STANDARD) for name, sse in SSE.items()),
    Habit("three bytes at once", piece=3, **NOTES),
]
# fmt: on
