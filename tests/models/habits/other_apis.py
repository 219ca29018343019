"""Anthropic's interface and OpenAI's Responses."""

from servers import Fault, Habit, Json, Request, no_field, said
from wires import SECRET, Refusal, Turn

from habits.common import BOTH, silent, spoken, third
from habits.faults import AT_ONCE, OVERLOADED


def redacted(n: int, message: Json) -> None:
    message["content"].insert(1, {"type": "redacted_thinking", "data": f"{SECRET}-{n}"})


CUT_CALL = third(Turn("Long.", "I write.", ("{}",), end="model_context_window_exceeded"))
REFUSED_CALL = third(Turn("Long.", "I write.", ("{}",), end="refusal"))


def responses_rule(request: Request) -> Refusal | None:
    """The reasoning of a call must be there, and was sent if the request for it asked for that."""
    if request.body.get("store") is not False or "reasoning.encrypted_content" not in request.body.get("include", []):
        return said("nothing is stored here: `store` must be false, and `include` have `reasoning.encrypted_content`")
    ids = {item.get("id") for item in request.body["input"]}
    for item in request.body["input"]:
        if item.get("type") == "function_call" and (needs := f"rs_{item['id'].split('_')[1]}") not in ids:
            kind = f"Item '{item['id']}' of type 'function_call'"
            return said(f"{kind} was provided without its required 'reasoning' item: '{needs}'.")
    return None


NO_ENCRYPTED = no_field("include", said("Encrypted content is not supported with this model.", "include"))


def thoughtless(turns: list[Turn]) -> list[Turn]:
    return [Turn(turn.text, "", turn.calls, turn.end) for turn in turns]


def pausing(turns: list[Turn]) -> list[Turn]:
    return [turns[0], Turn("I search.", "Long.", (), "pause_turn"), *turns[1:]]


def bearer_alone(request: Request) -> Refusal | None:
    words = "login fail: Please carry the API secret key in the 'Authorization' field of the request header"
    error = {"type": "error", "error": {"type": "authentication_error", "message": words}}
    has_key = request.headers.get("authorization", "").startswith("Bearer ")
    return None if has_key and "x-api-key" not in request.headers else (401, error)


CLAUDE: Json = {"api": "anthropic", "server": "anthropic", "source": "anthropic's types, platform.claude.com/docs"}
GPT: Json = {"api": "responses", "server": "openai"}


# fmt: off
OTHER_APIS = [
    Habit("anthropic", **CLAUDE, **BOTH),
    Habit("anthropic, another header", "NousResearch/hermes-agent#4028", "anthropic", rules=(bearer_alone,), learns=1),
    Habit("anthropic, redacted", dress=redacted, **CLAUDE),
    Habit("anthropic, a silent reply", turns=silent, back=spoken, **CLAUDE),
    Habit("anthropic, pausing", turns=pausing, **CLAUDE),
    Habit("anthropic, no thoughts", turns=thoughtless, **CLAUDE),
    Habit("anthropic, a cut call", turns=CUT_CALL, told={4: "the reply was cut off"}, **CLAUDE),
    Habit("anthropic, a refused call", turns=REFUSED_CALL, told={4: "the model refused"}, **CLAUDE),
    Habit("anthropic, overloaded", **CLAUDE,
          faults={2: Fault(529, OVERLOADED, AT_ONCE), 4: Fault(529, OVERLOADED, after=5)}),
    Habit("responses", "continuedev/continue#10018, #8933, openai-agents-js#546", rules=(responses_rule,),
          **GPT, **BOTH),
    Habit("responses, no reasoning", "OpenHands/software-agent-sdk#1208", rules=(NO_ENCRYPTED,), learns=1,
          turns=thoughtless, **GPT),
]
# fmt: on
