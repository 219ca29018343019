"""Sessions for language models: a persistent bash or Python REPL in a process of its own, and functions it can call.

    from rlm_env import Session

    with Session("data") as session:
        print(session.execute("wc -l *.txt | tail -n 1").stdout)

`AsyncSession` is the same for asyncio, and `run`, `batch` and `stream` are whole rollouts. The documentation is
docs/python.md in the project.
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
from ._events import (
    CallEnded,
    CallStarted,
    Event,
    Message,
    ModelCall,
    Output,
    Result,
    RolloutEnded,
    RolloutResult,
    RolloutStarted,
    StopReason,
    SubCall,
    read_event,
    read_trajectory,
)
from ._models import Budget, ChatModel, Models, Spending
from ._programs import find_program
from ._rollouts import Question, Settings, batch, run, stream
from ._sync import Session
from ._tools import Tool, tool

__all__ = [
    "Answer",
    "AsyncSession",
    "Budget",
    "CallEnded",
    "CallStarted",
    "CellException",
    "ChatModel",
    "EndedError",
    "Event",
    "Info",
    "Language",
    "Limit",
    "Limits",
    "Mechanism",
    "Message",
    "ModelCall",
    "Models",
    "Outcome",
    "Output",
    "ProtocolError",
    "Question",
    "Response",
    "Result",
    "RolloutEnded",
    "RolloutResult",
    "RolloutStarted",
    "Session",
    "SessionConfig",
    "SessionError",
    "Settings",
    "Spending",
    "StartError",
    "State",
    "Status",
    "StopReason",
    "SubCall",
    "Tool",
    "Truncated",
    "Usage",
    "UsageError",
    "batch",
    "find_program",
    "for_workers",
    "read_event",
    "read_trajectory",
    "run",
    "stream",
    "tool",
]
