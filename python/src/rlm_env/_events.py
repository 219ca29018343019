"""The events of rollouts, as immutable values. docs/trajectory.md describes each field."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union

from ._documents import Language, Outcome, State, excerpt
from ._errors import ProtocolError

StopReason = Literal[
    "answered",
    "max_turns",
    "timed_out",
    "budget_exhausted",
    "context_full",
    "no_tool_call",
    "model_refused",
    "reply_cut",
    "stopped",
    "cancelled",
    "branched",
    "model_failed",
    "worker_failed",
    "setup_failed",
]
MessageKind = Literal["system", "question", "reply", "output", "notice", "summary"]

_MAX_NUMBER = 1 << 1000


@dataclass(frozen=True)
class LeftOut:
    """The files and directories that the copy of a context left out for one reason."""

    reason: Literal["gitignore", "exclude", "symbolic_link", "special"]
    count: int
    """A directory counts once, with everything in it."""
    names: list[str]
    """The first paths; those of directories end with `/`."""


@dataclass(frozen=True)
class RolloutStarted:
    """The first event of a rollout."""

    rollout: str
    time: float
    version: int
    question: str
    language: Language
    model: str
    sub_model: str | None
    root_tools: list[str]
    """Tools that code can call."""
    tools: list[str]
    """Tools that the root model can call, the REPL first."""
    context_files: int
    context_bytes: int
    callbacks: Literal["network", "intercept"] = "network"
    final_functions: bool = False
    context_left_out: tuple[LeftOut, ...] = ()
    """Files that the copy of the context left out, by reason."""
    parent: str | None = None
    """The rollout whose code has started this one."""
    parent_call_id: str | None = None
    branched_at: int | None = None
    query_digest: str | None = None
    """The digest of the question that the code asked."""
    depth: int = 0
    """Number of rollouts above this one."""


@dataclass(frozen=True)
class Message:
    """A message of the conversation with the root model."""

    rollout: str
    time: float
    turn: int
    kind: MessageKind
    message: dict[str, Any]
    """In OpenAI's form."""


@dataclass(frozen=True)
class ModelRetry:
    """A request to the root model has failed, and is sent again."""

    rollout: str
    time: float
    turn: int
    error: str
    wait_seconds: float
    """Seconds until the next attempt."""


@dataclass(frozen=True)
class ModelCall:
    """The end of a request to the root model."""

    rollout: str
    time: float
    turn: int
    is_summary: bool
    model: str
    prompt_tokens: int
    completion_tokens: int
    usage_estimated: bool
    cost_usd: float | None
    attempts: int
    seconds: float
    error: str | None
    extra: dict[str, Any] | None = None
    """Fields that the server added to its reply, such as `logprobs` and `token_ids`."""
    request_id: str | None = None
    """The id sent to the server as `X-Request-Id`; None without a reply."""
    cached_tokens: int = 0
    """The prompt's tokens that were read from the server's cache."""
    cache_write_tokens: int = 0
    """The prompt's tokens that were written to the server's cache at a price of their own."""
    reasoning_tokens: int = 0
    """The completion's tokens that are reasoning."""
    finish_reason: str | None = None
    """Why the reply ended, as the server gave it."""
    adapted: list[str] = dataclasses.field(default_factory=list)
    """A sentence for each change to the conversation before it was sent, with its reason."""


@dataclass(frozen=True)
class CallStarted:
    """The start of a tool that the root model called: `code` if it is the REPL."""

    rollout: str
    time: float
    turn: int
    call_id: str
    tool: str
    code: str | None
    arguments: Any = None


@dataclass(frozen=True)
class Output:
    """The response of the REPL."""

    stdout: str
    stderr: str
    result: str | None
    outcome: Outcome
    state: State
    exit_code: int | None
    dropped_bytes: int
    hint: str | None
    answer: str
    answer_ready: bool


@dataclass(frozen=True)
class CallEnded:
    """The end of a call of the root model."""

    rollout: str
    time: float
    turn: int
    call_id: str
    seconds: float
    output: Output | None
    error: str | None


@dataclass(frozen=True)
class SubCall:
    """The end of a request to a sub-LLM."""

    rollout: str
    time: float
    call_id: str | None
    batch_id: str
    index: int
    step: int
    request_id: str
    model: str
    messages: list[Any]
    reply: dict[str, Any] | None
    error: str | None
    prompt_tokens: int
    completion_tokens: int
    usage_estimated: bool
    cost_usd: float | None
    attempts: int
    seconds: float
    extra: dict[str, Any] | None = None
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    finish_reason: str | None = None


@dataclass(frozen=True)
class RolloutEnded:
    """The last event of a rollout."""

    rollout: str
    time: float
    stop_reason: StopReason
    answer: str | None
    answer_ready: bool
    error: str | None
    metrics: dict[str, Any]


@dataclass(frozen=True)
class RolloutResult:
    """How a rollout ended."""

    id: str
    question: str
    answer: str | None
    """The answer, or the best so far."""
    answer_ready: bool
    """True if the model declared the answer final."""
    stop_reason: StopReason
    error: str | None
    metrics: dict[str, Any]
    """docs/rollouts.md lists them."""
    dir: str | None = None
    """The rollout's directory, if it was kept."""
    question_id: str | None = None
    attempt: int | None = None
    """The number of the attempt, from 1."""
    metadata: Any = None
    """The question's metadata."""
    expected: Any = None
    """The question's expected answer."""
    score: float | None = None
    """From 0 to 1; None if the answer was not scored, or could not be."""
    score_error: str | None = None
    """Why the answer could not be scored."""
    model: str | None = None
    sub_model: str | None = None
    settings: str | None = None
    """A digest of the settings that can change an answer."""
    node: str | None = None
    """The address of the node on which the rollout ran, if it ran on a cluster."""


@dataclass(frozen=True)
class Result:
    """The result of a rollout, after its last event. Trajectories do not have it."""

    rollout: str
    time: float
    result: RolloutResult


Event = Union[RolloutStarted, Message, ModelRetry, ModelCall, CallStarted, CallEnded, SubCall, RolloutEnded, Result]

_CLASSES: dict[str, type[Event]] = {
    "rollout_started": RolloutStarted,
    "message": Message,
    "model_retry": ModelRetry,
    "model_call": ModelCall,
    "call_started": CallStarted,
    "call_ended": CallEnded,
    "sub_call": SubCall,
    "rollout_ended": RolloutEnded,
    "result": Result,
}


def read_event(line: bytes | str) -> Event | None:
    """The event of a line; None if this version does not know its kind.

    Raises ProtocolError if it is not an event: the message names the field, what was found and what was expected.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"an event is not JSON ({error}): {excerpt(line, 80)}") from None
    name = document.get("event") if isinstance(document, dict) else None
    if not isinstance(name, str):
        raise ProtocolError(f"an event must be an object with the field `event`, not {excerpt(line, 80)}")
    kind = _CLASSES.get(name)
    return None if kind is None else _read(name, kind, document)


def read_result(document: object) -> RolloutResult:
    """Reads a result, such as one of the file of a batch. Raises ProtocolError if it is not a result."""
    return typing.cast("RolloutResult", _read("result", RolloutResult, document))


def read_trajectory(path: str | os.PathLike[str]) -> Iterator[Event]:
    """The events of a trajectory. A last line that is cut off is left out.

    Raises OSError if the file cannot be read, and ProtocolError if it is not a trajectory.
    """
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n") and line.strip() and (event := read_event(line)) is not None:
                yield event


_hints: dict[type, dict[str, Any]] = {}


def _read(name: str, kind: type[Any], document: Any) -> Any:
    """An object of a dataclass, each field of the type that it declares. Other fields are ignored."""
    if not isinstance(document, dict):
        raise ProtocolError(f"`{name}` must be an object, not {excerpt(repr(document), 80)}")
    if kind not in _hints:
        _hints[kind] = typing.get_type_hints(kind)
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in document:
            values[field.name] = _value(f"{name}.{field.name}", _hints[kind][field.name], document[field.name])
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ProtocolError(f"`{name}` has no field `{field.name}`")
    return kind(**values)


def _value(name: str, hint: Any, value: Any) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        if option is Any or (option is types.NoneType and value is None):
            return value
        if dataclasses.is_dataclass(option) and value is not None:
            return _read(name, typing.cast("type[Any]", option), value)
        if typing.get_origin(option) is Literal:
            if value in typing.get_args(option):
                return value
        elif option is float and type(value) is int and abs(value) < _MAX_NUMBER:
            return float(value)
        elif typing.get_origin(option) is tuple and type(value) is list:
            return tuple(_value(name, typing.get_args(option)[0], one) for one in value)
        # Not isinstance: a bool is an int.
        elif type(value) is (typing.get_origin(option) or option):
            return value
    raise ProtocolError(f"`{name}` must be {_words(hint)}, not {excerpt(repr(value), 80)}")


def _words(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, typing.get_args(hint)))}"
    return getattr(hint, "__name__", None) or str(hint).replace("typing.", "")
