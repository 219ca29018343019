"""rlms' own RLM over our sessions, and over its own REPL."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import json_server, until

pytest.importorskip("rlm", reason="rlms is not installed")

import rlm.core.rlm
import rlm.environments
from rlm import RLM
from rlm.clients.base_lm import BaseLM
from rlm.core.types import ModelUsageSummary, RLMChatCompletion, UsageSummary
from rlm.environments import SupportsPersistence
from rlm.environments.local_repl import LocalREPL
from rlm.logger import RLMLogger

from rlm_env import SessionConfig, find_program
from rlm_env.rlms import SessionBackend, SessionREPL, use_sessions

# rlms leaves the socket of its handler to the garbage collection.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


class Scripted(BaseLM):  # type: ignore[misc]
    """A model that says one thing after the other; to a sub-call, the length of its prompt."""

    def __init__(self, replies: list[str]) -> None:
        super().__init__(model_name="scripted")
        self.replies = replies

    def completion(self, prompt: Any) -> str:
        if isinstance(prompt, str):
            return f"{len(prompt)} characters"
        return self.replies.pop(0)

    async def acompletion(self, prompt: Any) -> str:
        return self.completion(prompt)

    def get_usage_summary(self) -> UsageSummary:
        return UsageSummary(model_usage_summaries={"scripted": ModelUsageSummary(1, 1, 1)})

    def get_last_usage(self) -> ModelUsageSummary:
        return ModelUsageSummary(1, 1, 1)


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


@pytest.fixture(params=["session", "local"])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An RLM with a scripted model, over either environment."""
    if request.param == "session":
        monkeypatch.setattr(rlm.environments, "LocalREPL", LocalREPL)  # restored at the end
        use_sessions()

    def make(*cells: str, **options: Any) -> RLM:
        replies = [cell(code) for code in cells]
        monkeypatch.setattr(rlm.core.rlm, "get_client", lambda *_arguments: Scripted(replies))
        options = {"max_iterations": len(cells), **options}
        return RLM(backend="openai", backend_kwargs={"model_name": "scripted"}, environment="local", **options)

    return make


def shout(text: str) -> str:
    return text.upper()


def test_a_task_with_tools_and_sub_calls_has_the_same_answer(ask: Any) -> None:
    one = "words = context.split(); print(len(words), LIMIT, SHOW_VARS())"
    two = "parts = llm_query_batched(words[:LIMIT]); whole = llm_query(context)"
    three = "answer['content'] = [shout(parts[0]), parts[1], whole, rlm_query('x')]; answer['ready'] = True"
    tools = {"shout": shout, "LIMIT": {"tool": 2, "description": "How many."}}
    found = ask(one, two, three, custom_tools=tools).completion("some words of a text")
    assert found.response == "['4 CHARACTERS', '5 characters', '20 characters', '1 characters']"


def test_a_conversation_keeps_its_variables_contexts_and_histories(ask: Any) -> None:
    asking = ask("x = len(context); answer['content'] = x; answer['ready'] = True", persistent=True)
    assert asking.completion("first").response == "5"
    environment = asking._persistent_env
    assert isinstance(environment, SupportsPersistence)
    environment_answer = "answer['content'] = [x, context, context_1, len(history) > 1]; answer['ready'] = True"
    asking = _again(asking, environment_answer)
    assert asking.completion("second").response == "[5, 'first', 'second', True]"
    assert (environment.get_context_count(), environment.get_history_count()) == (2, 2)
    environment.cleanup()


def _again(asking: RLM, code: str) -> RLM:
    rlm.core.rlm.get_client = lambda *_arguments: Scripted([cell(code)])
    return asking


def test_a_child_is_a_whole_rlm(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    root = "got = rlm_query('child task'); answer['content'] = got + '!'; answer['ready'] = True"
    child = "answer['content'] = context[::-1]; answer['ready'] = True"
    replies = [cell(root), cell(child)]
    asking = ask(root, max_depth=2)
    monkeypatch.setattr(rlm.core.rlm, "get_client", lambda *_arguments: Scripted(replies))
    asking.max_depth = 3
    assert asking.completion("root task").response == "ksat dlihc!"


def test_the_log_has_what_the_cells_printed_and_their_variables(ask: Any, tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=str(tmp_path))
    codes = ("print('hi'); n = 3; s = 'text'", "1/0", "answer['content'] = 'done'; answer['ready'] = True")
    assert ask(*codes, logger=logger).completion("the context").response == "done"
    assert logger.log_file_path is not None
    lines = [json.loads(line) for line in Path(logger.log_file_path).read_text().splitlines()]
    results = [line["code_blocks"][0]["result"] for line in lines if line["type"] == "iteration"]
    assert results[0]["stdout"] == "hi\n"
    assert (results[0]["locals"]["n"], results[0]["locals"]["s"], results[0]["locals"]["context"]) == (
        3,
        "text",
        "the context",
    )
    assert "ZeroDivisionError: division by zero" in results[1]["stderr"]
    assert results[2]["final_answer"] == "done"
    view = [str(find_program("rlm")), "view", logger.log_file_path]
    shown = subprocess.run([*view, "--no-pager"], capture_output=True, text=True, check=True).stdout
    assert "ZeroDivisionError: division by zero" in shown and "answered · the answer is final" in shown
    written = subprocess.run([*view, "--to", "rlms"], capture_output=True, text=True, check=True).stdout
    again = [json.loads(line) for line in written.splitlines()]
    assert [line["type"] for line in again] == [line["type"] for line in lines]
    for before, after in zip(lines[1:], again[1:], strict=True):
        assert before.keys() == after.keys() and before["response"] == after["response"]
        assert before["code_blocks"][0].keys() == after["code_blocks"][0].keys()


@pytest.mark.parametrize("number", range(3))
def test_sub_calls_of_our_rollouts_are_read_by_rlms(number: int) -> None:
    example = Path(__file__).parents[2] / "docs/trajectory-example.jsonl"
    view = [str(find_program("rlm")), "view", str(example), "--to", "rlms"]
    written = subprocess.run(view, capture_output=True, text=True, check=True).stdout
    iterations = [json.loads(line) for line in written.splitlines()][1:]
    calls = [call for line in iterations for block in line["code_blocks"] for call in block["result"]["rlm_calls"]]
    read = RLMChatCompletion.from_dict(calls[number])
    usage = read.usage_summary.model_usage_summaries[read.root_model]
    assert (usage.total_input_tokens, read.response) == (calls[number]["prompt_tokens"], calls[number]["response"])


@pytest.fixture
def repl() -> Iterator[Any]:
    made: list[SessionREPL] = []

    def make(**options: Any) -> SessionREPL:
        made.append(SessionREPL(**options))
        return made[-1]

    yield make
    for each in made:
        each.cleanup()
        each.cleanup()


def test_an_exception_or_a_time_out_loses_no_variable(repl: Any) -> None:
    started = repl(execution_timeout=1)
    failed = started.execute_code("paid = 'result of a sub-call'\nraise ValueError('later')")
    assert "ValueError: later" in failed.stderr
    assert started.execute_code("print(paid)").stdout == "result of a sub-call\n"
    late = started.execute_code("kept = 1\nwhile True: pass")
    assert "time limit" in late.stderr
    assert started.execute_code("print(kept)").stdout == "1\n"


@pytest.mark.parametrize("code", ["import os; os._exit(3)", "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"])
def test_a_cell_that_kills_its_session_loses_variables_but_no_context(repl: Any, code: str) -> None:
    started = repl(context_payload={"rows": [1, 2]}, custom_tools={"LIMIT": 2, "shout": shout})
    started.add_history([{"role": "user", "content": "hi"}])
    started.execute_code("x = 1")
    assert started.execute_code(code).stderr
    shown = started.execute_code("print(context, history[0]['role'], LIMIT, shout('a'), 'x' in globals())")
    assert shown.stdout == "{'rows': [1, 2]} user 2 A False\n"


def test_names_of_the_scaffold_are_put_back(repl: Any) -> None:
    started = repl(context_payload="text")
    started.execute_code("context = 1; llm_query = 2; SHOW_VARS = 3; answer = 'no'")
    assert started.execute_code("print(context, callable(llm_query), callable(SHOW_VARS))").stdout == "text True True\n"
    ready = started.execute_code("answer = {'content': 'x', 'ready': True}")
    assert ready.final_answer == "x"
    assert started.execute_code("print(1)").final_answer is None


def test_large_and_odd_values_are_shown_in_short(repl: Any) -> None:
    started = repl(context_payload="x" * 5_000_000)
    ran = started.execute_code(
        "class Odd:\n    def __repr__(self): raise ValueError\n"
        "odd = Odd(); rows = list(range(10**6)); f = float('nan'); t = (1, 'a'); print(len(context))"
    )
    assert ran.stdout == "5000000\n"
    assert len(str(ran.to_dict())) < 10_000
    assert repr(ran.locals["odd"]).startswith("<Odd instance at 0x")
    assert (ran.locals["t"], ran.locals["f"]) == ((1, "a"), "nan")
    assert "..." in ran.locals["rows"] and "..." in ran.locals["context"]


def test_a_tool_that_is_no_function_must_be_json(repl: Any) -> None:
    with pytest.raises(TypeError, match="the custom tool lock must be a function or a value that JSON can hold"):
        repl(custom_tools={"lock": threading.Lock()})
    with pytest.raises(ValueError, match="must be python"):
        repl(session=SessionConfig())


def test_with_compaction_the_history_grows(repl: Any) -> None:
    started = repl(compaction=True)
    assert started.execute_code("print(history)").stdout == "[]\n"
    started.append_compaction_entry({"type": "summary", "content": "so far"})
    assert started.execute_code("history = 1; print(history)").stdout == "1\n"
    assert started.execute_code("print(history[0]['content'])").stdout == "so far\n"


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[Any]]]:
    """The proxy of a training environment: its two routes."""
    asked: list[Any] = []

    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        asked.append((path, body))
        reply: dict[str, Any] = {"response": f"to {body.get('prompt')}"}
        if "prompts" in body:
            reply = {"responses": [f"to {prompt}" for prompt in body["prompts"]]}
        return 413 if "too large" in str(body) else 200, reply

    with json_server(reply) as url:
        yield url, asked


async def test_the_backend_of_the_training_package(proxy: tuple[str, list[Any]], tmp_path: Path) -> None:
    backend = SessionBackend(execution_timeout=5)
    with pytest.raises(RuntimeError, match="has not been started"):
        await backend.execute("1")
    await backend.start(proxy[0], "r-1", depth=2)
    try:
        await backend.bootstrap("base = 10")
        assert [await backend.load_context("first"), await backend.load_context({"a": 1})] == [0, 1]
        ran = await backend.execute("print(context, context_1, base, llm_query('q'), llm_query_batched(['a', 'b']))")
        assert ran.stdout == "first {'a': 1} 10 to q ['to a', 'to b']\n"
        assert (ran.stderr, ran.final_answer) == ("", None)
        assert {"base", "context"} < set(ran.locals_keys)
        assert "Error: HTTP 413" in (await backend.execute("print(llm_query('too large'))")).stdout
        ran = await backend.execute("answer['content'] = 42; answer['ready'] = True")
        assert ran.final_answer == "42" and ran.execution_time > 0
        begun = tmp_path / "begun"
        task = asyncio.create_task(backend.execute(f"open({str(begun)!r}, 'w').close(); import time; time.sleep(1000)"))
        await until(begun.exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(RuntimeError, match="bootstrap failed"):
            await backend.bootstrap("1/0")
    finally:
        await backend.stop()
        await backend.stop()
    assert proxy[1][0] == ("/rollout/r-1/llm_query", {"prompt": "q", "depth": 2})


async def test_nobody_behind_the_proxy_is_an_error_of_the_call() -> None:
    backend = SessionBackend()
    await backend.start("http://127.0.0.1:9", "r")
    ran = await backend.execute("print(llm_query('q'), llm_query_batched(['a']), llm_query_batched([]))")
    await backend.stop()
    assert ran.stdout.startswith("Error: Proxy request failed:") and ran.stdout.endswith("] []\n")
