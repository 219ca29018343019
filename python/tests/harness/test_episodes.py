"""Episodes: turns, sub-calls, summaries."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import verifiers.v1 as vf

from harness.episodes import IN, SET, Model, agent, calls, check, edges, task

AGAIN = {"bash": "RLM_CONTENT=$((n + 40)) RLM_READY=1", "python": "answer['content'] = n + 40; answer['ready'] = True"}


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


TASKSET = """
import verifiers.v1 as vf
from harness.episodes import Lines, task

class LinesTaskset(vf.Taskset[Lines, vf.TasksetConfig]):
    def load(self):
        yield task()

__all__ = ["LinesTaskset"]
"""


def test_what_a_user_types(model: Model, tmp_path: Path) -> None:
    model.replies = calls("bash", *SET["bash"])
    (tmp_path / "lines_taskset.py").write_text(TASKSET)
    tests = str(Path(__file__).parents[1])
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
