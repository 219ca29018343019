"""Sessions for language models: a persistent bash or Python REPL in a process of its own, and functions it can call.

    from rlm_env import Session

    with Session("data") as session:
        print(session.execute("wc -l *.txt | tail -n 1").stdout)

`AsyncSession` is the same for asyncio. The documentation is docs/python.md in the project.
"""

from __future__ import annotations

from ._asyncio import AsyncSession
from ._config import SessionConfig, for_workers
from ._documents import (
    Answer,
    CellException,
    Info,
    Language,
    Limit,
    Limits,
    Mechanism,
    Outcome,
    Response,
    State,
    Status,
    Truncated,
    Usage,
)
from ._errors import EndedError, ProtocolError, SessionError, StartError, UsageError
from ._programs import find_program
from ._sync import Session
from ._tools import Tool, tool

__all__ = [
    "Answer",
    "AsyncSession",
    "CellException",
    "EndedError",
    "Info",
    "Language",
    "Limit",
    "Limits",
    "Mechanism",
    "Outcome",
    "ProtocolError",
    "Response",
    "Session",
    "SessionConfig",
    "SessionError",
    "StartError",
    "State",
    "Status",
    "Truncated",
    "Tool",
    "Usage",
    "UsageError",
    "find_program",
    "for_workers",
    "tool",
]
