"""Clients without the token or from elsewhere, and what cannot be served."""

import http.server
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from conftest import EXAMPLE, PATIENCE, RLM, Server, grow, serving


class Answers(http.server.BaseHTTPRequestHandler):
    """A page of another origin."""

    address = ""

    def do_GET(self) -> None:
        html = f"<title>other</title><iframe src='{self.address}'></iframe>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(html.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    with serving(Answers) as address:
        yield f"{address}/"


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_without_the_token_and_from_elsewhere_nothing_is_served(page: Page, server: Server, elsewhere: str) -> None:
    address = server.view(EXAMPLE)
    base = address.split("?")[0]
    for path in ("", "/events", "/body?at=0", "/search?words=x", "?token=wrong"):
        assert status(base + path) == 401, path
    assert status(f"{base[: base.index('/file')]}/runs") == 401
    page.goto(address)
    expect(page.locator("article h2")).to_have_text("letters-1")
    cookie = "; ".join(f"{one['name']}={one['value']}" for one in page.context.cookies())
    assert status(f"{base}/body?at=0", Cookie=cookie) == 200
    # Names that lead here from elsewhere, and requests that a page of another origin makes, with the cookie.
    for host in ("evil.example", "127.0.0.1:80.evil.example", "evil.example:80"):
        assert status(f"{base}/body?at=0", Cookie=cookie, Host=host) == 403, host
    assert status(f"{base}/body?at=0", Cookie=cookie, Origin="http://127.0.0.1:1") == 403
    image = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    assert status(f"{base}/body?at=0", Cookie=cookie, **image) == 403
    Answers.address = base
    assert page.context.cookies(f"{elsewhere}run/x") == [], "another port is shown no cookie"
    with page.expect_response(base) as frame:
        page.goto(elsewhere)
    assert frame.value.status == 403
    fetched = page.evaluate(f"fetch('{base}/body?at=0', {{credentials: 'include'}}).then(() => 'got', () => 'refused')")
    assert fetched == "refused"
    # A link that someone follows works, and only trajectories that are recorded or were named are there.
    page.evaluate(f"document.body.innerHTML = '<a href=\"{base}\">a link</a>'")
    page.get_by_text("a link").click()
    expect(page.locator("article h2")).to_have_text("letters-1")
    root = base[: base.index("/file")]
    for path in (
        "/run/..%2F..%2Fpage-token",
        "/run/none",
        "/run/none/events",
        "/other/x",
        "/file/x",
        "/file/trajectory/body?at=9",
    ):
        assert status(root + path, Cookie=cookie) == 404, path


def test_connections_that_ask_for_nothing_take_no_descriptors_of_the_run(page: Page, server: Server) -> None:
    address = server.view(EXAMPLE)
    assert server.process is not None
    idle = [socket.create_connection(("127.0.0.1", urlsplit(address).port)) for _ in range(300)]
    for connection in idle:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127")
    descriptors = f"/proc/{server.process.pid}/fd"
    deadline = time.monotonic() + PATIENCE
    while (count := len(os.listdir(descriptors))) < 64 and time.monotonic() < deadline:
        # Nothing tells of a connection that another process accepts.
        time.sleep(0.01)
    assert 64 <= count < 100
    # A connection that sends no request is closed.
    idle[0].settimeout(PATIENCE)
    with idle[0].makefile("rb") as answer:
        answer.read()
    for connection in idle:
        connection.close()
    page.goto(address)
    expect(page.locator("article h2")).to_have_text("letters-1")


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    def error(*arguments: str) -> tuple[int, str]:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        ended = subprocess.run([RLM, *arguments], env=environment, cwd=tmp_path, text=True, capture_output=True)
        return ended.returncode, ended.stderr

    grow(tmp_path / "run.jsonl", EXAMPLE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, words = error("view", "run.jsonl", f"--serve={port}")
    assert status == 2 and f"--serve={port}: Address already in use" in words and "a free port" in words
    status, words = error("view", "-", "--serve")
    assert status == 2 and "standard input cannot be read from its beginning" in words
    status, words = error("view", ".", "--serve")
    assert status == 3 and "expected a file, which can be read from its beginning" in words
    status, words = error(
        "run", "--no-record", "--serve", "--context", "", "--model", "m", "--base-url", "http://127.0.0.1:1", "q"
    )
    assert status == 2 and "leave out --no-record" in words
    token = tmp_path / ".local/state/rlm/page-token"
    token.parent.mkdir(parents=True)
    for text, mode in (("short", 0o600), ("\0" * 64, 0o600), ("a" * 64, 0o644)):
        token.write_text(text)
        token.chmod(mode)
        status, words = error("view", "run.jsonl", "--serve")
        assert status == 2 and "page-token holds no token that only its user can read: remove it" in words
    token.unlink()
    os.mkfifo(token, 0o600)
    status, words = error("view", "run.jsonl", "--serve")
    assert status == 2 and "page-token holds no token" in words
