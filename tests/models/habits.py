"""The habits of servers, a row each. Sources are threads on GitHub unless said; `known` is known from several."""

import json
from collections.abc import Callable
from typing import Any

from servers import THOUGHT, Fault, Habit, Json, Request, no_field, no_message_field, said
from wires import SECRET, Refusal, Turn, openai_error

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


# Fields that must come back.


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


def vllm_error(message: str) -> Refusal:
    return 400, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}


def vllm_rule(request: Request) -> Refusal | None:
    if request.body.get("tools") == []:
        return vllm_error("`tools` must not be an empty array")
    try:
        texts = [call["function"]["arguments"] for message in said_by_model(request) for call in calls_of(message)]
        return None if all(isinstance(json.loads(text), dict) for text in texts) else vllm_error("no object")
    except ValueError as error:
        return vllm_error(str(error))


def mended(message: Json) -> Json:
    """Servers that parse arguments get an object in place of some that are not JSON."""
    for call in calls_of(message):
        if '"}' not in call["function"]["arguments"].replace(" ", ""):
            call["function"]["arguments"] = "{}"
    return message


def litellm(n: int, message: Json) -> None:
    blocks = [{"type": "thinking", "thinking": message[THOUGHT], "signature": f"{SECRET}-{n}"}]
    message |= {"reasoning_content": message[THOUGHT], "thinking_blocks": blocks}
    message["provider_specific_fields"] = {"thinking_blocks": blocks}


# Fields that must not be sent.


def no_null_content(words: str) -> Callable[[Request], Refusal | None]:
    return lambda request: (
        said(words) if None in [line.get("content", "") for line in request.body["messages"]] else None
    )


def ollama(n: int, message: Json) -> None:
    thinks("reasoning")(n, message)
    message["content"] = message["content"] or ""


def request_id(request: Request) -> Refusal | None:
    return None if len(request.headers.get("x-request-id", "")) == 36 else (400, "Bad Request")


WORDS = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
NO_MAX_TOKENS = no_field("max_tokens", said(WORDS, "max_tokens", "unsupported_parameter"))
WORDS = "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted'}]"
NO_STREAM_OPTIONS = no_field("stream_options", vllm_error(WORDS))
WORDS = (
    "'messages.{at}' : for 'role:assistant' the following must be satisfied[('messages.{at}' : property '{name}' is "
    "unsupported, did you mean 'role'?)]"
)
GROQ = no_message_field("reasoning", WORDS)
NO_REASONING_CONTENT = no_message_field("reasoning_content")


# Parts of replies in odd forms.

OWN_WORD = ("choices.finish_reason",)
"""Ends in words that the SDKs do not know."""
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


def renamed(n: int, message: Json) -> None:
    for at, call in enumerate(calls_of(message)):
        name = call["function"]["name"]
        call["function"]["name"] = [f"functions.{name}", f"{name}:{at}", f"functions.{name}:{at}"][(n + at) % 3]


def legacy(n: int, message: Json) -> None:
    message["function_call"] = message.pop("tool_calls")[0]["function"]


def one_call(turns: list[Turn]) -> list[Turn]:
    code = "\n".join(json.loads(call)["code"] for call in turns[1].calls)
    return [turns[0], Turn("Both.", "", (json.dumps({"code": code}),)), *turns[2:]]


def third(turn: Turn) -> Callable[[list[Turn]], list[Turn]]:
    """Puts a turn in place of the malformed call."""
    return lambda turns: [*turns[:2], turn, *turns[3:]]


CUT_ARGUMENTS = third(Turn("Long.", "I write.", ('{"code": "echo ',), end="length"))
CUT_BEHIND = third(Turn("So:\n```bash\necho half\n```\nand then", end="length"))
CUT_CALL = third(Turn("Long.", "I write.", ("{}",), end="model_context_window_exceeded"))
REFUSED_CALL = third(Turn("Long.", "I write.", ("{}",), end="refusal"))
OTHER_LANGUAGE = third(Turn("So:\n```python\nprint('other')\n```"))


def on_calls(change: Callable[[Json], Any]) -> Dress:
    """Changes the calls of a reply."""
    return lambda n, body: [change(call) for call in calls_of(body["choices"][0]["message"])] and None


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


# Anthropic and OpenAI's Responses.


def redacted(n: int, message: Json) -> None:
    message["content"].insert(1, {"type": "redacted_thinking", "data": f"{SECRET}-{n}"})


def responses_rule(request: Request) -> Refusal | None:
    """The reasoning of a call must be there, and was sent if the request for it asked for that."""
    if request.body.get("store") is not False or "reasoning.encrypted_content" not in request.body.get("include", []):
        return said("nothing is stored here: `store` must be false, and `include` have `reasoning.encrypted_content`")
    ids = {item.get("id") for item in request.body["input"]}
    for item in request.body["input"]:
        if item.get("type") == "function_call" and (needs := f"rs_{item['id'].split('_')[1]}") not in ids:
            kind = f"Item '{item['id']}' of type 'function_call'"
            return said(f"{kind} was provided without its required 'reasoning' item: '{needs}'.")
    return None


NO_ENCRYPTED = no_field("include", said("Encrypted content is not supported with this model.", "include"))


def thoughtless(turns: list[Turn]) -> list[Turn]:
    return [Turn(turn.text, "", turn.calls, turn.end) for turn in turns]


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


def pausing(turns: list[Turn]) -> list[Turn]:
    return [turns[0], Turn("I search.", "Long.", (), "pause_turn"), *turns[1:]]


def in_turns(request: Request) -> Refusal | None:
    """The template counts neither tools' outputs nor replies with calls."""
    roles = [m["role"] for m in request.body["messages"] if m["role"] in ("user", "assistant") and not calls_of(m)]
    if all(role == ("user", "assistant")[at % 2] for at, role in enumerate(roles)):
        return None
    words = "conversation roles must alternate user and assistant roles except for tool calls and results."
    error = {"code": 500, "message": f"After the optional system message, {words}", "type": "server_error"}
    return 500, {"error": error}


def no_system(request: Request) -> Refusal | None:
    has_system = any(message["role"] == "system" for message in request.body["messages"])
    return (400, openai_error("System role not supported")) if has_system else None


def answers_have_names(request: Request) -> Refusal | None:
    nameless = [message for message in request.body["messages"] if message["role"] == "tool" and "name" not in message]
    return said("Tool message must have a 'name' field.") if nameless else None


def no_tools(request: Request) -> Refusal | None:
    words = "Tool calling is not supported for model: deepseek-ai/DeepSeek-R1"
    return (405, {"detail": {"error": words}}) if "tools" in request.body else None


def bearer_alone(request: Request) -> Refusal | None:
    words = "login fail: Please carry the API secret key in the 'Authorization' field of the request header"
    error = {"type": "error", "error": {"type": "authentication_error", "message": words}}
    has_key = request.headers.get("authorization", "").startswith("Bearer ")
    return None if has_key and "x-api-key" not in request.headers else (401, error)


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_1"}
DISCONNECTED = {"code": 502, "message": "Provider disconnected", "metadata": {"error_type": "provider_unavailable"}}
ROUTER = {"id": "gen-1", "object": "chat.completion.chunk", "model": "m", "choices": [], "error": DISCONNECTED}
CHOICE: Json = {"index": 0, "delta": {"content": ""}, "finish_reason": "error", "error": DISCONNECTED}
CHOICE = {"id": "gen-1", "object": "chat.completion", "model": "m", "choices": [CHOICE]}
RATE = said("Rate limit reached for requests", code="rate_limit_exceeded")[1]
AT_ONCE = {"retry-after": "0", "x-ratelimit-reset-requests": "20ms"}

# Fields that the SDKs do not know.
THINKS = ("messages.reasoning",)
PARTS = ("messages.content", "choices.message.content", "choices.delta.content")
CALLS = ("messages.tool_calls", "choices.message.tool_calls", "choices.delta.tool_calls")
BOTH = {"languages": ("bash", "python")}
STREAMED: Json = {"modes": ("streamed",)}
CLAUDE: Json = {"api": "anthropic", "server": "anthropic", "source": "anthropic's types, platform.claude.com/docs"}
GPT: Json = {"api": "responses", "server": "openai"}
NOTES: Json = {"source": "known"}
STANDARD: Json = {"source": "the standard of server-sent events", **STREAMED}


def sorry(name: str, value: Any) -> Dress:
    return lambda n, message: message.update({name: value} if n > 1 else {})


# fmt: off
HABITS = [
    Habit("plain", "OpenAI's reference", **BOTH),
    # Fields that must come back.
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
          rules=(no_signatures,), learns=1, allowed=(*THINKS, "reasoning"),
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
    # Fields that must not be sent.
    Habit("openai", "decolua/9router#560, OpenHands/OpenHands#4131", server="openai", model="gpt-5",
          rules=(NO_MAX_TOKENS,), dress=lambda n, message: message.update(annotations=[]),
          allowed=("messages.annotations",), bounds=("max_completion_tokens",)),
    Habit("openai anywhere", "decolua/9router#560", rules=(NO_MAX_TOKENS,), learns=1),
    Habit("cut arguments", "OpenAI reads none", server="openai", turns=CUT_ARGUMENTS,
          bounds=("max_completion_tokens",)),
    Habit("deepseek-reasoner", "its documentation of 2025; the words are not known", rules=(NO_REASONING_CONTENT,),
          dress=thinks("reasoning_content"), back=without("reasoning_content"), learns=1),
    Habit("groq", "janhq/jan#8136, karthink/gptel#774; one refusal, as gpt-oss' own may pass", server="groq",
          rules=(GROQ,), dress=thinks("reasoning"), back=without("reasoning"), learns=1),
    Habit("cerebras", "Kilo-Org/kilocode#10375, QwenLM/qwen-code#11045", server="cerebras", rules=(
          NO_REASONING_CONTENT,), dress=thinks("reasoning"), allowed=THINKS),
    Habit("llama-cpp-python", "abetlen/llama-cpp-python#1337", rules=(request_id,)),
    Habit("no stream_options", "known: older vLLM", rules=(NO_STREAM_OPTIONS,), learns=1, **STREAMED),
    Habit("lm studio", "lmstudio-ai/lmstudio-bug-tracker#261", learns=1,
          back=with_text,
          rules=(no_null_content("Invalid 'content': 'content' field must be a string or an array of objects."),)),
    Habit("ollama", "SAIL-Research-Lab/cheetahclaws#72", server="ollama", dress=ollama, allowed=THINKS,
          rules=(no_null_content("invalid message content type: <nil>"),)),
    Habit("roles in turns", "the templates of Mistral and Ministral, as llama.cpp and vLLM run them", rules=(in_turns,),
          dress=tagged, learns=1),
    Habit("no system prompt", "the template of Gemma 2", rules=(no_system,), learns=1),
    Habit("names of answers", "su-kaka/gcli2api#200", rules=(answers_have_names,), learns=1,
          allowed=("messages.name",)),
    Habit("no tools", "AstrBotDevs/AstrBot#305", rules=(no_tools,), dress=fenced(""), learns=1),
    # Parts of replies in odd forms.
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
    # Faults that pass.
    Habit("429", "OpenAI's guide", faults={2: Fault(429, RATE, AT_ONCE)}),
    Habit("503 and 529", faults={2: Fault(503, RATE), 4: Fault(529, OVERLOADED, AT_ONCE)}, **NOTES),
    Habit("error in a 200", "diegosouzapw/OmniRoute#8210", server="openrouter",
          faults={3: Fault(200, ROUTER, after=4)}),
    Habit("error in a choice", "openrouter.ai/docs/api-reference/errors", server="openrouter",
          faults={3: Fault(200, CHOICE, after=4)}),
    # Servers with other interfaces.
    Habit("anthropic", **CLAUDE, **BOTH),
    Habit("anthropic, another header", "NousResearch/hermes-agent#4028", "anthropic", rules=(bearer_alone,), learns=1),
    Habit("anthropic, redacted", dress=redacted, **CLAUDE),
    Habit("anthropic, a silent reply", turns=silent, back=spoken, **CLAUDE),
    Habit("anthropic, pausing", turns=pausing, **CLAUDE),
    Habit("anthropic, no thoughts", turns=thoughtless, **CLAUDE),
    Habit("anthropic, a cut call", turns=CUT_CALL, told={4: "the reply was cut off"}, **CLAUDE),
    Habit("anthropic, a refused call", turns=REFUSED_CALL, told={4: "the model refused"}, **CLAUDE),
    Habit("anthropic, overloaded", **CLAUDE,
          faults={2: Fault(529, OVERLOADED, AT_ONCE), 4: Fault(529, OVERLOADED, after=5)}),
    Habit("responses", "continuedev/continue#10018, #8933, openai-agents-js#546", rules=(responses_rule,),
          **GPT, **BOTH),
    Habit("responses, no reasoning", "OpenHands/software-agent-sdk#1208", rules=(NO_ENCRYPTED,), learns=1,
          turns=thoughtless, **GPT),
]

REFUSED, CUT, FULL, SORRY = "model_refused", "reply_cut", "context_full", {"type": "refusal", "refusal": "I'm sorry."}
ITEM = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [SORRY]}
TYPES = "the SDKs' types"
ENDINGS = [
    (Habit("chat: refusal", TYPES, dress=sorry("refusal", "I'm sorry.")), Turn(), REFUSED),
    (Habit("chat: content_filter", TYPES), Turn("I", end="content_filter"), REFUSED),
    (Habit("chat: a filter behind a block", TYPES), Turn(WRONG_ANSWER, end="content_filter"), REFUSED),
    (Habit("chat: SAFETY", "Gemini behind proxies", allowed=OWN_WORD), Turn("I", end="SAFETY"), REFUSED),
    (Habit("chat: sensitive", "Z.ai", allowed=OWN_WORD), Turn("I", end="sensitive"), REFUSED),
    (Habit("chat: content_filter: …", "Gemini", allowed=OWN_WORD),
     Turn("I", end="content_filter: PROHIBITED_CONTENT"), REFUSED),
    (Habit("chat: model_length", "mistralai/client-python", allowed=OWN_WORD), Turn("I will", end="model_length"), CUT),
    (Habit("chat: length", TYPES), Turn("I will", end="length"), CUT),
    (Habit("anthropic: refusal", TYPES, "anthropic"), Turn("I", end="refusal"), REFUSED),
    (Habit("anthropic: max_tokens", TYPES, "anthropic"), Turn("I will", end="max_tokens"), CUT),
    (Habit("anthropic: max_tokens in a thought", TYPES, "anthropic", back=spoken),
     Turn(None, SILENT, end="max_tokens"), CUT),
    (Habit("anthropic: window", TYPES, "anthropic"), Turn("I", end="model_context_window_exceeded"), FULL),
    (Habit("responses: refusal", TYPES, "responses", dress=sorry("output", [ITEM])), Turn(), REFUSED),
    (Habit("responses: content_filter", TYPES, "responses"), Turn("I", end="content_filter"), REFUSED),
    (Habit("responses: max_output_tokens", TYPES, "responses"), Turn("I", end="max_output_tokens"), CUT),
]
# fmt: on
