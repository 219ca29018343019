"""The page of `rlm run --serve`."""

import http.server
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from conftest import RLM, Server, serving


class Model(http.server.BaseHTTPRequestHandler):
    """Answers on its second turn, when it is let go on."""

    protocol_version = "HTTP/1.1"
    go_on = threading.Event()

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_first = len(body["messages"]) <= 2
        if not is_first:
            assert self.go_on.wait(20)
        code = "echo looking" if is_first else "RLM_CONTENT=found RLM_READY=1"
        message = {"role": "assistant", "content": f"```bash\n{code}\n```"}
        reply = json.dumps(
            {
                "id": "1",
                "object": "chat.completion",
                "model": "scripted",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model() -> Iterator[str]:
    Model.go_on.clear()
    with serving(Model) as address:
        yield f"{address}/v1"
        Model.go_on.set()


def test_a_run_is_watched_and_found_again_among_the_recorded_ones(page: Page, server: Server, model: str) -> None:
    run = ("run", "--context", "", "--base-url", model, "--model", "scripted", "where?")
    address = server.start(*run, "--id", "watched")
    page.goto(address)
    expect(page.locator("article")).to_contain_text("looking")
    expect(page.locator("article")).to_contain_text("no end: it runs")
    Model.go_on.set()
    expect(page.locator("article")).to_contain_text("found")
    # There is no terminal, so the page ends with the run.
    assert server.process is not None and server.process.wait(20) == 0
    server.process.stderr.close()
    server.process = None
    again = server.start("view", port=urlsplit(address).port)
    assert again == address, "the latest run, at the same place"
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("article")).to_contain_text("the answer is final")
    page.reload()
    expect(page.locator("article h2")).to_have_text("watched")


def test_at_a_terminal_the_page_of_a_run_stays_until_ctrl_c(page: Page, model: str, tmp_path: Path) -> None:
    Model.go_on.set()
    ours, terminal = os.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    arguments = ["--context", "", "--base-url", model, "--model", "scripted", "--serve", "where?"]
    run = subprocess.Popen([RLM, "run", *arguments], env=environment, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    said = ""
    while "the page stays until Ctrl-C" not in said:
        said += os.read(ours, 4096).decode()
    found = re.search(r"is at (http://\S+)", said)
    assert found is not None
    page.goto(found[1])
    expect(page.locator("article")).to_contain_text("the answer is final")
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    answer, _ = run.communicate(timeout=20)
    os.close(ours)
    assert (run.returncode, answer) == (0, b"found\n")
