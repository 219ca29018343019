"""A browser, trajectories to look at, and servers of pages."""

import http.server
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

RLM = str(Path(os.environ["RLM_BIN_DIR"]) / "rlm")
EXAMPLE = (Path(__file__).parents[2] / "docs/trajectory-example.jsonl").read_text()
LINES = EXAMPLE.splitlines(keepends=True)

# A bound for what has to happen: nothing waits that long unless it has failed.
PATIENCE = 20.0
expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["RLM_CHROMIUM"], args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a browser of its own, where no script fails."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    yield page
    context.close()
    assert failures == []


def changed(change: Callable[[dict[str, Any]], None], text: str = EXAMPLE) -> str:
    """A trajectory with each of its entries changed."""
    lines = []
    for line in text.splitlines():
        entry = json.loads(line)
        change(entry)
        lines.append(json.dumps(entry) + "\n")
    return "".join(lines)


def named(rollout: str, **fields: Any) -> str:
    """The example as a rollout of this id, with fields of its entries changed where they are."""

    def change(entry: dict[str, Any]) -> None:
        entry["rollout"] = rollout
        entry.update({name: value for name, value in fields.items() if name in entry})

    return changed(change)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    """Writes the page of a trajectory, and returns its address."""

    def write(text: str, *options: str) -> str:
        (tmp_path / "run.jsonl").write_text(text)
        subprocess.run([RLM, "view", "run.jsonl", "--html", "page.html", *options], cwd=tmp_path, check=True)
        return (tmp_path / "page.html").as_uri()

    return write


def grow(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def until(page: Page, holds: Callable[[], bool]) -> None:
    """Waits for something. The page's own functions for that need what it forbids."""
    end = time.monotonic() + PATIENCE
    while not holds():
        page.evaluate("new Promise((then) => setTimeout(then, 10))")  # requests are handed over meanwhile
        assert time.monotonic() < end


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server, and its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Server:
    """`rlm view --serve`, with a state directory of its own."""

    def __init__(self, place: Path) -> None:
        self.place, self.file = place, place / "run.jsonl"
        self.process: subprocess.Popen[str] | None = None
        self.base = ""
        """The address without the token."""

    def view(self, text: str) -> str:
        """Adds this text to the file and shows it. Returns the address."""
        grow(self.file, text)
        return self.start("view", self.file.name)

    def start(self, *arguments: str, port: int | None = None) -> str:
        """Returns the address, which has the token."""
        environment = {**os.environ, "XDG_STATE_HOME": str(self.place / "state"), "HOME": str(self.place)}
        serve = "--serve" if port is None else f"--serve={port}"
        self.process = subprocess.Popen(
            [RLM, *(arguments or ("view",)), serve], env=environment, cwd=self.place, text=True, stderr=subprocess.PIPE
        )
        assert self.process.stderr is not None
        said = ""
        for line in self.process.stderr:
            said += line
            if found := re.search(r"the page .*?is at (\S+)", line):
                self.base = found[1].split("?")[0]
                return found[1]
        raise AssertionError(f"no address, but status {self.process.wait()}: {said}")

    def end(self, number: signal.Signals = signal.SIGINT) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(number)
        assert process.wait(PATIENCE) in (130, -signal.SIGKILL)
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.end()
    left = [path.name for path in (tmp_path / "state/rlm").glob("*")]
    assert set(left) <= {"page-token", "runs"}, left
