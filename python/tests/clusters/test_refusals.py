"""Batches and sessions that cannot run: what is wrong is said, or that there is no room."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray

from clusters.models import holding, running, scripted
from clusters.readers import has_ended, read_in_thread
from conftest import wait_until
from rlm_env import Question, StartError
from rlm_env.ray import SessionActor, SessionPool, run_batch


@pytest.mark.nightly
def test_what_is_wrong_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartError, match=r"cannot run rollouts: .*max-turns"):
        list(run_batch("?", model=scripted, max_turns=-1))
    fifo, missing = tmp_path / "fifo", tmp_path / "missing"
    os.mkfifo(fifo)
    unread = "a context cannot be read: "
    no_file = f"{unread}.*/fifo is neither a file nor a directory"
    for wrong, error, words in (
        ({"max_turn": 1}, TypeError, "there is no setting max_turn:"),
        (
            {"questions": [Question("?", id="a"), Question("!", id="a")]},
            ValueError,
            "there are 2 questions with the id a",
        ),
        ({"context": missing}, StartError, unread),
        ({"questions": Question("?", context=missing), "context": tmp_path}, StartError, unread),
        ({"context": fifo}, StartError, no_file),
        ({"questions": Question("?", context=fifo)}, StartError, no_file),
        ({"tools": 5}, TypeError, "^tools must be a list of functions, not 5"),
        ({"driver_tools": 5}, TypeError, "driver_tools must be a list of functions, not 5"),
        ({"questions": None}, TypeError, "questions must be a str, a Question or several of them, not None"),
        ({"questions": ["a", ""]}, ValueError, "the question 2 cannot be sent: question must be a str that is not"),
        ({"questions": Question("?", id=5)}, ValueError, "the question 5 cannot be sent: id must be a str, not 5"),
        ({"context": "\udcff", "shared_storage": True}, ValueError, r"the path '.*\\udcff' of a context is not UTF-8"),
        ({"questions": Question("?", id="a b")}, ValueError, r"the id 'a b' of a question must be 1 to 112 of a-z"),
        (
            {"tools": [holding(threading.Lock())]},
            TypeError,
            r"the tool holds cannot be pickled \(cannot pickle '_thread.lock' object\): .* it as one of driver_tools",
        ),
        ({"model": holding(threading.Lock())}, TypeError, "model cannot be pickled .*must be made on the node"),
        ({"model": 5}, TypeError, "model must be a name or a function, not 5"),
        ({"context": 5}, TypeError, "a context must be a path or several of them, not 5"),
        ({"context": [None]}, TypeError, "a context must be a path or several of them"),
        ({"results": 5}, TypeError, "results must be a path, not 5"),
    ):
        with pytest.raises(error, match=words):
            run_batch(**{"questions": "?", "model": scripted, **wrong})
    monkeypatch.setattr("rlm_env.ray._driver._ROOM_LIMIT", 0.0)
    with pytest.raises(StartError, match=r"no node has room: 200 rollouts .* need 20 CPUs, the largest node has 1"):
        list(run_batch("?", model=scripted, concurrency_per_node=200))
    monkeypatch.setattr("rlm_env.ray._driver._ROOM_LIMIT", 60.0)
    (tmp_path / "only_here.py").write_text("def model(messages, tools, **sampling): return 'hi'")
    monkeypatch.syspath_prepend(tmp_path)
    only_here = importlib.import_module("only_here").model
    with pytest.raises(StartError, match=r"cannot load the model or the tools: .*No module named 'only_here'"):
        list(run_batch("?", model=only_here))
    not_there = "the session cannot be started on its node: ModuleNotFoundError: No module named 'only_here'"
    not_models = "the session cannot be started on its node: TypeError: models must be Models(…) or a function, not 'm'"

    async def start() -> None:
        for models, words in ((only_here, not_there), ("m", not_models)):
            with pytest.raises(StartError) as error:
                await SessionActor(models=models).start()
            assert str(error.value) == words
        async with SessionPool(models=only_here) as pool:
            with pytest.raises(StartError) as error:
                await pool.get("a")
            assert str(error.value) == not_there

    asyncio.run(start())
    file = tmp_path / "r.jsonl"
    assert len(list(run_batch("?", model=scripted, results=file))) == 1
    before = file.read_text()
    for question, resume, text, words in (
        ("?", False, before, "has results already"),
        ("another", True, before, "is of another question"),
        ("?", True, "not a result\n", "r.jsonl:1 is not a result"),
    ):
        file.write_text(text)
        with pytest.raises(StartError, match=words):
            list(run_batch(question, model=scripted, results=file, resume=resume))


@pytest.mark.nightly
def test_a_node_with_another_version_ends_the_batch_and_is_named(cluster: Any, tmp_path: Path) -> None:
    program = tmp_path / "rlm"
    program.write_text("#!/bin/sh\necho rlm 9.9.9\n")
    program.chmod(0o755)
    node = cluster.add_node(num_cpus=1, env_vars={"RLM_BIN_DIR": str(tmp_path)})
    try:
        cluster.wait_for_nodes()
        with pytest.raises(StartError, match=r"the node .* has version 9\.9\.9 of its command rlm, and the driver 0\."):
            # However long that node takes to start, the others are at work.
            list(run_batch("?", attempts=50, model=running("sleep 600")))
    finally:
        cluster.remove_node(node, allow_graceful=False)


@pytest.mark.nightly
def test_a_batch_that_waits_for_free_cpus_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, said = tmp_path / "gate", []

    @ray.remote(num_cpus=1)
    def wait() -> None:
        deadline = time.monotonic() + 20
        while not gate.exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def warn(words: str) -> None:
        said.append(words)
        gate.touch()

    taken = [wait.remote() for node in ray.nodes() if node["Alive"]]
    wait_until(lambda: ray.available_resources().get("CPU", 0) == 0, "tasks on all CPUs")
    monkeypatch.setattr("rlm_env.ray._driver._FREE_LIMIT", 0.0)
    monkeypatch.setattr("rlm_env.ray._driver._warn", warn)
    assert len(list(run_batch("?", model=scripted))) == 1
    [words] = said
    assert re.match(
        r"no node has begun after 0 s: Ray is still .*, or this batch waits for 0\.8 free CPUs .* and 2 others",
        words,
    )
    ray.get(taken)


def test_each_batch_warns_and_one_whose_nodes_are_too_small_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_env.ray._driver._ROOM_LIMIT", 1.0)
    for _ in range(2):
        with pytest.warns(UserWarning, match="no node has room: .* need 8 CPUs"), pytest.raises(StartError):
            list(run_batch("?", model=scripted, num_cpus=2, concurrency_per_node=4))


@pytest.mark.nightly
def test_a_batch_that_loses_all_nodes_with_room_says_so_and_ends(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rlm_env.ray._driver._ROOM_LIMIT", 3.0)
    large, started = cluster.add_node(num_cpus=3), tmp_path / "started"
    wait_until(lambda: ray.cluster_resources().get("CPU", 0) == 6, "the node")
    batch = run_batch("?", model=running(f": > {started}; sleep 1000"), num_cpus=3, concurrency_per_node=1)

    def read(batch: Any) -> list[BaseException]:
        with (
            pytest.warns(UserWarning, match="no node has room"),
            pytest.raises(StartError, match="no node has room") as end,
        ):
            list(batch)
        return [end.value]

    thread, found = read_in_thread(batch, read)
    wait_until(started.exists, "the rollout")
    cluster.remove_node(large, allow_graceful=False)
    assert has_ended(thread) and found
