"""The example for TRL: two steps of GRPO on the CPU with a tiny random model. Only its generation is scripted."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest

trl = pytest.importorskip("trl")

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402

from .tiny import a_model, a_tokenizer, in_training  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # those of TRL and its libraries


nothing_is_left = pytest.fixture(autouse=True)(in_training)


WORDS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]


def called(name: str, **arguments: str) -> str:
    document = json.dumps({"name": name, "arguments": arguments})
    return f"<think>\n\n</think>\n\n<tool_call>\n{document}\n</tool_call><|im_end|>"


def steps(answer: str) -> list[str]:
    return [
        called("bash", code="read -r word <word.txt; echo ${#word} letters"),
        called("bash", code="echo again $word"),
        called("answer", text=answer),
        "<think>\n\n</think>\n\ndone<|im_end|>",
    ]


ROLLOUTS = [steps("4"), steps("9")]
"""The replies of the two rollouts of a group."""


def test_two_steps_of_training(tmp_path: Path, nothing_is_left: Path) -> None:
    from trl_grpo import SessionEnvironment, rows

    template = Path(trl.__file__).parent / "chat_templates/qwen3.jinja"
    tokenizer = a_tokenizer(template.read_text(), WORDS)
    model = a_model(tokenizer)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    batches: list[dict[str, Any]] = []
    conversations: list[Any] = []

    class Trainer(trl.GRPOTrainer):  # type: ignore[misc, name-defined]
        def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
            """The reply number N of a conversation, from how many replies are in it."""
            replies = []
            for steps, ids in zip(ROLLOUTS, prompt_ids, strict=True):
                turn = tokenizer.decode(ids).count("<tool_response>")
                replies.append(tokenizer(steps[turn], add_special_tokens=False)["input_ids"])
            return replies, None

        def _tool_call_loop(self, *arguments: Any, **options: Any) -> Any:
            result = super()._tool_call_loop(*arguments, **options)
            conversations.extend(result[1])
            return result

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batches.append(super()._generate_and_score_completions(inputs))
            return batches[-1]

    config = trl.GRPOConfig(
        str(tmp_path / "out"),
        num_generations=2,
        per_device_train_batch_size=2,
        max_steps=2,
        max_completion_length=2000,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        shuffle_dataset=False,
    )
    data = Dataset.from_list(rows())
    trainer = Trainer(
        model=model, args=config, train_dataset=data, processing_class=tokenizer, environment_factory=SessionEnvironment
    )
    trainer.train()

    # The sessions kept their state, and the reward is that of the answer: "heat" has 4 letters, "water" 5.
    texts = [[message["content"] for message in one if message["role"] == "tool"] for one in conversations]
    assert texts == [["4 letters", "again heat", "Thank you."]] * 2 + [["5 letters", "again water", "Thank you."]] * 2
    rewards = [entry["rewards/SessionEnvironment/mean"] for entry in trainer.state.log_history if "reward" in entry]
    assert rewards == pytest.approx([0.55, 0.1])
    # Only the model's tokens are trained: the mask has all of its replies, and nothing else.
    for batch in batches:
        rows_of = zip(ROLLOUTS, batch["completion_ids"], batch["tool_mask"], batch["completion_mask"], strict=True)
        for replies, ids, mask, padding in rows_of:
            own = (mask * padding).bool()
            assert tokenizer.decode(ids[own]) == "".join(replies)
            others = tokenizer.decode(ids[~mask.bool()])
            assert others.count("<tool_response>") == 3 and " letters\n" in others and "<tool_call>" not in others
    assert any(not torch.equal(weight, before[name]) for name, weight in model.named_parameters()), (
        "nothing was learned"
    )

    del trainer
    gc.collect()
    assert [name for name in os.listdir(nothing_is_left) if name.startswith("rlm-")] == []
