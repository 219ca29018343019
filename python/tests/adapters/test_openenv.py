"""Clients of OpenEnv and our server, and its repl_env where that can be imported."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openenv")

from openenv.core import GenericEnvClient  # noqa: E402

from conftest import PATIENCE, wait_until  # noqa: E402
from promises import in_threads, parameters  # noqa: E402
from rlm_env._files import PrivateDirectory  # noqa: E402
from rlm_env.openenv import ReplAction, ReplEnvironment, use_sessions  # noqa: E402
from rlm_env.testing import Adapter, _mark, _processes  # noqa: E402

from .pages import DOCS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # those of OpenEnv and its libraries


@contextmanager
def serving(*arguments: str, **variables: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The server as a program, on a free port."""
    command = [sys.executable, "-m", "rlm_env.openenv", "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = b""
        while not (found := re.search(rb"running on (http://[\d.:]+)", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        try:
            yield found.group(1).decode(), process
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


def test_an_episode() -> None:
    with serving("--timeout", "1", "--max-iterations", "9") as (url, _), GenericEnvClient(base_url=url).sync() as env:
        began = env.reset(context="Hello World", task_prompt="Count", expected_answer="11", hf_token="unused")
        assert began.observation["context_length"] == 11 and not began.done
        taken = env.step({"code": "count = len(context)\nimport os; open('file', 'w').close(); os.listdir('.')"})
        assert taken.observation["result"]["stdout"] == '["file"]'
        assert taken.observation["result"]["locals_snapshot"]["count"] == "11"
        taken = env.step({"code": "1/0"})
        assert taken.reward == -0.05 and taken.observation["result"]["exception"].startswith("ZeroDivisionError")
        taken = env.step({"code": "kept = 1\nprint('begun')\nwhile True: pass"})
        assert taken.observation["result"]["stdout"] == "begun\n"
        assert "time limit of 1 s" in taken.observation["result"]["exception"]
        taken = env.step({"code": "print('x' * 100_000, kept)"})
        assert taken.observation["result"]["stdout"].endswith("... (truncated, total 100003 chars)")
        taken = env.step({"code": "os.kill(os.getpid(), 9)"})
        assert "SIGKILL" in taken.observation["result"]["exception"]
        assert "kept" not in taken.observation["available_variables"]
        assert (state := env.state())["iteration"] == 5 and state["task_prompt"] == "Count", state
        taken = env.step({"code": "count = len(context)\nFINAL(count)"})
        assert (taken.done, taken.reward) == (True, 1.0), taken
        assert env.state()["final_answer"] == "11"
        # Another episode is another session.
        env.reset(context="new")
        taken = env.step({"code": "import os; print(os.listdir('.'), 'count' in globals(), context)"})
        assert taken.observation["result"]["stdout"] == "[] False new\n"
        for _ in range(9):
            taken = env.step({"code": "answer['content'] = 'so far'"})
        assert taken.done and taken.metadata["final_answer"] == "so far"
        env.reset()
        taken = env.step({"code": "", "is_final": True, "final_answer": "mine"})
        assert taken.done and taken.reward == 0.0


def test_the_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    [block] = re.findall(r"```python\n(.*?)```", (DOCS / "openenv.md").read_text(), re.DOTALL)
    with serving() as (url, _):
        exec(block.replace("http://127.0.0.1:8000", url), {})
    assert capsys.readouterr().out == "True 1.0\n"


def test_a_hundred_sessions_in_one_server() -> None:
    """Each sees its own state, and the server is as it was when they are gone."""

    async def client(url: str, number: int, all_are_there: asyncio.Barrier) -> Any:
        async with GenericEnvClient(base_url=url, connect_timeout_s=PATIENCE, message_timeout_s=PATIENCE) as env:
            await env.reset(context=f"context {number}")
            await env.step({"code": f"mine = {number}"})
            await all_are_there.wait()
            taken = await env.step({"code": "print(mine, context, [n for n in globals() if n == 'other'])"})
            return taken.observation["result"]["stdout"]

    async def together(url: str) -> list[Any]:
        barrier = asyncio.Barrier(100)
        return await asyncio.gather(*(client(url, number, barrier) for number in range(100)))

    if sys.version_info < (3, 11):
        pytest.skip("asyncio.Barrier is of Python 3.11")
    with serving() as (url, process):
        said = asyncio.run(together(url))
        assert said == [f"{number} context {number} []\n" for number in range(100)]
        wait_until(lambda: _children_of(process.pid) == [], "the end of the sessions")


def _children_of(pid: int) -> list[str]:
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(FileNotFoundError):
            found += Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
    return found


def test_a_client_too_many_and_clients_that_go_away() -> None:
    async def leave(url: str, how: str) -> None:
        mark = _mark()
        code = f"import subprocess; subprocess.run(['sleep', '{mark}'])"
        async with GenericEnvClient(base_url=url) as env:
            await env.reset()
            running = asyncio.ensure_future(env.step({"code": code}))
            while not _processes(mark):
                await asyncio.sleep(0.01)
            if how == "full":
                with pytest.raises(Exception, match="[Cc]apacity|CAPACITY"):
                    async with GenericEnvClient(base_url=url) as other:
                        await other.reset()
            began = time.monotonic()
            env._ws.transport.abort()  # the connection breaks
            while _processes(mark):
                await asyncio.sleep(0.01)
            assert time.monotonic() - began < 2
            await asyncio.gather(running, return_exceptions=True)

    with serving("--max-sessions", "1") as (url, process):
        for how in ("full", "again"):
            asyncio.run(leave(url, how))
            wait_until(lambda: _children_of(process.pid) == [], "the end of the session")


def test_a_server_that_is_killed_leaves_no_process(nothing_is_left: Path) -> None:
    mark = _mark()
    with serving() as (url, process):
        client = GenericEnvClient(base_url=url).sync()
        with pytest.raises(Exception):  # noqa: B017
            with client as env:
                env.reset()
                env.step({"code": f"import subprocess; subprocess.Popen(['sleep', '{mark}'], start_new_session=True)"})
                assert len(_processes(mark)) == 1
                process.send_signal(signal.SIGKILL)
                process.wait()
                wait_until(lambda: not _processes(mark), "the end of the session")
                env.step({"code": "1"})
    PrivateDirectory().remove()  # the next program removes its directories
    assert list(nothing_is_left.iterdir()) == []


def test_models_of_the_server() -> None:
    async def ask(messages: Any, tools: Any, **_: Any) -> str:
        return f"said {messages[-1]['content']}"

    environment = ReplEnvironment(models=ask, confine="off")
    try:
        observation = environment.reset()
        assert {"llm_query", "llm_query_batched", "rlm_query"} <= set(observation.available_variables)
        code = "replies = [llm_query('a'), *llm_query_batched(['b', 'c'])]"
        assert environment.step(ReplAction(code=code)).result.success
        said = environment.step(ReplAction(code="replies")).result.stdout
        assert said == '["said a", "said b", "said c"]'
    finally:
        environment.close()
        environment.close()


def test_runners_of_repl_env_use_sessions() -> None:
    pytest.importorskip("repl_env", reason="OpenEnv's repl_env is not on the path: clone OpenEnv, and add its envs/")
    from repl_env import LocalRLMRunner, REPLEnv, local

    def chat(messages: list[dict[str, str]], model: str | None = None) -> str:
        text = "\n".join(message["content"] for message in messages)
        if "Deeper?" in text.replace("rlm_query('Deeper?')", ""):
            return "```repl\nclass Child: pass\nprint(FINAL(Child.__name__))\n```"
        if text in ("a", "b"):
            return f"said {text}"
        turn = sum(message["role"] == "assistant" for message in messages)
        return [
            "```repl\nsaid = llm_query_batched(['a', 'b'])\nchild = rlm_query('Deeper?')\n```",
            "```repl\nprint(f'FINAL({said} {child})')\n```",
        ][turn]

    original = local.REPLEnvironment
    try:
        use_sessions()
        result = LocalRLMRunner(chat).run("text", "What?")
    finally:
        local.REPLEnvironment = original
    assert result.final_answer == "['said a', 'said b'] Child", result
    with serving() as (url, _), REPLEnv(base_url=url).sync() as env:
        env.reset(context="Hello World", expected_answer="11")
        env.execute("count = len(context)")
        assert "count" in env.list_variables()
        assert env.get_variable("count").observation.result.stdout == "11\n"
        assert env.submit_final_answer("11").reward == 1.0


@in_threads
@contextmanager
def episode(language: Any, tools: Any, timeout: float) -> Iterator[Any]:
    environment = ReplEnvironment(
        timeout=timeout, confine="off", max_iterations=99, llm_query_fn=tools[0] if tools else None
    )

    def run(code: str) -> str:
        result = environment.step(ReplAction(code=code)).result
        return f"{result.stdout}\n{result.stderr}"

    try:
        environment.reset()
        if tools:
            run(f"{tools[0].__name__} = llm_query")
        yield run, lambda: environment._running().interrupt()
    finally:
        environment.close()


@pytest.mark.parametrize("case", parameters(Adapter("openenv", episode, ("python",))))
async def test_a_promise_of_an_episode(case: Callable[[], Any]) -> None:
    await case()
