"""Faults that pass."""

from servers import Fault, Habit, Json, said

from habits.common import NOTES

OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_1"}
DISCONNECTED = {"code": 502, "message": "Provider disconnected", "metadata": {"error_type": "provider_unavailable"}}
ROUTER = {"id": "gen-1", "object": "chat.completion.chunk", "model": "m", "choices": [], "error": DISCONNECTED}
CHOICE: Json = {"index": 0, "delta": {"content": ""}, "finish_reason": "error", "error": DISCONNECTED}
CHOICE = {"id": "gen-1", "object": "chat.completion", "model": "m", "choices": [CHOICE]}
RATE = said("Rate limit reached for requests", code="rate_limit_exceeded")[1]
AT_ONCE = {"retry-after": "0", "x-ratelimit-reset-requests": "20ms"}


# fmt: off
FAULTS = [
    Habit("429", "OpenAI's guide", faults={2: Fault(429, RATE, AT_ONCE)}),
    Habit("503 and 529", faults={2: Fault(503, RATE), 4: Fault(529, OVERLOADED, AT_ONCE)}, **NOTES),
    Habit("error in a 200", "diegosouzapw/OmniRoute#8210", server="openrouter",
          faults={3: Fault(200, ROUTER, after=4)}),
    Habit("error in a choice", "openrouter.ai/docs/api-reference/errors", server="openrouter",
          faults={3: Fault(200, CHOICE, after=4)}),
]
# fmt: on
