"""Evaluations of Inspect, with its mock model and with a server, over our tools, agent and sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai import Task  # noqa: E402
from inspect_ai.agent import react  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage, execute_tools, get_model  # noqa: E402
from inspect_ai.scorer import includes  # noqa: E402
from inspect_ai.solver import solver  # noqa: E402
from inspect_ai.tool import ToolCall  # noqa: E402
from inspect_ai.util import SandboxEnvironmentSpec, SandboxUnavailableError  # noqa: E402
from inspect_ai.util._sandbox import self_check  # noqa: E402

from conftest import PATIENCE, json_server  # noqa: E402
from rlm_env.inspect import RlmSandbox, RlmSandboxConfig, bash_session, chat_model, python, rlm  # noqa: E402
from rlm_env.testing import Adapter, Call, cases  # noqa: E402

from .pages import example  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # those of Inspect and its libraries

Step = tuple[str, dict[str, Any]] | Callable[[list[str]], Any]


@pytest.fixture(scope="module", autouse=True)
def inspect_has_begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Inspect's own files and descriptors, which stay, are there before the first test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "INSPECT_LOG_DIR"):
            patch.setenv(name, str(tmp_path_factory.mktemp("inspect")))
        evaluate(chat(), lambda n, tools, messages: ModelOutput.from_content("mockllm/model", ""), 1, sandbox=None)
        yield


@solver
def chat() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        return await generate(state)

    return solve


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.chdir(tmp_path)


def samples(count: int) -> list[Sample]:
    return [Sample(input=f"Question {n}?", target=str(n), files={"a.txt": f"{n}\n"}) for n in range(count)]


def evaluate(solver: Any, steps: Callable[[int, Any, list[Any]], ModelOutput], count: int = 10, **options: Any) -> Any:
    """Runs an evaluation. `steps` gives the reply number N from the tools and the messages."""

    def outputs(messages: Any, tools: Any, *_: Any) -> ModelOutput:
        output = steps(sum(message.role == "tool" for message in messages), tools, messages)
        output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
        return output

    model = get_model("mockllm/model", custom_outputs=outputs)
    task = Task(samples(count), solver=solver, scorer=includes(), sandbox=options.pop("sandbox", "rlm"))
    [log] = inspect_ai.eval(task, model=model, display="none", log_level="error", **options)
    return log


def call(name: str, **arguments: Any) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", name, arguments)


def told(sample: Any) -> list[str]:
    """The texts of the tools."""
    return [message.text for message in sample.messages if message.role == "tool"]


def accuracy(log: Any) -> float:
    assert log.status == "success", log.error
    return float(log.results.scores[0].metrics["accuracy"].value)


def number(messages: list[Any]) -> str:
    return next(m.text for m in messages if m.role == "user").split()[1].rstrip("?")


def test_tools_keep_the_state_of_their_sample() -> None:
    calls = [
        ("python", {"code": "n = int(open('a.txt').read())"}),
        ("bash_session", {"action": "type", "input": "n=$(<a.txt)"}),
        ("bash_session", {"action": "type_submit", "input": "; cd /tmp"}),
        ("python", {"code": "print(n); big = 'x' * 10**7; print(big)"}),
        ("python", {"code": "print('begun', flush=True)\nwhile True: pass"}),
        ("python", {"code": "len(big), n"}),
        ("bash_session", {"action": "type_submit", "input": "echo $n; pwd; false"}),
    ]

    def steps(n: int, tools: Any, messages: Any) -> ModelOutput:
        if n < len(calls):
            return call(calls[n][0], **calls[n][1])
        return call("submit", answer=number(messages))

    log = evaluate(react(tools=[bash_session(), python(timeout=0.5)]), steps, max_samples=10)
    assert accuracy(log) == 1.0 and len(log.samples) == 10
    for sample in log.samples:
        said = told(sample)
        assert said[:3] == ["(no output)", "", "(no output)"]
        assert f"{sample.target}\nxxx" in said[3] and len(said[3]) < 20_000
        assert said[4].startswith("begun\n") and "[timed out: " in said[4]
        assert said[5] == f"Out[4]: (10000000, {sample.target})"
        assert said[6] == f"{sample.target}\n/tmp\n[exit status 1]"
        errors = [message.error for message in sample.messages if message.role == "tool" and message.error]
        assert [(error.type, error.message) for error in errors] == [
            ("timeout", "Command timed out before completing.")
        ]


def test_commands_that_take_long_and_shells_that_die() -> None:
    def session(action: str, input: str | None = None) -> ModelOutput:
        return call("bash_session", action=action, **({"input": input} if input else {}))

    replies = [
        lambda: session("type_submit", "kept=1; echo begun; while [ ! -e go ]; do sleep 0.05; done; echo went"),
        lambda: session("type_submit", "echo refused"),
        lambda: call("python", code="open('go', 'w').close()"),
        lambda: session("read"),
        lambda: session("read"),
        lambda: session("type_submit", "sleep 1000"),
        lambda: session("interrupt"),
        lambda: session("type_submit", "echo $kept"),
        lambda: session("read", "too much"),
        lambda: session("type_submit", "kill -9 $$"),
        lambda: session("type_submit", "again=1"),
        lambda: session("restart"),
        lambda: session("type_submit", "echo ${again-gone}"),
        lambda: session("read"),
        lambda: call("python", code="import os; os.kill(os.getpid(), 9)"),
        lambda: call("python", code="1 + 1"),
        lambda: call("submit", answer="0"),
    ]
    agent = react(tools=[bash_session(wait_for_output=1), python()])
    [sample] = evaluate(agent, lambda n, tools, messages: replies[n](), 1).samples
    said = told(sample)
    assert "still running" in said[0] and "still running" in said[1]
    assert said[3] == "begun\nwent" and said[4] == ""
    assert "still running" in said[5] and "[interrupted: " in said[6]
    assert said[7] == "1" and "Do not provide 'input'" in str([m.error for m in sample.messages if m.role == "tool"])
    assert "exited: the shell ended with status 137" in said[9]
    assert said[11] == "Bash session restarted." and "gone" in said[12:14]
    assert "[crashed: " in said[14] and said[15].endswith(": 2")


def test_tools_without_a_sandbox_and_with_functions_and_models() -> None:
    def search(text: str) -> str:
        """Searches."""
        if not text:
            raise ValueError("nothing to search")
        return text.upper()

    codes = [
        f"import os; os.listdir('.'), search('a'), os.path.exists({__file__!r})",
        "search('')",
        "said = llm_batch(['one'])",
        "said",
        "open('mine', 'w').close()",
    ]

    def steps(n: int, tools: Any, messages: Any) -> ModelOutput:
        if not tools:
            return ModelOutput.from_content("mockllm/model", f"said {messages[-1].text}")
        return call("python", code=codes[n]) if n < len(codes) else call("submit", answer=number(messages))

    agent = react(tools=[python(tools=[search], models=chat_model())])
    log = evaluate(agent, steps, 2, sandbox=None)
    assert accuracy(log) == 1.0
    for sample in log.samples:
        said = told(sample)
        assert said[0] == "Out[1]: ([], 'A', False)" and "ValueError: nothing to search" in said[1]
        assert said[3] == "Out[4]: ['said one']"
        assert sum(event.event == "model" for event in sample.events) == 7


def _used(output: ModelOutput) -> ModelOutput:
    output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
    return output


def _tools(messages: Any) -> int:
    return sum(message.role == "tool" for message in messages)


CODES = {
    "bash": ["n=$(<a.txt); echo $n", "llm_batch one two", "kill -9 $$", "RLM_CONTENT=$(<a.txt) RLM_READY=1"],
    "python": [
        "n = open('a.txt').read(); print(n)",
        "print(llm_batch(['one', 'two']))",
        "import os; os.kill(os.getpid(), 9)",
        "answer.update(content=open('a.txt').read(), ready=True)",
    ],
}


@pytest.mark.parametrize("language", ["bash", "python"])
def test_rollouts(language: str) -> None:
    def steps(n: int, tools: Any, messages: Any) -> ModelOutput:
        if not tools:
            return ModelOutput.from_content("mockllm/model", "sub")
        return call(tools[0].name, code=CODES[language][n])

    log = evaluate(rlm(language=language), steps, max_samples=10)
    assert accuracy(log) == 1.0 and len(log.samples) == 10
    for sample in log.samples:
        assert sample.output.completion.strip() == sample.target
        assert sample.output.metadata["stop_reason"] == "answered"
        assert sample.output.metadata["metrics"]["sub_llm_call_count"] == 2
        events = [event for event in sample.events if event.event == "model"]
        assert len(events) == 6 and sum(not event.tools for event in events) == 2
        assert sample.model_usage["mockllm/model"].total_tokens == 6 * 15
        roles = [message.role for message in sample.messages]
        assert roles == ["system", "user", *["assistant", "tool"] * 3, "assistant", "assistant"]
        names = [event.name for event in sample.events if event.event == "span_begin"]
        assert names.count("sub-call") == 2


def promise(name: str) -> Any:
    """A solver that runs a case: sessions are tools of its sample, each an instance of its own."""

    @asynccontextmanager
    async def open(language: Any, tools: Any, timeout: float) -> AsyncIterator[Call]:
        options: dict[str, Any] = {"timeout": timeout, "tools": tools, "instance": uuid.uuid4().hex}
        used = python(**options) if language == "python" else bash_session(**options, wait_for_output=300)

        async def call(code: str) -> str:
            arguments = {"code": code} if language == "python" else {"action": "type_submit", "input": code}
            function = "python" if language == "python" else "bash_session"
            asked = ChatMessageAssistant(content="", tool_calls=[ToolCall("c", function, arguments)])
            [said], _ = await execute_tools([asked], [used])
            return said.text

        yield call

    @solver
    def run() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            # A task that the case cancels is not one of Inspect.
            await dict(cases(Adapter("inspect", open)))[name]()
            return state

        return solve

    return run()


# Sessions end with their sample, which the test of interruption has.
PROMISES = [name for name, _ in cases(Adapter("inspect", None, leaves_out={"nothing_is_left"}))]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_of_the_tools(name: str) -> None:
    log = evaluate(promise(name), lambda *_: ModelOutput(), 1, fail_on_error=True)
    assert log.status == "success", log.error.message


def test_limits_end_a_rollout() -> None:
    def steps(n: int, tools: Any, messages: Any) -> ModelOutput:
        code = "sleep 1000" if messages and number(messages) == "1" else "llm_batch one"
        return call(tools[0].name, code=code) if tools else ModelOutput.from_content("mockllm/model", "sub")

    log = evaluate(rlm(), steps, 2, time_limit=3)
    assert log.samples[1].limit.type == "time"
    log = evaluate(rlm(), lambda n, tools, messages: steps(n, tools, messages[:0]), 2, token_limit=70)
    assert log.status == "success" and [sample.limit.type for sample in log.samples] == ["token", "token"]
    log = evaluate(rlm(max_turns=2), lambda n, tools, _: call(tools[0].name, code="echo $((n += 1))"), 1)
    assert log.samples[0].output.metadata["stop_reason"] == "max_turns" and accuracy(log) == 0.0

    def failing(n: int, tools: Any, messages: Any) -> ModelOutput:
        raise OSError("the model is broken")

    log = evaluate(rlm(), failing, 1)
    assert log.status == "error" and "the model is broken" in log.error.message


def test_limits_end_calls_of_tools() -> None:
    def steps(n: int, tools: Any, messages: Any) -> ModelOutput:
        if number(messages) == "0":
            return call("python", code="import time; time.sleep(1000)")
        return call("bash_session", action="type_submit", input="(setsid sleep 1000 &) ; sleep 1000")

    began = time.monotonic()
    log = evaluate(react(tools=[bash_session(), python(timeout=None)]), steps, 2, time_limit=2)
    assert [sample.limit.type for sample in log.samples] == ["time", "time"]
    assert time.monotonic() - began < 20


TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from rlm_env.inspect import rlm

@task
def numbers(language="bash", count=10):
    samples = [Sample(input=f"Question {n}?", target=str(n), files={"a.txt": f"{n}\\n"}) for n in range(count)]
    return Task(samples, solver=rlm(language=language), scorer=includes(), sandbox="rlm")
"""


def scripted(language: str, hang: list[str]) -> Callable[[str, Any, Any], tuple[int, Any]]:
    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        assert path.endswith("/chat/completions"), path
        message: dict[str, Any] = {"role": "assistant", "content": "sub"}
        if body.get("tools"):
            code = CODES[language][sum(one["role"] == "tool" for one in body["messages"])]
            if hang:
                code = hang[0]
            name = body["tools"][0]["function"]["name"]
            function = {"name": name, "arguments": json.dumps({"code": code})}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]}
            message["tool_calls"][0]["function"] = function
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if body.get("tools") else "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        document = {"id": "r", "object": "chat.completion", "created": 0, "model": "m"}
        return 200, {**document, "choices": [choice], "usage": usage}

    return reply


def command(url: str, task: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """`inspect eval` with a model at this address."""
    program = [sys.executable, "-m", "inspect_ai", "eval", task.name, "--model", "openai-api/scripted/m"]
    program += ["--display", "plain", "--log-format", "json", *arguments]
    path = os.pathsep.join([*map(str, sys.path)])
    return program, {**os.environ, "SCRIPTED_BASE_URL": url + "/v1", "SCRIPTED_API_KEY": "k", "PYTHONPATH": path}


@pytest.mark.parametrize("language", ["bash", "python"])
def test_the_command_with_a_server_and_50_samples_at_once(language: str, tmp_path: Path) -> None:
    task = tmp_path / "task.py"
    task.write_text(TASK)
    with json_server(scripted(language, [])) as url:
        arguments = ["-T", f"language={language}", "-T", "count=50", "--max-samples", "50", "--max-connections", "50"]
        program, environment = command(url, task, *arguments)
        ran = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0 and "1.000" in ran.stdout, ran.stdout + ran.stderr
    [log] = (json.loads(path.read_text()) for path in (tmp_path / "logs").glob("*.json"))
    assert log["status"] == "success" and len(log["samples"]) == 50
    assert log["stats"]["model_usage"]["openai-api/scripted/m"]["total_tokens"] == 50 * 6 * 15
    assert {sum(event["event"] == "model" for event in sample["events"]) for sample in log["samples"]} == {6}


def test_an_evaluation_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    task = tmp_path / "task.py"
    task.write_text(TASK)
    mark = "4071.5"
    with json_server(scripted("bash", [f"setsid nohup sleep {mark} & sleep {mark}"])) as url:
        program, environment = command(url, task, "-T", "count=5")
        process = subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + PATIENCE
        while len(_running(mark)) < 10:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        said, _ = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 10 and _running(mark) == [], said.decode()


def _running(mark: str) -> list[str]:
    """Processes with this word among their arguments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words and words[0] == b"sleep":
            found.append(pid)
    return found


CHECKS = {name: check for name, check in vars(self_check).items() if name.startswith("test_")}
UNMET = {"test_exec_as_user"}


def in_sandbox(work: Callable[[Any], Awaitable[Any]], config: RlmSandboxConfig | None = None) -> Any:
    async def run() -> Any:
        environments = await RlmSandbox.sample_init("task", config, {})
        try:
            return await work(environments["default"])
        finally:
            await RlmSandbox.sample_cleanup("task", config, environments, False)

    return asyncio.run(run())


unmet = pytest.mark.xfail(reason="a sandbox has one user", strict=True)


@pytest.mark.parametrize("name", [pytest.param(name, marks=unmet if name in UNMET else ()) for name in CHECKS])
def test_the_sandbox_passes_the_checks_of_inspect(name: str) -> None:
    in_sandbox(CHECKS[name])


def test_a_sandbox() -> None:
    async def work(box: Any) -> None:
        assert (await box.exec(["no-such-program"])).returncode == 127
        ran = await box.exec(["sh", "-c", "echo out; echo err >&2; cat; echo $A; exit 3"], input="in\n", env={"A": "b"})
        assert (ran.returncode, ran.stdout, ran.stderr) == (3, "out\nin\nb\n", "err\n")
        # A program in the background stays, and holds no call up.
        await box.exec(["sh", "-c", "(while [ ! -e stop ]; do sleep 0.05; done; echo ended >ended) &"])
        await box.write_file("stop", "")
        while (await box.exec(["test", "-e", "ended"])).returncode:
            pass
        # Many at once.
        together = await asyncio.gather(*(box.exec(["sh", "-c", f"sleep 0.1; echo {n}"]) for n in range(8)))
        assert [one.stdout for one in together] == [f"{n}\n" for n in range(8)]
        # Links do not lead out of it.
        await box.exec(["ln", "-s", "/etc/shadow", "link"])
        with pytest.raises((FileNotFoundError, PermissionError)):
            await box.read_file("link")
        with pytest.raises(FileNotFoundError):
            await box.read_file(f"{Path.home()}/.bashrc")
        # A cancelled call has ended, and the next one works.
        running = asyncio.create_task(box.exec(["sleep", "4072.5"]))
        while not (await box.exec(["sh", "-c", "true"])).success or not _running("4072.5"):
            await asyncio.sleep(0.01)
        running.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await running
        while _running("4072.5"):
            await asyncio.sleep(0.01)
        assert time.monotonic() - began < 1
        # Output has a bound.
        assert len((await box.exec(["sh", "-c", "head -c 30000000 /dev/zero"])).stdout) == 10 << 20
        # A session that is killed is told, and another begins.
        with pytest.raises(SandboxUnavailableError):
            for _ in range(9):
                await box.exec(["sh", "-c", "kill -9 $PPID; sleep 1000"])
        assert (await box.exec(["echo", "back"])).stdout == "back\n"

    in_sandbox(work)
    spec = SandboxEnvironmentSpec("rlm", RlmSandboxConfig(confine="off", env={"A": "1"}))
    assert SandboxEnvironmentSpec.model_validate(spec.model_dump()) == spec
    config = RlmSandboxConfig(confine="off", env={"A": "1"})
    assert in_sandbox(lambda box: box.exec(["sh", "-c", "echo $A; test -d /root"]), config).stdout == "1\n"


def test_the_example_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "logs.txt").write_text("a\nb\n")
    task = example("inspect.md", "def logs")["logs"]()

    def steps(n: int, tools: Any, messages: Any) -> ModelOutput:
        code = "RLM_CONTENT=$(wc -l <logs.txt) RLM_READY=1" if n else "cat logs.txt"
        return call(tools[0].name, code=code)

    model = get_model("mockllm/model", custom_outputs=lambda m, t, *_: _used(steps(_tools(m), t, m)))
    [log] = inspect_ai.eval(task, model=model, display="none")
    assert accuracy(log) == 1.0
