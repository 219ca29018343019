"""The parts of batches and sessions on a cluster, without one."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import until
from rlm_env import Budget, EndedError, Models, Question, SessionConfig, StartError

try:
    from ray.exceptions import ActorDiedError, ActorUnavailableError
except ImportError as error:  # pragma: no cover
    pytest.skip(f"Ray is not here ({error})", allow_module_level=True)

from rlm_env.ray import _hub, _session
from rlm_env.ray._functions import Functions
from rlm_env.ray._ledger import GIVEN_UP, LOST, Ledger
from rlm_env.ray._results import Results

pytestmark = pytest.mark.filterwarnings("ignore")


def a_result(id: str) -> str:
    """The line of a result of the question `?`."""
    fields = {"answer": "", "answer_ready": True, "stop_reason": "answered", "error": None, "metrics": {}}
    question, _, attempt = id.partition("-")
    return json.dumps({"id": id, "question": "?", "question_id": question, "attempt": int(attempt), **fields})


def test_a_file_of_results_loses_only_a_line_that_was_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"

    def read(text: str) -> tuple[list[str], str]:
        file.write_text(text)
        results = Results(str(file), resume=True)
        results.close()
        return list(results.before), file.read_text()

    one, two = a_result("1-1"), a_result("2-1")
    assert read("") == ([], "")
    assert read(f"{one}\n\n{two}\n\n") == (["1-1", "2-1"], f"{one}\n\n{two}\n\n")
    assert read(f"{one}\n{two}") == (["1-1", "2-1"], f"{one}\n{two}\n")
    assert read(f"{one}\n{two[:-1]}") == (["1-1"], f"{one}\n")
    for text, number in [
        ("notes", 1),
        ("notes\n", 1),
        (f"{one}\nnotes", 2),
        ("notes\n" + two[:-1], 1),
        ('{"a": 1}', 1),
        (f"{two[:-1]}\n{one}\n", 1),
    ]:
        with pytest.raises(StartError, match=rf"r.jsonl:{number} is not a result: "):
            read(text)
        assert file.read_text() == text
    os.mkfifo(tmp_path / "fifo")
    for path in ("/dev/null", f"{tmp_path}/fifo"):
        with pytest.raises(StartError, match=rf"cannot be kept in {path}: it is not a regular file"):
            Results(path, resume=True)


def test_a_ledger_takes_every_budget() -> None:
    request = {"prompt_tokens": 1, "completion_tokens": 5, "least_completion_tokens": 1, "completion_token_usd": 0.1}
    request |= {"id": "a", "rollout": "r", "model": "m"}
    for most, cost, room in ((sys.float_info.max, 1.0, 5), (0.3, 0.3, 5), (0.3, 0.5, 3), (0.0, 0.0, 5)):
        ledger = Ledger(Budget(cost_usd=most), lambda *_: None)
        assert ledger.reserve("node", {**request, "cost_usd": cost}) == room


def a_request(key: str, rollout: str = "r") -> dict[str, Any]:
    """The request of a node for a reservation of one call."""
    tokens = {"prompt_tokens": 1, "completion_tokens": 5, "least_completion_tokens": 1}
    return {"id": key, "rollout": rollout, "model": "m", **tokens, "cost_usd": None, "completion_token_usd": None}


def a_settlement(key: str, calls: int = 1) -> dict[str, Any]:
    return {"id": key, "calls": calls, "prompt_tokens": calls, "completion_tokens": 2 * calls, "cost_usd": None}


def test_a_lost_actor_reserves_nothing_and_what_it_still_tells_is_counted_once() -> None:
    answers: list[tuple[str, str, int | str]] = []
    ledger = Ledger(Budget(calls=3), lambda *answer: answers.append(answer))
    for actor, key in (("cut off", "sent"), ("cut off", "unsent"), ("other", "a")):
        assert ledger.reserve(actor, a_request(key)) == 5
    assert ledger.reserve("cut off", a_request("waits")) is None
    ledger.lose("cut off")
    assert (ledger.spent.calls, ledger.spent.completion_tokens) == (2, 10), "at most"
    assert ledger.spent_by("r").calls == 2
    assert ledger.reserve("cut off", a_request("late")) == LOST
    assert ledger.reserve("other", a_request("b")) is None
    assert answers == []
    for _ in range(2):
        ledger.settle(a_settlement("sent"))
        ledger.settle(a_settlement("unsent", calls=0))
    assert answers == [("other", "b", 5)], "what was not spent after all is there for others"
    assert (ledger.spent.calls, ledger.spent.completion_tokens) == (1, 2)
    ledger.count("cut off", "r", a_settlement("unreserved"))
    assert ledger.spent.calls == 2
    assert ledger.spent_by("r").calls == 2, "it is an attempt of another node now"


def test_an_id_that_is_reserved_twice_is_reserved_once() -> None:
    ledger = Ledger(Budget(calls=2), lambda *_: None)
    assert [ledger.reserve("node", a_request("same")) for _ in range(2)] == [5, 5]
    ledger.settle(a_settlement("same"))
    assert ledger.reserve("node", a_request("another")) == 5
    ledger.settle(a_settlement("another"))
    assert ledger.spent.calls == 2


async def test_what_comes_twice_or_late_at_the_hub_counts_once() -> None:
    hub = _hub._Hub(Budget(calls=9))
    request = a_request("a")
    for _ in range(2):
        assert await hub.reserve("node", request, _hub.News()) == 5
    unreserved, later = ("r", a_settlement("unreserved")), _hub.News([a_settlement("unsent", calls=0)], number=2)
    news = _hub.News([a_settlement("a")], [unreserved], number=1)
    for one in (later, news, later, news):
        assert await hub.tell("node", one)
    assert (await hub.spent()).calls == 2
    assert await hub.reserve("node", a_request("unsent"), _hub.News(number=3)) == GIVEN_UP
    # A call that was cancelled before it came does not count.
    await hub.cancel(("node", 1))
    for _ in range(2):
        for number in range(3):
            await hub.call(("node", number), "here", (number,), {})
    begun = [(("node", number), ("here", (number,), {})) for number in (0, 2)]
    assert await hub.calls(0) == await hub.calls(0) == begun
    assert await hub.calls(1) == begun[1:]
    for outcome in (b"first", b"second"):
        await hub.answer(("node", 0), outcome)
    waiting, newer = asyncio.create_task(hub.calls(2)), asyncio.create_task(hub.calls(2))
    assert await waiting == [], "a newer call ends the wait of the one before"
    assert await hub.answers("node", 0) == await hub.answers("node", 0) == [(("node", 0), b"first")]
    await hub.call(("node", 0), "here", (0,), {})
    for _ in range(2):
        [lost] = await hub.lose("node", ["r"])
        assert lost.calls == 2
    await hub.call(("node", 3), "here", (3,), {})
    assert await newer == await hub.calls(2) == [(("node", 2), None)]
    assert await hub.answers("node", 1) is None


async def test_functions_outlive_a_moment_without_their_hub_and_tell_its_end() -> None:
    outcomes: list[tuple[str, Any]] = []
    replies: asyncio.Queue[Any] = asyncio.Queue()

    async def take(had: int) -> list[Any]:
        expected, reply = await replies.get()
        assert had == expected
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def forever() -> None:
        """Never returns."""
        await asyncio.Event().wait()

    def here() -> int:
        """Runs here."""
        return 5

    answered = asyncio.Event()

    def answer(key: str, outcome: bytes) -> None:
        outcomes.append((key, pickle.loads(outcome)))
        answered.set()

    calls = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=take))
    hub = SimpleNamespace(calls=calls, answer=SimpleNamespace(remote=answer))
    functions = Functions([forever, here], hub)
    replies.put_nowait((0, ActorUnavailableError("for a moment", None)))
    # The first is cancelled before its first step.
    replies.put_nowait((0, [("a", ("forever", (), {})), ("a", None), ("b", ("here", (), {}))]))
    await answered.wait()
    assert (outcomes, functions.error) == ([("b", (True, 5))], None)
    replies.put_nowait((3, ActorDiedError()))
    with pytest.raises(ActorDiedError):
        await functions.wait()
    assert isinstance(functions.error, ActorDiedError)
    assert functions._running == {}
    await functions.close()


async def test_a_session_forgets_results_for_which_nobody_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    session = _session._Session(SessionConfig("/"), [], [], None, None)
    assert await session.once("a", [], "idle") >= 0.0
    assert len(session._calls) == 1
    monkeypatch.setattr(_session, "_KEPT", 0.0)
    assert await session.once("b", [], "idle") >= 0.0
    await asyncio.sleep(0.01)
    assert list(session._calls) == ["a"]
    await session.once("c", ["a"], "idle")
    assert "a" not in session._calls


async def test_an_interrupt_that_comes_late_is_for_no_later_call(tmp_path: Path) -> None:
    session = _session._Session(SessionConfig(tmp_path), [], [], None, None)
    await session._session.start()
    await session.once("one", [], "execute", "true")
    await session.once("word", [], "interrupt", [])
    code = ": > begun; until [ -e go ]; do sleep 0.05; done; : > gone; sleep 1000"
    running = asyncio.ensure_future(session.once("two", ["one"], "execute", code))
    await until((tmp_path / "begun").exists)
    await session.interrupt(["one"])
    await session.once("word", [], "interrupt", [])  # Ray does that where a reply was lost
    (tmp_path / "go").touch()
    while not (tmp_path / "gone").exists():
        assert not running.done(), await running
        await asyncio.sleep(0.05)
    await session.interrupt(["one", "two"])
    assert (await running).outcome == "interrupted"
    await session.close()


def test_configurations_and_errors_pickle() -> None:
    models = Models("m", base_url="http://127.0.0.1:1/v1", budget=Budget(calls=2))
    for one in (models, Budget(calls=1), Question("?", id="a", metadata=[1])):
        assert pickle.loads(pickle.dumps(one)) == one
    error = pickle.loads(pickle.dumps(EndedError("gone", "killed", "a tail")))
    assert (str(error), error.status, error.log_tail) == ("gone", "killed", "a tail")
