"""Models of a session: `llm_batch`, budgets, spending."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import json_server, wait_until
from rlm_env import (
    AsyncSession,
    Budget,
    EndedError,
    Models,
    Session,
    SessionConfig,
    Spending,
    StartError,
    UsageError,
    tool,
)
from rlm_env._models import completion

LANGUAGES = {
    "bash": {
        "batch": "llm_batch --json-output a b",
        "tool": "shout a",
        "budget": "budget",
    },
    "python": {
        "batch": "print(llm_batch(['a', 'b']))",
        "tool": "print(shout('a'))",
        "budget": "print(budget())",
    },
}


async def reply(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
    assert tools == []
    return f"reply to {messages[-1]['content']}"


def shout(text: str) -> str:
    return text.upper()


@pytest.fixture
def start(kind: Any, language: Any, work: Path) -> Any:
    """A session with models."""
    return lambda models, *tools: kind(SessionConfig(work, language=language), models=models, tools=tools)


def test_code_asks_a_function_beside_its_tools_and_the_session_knows_what_was_spent(start: Any, language: str) -> None:
    code = LANGUAGES[language]
    with start(reply, shout) as session:
        response = session.execute(code["batch"])
        assert "reply to a" in response.stdout and "reply to b" in response.stdout
        assert session.execute(code["tool"]).stdout == "A\n"
        assert "usage_estimated" in session.execute(code["budget"]).stdout
        spent = session.spent()
        assert (spent.calls, spent.usage_estimated, spent.cost_usd) == (2, True, None)
    assert session.spent() == spent, "after its end"


def test_a_function_gets_the_messages_and_the_sampling(start: Any, language: str) -> None:
    seen: list[Any] = []

    def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        seen.append((messages, sampling))
        usage = {"prompt_tokens": 7, "completion_tokens": 2}
        return {"choices": [{"message": {"role": "assistant", "content": "whole"}}], "usage": usage}

    with start(Models(model, sampling={"temperature": 0.5}, system_prompt="Be brief.")) as session:
        assert "whole" in session.execute(LANGUAGES[language]["batch"]).stdout
        assert session.spent() == Spending(2, 14, 4, 18, None, False)
    messages, sampling = seen[0]
    assert [message["role"] for message in messages] == ["system", "user"]
    assert sampling == {"temperature": 0.5}


def test_a_function_that_fails_is_an_error_of_the_call_and_is_not_asked_again(start: Any, language: str) -> None:
    asked = []

    async def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        asked.append(messages)
        raise ValueError("no luck")

    with start(model) as session:
        response = session.execute(LANGUAGES[language]["batch"])
        assert "ValueError: no luck" in response.stdout + response.stderr + str(response.result)
        assert len(asked) == 2
        assert session.execute("1").state == "kept"


def test_what_a_function_may_return() -> None:
    message = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}
    assert completion("x") == completion({"content": "x"}) == message
    assert completion(types.SimpleNamespace(model_dump=lambda mode: message)) == message
    called = completion({"tool_calls": [{"id": "1"}]})
    assert called["choices"][0]["finish_reason"] == "tool_calls"
    for wrong in (None, 3, ["x"], object()):
        with pytest.raises(TypeError, match="expected a str, a message, or a completion"):
            completion(wrong)
    with pytest.raises(TypeError, match="JSON cannot hold"):
        completion({"content": {1, 2}})


def test_a_budget_holds(start: Any, language: str) -> None:
    with start(Models(reply, budget=Budget(calls=1))) as session:
        response = session.execute(LANGUAGES[language]["batch"])
        assert "budget" in response.stdout + response.stderr + str(response.result)
        assert session.spent().calls == 1


def test_prices_give_costs(start: Any, language: str, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[models.reply]\nprompt = 1.0\ncompletion = 2.0\n")
    with start(Models(reply, prices=prices, budget=Budget(cost_usd=5.0))) as session:
        session.execute(LANGUAGES[language]["batch"])
        spent = session.spent()
        expected = (spent.prompt_tokens * 1.0 + spent.completion_tokens * 2.0) / 1e6
        assert spent.cost_usd == pytest.approx(expected) and expected > 0


@pytest.fixture
def server() -> Iterator[Any]:
    """A server of models on loopback, which notes its requests."""
    requests: list[Any] = []

    def reply(path: str, headers: Any, body: Any) -> tuple[int, Any]:
        requests.append((headers["authorization"], body))
        usage = {"prompt_tokens": 3, "completion_tokens": 1}
        message = {"role": "assistant", "content": "served"}
        return 200, {"choices": [{"message": message}], "usage": usage}

    with json_server(reply) as url:
        yield f"{url}/v1", requests


def test_a_server_gets_the_key_and_the_session_does_not(start: Any, language: str, server: Any) -> None:
    base_url, requests = server
    models = Models("small", base_url=base_url, api_key="sk-of-the-test")
    assert "sk-of-the-test" not in repr(models)
    with start(models) as session:
        assert "served" in session.execute(LANGUAGES[language]["batch"]).stdout
        environment = "env" if language == "bash" else "import os; print(os.environ)"
        assert "sk-of" not in session.execute(environment).stdout
        assert session.spent() == Spending(2, 6, 2, 8, None, False)
    assert {key for key, _ in requests} == {"Bearer sk-of-the-test"}
    assert {body["model"] for _, body in requests} == {"small"}


def test_models_that_cannot_be_are_refused_and_nothing_is_left(kind: Any, work: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("RLM_BASE_URL", raising=False)

    def refused(models: Any) -> str:
        session = kind(work, models=models)
        with pytest.raises(StartError) as caught:
            session.start()
        session.close()
        return str(caught.value)

    assert "give base_url, or set RLM_BASE_URL" in refused(Models("m"))
    assert "begins with ftp:, expected http: or https:" in refused(Models("m", base_url="ftp://host"))
    assert "/no/prices" in refused(Models("m", base_url="http://127.0.0.1:1/v1", prices="/no/prices"))
    assert "price" in refused(Models(reply, budget=Budget(cost_usd=1.0)))
    for wrong in (
        lambda: Models(""),
        lambda: Models(reply, base_url="http://h/v1"),
        lambda: Models("m", parallelism=0),
        lambda: Budget(calls=-1),
    ):
        with pytest.raises(ValueError):
            wrong()
    for cost in (float("nan"), float("inf"), -1.0, 10**400, True, "1"):
        with pytest.raises(ValueError, match="^cost_usd of a budget must be a finite number from 0 or None, not "):
            Budget(cost_usd=cost)  # type: ignore[arg-type]
    for wrong in (lambda: Models(3), lambda: Models("m", budget=5), lambda: Session(work, models="m")):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            wrong()


def test_a_tool_with_a_name_of_the_endpoint_is_refused(kind: Any, work: Path) -> None:
    def budget() -> int:
        return 1

    session = kind(work, models=reply, tools=[budget])
    with pytest.raises(StartError, match="budget"):
        session.start()
    session.close()


def test_spending_needs_models_and_a_start(kind: Any, work: Path) -> None:
    with kind(work) as session, pytest.raises(UsageError, match="models="):
        session.spent()
    unstarted = kind(work, models=reply)
    with pytest.raises(UsageError, match="has not been started"):
        unstarted.spent()
    unstarted.close()


def test_an_endpoint_that_dies_is_an_error_and_the_session_goes_on(start: Any, language: str) -> None:
    with start(reply) as session:
        endpoint = session._core.tools.rootd._process.pid
        os.kill(endpoint, signal.SIGKILL)
        response = session.execute(LANGUAGES[language]["batch"])
        # In Python the connection was open before.
        assert "the root-tool endpoint" in response.stderr + response.stdout + str(response.result)
        response = session.execute(LANGUAGES[language]["batch"])
        assert "cannot reach the root-tool endpoint" in response.stderr + response.stdout + str(response.result)
        with pytest.raises(EndedError, match="does not answer"):
            session.spent()
        assert session.execute("1").state == "kept"


HOST = """
import os, sys, time
from rlm_env import Session
session = Session(sys.argv[1], models=lambda messages, tools, **sampling: time.sleep(1000), tools=[len]).start()
print(session._core.tools.rootd._process.pid, session.pid, flush=True)
session.execute("llm_batch a")
"""


def test_nothing_is_left_of_a_host_that_is_killed(work: Path) -> None:
    host = subprocess.Popen([sys.executable, "-c", HOST, str(work)], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    pids = [int(pid) for pid in host.stdout.readline().split()]
    assert len(pids) == 2
    host.kill()
    host.wait()
    host.stdout.close()
    for pid in pids:
        wait_until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), "the host's programs end")
    # The next host removes the directory.
    with Session(work):
        pass


def test_a_call_that_is_interrupted_cancels_the_function(kind: Any, work: Path) -> None:
    began, cancelled = threading.Event(), threading.Event()

    async def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        began.set()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with kind(work, models=model) as session:
        response = session.execute("llm_batch a", timeout=1)
        assert response.outcome == "timed_out" and began.is_set()
        # The endpoint closes its request when the call is gone; the next call lets the loop see that.
        wait_until(lambda: session.execute(":") and cancelled.is_set(), "the function is cancelled")


def test_what_is_spent_is_known_after_the_end_without_a_question_before(kind: Any, work: Path) -> None:
    with kind(work, models=reply) as session:
        session.execute("llm_batch a b")
    assert session.spent().calls == 2


def test_an_endpoint_that_is_gone_at_the_end_leaves_the_spending_unknown(kind: Any, work: Path) -> None:
    with kind(work, models=reply) as session:
        session.execute("llm_batch a b")
        os.kill(session._core.tools.rootd._process.pid, signal.SIGKILL)
    with pytest.raises(EndedError, match="what the session has spent in all is not known"):
        session.spent()


async def test_an_endpoint_that_hangs_keeps_no_end(work: Path) -> None:
    session = await AsyncSession(work, models=reply).start()
    endpoint = session._core.tools.rootd._process.pid  # type: ignore[union-attr]
    os.kill(endpoint, signal.SIGSTOP)
    asking = asyncio.create_task(session.spent())
    turns = 0
    closing = asyncio.create_task(session.close())
    while not closing.done():
        await asyncio.sleep(0.02)
        turns += 1
    await closing
    assert turns > 20, "the loop went on"
    with pytest.raises(EndedError):
        await asking


@pytest.mark.parametrize("how", ["dump", "deep", "cancel", "surrogate"])
def test_every_reply_of_a_function_is_answered(work: Path, how: str) -> None:
    class Dump:
        def model_dump(self, mode: str) -> Any:
            raise RuntimeError("from the reply")

    asked = []

    async def model(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
        asked.append(how)
        if how == "cancel":
            raise asyncio.CancelledError
        if how == "surrogate":
            raise ValueError("half \ud800")
        deep: Any = {}
        for _ in range(5000):
            deep = {"a": deep}
        return Dump() if how == "dump" else {"content": "x", "deep": deep}

    words = {
        "dump": "RuntimeError: from the reply",
        "deep": "ecursion",
        "cancel": "CancelledError",
        "surrogate": "half ?",
    }
    with Session(work, models=model) as session:
        response = session.execute("llm_batch a", timeout=60)
        assert response.outcome == "ok" and words[how] in response.stdout, response
    # From 3.12 on, Python writes the deep request, and `rlm` asks once more for what it cannot read.
    assert len(asked) == (2 if how == "deep" and sys.version_info >= (3, 12) else 1)


def test_a_large_result_passes_as_it_does_without_models(work: Path) -> None:
    def give() -> str:
        return "é" * (20 << 20)

    with Session(work, models=reply, tools=[give]) as session:
        assert session.execute("give | wc -c").stdout == f"{(40 << 20) + 1}\n"


def test_a_tool_may_have_more_time_than_others(kind: Any, work: Path) -> None:
    @tool(timeout=10)
    def slow() -> str:
        time.sleep(3)
        return "done"

    with kind(work, models=Models(reply, timeout=1), tools=[slow]) as session:
        assert session.execute("slow").stdout == "done\n"
