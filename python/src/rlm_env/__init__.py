"""Sessions for language models: a persistent bash or Python REPL in a process of its own, and functions it can call.

    from rlm_env import Session

    with Session("data") as session:
        print(session.execute("wc -l *.txt | tail -n 1").stdout)

`AsyncSession` is the same for asyncio, and `run`, `batch` and `stream` are whole rollouts. The documentation is
docs/python.md in the project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._asyncio import AsyncSession
from ._config import Confine, SessionConfig, for_workers
from ._documents import (
    Answer,
    CellException,
    Confinement,
    ConfinementLevel,
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
from ._errors import BranchError, EndedError, ProtocolError, SessionError, StartError, UsageError
from ._fork_server import ForkServer
from ._models import Budget, ChatModel, Models, Spending
from ._programs import find_program
from ._sync import Session
from ._tools import Tool, tool

if TYPE_CHECKING:
    from ._events import (
        CallEnded,
        CallStarted,
        Event,
        LeftOut,
        Message,
        ModelCall,
        ModelRetry,
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
    from ._rollouts import Question, Settings, batch, run, stream

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncSession",
    "Budget",
    "CallEnded",
    "CallStarted",
    "CellException",
    "ChatModel",
    "Confine",
    "Confinement",
    "ConfinementLevel",
    "BranchError",
    "EndedError",
    "Event",
    "ForkServer",
    "Info",
    "Language",
    "LeftOut",
    "Limit",
    "Limits",
    "Mechanism",
    "Message",
    "ModelCall",
    "ModelRetry",
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

_ROLLOUTS = ("Question", "Settings", "batch", "run", "stream")


def __getattr__(name: str) -> Any:
    """Imports the names that only rollouts need at their first use: sessions do without them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _events, _rollouts

    value = globals()[name] = getattr(_rollouts if name in _ROLLOUTS else _events, name)
    return value
