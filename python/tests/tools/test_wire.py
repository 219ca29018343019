"""Requests to the tools' socket, as code in the session could send them."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from rlm_env import Session
from tools.calls import echo, late


class Wire:
    """A client of the socket of the tools."""

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

    def call(self, name: str, *args: Any) -> bytes:
        return self.request(json.dumps({"tool_name": name, "serialization": "json", "args": args}).encode())

    def post(self, body: bytes, secret: str | None = None, method: str = "POST") -> tuple[int, str]:
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = self.connect()
        connection.request(method, "/tools", body, {"Authorization": f"Bearer {secret or self.secret}"})
        response = connection.getresponse()
        reply = json.loads(response.read())
        connection.close()
        return response.status, reply.get("error") or reply


@contextmanager
def wired(work: Path, *tools: Any) -> Iterator[tuple[Session, Wire]]:
    with Session(work, tools=tools) as session:
        yield session, Wire(session)


def test_the_wire_refuses_what_is_no_call(work: Path) -> None:
    with wired(work, late) as (session, wire):
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
            ({"serialization": "pickle", "args": "Y29zCnN5c3RlbQou"}, "args is refused: the global os.system"),
        ]:
            status, error = wire.post(json.dumps({**call, **fields}).encode())
            assert status == 400 and error.startswith(words)


def test_a_session_cannot_harm_its_host_by_what_it_sends(work: Path) -> None:
    with wired(work, late) as (session, wire):
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


def test_connections_that_say_nothing_harm_nobody(work: Path) -> None:
    with wired(work, late) as (session, wire):
        open_ones = []
        for data in (b"", b"POST", b"POST / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000):
            open_ones.append(wire.connect())
            with suppress(BrokenPipeError):
                open_ones[-1].sendall(data)
        assert session.execute("late on").stdout == "on\n"
        for one in open_ones:
            one.close()


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

    with wired(work, slow) as (session, wire):
        with wire.connect() as client:
            client.sendall(wire.call("slow"))
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
    with wired(work, function) as (session, wire):
        with wire.connect() as client:
            requests = b"".join(wire.call(function.__name__, number) for number in range(3000))
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

    with wired(work, large) as (session, wire):
        with wire.connect() as client:
            client.sendall(wire.call("large", "a") + wire.call("large", "b"))
            got = received(client, lambda got: len(got) >= 2 * size and got.endswith(b"}"))
            first, second = got.split(b'{"result": ')[1:]
            assert first.startswith(b'"' + b"a" * size + b'"}') and second == b'"' + b"b" * size + b'"}'


def test_a_reply_to_nobody_goes_nowhere(work: Path) -> None:
    began, go = threading.Semaphore(0), threading.Event()

    def slow(number: int) -> int:
        began.release()
        go.wait(30)
        return number

    with wired(work, slow, late) as (session, wire):
        for _ in range(10):
            with wire.connect() as client:
                client.sendall(wire.call("slow", 1))
                assert began.acquire(timeout=30)
        # Connections that come after those may have their descriptors.
        with wire.connect() as client:
            assert session.execute("late on").stdout == "on\n"
            go.set()
            client.sendall(wire.call("late", 2))
            got = received(client, lambda got: got.endswith(b'{"result": 2}'))
            assert got.count(b"HTTP/1.1") == 1
