"""Rollouts for Ray Data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._config import check_count
from .._events import RolloutResult
from .._models import ChatModel
from .._rollouts import Question, batch, check_settings
from .._tools import Tool, tools_of

if TYPE_CHECKING:
    from typing_extensions import Unpack  # pyright: ignore[reportMissingModuleSource]

    from .._rollouts import Settings


class Rollouts:
    """Answers the questions of a dataset: a class for `Dataset.map_batches`.

        dataset.map_batches(Rollouts, fn_constructor_kwargs={"model": "large-model"}, concurrency=4, batch_size=16)

    `question`, `context_text` and `expected` are names of columns; `parallel` rollouts of a batch run at once on its
    node. Each row gets the columns `answer` (a text, or None), `answer_ready`, `stop_reason`, `error`, `score` (with
    `score`), `turns`, `cost_usd` and `rollout_seconds`. A rollout that fails is a row that says so, and nothing else.
    The rest is as in `rlm_env.batch`; files that settings name are those of the nodes.
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
        tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
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
        """A batch with its results."""
        columns = {name: rows[column] for name, column in self._columns.items() if column is not None}
        count = len(columns["question"])
        questions = [
            Question(id=str(at), **{name: _plain(column[at]) for name, column in columns.items()})
            for at in range(count)
        ]
        results = asyncio.run(self._results(questions))
        ordered = [results[str(at)] for at in range(count)]
        return {
            **rows,
            "answer": [result.answer for result in ordered],
            "answer_ready": [result.answer_ready for result in ordered],
            "stop_reason": [result.stop_reason for result in ordered],
            "error": [result.error for result in ordered],
            "score": [result.score for result in ordered],
            "turns": [result.metrics["root_llm_turns"] for result in ordered],
            "cost_usd": [result.metrics["cost_usd"] for result in ordered],
            "rollout_seconds": [result.metrics["total_time_seconds"] for result in ordered],
        }

    async def _results(self, questions: list[Question]) -> dict[str, RolloutResult]:
        results = {}
        async for result in batch(questions, **self._options):
            results[str(result.question_id)] = result
        return results


def _plain(value: Any) -> Any:
    """A value of a column as Python has it: numpy's are of types of their own."""
    return value.tolist() if hasattr(value, "tolist") else value
