"""Jobs of Harbor over toy tasks, in our environment, with a scripted server of models."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("harbor")

from harbor.job import Job  # noqa: E402
from harbor.models.job.config import JobConfig  # noqa: E402
from harbor.models.task.config import EnvironmentConfig  # noqa: E402
from harbor.models.trial.paths import TrialPaths  # noqa: E402

from conftest import PATIENCE, json_server, wait_until  # noqa: E402
from rlm_env._harbor_dockerfile import read_dockerfile  # noqa: E402
from rlm_env.harbor import RlmEnvironment  # noqa: E402
from rlm_env.testing import _mark, _processes  # noqa: E402

from .pages import DOCS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # those of Harbor and its libraries

AGENT, ENVIRONMENT = "rlm_env.harbor:RlmAgent", "rlm_env.harbor:RlmEnvironment"

DOCKERFILE = r"""
# An image's programs are those of the host.
FROM ubuntu:24.04
ENV DATA=/app/data LIMIT=3
WORKDIR /app
COPY numbers.txt ${DATA}/
RUN sort -n data/numbers.txt \
    >data/sorted.txt && echo $LIMIT >data/limit
CMD ["bash"]
"""

TEST = """#!/bin/bash
if [ "$(cat /app/sum.txt)" = 12 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
echo "$DATA $(pwd)"
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Harbor's own files, which stay, are in a directory of the test."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    # Nothing reaches for the network.
    monkeypatch.setenv("HARBOR_TELEMETRY", "0")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task: the sum of the numbers in a file. Its solution writes the sum that it is told in `GIVEN`."""
    made = tmp_path / "tasks" / "sums"
    for name, text in {
        "task.toml": 'schema_version = "1.2"\n[agent]\ntimeout_sec = 60.0\n[verifier]\ntimeout_sec = 60.0\n',
        "instruction.md": "Write the sum of the numbers in data/numbers.txt into sum.txt.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/numbers.txt": "7\n5\n",
        "tests/test.sh": TEST,
        "solution/solve.sh": '#!/bin/bash\nawk "{ n += \\$1 } END { print n }" $DATA/sorted.txt >sum.txt\n',
    }.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


def scripted(codes: list[str]) -> Callable[[str, Any, Any], tuple[int, Any]]:
    """A model that runs this code, turn by turn."""

    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        code = codes[sum(one["role"] == "tool" for one in body["messages"])]
        function = {"name": body["tools"][0]["function"]["name"], "arguments": json.dumps({"code": code})}
        message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]}
        message["tool_calls"][0]["function"] = function  # type: ignore[index]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        document = {"id": "r", "object": "chat.completion", "created": 0, "model": body["model"]}
        return 200, {**document, "choices": [choice], "usage": usage}

    return reply


def run_job(task: Path, agent: dict[str, Any], **settings: Any) -> Any:
    """The result of the only trial of a job."""

    async def run() -> Any:
        document = {
            "job_name": "job",
            "jobs_dir": "jobs",
            "quiet": True,
            "tasks": [{"path": str(task)}],
            "agents": [agent],
            "environment": {"import_path": ENVIRONMENT},
            **settings,
        }
        return await (await Job.create(JobConfig.model_validate(document))).run()

    asyncio.run(run())
    [path] = Path("jobs/job").glob("*/result.json")
    return json.loads(path.read_text())


def reward(result: Any) -> float:
    assert result["exception_info"] is None, result["exception_info"]
    return float(result["verifier_result"]["rewards"]["reward"])


@pytest.mark.parametrize("answer", ["12", "13"])
def test_a_job_with_rollouts(answer: str, task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = _mark()
    codes = [f"n=$(wc -l <data/numbers.txt); (setsid nohup sleep {mark} &)", f"echo {answer} >sum.txt; echo $n"]
    with json_server(scripted([*codes, 'RLM_CONTENT="$n" RLM_READY=1'])) as url:
        monkeypatch.setenv("RLM_BASE_URL", f"{url}/v1")
        result = run_job(task, {"import_path": AGENT, "model_name": "m"})
    assert reward(result) == (answer == "12")
    told = result["agent_result"]
    assert (told["n_input_tokens"], told["n_output_tokens"]) == (30, 15)
    assert told["metadata"]["acp"]["prompt_response"]["stopReason"] == "end_turn"
    [trial] = Path("jobs/job").glob("sums__*")
    assert (trial / "verifier/test-stdout.txt").read_text() == "/app/data /app\n"
    steps = json.loads((trial / "agent/trajectory.json").read_text())["steps"]
    shown = [one["content"] for step in steps for one in (step.get("observation") or {}).get("results", [])]
    assert [text.rstrip().endswith("\n2") for text in shown] == [False, True, False], shown
    assert [call["arguments"]["code"] for step in steps for call in step.get("tool_calls") or []][:2] == codes
    assert _processes(mark) == []


def test_a_job_with_the_solution_of_the_task(task: Path) -> None:
    assert reward(run_job(task, {"name": "oracle"})) == 1.0


def test_an_agent_that_takes_too_long(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = _mark()
    with json_server(scripted([f"echo 12 >sum.txt; (setsid nohup sleep {mark} &); sleep {mark}"])) as url:
        monkeypatch.setenv("RLM_BASE_URL", f"{url}/v1")
        began = time.monotonic()
        result = run_job(task, {"import_path": AGENT, "model_name": "m", "override_timeout_sec": 4})
    assert time.monotonic() - began < 60
    assert result["exception_info"]["exception_type"] == "AgentTimeoutError"
    # Harbor grades what is there.
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert _processes(mark) == []


def test_a_model_that_fails(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with json_server(lambda *_: (401, {"error": {"message": "no such key"}})) as url:
        monkeypatch.setenv("RLM_BASE_URL", f"{url}/v1")
        result = run_job(task, {"import_path": AGENT, "model_name": "m"})
    assert "Command failed (exit 1)" in result["exception_info"]["exception_message"]
    [summary] = Path("jobs/job").glob("*/agent/acp-summary.json")
    assert "no such key" in summary.read_text()


def test_the_example_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    block = (DOCS / "harbor.md").read_text().split("```sh\n")[1].split("```")[0]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    with json_server(scripted(["echo 12 >sum.txt; RLM_CONTENT=12 RLM_READY=1"])) as url:
        script = block.replace("https://host", url)
        ran = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    [path] = Path("jobs").glob("*/*/result.json")
    assert reward(json.loads(path.read_text())) == 1.0


@contextmanager
def environment(tmp_path: Path, dockerfile: str = "", **options: Any) -> Iterator[tuple[Any, asyncio.Runner]]:
    directory, trial = tmp_path / "environment", TrialPaths(tmp_path / "trial")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "a.txt").write_text("a\n")
    (directory / "Dockerfile").write_text(dockerfile or "FROM scratch\n")
    trial.mkdir()
    with asyncio.Runner() as runner:
        made = RlmEnvironment(directory, "name", "session", trial, EnvironmentConfig(), **options)
        try:
            runner.run(made.start(False))
            yield made, runner
        finally:
            runner.run(made.stop(True))


def said(ran: Any) -> tuple[int, str, str]:
    return ran.return_code, ran.stdout, ran.stderr


def test_commands_of_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "given"
    given.mkdir()
    mounts = [{"type": "bind", "source": str(given), "target": "/given"}]
    options: dict[str, Any] = {"persistent_env": {"A": "1"}, "mounts": mounts, "read": [str(DOCS)]}
    with environment(tmp_path, "FROM a\nWORKDIR /app", **options) as (box, runner):

        def run(command: str, **options: Any) -> tuple[int, str, str]:
            return said(runner.run(box.exec(command, **options)))

        assert run("pwd; echo $A $B; echo err >&2; exit 3", env={"B": "2"}) == (3, "/app\n1 2\n", "err\n")
        assert run("cat; pwd", cwd="/tmp", user="root") == (0, "/tmp\n", "")
        assert run("kill -9 $$")[0] == 137 and run(f"ls {DOCS}/harbor.md; echo x >/given/made")[0] == 0
        assert (given / "made").read_text() == "x\n"
        # The host is not there, and its programs cannot be changed.
        here = Path(__file__)
        assert run(f"ls {here}")[0] == 2 and run(f"touch /usr/x {DOCS}/x || mount -o remount,rw /usr")[0] != 0
        assert run("ps -e -o comm= | grep -c -v -e ps -e bash -e grep")[1] == "1\n"
        with pytest.raises(RuntimeError, match="runs nothing as 'agent'"):
            run("true", user="agent")
        # A program in the background stays, and holds no command up.
        mark, began = _mark(), time.monotonic()
        run(f"(setsid sleep {mark} &)")
        with pytest.raises(RuntimeError, match="timed out after 1 s"):
            run(f"sleep {_mark()}", timeout_sec=1)
        assert time.monotonic() - began < 30 and len(_processes(mark)) == 1
        # Many at once.

        async def together() -> list[Any]:
            return await asyncio.gather(*(box.exec(f"sleep 0.1; echo {n}") for n in range(8)))

        assert [one.stdout for one in runner.run(together())] == [f"{n}\n" for n in range(8)]
        # A cancelled command has ended.
        second = _mark()

        async def cancelled() -> None:
            running = asyncio.ensure_future(box.exec(f"sleep {second}"))
            while not _processes(second):
                await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        runner.run(cancelled())
        wait_until(lambda: not _processes(second), "the end of the command")
    assert _processes(mark) == []
    with pytest.raises(RuntimeError, match="is not running"):
        asyncio.run(box.exec("true"))
    error = "cannot start: mount of /no/such at .*: No such file or directory"
    with pytest.raises(RuntimeError, match=error), environment(tmp_path, read=["/no/such"]):
        pass
    # A host that allows no namespaces.
    (tmp_path / "unshare").write_text("#!/bin/sh\necho unshare failed: Operation not permitted >&2; exit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(RuntimeError, match="cannot start: unshare failed: Op"), environment(tmp_path):
        pass


def test_files_of_an_environment(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep/run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "deep/run.sh").chmod(0o755)
    with environment(tmp_path) as (box, runner):
        runner.run(box.upload_dir(source, "/new/place"))
        runner.run(box.upload_file(source / "deep/run.sh", "/else/where"))
        runner.run(box.upload_file(source / "deep/run.sh", "/app/../again"))
        ran = runner.run(box.exec("/new/place/deep/run.sh; /else/where; ./again; mkfifo /new/fifo"))
        assert said(ran) == (0, "ran\n" * 3, "")
        # Links are those of the environment.
        (tmp_path / "kept").write_text("kept")
        runner.run(box.exec(f"mkdir -p {tmp_path} && echo mine >{tmp_path}/kept && ln -s {tmp_path}/kept /app/link"))
        runner.run(box.download_file("/app/link", tmp_path / "got"))
        assert (tmp_path / "got").read_text() == "mine\n" and (tmp_path / "kept").read_text() == "kept"
        runner.run(box.upload_file(source / "deep/run.sh", "/app/link"))
        assert (tmp_path / "kept").read_text() == "kept"
        runner.run(box.download_dir("/new", tmp_path / "back"))
        assert os.access(tmp_path / "back/place/deep/run.sh", os.X_OK) and not (tmp_path / "back/fifo").exists()
        with pytest.raises(RuntimeError, match="No such file"):
            runner.run(box.download_file("/none", tmp_path / "none"))
        assert not (tmp_path / "none").exists()


def test_dockerfiles(tmp_path: Path) -> None:
    text = 'FROM a AS b\nWORKDIR /x\nWORKDIR y\nENV P=/q PATH="/bin:$PATH"\nENV old style value\n'
    text += 'COPY ["a.txt", "$P/"]\nRUN ["mkdir", "a b"]\nADD *.txt b.txt\nCOPY . all/\nEXPOSE 80'
    with environment(tmp_path, text) as (box, runner):
        ran = runner.run(box.exec("pwd; ls; ls all /q; echo $old $PATH"))
        listed = "/x/y\na b\nall\nb.txt\n/q:\na.txt\n\nall:\nDockerfile\na.txt\n"
        assert ran.stdout.startswith(f"{listed}style value /bin:/usr/local")
    for line, error in {
        "USER agent": "does not follow USER",
        "FROM b": "several stages",
        "COPY --from=b a.txt c": "options and here-documents of COPY",
        "RUN <<EOF": "options and here-documents of RUN",
    }.items():
        path = tmp_path / "Dockerfile"
        path.write_text(f"FROM a\n{line}\n")
        with pytest.raises(ValueError, match=error):
            read_dockerfile(path)
    for line, error in {
        "RUN echo why >&2; false": "status 1 of echo why >&2; false: why",
        "COPY ../trial c": "there is no ../trial to copy",
        "COPY other.txt c": "there is no other.txt to copy",
    }.items():
        with pytest.raises((RuntimeError, ValueError), match=error), environment(tmp_path, f"FROM a\n{line}\n"):
            pass


def test_a_host_that_is_killed_leaves_no_process(tmp_path: Path, nothing_is_left: Path) -> None:
    mark = _mark()
    code = f"""
import asyncio, os, signal
from pathlib import Path
from tests.adapters.test_harbor import environment
with environment(Path({str(tmp_path)!r})) as (box, runner):
    runner.run(box.exec("(setsid sleep {mark} &)"))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    paths = os.pathsep.join([str(DOCS.parent / "python"), *sys.path])
    ran = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, capture_output=True)
    assert ran.returncode == -9, ran.stderr.decode()
    wait_until(lambda: not _processes(mark), "the end of the environment")
    with environment(tmp_path / "next"):
        pass
    assert list(nothing_is_left.iterdir()) == []
