"""The documents of the protocol, as immutable values. docs/protocol.md describes each field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ._errors import ProtocolError

Language = Literal["bash", "python"]
Status = Literal["ok", "error"]
Outcome = Literal["ok", "error", "timed_out", "interrupted", "exited", "crashed"]
State = Literal["kept", "restored", "reset"]
Mechanism = Literal["cgroup", "rlimit", "pid_namespace"]
ConfinementLevel = Literal["off", "landlock", "full"]

_T = TypeVar("_T")


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
        fields = _checked("response", _parsed("response", text), _KINDS[Response])
        exception, truncated = fields["exception"], fields["truncated"]
        state, hint, result = fields["state"], fields["hint"], fields["result"]
        if state != "kept" and hint is not None and result is not None and result.startswith(hint):
            # The result begins with the hint, for hosts that show models no hints. Here each is a field of its own.
            result = result[len(hint) + 1 :] if result[len(hint) : len(hint) + 1] == "\n" else None
        read = {
            "result": result,
            "answer": _read(Answer, "answer", fields["answer"]),
            "execution_time": float(fields["execution_time"]),
            "exception": None if exception is None else _read(CellException, "exception", exception),
            # Older workers do not truncate `result`.
            "truncated": None if truncated is None else _read(Truncated, "truncated", {"result": 0, **truncated}),
        }
        return cls(**{**_only(fields, _KINDS[Response]), **read})


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
        fields = _checked("description", _parsed("description", text), _INFO)
        # Older workers report no limits.
        limits = _checked("limits", {**_NOTHING[Limits], **fields.get("limits", {})}, _KINDS[Limits])
        confinement = {"level": "off", "landlock": None, **fields.get("confinement", {})}
        return cls(
            **{**_only(fields, _INFO), "uptime": float(fields["uptime"])},
            limits=Limits(**{name: _limit(name, limits[name]) for name in _KINDS[Limits]}),
            usage=_read(Usage, "usage", {**_NOTHING[Usage], **fields.get("usage", {})}),
            builtin=fields.get("builtin") is True,
            confinement=_read(Confinement, "confinement", confinement),
        )


def _limit(name: str, limit: Any) -> Limit | None:
    return None if limit is None else _read(Limit, name, limit)


@dataclass(frozen=True)
class _Kind:
    """The type of a field: JSON types, or one of some strings."""

    expected: str
    types: tuple[type, ...]
    values: tuple[str, ...] | None = None


_JSON_TYPES: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("a boolean", (bool,)),
    int: ("an integer", (int,)),
    float: ("a number", (float, int)),
    str: ("a string", (str,)),
}


def _kind(hint: Any) -> _Kind:
    """The JSON from which a field of this type is read."""
    if get_origin(hint) is Literal:
        return _Kind(f"one of {', '.join(get_args(hint))}", (str,), get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        [option] = (one for one in get_args(hint) if one is not NoneType)
        # Any text is taken for a literal that may be absent.
        kind = _kind(str if get_origin(option) is Literal else option)
        return _Kind(f"{kind.expected} or null", (*kind.types, NoneType))
    return _Kind(*_JSON_TYPES.get(hint, ("an object", (dict,))))


_KINDS: dict[type, dict[str, _Kind]] = {
    cls: {name: _kind(hint) for name, hint in get_type_hints(cls).items()}
    for cls in (Response, Answer, CellException, Truncated, Info, Limit, Limits, Usage, Confinement)
}
"""The fields of each class."""
_INFO = {name: kind for name, kind in _KINDS[Info].items() if name not in ("limits", "usage", "builtin", "confinement")}
"""Fields that every worker reports."""
_NOTHING = {cls: dict.fromkeys(_KINDS[cls]) for cls in (Limits, Usage)}

_ABSENT = object()


def _parsed(name: str, text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a {name} is not JSON ({error}): {excerpt(text)}") from None


def _checked(name: str, document: Any, kinds: dict[str, _Kind]) -> dict[str, Any]:
    """The document, if it is an object and each field is of its kind. Other fields are ignored."""
    if type(document) is not dict:
        raise ProtocolError(f"a {name} must be an object, not {excerpt(repr(document))}")
    for field, kind in kinds.items():
        value = document.get(field, _ABSENT)
        # Not isinstance: a bool is an int.
        if type(value) in kind.types and (kind.values is None or value in kind.values):
            continue
        if value is _ABSENT:
            raise ProtocolError(f"a {name} has no field `{field}`: expected {kind.expected}")
        raise ProtocolError(f"`{field}` of a {name} must be {kind.expected}, not {excerpt(repr(value))}")
    return cast("dict[str, Any]", document)


def _read(kind: type[_T], name: str, document: Any) -> _T:
    """An object of this class. Raises ProtocolError if the document is not one."""
    return kind(**_only(_checked(name, document, _KINDS[kind]), _KINDS[kind]))


def _only(document: dict[str, Any], kinds: dict[str, _Kind]) -> dict[str, Any]:
    return {name: document[name] for name in kinds}


def excerpt(text: bytes | str, most: int = 64) -> str:
    """The beginning of a text, for a message."""
    if isinstance(text, bytes):
        text = text[: 4 * most].decode(errors="replace")
    return text if len(text) <= most else f"{text[:most]}…"
