"""The configuration of a session."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ._documents import Language

Confine = Literal["off", "full", "landlock", "try"]

_PROGRAM_NAMES = ("PATH", "VIRTUAL_ENV")
_SESSION_NAMES = ("HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
_WORKER_NAMES = (
    "RLM_BIN_DIR",
    "RLM_MAX_OUTPUT_BYTES",
    "RLM_LIMIT_PROCESSES",
    "RLM_LIMIT_MEMORY",
    "RLM_LIMIT_FILE_SIZE",
    "RLM_LIMIT_CPU",
    "RLM_CGROUP",
    "RLM_CONFINE",
    "RLM_CONFINE_READ",
    "RLM_CONFINE_WRITE",
    "RLM_CONFINE_TMP",
    "RLM_TERM",
    "RLM_COLUMNS",
    "RLM_ROWS",
    "RLM_PASS_ENV",
    "RLM_BASH",
    "RLM_PYTHON",
    "RLM_DISALLOWED_MODULES",
    "RLM_DISALLOWED_BUILTINS",
    "RLM_FS_JAIL",
    "RLM_FINAL_FUNCTIONS",
    "RLM_CHECKPOINT",
    "RLM_FORK_SERVER_NAME",
    "RLM_PYTHON_PRELOAD",
)


@dataclass(frozen=True)
class SessionConfig:
    """How to start a session. It pickles, where a session does not: send it to the process that needs the session.

    Times are in seconds.
    """

    fs_root: str | os.PathLike[str] = "."
    """The session's working directory, which must exist."""
    language: Language = field(default="bash", kw_only=True)
    python: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    """The interpreter of a Python session. None: `RLM_PYTHON` of `env`, else the interpreter of this program."""
    fork_server: str | None = field(default=None, kw_only=True)
    """The `name` of a `ForkServer`, for Python sessions. None: `RLM_FORK_SERVER_NAME` of `env`."""
    control_dir: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    """The control directory, which must exist. None: a private one, removed with the session."""
    env: Mapping[str, str] | None = field(default=None, kw_only=True)
    """The worker's whole environment. None: `for_workers(os.environ)`."""
    exec_timeout: float | None = field(default=None, kw_only=True)
    """Time limit of calls that do not set one. None: no limit."""
    max_output_bytes: int | None = field(default=None, kw_only=True)
    """Bound on the output returned per stream. None: 16 MiB."""
    confine: Confine | None = field(default=None, kw_only=True)
    """The part of this host that code may reach: docs/confinement.md. None: `RLM_CONFINE` of `env`, else "off"."""
    fs_metadata: Any = field(default=None, kw_only=True)
    """A description of the files, for Python sessions. JSON."""
    worker: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    """The worker program. None: the package's, for the language."""
    margin: float = field(default=5.0, kw_only=True)
    """Time beyond the worker's own limit of a call. After it, the worker is replaced."""
    start_limit: float = field(default=60.0, kw_only=True)
    """Time limit of the worker's start."""

    def __post_init__(self) -> None:
        if self.language not in ("bash", "python"):
            raise ValueError(f'language must be "bash" or "python", not {self.language!r}')
        if self.fork_server is not None and not isinstance(self.fork_server, str):
            raise TypeError(f"fork_server must be the name of a ForkServer, not {self.fork_server!r}")
        if self.confine is not None and self.confine not in get_args(Confine):
            raise ValueError(f"confine must be one of {', '.join(get_args(Confine))}, or None, not {self.confine!r}")
        for name in ("fs_root", "python", "control_dir", "worker"):
            path = getattr(self, name)
            if not isinstance(path, (str, os.PathLike)) and (path is not None or name == "fs_root"):
                raise TypeError(f"{name} must be a path, not {path!r}")
        for name in ("exec_timeout", "margin", "start_limit"):
            if name != "exec_timeout" or self.exec_timeout is not None:
                check_seconds(name, getattr(self, name))
        size = self.max_output_bytes
        if size is not None and (type(size) is not int or size <= 0):
            raise ValueError(f"max_output_bytes must be an int above 0, or None for 16 MiB, not {size!r}")
        for name, value in (self.env or {}).items():
            if not isinstance(name, str) or not isinstance(value, str) or "=" in name or "\0" in name + value:
                raise ValueError(f"env must have names and values that are str: not {name!r}: {value!r}")
        try:
            json.dumps(self.fs_metadata, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(f"fs_metadata must be a value that JSON can hold: {error}") from None

    def environment(self) -> dict[str, str]:
        """The variables with which the worker is started, except those that the session adds."""
        variables = dict(for_workers(os.environ) if self.env is None else self.env)
        if self.python is not None:
            variables["RLM_PYTHON"] = os.fspath(self.python)
        elif self.language == "python" and sys.executable:
            variables.setdefault("RLM_PYTHON", sys.executable)
        if self.fork_server is not None:
            variables["RLM_FORK_SERVER_NAME"] = self.fork_server
        if self.confine is not None:
            variables["RLM_CONFINE"] = self.confine
        return variables


def for_workers(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that workers get: the variables they need, and those that `RLM_PASS_ENV` names.

    Code in a session could read any other variable there, such as a model's API key.
    """
    passed = environment.get("RLM_PASS_ENV", "").replace(",", " ").split()
    known = {*_PROGRAM_NAMES, *_SESSION_NAMES, *_WORKER_NAMES, *passed}
    return {
        name: value for name, value in environment.items() if name in known or name.startswith("LC_") or "*" in passed
    }


def check_count(name: str, value: object) -> None:
    """Refuses what is not a whole number above 0."""
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be an int from 1, not {value!r}")


def check_seconds(name: str, value: object) -> None:
    """Refuses what is not a time above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")


_MAX_LEVELS = 100
"""Most levels of nested lists and objects. `rlm` reads 128, with those around a question or a schema."""


def check_json(value: object, levels: int = 0) -> None:
    """Raises ValueError for what Python takes for JSON and `rlm` does not."""
    if levels > _MAX_LEVELS:
        raise ValueError(f"it has more than {_MAX_LEVELS} levels of lists and objects")
    if isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            check_json(part, levels + 1)
    elif isinstance(value, int):
        try:
            float(value)
        except OverflowError as error:
            raise ValueError("it has an int beyond a 64-bit float") from error
