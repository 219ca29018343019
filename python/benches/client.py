"""The cost of the package, as ratios to a peer measured in the same run.

cargo build --release --workspace
RLM_BIN_DIR=target/release PYTHONPATH=python/src python3 python/benches/client.py
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlm_env import AsyncSession, Session, SessionConfig, for_workers

ROUNDS = 7
PROGRAMS = Path(os.environ.get("RLM_BIN_DIR", "target/release"))


def rust(worker: str, code: str, calls: int, sessions: int = 1) -> dict[str, float]:
    """Seconds of a start and of a call, through `rlm_env::Session`."""
    command = [PROGRAMS / "session_calls", PROGRAMS / worker, code, str(calls), str(sessions)]
    environment = {**os.environ, "RLM_PYTHON": sys.executable}
    printed: dict[str, float] = json.loads(
        subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    )
    return printed


def sync_calls(config: SessionConfig, code: str, calls: int) -> float:
    with Session(config) as session:
        session.execute(code)
        began = time.perf_counter()
        for _ in range(calls):
            session.execute(code)
        return (time.perf_counter() - began) / calls


async def async_calls(config: SessionConfig, code: str, calls: int, sessions: int = 1) -> float:
    async def run(session: AsyncSession) -> None:
        for _ in range(calls):
            await session.execute(code)

    every = [await AsyncSession(config).start() for _ in range(sessions)]
    await asyncio.gather(*(session.execute(code) for session in every))
    began = time.perf_counter()
    await asyncio.gather(*(run(session) for session in every))
    taken = (time.perf_counter() - began) / (calls * sessions)
    await asyncio.gather(*(session.close() for session in every))
    return taken


def start(config: SessionConfig) -> float:
    began = time.perf_counter()
    session = Session(config).start()
    taken = time.perf_counter() - began
    session.close()
    return taken


async def echo() -> float:
    """Seconds of the same call from a Python session to a bare asyncio server, which answers without a look at it."""
    body = b'{"result": "gARLAS4="}'
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            assert isinstance(self.transport, asyncio.WriteTransport)
            self.transport.write(reply)

    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/echo"
        server = await asyncio.get_running_loop().create_unix_server(Echo, path)
        variables = {
            "RLM_ROOT_TOOL_URL": f"http+unix://{quote(path, safe='')}/tools",
            "RLM_ROOT_TOOL_NAMES": '["late"]',
        }
        config = SessionConfig("/tmp", language="python", env={**for_workers(os.environ), **variables})
        async with AsyncSession(config) as session:
            taken = float((await session.execute(calls_of("late"))).result or "nan")
        server.close()
    return taken


def calls_of(name: str) -> str:
    loop = f"for i in range(2000): {name}(i)"
    return f"import time\n{name}(1)\nt = time.perf_counter()\n{loop}\n(time.perf_counter() - t) / 2000"


async def late(value: int) -> int:
    return value


def plain(value: int) -> int:
    return value


async def tool_in_python(name: str) -> float:
    config = SessionConfig("/tmp", language="python")
    async with AsyncSession(config, tools=[late, plain]) as session:
        return float((await session.execute(calls_of(name))).result or "nan")


async def tool_in_bash(command: str) -> float:
    async with AsyncSession("/tmp", tools=[late]) as session:
        response = await session.execute(f"for i in {{1..200}}; do {command} >/dev/null; done")
        return response.execution_time / 200


def imports(module: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    return time.perf_counter() - began


def dspy_rlms() -> dict[str, float]:
    """Seconds of dspy's RLM with a scripted model, 20 iterations over a text of 10 MB, by interpreter."""
    import dspy  # pyright: ignore[reportMissingImports]
    from dspy.primitives.local_interpreter import LocalInterpreter  # pyright: ignore[reportMissingImports]
    from dspy.primitives.python_interpreter import PythonInterpreter  # pyright: ignore[reportMissingImports]
    from dspy.utils import DummyLM  # pyright: ignore[reportMissingImports]

    from rlm_env.dspy import Interpreter

    text = "0123456789" * (1 << 20)
    steps = [{"reasoning": "look", "code": f"print(len(context), context[{number}])"} for number in range(19)]
    steps.append({"reasoning": "end", "code": "SUBMIT(answer=str(len(context)))"})

    def once(factory: Any) -> float:
        with dspy.context(lm=DummyLM(steps)):
            began = time.perf_counter()
            answer = dspy.RLM("context -> answer", interpreter_factory=factory)(context=text).answer
            taken = time.perf_counter() - began
        assert answer == str(len(text)), answer
        return taken

    kinds = {"rlm_env.dspy.Interpreter": Interpreter, "dspy's LocalInterpreter": LocalInterpreter}
    if shutil.which("deno"):
        kinds["dspy's default, in Deno"] = PythonInterpreter
    for factory in kinds.values():
        once(factory)
    rounds = [{name: once(factory) for name, factory in kinds.items()} for _ in range(3)]
    return {name: statistics.median(one[name] for one in rounds) for name in kinds}


def pair(peer: Callable[[], float], ours: Callable[[], float]) -> tuple[float, float]:
    """Medians of both, measured in turns."""
    both = [(peer(), ours()) for _ in range(ROUNDS)]
    return statistics.median(one for one, _ in both), statistics.median(other for _, other in both)


def awaited(function: Callable[..., Coroutine[Any, Any, float]], *arguments: Any) -> Callable[[], float]:
    return lambda: asyncio.run(function(*arguments))


def main() -> None:
    bash, python = SessionConfig("/tmp"), SessionConfig("/tmp", language="python")
    rust_call = lambda: rust("rlm-worker-python", "1+1", 2000)["call"]  # noqa: E731
    rust_calls = lambda: rust("rlm-worker-bash", ":", 20, 50)["call"]  # noqa: E731
    rust_start = lambda: rust("rlm-worker-bash", ":", 1)["start"]  # noqa: E731
    one, many = awaited(async_calls, python, "1+1", 2000), awaited(async_calls, bash, ":", 20, 50)
    bare, true = awaited(echo), awaited(tool_in_bash, "/bin/true")
    rows: list[tuple[str, str, Callable[[], float], Callable[[], float]]] = [
        ("asyncio `1+1` beside rlm_env::Session", "<= 1.6", rust_call, one),
        ("sync `1+1` beside rlm_env::Session", "<= 1.8", rust_call, lambda: sync_calls(python, "1+1", 2000)),
        ("50 sessions x 20 calls of `:`, one loop, beside Rust's", "<= 1.67", rust_calls, many),
        ("tool of a Python session, async, beside a bare server", "<= 2", bare, awaited(tool_in_python, "late")),
        ("the same, a plain function in a thread", "<= 2", bare, awaited(tool_in_python, "plain")),
        ("tool of a bash session beside /bin/true", "<= 3", true, awaited(tool_in_bash, "late 1")),
        ("bash session ready beside Rust's", "<= 1.3", rust_start, lambda: start(bash)),
    ]
    both = pair(lambda: imports("asyncio"), lambda: imports("rlm_env"))
    print(f"| {'what':<56} | {'peer':>10} | {'measured':>10} | ratio | limit   |")
    print(f"| {'-' * 56} | {'-' * 10} | {'-' * 10} | ----- | ------- |")
    for what, limit, *measures in rows:
        peer, measured = pair(*measures)
        print(f"| {what:<56} | {peer * 1e6:7.0f} µs | {measured * 1e6:7.0f} µs | {measured / peer:5.2f} | {limit:<7} |")
    if importlib.util.find_spec("dspy"):
        for name, seconds in dspy_rlms().items():
            print(f"dspy.RLM, 20 iterations over 10 MB, {name}: {seconds:.2f} s")
    else:
        print("dspy is not installed: its interpreters are left out")
    print(f"`import rlm_env` takes {(both[1] - both[0]) * 1e3:.0f} ms more than `import asyncio` (limit 40)")


if __name__ == "__main__":
    main()
