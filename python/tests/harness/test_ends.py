"""Episodes that end early: at a limit, by an error, or in the middle."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import rlm_env_harness
from conftest import children, wait_until
from harness.episodes import SET, Model, agent, calls, check, task
from harness.programs import stand_ins


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


def test_an_agent_that_hangs_is_killed(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins(tmp_path / "programs", monkeypatch, "trap '' TERM; while :; do sleep 1; done")
    monkeypatch.setattr(rlm_env_harness, "_END_SECONDS", 0.2)
    played = agent(model)
    played.timeout.rollout = 0.5
    trace = asyncio.run(played.run(task()))
    assert (trace.is_timeout, trace.errors) == (True, [])
