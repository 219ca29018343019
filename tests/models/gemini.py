"""Gemini's own interface, as a stand-in of it behind a proxy speaks it: generateContent and streamGenerateContent."""

import json
from typing import Any

from google.genai import types
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from wires import SECRET, Counts, Json, Refusal, Turn, parts


class GenerateContent(BaseModel):
    """A request: the SDK has types of its parts alone. The first two fields are those of the path."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    model: str
    stream: bool
    contents: list[types.Content]
    system_instruction: types.Content | None = None
    tools: list[types.Tool] | None = None
    tool_config: types.ToolConfig | None = None
    generation_config: types.GenerationConfig | None = None


def refused(message: str) -> Refusal:
    return 400, {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}


def camel(value: Any) -> Any:
    """Gemini takes both forms of its names. Arguments, responses and schemas have names of their own."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {to_camel(name): inner for name, inner in value.items()}
    return {
        name: inner if name in ("args", "response", "parameters") else camel(inner) for name, inner in names.items()
    }


class Gemini:
    api, path, raw = "gemini", "/v1beta/models", None

    def message(self, n: int, turn: Turn, tool: str) -> Json:
        """A reply's first call has the signature, or its text (ai.google.dev/gemini-api/docs/thought-signatures)."""
        found: list[Json] = [{"text": turn.thought, "thought": True}] if turn.thought else []
        found += [{"text": turn.text}] if turn.text else []
        for at, text in enumerate(turn.calls):
            found.append({"functionCall": {"name": tool, "args": json.loads(text), "id": f"call{n}x{at}"}})
        first = next((part for part in found if "functionCall" in part), found[-1])
        first["thoughtSignature"] = f"{SECRET}{n:02}"
        return {"content": {"role": "model", "parts": found}}

    def body(self, n: int, model: str, message: Json, end: str | None, counts: Counts) -> Json:
        usage = {
            "promptTokenCount": counts.prompt,
            "cachedContentTokenCount": counts.cached,
            "candidatesTokenCount": counts.completion - counts.reasoning,
            "thoughtsTokenCount": counts.reasoning,
            "totalTokenCount": counts.prompt + counts.completion,
        }
        candidate = {**message, "finishReason": end or "STOP", "index": 0}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": f"r{n}"}

    def events(self, body: Json) -> list[tuple[str | None, Json]]:
        """Texts in pieces, calls whole; the signature of a text comes with an empty one, after it."""
        [candidate] = body["candidates"]
        found: list[Json] = []
        for part in candidate["content"]["parts"]:
            if "text" in part:
                plain = {name: value for name, value in part.items() if name != "thoughtSignature"}
                found += [{**plain, "text": text} for text in parts(part["text"])]
                found += [{**part, "text": ""}] if part != plain else []
            else:
                found.append(part)
        head = {name: body[name] for name in ("usageMetadata", "modelVersion", "responseId")}
        events = [
            {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}], **head} for part in found
        ]
        events[-1]["candidates"][0]["finishReason"] = candidate["finishReason"]
        return [(None, event) for event in events]

    def units(self, body: Json) -> list[Json]:
        return [body["candidates"][0]["content"]]

    def given(self, body: Json) -> list[Json]:
        return [content for content in camel(body["contents"]) if content["role"] == "model"]

    def head(self, body: Json) -> Any:
        return camel([body.get("tools"), body.get("systemInstruction", body.get("system_instruction"))])

    def items(self, body: Json) -> list[Json]:
        return camel(body["contents"])

    def bound(self, body: Json) -> int | None:
        return camel(body.get("generationConfig", {})).get("maxOutputTokens")

    def refusal(self, body: Json) -> Refusal | None:
        """The faults of its 400s (askimo-ai/askimo#543, continuedev/continue#9562, earendil-works/pi#6733)."""
        contents = camel(body["contents"])
        for at, content in enumerate(contents):
            calls = [part for part in content["parts"] if "functionCall" in part]
            if not content["parts"]:
                return refused(f"* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty.")
            if content["role"] != "model" or not calls:
                continue
            name = calls[0]["functionCall"]["name"]
            if not calls[0].get("thoughtSignature"):
                return refused(
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools "
                    "to work correctly, and missing thought_signature may lead to degraded model performance. "
                    f"Additional data, function call `default_api:{name}` , position {at + 1}."
                )
            if not calls[0]["thoughtSignature"].startswith(SECRET):
                return refused("Thought signature is not valid")
            if at == 0 or contents[at - 1]["role"] != "user":
                return refused(
                    "Please ensure that function call turn comes immediately after a user turn or after a function "
                    "response turn."
                )
            answers = contents[at + 1]["parts"] if at + 1 < len(contents) else []
            answers = [part["functionResponse"] for part in answers if "functionResponse" in part]
            ids = [(part["functionCall"].get("id"), part["functionCall"]["name"]) for part in calls]
            if sorted(ids) != sorted((answer.get("id"), answer["name"]) for answer in answers):
                return refused(
                    "Please ensure that the number of function response parts is equal to the number of function call "
                    "parts of the function call turn."
                )
        return None
