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
ConfinementLevel = Literal["off", "landlock", "full"]

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
    """The output of the call; in bash, everything that a person would see at the terminal."""
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
    """The part of the session's state that is left."""
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
        fields = _checked("response", _parsed("response", text), _RESPONSE)
        answer = _checked("answer", fields["answer"], _ANSWER)
        exception, truncated = fields["exception"], fields["truncated"]
        if exception is not None:
            exception = CellException(**_only(_checked("exception", exception, _EXCEPTION), _EXCEPTION))
        if truncated is not None:
            # Older workers do not truncate `result`.
            truncated = Truncated(**_only(_checked("truncated", {"result": 0, **truncated}, _TRUNCATED), _TRUNCATED))
        state, hint, result = fields["state"], fields["hint"], fields["result"]
        if state != "kept" and hint is not None and result is not None and result.startswith(hint):
            # The result begins with the hint, for hosts that show models no hints. Here each is a field of its own.
            result = result[len(hint) + 1 :] if result[len(hint) : len(hint) + 1] == "\n" else None
        return cls(
            fields["status"],
            fields["stdout"],
            fields["stderr"],
            result,
            fields["execution_count"],
            fields["seq"],
            Answer(answer["ready"], answer["content"]),
            fields["outcome"],
            state,
            float(fields["execution_time"]),
            fields["exit_code"],
            exception,
            truncated,
            hint,
            fields["protocol"],
        )


@dataclass(frozen=True)
class Limit:
    """A limit of resources, and the part of the kernel that enforces it: None if the kernel cannot, for this user."""

    value: int
    mechanism: Mechanism | None


@dataclass(frozen=True)
class Limits:
    """Limits of a session's resources. None: no limit."""

    processes: Limit | None = None
    memory_bytes: Limit | None = None
    file_size_bytes: Limit | None = None
    cpu_seconds: Limit | None = None


@dataclass(frozen=True)
class Usage:
    """The most that a session has used of its resources; None for what is not known."""

    peak_processes: int | None = None
    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class Confinement:
    """The part of its host that a session can reach: docs/confinement.md."""

    level: ConfinementLevel = "off"
    landlock: int | None = None
    """The version of Landlock that holds for the session."""


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
    """Process id of the interpreter; None if it has ended and the next call starts another."""
    answer_ready: bool
    limits: Limits
    usage: Usage
    builtin: bool = False
    """True if the interpreter is the Python that is packed with the programs."""
    confinement: Confinement = Confinement()

    @classmethod
    def from_json(cls, text: str) -> Info:
        """Reads the `result` of an `info` response. Raises ProtocolError if it is not a description."""
        fields = dict(_checked("description", _parsed("description", text), _INFO))
        # Older workers report no limits.
        limits = _checked("limits", {**dict.fromkeys(_LIMITS), **fields.get("limits", {})}, _LIMITS)
        usage = _checked("usage", {**dict.fromkeys(_USAGE), **fields.get("usage", {})}, _USAGE)
        confinement = {"level": "off", "landlock": None, **fields.get("confinement", {})}
        _checked("confinement", confinement, _CONFINEMENT)
        fields["uptime"] = float(fields["uptime"])
        return cls(
            **_only(fields, _INFO),
            limits=Limits(**{name: _limit(name, limits[name]) for name in _LIMITS}),
            usage=Usage(**_only(usage, _USAGE)),
            builtin=fields.get("builtin") is True,
            confinement=Confinement(**_only(confinement, _CONFINEMENT)),
        )


def _limit(name: str, limit: Any) -> Limit | None:
    return None if limit is None else Limit(**_only(_checked(name, limit, _LIMIT), _LIMIT))


@dataclass(frozen=True)
class _Kind:
    """The type of a field: JSON types, or one of some strings."""

    expected: str
    types: tuple[type, ...]
    values: tuple[str, ...] | None = None


_BOOLEAN = _Kind("a boolean", (bool,))
_INTEGER = _Kind("an integer", (int,))
_INTEGER_OR_NULL = _Kind("an integer or null", (int, type(None)))
_NUMBER = _Kind("a number", (float, int))
_NUMBER_OR_NULL = _Kind("a number or null", (float, int, type(None)))
_TEXT = _Kind("a string", (str,))
_TEXT_OR_NULL = _Kind("a string or null", (str, type(None)))
_OBJECT = _Kind("an object", (dict,))
_OBJECT_OR_NULL = _Kind("an object or null", (dict, type(None)))


def _one_of(literal: Any) -> _Kind:
    values = get_args(literal)
    return _Kind(f"one of {', '.join(values)}", (str,), values)


_RESPONSE = {
    "status": _one_of(Status),
    "stdout": _TEXT,
    "stderr": _TEXT,
    "result": _TEXT_OR_NULL,
    "execution_count": _INTEGER,
    "seq": _INTEGER,
    "answer": _OBJECT,
    "outcome": _one_of(Outcome),
    "state": _one_of(State),
    "execution_time": _NUMBER,
    "exit_code": _INTEGER_OR_NULL,
    "exception": _OBJECT_OR_NULL,
    "truncated": _OBJECT_OR_NULL,
    "hint": _TEXT_OR_NULL,
    "protocol": _INTEGER,
}
_ANSWER = {"ready": _BOOLEAN, "content": _TEXT}
_EXCEPTION = {"type": _TEXT, "message": _TEXT}
_TRUNCATED = {"stdout": _INTEGER, "stderr": _INTEGER, "result": _INTEGER}
_INFO = {
    "language": _one_of(Language),
    "version": _TEXT,
    "worker_version": _TEXT,
    "protocol": _INTEGER,
    "uptime": _NUMBER,
    "calls": _INTEGER,
    "memory_bytes": _INTEGER,
    "cwd": _TEXT_OR_NULL,
    "pid": _INTEGER_OR_NULL,
    "answer_ready": _BOOLEAN,
}
_LIMIT = {"value": _INTEGER, "mechanism": _TEXT_OR_NULL}
_LIMITS = {name: _OBJECT_OR_NULL for name in ("processes", "memory_bytes", "file_size_bytes", "cpu_seconds")}
_CONFINEMENT = {"level": _one_of(ConfinementLevel), "landlock": _INTEGER_OR_NULL}
_USAGE = {"peak_processes": _INTEGER_OR_NULL, "peak_memory_bytes": _INTEGER_OR_NULL, "cpu_seconds": _NUMBER_OR_NULL}

_ABSENT = object()


def _parsed(name: str, text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a {name} is not JSON ({error}): {_excerpt(text)}") from None


def _checked(name: str, document: Any, kinds: dict[str, _Kind]) -> dict[str, Any]:
    """The document, if it is an object and each field is of its kind. Other fields are ignored."""
    if type(document) is not dict:
        raise ProtocolError(f"a {name} must be an object, not {_excerpt(repr(document))}")
    for field, kind in kinds.items():
        value = document.get(field, _ABSENT)
        # Not isinstance: a bool is an int.
        if type(value) in kind.types and (kind.values is None or value in kind.values):
            continue
        if value is _ABSENT:
            raise ProtocolError(f"a {name} has no field `{field}`: expected {kind.expected}")
        raise ProtocolError(f"`{field}` of a {name} must be {kind.expected}, not {_excerpt(repr(value))}")
    return cast("dict[str, Any]", document)


def _only(document: dict[str, Any], kinds: dict[str, _Kind]) -> dict[str, Any]:
    return {name: document[name] for name in kinds}


def _excerpt(text: bytes | str) -> str:
    if isinstance(text, bytes):
        text = text[: 4 * _EXCERPT].decode(errors="replace")
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
