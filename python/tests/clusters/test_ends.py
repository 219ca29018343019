"""Batches that are closed, left or broken off: nothing of them goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from clusters.models import running, scripted
from clusters.processes import hub
from clusters.readers import all_cpus_are_free, has_ended, read_in_thread
from conftest import PATIENCE, until, wait_until
from rlm_env.ray import _driver, run_batch
from rlm_env.ray._functions import Functions


async def as_list(batch: Any) -> list[Any]:
    return [result async for result in batch]


READERS = [list, lambda batch: asyncio.run(as_list(batch))]


@pytest.mark.nightly
def test_a_loop_that_is_left_ends_the_rollouts() -> None:
    with run_batch("?", attempts=20, model=scripted, concurrency_per_node=1) as batch:
        results = iter(batch)
        next(results)
        with pytest.raises(RuntimeError, match="come once"):
            list(batch)
        with pytest.raises(RuntimeError, match="come once"):
            aiter(batch)
    assert not [thread for thread in threading.enumerate() if thread.name == "rlm-batch"], "the first loop goes on"
    assert list(results) == []


def test_what_ends_the_event_loop_ends_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave(*_: Any) -> None:
        raise SystemExit("no")

    monkeypatch.setattr(Functions, "_call", leave)

    def here() -> None:
        """Runs with the driver."""

    with pytest.raises(SystemExit, match="no"):
        list(run_batch("?", model=running("here"), driver_tools=[here]))


@pytest.mark.nightly
def test_a_batch_is_closed_also_where_its_event_loop_is_ended_again_and_again(tmp_path: Path) -> None:
    async def leave(after: float) -> None:
        await asyncio.sleep(after)
        raise SystemExit("no")

    async def here() -> None:
        """Starts what ends the loop, at once and while the batch is being closed."""
        await asyncio.gather(*(leave(number / 50) for number in range(20)))

    settings: dict[str, Any] = {"driver_tools": [here], "results": tmp_path / "results.jsonl"}
    with pytest.raises(SystemExit, match="no"):
        list(run_batch("?", model=running("here"), **settings))
    again = run_batch("?", model=running("RLM_CONTENT=x RLM_READY=1"), resume=True, **settings)
    assert [result.answer for result in again] == ["x"]


@pytest.mark.nightly
def test_an_event_loop_that_ends_while_a_batch_is_closed_leaves_no_actor() -> None:
    async def use() -> None:
        batch = run_batch("?", attempts=50, model=scripted, concurrency_per_node=1)
        results = aiter(batch)
        await anext(results)
        batch.close()
        await asyncio.sleep(0)  # the end has begun, and `asyncio.run` cancels it

    asyncio.run(asyncio.wait_for(use(), PATIENCE))
    wait_until(all_cpus_are_free, "the ends of its actors")


@pytest.mark.nightly
@pytest.mark.parametrize("read", READERS)
def test_a_loop_in_another_thread_is_ended(tmp_path: Path, read: Any) -> None:
    started = tmp_path / "started"
    batch = run_batch("?", model=running(f": > {started}; sleep 1000"))
    thread, found = read_in_thread(batch, read)
    wait_until(started.exists, "the rollout")
    for _ in range(3):
        batch.close()
    assert has_ended(thread) and found == []
    wait_until(all_cpus_are_free, "the CPUs of its actors")


@pytest.mark.nightly
async def test_a_loop_in_another_task_is_ended_also_while_it_does_something_else() -> None:
    with run_batch("?", attempts=50, model=scripted) as batch:
        results = aiter(batch)
        await anext(results)
    await until(lambda: not batch.progress.running)
    assert [result async for result in results] == []
    assert batch.progress.waiting > 0


@pytest.mark.parametrize("read", READERS)
def test_a_batch_that_is_closed_before_its_loop_runs_nothing(read: Any) -> None:
    batch = run_batch("?", model=scripted)
    batch.close()
    assert read(batch) == []
    assert (batch.progress.done, batch.progress.waiting) == (0, 1)


@pytest.mark.nightly
def test_a_batch_ends_whose_hub_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_driver, "_CLOSE_LIMIT", 1.0)
    started = tmp_path / "started"
    with run_batch("?", model=running(f": > {started}; sleep 1000")) as batch:
        thread, _ = read_in_thread(batch)
        wait_until(started.exists, "the rollout")
        os.kill(hub(), signal.SIGSTOP)
    assert has_ended(thread)
