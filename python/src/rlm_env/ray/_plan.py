"""The plan of a batch, and its progress."""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from .._events import RolloutResult
from .._models import Budget, Spending
from .._rollouts import Question, absolute_paths
from .._tools import Tool
from ._node import Job


@dataclass(frozen=True)
class Plan:
    """The task of a batch."""

    questions: list[Question]
    """The questions. Each has an id."""
    attempts: int
    job: Job
    driver_tools: list[Tool[..., Any]]
    context: list[str] | None
    """The context of questions that have none."""
    shared_storage: bool
    num_cpus: float
    budget: Budget | None
    max_losses: int
    shows: bool

    @property
    def cpus(self) -> float:
        """The CPUs for the rollouts of one node."""
        # Ray rounds to this precision.
        return round(self.num_cpus * self.job.concurrency, 4)

    def paths(self, question: Question) -> list[str] | None:
        """The paths of a question's context, if it has one."""
        if question.context is not None:
            return absolute_paths(question.context)
        has_other = question.context_text is not None or question.context_json is not None
        return None if has_other else self.context


@dataclass
class Attempt:
    question: Question
    number: int
    losses: int = 0
    """Number of times that the attempt's node died."""
    lost: Spending = Spending()
    """The spending of the lost runs."""
    is_sent: bool = False
    """True if the node that has the attempt knows of it."""

    @property
    def id(self) -> str:
        return f"{self.question.id}-{self.number}"

    @property
    def loss_metrics(self) -> dict[str, Any]:
        """The metrics of the attempt's lost runs, which its other metrics do not include."""
        return {
            "losses": self.losses,
            "lost_calls": self.lost.calls,
            "lost_tokens": self.lost.tokens,
            "lost_cost_usd": self.lost.cost_usd,
        }

    def failure(self, address: str, reason: str) -> dict[str, Any]:
        """The result of an attempt that ends without being run, on the node with this address."""
        return {
            "id": self.id,
            "question": self.question.question,
            "answer": None,
            "answer_ready": False,
            "stop_reason": "worker_failed",
            "error": reason,
            "metrics": self.loss_metrics,
            "question_id": self.question.id,
            "attempt": self.number,
            "metadata": self.question.metadata,
            "node": address,
        }


@dataclass
class Place:
    """A node of the cluster with an actor of ours."""

    node: str
    address: str
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The name of the node's actor: a later actor on the same node has another name."""
    actor: Any = None
    has_begun: bool = False
    """True if the actor has a process: Ray may wait for free CPUs."""
    is_ready: bool = False
    given: dict[str, Attempt] = field(default_factory=dict)
    """Attempts that have not ended, by their ids. The node runs as many as it may, the first ones first."""
    exchanges: int = 0
    """Number of exchanges under way: always one, so that the death of the node is noticed."""
    is_asked_back: bool = False


@dataclass
class State:
    """The progress of a batch."""

    waiting: deque[Attempt] = field(default_factory=deque)
    places: dict[str, Place] = field(default_factory=dict)
    """The places by the ids of their nodes."""
    done: int = 0
    failed: int = 0
    losses: int = 0
    spent: Spending = Spending()

    def count(self, result: RolloutResult) -> None:
        self.done += 1
        self.failed += result.stop_reason != "answered"
