"""Functions of this program as root tools: their names, schemas and help texts."""

from __future__ import annotations

import inspect
import json
import keyword
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from ._config import check_json, check_seconds

MAX_TIMEOUT = 604_800
"""Longest time limit of a call of a tool, in seconds: 7 days."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Tool(Generic[P, R]):
    """A function that code in a session can call. `tool` makes one; calling it calls the function."""

    function: Callable[P, R]
    name: str
    description: str
    """First paragraph of the docstring."""
    schema: Mapping[str, Any]
    """The parameters, as JSON Schema."""
    help: str
    """Signature and docstring, as text for a model."""
    timeout: float | None = None
    """Time limit of a call in seconds. None: 300 s, or the largest limit of the session's tools."""
    signature: inspect.Signature = field(repr=False, default_factory=inspect.Signature)
    is_async: bool = False
    """True if the function runs on the event loop, not in a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R]:
        """The tool of an instance, where this is a method."""
        if instance is None:
            return self
        method = types.MethodType(self.function, instance)
        return _tool(method, self.name, self.description, self.timeout)


AnyTool = Tool[..., Any] | Callable[..., Any]
"""A tool, or a function that becomes one."""


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, timeout: float | None = None
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
) -> Any:
    """Makes a root tool of a function, plain or async.

        @tool
        def search(query: str, limit: int = 10) -> list[str]:
            \"\"\"Finds documents.

            Args:
                query: words to look for
            \"\"\"

    A plain function runs in a thread, an async one on the session's event loop; both see the context variables of the
    call that reached them. Its result is None, bool, int, float, str, bytes, or tuples, lists, dicts and sets of these;
    what it raises is an error with its type and message in the session. When the call is interrupted, an async function
    is cancelled, and the result of a plain one is dropped.

    Raises TypeError for something that is not a function with a signature, and ValueError for a name that is not an
    identifier.
    """
    if function is None:
        return lambda function: _tool(function, name, description, timeout)
    return _tool(function, name, description, timeout)


def _tool(
    function: Callable[..., Any], name: str | None, description: str | None, timeout: float | None
) -> Tool[..., Any]:
    if not callable(function):
        raise TypeError(f"a tool must be a function, not {function!r}")
    if name is None:
        name = str(getattr(function, "__name__", type(function).__name__))
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise ValueError(f"the tool's name {name!r} is not an identifier of ASCII letters: name it with tool(name=…)")
    if timeout is not None:
        check_seconds(f"timeout of the tool {name}", timeout)
        if timeout > MAX_TIMEOUT:
            raise ValueError(
                f"timeout of the tool {name} is {timeout:g} s, and at most {MAX_TIMEOUT} s (7 days) are taken"
            )
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise TypeError(f"the tool {name} has no signature: wrap it in a function of your own") from error
    # Half a surrogate pair cannot be encoded as UTF-8.
    doc = (inspect.getdoc(function) or "").encode(errors="replace").decode()
    summary = description or doc.partition("\n\n")[0].replace("\n", " ").strip()
    try:
        usage = f"{name}{signature}"
    except Exception as error:
        raise TypeError(f"a default or annotation of the tool {name} cannot be shown: its repr() raises") from error
    text = f"{usage}\n{description or doc}".rstrip()
    schema = _schema(function, signature, doc)
    return Tool(function, name, summary, schema, text, timeout, signature, is_async(function))


def is_async(function: Callable[..., Any]) -> bool:
    """True if a call of this function or object gives a coroutine."""
    method = getattr(function, "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def tools_of(given: Iterable[AnyTool], argument: str = "tools") -> dict[str, Tool[..., Any]]:
    """The tools by name. Raises TypeError for something else, and ValueError for a name that occurs twice."""
    if callable(given) or isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"{argument} must be a list of functions, not {given!r}")
    tools: dict[str, Tool[..., Any]] = {}
    for one in given:
        made = one if isinstance(one, Tool) else _tool(one, None, None, None)
        if made.name in tools:
            raise ValueError(f"there are two tools with the name {made.name}: name one with tool(name=…)")
        tools[made.name] = made
    return tools


def _schema(function: Callable[..., Any], signature: inspect.Signature, doc: str) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # an annotation that names something unknown: the tool works all the same
        hints = {}
    texts = _argument_texts(doc)
    properties: dict[str, Any] = {}
    required = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        schema = _type_schema(hints.get(parameter.name, Any))
        if parameter.name in texts:
            schema["description"] = texts[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        else:
            with suppress(Exception):  # the default's own methods may raise
                schema["default"] = _plain_json(parameter.default)
        properties[parameter.name] = schema
    return {"type": "object", "properties": properties, "required": required}


def _plain_json(value: object) -> Any:
    """The value made of JSON's own types: its class may be one that cannot be pickled, or that nodes do not have."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    text.encode()
    plain = json.loads(text)
    check_json(plain)
    return plain


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _type_schema(hint: Any) -> dict[str, Any]:
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        is_json = all(type(value) in _TYPES for value in arguments)
        return {"enum": list(arguments)} if is_json else {}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type_schema(argument) for argument in arguments]}
    if origin is typing.Annotated:
        return _type_schema(arguments[0])
    kind = origin or hint
    if kind in (list, set, frozenset, tuple) or _is_sequence(kind):
        items = [argument for argument in arguments if argument is not Ellipsis]
        return {"type": "array", "items": _type_schema(items[0])} if len(items) == 1 else {"type": "array"}
    if isinstance(kind, type) and (issubclass(kind, Mapping) or typing.is_typeddict(kind)):
        values = {"additionalProperties": _type_schema(arguments[1])} if len(arguments) == 2 else {}
        return {"type": "object", **values}
    return {}


def _is_sequence(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Iterable) and not issubclass(kind, (str, bytes, Mapping))


def _argument_texts(doc: str) -> dict[str, str]:
    """The lines `name: text` of a docstring's section `Args:`."""
    texts: dict[str, str] = {}
    _, _, section = doc.partition("Args:\n")
    last = ""
    for line in section.splitlines():
        if not line.strip() or not line.startswith(" "):
            break
        name, colon, text = line.strip().partition(":")
        name = name.partition("(")[0].strip()
        if colon and name.isidentifier():
            last = name
            texts[name] = text.strip()
        elif last:
            texts[last] += " " + line.strip()
    return texts
