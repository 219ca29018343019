"""Tools as they are declared: names, schemas, help, methods, limits."""

from __future__ import annotations

import enum
import functools
import pickle
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal, Optional

import pytest

from rlm_env import Session, Tool, tool
from tools.calls import call_tool, echo, late, search


def test_schema_and_help_come_from_signature_and_docstring() -> None:
    assert isinstance(search, Tool) and search("a", limit=1) == ["a 0"]
    assert search.description == "Finds documents by their words."
    assert search.schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "words to look for, in any order"},
            "limit": {"type": "integer", "default": 10, "description": "most results"},
        },
        "required": ["query"],
    }
    assert search.help.startswith("search(query: 'str', limit: 'int' = 10) -> 'list[str]'\nFinds documents\nby")

    def typed(
        a: Optional[list[int]], b: Literal["x", "y"], c: dict[str, float], d: Any, *rest: int, e: bool = False
    ) -> None: ...

    assert tool(typed).schema["properties"] == {
        "a": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        "b": {"enum": ["x", "y"]},
        "c": {"type": "object", "additionalProperties": {"type": "number"}},
        "d": {},
        "e": {"type": "boolean", "default": False},
    }


def test_defaults_in_a_schema_are_plain_json() -> None:
    class Mode(str, enum.Enum):
        FAST = "fast"

    class Broken(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("no")

    deep: Any = functools.reduce(lambda inner, _: [inner], range(101), 1)

    def defaults(
        a: Any = Mode.FAST,
        b: Any = defaultdict(threading.Lock, {"c": [Mode.FAST]}),
        d: Any = deep,
        e: Any = 10**400,
        f: Any = Broken(a=1),
    ) -> None: ...

    schema = pickle.loads(pickle.dumps(tool(defaults).schema))
    found = [schema["properties"][name] for name in "abdef"]
    assert repr(found) == repr([{"default": "fast"}, {"default": {"c": ["fast"]}}, {}, {}, {}])


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def unshown(word: Any = Unshown()) -> None: ...


def größe() -> None: ...


@pytest.mark.parametrize(
    ("tools", "error", "words"),
    [
        ([5], TypeError, "a tool must be a function, not 5"),
        ([echo, tool(name="echo")(late)], ValueError, "there are two tools with the name echo"),
        ([lambda: 1], ValueError, "'<lambda>' is not an identifier"),
        ([größe], ValueError, "is not an identifier of ASCII letters"),
        ([unshown], TypeError, r"a default or annotation of the tool unshown cannot be shown: its repr\(\) "),
        *(
            (wrong, TypeError, "tools must be a list of functions, not")
            for wrong in (echo, None, "echo", {"echo": echo})
        ),
    ],
)
def test_wrong_tools_are_refused(work: Path, tools: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Session(work, tools=tools)


def test_limits_of_tools_are_times_that_can_be_waited_for() -> None:
    for wrong in (float("inf"), float("nan"), -1, 0):
        with pytest.raises(ValueError, match="timeout of the tool echo must be a number of seconds above 0"):
            tool(timeout=wrong)(echo)
    with pytest.raises(ValueError, match="timeout of the tool echo is 1e.10 s, and at most 604800 s"):
        tool(timeout=1e10)(echo)


def test_methods_and_partials_are_tools(start: Any) -> None:
    class Store:
        def size(self) -> int:
            return 3

        async def __call__(self) -> int:
            return 4

    store = Store()
    tools = (store.size, tool(name="four")(store), tool(name="five")(functools.partial(echo, 5)))
    with start(*tools) as session:
        for name, expected in (("size", 3), ("four", 4), ("five", 5)):
            assert call_tool(session, name) == f"{expected}\n"


def test_methods_with_the_decorator_belong_to_their_instance(kind: Any, work: Path) -> None:
    class Store:
        def __init__(self, size: int) -> None:
            self.number = size

        @tool
        def size(self, factor: int = 1) -> int:
            """The size."""
            return self.number * factor

    store = Store(3)
    assert store.size(2) == 6 and "self" not in store.size.schema["properties"]  # type: ignore[attr-defined, call-arg]
    with kind(work, tools=[store.size]) as session:
        assert session.execute("size 2").stdout == "6\n"


class Colour(enum.Enum):
    RED = 1


def test_odd_signatures_are_served_in_every_way(start: Any) -> None:
    def odd(
        x: Literal[b"a"] = b"a", y: float = float("inf"), z: Literal[Colour.RED] = Colour.RED, w: str = "\ud800"
    ) -> str:
        return f"{x!r} {y} {z.name}"

    odd.__doc__ = "Half \ud800 a pair."
    with start(odd) as session:
        assert call_tool(session, "odd") == "b'a' inf RED\n"
