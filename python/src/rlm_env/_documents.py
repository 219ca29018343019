"""The documents of the protocol, as immutable values. docs/protocol.md describes each field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from ._errors import ProtocolError

Language = Literal["bash", "python"]
Status = Literal["ok", "error"]
Outcome = Literal["ok", "error", "timed_out", "interrupted", "exited", "crashed"]
State = Literal["kept", "restored", "reset"]
Mechanism = Literal["cgroup", "rlimit"]

_STATUSES = get_args(Status)
_OUTCOMES = get_args(Outcome)
_STATES = get_args(State)
_EXCERPT = 64


@dataclass(frozen=True)
class Answer:
    """The answer of a session. `ready` is true once the code declared it final."""

    ready: bool = False
    content: str = ""


@dataclass(frozen=True)
class CellException:
    """The exception that ended a Python cell: the name of its class, and its text."""

    type: str
    message: str


@dataclass(frozen=True)
class Truncated:
    """Bytes dropped from the middle of each stream."""

    stdout: int
    stderr: int
    result: int


@dataclass(frozen=True)
class Response:
    """How a call went. Code that fails, is stopped or ends its interpreter gives a response too, never an error."""

    status: Status
    """`"ok"` if `outcome` is, otherwise `"error"`."""
    stdout: str
    """What the call printed; in bash, everything that a person would see at the terminal."""
    stderr: str
    """Standard error in Python; empty in bash."""
    result: str | None
    """Python: the repr of the last expression's value, or the traceback."""
    execution_count: int
    """Calls executed so far, this one included."""
    seq: int
    """Number of the request."""
    answer: Answer
    """The answer after the call."""
    outcome: Outcome
    """How the call ended."""
    state: State
    """What is left of the session's state."""
    execution_time: float
    """Wall-clock seconds."""
    exit_code: int | None
    """Bash: status of the last command, or of the shell if it ended."""
    exception: CellException | None
    """Python: what the cell raised."""
    truncated: Truncated | None
    """Bytes that did not fit `max_output_bytes`; None if everything did."""
    hint: str | None
    """A sentence on what happened and what to do, where `outcome` does not say enough."""
    protocol: int = 1

    @classmethod
    def from_json(cls, text: bytes | str) -> Response:
        """Reads a response document.

        Raises ProtocolError if it is not one: the message names the field, what was found and what was expected.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a response is not JSON ({error}): {_excerpt(text)}") from None
        fields = _Fields("response", document)
        answer = _Fields("answer", fields.take("answer", "an object", dict))
        exception = fields.take("exception", "an object or null", dict, type(None))
        truncated = fields.take("truncated", "an object or null", dict, type(None))
        state = cast("State", fields.one_of("state", _STATES))
        hint = fields.text_or_none("hint")
        result = fields.text_or_none("result")
        if state != "kept" and hint is not None and result is not None and result.startswith(hint):
            # For hosts that show a model no hints the result begins with it. Here each is a field of its own.
            result = result[len(hint) + 1 :] if result[len(hint) : len(hint) + 1] == "\n" else None
        return cls(
            status=cast("Status", fields.one_of("status", _STATUSES)),
            stdout=fields.text("stdout"),
            stderr=fields.text("stderr"),
            result=result,
            execution_count=fields.integer("execution_count"),
            seq=fields.integer("seq"),
            answer=Answer(answer.boolean("ready"), answer.text("content")),
            outcome=cast("Outcome", fields.one_of("outcome", _OUTCOMES)),
            state=state,
            execution_time=fields.number("execution_time"),
            exit_code=fields.integer_or_none("exit_code"),
            exception=None if exception is None else _exception(_Fields("exception", exception)),
            truncated=None if truncated is None else _truncated(_Fields("truncated", truncated)),
            hint=hint,
            protocol=fields.integer("protocol"),
        )


@dataclass(frozen=True)
class Limit:
    """A limit of resources, and the part of the kernel that enforces it: None if it cannot, for this user."""

    value: int
    mechanism: Mechanism | None


@dataclass(frozen=True)
class Limits:
    """Limits of a session's resources; None where there is none."""

    processes: Limit | None = None
    memory_bytes: Limit | None = None
    file_size_bytes: Limit | None = None
    cpu_seconds: Limit | None = None


@dataclass(frozen=True)
class Usage:
    """The most that a session has used of its resources; None where it is not known."""

    peak_processes: int | None = None
    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class Info:
    """A session and its worker."""

    language: Language
    version: str
    """Version of the interpreter."""
    worker_version: str
    protocol: int
    uptime: float
    """Seconds since the worker was ready."""
    calls: int
    """Calls executed so far."""
    memory_bytes: int
    """Resident memory of the worker, the interpreter and everything they started."""
    cwd: str | None
    pid: int | None
    """The interpreter; None if it has ended and the next call starts another."""
    answer_ready: bool
    limits: Limits
    usage: Usage

    @classmethod
    def from_json(cls, text: str) -> Info:
        """Reads the `result` of an `info` response. Raises ProtocolError if it is not a description."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a description is not JSON ({error}): {_excerpt(text)}") from None
        fields = _Fields("description", document)
        limits = _Fields("limits", document.get("limits") or {})
        usage = _Fields("usage", document.get("usage") or {})
        return cls(
            language=cast("Language", fields.one_of("language", get_args(Language))),
            version=fields.text("version"),
            worker_version=fields.text("worker_version"),
            protocol=fields.integer("protocol"),
            uptime=fields.number("uptime"),
            calls=fields.integer("calls"),
            memory_bytes=fields.integer("memory_bytes"),
            cwd=fields.text_or_none("cwd"),
            pid=fields.integer_or_none("pid"),
            answer_ready=fields.boolean("answer_ready"),
            limits=Limits(**{name: _limit(limits, name) for name in Limits.__dataclass_fields__}),
            usage=Usage(
                usage.integer_or_none("peak_processes", absent=None),
                usage.integer_or_none("peak_memory_bytes", absent=None),
                usage.number_or_none("cpu_seconds", absent=None),
            ),
        )


def _exception(fields: _Fields) -> CellException:
    return CellException(fields.text("type"), fields.text("message"))


def _truncated(fields: _Fields) -> Truncated:
    result = fields.integer_or_none("result", absent=0)
    return Truncated(fields.integer("stdout"), fields.integer("stderr"), result or 0)


def _limit(fields: _Fields, name: str) -> Limit | None:
    limit = fields.take(name, "an object or null", dict, type(None), absent=None)
    if limit is None:
        return None
    fields = _Fields(name, limit)
    mechanism = fields.take("mechanism", "a string or null", str, type(None))
    if mechanism is not None:
        fields.one_of("mechanism", get_args(Mechanism))
    return Limit(fields.integer("value"), cast("Mechanism | None", mechanism))


_ABSENT = object()


class _Fields:
    """The fields of a JSON object, each taken with its type checked."""

    def __init__(self, name: str, document: object) -> None:
        if type(document) is not dict:
            raise ProtocolError(f"a {name} must be an object, not {_excerpt(repr(document))}")
        self.name = name
        self.document = cast("dict[str, Any]", document)

    def take(self, field: str, expected: str, *types: type, absent: object = _ABSENT) -> Any:
        value = self.document.get(field, absent)
        # Not isinstance: a bool is an int.
        if type(value) in types:
            return value
        if value is _ABSENT:
            raise ProtocolError(f"a {self.name} has no field `{field}`: expected {expected}")
        raise ProtocolError(f"`{field}` of a {self.name} must be {expected}, not {_excerpt(repr(value))}")

    def text(self, field: str) -> str:
        return cast("str", self.take(field, "a string", str))

    def text_or_none(self, field: str) -> str | None:
        return cast("str | None", self.take(field, "a string or null", str, type(None)))

    def integer(self, field: str) -> int:
        return cast("int", self.take(field, "an integer", int))

    def integer_or_none(self, field: str, absent: object = _ABSENT) -> int | None:
        return cast("int | None", self.take(field, "an integer or null", int, type(None), absent=absent))

    def number(self, field: str) -> float:
        return float(self.take(field, "a number", float, int))

    def number_or_none(self, field: str, absent: object = _ABSENT) -> float | None:
        value = self.take(field, "a number or null", float, int, type(None), absent=absent)
        return None if value is None else float(value)

    def boolean(self, field: str) -> bool:
        return cast("bool", self.take(field, "a boolean", bool))

    def one_of(self, field: str, values: tuple[str, ...]) -> str:
        value = self.take(field, "a string", str)
        if value not in values:
            raise ProtocolError(f"`{field}` of a {self.name} must be one of {', '.join(values)}, not {_excerpt(value)}")
        return cast("str", value)


def _excerpt(text: bytes | str) -> str:
    if isinstance(text, bytes):
        text = text[: 4 * _EXCERPT].decode(errors="replace")
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
