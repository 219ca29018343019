"""Fields that must come back."""

import json

from servers import THOUGHT, Habit, Json, Request, said
from wires import SECRET, Refusal

from habits.common import (
    BOTH,
    CALLS,
    CUT_ARGUMENTS,
    STREAMED,
    THINKS,
    Dress,
    Events,
    calls_of,
    mended,
    no_null_content,
    nothing_silent,
    on_calls,
    said_by_model,
    silent,
    spoken,
    thinks,
    vllm_error,
    with_text,
    without,
)

MUST_BE_BACK = "The `reasoning_content` in the thinking mode must be passed back to the API."


def reasoning_is_back(request: Request) -> Refusal | None:
    missing = [
        message for message in said_by_model(request) if calls_of(message) and not message.get("reasoning_content")
    ]
    return said(MUST_BE_BACK) if missing else None


def deepseek(n: int, message: Json) -> None:
    thinks("reasoning_content")(n, message)
    message["content"] = message["content"] or ""


def deepseek_usage(n: int, body: Json) -> None:
    hit = body["usage"].pop("prompt_tokens_details")["cached_tokens"]
    missed = body["usage"]["prompt_tokens"] - hit
    body["usage"] |= {"prompt_cache_hit_tokens": hit, "prompt_cache_miss_tokens": missed}


def kimi(n: int, message: Json) -> None:
    thinks("reasoning_content")(n, message)
    for at, call in enumerate(calls_of(message)):
        call["id"] = f"functions.{call['function']['name']}:{n}{at}"


def gemini(vendor: str) -> Dress:
    def dress(n: int, message: Json) -> None:
        for call in calls_of(message)[:1]:
            call["extra_content"] = {vendor: {"thought_signature": f"{SECRET}-{n}=="}}

    return dress


def signature_is_back(request: Request) -> Refusal | None:
    words = (
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
        "correctly, and missing thought_signature may lead to degraded model performance."
    )
    first = [call for message in said_by_model(request) for call in calls_of(message)[:1]]
    error = {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}
    return None if all(call.get("extra_content") for call in first) else (400, [{"error": error}])


def whole_calls(events: Events) -> Events:
    """Each call in one event, all with index 0."""
    found: Events = []
    for name, event in events:
        [call] = (calls_of(event["choices"][0]["delta"]) if event["choices"] else []) or [None]
        if call and "id" not in call:
            begun = found[-1][1]["choices"][0]["delta"]["tool_calls"][0]
            begun["function"]["arguments"] += call["function"]["arguments"]
        else:
            found.append((name, event))
            (call or {}).update(index=0)
    return found


def openrouter(n: int, message: Json) -> None:
    text = {
        "type": "reasoning.text",
        "text": message[THOUGHT],
        "signature": f"{SECRET}-{n}",
        "format": "anthropic-claude-v1",
    }
    hidden = {"type": "reasoning.encrypted", "data": f"{SECRET}-{n}", "format": "openai-responses-v1", "id": f"rs_{n}"}
    details = [{**text, "index": 0}, {**hidden, "index": 1}]
    message |= {"refusal": None, "reasoning": message[THOUGHT], "reasoning_details": details}


def no_signatures(request: Request) -> Refusal | None:
    words = "messages.1.content.0: Invalid signature in thinking block"
    return said(words) if any("reasoning_details" in message for message in said_by_model(request)) else None


def mistral(n: int, message: Json) -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": message[THOUGHT]}]}
    message["content"] = [thinking, {"type": "text", "text": message["content"] or "-"}]
    for at, call in enumerate(calls_of(message)):
        call["id"] = f"aB3dE{n:02}{at:02}"


def mistral_rule(request: Request) -> Refusal | None:
    unknown = [("body", name) for name in request.body if name == "max_completion_tokens"]
    for at, message in enumerate(request.body["messages"]):
        other = set(message) - {"role", "content", "tool_calls", "prefix"} if message["role"] == "assistant" else ()
        unknown += [("body", "messages", at, "assistant", name) for name in other]
        for call in calls_of(message):
            if len(call["id"]) != 9 or not call["id"].isalnum():
                words = f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9."
                return 400, {"object": "error", "message": words, "type": "invalid_request_error"}
    faults = [{"type": "extra_forbidden", "loc": loc, "msg": "Extra inputs are not permitted"} for loc in unknown]
    error = {"object": "error", "message": {"detail": faults}, "type": "invalid_request_error"}
    return (422, error) if faults else None


def joined_parts(message: Json) -> Json:
    """A stream may have more parts of a kind after each other."""
    found: list[list[str]] = []
    for part in message["content"]:
        text = part["text"] if part["type"] == "text" else "".join(inner["text"] for inner in part["thinking"])
        if found and found[-1][0] == part["type"]:
            found[-1][1] += text
        else:
            found.append([part["type"], text])
    return {**message, "content": found}


def vllm(n: int, message: Json) -> None:
    nothing = {"refusal": None, "annotations": None, "audio": None, "function_call": None}
    message |= {**nothing, "tool_calls": calls_of(message), "reasoning": message[THOUGHT]}


def token_ids(n: int, body: Json) -> None:
    body["prompt_token_ids"], body["choices"][0]["token_ids"] = [1, 2, n], [3, n]


def vllm_rule(request: Request) -> Refusal | None:
    if request.body.get("tools") == []:
        return vllm_error("`tools` must not be an empty array")
    try:
        texts = [call["function"]["arguments"] for message in said_by_model(request) for call in calls_of(message)]
        return None if all(isinstance(json.loads(text), dict) for text in texts) else vllm_error("no object")
    except ValueError as error:
        return vllm_error(str(error))


def litellm(n: int, message: Json) -> None:
    blocks = [{"type": "thinking", "thinking": message[THOUGHT], "signature": f"{SECRET}-{n}"}]
    message |= {"reasoning_content": message[THOUGHT], "thinking_blocks": blocks}
    message["provider_specific_fields"] = {"thinking_blocks": blocks}


PARTS = ("messages.content", "choices.message.content", "choices.delta.content")


# fmt: off
RETURNED = [
    Habit("deepseek", "earendil-works/pi#3636, QwenLM/qwen-code#3578", server="deepseek",
          rules=(reasoning_is_back, no_null_content("null content beside reasoning")),
          back=with_text, dress=thinks("reasoning_content"), odd=deepseek_usage, allowed=THINKS, **BOTH),
    Habit("deepseek anywhere", "known; it says the same of null content", dress=deepseek, allowed=THINKS,
          rules=(reasoning_is_back, no_null_content(MUST_BE_BACK)), learns=1),
    Habit("kimi", "known; moonshot's template", rules=(reasoning_is_back,), dress=kimi, allowed=THINKS),
    Habit("kimi, a silent reply", "lobehub/lobehub#8419, AstrBotDevs/AstrBot#7200", server="moonshot",
          rules=(nothing_silent("the message at position 2 with role 'assistant' must not be empty"),), dress=kimi,
          turns=silent, back=spoken, allowed=THINKS),
    Habit("a silent reply", "Kilo-Org/kilocode#13069: words that tell nothing", learns=1,
          rules=(nothing_silent("Invalid API parameter, please check the documentation."),),
          dress=thinks("reasoning_content"), turns=silent, back=spoken, allowed=THINKS),
    Habit("gemini", "langroid/langroid#969, askimo-ai/askimo#543", server="gemini", rules=(signature_is_back,),
          dress=gemini("google"), odd_events=whole_calls, allowed=CALLS, **BOTH),
    Habit("gemini, calls without ids", "known", server="gemini", rules=(signature_is_back,),
          dress=gemini("google"), odd=on_calls(lambda call: call.update(id="")), odd_events=whole_calls, allowed=CALLS,
          has_pairs=False, **STREAMED),
    Habit("gemini on vertex", "known", rules=(signature_is_back,), dress=gemini("vertex"), allowed=CALLS),
    Habit("openrouter", "earendil-works/pi#6733, openai/openai-go#227", server="openrouter", dress=openrouter,
          odd=lambda n, body: body["usage"].update(cost=0.000123), allowed=(*THINKS, "usage", "reasoning"),
          sse=lambda event, text: f": OPENROUTER PROCESSING\n\ndata: {text}\n\n".encode()),
    Habit("openrouter, another provider each time", "linanwx/nagobot#21", server="openrouter", dress=openrouter,
          rules=(no_signatures,), learns=2, allowed=(*THINKS, "reasoning"),
          back=lambda reply: without("reasoning")(without("reasoning_details")(reply))),
    Habit("mistral", "charmbracelet/crush#1590, editor-code-assistant/eca#231", server="mistral", rules=(mistral_rule,),
          dress=mistral, seen=joined_parts, bounds=("max_tokens",), allowed=PARTS),
    Habit("mistral's ids", "langchain-ai/langchain#24668; those that are ours", server="mistral",
          rules=(mistral_rule,), odd=on_calls(lambda call: call.pop("id")), allowed=CALLS, bounds=("max_tokens",)),
    Habit("vllm", "vllm-project/vllm#48922, #39780; its protocol.py", server="vllm", rules=(vllm_rule,), dress=vllm,
          odd=token_ids, turns=CUT_ARGUMENTS, seen=mended, learns=1, settings={"RLM_TOKEN_IDS": "true"},
          allowed=(*THINKS, "messages.annotations", "return_token_ids"), **BOTH),
    Habit("vllm anywhere", "vllm-project/vllm#48922", rules=(vllm_rule,), turns=CUT_ARGUMENTS, seen=mended, learns=1),
    Habit("sglang", "sgl-project/sglang#28035", server="sglang", rules=(vllm_rule,), dress=thinks("reasoning_content"),
          allowed=THINKS),
    Habit("litellm", "litellm's types.utils.Message", server="litellm", dress=litellm,
          allowed=(*THINKS, "messages.thinking_blocks", "messages.provider_specific_fields")),
]
# fmt: on
