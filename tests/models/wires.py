"""The three wires: how a server writes a reply, whole and streamed, and what of a request must be as it was."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Refusal = tuple[int, Any]
MARK = "cache_control"
SECRET = "never-in-a-log"


@dataclass(frozen=True)
class Turn:
    """A reply of a model: `calls` are the texts of the arguments, `end` the wire's word for why it ended."""

    text: str | None = None
    thought: str = ""
    calls: tuple[str, ...] = ()
    end: str | None = None


@dataclass(frozen=True)
class Counts:
    prompt: int
    cached: int = 0
    written: int = 0
    completion: int = 9
    reasoning: int = 3


def raw(text: str, name: str) -> str:
    """A field of a request as it is written."""
    at = text.index(f'"{name}":') + len(name) + 3
    return text[at : json.JSONDecoder().raw_decode(text, at)[1]]


def parts(text: str, size: int = 5) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


class Chat:
    api, path, raw = "chat", "/v1/chat/completions", "messages"

    def message(self, n: int, turn: Turn, tool: str) -> Json:
        message: Json = {"role": "assistant", "content": turn.text}
        if turn.calls:
            function = [{"name": tool, "arguments": text} for text in turn.calls]
            message["tool_calls"] = [
                {"id": f"call_{n}_{at}", "type": "function", "function": call} for at, call in enumerate(function)
            ]
        return message

    def body(self, n: int, model: str, message: Json, end: str | None, counts: Counts) -> Json:
        ends = end or ("tool_calls" if message.get("tool_calls") else "stop")
        details = {"cached_tokens": counts.cached}
        usage = {
            "prompt_tokens": counts.prompt,
            "completion_tokens": counts.completion,
            "total_tokens": counts.prompt + counts.completion,
            "prompt_tokens_details": details,
            "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": ends}
        head = {"id": f"chatcmpl-{n}", "object": "chat.completion", "created": 1790000000, "model": model}
        return {**head, "choices": [choice], "usage": usage}

    def events(self, body: Json) -> list[tuple[str | None, Json]]:
        """A role, pieces of texts, calls with their arguments in pieces, the end, the usage."""
        head = {**body, "object": "chat.completion.chunk"}
        usage = head.pop("usage", None)
        found = []
        for choice in body["choices"]:
            rest = {name: value for name, value in choice.items() if name not in ("message", "finish_reason")}
            message, end = choice["message"], choice["finish_reason"]
            first = {"role": "assistant", "content": "" if isinstance(message.get("content"), str) else None}
            deltas = [first, *self.deltas(message)]
            found += [{**head, "choices": [{**rest, "delta": delta, "finish_reason": None}]} for delta in deltas]
            # Each event should have the ids of its own tokens: here all are in the first event.
            for event in found[1:]:
                event["choices"][0].pop("token_ids", None)
            found.append({**head, "choices": [{"index": rest["index"], "delta": {}, "finish_reason": end}]})
        return [(None, event) for event in found + ([{**head, "choices": [], "usage": usage}] if usage else [])]

    def deltas(self, message: Json) -> Iterator[Json]:
        for name, value in message.items():
            if name == "tool_calls" and value:
                for at, call in enumerate(value):
                    function = {**call["function"], "arguments": ""}
                    yield {"tool_calls": [{"index": at, **call, "function": function}]}
                    for part in parts(call["function"]["arguments"]):
                        yield {"tool_calls": [{"index": at, "function": {"arguments": part}}]}
            elif name == "reasoning_details":
                for item in value:
                    begun = {**item, "text": item["text"][:9]} if "text" in item else item
                    yield {name: [{field: begun[field] for field in begun if field != "signature"}]}
                    if "signature" in item:
                        yield {name: [{**item, "text": item["text"][9:]}]}
            elif name == "content" and isinstance(value, list):
                for part in value:
                    if part["type"] == "text":
                        yield from ({name: text} for text in parts(part["text"]))
                    else:
                        inner = ([{"type": "text", "text": text}] for text in parts(part["thinking"][0]["text"]))
                        yield from ({name: [{**part, "thinking": texts}]} for texts in inner)
            elif isinstance(value, str) and name != "role":
                yield from ({name: part} for part in parts(value))
            elif value and name != "role":
                yield {name: value}

    def units(self, message: Json) -> list[Json]:
        return [message]

    def given(self, body: Json) -> list[Json]:
        return [message for message in body["messages"] if message["role"] == "assistant"]

    def head(self, body: Json) -> Any:
        return body.get("tools")

    def items(self, body: Json) -> list[Json]:
        return body["messages"]

    def kept(self, message: Json) -> list[Json]:
        return [message]

    def refusal(self, body: Json) -> Refusal | None:
        """The rule of OpenAI and most others: each call has its output right after the message."""
        open_ids: list[Any] = []
        for message in [*body["messages"], {"role": "end"}]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in open_ids:
                    return said(
                        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                    )
                open_ids.remove(message["tool_call_id"])
            elif open_ids:
                return said(
                    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                    f"'tool_call_id'. The following tool_call_ids did not have response messages: {open_ids}"
                )
            else:
                open_ids = [call.get("id") for call in message.get("tool_calls") or []]
        return None


class Anthropic:
    # Marks for the cache move, so requests are not compared as they are written.
    api, path, raw = "anthropic", "/v1/messages", None

    def message(self, n: int, turn: Turn, tool: str) -> Json:
        content: list[Json] = []
        if turn.thought:
            content.append({"type": "thinking", "thinking": turn.thought, "signature": f"{SECRET}-{n}=="})
        if turn.text:
            content.append({"type": "text", "text": turn.text, "citations": None})
        for at, text in enumerate(turn.calls):
            caller = {"type": "direct"}
            call = {
                "type": "tool_use",
                "id": f"toolu_{n}_{at}",
                "name": tool,
                "input": json.loads(text),
                "caller": caller,
            }
            content.append(call)
        return {"role": "assistant", "content": content}

    def body(self, n: int, model: str, message: Json, end: str | None, counts: Counts) -> Json:
        is_call = any(block["type"] == "tool_use" for block in message["content"])
        usage = {
            "input_tokens": counts.prompt - counts.cached - counts.written,
            "cache_creation_input_tokens": counts.written,
            "cache_read_input_tokens": counts.cached,
            "output_tokens": counts.completion,
            "output_tokens_details": {"thinking_tokens": counts.reasoning},
        }
        ends = {"stop_reason": end or ("tool_use" if is_call else "end_turn"), "stop_sequence": None}
        return {"id": f"msg_{n}", "type": "message", "model": model, **message, **ends, "usage": usage}

    def events(self, body: Json) -> list[tuple[str | None, Json]]:
        usage, ends = body["usage"], {name: body[name] for name in ("stop_reason", "stop_sequence")}
        begun = {**body, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        found: list[Json] = [{"type": "message_start", "message": begun}]
        for index, block in enumerate(body["content"]):
            start, deltas = self.deltas(block)
            found.append({"type": "content_block_start", "index": index, "content_block": start})
            found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            found.append({"type": "content_block_stop", "index": index})
        last = {"output_tokens": usage["output_tokens"], "output_tokens_details": usage["output_tokens_details"]}
        found += [{"type": "message_delta", "delta": ends, "usage": last}, {"type": "message_stop"}]
        return [(event["type"], event) for event in found]

    def deltas(self, block: Json) -> tuple[Json, list[Json]]:
        match block["type"]:
            case "thinking":
                deltas = [{"type": "thinking_delta", "thinking": part} for part in parts(block["thinking"])]
                signed = {"type": "signature_delta", "signature": block["signature"]}
                return {**block, "thinking": "", "signature": ""}, [*deltas, signed]
            case "text":
                return {**block, "text": ""}, [{"type": "text_delta", "text": part} for part in parts(block["text"])]
            case "tool_use":
                texts = ["", *parts(json.dumps(block["input"]))] if block["input"] else [""]
                return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text} for text in texts]
            case _:
                return block, []

    def units(self, message: Json) -> list[Json]:
        return message["content"]

    def given(self, body: Json) -> list[Json]:
        said = [message for message in body["messages"] if message["role"] == "assistant"]
        return [block for message in said for block in unmarked(message)["content"]]

    def head(self, body: Json) -> Any:
        return [unmarked({"content": body.get(name) or []}) for name in ("tools", "system")]

    def items(self, body: Json) -> list[Json]:
        """The blocks, since a later request may have more of them in the user's last message."""
        blocks = [(at, message["role"], unmarked(message)["content"]) for at, message in enumerate(body["messages"])]
        return [{"at": at, "role": role, **block} for at, role, content in blocks for block in content]

    def kept(self, message: Json) -> list[Json]:
        return message["anthropic"]["content"]

    def refusal(self, body: Json) -> Refusal | None:
        blocks = [(index, block) for index, message in enumerate(body["messages"]) for block in blocks_of(message)]
        marks = sum(MARK in part for part in [body, *body.get("tools", []), *system_of(body), *(b for _, b in blocks)])
        if marks > 4:
            return refused(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
        if any(block["type"] == "text" and not block["text"] for _, block in blocks):
            return refused("messages: text content blocks must be non-empty")
        replies = [blocks_of(message) for message in body["messages"] if message["role"] == "assistant"]
        if any(not blocks or blocks[-1]["type"] in ("thinking", "redacted_thinking") for blocks in replies):
            return refused("messages.1: The final block in an assistant message cannot be `thinking`.")
        thinks = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
        if thinks and body.get("temperature", 1) != 1:
            return refused("`temperature` may only be set to 1 when thinking is enabled.")
        last = body["messages"][-1]
        if last["role"] == "assistant" and (blocks_of(last)[-1].get("text") or ".")[-1].isspace():
            return refused("messages: final assistant content cannot end with trailing whitespace")
        for index, message in enumerate(body["messages"]):
            calls = [block["id"] for block in blocks_of(message) if block["type"] == "tool_use"]
            after = blocks_of(body["messages"][index + 1]) if calls else []
            if [block.get("tool_use_id") for block in after[: len(calls)]] != calls:
                return refused(
                    f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                    f"{calls}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
                )
        return None


class Cache:
    """Anthropic's cache of prompts: what a mark has written, one in its place reads, or up to 20 blocks after it."""

    def __init__(self) -> None:
        self.entries: set[str] = set()
        self.written_to = 0

    def counts(self, body: Json) -> Counts:
        blocks = [*body.get("tools", []), *system_of(body)]
        blocks += [{"role": message["role"], **block} for message in body["messages"] for block in blocks_of(message)]
        digest, size, places, marks = hashlib.sha256(), 0, [], []
        for at, block in enumerate(blocks):
            text = json.dumps({name: block[name] for name in block if name != MARK}).encode()
            digest.update(text)
            size += max(1, len(text) // 4)
            places.append((digest.copy().hexdigest(), size))
            # A mark at the top is for the last block.
            if MARK in block or (MARK in body and at == len(blocks) - 1):
                marks.append(at)
        seen = {at for mark in marks for at in range(max(0, mark - 19), mark + 1) if places[at][0] in self.entries}
        read = places[max(seen)][1] if seen else 0
        whole = max([read, *(places[mark][1] for mark in marks)])
        self.entries |= {places[mark][0] for mark in marks}
        self.written_to = whole
        return Counts(size, read, whole - read)


class Responses:
    api, path, raw = "responses", "/v1/responses", "input"

    def message(self, n: int, turn: Turn, tool: str) -> Json:
        items: list[Json] = []
        if turn.thought:
            summary = [{"type": "summary_text", "text": turn.thought}]
            secret = {"encrypted_content": f"{SECRET}-{n}=="}
            items.append({"id": f"rs_{n}", "type": "reasoning", "summary": summary, **secret})
        if turn.text is not None:
            part = {"type": "output_text", "annotations": [], "logprobs": [], "text": turn.text}
            done = {"id": f"msg_{n}", "type": "message", "status": "completed"}
            items.append({**done, "role": "assistant", "content": [part]})
        for at, text in enumerate(turn.calls):
            done = {"id": f"fc_{n}_{at}", "type": "function_call", "status": "completed"}
            items.append({**done, "arguments": text, "call_id": f"call_{n}_{at}", "name": tool})
        return {"output": items}

    def body(self, n: int, model: str, message: Json, end: str | None, counts: Counts) -> Json:
        usage = {
            "input_tokens": counts.prompt,
            "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
            "output_tokens": counts.completion,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning},
            "total_tokens": counts.prompt + counts.completion,
        }
        head = {"id": f"resp_{n}", "object": "response", "created_at": 1790000000, "model": model, "error": None}
        settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "store": False}
        status = {
            "status": "incomplete" if end else "completed",
            "incomplete_details": {"reason": end} if end else None,
        }
        return {**head, **settings, **status, **message, "usage": usage}

    def events(self, body: Json) -> list[tuple[str | None, Json]]:
        begun = {**body, "status": "in_progress", "output": [], "usage": None}
        found: list[Json] = [{"type": f"response.{what}", "response": begun} for what in ("created", "in_progress")]
        for at, item in enumerate(body["output"]):
            added = {**item, **{name: [] for name in ("content", "summary") if name in item}, "status": "in_progress"}
            added |= {"arguments": ""} if "arguments" in item else {}
            found.append({"type": "response.output_item.added", "output_index": at, "item": added})
            where = {"item_id": item["id"], "output_index": at}
            found += [{**event, **where} for event in self.inner(item)]
            found.append({"type": "response.output_item.done", "output_index": at, "item": item})
        found.append({"type": f"response.{body['status']}", "response": body})
        return [(event["type"], {**event, "sequence_number": at}) for at, event in enumerate(found)]

    def inner(self, item: Json) -> Iterator[Json]:
        match item["type"]:
            case "reasoning":
                for index, part in enumerate(item["summary"]):
                    event = {"summary_index": index}
                    yield {"type": "response.reasoning_summary_part.added", **event, "part": {**part, "text": ""}}
                    for text in parts(part["text"]):
                        yield {"type": "response.reasoning_summary_text.delta", **event, "delta": text}
                    yield {"type": "response.reasoning_summary_text.done", **event, "text": part["text"]}
                    yield {"type": "response.reasoning_summary_part.done", **event, "part": part}
            case "message":
                for index, part in enumerate(item["content"]):
                    name = "text" if part["type"] == "output_text" else "refusal"
                    event = {"content_index": index}
                    yield {"type": "response.content_part.added", **event, "part": {**part, name: ""}}
                    extra = {"logprobs": []} if name == "text" else {}
                    for text in parts(part[name]):
                        yield {"type": f"response.{part['type']}.delta", **event, "delta": text, **extra}
                    yield {"type": f"response.{part['type']}.done", **event, name: part[name], **extra}
                    yield {"type": "response.content_part.done", **event, "part": part}
            case "function_call":
                for text in parts(item["arguments"]):
                    yield {"type": "response.function_call_arguments.delta", "delta": text}
                done = {"arguments": item["arguments"], "name": item["name"]}
                yield {"type": "response.function_call_arguments.done", **done}

    def units(self, message: Json) -> list[Json]:
        return message["output"]

    def given(self, body: Json) -> list[Json]:
        return [item for item in body["input"] if item.get("type") in ("reasoning", "function_call") or is_said(item)]

    def head(self, body: Json) -> Any:
        return body.get("tools"), body.get("instructions")

    def items(self, body: Json) -> list[Json]:
        return body["input"]

    def kept(self, message: Json) -> list[Json]:
        return message["responses"]["output"]

    def refusal(self, body: Json) -> Refusal | None:
        items = body["input"]
        outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
        for item, after in zip(items, [*items[1:], {}], strict=True):
            kind = item.get("type")
            if kind == "reasoning" and not item.get("encrypted_content"):
                return 404, openai_error(
                    f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. "
                    "Try again with `store` set to true, or remove this item from your input."
                )
            if kind == "reasoning" and after.get("type") != "function_call" and not is_said(after):
                return said(
                    f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
                )
            if kind == "function_call" and item["call_id"] not in outputs:
                return said(f"No tool output found for function call {item['call_id']}.")
        if body.get("max_output_tokens", 16) < 16:
            return said("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.")
        return None


def is_said(item: Json) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == "assistant"


def blocks_of(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def system_of(body: Json) -> list[Json]:
    return blocks_of({"content": body.get("system", [])})


def unmarked(message: Json) -> Json:
    """The message without marks for the cache, and with a text as the block that it stands for."""
    blocks = [{name: block[name] for name in block if name != MARK} for block in blocks_of(message)]
    return {**message, "content": blocks}


def openai_error(message: str, param: str | None = None, code: str | None = None) -> Json:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def said(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """OpenAI's form of an error."""
    return 400, openai_error(message, param, code)


def refused(message: str) -> Refusal:
    """Anthropic's form of an error."""
    error = {"type": "invalid_request_error", "message": message}
    return 400, {"type": "error", "error": error, "request_id": "req_1"}


WIRES: dict[str, Any] = {wire.api: wire for wire in (Chat(), Anthropic(), Responses())}
