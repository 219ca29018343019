"""The vendors' SDKs as judges: a request by their TypedDicts, a reply or an event by their models."""

import functools
import types
import typing
from collections.abc import Iterable
from typing import Any

import anthropic.types
import google.genai.types
import openai.types.chat
import openai.types.responses
import typing_extensions as te
from anthropic.types.message_create_params import MessageCreateParams
from gemini import GenerateContent
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses.response_create_params import ResponseCreateParams
from pydantic import BaseModel, TypeAdapter, ValidationError

REQUESTS = {
    "chat": CompletionCreateParams,
    "responses": ResponseCreateParams,
    "anthropic": MessageCreateParams,
    "gemini": GenerateContent,
}
REPLIES = {
    "chat": openai.types.chat.ChatCompletion,
    "responses": openai.types.responses.Response,
    "anthropic": anthropic.types.Message,
    "gemini": google.genai.types.GenerateContentResponse,
}
EVENTS = {
    "chat": openai.types.chat.ChatCompletionChunk,
    "responses": openai.types.responses.ResponseStreamEvent,
    "anthropic": anthropic.types.RawMessageStreamEvent,
    "gemini": google.genai.types.GenerateContentResponse,
}
OTHER_VALUE = "is none of"
"""A union's branch with fewer of these is the one that was meant."""


@functools.cache
def fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """The type of each field of a TypedDict, and whether it is required."""
    found = {}
    for base in kind.__orig_bases__:
        if te.is_typeddict(base):
            found.update(fields(base))
    for name, hint in te.get_type_hints(kind, include_extras=True).items():
        if found.get(name, (None,))[0] != hint:
            origin = te.get_origin(hint)
            found[name] = (hint, origin is te.Required or (kind.__total__ and origin is not te.NotRequired))
    return found


def differences(value: Any, kind: Any, path: str = "") -> list[str]:
    """Places where a JSON value is not of an SDK's type, unknown fields included. Pydantic would check lists lazily."""
    origin, args = te.get_origin(kind), te.get_args(kind)
    if kind in (object, Any):
        return []
    if origin in (te.Required, te.NotRequired, te.Annotated):
        return differences(value, args[0], path)
    if origin in (typing.Union, types.UnionType):
        branches = [differences(value, arg, path) for arg in args]
        return min(branches, key=lambda found: (sum(OTHER_VALUE in line for line in found), len(found)))
    if origin is te.Literal:
        return [] if value in args else [f"{path}: {value!r} {OTHER_VALUE} {args}"]
    if te.is_typeddict(kind):
        if not isinstance(value, dict):
            return [f"{path}: {value!r} is no {kind.__name__}"]
        known = fields(kind)
        found = [f"{path}.{name}: missing" for name, (_, must) in known.items() if must and name not in value]
        for name, given in value.items():
            at = f"{path}.{name}"
            found += differences(given, known[name][0], at) if name in known else [f"{at}: unknown"]
        return found
    if origin is dict and isinstance(value, dict):
        return [line for name in value for line in differences(value[name], args[1], f"{path}.{name}")]
    if origin not in (None, dict) and isinstance(value, list):
        return [line for item in value for line in differences(item, args[0], path)]
    plain = {type(None): type(None), str: str, bool: bool, int: int, float: (int, float)}.get(kind, ())
    is_right = isinstance(value, plain) and isinstance(value, bool) == (kind is bool)
    return [] if is_right else [f"{path}: {value!r} is no {kind}"]


def without(found: Iterable[str], allowed: Iterable[str]) -> list[str]:
    """Leaves out what is documented for a server, by the beginnings of paths."""
    beginnings = tuple(f".{path}" for path in allowed)
    return [line for line in found if not line.startswith(beginnings)]


def request(api: str, body: Any, allowed: Iterable[str] = ()) -> list[str]:
    kind = REQUESTS[api]
    is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
    return without(faults(kind, body) if is_model else differences(body, kind), allowed)


@functools.cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def faults(kind: Any, value: Any) -> list[str]:
    try:
        adapter(kind).validate_python(value)
    except ValidationError as error:
        lines = [(line["loc"], line["msg"]) for line in error.errors()]
        return ["".join(f".{part}" for part in loc if isinstance(part, str)) + f": {said}" for loc, said in lines]
    return []


def sent(kinds: dict[str, Any], api: str, value: Any, allowed: Iterable[str]) -> None:
    """Fails unless the SDK can read what a stand-in sends, but for what is odd about it."""
    found = without(faults(kinds[api], value), allowed)
    assert found == [], (value, found)
