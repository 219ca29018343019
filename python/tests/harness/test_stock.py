"""The harness that verifiers has for our program."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from verifiers.v1.harnesses.rlm.harness import RLMHarness, RLMHarnessConfig
from verifiers.v1.runtimes import subprocess as subprocess_runtime

from harness.episodes import SET, Lines, Model, agent, calls, check, edges, task
from harness.lending import LENDING, borrowing, check_lending
from rlm_env import find_program


class Stock(RLMHarness):  # type: ignore[misc]
    """Its harness on this machine."""

    NEEDS_CONTAINER = False


@pytest.fixture
def stock(
    model: Model, tmp_path: Path, nothing_is_left: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Runs a task with the harness of verifiers, which finds our programs."""
    # Tests in other processes have theirs.
    version = f"rlm-env-test-{os.getpid()}"
    directory = Path(f"/tmp/vf-rlm-{hashlib.sha256(version.encode()).hexdigest()}")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if shutil.which("uv") is None:
        pytest.skip("there is no uv, which the harness needs")
    monkeypatch.setattr(subprocess_runtime.SubprocessRuntime, "scripts_dir", str(tmp_path / "scripts"))
    (directory / "bin").mkdir(parents=True)
    try:
        for name in ("rlm", "rlm-worker-bash", "rlm-root-tool"):
            (directory / "bin" / name).symlink_to(find_program(name))
        (directory / ".ready").touch()

        def run(played: Lines, **fields: Any) -> Any:
            playing = agent(model)
            playing.harness = Stock(RLMHarnessConfig(id="rlm", version=version, **fields))
            trace = asyncio.run(playing.run(played))
            if trace.errors and "failed to prepare uv script" in trace.errors[-1].message:
                pytest.skip(f"uv cannot install the runner of verifiers: {trace.errors[-1].message}")
            return trace

        yield run
    finally:
        shutil.rmtree(directory)
        for lock in nothing_is_left.glob("uv-*.lock"):
            lock.unlink()


def test_the_harness_of_verifiers_finds_our_program(model: Model, stock: Callable[..., Any]) -> None:
    model.replies = calls("bash", *SET["bash"])
    check(stock(task(), max_total_turns=5))


def test_the_harness_of_verifiers_passes_the_tools_of_a_task(
    model: Model, stock: Callable[..., Any], toolsets: None
) -> None:
    model.replies = calls("bash", *LENDING["bash"])
    check_lending(model, stock(borrowing()))


def test_the_harness_of_verifiers_asks_for_compaction(model: Model, stock: Callable[..., Any]) -> None:
    first, last = calls("bash", "n=3", "RLM_CONTENT=$n RLM_READY=1")
    model.replies = [first, {"role": "assistant", "content": "n is 3"}, last]
    trace = stock(task(), compaction={"summarize_at_tokens": 1})
    assert (trace.errors, trace.root_reply, trace.metrics["root_llm_summary_count"]) == ([], "3", 1)
    assert edges(trace) == [(0, 1, "compaction_attempt"), (1, 2, "compaction")]
    assert [branch.trainable for branch in trace.branches] == [True, True]
    # A summary that is not usable truncates the trace.
    model.replies = calls("bash", "n=3", ":", ":")
    trace = stock(task(), compaction={"summarize_at_tokens": 1, "max_attempts": 1})
    assert (trace.errors, trace.stop_condition, trace.is_truncated) == ([], "compaction_failed", True)
