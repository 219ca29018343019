"""Results of a batch: one for each attempt, kept in a file as they come."""

from __future__ import annotations

import errno
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clusters.models import CONCURRENCY, ids_of, running, scripted, served, until_there
from clusters.processes import python
from clusters.readers import all_cpus_are_free
from conftest import until, wait_until
from rlm_env.ray import _batch, _driver, run_batch
from rlm_env.ray._results import Results
from test_ray_parts import a_result


@pytest.mark.parametrize("language", ["bash", "python"])
def test_every_attempt_has_one_result_and_no_node_runs_more_than_it_may(tmp_path: Path, language: Any) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    questions = [f"question {number}" for number in range(125)]
    batch = run_batch(
        questions,
        attempts=2,
        model=scripted,
        context=tmp_path,
        language=language,
        concurrency_per_node=CONCURRENCY,
        results=tmp_path.with_suffix(".jsonl"),
    )
    ids, nodes = [], set()
    for result in batch:
        assert (result.stop_reason, result.answer) == ("answered", "a sub-call: 2"), result
        ids.append(result.id)
        nodes.add(result.node)
        assert all(count <= CONCURRENCY for count in batch.progress.running.values())
    assert sorted(ids) == ids_of(2, questions=125)
    assert len(nodes) == 3
    assert (batch.progress.done, batch.progress.failed, batch.progress.waiting) == (250, 0, 0)
    assert batch.progress.spent.calls == 500
    lines = tmp_path.with_suffix(".jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == sorted(ids)


@pytest.mark.nightly
def test_one_that_takes_long_holds_none_back_that_a_node_has_in_advance(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        waits = until_there(gate) if messages[-1]["content"] == "long" else ":"
        return running(f"{waits}; RLM_CONTENT=ok RLM_READY=1")(messages, tools)

    ids = []
    for result in run_batch(["long", *map(str, range(20))], model=model, concurrency_per_node=1):
        ids.append(result.id)
        if len(ids) == 20:
            gate.touch()
    assert ids[-1] == "1-1"
    assert sorted(ids) == ids_of(1, questions=21)


def test_resume_goes_on_after_the_death_of_the_driver(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    program = (
        "import ray, sys; from clusters.models import scripted; from rlm_env.ray import run_batch\n"
        "ray.init(address=sys.argv[1], log_to_driver=False)\n"
        "for result in run_batch('?', attempts=40, model=scripted, results=sys.argv[2],\n"
        "                        concurrency_per_node=1, resume=True):\n"
        "    print(result.id, flush=True)\n"
    )
    command = [sys.executable, "-c", program, cluster.address, str(file)]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert driver.stdout is not None
    for _ in range(5):
        assert driver.stdout.readline()
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    before = len(file.read_bytes().splitlines())
    assert 5 <= before < 40
    ids = [result.id for result in run_batch("?", attempts=40, model=scripted, results=file, resume=True)]
    assert sorted(ids) == ids_of(40)
    lines = [json.loads(line)["id"] for line in file.read_text().splitlines()]
    assert len(lines) == len(set(lines)) == 40


def quick(body: Any) -> Any:
    """The answer of a model whose every rollout takes one request."""
    return running("RLM_READY=1 RLM_CONTENT=x")([], [])


@pytest.mark.nightly
def test_results_are_kept_also_while_the_program_does_not_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (_batch, _driver):
        monkeypatch.setattr(module, "MAX_UNREAD", 2)
    file = tmp_path / "results.jsonl"
    with served(quick) as (settings, asked):
        batch = run_batch("?", attempts=200, results=file, **settings)
        results = iter(batch)
        next(results)
        wait_until(lambda: not batch.progress.running, "the end of those that have begun")
        assert len(file.read_text().splitlines()) == len(asked) == batch.progress.done < 200
        assert batch.progress.done + batch.progress.waiting == 200
        assert len(list(results)) == 199 and len(asked) == 200


@pytest.mark.nightly
async def test_a_batch_whose_results_cannot_be_kept_begins_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, failed, append = [], [], Results.append

    def full(self: Results, document: Any) -> None:
        if len(kept) == 5 and not failed:
            failed.append(document)
            raise OSError(errno.ENOSPC, "No space left on device")
        kept.append(document["id"])
        append(self, document)

    monkeypatch.setattr(Results, "append", full)
    with served(quick) as (settings, asked):
        batch = run_batch("?", attempts=300, results=tmp_path / "results.jsonl", concurrency_per_node=2, **settings)
        results = aiter(batch)
        got = [(await anext(results)).id]
        time.sleep(1)  # as a program does that works on a result: others come meanwhile, from each node
        await until(all_cpus_are_free)  # the nodes' actors have ended, while nobody reads
        progress = batch.progress
        assert failed and progress.done == len(kept)
        assert progress.done + progress.waiting == 300, "an attempt is in no count"
        assert len(asked) < 60, "they went on"
        with pytest.raises(OSError, match="No space left"):
            async for result in results:
                got.append(result.id)
        assert got == kept, "what was kept has come before the error"


def test_a_program_ends_that_leaves_results_unread(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    numbers = range(1, 3 * _driver.MAX_UNREAD)
    file.write_text("".join(f"{a_result(f'1-{number}')}\n" for number in numbers))
    program = (
        "import sys, threading, time; from rlm_env.ray import run_batch\n"
        f"batch = run_batch('?', attempts={len(numbers) + 1}, model='m', results=sys.argv[1], resume=True)\n"
        "for result in batch:\n"
        "    while not any(one.name.startswith(('asyncio', 'rlm-tool')) for one in threading.enumerate()):\n"
        "        time.sleep(0.05)  # until the next one finds no room\n"
        "    raise SystemExit(result.id)\n"
    )
    left = python("-c", program, str(file))
    assert (left.returncode, left.stderr.strip()) == (1, "1-1")


@pytest.mark.nightly
def test_what_cannot_be_shown_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.EIO, "the terminal is gone")

    monkeypatch.setattr("sys.stderr", Gone())
    assert len(list(run_batch("?", attempts=2, model=scripted, progress=True))) == 2


@pytest.mark.nightly
def test_the_example_of_grpo_runs(cluster: Any) -> None:
    ran = python(str(Path(__file__).parents[3] / "examples/ray_grpo.py"), RAY_ADDRESS=cluster.address)
    assert ran.returncode == 0, ran.stderr
    groups = [line for line in ran.stdout.splitlines() if line.startswith("How many letters")]
    assert len(groups) == 4, ran.stdout
