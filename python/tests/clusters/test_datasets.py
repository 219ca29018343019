"""Rollouts for the rows of a dataset."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from clusters.models import scripted
from rlm_env.ray import Rollouts


def test_a_dataset_is_answered_by_rollouts() -> None:
    pytest.importorskip("pyarrow", reason="Ray Data is not here: pip install 'ray[data]'")
    right = ["another answer", "a sub-call: 1"]
    rows = [{"text": f"question {number}", "number": number, "right": right} for number in range(6)]
    settings = {"expected": "right", "model": scripted, "parallel": 2}
    answered = ray.data.from_items(rows).map_batches(
        Rollouts,
        fn_constructor_kwargs={**dict.fromkeys(("question", "context_text"), "text"), **settings},
        concurrency=1,
        batch_size=3,
        num_cpus=0.1,
    )
    found = sorted(answered.take_all(), key=lambda row: row["number"])
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    ends = {(row["answer"], row["stop_reason"], row["turns"], row["score"]) for row in found}
    assert ends == {("a sub-call: 1", "answered", 1, 1.0)}
    with pytest.raises(TypeError, match="there is no setting max_turn:"):
        Rollouts(max_turn=1)  # type: ignore[call-arg]


def test_a_batch_of_a_dataset_is_answered_row_by_row() -> None:
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    rollouts = Rollouts(model=scripted)
    frame = pandas.DataFrame({"question": ["a", "b"]}, index=[5, 6])
    assert rollouts(frame)["answer"] == ["a sub-call: 0"] * 2
    found = rollouts({"question": ["a", None, 5, ""]})
    assert found["answer"] == ["a sub-call: 0", None, None, None]
    assert found["stop_reason"] == ["answered", *["setup_failed"] * 3]
    assert found["turns"] == [1, 0, 0, 0]
    assert found["error"][2] == "the question 2 cannot be sent: question must be a str that is not empty, not 5"
    wrong: list[tuple[Any, type[Exception], str]] = [
        (pyarrow.table({"question": ["a"]}), TypeError, 'the batch_format "numpy" or "pandas": a batch is a Table'),
        ({"question": "a row"}, TypeError, "Rollouts is for Dataset.map_batches"),
        ({"question": None}, TypeError, "Rollouts is for Dataset.map_batches"),
        ({"question": ["a"], "answer": ["b"], "score": [1]}, ValueError, "the dataset has the columns answer, score,"),
        (
            {"ask": ["a"], "id": [1]},
            ValueError,
            "the dataset has no column 'question', only ask, id: name another one by",
        ),
    ]
    for rows, error, words in wrong:
        with pytest.raises(error, match=words):
            rollouts(rows)
