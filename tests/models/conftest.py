"""A place for each test, in which no process and no directory is left."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from servers import BOUND, KEY, SUB_MODEL, Habit, Server
from wires import SECRET, Turn

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = Path(os.environ["RLM_BIN_DIR"])
sys.path.insert(0, str(REPOSITORY / "python/src"))

PATIENCE = 60.0
"""A bound, in seconds, for what has to happen: nothing waits that long unless it has failed."""

PRICES = {"prompt": 1.0, "completion": 2.0, "cached": 0.1, "cache_write": 1.25}


def call(code: str) -> str:
    return json.dumps({"code": code})


def script(language: str, answer: int = 42) -> list[Turn]:
    """Six turns: an output, two calls in one reply, a malformed one, a failure, odd white space, the answer."""
    codes = {
        "bash": ("n=1; echo n is $n", "n=$((n+1)); echo ü$n", "n=$((n+1)); echo é$n", "ls /nowhere", "n=$((n*14))"),
        "python": (
            "n=1; print('n is', n)",
            "n += 1; print('ü', n)",
            "n += 1; print('é', n)",
            "open('/nowhere')",
            "n *= 14",
        ),
    }[language]
    answers = {"bash": "RLM_CONTENT=$n RLM_READY=1", "python": "answer['content'] = str(n); answer['ready'] = True"}
    return [
        Turn("I look.", "First für me: n?", (call(codes[0]),)),
        Turn(None, "Then both, in one reply.", (call(codes[1]), call(codes[2]))),
        Turn("", "A call without code.", ('{"cmd": "ls"}',)),
        Turn("  Zwölf 🦜 Boxkämpfer\n\n", 'What if it fails? \\ "', (call(codes[3]),)),
        Turn("So:", "White space as it came.", (f'{{"code":  {json.dumps(codes[4])} }}',)),
        Turn(None, "That is all.", (call(answers[language]),)),
    ]


@dataclass
class Place:
    """Directories, and an environment without any setting of the user."""

    path: Path

    def environment(self, server: Server, language: str, **more: str) -> dict[str, str]:
        habit = server.habit
        prices = "\n".join(f"{name} = {price}" for name, price in PRICES.items())
        (self.path / "prices.toml").write_text(f'[models."{habit.model}"]\n{prices}\n[models.{SUB_MODEL}]\n{prices}\n')
        settings = {
            "RLM_API": habit.api,
            "RLM_BASE_URL": server.url,
            "RLM_MODEL": habit.model,
            "RLM_SUB_MODEL": SUB_MODEL,
            "RLM_API_KEY": KEY,
            "RLM_STREAM": json.dumps(server.streams),
            "RLM_LANGUAGE": language,
            "RLM_MAX_COMPLETION_TOKENS": str(BOUND),
            "RLM_PRICES": str(self.path / "prices.toml"),
        } | ({"RLM_SERVER": habit.server} if habit.server else {})
        own = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.path / "home"),
            "TMPDIR": str(self.path / "tmp"),
            "RLM_PYTHON": sys.executable,
            "RLM_BIN_DIR": str(PROGRAMS),
            "RLM_TEST_MARK": str(self.path),
            "RLM_PASS_ENV": "RLM_TEST_MARK",
            "RUST_LOG": "debug",
        }
        return {**own, **settings, **habit.settings, **more}

    def run(
        self, server: Server, language: str, *options: str, **more: str
    ) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
        """`rlm run`: its status, its result and the trajectory."""
        trajectory = self.path / "trajectory.jsonl"
        done = self.rlm(server, language, "", "--json", "--trajectory", str(trajectory), *options, "How many?", **more)
        entries = [json.loads(line) for line in trajectory.read_text().splitlines()]
        return done.returncode, json.loads(done.stdout), entries

    def rlm(
        self, server: Server, language: str, fed: str, *arguments: str, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """`rlm run` with these arguments, and this on standard input."""
        done = subprocess.run(
            [PROGRAMS / "rlm", "run", "--context", "", "--no-record", *arguments],
            env=self.environment(server, language, **more),
            cwd=self.path,
            input=fed,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert KEY not in done.stderr and SECRET not in done.stderr, done.stderr
        assert done.stdout, (done.stderr, server.wrong, server.refusals)
        return done


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    yield Place(tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == [], "a directory is left"
    mark, left = f"RLM_TEST_MARK={tmp_path}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            left += [process.name] if mark in (process / "environ").read_bytes().split(b"\0") else []
        except OSError:
            pass  # It has ended, or is not ours.
    assert left == [], "a process is left"


def serve(habit: Habit, language: str, mode: str, turns: list[Turn] | None = None, repeats: bool = False) -> Server:
    turns = habit.turns(script(language)) if turns is None else turns
    return Server(habit, turns, f"call_{language}_repl", mode == "streamed", repeats)
