"""Batches on a real Ray cluster: a head and two more nodes on this machine."""

from __future__ import annotations

import asyncio
import collections
import errno
import functools
import importlib
import io
import itertools
import json
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from conftest import PATIENCE, json_server, until, wait_until
from rlm_env import Budget, EndedError, Question, SessionConfig, StartError, UsageError, tool
from rlm_env._files import PrivateDirectory

try:
    import ray
    from ray.cluster_utils import Cluster
    from ray.exceptions import ActorDiedError, RayTaskError
except ImportError as error:  # pragma: no cover
    pytest.skip(f"Ray is not here ({error})", allow_module_level=True)

from rlm_env.ray import (
    Rollouts,
    SessionActor,
    SessionPool,
    _batch,
    _driver,
    _functions,
    _hub,
    _pool,
    _session,
    run_batch,
)
from rlm_env.ray._context import Packer
from rlm_env.ray._functions import Functions
from rlm_env.ray._node import Given, Job, Node
from rlm_env.ray._results import Results
from test_ray_parts import a_request, a_result, a_settlement

pytestmark = pytest.mark.filterwarnings("ignore")

CONCURRENCY = 2


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Replaces the fixture of other tests: Ray keeps processes and descriptors; `cluster` checks what is ours."""


@pytest.fixture(scope="module")
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


async def give_up(work: Any) -> None:
    """Begins something, and cancels it."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def all_cpus_are_free() -> bool:
    return bool(ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"])


def read_in_thread(batch: Any, read: Any = list) -> tuple[threading.Thread, list[Any]]:
    """Begins to read a batch in another thread. The thread, and the results that it has at its end."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(read(batch)), daemon=True)
    thread.start()
    return thread, found


def has_ended(thread: threading.Thread) -> bool:
    thread.join(60)
    return not thread.is_alive()


def close_while_read(batch: Any, condition: Any, what: str) -> None:
    """Reads a batch in another thread, closes it when the condition holds, and waits for the end of that thread."""
    thread, _ = read_in_thread(batch)
    wait_until(condition, what)
    batch.close()
    assert has_ended(thread)


def rlm_processes(directory: str) -> list[str]:
    """Our programs that have this directory for temporary files."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = Path("/proc", pid, "comm").read_text().strip()
            variables = Path("/proc", pid, "environ").read_bytes()
        except OSError:
            continue
        if name.startswith("rlm") and directory.encode() in variables:
            found.append(f"{pid} {name}")
    return found


def host_directories(directory: str) -> list[Path]:
    """Directories of ours for rollouts and sessions that are there."""
    return [path for path in Path(directory).iterdir() if path.name.startswith("rlm-host-")]


def hub() -> int:
    """The process of the hub."""

    def command_of(pid: str) -> str:
        with suppress(OSError):
            return Path("/proc", pid, "cmdline").read_text()
        return ""

    [pid] = [pid for pid in os.listdir("/proc") if command_of(pid).startswith("ray::_Hub")]
    return int(pid)


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs another program in Python, to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def scripted(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
    """A model that answers with a sub-call. It runs beside the sessions."""
    if not tools:
        return "a sub-call"
    name = tools[0]["function"]["name"]
    code = 'RLM_CONTENT="$(llm_batch hello): $(ls | wc -l)" RLM_READY=1'
    if "python" in name:
        code = (
            "import os\nanswer['content'] = f\"{llm_batch(['hello'])[0]}: {len(os.listdir())}\"; answer['ready'] = True"
        )
    function = {"name": name, "arguments": json.dumps({"code": code})}
    return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


class WithSmallFiles:
    """The model `scripted` for nodes that cannot write files of more than 1 MiB."""

    def __reduce__(self) -> Any:
        return scripted_with_small_files, ()

    __call__ = staticmethod(scripted)


def scripted_with_small_files() -> Any:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    return scripted


def settings_of(url: str) -> dict[str, Any]:
    """The settings of a model on this server."""
    return {"model": "m", "base_url": f"{url}/v1", "stream": False}


@contextmanager
def served(reply: Any) -> Iterator[dict[str, Any]]:
    """The settings of a model whose server answers so."""
    with json_server(reply) as url:
        yield settings_of(url)


def completion(message: Any) -> tuple[int, Any]:
    """The answer of a model's server that says this."""
    message = {"role": "assistant", **(message if isinstance(message, dict) else {"content": message})}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


def answering(asked: list[Any]) -> Any:
    """A model's server whose every rollout takes one request, which is appended to `asked`."""

    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        asked.append(path)
        return completion(running("RLM_READY=1 RLM_CONTENT=x")([], []))

    return reply


def here() -> str:
    """Runs with the driver."""
    return "here"


def holding(value: Any) -> Any:
    """A function that has this value."""

    def holds(*_: Any, **__: Any) -> str:
        return str(value)

    return holds


class Leaving:
    """Ends the program that pickles it."""

    def __reduce__(self) -> Any:
        raise SystemExit("no")


def running(code: str) -> Any:
    """A model that runs this code, and nothing else."""

    def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        function = {"name": "call_bash_repl", "arguments": json.dumps({"code": code})}
        return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}

    return model


@pytest.mark.parametrize("language", ["bash", "python"])
def test_every_attempt_has_one_result_and_no_node_runs_more_than_it_may(
    cluster: Any, tmp_path: Path, language: Any
) -> None:
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
    assert sorted(ids) == sorted(f"{question}-{attempt}" for question in range(1, 126) for attempt in range(1, 3))
    assert len(nodes) == 3
    assert (batch.progress.done, batch.progress.failed, batch.progress.waiting) == (250, 0, 0)
    assert batch.progress.spent.calls == 500
    lines = tmp_path.with_suffix(".jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == sorted(ids)


def test_tools_run_beside_the_session_or_with_the_driver(cluster: Any) -> None:
    calls = []

    def here(word: str) -> str:
        """Runs with the driver."""
        calls.append(word)
        return f"{word} of {os.getpid()}"

    @tool(timeout=1)
    def hangs() -> None:
        """Never returns in time."""
        time.sleep(5)

    def fails() -> None:
        """Raises."""
        raise ValueError("no")

    held = threading.Lock()

    def lock(value: Any = held, kept: Any = collections.defaultdict(lambda: held)) -> Any:
        """Returns what no other process can have."""
        return value

    async def later(word: str) -> str:
        """Runs on the driver's event loop."""
        return f"later {word}"

    @functools.wraps(later)
    def wrapped(word: str) -> Any:
        return later(word)

    def leaves() -> Any:
        """Returns what ends the program that pickles it."""
        return Leaving()

    def beside() -> str:
        """Runs beside the session."""
        return "elsewhere" if os.getppid() != driver else "here"

    driver = os.getpid()
    code = (
        'RLM_CONTENT="$(here x), $(beside), $(later y), $(here 2>&1), $(fails 2>&1), $(hangs 2>&1), $(leaves 2>&1), '
        '$(lock 2>&1)"; RLM_READY=1'
    )
    with_driver = [here, wrapped, hangs, fails, leaves, lock]
    [result] = run_batch("?", model=running(code), tools=[beside], driver_tools=with_driver)
    limit = "Error: TimeoutError: the tool hangs took longer than its limit of 1 s"
    left = "Error: SystemExit: the tool leaves returned a value that cannot be pickled: no"
    failed = f"Error: ValueError: no, {limit}, {left}, Error: TypeError: the tool lock returned a"
    usage = "Error: TypeError: here(): missing a required argument: 'word'; it is here(word: 'str') -> 'str'"
    start = f"x of {os.getpid()}, elsewhere, later y, {usage}, {failed}"
    assert result.answer is not None
    assert result.answer.startswith(f"{start} value that cannot be pickled: "), result.answer
    assert calls == ["x"]


def test_an_attempt_that_is_lost_with_its_node_is_begun_again(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    started, gate = tmp_path / "started", tmp_path / "gate"
    started.mkdir()
    code = f"rlm_query leaf; : > $(mktemp -p {started}); until [ -e {gate} ]; do sleep 0.05; done; RLM_READY=1"
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
    assert sorted(result.id for result in found) == [f"1-{number}" for number in range(1, 9)]
    assert {result.stop_reason for result in found} == {"answered"}
    lost = [result for result in found if result.metrics.get("losses")]
    assert len(lost) == batch.progress.losses > 0
    assert all(result.metrics["lost_calls"] == 2 for result in lost), "with those of the child"


@pytest.mark.nightly
def test_what_a_dying_node_had_not_got_is_not_lost(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, gate = tmp_path / "started", tmp_path / "gate"
    code = f": > {started}; until [ -e {gate} ]; do sleep 0.05; done; RLM_READY=1"
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
def test_an_attempt_that_kills_its_node_takes_no_others_along(cluster: Any, tmp_path: Path) -> None:
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


def test_a_budget_holds_and_nothing_is_left_where_a_node_is_killed_at_work(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    asked = []

    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        asked.append(path)
        time.sleep(0.02)
        return completion(scripted(body["messages"], body.get("tools", [])))

    ids = []
    with served(reply) as settings:
        more: Any = {"concurrency_per_node": CONCURRENCY, "budget": Budget(calls=400), **settings}
        batch = run_batch("?", attempts=120, **more)
        for result in batch:
            ids.append(result.id)
            if len(ids) == 20:
                cluster.remove_node(node, allow_graceful=False)
            assert result.answer == "a sub-call: 0", result
    assert sorted(ids) == sorted(f"1-{number}" for number in range(1, 121))
    # Each lost rollout may have had one request under way, which counts as sent.
    in_flight = batch.progress.losses
    assert abs(batch.progress.spent.calls - len(asked)) <= in_flight, (batch.progress, len(asked))
    assert len(asked) >= 240
    directory = tempfile.gettempdir()
    wait_until(lambda: not rlm_processes(directory), "the end of our processes")
    assert host_directories(directory) == []


@pytest.mark.nightly
def test_a_batch_whose_ledger_dies_ends_and_is_resumed(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    found = []
    with pytest.raises(EndedError, match=r"the batch has lost its ledger: with results=, go on from them with resume="):
        for result in run_batch("?", attempts=40, model=scripted, results=file, budget=Budget(calls=1000)):
            found.append(result.id)
            if len(found) == 3:
                os.kill(hub(), signal.SIGKILL)
    again = [result.id for result in run_batch("?", attempts=40, model=scripted, results=file, resume=True)]
    assert sorted(again) == sorted(f"1-{number}" for number in range(1, 41))


def test_a_budget_is_for_all_rollouts_together(cluster: Any) -> None:
    batch = run_batch("?", attempts=30, model=scripted, budget=Budget(calls=20), concurrency_per_node=CONCURRENCY)
    results = []
    with pytest.raises(EndedError, match="attempts were not run: the budget of all rollouts together is exhausted"):
        for result in batch:
            results.append(result)
    assert batch.progress.spent.calls <= 20
    assert sum(result.stop_reason == "answered" for result in results) >= 5


@pytest.mark.nightly
def test_an_exhausted_budget_is_no_loss_of_a_node(cluster: Any, tmp_path: Path) -> None:
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
    assert sorted(result.id for result in again) == sorted(f"1-{number}" for number in range(1, 61))
    assert {result.stop_reason for result in again if result.id not in before} == {"answered"}


SOME_ARE_LOST = {"num_failures": 8, "req_failure_prob": 5, "resp_failure_prob": 5}


def said_by_a_driver(
    cluster: Any, name: str, *arguments: str, where: str = "driver", failures: dict[str, int] = SOME_ARE_LOST
) -> Any:
    """Runs a function of this file in another program, and returns its value. Some calls of actors and some of their
    replies are lost, if they come from there or from its actors."""
    variables = {"RAY_testing_rpc_failure": json.dumps({"CoreWorkerService.grpc_client.PushTask": failures})}
    program = (
        "import json, ray, sys; sys.path.insert(0, sys.argv[1]); import test_ray\n"
        "ray.init(address=sys.argv[2], log_to_driver=False, runtime_env={'env_vars': json.loads(sys.argv[3])})\n"
        "print('said', json.dumps(test_ray.value_of(getattr(test_ray, sys.argv[4])(*sys.argv[5:]))))\n"
    )
    directory, of_actors = str(Path(__file__).parent), json.dumps(variables if where == "actors" else {})
    given = (directory, cluster.address, of_actors, name, *arguments)
    done = python("-c", program, *given, **(variables if where == "driver" else {}))
    assert done.returncode == 0, done.stderr
    # Ray's own words are there, too.
    [said] = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    return json.loads(said.removeprefix("said "))


def value_of(said: Any) -> Any:
    return asyncio.run(said) if asyncio.iscoroutine(said) else said


def batch_with_a_tool(url: str, calls: str) -> Any:
    called = []

    async def here(word: str) -> str:
        """Runs with the driver."""
        called.append(word)
        return word

    batch = run_batch(
        "?",
        attempts=40,
        **settings_of(url),
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
    asked = []

    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        asked.append(path)
        code = 'word=$RANDOM$RANDOM$RANDOM; [ $(here $word) = $word ] && RLM_CONTENT="$(llm_batch a)" RLM_READY=1'
        return completion(running(code)([], []) if body.get("tools") else "a sub-call")

    with json_server(reply) as url:
        ends, called, spent, losses = said_by_a_driver(cluster, "batch_with_a_tool", url, calls, where=where)
    assert sorted(ends) == sorted([f"1-{number}", "answered", "a sub-call"] for number in range(1, 41))
    assert len(called) == len(set(called)), "a call came twice"
    if where == "actors":
        assert losses == 0
    # A node is lost with an exchange, and with the requests that are under way there.
    assert abs(spent - len(asked)) <= losses * CONCURRENCY
    assert len(called) <= 40 + losses * CONCURRENCY


def spent_by_a_rollout(url: str) -> Any:
    batch = run_batch("?", **settings_of(url))
    [result] = batch
    return result.stop_reason, batch.progress.spent.calls


@pytest.mark.nightly
def test_the_ledger_is_whole_where_what_a_node_tells_is_under_way_at_the_end(cluster: Any) -> None:
    asked = []

    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        asked.append(path)
        # The rollout ends after its node has reported this request, and before Ray repeats that report, which was lost.
        return completion(running("sleep 0.35; RLM_READY=1 RLM_CONTENT=x")([], []))

    first_is_lost = {"num_failures": 1, "req_failure_prob": 100, "resp_failure_prob": 0}
    with json_server(reply) as url:
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


async def test_an_interrupt_may_come_before_its_call(cluster: Any) -> None:
    async with SessionActor() as session:
        for size in (0, 200_000, 900_000):
            for steps in range(3):
                call = asyncio.ensure_future(session.execute("sleep 1000 #" + "x" * size, timeout=20))
                for _ in range(steps + 1):
                    await asyncio.sleep(0)
                session.interrupt()
                assert (await call).outcome == "interrupted"
        # An interrupt also reaches a call that waits for the end of one that was given up.
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.execute("trap '' INT; sleep 2; trap - INT"), 0.5)
        call = asyncio.ensure_future(session.execute("sleep 1000", timeout=20))
        await asyncio.sleep(0)
        session.interrupt()
        assert (await call).outcome == "interrupted"


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


async def test_whatever_waits_at_the_hub_what_ends_its_wait_gets_through(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_resume_goes_on_after_the_death_of_the_driver(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    program = (
        "import ray, sys; sys.path.insert(0, sys.argv[1]); import test_ray\n"
        "ray.init(address=sys.argv[2], log_to_driver=False)\n"
        "for result in test_ray.run_batch('?', attempts=40, model=test_ray.scripted, results=sys.argv[3],\n"
        "                                 concurrency_per_node=1, resume=True):\n"
        "    print(result.id, flush=True)\n"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent), cluster.address, str(file)]
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
    assert sorted(ids) == sorted(f"1-{number}" for number in range(1, 41))
    lines = [json.loads(line)["id"] for line in file.read_text().splitlines()]
    assert len(lines) == len(set(lines)) == 40


@pytest.mark.nightly
def test_what_is_wrong_is_said_before_anything_runs(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StartError, match=r"cannot run rollouts: .*max-turns"):
        list(run_batch("?", model=scripted, max_turns=-1))
    with pytest.raises(TypeError, match="there is no setting max_turn:"):
        run_batch("?", model=scripted, max_turn=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="there are 2 questions with the id a"):
        run_batch([Question("?", id="a"), Question("!", id="a")], model=scripted)
    with pytest.raises(StartError, match="a context cannot be read"):
        run_batch("?", model=scripted, context=tmp_path / "missing")
    with pytest.raises(StartError, match="a context cannot be read"):
        run_batch(Question("?", context=tmp_path / "missing"), model=scripted, context=tmp_path)
    os.mkfifo(tmp_path / "fifo")
    for wrong, error, words in (
        ({"context": tmp_path / "fifo"}, StartError, "a context cannot be read: .*/fifo is neither a file nor a dir"),
        (
            {"questions": Question("?", context=tmp_path / "fifo")},
            StartError,
            "a context cannot be read: .*/fifo is neither a file nor a directory",
        ),
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
    missing = "the session cannot be started on its node: ModuleNotFoundError: No module named 'only_here'"
    not_models = "the session cannot be started on its node: TypeError: models must be Models(…) or a function, not 'm'"

    async def start() -> None:
        for models, words in ((only_here, missing), ("m", not_models)):
            with pytest.raises(StartError) as error:
                await SessionActor(models=models).start()
            assert str(error.value) == words
        async with SessionPool(models=only_here) as pool:
            with pytest.raises(StartError) as error:
                await pool.get("a")
            assert str(error.value) == missing

    asyncio.run(start())
    file = tmp_path / "r.jsonl"
    assert len(list(run_batch("?", model=scripted, results=file))) == 1
    with pytest.raises(StartError, match="has results already"):
        list(run_batch("?", model=scripted, results=file))
    with pytest.raises(StartError, match="is of another question"):
        list(run_batch("another", model=scripted, results=file, resume=True))
    file.write_text("not a result\n")
    with pytest.raises(StartError, match="r.jsonl:1 is not a result"):
        list(run_batch("?", model=scripted, results=file, resume=True))


@pytest.mark.nightly
def test_a_batch_that_waits_for_free_cpus_says_so(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_each_batch_warns_and_one_whose_nodes_are_too_small_ends(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.nightly
def test_a_context_that_is_read_once_is_there_for_each_attempt(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    question = Question("?", context=(path for path in [tmp_path / "there"]))
    results = list(run_batch(question, attempts=2, model=running('RLM_CONTENT="$(ls)" RLM_READY=1')))
    assert [result.answer for result in results] == ["there", "there"]


@pytest.mark.nightly
def test_a_relative_context_is_that_of_the_directory_of_the_call(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/there").write_text("")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    batch = run_batch(Question("?", context="files"), model=running('RLM_CONTENT="$(ls)" RLM_READY=1'))
    monkeypatch.chdir(tmp_path / "elsewhere")
    [result] = batch
    assert (result.answer, result.error) == ("there", None)


@pytest.mark.nightly
def test_a_batch_that_is_closed_packs_nothing_any_more(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 400 << 20)
    begun, sent = threading.Event(), []
    batch = run_batch("?", model=scripted, context=tmp_path / "large")
    monkeypatch.setattr("rlm_env.ray._context.check_path", lambda _: begun.set())
    monkeypatch.setattr(ray, "put", sent.append)
    close_while_read(batch, begun.is_set, "the context")
    threads = threading.enumerate
    wait_until(
        lambda: not [one for one in threads() if one.name.startswith("rlm-tool")], "the end of the batch's threads"
    )
    assert sent == []


@pytest.mark.nightly
def test_a_batch_that_is_closed_leaves_no_part_of_a_context(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(20_000):
        (tmp_path / "many" / str(number)).touch()

    def unpacked() -> list[Path]:
        return list(Path(os.environ["TMPDIR"]).glob("rlm-host-*/**/context-*/0/many/*"))

    batch = run_batch("?", attempts=3, model=scripted, context=tmp_path / "many", concurrency_per_node=1)
    close_while_read(batch, unpacked, "the first files")
    wait_until(lambda: not unpacked(), "the removal of what was unpacked")


@pytest.mark.nightly
def test_a_context_that_cannot_be_sent_ends_its_own_attempts_alone(cluster: Any, tmp_path: Path) -> None:
    deepest = functools.reduce(lambda inner, _: [inner], range(98), 1)
    questions = [Question("?", context=tmp_path / name) for name in ("gone", "big", "there")]
    for name in ("gone", "big", "there"):
        (tmp_path / name).mkdir()
    with (tmp_path / "big/file").open("wb") as file:
        file.truncate(3 << 20)
    batch = run_batch(
        [*questions, Question("?", context_json=deepest, metadata=deepest)], attempts=2, model=WithSmallFiles()
    )
    (tmp_path / "gone").rmdir()
    results = {result.id: result for result in batch}
    assert len(results) == 8
    for number in "12":
        gone, big = results[f"1-{number}"], results[f"2-{number}"]
        assert gone.stop_reason == big.stop_reason == "worker_failed"
        assert gone.error is not None
        assert "a context cannot be read: [Errno 2]" in gone.error
        assert big.error is not None
        assert re.search(r"it was lost 4 times, .* its context cannot be unpacked there: \[Errno 27\]", big.error)
        assert results[f"3-{number}"].answer == "a sub-call: 0"
        assert results[f"4-{number}"].answer == "a sub-call: 1"


@pytest.mark.nightly
def test_one_that_takes_long_holds_none_back_that_a_node_has_in_advance(cluster: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        waits = f"until [ -e {gate} ]; do sleep 0.05; done; " if messages[-1]["content"] == "long" else ""
        return running(f"{waits}RLM_CONTENT=ok RLM_READY=1")(messages, tools)

    ids = []
    for result in run_batch(["long", *map(str, range(20))], model=model, concurrency_per_node=1):
        ids.append(result.id)
        if len(ids) == 20:
            gate.touch()
    assert ids[-1] == "1-1"
    assert sorted(ids) == sorted(f"{number}-1" for number in range(1, 22))


@pytest.mark.nightly
@pytest.mark.parametrize("budget", [Budget(calls=1000), None])
async def test_a_node_that_is_lost_and_lives_ends_what_it_runs(cluster: Any, budget: Budget | None) -> None:
    asked, gate = [], threading.Event()

    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        asked.append(path)
        if len(asked) > 1:
            gate.wait(60)
        return completion(running("echo again")(body["messages"], body["tools"]))

    with served(reply) as settings:
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
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers: list[_driver.Driver] = []
    asked: collections.Counter[str] = collections.Counter()

    class Forgetful(_driver.Driver):
        """Cannot kill actors, as those of nodes that are cut off."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            drivers.append(self)

        def _forget(self, place: _driver.Place) -> None:
            if self._state.places.get(place.node) is place:
                del self._state.places[place.node]
                place.is_ready = False

    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        message = scripted(body["messages"], body.get("tools", []))
        if body.get("tools"):
            asked[body["messages"][-1]["content"]] += 1
        else:
            asked["of sub-calls"] += 1
        return completion(message)

    monkeypatch.setattr("rlm_env.ray._batch.Driver", Forgetful)
    with served(reply) as settings:
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
                unseen = (await driver._hub.spent.remote()).calls - sum(asked.values())
                assert 0 <= unseen <= CONCURRENCY
                ray.kill(cut_off.actor)
        assert cut_off is not None
        assert sorted(result.question for result in results) == sorted(question.question for question in questions)
        for result in results:
            losses = result.metrics.get("losses", 0)
            assert asked[result.question] <= 1 + losses, "an attempt runs twice"
            assert result.metrics.get("lost_calls", 0) <= 2 * losses


@pytest.mark.nightly
def test_what_a_node_had_reserved_is_free_when_it_dies_without_attempts(cluster: Any, tmp_path: Path) -> None:
    begun, pids = tmp_path / "begun", tmp_path / "pids"
    begun.mkdir()
    code = f": > $(mktemp -p {begun}); until [ -e {tmp_path}/gate ]; do sleep 0.05; done; echo"

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


@pytest.mark.nightly
def test_a_loop_that_is_left_ends_the_rollouts(cluster: Any) -> None:
    with run_batch("?", attempts=20, model=scripted, concurrency_per_node=1) as batch:
        results = iter(batch)
        next(results)
        with pytest.raises(RuntimeError, match="come once"):
            list(batch)
        with pytest.raises(RuntimeError, match="come once"):
            aiter(batch)
    assert not [thread for thread in threading.enumerate() if thread.name == "rlm-batch"], "the first loop goes on"
    assert list(results) == []


def test_what_ends_the_event_loop_ends_the_batch(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave(*_: Any) -> None:
        raise SystemExit("no")

    monkeypatch.setattr(Functions, "_call", leave)

    def here() -> None:
        """Runs with the driver."""

    with pytest.raises(SystemExit, match="no"):
        list(run_batch("?", model=running("here"), driver_tools=[here]))


@pytest.mark.nightly
def test_a_batch_is_closed_also_where_its_event_loop_is_ended_again_and_again(cluster: Any, tmp_path: Path) -> None:
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
def test_an_event_loop_that_ends_while_a_batch_is_closed_leaves_no_actor(cluster: Any) -> None:
    async def use() -> None:
        batch = run_batch("?", attempts=50, model=scripted, concurrency_per_node=1)
        results = aiter(batch)
        await anext(results)
        batch.close()
        await asyncio.sleep(0)  # the end has begun, and `asyncio.run` cancels it

    asyncio.run(asyncio.wait_for(use(), PATIENCE))
    wait_until(all_cpus_are_free, "the ends of its actors")


async def as_list(batch: Any) -> list[Any]:
    return [result async for result in batch]


@pytest.mark.nightly
@pytest.mark.parametrize("read", [list, lambda batch: asyncio.run(as_list(batch))])
def test_a_loop_in_another_thread_is_ended(cluster: Any, tmp_path: Path, read: Any) -> None:
    started = tmp_path / "started"
    batch = run_batch("?", model=running(f": > {started}; sleep 1000"))
    thread, found = read_in_thread(batch, read)
    wait_until(started.exists, "the rollout")
    for _ in range(3):
        batch.close()
    assert has_ended(thread) and found == []
    wait_until(all_cpus_are_free, "the CPUs of its actors")


@pytest.mark.nightly
async def test_a_tool_that_does_not_end_keeps_nothing_open(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def stubborn() -> None:
        """Does not end."""
        begun.set()
        while not ended.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    monkeypatch.setattr(_functions, "_CLOSE_LIMIT", 0.5)
    batch = run_batch("?", model=running("stubborn"), driver_tools=[stubborn])
    close_while_read(batch, begun.is_set, "the tool")
    begun.clear()
    async with SessionActor(driver_tools=[stubborn], num_cpus=0.01) as session:
        call = asyncio.ensure_future(session.execute("stubborn"))
        await until(begun.is_set)
    with pytest.raises((EndedError, UsageError)):
        await call
    ended.set()


def test_a_thread_that_a_tool_waits_for_keeps_no_batch_open(cluster: Any) -> None:
    ended = threading.Event()

    async def in_a_thread() -> None:
        """Waits for a thread."""
        await asyncio.to_thread(ended.wait)

    code = "in_a_thread 2> /dev/null; RLM_CONTENT=late RLM_READY=1"
    given_up = threading.Timer(60, ended.set)
    given_up.start()
    try:
        [result] = run_batch("?", model=running(code), driver_tools=[tool(timeout=1.0)(in_a_thread)])
        assert (result.answer, ended.is_set()) == ("late", False)
    finally:
        ended.set()
        given_up.cancel()


@pytest.mark.nightly
def test_results_are_kept_also_while_the_program_does_not_read_them(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (_batch, _driver):
        monkeypatch.setattr(module, "MAX_UNREAD", 2)
    file, asked = tmp_path / "results.jsonl", []
    with served(answering(asked)) as settings:
        batch = run_batch("?", attempts=200, results=file, **settings)
        results = iter(batch)
        next(results)
        wait_until(lambda: not batch.progress.running, "the end of those that have begun")
        assert len(file.read_text().splitlines()) == len(asked) == batch.progress.done < 200
        assert batch.progress.done + batch.progress.waiting == 200
        assert len(list(results)) == 199 and len(asked) == 200


@pytest.mark.nightly
async def test_a_batch_whose_results_cannot_be_kept_begins_nothing_more(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    kept, failed, append = [], [], Results.append

    def full(self: Results, document: Any) -> None:
        if len(kept) == 5 and not failed:
            failed.append(document)
            raise OSError(errno.ENOSPC, "No space left on device")
        kept.append(document["id"])
        append(self, document)

    monkeypatch.setattr(Results, "append", full)
    with served(answering(asked)) as settings:
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
async def test_a_loop_in_another_task_is_ended_also_while_it_does_something_else(cluster: Any) -> None:
    with run_batch("?", attempts=50, model=scripted) as batch:
        results = aiter(batch)
        await anext(results)
    await until(lambda: not batch.progress.running)
    assert [result async for result in results] == []
    assert batch.progress.waiting > 0


@pytest.mark.parametrize("read", [list, lambda batch: asyncio.run(as_list(batch))])
def test_a_batch_that_is_closed_before_its_loop_runs_nothing(cluster: Any, read: Any) -> None:
    batch = run_batch("?", model=scripted)
    batch.close()
    assert read(batch) == []
    assert (batch.progress.done, batch.progress.waiting) == (0, 1)


@pytest.mark.nightly
def test_a_batch_ends_whose_hub_does_not_answer(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_driver, "_CLOSE_LIMIT", 1.0)
    started = tmp_path / "started"
    with run_batch("?", model=running(f": > {started}; sleep 1000")) as batch:
        thread, _ = read_in_thread(batch)
        wait_until(started.exists, "the rollout")
        os.kill(hub(), signal.SIGSTOP)
    assert has_ended(thread)


@pytest.mark.nightly
def test_what_cannot_be_shown_ends_nothing(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.EIO, "the terminal is gone")

    monkeypatch.setattr("sys.stderr", Gone())
    assert len(list(run_batch("?", attempts=2, model=scripted, progress=True))) == 2


@pytest.mark.parametrize("language", ["bash", "python"])
async def test_a_session_on_a_node_is_that_of_the_client(cluster: Any, language: Any) -> None:
    def beside(word: str) -> str:
        """Runs beside the session."""
        return f"{word} {os.getpid() != driver}"

    def here(word: str) -> str:
        """Runs with the driver."""
        return f"{word} {os.getpid() == driver}"

    driver = os.getpid()
    code = {
        "bash": "pwd; echo $(beside a), $(here b)",
        "python": "import os; print(os.getcwd()); beside('a'), here('b')",
    }
    begins = {"bash": ": > began; ", "python": "open('began', 'w').close(); import os, time\n"}
    slow = {"bash": begins["bash"] + "sleep 100", "python": begins["python"] + "time.sleep(100)"}
    waits = {
        "bash": begins["bash"] + "until [ -e go ]; do sleep 0.05; done",
        "python": begins["python"] + "while not os.path.exists('go'): time.sleep(0.05)",
    }

    async def begun(directory: str) -> None:
        await until(Path(directory, "began").exists)
        Path(directory, "began").unlink()

    config = SessionConfig(language=language)
    async with SessionActor(config, tools=[beside], driver_tools=[here]) as session:
        response = await session.execute(code[language])
        directory = response.stdout.splitlines()[0]
        assert "a True" in response.stdout + (response.result or ""), response
        assert "b True" in response.stdout + (response.result or ""), response
        assert os.path.isdir(directory)
        assert (await session.set({"x": 42})).outcome == "ok"
        with pytest.raises(TypeError, match="the variable 'x' cannot be sent as JSON: Object of type lock is not"):
            await session.set({"x": threading.Lock()})
        for option in ("key", "had", "method"):
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
                await session.execute("ls", **{option: 1})
        again = pickle.loads(pickle.dumps(session))
        shown = await again.execute({"bash": "echo $x", "python": "print(x)"}[language])
        assert shown.stdout.strip() == "42"
        assert (await session.info()).language == language
        running = asyncio.ensure_future(session.execute(slow[language]))
        await begun(directory)
        session.interrupt()
        assert (await running).outcome == "interrupted"
        await session.restart()
        running = asyncio.ensure_future(session.execute(waits[language]))
        await begun(directory)
        await give_up(again.execute("1"))
        assert await again.actor.idle.remote() == 0.0
        Path(directory, "go").touch()
        assert (await running).outcome == "ok", "another call was cancelled"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.execute(slow[language]), 1)
        # A call whose code travels for a while is cancelled when it comes.
        await give_up(session.execute(slow[language] + " #" + "x" * 900_000))
        assert (await session.execute({"bash": "echo next", "python": "'next'"}[language])).outcome == "ok"
        assert await session.start() is session
        lost = await session.execute({"bash": "echo ${x-lost}", "python": "print('x' in globals())"}[language])
        assert lost.stdout.strip() in ("lost", "False")
    assert not os.path.exists(directory)
    with pytest.raises(UsageError, match="has not been started"):
        await SessionActor().execute("ls")
    with pytest.raises(TypeError, match="the tool holds cannot be pickled"):
        SessionActor(tools=[holding(threading.Lock())])
    with pytest.raises(UsageError, match="the session is closed: start another"):
        await session.execute("ls")
    with pytest.raises(UsageError, match="the session has ended: start another"):
        await session.start()
    nowhere = SessionActor("/not/there")
    for _ in range(2):
        with pytest.raises(StartError, match=r"/not/there"):
            await nowhere.start()


@pytest.mark.nightly
def test_a_pool_has_a_session_for_each_key(cluster: Any) -> None:
    other_loop: list[SessionPool] = []

    async def use() -> None:
        async with SessionPool(max_sessions=2, num_cpus=0.01) as pool:
            one, same, other = await asyncio.gather(pool.get("a"), pool.get("a"), pool.get("b"))
            assert one is same and one is not other
            await one.execute("x=1")
            waiting = asyncio.ensure_future(pool.get("c"))
            await asyncio.sleep(0.2)
            assert not waiting.done(), "there is no place"
            await pool.release("b")
            third = await waiting
            assert (await third.execute("echo $x")).stdout == "\n"
            # The worker and the actor of a session die: one call says so, and the key gets a new session.
            ray.kill(one.actor)
            lost = pytest.raises(EndedError, match=r"the session on the node .* has ended, and its state is lost")
            with lost:
                await (await pool.get("a")).execute("echo $x")
            assert (await (await pool.get("a")).execute("echo $x")).stdout == "\n"
            with lost:
                await one.execute("echo also to others that have it")
            ray.kill((await pool.get("c")).actor)
            await pool.get("d")  # the dead one has no place any more
            with pytest.raises(EndedError):
                await (await pool.get("c")).execute("echo")
        assert len(pool) == 0
        with pytest.raises(UsageError, match="the pool is closed: create another"):
            await pool.get("a")
        async with SessionPool(max_sessions=1, num_cpus=0.01) as pool:
            one, other = (asyncio.ensure_future(pool.get("a")) for _ in range(2))
            one.add_done_callback(lambda _: other.cancel())
            first = await one
            assert await pool.get("a") is first, "whoever gave up has not taken it along"
            # A release that is given up goes on: otherwise the next one would wait for ever.
            await give_up(pool.release("a"))
            with pytest.raises((EndedError, UsageError)):
                await first.execute("echo")
            first = await asyncio.wait_for(pool.get("a"), PATIENCE)
            # A caller that waits for a place is told; one that gives up leaves none taken.
            waiting = asyncio.ensure_future(pool.get("b"))
            await give_up(pool.get("c"))
            await pool.release("b")
            with pytest.raises(UsageError, match="the session of 'b' was released before it had started"):
                await waiting
            await pool.release("a")
            await pool.get("d")
            waiting = asyncio.ensure_future(pool.get("e"))
            await asyncio.sleep(0)
            await pool.close()
            with pytest.raises(UsageError, match="was released"):
                await waiting
        async with SessionPool(num_cpus=0.01) as pool:
            # A key was released and got again: a cancelled `get` from before does not close the new session.
            given_up, released, wanted = (asyncio.ensure_future(do("a")) for do in (pool.get, pool.release, pool.get))
            await asyncio.sleep(0.01)
            given_up.cancel()
            assert (await (await wanted).execute("echo $((6 * 7))")).stdout == "42\n"
            await asyncio.wait([given_up, released])
        async with SessionPool(max_sessions=1, num_cpus=0.01) as pool:
            # A session that is being closed takes no call that would be cut off.
            first = await pool.get("a")
            released = asyncio.ensure_future(pool.release("a"))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="the session is closed: start another"):
                await first.execute("echo")
            await released
            await pool.get("b")
            # A `get` that is cancelled returns at once; its session is closed in the background.
            await give_up(pool.get("a"))
            [ending] = pool._unwanted
            assert not ending.done() and len(pool) == 1
            # A close that is given up goes on.
            await give_up(pool.close())
            assert ending.done() and pool._places._value == 1
        other_loop.append(pool)
        async with SessionPool(idle_timeout=2.0, num_cpus=0.01) as pool:
            busy = await pool.get("busy")
            running = asyncio.ensure_future(pickle.loads(pickle.dumps(busy)).execute("sleep 1000"))
            await pool.get("idle")
            await until(lambda: len(pool) == 1)
            assert not running.done(), "one that runs is in use"
            busy.interrupt()
            assert (await running).outcome == "interrupted"
        with pytest.raises(ValueError, match="max_sessions"):
            SessionPool(max_sessions=0)
        for seconds in ("x", None):
            with pytest.raises(TypeError, match=f"idle_timeout must be a number of seconds, not {seconds!r}"):
                SessionPool(idle_timeout=seconds)  # type: ignore[arg-type]
        for argument in ("tools", "driver_tools"):
            with pytest.raises(TypeError, match=f"^{argument} must be a list of functions, not 5"):
                SessionPool(**{argument: 5})
        SessionPool(tools=iter([scripted]), idle_timeout=float("inf"))

    asyncio.run(use())
    for act in (lambda pool: pool.get("a"), lambda pool: pool.release("a"), lambda pool: pool.close()):
        with pytest.raises(UsageError, match="this pool belongs to another event loop: create one"):
            asyncio.run(act(other_loop[0]))


@pytest.mark.nightly
async def test_a_pool_closes_idle_sessions_where_another_one_does_not_answer(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (_pool, _session):
        monkeypatch.setattr(module, "CLOSE_LIMIT", 1.0)
    async with SessionPool(max_sessions=2, idle_timeout=1.0, num_cpus=0.01) as pool:
        stuck = await pool.get("stuck")
        pid = await stuck.actor.__ray_call__.remote(lambda _: os.getpid())
        os.kill(pid, signal.SIGSTOP)
        await pool.get("idle")
        await pool.get("next")
        assert await pool.get("stuck") is stuck
        os.kill(pid, signal.SIGCONT)
        assert (await stuck.execute("echo there")).stdout == "there\n"


def test_a_dataset_is_answered_by_rollouts(cluster: Any) -> None:
    pytest.importorskip("pyarrow", reason="Ray Data is not here: pip install 'ray[data]'")
    right = ["another answer", "a sub-call: 1"]
    rows = [{"text": f"question {number}", "number": number, "right": right} for number in range(6)]
    settings = {"expected": "right", "model": scripted, "parallel": 2}
    answered = ray.data.from_items(rows).map_batches(
        Rollouts,
        fn_constructor_kwargs={**dict.fromkeys(("question", "context_text"), "text"), **settings},
        concurrency=1,
        batch_size=3,
        num_cpus=0.1,
    )
    found = sorted(answered.take_all(), key=lambda row: row["number"])
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    ends = {(row["answer"], row["stop_reason"], row["turns"], row["score"]) for row in found}
    assert ends == {("a sub-call: 1", "answered", 1, 1.0)}
    with pytest.raises(TypeError, match="there is no setting max_turn:"):
        Rollouts(max_turn=1)  # type: ignore[call-arg]


def test_a_batch_of_a_dataset_is_answered_row_by_row() -> None:
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    rollouts = Rollouts(model=scripted)
    frame = pandas.DataFrame({"question": ["a", "b"]}, index=[5, 6])
    assert rollouts(frame)["answer"] == ["a sub-call: 0"] * 2
    found = rollouts({"question": ["a", None, 5, ""]})
    assert found["answer"] == ["a sub-call: 0", None, None, None]
    assert found["stop_reason"] == ["answered", *["setup_failed"] * 3]
    assert found["turns"] == [1, 0, 0, 0]
    assert found["error"][2] == "the question 2 cannot be sent: question must be a str that is not empty, not 5"
    wrong: list[tuple[Any, type[Exception], str]] = [
        (pyarrow.table({"question": ["a"]}), TypeError, 'the batch_format "numpy" or "pandas": a batch is a Table'),
        ({"question": "a row"}, TypeError, "Rollouts is for Dataset.map_batches"),
        ({"question": None}, TypeError, "Rollouts is for Dataset.map_batches"),
        ({"question": ["a"], "answer": ["b"], "score": [1]}, ValueError, "the dataset has the columns answer, score,"),
        (
            {"ask": ["a"], "id": [1]},
            ValueError,
            "the dataset has no column 'question', only ask, id: name another one by",
        ),
    ]
    for rows, error, words in wrong:
        with pytest.raises(error, match=words):
            rollouts(rows)


@pytest.mark.nightly
def test_a_tool_that_a_busy_driver_does_not_answer_fails_in_time(cluster: Any) -> None:
    async def block() -> None:
        """Holds the driver's event loop."""
        time.sleep(6)

    @tool(timeout=1)
    async def quick() -> str:
        """Is quick, where it gets its turn."""
        return "quick"

    code = 'block & sleep 0.5; RLM_CONTENT="$(quick 2>&1)"; wait; RLM_CONTENT="$RLM_CONTENT, $(quick)" RLM_READY=1'

    async def use() -> list[Any]:
        return [result async for result in run_batch("?", model=running(code), driver_tools=[block, quick])]

    [result] = asyncio.run(use())
    assert result.answer == "Error: TimeoutError: the tool quick took longer than its limit of 1 s, quick"


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
def test_the_example_of_grpo_runs(cluster: Any) -> None:
    ran = python(str(Path(__file__).parents[2] / "examples/ray_grpo.py"), RAY_ADDRESS=cluster.address)
    assert ran.returncode == 0, ran.stderr
    groups = [line for line in ran.stdout.splitlines() if line.startswith("How many letters")]
    assert len(groups) == 4, ran.stdout


@pytest.mark.nightly
async def test_a_session_whose_hub_has_died_says_so(cluster: Any) -> None:
    async with SessionActor(driver_tools=[here]) as session:
        assert (await session.execute("here")).stdout == "here\n"
        ray.kill(session._hub)
        with pytest.raises(ActorDiedError):
            await session._functions.wait()  # type: ignore[union-attr]
        with pytest.raises(EndedError, match="driver_tools cannot be called any more: start another session"):
            await session.execute("ls")


def run_and_close(work: Any) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(work)
    loop.close()


@pytest.mark.nightly
@pytest.mark.parametrize("run", [asyncio.run, run_and_close])
def test_a_session_whose_tools_had_another_event_loop_says_so(cluster: Any, run: Any) -> None:
    session = SessionActor(driver_tools=[here], num_cpus=0.01)

    async def start() -> None:
        await session.start()
        assert (await session.execute("here")).stdout == "here\n"

    async def use() -> None:
        with pytest.raises(EndedError, match=r"driver_tools cannot be called any more: .*their event loop has ended"):
            await session.execute("here")
        await session.close()

    run(start())
    asyncio.run(asyncio.wait_for(use(), PATIENCE))
