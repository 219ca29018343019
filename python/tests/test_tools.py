"""Functions of this program, called by code in a session."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import enum
import functools
import http.client
import json
import os
import pickle
import socket
import threading
import time
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Optional
from urllib.parse import unquote

import pytest

from conftest import NIGHTLY
from rlm_env import AsyncSession, Session, SessionConfig, StartError, Tool, tool

CALLER = contextvars.ContextVar("CALLER", default="nobody")


@tool
def search(query: str, limit: int = 10) -> list[str]:
    """Finds documents
    by their words.

    Longer text.

    Args:
        query: words to look for,
            in any order
        limit (int): most results
    """
    return [f"{query} {number}" for number in range(limit)]


async def late(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


def echo(*args: Any, **kwargs: Any) -> Any:
    return [*args, kwargs] if kwargs or len(args) != 1 else args[0]


def who() -> str:
    return CALLER.get()


async def who_async() -> str:
    return CALLER.get()


@pytest.fixture(params=["direct", "rootd"])
def models(request: pytest.FixtureRequest) -> Any:
    """With models, calls of tools go through the endpoint: no difference can be seen."""
    return None if request.param == "direct" else lambda messages, tools, **sampling: "reply"


@pytest.fixture
def start(kind: Any, language: Any, work: Path, models: Any) -> Any:
    """A session with tools."""
    return lambda *tools: kind(SessionConfig(work, language=language), tools=tools, models=models)


def call(session: Any, code: str) -> str:
    """The output of a Python expression, or of a bash command line."""
    python = session.config.language == "python"
    response = session.execute(f"print({code})" if python else code)
    if response.exception:
        return f"{response.exception.message}\n"
    return str(response.stdout).removeprefix("Error: ")


def call_tool(session: Any, name: str, *texts: str) -> str:
    """The output of a tool that is called with these texts."""
    is_python = session.config.language == "python"
    return call(session, f"{name}({', '.join(map(repr, texts))})" if is_python else " ".join([name, *texts]))


def test_functions_are_called_by_name(start: Any, language: str) -> None:
    with start(search, late, echo) as session:
        if language == "python":
            assert call(session, "search('red', limit=2)") == "['red 0', 'red 1']\n"
            assert call(session, "late(('a', {1: {2, 3}}, b'x', None, 1.5))") == "('a', {1: {2, 3}}, b'x', None, 1.5)\n"
            assert call(session, "echo(bytearray(b'x'), frozenset({1}), 2**100, k='ü\\ud800')[:3]") == (
                "[bytearray(b'x'), frozenset({1}), 1267650600228229401496703205376]\n"
            )
        else:
            assert call(session, "search red 2") == '["red 0", "red 1"]\n'
            assert call(session, "late --str 5") == "5\n"
            assert call(session, """printf '{"value": [1, {"a": null}]}' | late""") == '[1, {"a": null}]\n'


def test_what_a_tool_raises_is_an_error_with_its_type(start: Any) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fails(how: str) -> None:
        raise {"value": ValueError("no\nmore"), "exit": SystemExit(3), "stop": StopIteration(), "odd": Odd()}[how]

    async def fails_async() -> None:
        raise KeyError("key")

    async def cancels() -> None:
        raise asyncio.CancelledError

    usage = "fails(): missing a required argument: 'how'; it is fails(how: 'str') -> 'None'"
    with start(fails, fails_async, cancels) as session:
        assert call_tool(session, "fails", "value") == "ValueError: no\nmore\n"
        assert call_tool(session, "fails", "exit") == "SystemExit: 3\n"
        assert call_tool(session, "fails", "stop") == "StopIteration\n"
        assert call_tool(session, "fails", "odd") == "Odd: <its message cannot be shown>\n"
        assert call_tool(session, "fails_async") == "KeyError: 'key'\n"
        assert call_tool(session, "cancels") == "CancelledError: the tool cancelled its call\n"
        assert call_tool(session, "fails") == f"TypeError: {usage}\n"


def test_what_cannot_be_sent_is_named(start: Any, language: str) -> None:
    Point = namedtuple("Point", "x y")

    def give(what: str) -> Any:
        loop: list[Any] = []
        loop.append(loop)
        return {
            "object": {"rows": [1, object()]},
            "loop": loop,
            "point": [Point(1, 2), OrderedDict(a=True)],
            "function": give,
        }[what]

    with start(give) as session:
        assert call_tool(session, "give", "object").startswith(
            "TypeError: the tool give returned something else: the result['rows'][1] is a builtins.object, which a"
        )
        assert "is nested deeper than 200 levels, or contains itself" in call_tool(session, "give", "loop")
        assert "is a builtins.function" in call_tool(session, "give", "function")
        expected = "[(1, 2), {'a': True}]\n" if language == "python" else '[[1, 2], {"a": true}]\n'
        assert call_tool(session, "give", "point") == expected


def test_a_tool_cannot_call_back_into_its_session(kind: Any, work: Path) -> None:
    if kind is Session:

        def back() -> str:
            return session.execute(":").stdout
    else:

        async def back() -> str:  # type: ignore[misc]
            return (await session.session.execute(":")).stdout

    with kind(work, tools=[back]) as session:
        assert "UsageError: another call of this session is running" in session.execute("back").stdout
        assert session.execute("echo on").stdout == "on\n"


def test_an_interrupted_call_cancels_its_tool(start: Any, language: str) -> None:
    events: list[str] = []

    async def slow() -> None:
        events.append("begun")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    with start(slow) as session:
        response = session.execute("slow" + "()" * (language == "python"), timeout=0.3)
        assert response.outcome == "timed_out" and response.state == "kept"
        deadline = time.monotonic() + 30
        while events != ["begun", "cancelled"] and time.monotonic() < deadline:
            session.execute("1" if language == "python" else ":")
        assert events == ["begun", "cancelled"]


def test_a_tool_that_blocks_is_left_behind(start: Any, language: str) -> None:
    release = threading.Event()

    def block() -> str:
        release.wait(60)
        return "late"

    with start(block, late) as session:
        response = session.execute("block" + "()" * (language == "python"), timeout=0.3)
        assert response.outcome == "timed_out"
        assert call_tool(session, "late", "on") == "on\n"
    release.set()


def test_time_limits_of_tools(start: Any) -> None:
    @tool(timeout=0.2)
    async def slow() -> None:
        await asyncio.sleep(1000)

    @tool(timeout=0.2, name="blocked")
    def block() -> None:
        release.wait(60)

    @tool(timeout=60)
    async def raises() -> None:
        raise TimeoutError("mine")

    release = threading.Event()
    with start(slow, block, raises) as session:
        for name in "slow", "blocked":
            words = f"TimeoutError: the tool {name} took longer than its limit of 0.2 s\n"
            assert call_tool(session, name) == words
        assert call_tool(session, "raises") == "TimeoutError: mine\n"
    release.set()


def test_64_calls_at_once(kind: Any, work: Path) -> None:
    barrier = threading.Barrier(64)

    def meet(number: int) -> int:
        barrier.wait(30)
        return number

    with kind(SessionConfig(work, language="python"), tools=[meet]) as session:
        code = "from concurrent.futures import ThreadPoolExecutor\nsorted(ThreadPoolExecutor(64).map(meet, range(64)))"
        assert session.execute(code).result == str(list(range(64)))
    with kind(work, tools=[meet]) as session:
        printed = session.execute("for i in {0..63}; do meet $i & done >numbers 2>&1; wait; sort -n numbers").stdout
        assert [line for line in printed.splitlines() if line.isdecimal()] == [str(number) for number in range(64)]


def test_10_000_calls(start: Any, language: str) -> None:
    calls = 10_000 if NIGHTLY else 1_000
    with start(late) as session:
        if language == "python":
            assert session.execute(f"sum(late(n) for n in range({calls}))").result == str(sum(range(calls)))
        else:
            calls //= 10
            code = f"n=0; for i in {{1..{calls}}}; do ((n += $(late $i))); done; printf $n"
            assert session.execute(code).stdout == str(sum(range(calls + 1)))


def test_context_variables_are_those_of_the_caller(kind: Any, work: Path) -> None:
    with kind(SessionConfig(work, language="python"), tools=[who, who_async]) as session:
        for name in "Ada", "Grace":
            token = CALLER.set(name)
            assert session.execute("who(), who_async()").result == f"('{name}', '{name}')"
            CALLER.reset(token)


def test_large_arguments_and_results(start: Any, language: str) -> None:
    with start(late) as session:
        size = 8 << 20
        code = (
            f"print(len(late('x' * {size})))"
            if language == "python"
            else f"head -c {size} /dev/zero | tr '\\0' x >file; late @file | wc -c"
        )
        expected = size if language == "python" else size + 1
        assert session.execute(code).stdout == f"{expected}\n"


def test_tools_survive_reset_and_restart(start: Any) -> None:
    with start(echo, late) as session:
        session.reset()
        assert call_tool(session, "late", "on") == "on\n"
        session.restart()
        assert call_tool(session, "late", "on") == "on\n"


def test_a_socket_name_that_would_be_too_long(kind: Any, work: Path, tmp_path: Path) -> None:
    control = tmp_path / ("long" * 40)
    control.mkdir()
    with kind(SessionConfig(work, control_dir=control), tools=[late]) as session:
        assert session.execute("late on").stdout == "on\n"


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
        ([echo, tool(name="echo")(who)], ValueError, "there are two tools with the name echo"),
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


class Wire:
    """Requests to the tools' socket, as code in the session could send them."""

    def __init__(self, session: Any) -> None:
        environment = session.execute("printf '%s\\n' $RLM_ROOT_TOOL_URL $RLM_INTERCEPTION_SECRET").stdout
        url, self.secret = environment.split()
        self.path = unquote(url.removeprefix("http+unix://").partition("/")[0])

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(self.path)
        client.settimeout(240)
        return client

    def request(self, body: bytes) -> bytes:
        head = f"POST /tools HTTP/1.1\r\nAuthorization: Bearer {self.secret}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def post(self, body: bytes, secret: str | None = None, method: str = "POST") -> tuple[int, str]:
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = self.connect()
        connection.request(method, "/tools", body, {"Authorization": f"Bearer {secret or self.secret}"})
        response = connection.getresponse()
        reply = json.loads(response.read())
        connection.close()
        return response.status, reply.get("error") or reply


def test_the_wire_refuses_what_is_no_call(work: Path) -> None:
    with Session(work, tools=[late]) as session:
        wire = Wire(session)
        call = {"tool_name": "late", "serialization": "json", "args": [{"a": 1}], "kwargs": {}}
        assert wire.post(json.dumps(call).encode()) == (200, {"result": {"a": 1}})
        assert wire.post(b"{}", secret="wrong") == (401, "the secret is wrong or missing")
        assert wire.post(b"{}", method="PUT") == (400, "expected a POST")
        assert wire.post(b"{}") == (400, "Tool name not provided")
        assert wire.post(b"[]") == (400, "Invalid JSON: the body must be a JSON object")
        assert wire.post(b"[" * 100_000)[0] == 400
        assert wire.post(b'{"tool_name": "nope"}') == (404, "there is no tool nope: expected one of late")
        for fields, words in [
            ({"serialization": "xml"}, 'serialization is \'xml\', expected "pickle" or "json"'),
            ({"args": 5}, "args must be a list, not int"),
            ({"kwargs": [1]}, "kwargs must be an object with names as keys"),
            ({"serialization": "pickle", "args": "?"}, "args is not base64"),
            (
                {"serialization": "pickle", "args": "Y29zCnN5c3RlbQou"},
                "args is refused: the global os.system",
            ),
        ]:
            status, error = wire.post(json.dumps({**call, **fields}).encode())
            assert status == 400 and error.startswith(words)


def test_connections_that_say_nothing_harm_nobody(work: Path) -> None:
    with Session(work, tools=[late]) as session:
        wire = Wire(session)
        open_ones = []
        for data in (b"", b"POST", b"POST / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000):
            open_ones.append(wire.connect())
            with suppress(BrokenPipeError):
                open_ones[-1].sendall(data)
        assert session.execute("late on").stdout == "on\n"
        for one in open_ones:
            one.close()


async def test_tools_of_an_async_session_run_on_its_loop(work: Path) -> None:
    loop = asyncio.get_running_loop()

    async def here() -> bool:
        return asyncio.get_running_loop() is loop

    def elsewhere() -> bool:
        return threading.current_thread() is not threading.main_thread()

    config = SessionConfig(work, language="python")
    async with AsyncSession(config, tools=[here, elsewhere]) as session:
        assert (await session.execute("here(), elsewhere()")).result == "(True, True)"


def test_results_of_subclasses_huge_and_shared_ones_arrive(kind: Any, work: Path) -> None:
    class Rows(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise ValueError("lazy")

    class Colour(str, enum.Enum):
        RED = "red"

    class Size(enum.IntEnum):
        LARGE = 3

    def give(what: str) -> Any:
        shared: Any = []
        for _ in range(60):
            shared = [shared, shared]
        return {
            "rows": Rows(a=1),
            "enum": [Colour.RED, Size.LARGE, True],
            "huge": {10**5000: 1},
            "shared": shared,
        }[what]

    with kind(SessionConfig(work, language="python"), tools=[give]) as session:
        assert session.execute("give('rows')").result == "{'a': 1}"
        assert session.execute("give('enum')").result == "['red', 3, True]"
        assert session.execute("len(give('huge'))").result == "1"
        assert session.execute("d = give('shared'); d[0] is d[1]").result == "True"


def test_a_session_cannot_harm_its_host_by_what_it_sends(work: Path) -> None:
    with Session(work, tools=[late]) as session:
        wire = Wire(session)
        for data in (
            b"\x80\x04(})" + b"\x85" * 1_000_000 + b"Nst.",
            b"\x80\x04(})" + b"2\x86" * 60 + b"Nst.",
            b"\x80\x04(\x8f()" + b"2\x86" * 60 + b"\x90t.",
            b"\x80\x04(()" + b"2\x86" * 60 + b"\x91t.",
        ):
            call = {"tool_name": "late", "args": base64.b64encode(data).decode()}
            status, error = wire.post(json.dumps(call).encode())
            assert status == 400 and "a key of more than" in error
        assert session.execute("late on").stdout == "on\n"


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


def received(client: socket.socket, is_whole: Callable[[bytearray], bool]) -> bytes:
    """The bytes that come until the document is whole."""
    got = bytearray()
    while not is_whole(got):
        piece = client.recv(10_000)
        assert piece, got[-200:]
        got += piece
    return bytes(got)


def test_a_connection_that_sends_on_during_a_call_is_not_read(work: Path) -> None:
    began, go = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        go.wait(30)
        return "done"

    with Session(work, tools=[slow]) as session:
        wire = Wire(session)
        with wire.connect() as client:
            client.sendall(wire.request(b'{"tool_name": "slow", "serialization": "json"}'))
            assert began.wait(30)
            client.settimeout(0.5)
            sent = 0
            with pytest.raises(TimeoutError):
                while sent < 64 << 20:
                    sent += client.send(b"x" * (1 << 20))
            assert sent < 8 << 20
            go.set()
            client.settimeout(30)
            assert client.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("function", [late, echo])
def test_many_requests_at_once_on_one_connection_are_all_answered(function: Any, work: Path) -> None:
    with Session(work, tools=[function]) as session:
        wire = Wire(session)
        with wire.connect() as client:
            call = f'{{"tool_name": "{function.__name__}", "serialization": "json", "args": [%d]}}'
            requests = b"".join(wire.request((call % number).encode()) for number in range(3000))
            sender = threading.Thread(target=client.sendall, args=(requests,))
            sender.start()
            got = received(client, lambda got: got.endswith(b"}") and got.count(b'{"result": ') == 3000)
            sender.join()
            results = [int(part.partition(b"}")[0]) for part in got.split(b'{"result": ')[1:]]
            assert results == list(range(3000))


def test_a_reply_waits_for_its_reader(work: Path) -> None:
    size = 8 << 20

    def large(letter: str) -> str:
        return letter * size

    with Session(work, tools=[large]) as session:
        wire = Wire(session)
        with wire.connect() as client:
            call = '{"tool_name": "large", "serialization": "json", "args": ["%s"]}'
            client.sendall(wire.request((call % "a").encode()) + wire.request((call % "b").encode()))
            got = received(client, lambda got: len(got) >= 2 * size and got.endswith(b"}"))
            first, second = got.split(b'{"result": ')[1:]
            assert first.startswith(b'"' + b"a" * size + b'"}') and second == b'"' + b"b" * size + b'"}'


def test_a_reply_to_nobody_goes_nowhere(work: Path) -> None:
    began, go = threading.Semaphore(0), threading.Event()

    def slow(number: int) -> int:
        began.release()
        go.wait(30)
        return number

    with Session(work, tools=[slow, late]) as session:
        wire = Wire(session)
        for _ in range(10):
            with wire.connect() as client:
                client.sendall(wire.request(b'{"tool_name": "slow", "serialization": "json", "args": [1]}'))
                assert began.acquire(timeout=30)
        # Connections that come after those may have their descriptors.
        with wire.connect() as client:
            assert session.execute("late on").stdout == "on\n"
            go.set()
            client.sendall(wire.request(b'{"tool_name": "late", "serialization": "json", "args": [2]}'))
            got = received(client, lambda got: got.endswith(b'{"result": 2}'))
            assert got.count(b"HTTP/1.1") == 1


def test_a_plain_function_may_return_something_to_await(start: Any, language: str) -> None:
    def later(value: int) -> Any:
        return late(value)

    def fails() -> Any:
        async def fail() -> None:
            raise KeyError("later")

        return fail()

    def who_later() -> Any:
        return who_async()

    with start(later, fails, who_later) as session:
        assert call(session, "later(5)" if language == "python" else "later 5") == "5\n"
        assert call_tool(session, "fails") == "KeyError: 'later'\n"
        token = CALLER.set("me")
        try:
            assert call_tool(session, "who_later") == "me\n"
        finally:
            CALLER.reset(token)


def test_what_a_plain_function_returns_is_not_awaited_after_the_call(work: Path) -> None:
    go, has_returned, awaited = threading.Event(), threading.Event(), threading.Event()

    class Later:
        def __await__(self) -> Any:
            awaited.set()
            yield from ()

    def slow() -> Any:
        try:
            go.wait(30)
            return Later()
        finally:
            has_returned.set()

    with Session(work, tools=[slow, late]) as session:
        assert session.execute("slow", timeout=0.2).outcome == "timed_out"
        go.set()
        assert has_returned.wait(30)
        # The next call goes through the same loop.
        assert session.execute("late on").stdout == "on\n"
        assert not awaited.is_set()


def test_what_tells_of_a_failure_may_fail(start: Any, language: str) -> None:
    class Connection:
        is_open = True

        def __repr__(self) -> str:
            if not self.is_open:
                raise ValueError("closed")
            return "<connection>"

    class Odd(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    connection = Connection()

    def query(text: str, over: Any = connection) -> None:
        pass

    def odd() -> None:
        raise Odd

    async def odd_async() -> None:
        raise Odd

    with start(query, odd, odd_async) as session:
        connection.is_open = False
        words = (
            "TypeError: query(): too many positional arguments; it is query(text: 'str', over: 'Any' = <connection>)"
        )
        assert call(session, "query(1, 2, 3)" if language == "python" else "query 1 2 3").startswith(words)
        for name in ("odd", "odd_async"):
            assert call_tool(session, name) == "Odd: <its message cannot be shown>\n"


def test_a_task_that_exits_ends_its_call_alone(work: Path) -> None:
    async def exits() -> None:
        async def task() -> None:
            raise SystemExit(3)

        await asyncio.gather(task())

    with Session(work, tools=[exits, late]) as session:
        assert "SystemExit: 3" in session.execute("exits", timeout=30).stdout
        assert session.execute("late on").stdout == "on\n"


def test_a_plain_function_that_forks_has_the_reply_of_the_parent(work: Path) -> None:
    children = []

    def forks() -> str:
        if child := os.fork():
            children.append(child)
            return "parent"
        return "child"

    with Session(work, tools=[forks]) as session:
        assert session.execute("forks").stdout == "parent\n"
        assert os.waitpid(children[0], 0)[1] == 0


def test_without_a_thread_a_call_fails_and_a_session_does_not_start(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Session(work, tools=[echo, late]) as session:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            assert "RuntimeError: can't start new thread" in session.execute("echo 1").stdout
            with pytest.raises(StartError, match="cannot start a thread for the session's tools: can't start new"):
                Session(work, tools=[echo]).start()
        assert session.execute("echo 1; late on").stdout == "1\non\n"
