"""The parts of each rollout: a model, and a directory of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import json_server

try:
    from verifiers.v1.mcp import launch
    from verifiers.v1.runtimes import subprocess as subprocess_runtime

    from harness.episodes import Model
except ModuleNotFoundError:
    collect_ignore_glob = ["test_*.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Ignores the warnings of verifiers and its libraries."""
    item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture
def model() -> Iterator[Model]:
    scripted = Model()
    with json_server(scripted.answer) as url:
        scripted.url = url + "/v1"
        yield scripted


@pytest.fixture(autouse=True)
def rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of the working directories of rollouts, which are gone at the end."""
    monkeypatch.setattr(subprocess_runtime, "CACHE_DIR", tmp_path / "cache")
    directory = tmp_path / "cache" / "runtimes" / "subprocess"
    yield directory
    assert not directory.exists() or list(directory.iterdir()) == []


@pytest.fixture
def toolsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets verifiers start the toolset, and removes the files that it leaves."""
    tests = str(Path(__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
    read_port = launch._read_back_port

    async def read(runtime: Any, path: str) -> int:
        try:
            return int(await read_port(runtime, path))
        finally:
            Path(path).unlink(missing_ok=True)

    monkeypatch.setattr(launch, "_read_back_port", read)
