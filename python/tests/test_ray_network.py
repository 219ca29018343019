"""A batch over a network that fails: three nodes of Ray, each in a network namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

try:
    import ray  # noqa: F401
except ImportError as error:  # pragma: no cover
    pytest.skip(f"Ray is not here ({error})", allow_module_level=True)

from clusters.processes import host_directories, rlm_processes
from conftest import wait_until
from rlm_env._files import PrivateDirectory

NODES = ("head", "near", "far")
HEAD = "10.77.0.1:6399"
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 8000,
    "health_check_failure_threshold": 5,
}

DRIVER = """
import json, sys, threading, time
import ray
from clusters.models import running
from rlm_env.ray import run_batch

address, code, attempts = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
batch = run_batch("?", attempts=int(attempts), model=running(code), concurrency_per_node=2)

def tell() -> None:
    while not batch.progress.losses:
        time.sleep(0.05)
    print(json.dumps({"losses": batch.progress.losses}), flush=True)

threading.Thread(target=tell, daemon=True).start()
for result in batch:
    print(json.dumps({"id": result.id, "stop_reason": result.stop_reason, "node": result.node}), flush=True)
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Network:
    """Namespaces on one bridge, which is in the first of them: the machine's own network has no part in it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._raylets: dict[str, subprocess.Popen[str]] = {}
        self._processes: list[subprocess.Popen[str]] = []
        ip("netns", "add", self.name("head"))
        self.link("add", "bridge", "type", "bridge")
        for number, node in enumerate(NODES, 1):
            device, inner = ("bridge", self.name("head")) if node == "head" else ("eth0", self.name(node))
            if node != "head":
                ip("netns", "add", inner)
                self.link("add", node, "type", "veth", "peer", "name", "eth0", "netns", inner)
                self.link("set", node, "master", "bridge", "up")
            ip("-n", inner, "address", "add", f"10.77.0.{number}/24", "dev", device)
            ip("-n", inner, "link", "set", device, "up")
            ip("-n", inner, "link", "set", "lo", "up")
            # Ray looks for its own address on the way to the internet.
            ip("-n", inner, "route", "add", "default", "dev", device)

    def name(self, node: str) -> str:
        return f"rlm-{os.getpid()}-{node}"

    def link(self, *arguments: str) -> None:
        """Changes a device in the namespace of the head."""
        ip("-n", self.name("head"), "link", *arguments)

    def run(self, node: str, *command: str, **options: Any) -> subprocess.Popen[str]:
        """Starts a program on a node."""
        process = subprocess.Popen(["ip", "netns", "exec", self.name(node), *command], text=True, **options)
        self._processes.append(process)
        return process

    def start(self, node: str) -> None:
        """Starts Ray on a node."""
        port = HEAD.rpartition(":")[2]
        joins = [f"--address={HEAD}"]
        if node == "head":
            joins = ["--head", f"--port={port}", f"--system-config={json.dumps(HEALTH)}"]
            joins += ["--include-dashboard=false", f"--temp-dir={self._directory}"]
        ours = [
            f"--node-ip-address=10.77.0.{NODES.index(node) + 1}",
            "--num-cpus=1",
            "--block",
            "--disable-usage-stats",
        ]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *joins, *ours]
        path = self._directory / f"{node}.log"
        # Ray gives its own start 30 s, which it cannot be told to change: too little on a busy machine.
        for _ in range(3):
            with open(path, "w") as log:
                self._raylets[node] = self.run(node, *command, stdout=log, stderr=log)
            # Nodes start one after the other: they share a directory.
            wait_until(lambda: "Ray runtime started" in path.read_text() or self.has_ended(node), f"a start of {node}")
            if not self.has_ended(node):
                return
        raise AssertionError(path.read_text())

    def has_ended(self, node: str) -> bool:
        """True if Ray ended by itself."""
        return self._raylets[node].poll() is not None

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
        for node in NODES:
            ip("netns", "del", self.name(node))


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short one: sockets of Ray have long names."""
    with tempfile.TemporaryDirectory(prefix="rlm-", dir="/tmp") as path:
        monkeypatch.setenv("TMPDIR", path)
        monkeypatch.setattr("tempfile.tempdir", path)
        yield Path(path)


@pytest.fixture
def network(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    try:
        network = Network(directory)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made here: {error} {getattr(error, 'stderr', '')}")
    yield network
    network.close()
    wait_until(lambda: not rlm_processes(str(directory)), "the end of our processes")


@pytest.mark.nightly
def test_a_node_that_is_cut_off_and_comes_back(network: Network, directory: Path) -> None:
    for node in NODES:
        network.start(node)
    started, gate = directory / "started", directory / "gate"
    started.mkdir()
    code = f": > $(mktemp -p {started}); while [ ! -e {gate} ]; do sleep 0.05; done; RLM_CONTENT=1 RLM_READY=1"
    with open(directory / "driver.log", "w") as log:
        command = (sys.executable, "-c", DRIVER, HEAD, code, "10")
        driver = network.run("head", *command, stdout=subprocess.PIPE, stderr=log)
    assert driver.stdout is not None
    with driver.stdout:
        wait_until(lambda: len(list(started.iterdir())) >= 6, "two attempts on each node")
        network.link("set", "far", "down")
        told = (line for line in driver.stdout if line.startswith("{"))  # Ray prints, too
        losses = json.loads(next(told))["losses"]
        begun = len(list(started.iterdir()))
        network.link("set", "far", "up")
        wait_until(lambda: network.has_ended("far"), "the end of the node that was taken for dead")
        network.start("far")
        wait_until(lambda: len(list(started.iterdir())) >= begun + 2, "two more attempts on the node that came back")
        gate.touch()
        results = [json.loads(line) for line in told]
    assert (driver.wait(), losses > 0) == (0, True), (directory / "driver.log").read_text()
    assert sorted(result["id"] for result in results) == sorted(f"1-{number}" for number in range(1, 11))
    assert {result["stop_reason"] for result in results} == {"answered"}
    assert {result["node"].partition(":")[0] for result in results} == {"10.77.0.1", "10.77.0.2", "10.77.0.3"}
    PrivateDirectory().remove()
    assert host_directories(str(directory)) == [], "a directory is left"
