"""Calls of actors, and their replies, that are lost on their way: Ray repeats them."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import ray

from clusters.models import CONCURRENCY, ids_of, running, served, settings_of
from clusters.processes import python
from conftest import until
from rlm_env import Budget
from rlm_env.ray import SessionActor, SessionPool, _hub, run_batch
from rlm_env.ray._functions import Functions
from test_ray_parts import a_request, a_settlement

SOME_ARE_LOST = {"num_failures": 8, "req_failure_prob": 5, "resp_failure_prob": 5}


def said_by_a_driver(
    cluster: Any, name: str, *arguments: str, where: str = "driver", failures: dict[str, int] = SOME_ARE_LOST
) -> Any:
    """Runs a function of this file in another program, and returns its value. Some calls of actors and some of their
    replies are lost, if they come from there or from its actors."""
    variables = {"RAY_testing_rpc_failure": json.dumps({"CoreWorkerService.grpc_client.PushTask": failures})}
    program = (
        "import json, ray, sys; import clusters.test_lost_calls as these\n"
        "ray.init(address=sys.argv[1], log_to_driver=False, runtime_env={'env_vars': json.loads(sys.argv[2])})\n"
        "print('said', json.dumps(these.value_of(getattr(these, sys.argv[3])(*sys.argv[4:]))))\n"
    )
    of_actors = json.dumps(variables if where == "actors" else {})
    given = (cluster.address, of_actors, name, *arguments)
    done = python("-c", program, *given, **(variables if where == "driver" else {}))
    assert done.returncode == 0, done.stderr
    # Ray's own words are there, too.
    [said] = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    return json.loads(said.removeprefix("said "))


def value_of(said: Any) -> Any:
    return asyncio.run(said) if asyncio.iscoroutine(said) else said


def batch_with_a_tool(base_url: str, calls: str) -> Any:
    called = []

    async def here(word: str) -> str:
        """Runs with the driver."""
        called.append(word)
        return word

    batch = run_batch(
        "?",
        attempts=40,
        **settings_of(base_url),
        concurrency_per_node=CONCURRENCY,
        driver_tools=[here],
        budget=Budget(calls=int(calls)) if calls else None,
        max_losses=20,
    )
    ends = [(result.id, result.stop_reason, result.answer) for result in batch]
    return ends, called, batch.progress.spent.calls, batch.progress.losses


@pytest.mark.nightly
@pytest.mark.parametrize(("where", "calls"), [("driver", "1000"), ("driver", ""), ("actors", "1000"), ("actors", "")])
def test_a_batch_outlives_moments_without_its_actors(cluster: Any, where: str, calls: str) -> None:
    def answer(body: Any) -> Any:
        code = 'word=$RANDOM$RANDOM$RANDOM; [ $(here $word) = $word ] && RLM_CONTENT="$(llm_batch a)" RLM_READY=1'
        return running(code)([], []) if body.get("tools") else "a sub-call"

    with served(answer) as (settings, asked):
        url = settings["base_url"]
        ends, called, spent, losses = said_by_a_driver(cluster, "batch_with_a_tool", url, calls, where=where)
    assert sorted(ends) == [[id, "answered", "a sub-call"] for id in ids_of(40)]
    assert len(called) == len(set(called)), "a call came twice"
    if where == "actors":
        assert losses == 0
    # A node is lost with an exchange, and with the requests that are under way there.
    assert abs(spent - len(asked)) <= losses * CONCURRENCY
    assert len(called) <= 40 + losses * CONCURRENCY


def spent_by_a_rollout(base_url: str) -> Any:
    batch = run_batch("?", **settings_of(base_url))
    [result] = batch
    return result.stop_reason, batch.progress.spent.calls


@pytest.mark.nightly
def test_the_ledger_is_whole_where_what_a_node_tells_is_under_way_at_the_end(cluster: Any) -> None:
    def answer(body: Any) -> Any:
        # The rollout ends after its node has reported this request, and before Ray repeats that report, which was lost.
        return running("sleep 0.35; RLM_READY=1 RLM_CONTENT=x")([], [])

    first_is_lost = {"num_failures": 1, "req_failure_prob": 100, "resp_failure_prob": 0}
    with served(answer) as (settings, asked):
        url = settings["base_url"]
        said = said_by_a_driver(cluster, "spent_by_a_rollout", url, where="actors", failures=first_is_lost)
    assert said == ["answered", len(asked)] == ["answered", 1]


async def session_that_is_interrupted(directory: str, by: str) -> Any:
    outcomes = []
    async with SessionActor() as session:
        is_own = by == "its owner"
        handles = [session] if is_own else [pickle.loads(pickle.dumps(session)) for _ in range(5)]
        for number in range(6 if is_own else 4):
            begun = Path(directory, str(number))
            call = asyncio.ensure_future(session.execute(f": > {begun}; sleep 1000", timeout=20))
            await until(begun.exists)
            for handle in handles:
                handle.interrupt()
            outcomes.append((await call).outcome)
            # The next call runs when Ray repeats a call whose reply was lost.
            outcomes.append((await session.execute("true" if is_own else "sleep 2.5")).outcome)
    return outcomes


async def session_that_is_interrupted_while_idle() -> Any:
    outcomes = []
    async with SessionActor() as session:
        for _ in range(3):
            for _ in range(6):
                session.interrupt()
            outcomes.append((await session.execute("sleep 1.5")).outcome)
    return outcomes


def test_an_interrupt_without_a_call_is_for_no_later_call(cluster: Any) -> None:
    often = {"num_failures": 1000, "req_failure_prob": 40, "resp_failure_prob": 0}
    assert said_by_a_driver(cluster, "session_that_is_interrupted_while_idle", failures=often) == ["ok"] * 3


@pytest.mark.nightly
@pytest.mark.parametrize(("by", "lost"), [("its owner", "req_failure_prob"), ("others", "resp_failure_prob")])
def test_an_interrupt_outlives_a_moment_without_the_actor(cluster: Any, tmp_path: Path, by: str, lost: str) -> None:
    often = {"num_failures": 1000, "req_failure_prob": 0, "resp_failure_prob": 0, lost: 40}
    said = said_by_a_driver(cluster, "session_that_is_interrupted", str(tmp_path), by, failures=often)
    assert set(said[::2]) == {"interrupted"} and set(said[1::2]) == {"ok"}


async def session_with_a_state() -> Any:
    async with SessionActor() as session:
        return [(await session.execute("x=$((x + 1)); echo $x")).stdout for _ in range(150)]


@pytest.mark.nightly
def test_a_session_outlives_moments_without_its_actor(cluster: Any) -> None:
    counted = said_by_a_driver(cluster, "session_with_a_state")
    assert counted == [f"{number}\n" for number in range(1, 151)]


async def pool_in_use() -> Any:
    async with SessionPool(idle_timeout=1.0, num_cpus=0.01) as pool:

        async def count(key: str) -> str:
            session = await pool.get(key)
            for _ in range(4):
                await session.execute("x=$((x + 1)); sleep 2")
            return (await session.execute("echo $x")).stdout

        return await asyncio.gather(*map(count, "abc"))


@pytest.mark.nightly
def test_a_pool_closes_no_session_in_use_that_is_out_of_reach(cluster: Any) -> None:
    assert said_by_a_driver(cluster, "pool_in_use") == ["4\n"] * 3


async def test_whatever_waits_at_the_hub_what_ends_its_wait_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    # One call for the driver, one for the actor of the node, and one for the rest.
    monkeypatch.setattr(_hub, "_Actor", ray.remote(num_cpus=0, max_concurrency=3)(_hub._Hub))
    most, called, numbers = 8, [], itertools.count()

    def unsent(key: str) -> _hub.News:
        return _hub.News([a_settlement(key, calls=0)], number=next(numbers))

    hub = await _hub.start_hub(Budget(calls=1))
    client, all_called = _hub.HubClient(hub, "node"), asyncio.Event()

    async def here(number: int) -> int:
        """Returns when all have called it, and the last one is cancelled."""
        called.append(number)
        if len(called) == most:
            last.cancel()
        if number == most - 1:
            await asyncio.Event().wait()
        await all_called.wait()
        return number

    async def reserve(key: str) -> None:
        assert await client.reserve(a_request(key), _hub.News(number=next(numbers))) == 5
        await client.tell(unsent(key))

    functions = Functions([here], hub)
    assert await client.reserve(a_request("held"), _hub.News(number=next(numbers))) == 5
    reserving = [asyncio.create_task(reserve(str(number))) for number in range(most)]
    calls = [asyncio.create_task(client.call("here", (number,), {})) for number in range(most)]
    last = calls.pop()
    with pytest.raises(asyncio.CancelledError):
        await last
    all_called.set()
    assert [pickle.loads(await call) for call in calls] == [(True, number) for number in range(most - 1)]
    assert (await hub.spent.remote()).calls == 0
    await client.tell(unsent("held"))
    await asyncio.gather(*reserving)
    await functions.close()
    client.close()
    ray.kill(hub)
