"""The number of rollouts that one machine holds, and the part of a cluster that saturates first: see docs/scale.md.

cargo build --release --workspace
RLM_BIN_DIR=target/release PYTHONPATH=python/src python3 python/benches/scale.py measure
RLM_BIN_DIR=target/release PYTHONPATH=python/src python3 python/benches/scale.py simulate
RLM_BIN_DIR=target/release PYTHONPATH=python/src python3 python/benches/scale.py check

`measure` prints the costs as measured here, by which `COSTS` is kept up to date by hand; `simulate` the table of
clusters, from a seed; `check` runs a real batch on a local cluster of three nodes, and the simulation of the same.
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
import itertools
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_server import model_server, rlm_run

from rlm_env import AsyncSession, Budget, SessionConfig

SEED = 1
SESSIONS = 100


@dataclass(frozen=True)
class Costs:
    """The costs of a rollout of two turns and one sub-call, in seconds of one core where nothing else is said."""

    attempt: float
    """A rollout without its turns: directory, session, prompt, end."""
    turn: float
    driver: float
    """An attempt, in the driver's process."""
    ledger: float
    """A reservation and its end, in the actor that keeps the ledger."""
    result: float
    """A line in the file of results."""


COSTS = Costs(attempt=0.022, turn=0.006, driver=0.002, ledger=0.0017, result=0.00004)


# Measurements of one machine.


def memory(pids: Iterator[int]) -> float:
    """Bytes of processes, shared pages in parts (PSS)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024


def children_of(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def descendants(pid: int) -> Iterator[int]:
    for child in children_of(pid):
        yield child
        yield from descendants(child)


async def sessions(language: Any) -> None:
    config = SessionConfig("/tmp", language=language)
    await (await AsyncSession(config).start()).close()
    own, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    every = await asyncio.gather(*(AsyncSession(config).start() for _ in range(SESSIONS)))
    taken = time.perf_counter() - began
    code = {"bash": ":", "python": "1+1"}[language]
    await asyncio.gather(*(session.execute(code) for session in every))
    each = memory(descendants(os.getpid())) / SESSIONS
    client = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - own) * 1024 / SESSIONS
    print(f"{language}: {each / 1e6:.2f} MB a session ({1e9 / each:.0f} in a GB), {client / 1e3:.0f} kB of the client")
    print(f"{language}: {SESSIONS / taken:.0f} starts/s, {SESSIONS} at once, on {os.cpu_count()} cores")

    async def calls_of(session: AsyncSession) -> None:
        for _ in range(50):
            await session.execute(code)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(calls_of(session) for session in every))
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    calls = 50 * SESSIONS
    print(
        f"{language}: {calls / taken:.0f} calls/s of {SESSIONS} sessions, {cpu / calls * 1e6:.0f} µs of the client each"
    )
    await asyncio.gather(*(session.close() for session in every))


def rollouts(language: str, turns: int, attempts: int, jobs: int) -> tuple[float, float]:
    """Seconds, and those of CPU of `rlm` with its sessions, for rollouts of so many turns."""
    with tempfile.TemporaryDirectory() as directory, model_server(turns, 0) as url:
        command = rlm_run(directory, url, language, attempts, jobs)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        taken, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def memory_of_rollouts(language: str) -> None:
    """The needs of `rlm` itself for rollouts that run, with its endpoints of root tools."""
    with tempfile.TemporaryDirectory() as directory, model_server(2, 60) as url:
        found = {}
        for jobs in (1, SESSIONS):
            command = rlm_run(directory, url, language, jobs, jobs)
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                while sum(1 for _ in children_of(process.pid)) < jobs:
                    assert process.poll() is None, "it has ended"
                    time.sleep(0.05)
                time.sleep(1)
                found[jobs] = memory(iter([process.pid]))
                process.terminate()
    each = (found[SESSIONS] - found[1]) / (SESSIONS - 1)
    print(f"{language}: {each / 1e3:.0f} kB of `rlm` a rollout that runs, {found[1] / 1e6:.1f} MB with one")


def measure() -> None:
    for language in ("bash", "python"):
        asyncio.run(sessions(language))
        memory_of_rollouts(language)
        rollouts(language, 2, 20, 8)
        taken, two = rollouts(language, 2, 200, 8)
        _, ten = rollouts(language, 10, 200, 8)
        turn = (ten - two) / 200 / 8
        print(
            f"{language}: {200 / two:.0f} rollouts/s of a core ({200 / taken:.0f}/s here, with the model), "
            f"{two / 200 * 1e3:.1f} ms of CPU each; {turn * 1e3:.2f} ms for each further turn"
        )
    asyncio.run(ledger())
    results()


def command_of(pid: str) -> str:
    try:
        return Path("/proc", pid, "cmdline").read_text()
    except OSError:
        return ""


def seconds_of(pid: int) -> float:
    """CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ledger() -> None:
    import ray

    from rlm_env.ray._hub import News, start_hub

    ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False)
    hub = await start_hub(Budget(calls=10**9))
    request = {"model": "m", "rollout": "r", "prompt_tokens": 100, "completion_tokens": 100}
    request |= {"least_completion_tokens": 10, "cost_usd": None, "completion_token_usd": None}
    spent = {"calls": 1, "prompt_tokens": 100, "completion_tokens": 100, "cost_usd": None}

    async def once(number: int) -> None:
        news = News([{**spent, "id": str(number - 64)}], number=number + 1)
        await hub.reserve.remote("node", {**request, "id": str(number)}, news)

    async def many(numbers: Iterator[int]) -> None:
        for number in numbers:
            await once(number)

    numbers = iter(range(4000))
    await once(-1)
    [pid] = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and command_of(pid).startswith("ray::_Hub")]
    before, began = seconds_of(pid), time.perf_counter()
    await asyncio.gather(*(many(numbers) for _ in range(64)))
    taken, own = time.perf_counter() - began, seconds_of(pid) - before
    print(
        f"the ledger: {own / 4000 * 1e6:.0f} µs of its actor for each request that is reserved and settled, "
        f"{taken / 4000 * 1e6:.0f} µs from one process that asks"
    )
    size = 64 << 20
    began = time.perf_counter()
    ref = ray.put(os.urandom(size))
    put = time.perf_counter() - began
    began = time.perf_counter()
    await ref
    print(
        f"the object store: {size / put / 1e6:.0f} MB/s in, {size / (time.perf_counter() - began) / 1e6:.0f} MB/s out"
    )
    ray.shutdown()


def results() -> None:
    from rlm_env.ray._results import Results

    with tempfile.TemporaryDirectory() as directory:
        file = Results(f"{directory}/results.jsonl", resume=False)
        began = time.perf_counter()
        for _ in range(10_000):
            file.append({"id": "1-1", "answer": "a" * 1000, "metrics": {str(number): number for number in range(30)}})
        print(f"the file of results: {(time.perf_counter() - began) / 10_000 * 1e6:.1f} µs a line")
        file.close()


# The model of a cluster.


@dataclass(frozen=True)
class Cluster:
    nodes: int
    cores: int
    """The cores of a node."""
    concurrency: int
    """Rollouts of a node."""
    turns: int
    completion: float
    """Median of the seconds of a completion; they are spread log-normally."""
    has_budget: bool
    model_limit: float
    """Completions per second of the models' servers."""
    shared_cores: bool = False
    """All nodes are on one machine."""
    spread: float = 0.6


class Server:
    """Takes work in the order in which it comes, on so many cores."""

    def __init__(self, cores: int) -> None:
        self._free = [0.0] * cores
        self.busy = 0.0

    def end_of(self, now: float, work: float) -> float:
        begin = max(now, self._free[0])
        heapq.heapreplace(self._free, begin + work)
        self.busy += work
        return begin + work

    def use(self, elapsed: float) -> float:
        return self.busy / (elapsed * len(self._free))


def simulate(cluster: Cluster, costs: Costs, attempts: int, seed: int = SEED) -> dict[str, float]:
    """Runs attempts through a model of a cluster; returns attempts per second and how busy each part was."""
    chance = random.Random(seed)
    shared = Server(cluster.cores)
    nodes = [shared if cluster.shared_cores else Server(cluster.cores) for _ in range(cluster.nodes)]
    driver, ledger, results, models = Server(1), Server(1), Server(1), Server(1)
    number = itertools.count()
    events: list[tuple[float, int, Iterator[float]]] = []
    waiting = iter(range(attempts))
    last = 0.0

    def slot(node: Server) -> Iterator[float]:
        """Simulates one place of a node: yields the times at which it goes on."""
        nonlocal last
        now = 0.0
        for _ in waiting:
            yield (now := driver.end_of(now, costs.driver / 2))
            yield (now := node.end_of(now, costs.attempt))
            for _ in range(cluster.turns + 1):  # with a sub-call
                if cluster.has_budget:
                    yield (now := ledger.end_of(now, costs.ledger))
                yield (now := models.end_of(now, 1 / cluster.model_limit))
                yield (now := now + chance.lognormvariate(0, cluster.spread) * cluster.completion)
                yield (now := node.end_of(now, costs.turn))
            yield (now := driver.end_of(now, costs.driver / 2))
            yield (now := results.end_of(now, costs.result))
            last = max(last, now)

    for _ in range(cluster.concurrency):
        for node in nodes:
            heapq.heappush(events, (0.0, next(number), slot(node)))
    while events:
        _, _, one = heapq.heappop(events)
        if (now := next(one, None)) is not None:
            heapq.heappush(events, (now, next(number), one))
    parts = {"driver": driver, "ledger": ledger, "results": results, "models": models}
    use = {name: part.use(last) for name, part in parts.items()}
    busy = sum(node.busy for node in nodes) / (1 if not cluster.shared_cores else cluster.nodes)
    cores = cluster.cores * (1 if cluster.shared_cores else cluster.nodes)
    return {"rate": attempts / last, "nodes": busy / (last * cores), **use}


def table() -> None:
    names = ["nodes", "rollouts at once", "budget", "models' limit", "attempts/s", "busiest"]
    parts = ["nodes", "driver", "ledger", "models"]
    print(f"| {' | '.join(names + parts)} |\n|{' --- |' * len(names + parts)}")
    for nodes, has_budget, limit in itertools.product((10, 100, 1000), (False, True), (float("inf"), 500.0)):
        cluster = Cluster(nodes, 8, 32, 8, 3.0, has_budget, limit)
        found = simulate(cluster, COSTS, min(nodes * 32 * 6, 100_000))
        rate = found.pop("rate")
        busiest = max(found, key=lambda name: found[name])
        words = [f"{found[name]:.0%}" for name in parts]
        shown = "none" if limit == float("inf") else f"{limit:.0f}/s"
        print(
            f"| {nodes} | {nodes * 32} | {'yes' if has_budget else 'no'} | {shown} | {rate:.0f} | {busiest} | "
            f"{' | '.join(words)} |"
        )


def check() -> None:
    """Runs a batch on a real cluster, and its simulation."""
    import ray
    from ray.cluster_utils import Cluster as Local

    from rlm_env.ray import run_batch

    local = Local(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        local.add_node(num_cpus=1)
    local.wait_for_nodes()
    ray.init(address=local.address, log_to_driver=False)
    cores = os.cpu_count() or 1
    for concurrency, seconds in ((4, 1.0), (8, 0.5)):
        attempts = concurrency * 3 * 12
        with model_server(4, seconds) as url:
            ran = run_batch(
                "?",
                attempts=attempts,
                model="m",
                base_url=url,
                stream=False,
                budget=Budget(calls=10**6),
                concurrency_per_node=concurrency,
                num_cpus=0,
            )
            times = [time.perf_counter() for _ in ran]
        # Between the first and the last result: how long an actor takes to start is Ray's.
        real = (len(times) - 1) / (times[-1] - times[0])
        model = Cluster(3, cores, concurrency, 4, seconds, True, float("inf"), shared_cores=True, spread=0)
        # All of it shares the cores of one machine here, the driver and the ledger as well.
        ours = dataclasses.replace(COSTS, attempt=COSTS.attempt + COSTS.driver + 5 * COSTS.ledger)
        expected = simulate(model, ours, attempts)["rate"]
        print(f"3 x {concurrency} rollouts, completions of {seconds} s: {real:.1f}/s, simulated {expected:.1f}/s")
    ray.shutdown()
    local.shutdown()


if __name__ == "__main__":
    commands: dict[str, Callable[[], None]] = {"measure": measure, "simulate": table, "check": check}
    commands[sys.argv[1]]()
