"""Fields that must not be sent."""

from servers import Habit, Json, Request, no_field, no_message_field, said
from wires import Refusal, openai_error

from habits.common import (
    CUT_ARGUMENTS,
    STREAMED,
    THINKS,
    calls_of,
    fenced,
    no_null_content,
    tagged,
    thinks,
    vllm_error,
    with_text,
    without,
)


def ollama(n: int, message: Json) -> None:
    thinks("reasoning")(n, message)
    message["content"] = message["content"] or ""


def request_id(request: Request) -> Refusal | None:
    return None if len(request.headers.get("x-request-id", "")) == 36 else (400, "Bad Request")


WORDS = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
NO_MAX_TOKENS = no_field("max_tokens", said(WORDS, "max_tokens", "unsupported_parameter"))
WORDS = "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted'}]"
NO_STREAM_OPTIONS = no_field("stream_options", vllm_error(WORDS))
WORDS = (
    "'messages.{at}' : for 'role:assistant' the following must be satisfied[('messages.{at}' : property '{name}' is "
    "unsupported, did you mean 'role'?)]"
)
GROQ = no_message_field("reasoning", WORDS)
NO_REASONING_CONTENT = no_message_field("reasoning_content")


def in_turns(request: Request) -> Refusal | None:
    """The template counts neither tools' outputs nor replies with calls."""
    roles = [m["role"] for m in request.body["messages"] if m["role"] in ("user", "assistant") and not calls_of(m)]
    if all(role == ("user", "assistant")[at % 2] for at, role in enumerate(roles)):
        return None
    words = "conversation roles must alternate user and assistant roles except for tool calls and results."
    error = {"code": 500, "message": f"After the optional system message, {words}", "type": "server_error"}
    return 500, {"error": error}


def no_system(request: Request) -> Refusal | None:
    has_system = any(message["role"] == "system" for message in request.body["messages"])
    return (400, openai_error("System role not supported")) if has_system else None


def answers_have_names(request: Request) -> Refusal | None:
    nameless = [message for message in request.body["messages"] if message["role"] == "tool" and "name" not in message]
    return said("Tool message must have a 'name' field.") if nameless else None


def no_calls(n: int, message: Json) -> None:
    fenced("")(n, message)
    message["tool_calls"] = []


def no_empty_calls(request: Request) -> Refusal | None:
    empty = [at for at, message in enumerate(request.body["messages"]) if message.get("tool_calls") == []]
    words = "empty array. Expected an array with minimum length 1, but got an empty array instead."
    return said(f"Invalid 'messages[{empty[0]}].tool_calls': {words}") if empty else None


def no_tools(request: Request) -> Refusal | None:
    words = "Tool calling is not supported for model: deepseek-ai/DeepSeek-R1"
    return (405, {"detail": {"error": words}}) if "tools" in request.body else None


# fmt: off
UNSENT = [
    Habit("openai", "decolua/9router#560, OpenHands/OpenHands#4131", server="openai", model="gpt-5",
          rules=(NO_MAX_TOKENS,), dress=lambda n, message: message.update(annotations=[]),
          allowed=("messages.annotations",), bounds=("max_completion_tokens",)),
    Habit("openai anywhere", "decolua/9router#560", rules=(NO_MAX_TOKENS,), learns=1),
    Habit("cut arguments", "OpenAI reads none", server="openai", turns=CUT_ARGUMENTS,
          bounds=("max_completion_tokens",)),
    Habit("deepseek-reasoner", "its documentation of 2025; the words are not known", rules=(NO_REASONING_CONTENT,),
          dress=thinks("reasoning_content"), back=without("reasoning_content"), learns=1),
    Habit("groq", "janhq/jan#8136, karthink/gptel#774; one refusal, as gpt-oss' own may pass", server="groq",
          rules=(GROQ,), dress=thinks("reasoning"), back=without("reasoning"), learns=1),
    Habit("cerebras", "Kilo-Org/kilocode#10375, QwenLM/qwen-code#11045", server="cerebras", rules=(
          NO_REASONING_CONTENT,), dress=thinks("reasoning"), allowed=THINKS),
    Habit("llama-cpp-python", "abetlen/llama-cpp-python#1337", rules=(request_id,)),
    Habit("no stream_options", "known: older vLLM", rules=(NO_STREAM_OPTIONS,), learns=1, **STREAMED),
    Habit("lm studio", "lmstudio-ai/lmstudio-bug-tracker#261", learns=1,
          back=with_text,
          rules=(no_null_content("Invalid 'content': 'content' field must be a string or an array of objects."),)),
    Habit("ollama", "SAIL-Research-Lab/cheetahclaws#72", server="ollama", dress=ollama, allowed=THINKS,
          rules=(no_null_content("invalid message content type: <nil>"),)),
    Habit("roles in turns", "the templates of Mistral and Ministral, as llama.cpp and vLLM run them", rules=(in_turns,),
          dress=tagged, learns=1),
    Habit("no system prompt", "the template of Gemma 2", rules=(no_system,), learns=1),
    Habit("names of answers", "su-kaka/gcli2api#200", rules=(answers_have_names,), learns=1,
          allowed=("messages.name",)),
    Habit("no empty calls", "openai/openai-node#1341, anomalyco/opencode#41860: vLLM's replies at another server, "
          "which a gateway or a change of the model makes", rules=(no_empty_calls,), dress=no_calls, learns=1,
          back=without("tool_calls"), modes=("whole",)),
    Habit("no tools", "AstrBotDevs/AstrBot#305", rules=(no_tools,), dress=fenced(""), learns=1),
]
# fmt: on
