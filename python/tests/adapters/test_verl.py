"""The example for verl: two steps on the CPU with a tiny random model, by verl's worker, advantages and loss.

Only the server that generates tokens is scripted.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

verl = pytest.importorskip("verl")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from hydra import compose, initialize_config_module  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.protocol import DataProto
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, compute_policy_loss_vanilla
    from verl.utils.torch_functional import logprobs_from_logits
    from verl.workers.config import ActorConfig
    from verl.workers.rollout.replica import TokenOutput

from .tiny import ROLLOUTS, in_training, save_a_model  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # those of verl and its libraries


nothing_is_left = pytest.fixture(autouse=True)(in_training)


class Server:
    """In place of verl's client of its servers of models."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.rollouts: dict[str, list[str]] = {}
        self.free: list[list[str]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> TokenOutput:
        """The next reply of its rollout: the first request of a rollout gets the next script."""
        if request_id not in self.rollouts:
            self.rollouts[request_id] = list(self.free.pop(0))
        assert self.tokenizer.decode(prompt_ids).endswith("<|im_start|>assistant\n")
        ids = self.tokenizer(self.rollouts[request_id].pop(0), add_special_tokens=False)["input_ids"]
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids))


def rows(directory: Path, truth: str, count: int) -> DataProto:
    """A batch as verl's dataset makes it: the same question, once for each rollout of its group."""
    question = [{"role": "user", "content": "How many letters has the word?"}]
    columns: dict[str, list[Any]] = {
        "raw_prompt": [question] * count,
        "agent_name": ["rlm_session"] * count,
        "reward_model": [{"ground_truth": truth}] * count,
        "extra_info": [{"directory": str(directory)}] * count,
    }
    made = {}
    for name, values in columns.items():
        made[name] = np.empty(count, dtype=object)
        made[name][:] = values
    return DataProto.from_single_dict({**made, "index": np.zeros(count, dtype=np.int64)})


def a_worker(path: Path, server: Server, response_length: int) -> AgentLoopWorker:
    """verl's worker of agent loops, which finds the example as a trainer's configuration names it."""
    loops = path / "agent.yaml"
    loops.write_text("- name: rlm_session\n  _target_: verl_agent_loop.SessionAgentLoop\n  max_turns: 10\n")
    settings = {
        "actor_rollout_ref.model.path": path,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.prompt_length": 256,
        "actor_rollout_ref.rollout.response_length": response_length,
        "actor_rollout_ref.rollout.agent.agent_loop_config_path": loops,
    }
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[f"{name}={value}" for name, value in settings.items()])
    return AgentLoopWorker(config, server)


def log_probabilities(model: Any, batch: Any) -> Any:
    """Log probabilities of the tokens of the responses."""
    given = {name: batch[name] for name in ("input_ids", "attention_mask", "position_ids")}
    length = batch["responses"].size(1)
    return logprobs_from_logits(model(**given).logits[:, -length - 1 : -1], batch["responses"])


def test_two_steps_of_training(tmp_path: Path, nothing_is_left: Path) -> None:
    tokenizer = save_a_model(tmp_path)
    server = Server(tokenizer)
    worker = a_worker(tmp_path, server, 1024)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    actor = ActorConfig(strategy="fsdp", rollout_n=2, ppo_micro_batch_size_per_gpu=2)
    for word in ("heat", "cold"):
        (tmp_path / "word.txt").write_text(f"{word}\n")
        server.free = list(ROLLOUTS.values())
        output = asyncio.run(worker.generate_sequences(rows(tmp_path, "4", 2)))
        batch, mask = output.batch, output.batch["response_mask"]

        # The sessions kept their state, and the reward is that of the answer.
        answers = output.non_tensor_batch["answer"].tolist()
        assert sorted(answers) == ["4", "9"]
        assert batch["rm_scores"].sum(dim=1).tolist() == [float(answer == "4") for answer in answers]
        assert output.non_tensor_batch["__num_turns__"].tolist() == [8, 8]
        # Only the model's tokens are trained: the mask has all of its replies, and nothing else.
        here = batch["attention_mask"][:, -1024:].bool()
        for answer, ids, own, seen, logprobs in zip(
            answers, batch["responses"], mask.bool(), here, batch["rollout_log_probs"], strict=True
        ):
            assert tokenizer.decode(ids[own]) == "".join(ROLLOUTS[answer])
            others = tokenizer.decode(ids[seen & ~own])
            assert others.count("<|im_start|>user\n") == 3 and others.count("<|im_start|>assistant\n") == 3
            assert "4 letters\n" in others and f"again {word}\n" in others and "There is no ```bash block" in others
            assert (logprobs[own] == -1.0).all() and (logprobs[~own] == 0.0).all()

        advantages, _ = compute_grpo_outcome_advantage(batch["rm_scores"], mask, output.non_tensor_batch["index"])
        assert (advantages[~mask.bool()] == 0).all() and (advantages[mask.bool()] != 0).all()
        old = log_probabilities(model, batch).detach()
        probabilities = log_probabilities(model, batch)
        probabilities.retain_grad()
        loss, _ = compute_policy_loss_vanilla(old, probabilities, advantages, mask, config=actor)
        optimizer.zero_grad()
        loss.backward()
        assert (probabilities.grad[~mask.bool()] == 0).all() and (probabilities.grad[mask.bool()] != 0).all()
        optimizer.step()
    assert any(not torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert [name for name in os.listdir(nothing_is_left) if name.startswith("rlm-")] == []


def test_a_response_has_a_bound(tmp_path: Path, nothing_is_left: Path) -> None:
    server = Server(save_a_model(tmp_path))
    worker = a_worker(tmp_path, server, 100)
    server.free = [["```bash\necho kept\n```<|im_end|>", "```bash\nseq 1000\n```<|im_end|>", "never"]]
    output = asyncio.run(worker.generate_sequences(rows(tmp_path, "4", 1)))
    assert output.batch["responses"].shape == output.batch["response_mask"].shape == (1, 100)
    assert output.non_tensor_batch["answer"].tolist() == [None] and output.batch["rm_scores"].sum() == 0.0
    assert [name for name in os.listdir(nothing_is_left) if name.startswith("rlm-")] == []
