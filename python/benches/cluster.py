"""The cost of a cluster, as ratios to a peer measured in the same run. Needs `pip install 'rlm-env[ray]'`.

cargo build --release --workspace
RLM_BIN_DIR=target/release PYTHONPATH=python/src python3 python/benches/cluster.py
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import ray
from model_server import model_server, rlm_run

from rlm_env import Response
from rlm_env.ray import SessionActor, run_batch

ATTEMPTS = 200
CONCURRENCY = 8
ROUNDS = 2
CALLS = 300
CALL_ROUNDS = 7


def batch(url: str, language: Any) -> tuple[float, float, float]:
    """Seconds of a batch on the cluster, those until its first result, and those of the driver's CPU."""
    began, cpu = time.perf_counter(), time.process_time()
    first = 0.0
    answers = []
    ran = run_batch(
        "?",
        attempts=ATTEMPTS,
        model="m",
        base_url=url,
        stream=False,
        **({"python": sys.executable} if language == "python" else {}),
        concurrency_per_node=CONCURRENCY,
        num_cpus=0,
    )
    for result in ran:
        first = first or time.perf_counter() - began
        answers.append(result.answer)
    assert answers == ["a sub-call"] * ATTEMPTS, answers
    return time.perf_counter() - began, first, time.process_time() - cpu


def program(url: str, language: str, directory: str) -> float:
    """Seconds of the same by `rlm run`."""
    command = rlm_run(directory, url, language, ATTEMPTS, CONCURRENCY)
    began = time.perf_counter()
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    taken = time.perf_counter() - began
    assert [json.loads(line)["answer"] for line in printed.splitlines()] == ["a sub-call"] * ATTEMPTS
    return taken


@ray.remote(num_cpus=0)
class Bare:
    """The floor of a call: an actor that returns a value."""

    def __init__(self, value: Response) -> None:
        self._value = value

    async def call(self, code: str) -> Response:
        return self._value


def bare_start() -> float:
    began = time.perf_counter()
    ray.get(Bare.remote(None).call.remote(""))
    return time.perf_counter() - began


async def calls() -> tuple[float, float]:
    """Seconds of a bare actor's call, and of a session's that returns the same bytes."""

    async def each(call: Any) -> float:
        began = time.perf_counter()
        for _ in range(CALLS):
            await call("echo x")
        return (time.perf_counter() - began) / CALLS

    async with SessionActor(num_cpus=0) as session:
        bare = Bare.remote(await session.execute("echo x"))
        cpu = time.process_time()
        await each(bare.call.remote)
        print(f"a bare actor's call takes {(time.process_time() - cpu) / CALLS * 1e3:.1f} ms of the driver's CPU")
        rounds = [(await each(bare.call.remote), await each(session.execute)) for _ in range(CALL_ROUNDS)]
    return statistics.median(one for one, _ in rounds), statistics.median(other for _, other in rounds)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False)
        with model_server(2, 0.0) as url:
            print(f"the first batch of a program takes {batch(url, 'bash')[2]:.1f} s of its CPU: Ray is imported")
        for language, seconds in (("bash", 0.0), ("bash", 0.2), ("python", 0.2)):
            with model_server(2, seconds) as url:
                rounds = [(program(url, language, directory), *batch(url, language)) for _ in range(ROUNDS)]
            peer, ours, first, cpu = (statistics.median(one[number] for one in rounds) for number in range(4))
            print(
                f"{ATTEMPTS} attempts in {language}, completions of {seconds} s: {ours:.1f} s, {first:.1f} s of which "
                f"until the first result; by `rlm run` {peer:.1f} s: {ours / peer:.2f}, {(ours - first) / peer:.2f} "
                f"after the start; the driver takes {cpu / ATTEMPTS * 1e3:.1f} ms of CPU for each"
            )
        print(f"a bare actor starts in {statistics.median(bare_start() for _ in range(3)):.1f} s")
        bare, session = asyncio.run(calls())
        print(f"a call: {session * 1e6:.0f} µs, of a bare actor {bare * 1e6:.0f} µs: {session / bare:.2f}")
        print(f"the driver's peak is {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
        ray.shutdown()


if __name__ == "__main__":
    main()
