"""A tiny model and what it says, for trainers whose examples run ```bash blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

EXAMPLES = Path(__file__).parents[3] / "examples"


def in_training(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of the fixture of other tests: torch keeps threads and descriptors. The examples can be imported."""
    directory = tmp_path_factory.mktemp("tmp")
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return directory


TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def a_tokenizer(template: str, words: list[str]) -> Any:
    """A token for each byte, those of Qwen's messages, and those of these words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(words)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = template
    return fast


def a_model(tokenizer: Any) -> Any:
    """A model of one layer."""
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), num_key_value_heads=2, head_dim=8, **shape))


def save_a_model(path: Path) -> Any:
    """Saves a model and its tokenizer, and gives the tokenizer."""
    tokenizer = a_tokenizer(TEMPLATE, [])
    tokenizer.save_pretrained(path)
    a_model(tokenizer).save_pretrained(path)
    return tokenizer


def replies(answer: str) -> list[str]:
    return [
        "```bash\nread -r word <word.txt; echo ${#word} letters\n```<|im_end|>",
        "I think.<|im_end|>",
        "```bash\necho again $word; (exit 3)\n```<|im_end|>",
        f"```bash\nRLM_CONTENT={answer} RLM_READY=1\n```<|im_end|>",
    ]


ROLLOUTS = {"4": replies("${#word}"), "9": replies("9")}
"""The replies of the two rollouts of a group, by the answers that they give."""
