"""Batches on a real Ray cluster: a head and two more nodes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_env import Budget, EndedError, Question, StartError, tool
from rlm_env._files import PrivateDirectory

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError as error:  # pragma: no cover
    pytest.skip(f"Ray is not here ({error})", allow_module_level=True)

from rlm_env.ray import run_batch

pytestmark = pytest.mark.filterwarnings("ignore")

CONCURRENCY = 2


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In place of the other tests' one: Ray keeps processes and descriptors; `cluster` checks what is ours."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of three nodes. When it is gone, nothing of ours is left."""
    with tempfile.TemporaryDirectory(prefix="rlm-ray-") as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        # A dead node is noticed within seconds.
        health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_timeout_ms": 1000}
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
        # Of actors that were killed: the next program that starts removes them.
        patch.setattr("tempfile.tempdir", directory)
        PrivateDirectory().remove()
        left = [path for path in Path(directory).iterdir() if path.name.startswith("rlm-host-")]
        assert left == [], "a directory is left"


def wait_until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited 60 s for {what}"
        time.sleep(0.05)


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
    questions = [f"question {number}" for number in range(25)]
    batch = run_batch(
        questions,
        attempts=4,
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
    assert sorted(ids) == sorted(f"{question}-{attempt}" for question in range(1, 26) for attempt in range(1, 5))
    assert len(nodes) == 3
    assert (batch.progress.done, batch.progress.failed, batch.progress.waiting) == (100, 0, 0)
    assert batch.progress.spent.calls == 200
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

    def beside() -> str:
        """Runs beside the session."""
        return "elsewhere" if os.getppid() != driver else "here"

    driver = os.getpid()
    code = 'RLM_CONTENT="$(here x), $(beside), $(fails 2>&1), $(hangs 2>&1)"; RLM_READY=1'
    [result] = run_batch("?", model=running(code), tools=[beside], driver_tools=[here, hangs, fails])
    limit = "Error: TimeoutError: the tool hangs took longer than its limit of 1 s"
    assert result.answer == f"x of {os.getpid()}, elsewhere, Error: ValueError: no, {limit}"
    assert calls == ["x"]


def test_an_attempt_that_is_lost_with_its_node_is_begun_again(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    started, gate = tmp_path / "started", tmp_path / "gate"
    started.mkdir()
    code = f": > $(mktemp -p {started}); while [ ! -e {gate} ]; do sleep 0.05; done; RLM_CONTENT=1 RLM_READY=1"
    batch = run_batch("?", attempts=8, model=running(code), concurrency_per_node=CONCURRENCY)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(batch), daemon=True)
    thread.start()
    wait_until(lambda: len(list(started.iterdir())) == 8, "all of them, two on each node")
    cluster.remove_node(node, allow_graceful=False)
    wait_until(lambda: batch.progress.losses > 0, "the loss")
    gate.touch()
    thread.join()
    assert sorted(result.id for result in found) == [f"1-{number}" for number in range(1, 9)]
    assert {result.stop_reason for result in found} == {"answered"}
    lost = [result for result in found if result.metrics.get("losses")]
    assert len(lost) == batch.progress.losses > 0
    assert all(result.metrics["lost_calls"] == 1 for result in lost)


def test_a_budget_is_for_all_rollouts_together(cluster: Any) -> None:
    batch = run_batch("?", attempts=30, model=scripted, budget=Budget(calls=20), concurrency_per_node=CONCURRENCY)
    results = []
    with pytest.raises(EndedError, match="attempts were not run: the budget of all rollouts together is exhausted"):
        for result in batch:
            results.append(result)
    assert batch.progress.spent.calls <= 20
    assert sum(result.stop_reason == "answered" for result in results) >= 5


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


def test_what_is_wrong_is_said_before_anything_runs(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot run rollouts: .*max-turns"):
        list(run_batch("?", model=scripted, max_turns=-1))
    with pytest.raises(TypeError, match="there is no setting max_turn:"):
        run_batch("?", model=scripted, max_turn=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="there are 2 questions with the id a"):
        run_batch([Question("?", id="a"), Question("!", id="a")], model=scripted)
    with pytest.raises(StartError, match="a context cannot be read"):
        list(run_batch("?", model=scripted, context=tmp_path / "missing"))
    file = tmp_path / "r.jsonl"
    assert len(list(run_batch("?", model=scripted, results=file))) == 1
    with pytest.raises(StartError, match="has results already"):
        list(run_batch("?", model=scripted, results=file))
    with pytest.raises(StartError, match="is of another question"):
        list(run_batch("another", model=scripted, results=file, resume=True))
    file.write_text("not a result\n")
    with pytest.raises(StartError, match="r.jsonl:1 is no result"):
        list(run_batch("?", model=scripted, results=file, resume=True))


def test_a_loop_that_is_left_ends_the_rollouts(cluster: Any) -> None:
    with run_batch("?", attempts=20, model=scripted, concurrency_per_node=1) as batch:
        for _result in batch:
            break
    with pytest.raises(RuntimeError, match="come once"):
        list(batch)
