"""Rollouts of verifiers with a scripted model: our harness, and its own harness for our program."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from conftest import children, json_server, wait_until

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed")

from verifiers.v1.harnesses.rlm.harness import RLMHarness, RLMHarnessConfig  # noqa: E402
from verifiers.v1.mcp import launch  # noqa: E402
from verifiers.v1.runtimes import SubprocessConfig  # noqa: E402
from verifiers.v1.runtimes import subprocess as subprocess_runtime  # noqa: E402

import rlm_env_harness  # noqa: E402
from library_tools import BareTools, LibraryTools, Shelf  # noqa: E402
from rlm_env import find_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # those of verifiers and its libraries

SET = {
    "bash": ("n=$(wc -l <a.txt)", 'RLM_CONTENT="$n lines, $KIND" RLM_READY=1'),
    "python": (
        "import os; n = len(open('a.txt').readlines())",
        "answer['content'] = f\"{n} lines, {os.environ['KIND']}\"; answer['ready'] = True",
    ),
}
IN: dict[str, dict[str, Any]] = {
    "bash": {"language": "bash"},
    "python": {"language": "python", "python": sys.executable},
}
AGAIN = {"bash": "RLM_CONTENT=$((n + 40)) RLM_READY=1", "python": "answer['content'] = n + 40; answer['ready'] = True"}


class Lines(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    def runtime_env(self) -> dict[str, str]:
        return {"KIND": "text"}

    async def setup(self, runtime: Any) -> None:
        await runtime.write("a.txt", b"one\ntwo\n")

    @vf.reward
    async def is_right(self, trace: Any) -> float:
        return float(trace.root_reply == "2 lines, text")


def task(prompt: Any = "How many lines has a.txt?") -> Lines:
    return Lines(vf.TaskData(prompt=prompt, system_prompt="Be exact."))


class Model:
    """A server that answers with one message after the other, and keeps the requests. An int is a status."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.requests: list[Any] = []
        self.url = ""

    def answer(self, _path: str, _headers: Any, body: Any) -> tuple[int, Any]:
        self.requests.append(body)
        reply = self.replies.pop(0)
        if isinstance(reply, int):
            return reply, {"error": {"message": "no such luck"}}
        finish_reason = "tool_calls" if "tool_calls" in reply else "stop"
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        choice = {"index": 0, "delta" if body.get("stream") else "message": reply, "finish_reason": finish_reason}
        completion = {"id": "1", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        if not body.get("stream"):
            return 200, {"object": "chat.completion", **completion}
        chunk = json.dumps({"object": "chat.completion.chunk", **completion})
        return 200, f"data: {chunk}\n\ndata: [DONE]\n\n"


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


def calls(language: str, *codes: str) -> list[Any]:
    """Messages of a model that run these codes."""
    functions = [{"name": f"call_{language}_repl", "arguments": json.dumps({"code": code})} for code in codes]
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"index": 0, "id": f"c{n}", "type": "function", "function": function}],
        }
        for n, function in enumerate(functions)
    ]


def agent(model: Model, **fields: Any) -> Any:
    fields = {"id": "rlm_env_harness", "env": {"RLM_MAX_RETRIES": "0"}, **fields}
    client = vf.EvalClientConfig(base_url=model.url, api_key_var="NO_SUCH_KEY")
    return vf.Agent(vf.AgentConfig(harness=fields, runtime=SubprocessConfig(), model="m", client=client))


def check(trace: Any) -> None:
    assert trace.errors == [], trace.errors[0].message
    assert (trace.ok, trace.root_reply, trace.reward) == (True, "2 lines, text", 1.0)
    assert trace.stop_condition == "agent_completed"
    assert (trace.metrics["root_llm_turns"], trace.metrics["root_llm_prompt_tokens"]) == (2, 20)
    assert (trace.num_turns, len(trace.branches)) == (2, 1)


@pytest.mark.parametrize("language", ["bash", "python"])
def test_an_episode(model: Model, language: str) -> None:
    model.replies = calls(language, *SET[language])
    check(asyncio.run(agent(model, append_to_system_prompt="Be brief.", **IN[language]).run(task())))
    system, user = model.requests[0]["messages"][:2]
    assert system["content"].endswith("Be exact.\n\nBe brief.")
    assert "How many lines has a.txt?" in user["content"]


@pytest.mark.parametrize("language", ["bash", "python"])
async def test_turns_of_a_user_share_the_state(model: Model, language: str) -> None:
    model.replies = [*calls(language, *SET[language]), *calls(language, AGAIN[language])]
    async with agent(model, **IN[language]).interaction(task(None)) as interaction:
        first = await interaction.turn("How many lines has a.txt?")
        second = await interaction.turn([vf.UserMessage(content="And 40 more?"), vf.UserMessage(content="Quick!")])
        assert (first.last_reply, second.last_reply) == ("2 lines, text", "42")
    trace = interaction.trace
    assert (trace.errors, trace.stop_condition, trace.metrics["root_llm_turns"]) == ([], "user_closed", 3)
    assert model.requests[-1]["messages"][-1]["content"] == "And 40 more?\n\nQuick!"


def test_sub_calls_are_branches(model: Model) -> None:
    first, last = calls("bash", "llm_batch a | cat", "RLM_CONTENT=done RLM_READY=1")
    model.replies = [first, {"role": "assistant", "content": "b"}, last]
    trace = asyncio.run(agent(model, leaf_append_to_system_prompt="Be a leaf.").run(task()))
    assert (trace.errors, trace.root_reply, trace.metrics["sub_llm_call_count"]) == ([], "done", 1)
    assert (trace.num_turns, len(trace.branches)) == (3, 2)
    assert model.requests[1]["messages"][0]["content"].endswith("Be a leaf.")
    assert edges(trace) == [(0, 1, "subagent_call"), (0, 2, "continuation"), (1, 2, "subagent_return")]


def edges(trace: Any) -> list[tuple[int, int, str]]:
    """The edges of a trace, between the numbers of its calls."""
    number = {call.node: n for n, call in enumerate(trace.calls)}
    links = [(node, link) for node in number for link in trace.nodes[node].semantic_parents]
    return sorted((number[link.node], number[node], link.type) for node, link in links)


def test_a_long_conversation_goes_on_from_a_summary(model: Model) -> None:
    first, refused, last = calls("bash", "n=3", ":", "RLM_CONTENT=$n RLM_READY=1")
    model.replies = [first, refused, {"role": "assistant", "content": "n is 3"}, last]
    trace = asyncio.run(agent(model, summarize_at_tokens=1).run(task()))
    assert (trace.errors, trace.root_reply, trace.stop_condition) == ([], "3", "agent_completed")
    assert (trace.metrics["root_llm_turns"], trace.metrics["root_llm_summary_count"]) == (2, 1)
    assert edges(trace) == [(0, 1, "compaction_attempt"), (0, 2, "compaction_attempt"), (2, 3, "compaction")]
    # Each request for a summary ends a branch that goes on from the turns; only the one that was used is for training.
    assert [branch.trainable for branch in trace.branches] == [False, True, True]
    assert [len(branch.calls) for branch in trace.branches] == [2, 2, 1]


def test_a_conversation_without_a_summary_truncates_the_trace(model: Model) -> None:
    model.replies = calls("bash", *[":"] * 7)
    trace = asyncio.run(agent(model, summarize_at_tokens=1).run(task()))
    assert (trace.errors, trace.stop_condition, trace.is_truncated) == ([], "compaction_failed", True)
    assert (len(model.requests), trace.metrics["root_llm_turns"]) == (7, 2)


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({"max_total_turns": 2}, "max_turns"),
        ({"max_total_tokens": 20}, "max_total_tokens"),
        ({"env": {"RLM_CONTEXT_TOKENS": "16"}}, "compaction_failed"),
    ],
)
def test_a_limit_truncates_the_trace(model: Model, fields: Any, condition: str) -> None:
    model.replies = calls("bash", ":", ":")
    trace = asyncio.run(agent(model, **fields).run(task()))
    assert (trace.errors, trace.stop_condition, trace.is_truncated) == ([], condition, True)
    assert trace.reward == 0.0 and trace.metrics["root_llm_turns"] <= 2


def test_a_limit_of_verifiers_is_no_error(model: Model) -> None:
    model.replies = calls("bash", ":", ":")
    played = agent(model, env={})
    played.limits = dataclasses.replace(played.limits, max_turns=2)
    trace = asyncio.run(played.run(task()))
    assert (trace.errors, trace.stop_condition, trace.num_turns) == ([], "max_turns", 2)


def test_limits_of_calls_and_outputs(model: Model) -> None:
    codes = ["echo begun; sleep 1000", "seq 10000", "RLM_CONTENT=done RLM_READY=1"]
    model.replies = calls("bash", *codes)
    limits = {"exec_timeout": 0.5, "max_tool_output_bytes": 100, "max_tokens": 77}
    trace = asyncio.run(agent(model, **limits).run(task()))
    assert (trace.errors, trace.root_reply) == ([], "done")
    outputs = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert outputs[0].startswith("begun") and len(outputs[1]) < 400
    assert model.requests[0]["max_tokens"] == 77


def test_a_model_that_fails(model: Model) -> None:
    model.replies = [500] * 9
    trace = asyncio.run(agent(model).run(task()))
    assert (trace.ok, trace.stop_condition) == (False, "provider_error")
    assert "no such luck" in trace.errors[-1].message


def test_what_the_agent_refuses_is_an_error(model: Model) -> None:
    trace = asyncio.run(agent(model, env={"RLM_MAX_TURNS": "many"}).run(task()))
    assert trace.stop_condition == "harness_error"
    assert "RLM_MAX_TURNS: expected a whole number above 0" in trace.errors[-1].message
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    trace = asyncio.run(agent(model).run(task([{"role": "user", "content": [image]}])))
    assert "a turn takes text only, and a part of its message has the type image_url" in trace.errors[-1].message


@pytest.mark.parametrize("fields", [{"disabled_tools": ["a"]}, {"python": "python3"}, {"langauge": "bash"}])
def test_a_configuration_that_cannot_be(model: Model, fields: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        agent(model, **fields)


def programs() -> list[int]:
    """The running agents among our children."""
    return [pid for pid in children() if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"acp"]]


async def running(rollout: asyncio.Task[Any], rollouts: Path) -> int:
    """Waits until the code of a rollout runs. Returns the process id of its shell."""
    while not rollout.done() and not (
        files := [file for file in rollouts.glob("*/pid") if file.read_text().endswith("\n")]
    ):
        await asyncio.sleep(0.01)
    assert not rollout.done(), rollout
    return int(files[0].read_text())


@pytest.mark.parametrize("end", ["kill", "cancel", "timeout"])
async def test_nothing_is_left_of_a_rollout_that_ends_in_the_middle(model: Model, rollouts: Path, end: str) -> None:
    model.replies = calls("bash", "echo $$ >pid; sleep 1000")
    played = agent(model)
    if end == "timeout":
        played.timeout.rollout = 5
    rollout = asyncio.create_task(played.run(task()))
    shell = await running(rollout, rollouts)
    if end == "kill":
        os.kill(programs()[0], signal.SIGKILL)
    elif end == "cancel":
        rollout.cancel()
    [trace] = await asyncio.gather(rollout, return_exceptions=True)
    assert programs() == []
    wait_until(lambda: not os.path.exists(f"/proc/{shell}"), "the session ends")
    if end == "kill":
        assert trace.stop_condition == "harness_error"
        assert "the agent has ended (exit status -9)" in trace.errors[-1].message
    elif end == "cancel":
        assert isinstance(trace, asyncio.CancelledError)
    else:
        assert (trace.is_timeout, trace.errors) == (True, [])
    # The next one is as any other, and removes what a killed program left.
    model.replies = calls("bash", *SET["bash"])
    check(await agent(model).run(task()))


class Box(subprocess_runtime.SubprocessRuntime):
    """A runtime that has the programs only if they are uploaded."""

    type = "box"


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Makes boxes of runtimes. Returns the directory of what is uploaded."""
    monkeypatch.setattr("verifiers.v1.runtimes.SubprocessRuntime", Box)
    monkeypatch.setattr(rlm_env_harness, "_UPLOADS", str(tmp_path / "uploads"))
    return tmp_path / "uploads"


@pytest.mark.parametrize("language", ["bash", "python"])
def test_programs_are_uploaded_once(model: Model, language: str, box: Path) -> None:
    played = agent(model, language=language)
    for _ in range(2):
        model.replies = calls(language, *SET[language])
        check(asyncio.run(played.run(task())))
    [directory] = box.iterdir()
    assert len(list(directory.iterdir())) == 3


def test_one_file_is_uploaded_and_brings_its_python(
    model: Model, box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Path(__file__).parents[2] / "target/bundle"
    if not (bundle / "rlm").exists():
        pytest.skip("there is no target/bundle/rlm: dist/build makes it")
    monkeypatch.setenv("RLM_BIN_DIR", str(bundle))
    monkeypatch.setenv("RLM_CACHE_DIR", str(tmp_path / "cache"))
    model.replies = calls("python", "import sys; answer.update(content=sys.executable, ready=True)")
    trace = asyncio.run(agent(model, language="python", python="builtin").run(task()))
    assert trace.errors == [], trace.errors[0].message
    assert trace.root_reply.startswith(str(tmp_path / "cache")), trace.root_reply
    [directory] = box.iterdir()
    assert [file.name for file in directory.iterdir()] == ["rlm"]


def stand_ins(directory: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Puts scripts in the place of the programs."""
    directory.mkdir()
    for name in ("rlm", "rlm-worker-bash", "rlm-root-tool"):
        (directory / name).write_text(f"#!/bin/sh\n{code}\n")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("RLM_BIN_DIR", str(directory))


async def test_uploads_at_once_and_one_that_is_cancelled(
    model: Model, box: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    stand_ins(tmp_path / "programs", monkeypatch, "sleep 0.2")
    harness = agent(model).harness

    boxes = [Box(SubprocessConfig()) for _ in range(5)]
    for one in boxes:
        await one.start()
    cancelled = asyncio.create_task(harness.setup(boxes[0]))
    while not box.exists():
        await asyncio.sleep(0.001)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert list(box.iterdir()) == []
    await asyncio.gather(*(harness.setup(one) for one in boxes))
    for one in boxes:
        await one.stop()
    [directory] = box.iterdir()
    assert sorted(file.name for file in directory.iterdir()) == ["rlm", "rlm-root-tool", "rlm-worker-bash"]


def test_programs_that_do_not_run_there(model: Model, box: Path, tmp_path: Path, monkeypatch: Any) -> None:
    stand_ins(tmp_path / "programs", monkeypatch, "echo wrong machine >&2; exit 1")
    trace = asyncio.run(agent(model).run(task()))
    assert trace.stop_condition == "harness_error"
    assert "the programs of rlm-env do not run in this box: wrong machine" in trace.errors[-1].message
    assert list(box.iterdir()) == []


def test_an_agent_that_hangs_is_killed(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins(tmp_path / "programs", monkeypatch, "trap '' TERM; while :; do sleep 1; done")
    monkeypatch.setattr(rlm_env_harness, "_END_SECONDS", 0.2)
    played = agent(model)
    played.timeout.rollout = 0.5
    trace = asyncio.run(played.run(task()))
    assert (trace.is_timeout, trace.errors) == (True, [])


async def failed_turn(harness: Any, servers: dict[str, str]) -> tuple[Exception, str]:
    """The error of a turn without a server for the model, and its working directory."""
    trace = types.SimpleNamespace(id="trace-1", calls=[], stop_condition=None, root_reply=None)
    runtime = subprocess_runtime.SubprocessRuntime(SubprocessConfig())
    await runtime.start()
    arguments = vf.ModelContext(model="m", client=None), trace, runtime, "http://127.0.0.1:9/v1", "secret"
    session = await harness.session(*arguments, servers, vf.TaskData(prompt="?"))
    with pytest.raises(vf.RolloutError) as caught:
        await session.turn()
    await session.close()
    await runtime.stop()
    return caught.value, str(runtime.workdir)


def test_a_model_that_cannot_be_reached(model: Model) -> None:
    error, _ = asyncio.run(failed_turn(agent(model).harness, {}))
    assert isinstance(error, vf.InterceptionError)
    assert "127.0.0.1:9" in str(error)


def test_servers_of_tools_are_passed_on_with_their_headers(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = f"""exec {sys.executable} -c '
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    reply = {{"error": {{"code": 1, "message": line}}}} if request["method"] == "session/new" else {{"result": {{}}}}
    print(json.dumps({{"id": request["id"], **reply}}), flush=True)
'"""
    stand_ins(tmp_path / "programs", monkeypatch, echo)
    monkeypatch.setenv("DOCS_KEY", "hidden")
    harness = agent(model, mcp_header_env={"docs": {"X-Key": "DOCS_KEY"}}).harness
    error, directory = asyncio.run(failed_turn(harness, {"docs": "http://docs/mcp"}))
    assert isinstance(error, vf.HarnessError)
    params = json.loads(str(error))["params"]
    server = {"type": "http", "name": "docs", "url": "http://docs/mcp"}
    assert params["mcpServers"] == [{**server, "headers": [{"name": "X-Key", "value": "hidden"}]}]
    assert params["cwd"] == directory
    contract = params["_meta"]["ai.prime.rlm/runtime-v1"]
    assert (contract["session_id"], contract["model"]) == ("trace-1", "m")
    assert contract["provider"] == {"base_url": "http://127.0.0.1:9/v1", "api_key": "secret"}


TASKSET = """
import verifiers.v1 as vf
from test_verifiers import Lines, task

class LinesTaskset(vf.Taskset[Lines, vf.TasksetConfig]):
    def load(self):
        yield task()

__all__ = ["LinesTaskset"]
"""


def test_what_a_user_types(model: Model, tmp_path: Path) -> None:
    model.replies = calls("bash", *SET["bash"])
    (tmp_path / "lines_taskset.py").write_text(TASKSET)
    tests = str(Path(__file__).parent)
    path = os.pathsep.join([tests, str(tmp_path), os.environ.get("PYTHONPATH", "")])
    options = f"""
        --env.agent.harness.id rlm_env_harness --env.agent.harness.max-total-turns 5
        --env.agent.harness.env.RLM_MAX_RETRIES 0 --env.agent.runtime.type subprocess --model m
        --client.base-url {model.url} --client.api-key-var NO_SUCH_KEY --no-push
    """
    command = [Path(sys.executable).with_name("vf-eval"), "lines_taskset", *options.split()]
    environment = {**os.environ, "PYTHONPATH": path, "HOME": str(tmp_path)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    [traces] = tmp_path.glob("outputs/**/traces.jsonl")
    [trace] = json.loads(traces.read_text())["traces"]
    assert (trace["errors"], trace["root_reply"], trace["rewards"]["is_right"]["score"]) == ([], "2 lines, text", 1.0)
    assert (trace["task"]["type"], trace["metrics"]["root_llm_turns"]) == ("Lines", 2)


class Borrowing(vf.Task[vf.TaskData, Shelf, vf.TaskConfig]):
    """A task with a tool, whose calls are in its state."""

    tools: ClassVar[Any] = LibraryTools

    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        return [cls.tools(vf.ToolsetConfig())]

    @vf.reward
    async def is_right(self, trace: Any) -> float:
        return float(len(trace.state.lent))


def borrowing() -> Borrowing:
    return Borrowing(vf.TaskData(prompt="Lend."))


class BareBorrowing(Borrowing):
    tools = BareTools


@pytest.fixture
def toolsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets verifiers start the toolset, and removes the files that it leaves."""
    tests = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
    read_port = launch._read_back_port

    async def read(runtime: Any, path: str) -> int:
        try:
            return int(await read_port(runtime, path))
        finally:
            Path(path).unlink(missing_ok=True)

    monkeypatch.setattr(launch, "_read_back_port", read)


LENDING = {
    "bash": (
        'library_tools_lend Emma; library_tools_lend --json \'{"title": "Persuasion", "days": 3}\'',
        'library_tools_lend lost; echo "status $?"; library_tools_burn || echo failed',
        "RLM_CONTENT=$(library_tools_lend Emma) RLM_READY=1",
    ),
    "python": (
        "print(library_tools_lend('Emma')); print(library_tools_lend(title='Persuasion', days=3))",
        "for call in (lambda: library_tools_lend('lost')), library_tools_burn:\n"
        "    try: call()\n    except Exception as error: print('failed', error)",
        "answer.update(content=library_tools_lend('Emma'), ready=True)",
    ),
}


def check_lending(model: Model, trace: Any) -> None:
    assert trace.errors == [], trace.errors[0].message
    assert "3 lent" in trace.root_reply and trace.reward == 3.0
    assert trace.state.lent == ["Emma for 14 days", "Persuasion for 3 days", "Emma for 14 days"]
    # A call that fails is an error of the code's, and the session goes on.
    assert (trace.metrics["root_llm_turns"], trace.metrics["root_tool_error_count"]) == (3, 2)
    system = model.requests[0]["messages"][0]["content"]
    assert "library_tools_lend" in system and "Lends a book." in system
    outputs = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert "1 lent" in outputs[0] and "2 lent" in outputs[0], outputs
    assert "there is no such book" in outputs[1] and "failed" in outputs[1], outputs


@pytest.mark.parametrize("language", ["bash", "python"])
def test_code_calls_the_tools_of_a_task(model: Model, language: str, toolsets: None) -> None:
    model.replies = calls(language, *LENDING[language])
    check_lending(model, asyncio.run(agent(model, **IN[language]).run(borrowing())))


def test_tools_without_the_name_of_their_server(model: Model, toolsets: None) -> None:
    model.replies = calls("bash", "RLM_CONTENT=$(lend Emma 2) RLM_READY=1")
    trace = asyncio.run(agent(model).run(BareBorrowing(vf.TaskData(prompt="Lend."))))
    assert (trace.errors, trace.root_reply) == ([], "1 lent")
    assert trace.state.lent == ["Emma for 2 days"]


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
