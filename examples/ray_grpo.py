"""The loop of GRPO on a Ray cluster: groups of attempts of each question, rewards, advantages, the next batch.

pip install 'rlm-env[ray]'; python3 examples/ray_grpo.py

The policy here is a script; a real one is a name, with `base_url`, and a trainer takes the place of `learn`.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import ray

from rlm_env import Question
from rlm_env.ray import run_batch

GROUP = 4
QUESTIONS = [Question(f"How many letters has {word}?", id=word) for word in ("heat", "water")]


def policy(messages: list[Any], tools: list[Any], **sampling: Any) -> Any:
    """Counts, and is wrong now and then: it runs beside the sessions."""
    word = next(message["content"] for message in messages if message["role"] == "user").split()[-1].rstrip("?")
    # Each process has a start of its own, so attempts differ.
    code = f"word={word}; RLM_CONTENT=$(( ${{#word}} + (RANDOM % 3 == 0) )) RLM_READY=1"
    function = {"name": tools[0]["function"]["name"], "arguments": json.dumps({"code": code})}
    return {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}


def reward(question: str, answer: str | None) -> float:
    """1 for the right number."""
    word = question.split()[-1].rstrip("?")
    return float(answer == str(len(word)))


def learn(question: str, advantages: dict[str, float]) -> None:
    """A trainer would take a step here, with the trajectories of these rollouts."""
    print(question, {attempt: round(advantage, 2) for attempt, advantage in sorted(advantages.items())})


def main() -> None:
    ray.init(log_to_driver=False)
    for step in range(2):
        print(f"step {step}")
        groups: dict[str, dict[str, float]] = {}
        for result in run_batch(QUESTIONS, attempts=GROUP, model=policy, num_cpus=0.01, progress=False):
            group = groups.setdefault(result.question, {})
            group[result.id] = reward(result.question, result.answer)
            if len(group) == GROUP:
                mean, spread = statistics.mean(group.values()), statistics.pstdev(group.values())
                learn(result.question, {id: (value - mean) / (spread or 1.0) for id, value in group.items()})
    ray.shutdown()


if __name__ == "__main__":
    main()
