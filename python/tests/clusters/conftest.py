"""One cluster for all tests here: it starts in 20 s."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from clusters.processes import host_directories, rlm_processes
from conftest import wait_until
from rlm_env._files import PrivateDirectory

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError:  # pragma: no cover
    collect_ignore_glob = ["test_*.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Replaces the fixture of other tests: Ray keeps processes and descriptors; `cluster` checks what is ours."""


@pytest.fixture(scope="session", autouse=True)
def cluster() -> Iterator[Any]:
    """A cluster of three nodes. When it is gone, nothing of ours is left."""
    with tempfile.TemporaryDirectory(prefix="rlm-ray-") as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        patch.setattr("tempfile.tempdir", directory)
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        # A dead node refuses five checks in a row; one that is slow, since both cores are busy, does not.
        health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_timeout_ms": 60_000}
        arguments = {"num_cpus": 1, "include_dashboard": False, "_system_config": health}
        nodes = Cluster(initialize_head=True, head_node_args=arguments)
        for _ in range(2):
            nodes.add_node(num_cpus=1)
        nodes.wait_for_nodes()
        ray.init(address=nodes.address, log_to_driver=False)
        yield nodes
        ray.shutdown()
        nodes.shutdown()
        wait_until(lambda: not rlm_processes(directory), "the end of our processes")
        # Killed actors leave directories: the next program that starts removes them.
        PrivateDirectory().remove()
        assert host_directories(directory) == [], "a directory is left"
