"""The example for SkyRL: two steps on the CPU with a tiny random model, by SkyRL's generator, advantages and loss.

Only the engine that generates tokens is scripted.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("skyrl")

import numpy as np  # noqa: E402
import skyrl_gym  # noqa: E402
import torch  # noqa: E402
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_grpo_outcome_advantage, ppo_policy_loss  # noqa: E402
from skyrl.train.config import AlgorithmConfig, GeneratorConfig, SkyRLGymConfig  # noqa: E402
from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors  # noqa: E402
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from .tiny import ROLLOUTS, in_training, save_a_model  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # those of SkyRL and its libraries


nothing_is_left = pytest.fixture(autouse=True)(in_training)
skyrl_gym.register("rlm_session", entry_point="skyrl_env:SessionEnv")


class Engine:
    """In place of SkyRL's client of its engines: the first request of a trajectory gets the next script."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.trajectories: dict[Any, list[str]] = {}
        self.free: list[list[str]] = []

    async def generate(self, given: Any, model: str | None = None) -> dict[str, Any]:
        [session], [prompt] = given["session_ids"], given["prompt_token_ids"]
        assert self.tokenizer.decode(prompt).endswith("<|im_start|>assistant\n")
        if session not in self.trajectories:
            self.trajectories[session] = list(self.free.pop(0))
        text = self.trajectories[session].pop(0)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        response = text.removesuffix("<|im_end|>")
        return {"responses": [response], "response_ids": [ids], "stop_reasons": ["stop"], "response_logprobs": None}

    async def finish_session(self, session: Any) -> None:
        assert self.trajectories[session] == [], "a trajectory has ended before its answer"


def test_two_steps_of_training(tmp_path: Path, nothing_is_left: Path) -> None:
    tokenizer = save_a_model(tmp_path)
    engine = Engine(tokenizer)
    settings = GeneratorConfig(max_turns=10, max_input_length=4096)
    generator = SkyRLGymGenerator(settings, SkyRLGymConfig(max_env_workers=2), engine, tokenizer)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    row = {"reward_spec": {"ground_truth": "4"}, "extra_info": {"directory": str(tmp_path)}}
    for word in ("heat", "cold"):
        (tmp_path / "word.txt").write_text(f"{word}\n")
        engine.free = list(ROLLOUTS.values())
        batch = {
            "prompts": [[{"role": "user", "content": "How many letters has the word?"}] for _ in ROLLOUTS],
            "env_classes": ["rlm_session"] * 2,
            "env_extras": [dict(row) for _ in ROLLOUTS],
        }
        output = asyncio.run(generator.generate(batch, disable_tqdm=True))
        ids, seen, _, rewards, mask, *_ = convert_prompts_responses_to_batch_tensors(
            tokenizer.pad_token_id,
            output["prompt_token_ids"],
            output["response_ids"],
            [reward if isinstance(reward, list) else [reward] for reward in output["rewards"]],
            output["loss_masks"],
        )
        length = mask.size(1)
        own, here = mask.bool(), seen[:, -length:].bool()

        # The sessions kept their state, and the reward is that of the answer.
        assert sorted(rewards.sum(dim=1).tolist()) == [0.0, 1.0]
        # Only the model's tokens are trained: the mask has all of its replies, and nothing else.
        for reward, tokens, is_own, is_here in zip(rewards.sum(dim=1), ids[:, -length:], own, here, strict=True):
            assert tokenizer.decode(tokens[is_own]) == "".join(ROLLOUTS["4" if reward else "9"])
        for tokens, own_ones in zip(output["response_ids"], output["loss_masks"], strict=True):
            others = tokenizer.decode([token for token, is_own in zip(tokens, own_ones, strict=True) if not is_own])
            assert others.count("<|im_start|>user\n") == 3 and others.count("<|im_start|>assistant\n") == 3
            assert "4 letters\n" in others and f"again {word}\n" in others and "There is no ```bash block" in others

        advantages, _ = compute_grpo_outcome_advantage(rewards, mask, np.array(["question"] * 2))
        assert (advantages[~own] == 0).all() and (advantages[own] != 0).all()

        def log_probabilities(ids: Any = ids, seen: Any = seen, length: int = length) -> Any:
            logits = model(input_ids=ids, attention_mask=seen).logits[:, -length - 1 : -1]
            return torch.log_softmax(logits, -1).gather(2, ids[:, -length:, None]).squeeze(2)

        probabilities = log_probabilities()
        probabilities.retain_grad()
        old = probabilities.detach()
        loss, _ = ppo_policy_loss(probabilities, old, advantages, AlgorithmConfig(), loss_mask=mask)
        optimizer.zero_grad()
        loss.sum().backward()
        assert (probabilities.grad[~own] == 0).all() and (probabilities.grad[own] != 0).all()
        optimizer.step()
    assert any(not torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert [name for name in os.listdir(nothing_is_left) if name.startswith("rlm-")] == []
