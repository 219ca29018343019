"""Budgets: they hold, and are counted once."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from clusters.models import CONCURRENCY, ids_of, running, scripted, served, until_there
from clusters.processes import host_directories, hub, rlm_processes
from conftest import wait_until
from rlm_env import Budget, EndedError
from rlm_env.ray import run_batch


def test_a_budget_holds_and_nothing_is_left_where_a_node_is_killed_at_work(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()

    def answer(body: Any) -> Any:
        time.sleep(0.02)
        return scripted(body["messages"], body.get("tools", []))

    ids = []
    with served(answer) as (settings, asked):
        more: Any = {"concurrency_per_node": CONCURRENCY, "budget": Budget(calls=400), **settings}
        batch = run_batch("?", attempts=120, **more)
        for result in batch:
            ids.append(result.id)
            if len(ids) == 20:
                cluster.remove_node(node, allow_graceful=False)
            assert result.answer == "a sub-call: 0", result
    assert sorted(ids) == ids_of(120)
    # Each lost rollout may have had one request under way, which counts as sent.
    in_flight = batch.progress.losses
    assert abs(batch.progress.spent.calls - len(asked)) <= in_flight, (batch.progress, len(asked))
    assert len(asked) >= 240
    directory = tempfile.gettempdir()
    wait_until(lambda: not rlm_processes(directory), "the end of our processes")
    assert host_directories(directory) == []


@pytest.mark.nightly
def test_a_batch_whose_ledger_dies_ends_and_is_resumed(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    found = []
    with pytest.raises(EndedError, match=r"the batch has lost its ledger: with results=, go on from them with resume="):
        for result in run_batch("?", attempts=40, model=scripted, results=file, budget=Budget(calls=1000)):
            found.append(result.id)
            if len(found) == 3:
                os.kill(hub(), signal.SIGKILL)
    again = [result.id for result in run_batch("?", attempts=40, model=scripted, results=file, resume=True)]
    assert sorted(again) == ids_of(40)


def test_a_budget_is_for_all_rollouts_together() -> None:
    batch = run_batch("?", attempts=30, model=scripted, budget=Budget(calls=20), concurrency_per_node=CONCURRENCY)
    results = []
    with pytest.raises(EndedError, match="attempts were not run: the budget of all rollouts together is exhausted"):
        for result in batch:
            results.append(result)
    assert batch.progress.spent.calls <= 20
    assert sum(result.stop_reason == "answered" for result in results) >= 5


@pytest.mark.nightly
def test_an_exhausted_budget_is_no_loss_of_a_node(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    code = 'RLM_CONTENT="$(llm_batch a; llm_batch b; llm_batch c; llm_batch d)" RLM_READY=1'

    def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        return running(code)(messages, tools) if tools else "a sub-call"

    settings: Any = {"attempts": 60, "model": model, "concurrency_per_node": 6, "max_losses": 0, "results": file}
    batch = run_batch("?", budget=Budget(calls=63), **settings)
    before = []
    with pytest.raises(EndedError, match=r"^\d+ attempts were not run: the budget of all rollouts together is exhaust"):
        for result in batch:
            before.append(result.id)
            assert result.stop_reason in ("answered", "budget_exhausted"), result
            assert result.metrics["root_llm_turns"] > 0, result
    assert (batch.progress.losses, batch.progress.waiting) == (0, 60 - len(before))
    assert batch.progress.spent.calls <= 63
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == before
    again = list(run_batch("?", budget=Budget(calls=1000), resume=True, **settings))
    assert sorted(result.id for result in again) == ids_of(60)
    assert {result.stop_reason for result in again if result.id not in before} == {"answered"}


@pytest.mark.nightly
def test_what_a_node_had_reserved_is_free_when_it_dies_without_attempts(tmp_path: Path) -> None:
    begun, pids = tmp_path / "begun", tmp_path / "pids"
    begun.mkdir()
    code = f": > $(mktemp -p {begun}); {until_there(tmp_path / 'gate')}; echo"

    def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        if messages[-1]["content"] == "quick":
            wait_until(lambda: len(list(begun.iterdir())) == 2, "the others")
            pids.write_text(str(os.getpid()))
        elif messages[-1]["role"] != "tool":
            return running(code)(messages, tools)
        return running("RLM_CONTENT=ok RLM_READY=1")(messages, tools)

    # An attempt that has no room for its second request ends if nothing stays reserved for the lost ones.
    batch = run_batch(["quick", "slow", "slow"], model=model, concurrency_per_node=1, budget=Budget(calls=4))
    reasons = []
    for result in batch:
        reasons.append((result.id, result.stop_reason))
        if result.id == "1-1":
            os.kill(int(pids.read_text()), signal.SIGKILL)
            (tmp_path / "gate").touch()
    assert sorted(reason for _, reason in reasons) == ["answered", "answered", "budget_exhausted"]
    assert (batch.progress.losses, batch.progress.spent.calls) == (0, 4)
