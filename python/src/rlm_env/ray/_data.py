"""Rollouts for Ray Data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._config import check_count
from .._events import RolloutResult
from .._models import ChatModel
from .._rollouts import Question, batch, check_settings
from .._tools import AnyTool, tools_of

if TYPE_CHECKING:
    from typing_extensions import Unpack  # pyright: ignore[reportMissingModuleSource]

    from .._rollouts import Settings


class Rollouts:
    """Answers the questions of a dataset: a class for `Dataset.map_batches`.

        dataset.map_batches(Rollouts, fn_constructor_kwargs={"model": "large-model"}, concurrency=4, batch_size=16)

    `question`, `context_text` and `expected` are names of columns; `parallel` rollouts of a batch run at once on its
    node. Each row gets the columns `answer` (a text, or None), `answer_ready`, `stop_reason`, `error`, `score` (with
    `score`), `turns`, `cost_usd` and `rollout_seconds`; a dataset that has one of them is refused. A rollout that
    fails, or a row whose question cannot be sent, is a row that says so, and nothing else. Batches have the format
    "numpy" or "pandas". The rest is as in `rlm_env.batch`; files that settings name are those of the nodes.
    """

    def __init__(
        self,
        *,
        question: str = "question",
        context_text: str | None = None,
        expected: str | None = None,
        parallel: int = 8,
        score: str | None = None,
        model: str | ChatModel | None = None,
        sub_model: str | ChatModel | None = None,
        tools: Iterable[AnyTool] = (),
        **settings: Unpack[Settings],
    ) -> None:
        check_count("parallel", parallel)
        check_settings(settings)
        self._columns = {"question": question, "context_text": context_text, "expected": expected}
        self._options: dict[str, Any] = {
            "parallel": parallel,
            "score": score,
            "model": model,
            "sub_model": sub_model,
            "tools": list(tools_of(tools).values()),
            **settings,
        }

    def __call__(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """A batch with its results. Raises TypeError for something else, and ValueError for columns in the way."""
        if not hasattr(rows, "keys"):
            raise TypeError(
                f'give map_batches the batch_format "numpy" or "pandas": a batch is a {type(rows).__name__}'
            )
        if taken := [name for name in _ADDED if name in rows]:
            raise ValueError(f"the dataset has the columns {', '.join(taken)}, which are those of results: rename them")
        for argument, column in self._columns.items():
            if column is not None and column not in rows:
                there = ", ".join(map(str, rows.keys()))
                raise ValueError(f"the dataset has no column {column!r}, only {there}: name another one by {argument}=")
        columns = {name: rows[column] for name, column in self._columns.items() if column is not None}
        if isinstance(columns["question"], str) or not isinstance(columns["question"], Iterable):
            raise TypeError("Rollouts is for Dataset.map_batches: Dataset.map gives it a row in place of a batch")
        questions = [
            Question(id=str(at), **dict(zip(columns, map(_plain, values), strict=True)))
            for at, values in enumerate(zip(*columns.values(), strict=True))
        ]
        results = asyncio.run(self._results(questions))
        return {**rows, **{name: [value(result) for result in results] for name, value in _ADDED.items()}}

    async def _results(self, questions: list[Question]) -> list[RolloutResult]:
        results, right = {}, []
        for question in questions:
            try:
                question.line()
            except ValueError as error:
                results[question.id] = _failed(question, str(error))
            else:
                right.append(question)
        async for result in batch(right, **self._options):
            results[result.question_id] = result
        return [results[question.id] for question in questions]


_ADDED: dict[str, Callable[[RolloutResult], Any]] = {
    "answer": lambda result: result.answer,
    "answer_ready": lambda result: result.answer_ready,
    "stop_reason": lambda result: result.stop_reason,
    "error": lambda result: result.error,
    "score": lambda result: result.score,
    "turns": lambda result: result.metrics["root_llm_turns"],
    "cost_usd": lambda result: result.metrics["cost_usd"],
    "rollout_seconds": lambda result: result.metrics["total_time_seconds"],
}
"""The columns of results."""


def _failed(question: Question, reason: str) -> RolloutResult:
    """The result of a question that cannot be sent."""
    metrics = {"root_llm_turns": 0, "cost_usd": None, "total_time_seconds": 0.0}
    return RolloutResult(str(question.id), question.question, None, False, "setup_failed", reason, metrics)


def _plain(value: Any) -> Any:
    """A value of a column as Python has it: numpy's are of types of their own."""
    return value.tolist() if hasattr(value, "tolist") else value
