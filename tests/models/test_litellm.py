"""LiteLLM's real proxy between the program and stand-ins of Anthropic and Gemini: what they sign comes back to them."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gemini import Gemini
from habits.other_apis import redacted
from servers import KEY, SUB_MODEL, Habit, Json, Request, Server
from wires import WIRES, Turn

from conftest import PRICES, Place, call, script
from test_models import check_bill

WIRES[Gemini.api] = Gemini()
pytestmark = pytest.mark.xdist_group("proxy")
"""One process starts the proxy."""
START = 180.0
"""A bound, in seconds, for the start of the proxy: 12 where its files are in memory, 40 where not."""
PROGRAM = os.environ.get("RLM_LITELLM", "")
UPSTREAM_KEY = "sk-key-of-the-proxy"


class Behind(Server):
    """A stand-in behind the proxy: `url` and `habit.settings` are of the proxy, the rest is of the stand-in."""

    def answer(self, path: str, request: Request) -> tuple[int, dict[str, str], bytes]:
        if found := re.fullmatch(r"(/v1beta/models)/([^:]+):(g|streamG)enerateContent(\?alt=sse)?", path):
            request.body |= {"model": found[2], "stream": found[3] == "streamG"}
            path = found[1]
        for name in ("x-goog-api-key", "x-api-key"):
            if request.headers.get(name) == UPSTREAM_KEY:
                request.headers["x-api-key"] = KEY
                request.headers["authorization"] = f"Bearer {KEY}"
        return super().answer(path, request)

    def check_headers(self, request: Request) -> None:
        """Checks nothing: the headers are the proxy's."""

    def bounds(self, request: Request) -> Json:
        return {"max_tokens": self.wire.bound(request.body)} if self.habit.api == "gemini" else request.body


class Upstream(Server):
    """The address that the proxy knows: the stand-in of the running test answers."""

    def __init__(self) -> None:
        super().__init__(Habit("upstream", "-"), [], "", False)
        self.now: Behind | None = None

    def answer(self, path: str, request: Request) -> tuple[int, dict[str, str], bytes]:
        return self.now.answer(path, request)


@pytest.fixture(scope="session")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Upstream]]:
    """The process of the proxy for all tests, which reaches nothing but the stand-ins."""
    if not PROGRAM:
        pytest.skip("LiteLLM's proxy is not installed: tests/models-run does it")
    place = tmp_path_factory.mktemp("litellm")
    with socket.socket() as free, Upstream() as upstream:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        base = upstream.url.removesuffix("/v1")
        marks = [{"location": "message", "role": "system"}, {"location": "message", "index": -1}]
        thinking = {"type": "enabled", "budget_tokens": 1024}
        models = {
            "claude": ("anthropic/claude-sonnet-4-5", {"thinking": thinking, "cache_control_injection_points": marks}),
            "gemini": ("gemini/gemini-3-pro-preview", {"api_base": f"{base}/v1beta", "reasoning_effort": "low"}),
            SUB_MODEL: (f"anthropic/{SUB_MODEL}", {}),
        }
        common = {"api_base": base, "api_key": UPSTREAM_KEY} | {
            f"{name}_cost{'' if name.startswith('cache') else '_per_token'}": PRICES[of] / 1e6
            for name, of in (
                ("input", "prompt"),
                ("output", "completion"),
                ("cache_read_input_token", "cached"),
                ("cache_creation_input_token", "cache_write"),
            )
        }
        config = {
            "model_list": [
                {"model_name": name, "litellm_params": {"model": model, **common, **more}}
                for name, (model, more) in models.items()
            ],
            "general_settings": {"master_key": KEY},
            "litellm_settings": {"telemetry": False, "num_retries": 0},
        }
        (place / "config.yaml").write_text(json.dumps(config))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "TMPDIR": str(place),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            # Nothing listens there: no address but this host's is reached.
            **{name: "http://127.0.0.1:9" for name in ("HTTP_PROXY", "HTTPS_PROXY")},
            "NO_PROXY": "127.0.0.1",
        }
        log = place / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [PROGRAM, "--config", place / "config.yaml", "--host", "127.0.0.1", "--port", str(port)],
                cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        try:
            wait(f"http://127.0.0.1:{port}/health/liveliness", process, log)
            yield f"http://127.0.0.1:{port}/v1", upstream
            process.terminate()
            process.wait(30)
            with pytest.raises(ProcessLookupError):
                os.killpg(process.pid, 0)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START
    while process.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.1)
    pytest.fail(f"the proxy does not start ({process.poll()}): {log.read_text()[-3000:]}")


def meaning(unit: Json) -> Json:
    """The part of a block, or of a content of Gemini's, that the proxy has to keep."""
    if "parts" in unit:
        return {"parts": [meaning(part) for part in unit["parts"]]}
    names = (
        "text",
        "thought",
        "thinking",
        "signature",
        "data",
        "name",
        "id",
        "input",
        "functionCall",
        "thoughtSignature",
    )
    return {name: unit[name] for name in names if unit.get(name)}


def with_text(turns: list[Turn]) -> list[Turn]:
    """A signature of a text, too."""
    return [*turns[:4], Turn("I wonder: how?", "A text alone."), *turns[4:]]


def settings(model: str) -> dict[str, Any]:
    return {"turns": with_text, "seen": meaning, "settings": {"RLM_API": "chat"}, "model": model}


HABITS = [
    Habit("anthropic", "litellm's factory.py", "anthropic", **settings("claude")),
    Habit("anthropic, redacted", "litellm's factory.py", "anthropic", dress=redacted, **settings("claude")),
    Habit("gemini", "litellm's vertex_ai/gemini", "gemini", **settings("gemini")),
]


def behind(proxy: tuple[str, Upstream], habit: Habit, language: str, mode: str, turns: list[Turn]) -> Behind:
    url, upstream = proxy
    server = Behind(habit, turns, f"call_{language}_repl", mode == "streamed")
    server.url, upstream.now = url, server
    return server


CASES = [
    pytest.param(habit, mode, language, id=f"{habit}-{mode}-{language}")
    for habit in HABITS
    for mode, language in (("streamed", "bash"), ("whole", "bash"), ("streamed", "python"))
]


@pytest.mark.parametrize(("habit", "mode", "language"), CASES)
def test_a_rollout(habit: Habit, mode: str, language: str, proxy: tuple[str, Upstream], place: Place) -> None:
    server = behind(proxy, habit, language, mode, habit.turns(script(language)))
    status, result, entries = place.run(server, language)
    server.check()
    assert (status, result["stop_reason"], result["answer"]) == (0, "answered", "42"), result
    assert server.replies == server.requests == len(server.turns)
    assert [entry["error"] for entry in entries if entry["event"] == "model_call"] == [None] * server.requests
    check_bill(server, result["metrics"])


def test_sub_llms(proxy: tuple[str, Upstream], place: Place) -> None:
    code = "llm_batch 'judge: a' 'judge: b' > two; RLM_CONTENT=$(grep -c re: two) RLM_READY=1"
    server = behind(proxy, HABITS[0], "bash", "whole", [Turn("Ask.", "Two.", (call(code),))])
    status, result, _ = place.run(server, "bash")
    server.check()
    assert (status, result["answer"], len(server.sub_requests)) == (0, "2", 2), result
