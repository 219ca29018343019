"""Nodes that die or are taken for dead: their attempts are begun again."""

from __future__ import annotations

import collections
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, RayTaskError

from clusters.models import CONCURRENCY, ids_of, running, scripted, served, until_there
from clusters.readers import read_in_thread
from conftest import until, wait_until
from rlm_env import Budget, Question
from rlm_env.ray import _driver, _hub, run_batch
from rlm_env.ray._context import Packer
from rlm_env.ray._node import Given, Job, Node


def test_an_attempt_that_is_lost_with_its_node_is_begun_again(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    started, gate = tmp_path / "started", tmp_path / "gate"
    started.mkdir()
    code = f"rlm_query leaf; : > $(mktemp -p {started}); {until_there(gate)}; RLM_READY=1"
    leaf = running("RLM_CONTENT=leaf RLM_READY=1")

    def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        return (leaf if messages[-1]["content"] == "leaf" else running(code))(messages, tools)

    batch = run_batch("?", attempts=8, model=model, concurrency_per_node=CONCURRENCY)
    thread, found = read_in_thread(batch)
    wait_until(lambda: len(list(started.iterdir())) == 8, "all of them, two on each node")
    wait_until(lambda: batch.progress.spent.calls == 16, "what they and their children have spent")
    cluster.remove_node(node, allow_graceful=False)
    wait_until(lambda: batch.progress.losses > 0, "the loss")
    gate.touch()
    thread.join()
    assert sorted(result.id for result in found) == ids_of(8)
    assert {result.stop_reason for result in found} == {"answered"}
    lost = [result for result in found if result.metrics.get("losses")]
    assert len(lost) == batch.progress.losses > 0
    assert all(result.metrics["lost_calls"] == 2 for result in lost), "with those of the child"


@pytest.mark.nightly
def test_what_a_dying_node_had_not_got_is_not_lost(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, gate = tmp_path / "started", tmp_path / "gate"
    code = f": > {started}; {until_there(gate)}; RLM_READY=1"
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    pack = Packer.pack

    async def slow(packer: Packer, paths: list[str]) -> Any:
        await until(gate.exists)
        return await pack(packer, paths)

    monkeypatch.setattr(Packer, "pack", slow)
    files = tmp_path / "files"
    files.mkdir()
    questions = [Question("?", id="packed", context=files), Question("?", id="sent")]
    # No other node has room.
    batch = run_batch(questions, model=running(code), concurrency_per_node=2, num_cpus=1.0)
    thread, found = read_in_thread(batch)
    wait_until(started.exists, "the attempt that needs no context")
    cluster.remove_node(node, allow_graceful=False)
    wait_until(lambda: batch.progress.losses > 0, "the loss")
    again = cluster.add_node(num_cpus=2)
    gate.touch()
    thread.join()
    cluster.remove_node(again)
    assert batch.progress.losses == 1
    assert {result.id: result.metrics.get("losses", 0) for result in found} == {"packed-1": 0, "sent-1": 1}


@pytest.mark.nightly
def test_an_attempt_that_kills_its_node_takes_no_others_along(tmp_path: Path) -> None:
    files = tmp_path / "files"
    (files / "closed").mkdir(parents=True)
    (files / "closed" / "one").write_text("1")
    os.link(files / "closed" / "one", files / "two")
    (files / "closed").chmod(0o555)

    def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        if messages[1]["content"] == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        return running('RLM_CONTENT="$(cat closed/one two)" RLM_READY=1')(messages, tools)

    questions = [Question("poison" if number == 2 else "?", id=str(number)) for number in range(8)]
    batch = run_batch(questions, model=model, context=files, concurrency_per_node=CONCURRENCY, max_losses=3)
    ends = {result.id: (result.stop_reason, result.answer) for result in batch}
    assert ends.pop("2-1") == ("worker_failed", None)
    assert set(ends.values()) == {("answered", "11")} and len(ends) == 7


@pytest.mark.nightly
@pytest.mark.parametrize("budget", [Budget(calls=1000), None])
async def test_a_node_that_is_lost_and_lives_ends_what_it_runs(budget: Budget | None) -> None:
    gate = threading.Event()

    def answer(body: Any) -> Any:
        if len(asked) > 1:
            gate.wait(60)
        return running("echo again")(body["messages"], body["tools"])

    with served(answer) as (settings, asked):
        hub = await _hub.start_hub(budget)
        model = settings.pop("model")
        settings["max_turns"] = 100_000
        arguments = ["--jobs=1", "--context="]
        job = Job(arguments, model, None, [], [], settings, has_budget=budget is not None, concurrency=1)
        node = Node.remote(job, "node")
        await node.start.remote(hub)
        result = node.exchange.remote([Given("1-1", Question("?", id="1").document(), 1, None)])
        await until(lambda: len(asked) >= 2)
        await hub.lose.remote("node", ["1-1"])
        gate.set()
        with pytest.raises(RayTaskError, match="rlm run ended with"):
            await result
        at_the_end = len(asked)
        await node.close.remote()
        assert at_the_end == len(asked), "it still asks the model"
        if budget is not None:
            assert (await hub.spent.remote()).calls == at_the_end
        ray.kill(node)
        ray.kill(hub)


@pytest.mark.nightly
async def test_what_a_lost_node_that_lives_has_begun_counts_as_lost_and_it_begins_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drivers: list[_driver.Driver] = []
    begun: collections.Counter[str] = collections.Counter()

    class Forgetful(_driver.Driver):
        """Cannot kill actors, as those of nodes that are cut off."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            drivers.append(self)

        def _forget(self, place: _driver.Place) -> None:
            if self._state.places.get(place.node) is place:
                del self._state.places[place.node]
                place.is_ready = False

    def answer(body: Any) -> Any:
        if body.get("tools"):
            begun[body["messages"][-1]["content"]] += 1
        return scripted(body["messages"], body.get("tools", []))

    monkeypatch.setattr("rlm_env.ray._batch.Driver", Forgetful)
    with served(answer) as (settings, asked):
        settings["concurrency_per_node"] = CONCURRENCY
        questions = [Question(f"question {number}", id=str(number)) for number in range(60)]
        results = []
        cut_off: _driver.Place | None = None
        async for result in run_batch(questions, budget=Budget(calls=1000), **settings):
            results.append(result)
            [driver] = drivers
            if cut_off is None:
                full = [place for place in driver._state.places.values() if len(place.given) > CONCURRENCY]
                if full and len(results) > 3:
                    [cut_off, *_] = full
                    await driver._lose_all(cut_off, ActorDiedError())
            elif len(results) == len(questions):
                with pytest.raises(RayTaskError, match="rlm run ended with"):
                    while True:  # Results from before the loss come first.
                        await cut_off.actor.exchange.remote([])
                await cut_off.actor.close.remote()
                # A request that was on its way to the server counts as sent.
                unseen = (await driver._hub.spent.remote()).calls - len(asked)
                assert 0 <= unseen <= CONCURRENCY
                ray.kill(cut_off.actor)
        assert cut_off is not None
        assert sorted(result.question for result in results) == sorted(question.question for question in questions)
        for result in results:
            losses = result.metrics.get("losses", 0)
            assert begun[result.question] <= 1 + losses, "an attempt runs twice"
            assert result.metrics.get("lost_calls", 0) <= 2 * losses
