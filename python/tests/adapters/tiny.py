"""A tiny model and what it says, for trainers whose examples run ```bash blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def save_a_model(path: Path) -> Any:
    """A token for each byte, and those of Qwen's messages; a model of one layer. Gives the tokenizer."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(path)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    Qwen3ForCausalLM(Qwen3Config(vocab_size=len(fast), num_key_value_heads=2, head_dim=8, **shape)).save_pretrained(
        path
    )
    return fast


def replies(answer: str) -> list[str]:
    return [
        "```bash\nread -r word <word.txt; echo ${#word} letters\n```<|im_end|>",
        "I think.<|im_end|>",
        "```bash\necho again $word; (exit 3)\n```<|im_end|>",
        f"```bash\nRLM_CONTENT={answer} RLM_READY=1\n```<|im_end|>",
    ]


ROLLOUTS = {"4": replies("${#word}"), "9": replies("9")}
"""The replies of the two rollouts of a group, by the answers that they give."""
