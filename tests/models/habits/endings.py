"""Replies that end a rollout."""

from typing import Any

from servers import Habit
from wires import Turn

from habits.common import SILENT, WRONG_ANSWER, Dress, spoken

OWN_WORD = ("choices.finish_reason",)
"""Ends in words that the SDKs do not know."""


def sorry(name: str, value: Any) -> Dress:
    return lambda n, message: message.update({name: value} if n > 1 else {})


REFUSED, CUT, FULL, SORRY = "model_refused", "reply_cut", "context_full", {"type": "refusal", "refusal": "I'm sorry."}
ITEM = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [SORRY]}
TYPES = "the SDKs' types"
# fmt: off
ENDINGS = [
    (Habit("chat: refusal", TYPES, dress=sorry("refusal", "I'm sorry.")), Turn(), REFUSED),
    (Habit("chat: content_filter", TYPES), Turn("I", end="content_filter"), REFUSED),
    (Habit("chat: a filter behind a block", TYPES), Turn(WRONG_ANSWER, end="content_filter"), REFUSED),
    (Habit("chat: SAFETY", "Gemini behind proxies", allowed=OWN_WORD), Turn("I", end="SAFETY"), REFUSED),
    (Habit("chat: sensitive", "Z.ai", allowed=OWN_WORD), Turn("I", end="sensitive"), REFUSED),
    (Habit("chat: content_filter: …", "Gemini", allowed=OWN_WORD),
     Turn("I", end="content_filter: PROHIBITED_CONTENT"), REFUSED),
    (Habit("chat: model_length", "mistralai/client-python", allowed=OWN_WORD), Turn("I will", end="model_length"), CUT),
    (Habit("chat: length", TYPES), Turn("I will", end="length"), CUT),
    (Habit("anthropic: refusal", TYPES, "anthropic"), Turn("I", end="refusal"), REFUSED),
    (Habit("anthropic: max_tokens", TYPES, "anthropic"), Turn("I will", end="max_tokens"), CUT),
    (Habit("anthropic: max_tokens in a thought", TYPES, "anthropic", back=spoken),
     Turn(None, SILENT, end="max_tokens"), CUT),
    (Habit("anthropic: window", TYPES, "anthropic"), Turn("I", end="model_context_window_exceeded"), FULL),
    (Habit("responses: refusal", TYPES, "responses", dress=sorry("output", [ITEM])), Turn(), REFUSED),
    (Habit("responses: content_filter", TYPES, "responses"), Turn("I", end="content_filter"), REFUSED),
    (Habit("responses: max_output_tokens", TYPES, "responses"), Turn("I", end="max_output_tokens"), CUT),
]
# fmt: on
