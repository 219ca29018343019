"""Contexts: they are packed once, sent to the nodes, and unpacked there."""

from __future__ import annotations

import functools
import os
import re
import threading
from pathlib import Path

import pytest
import ray

from clusters.models import WithSmallFiles, running, scripted
from clusters.readers import close_while_read
from conftest import wait_until
from rlm_env import Question
from rlm_env.ray import run_batch


@pytest.mark.nightly
def test_a_context_that_is_read_once_is_there_for_each_attempt(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    question = Question("?", context=(path for path in [tmp_path / "there"]))
    results = list(run_batch(question, attempts=2, model=running('RLM_CONTENT="$(ls)" RLM_READY=1')))
    assert [result.answer for result in results] == ["there", "there"]


@pytest.mark.nightly
def test_a_relative_context_is_that_of_the_directory_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/there").write_text("")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    batch = run_batch(Question("?", context="files"), model=running('RLM_CONTENT="$(ls)" RLM_READY=1'))
    monkeypatch.chdir(tmp_path / "elsewhere")
    [result] = batch
    assert (result.answer, result.error) == ("there", None)


@pytest.mark.nightly
def test_a_batch_that_is_closed_packs_nothing_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 400 << 20)
    begun, sent = threading.Event(), []
    batch = run_batch("?", model=scripted, context=tmp_path / "large")
    monkeypatch.setattr("rlm_env.ray._context.check_path", lambda _: begun.set())
    monkeypatch.setattr(ray, "put", sent.append)
    close_while_read(batch, begun.is_set, "the context")
    threads = threading.enumerate
    wait_until(
        lambda: not [one for one in threads() if one.name.startswith("rlm-tool")], "the end of the batch's threads"
    )
    assert sent == []


@pytest.mark.nightly
def test_a_batch_that_is_closed_leaves_no_part_of_a_context(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(20_000):
        (tmp_path / "many" / str(number)).touch()

    def unpacked() -> list[Path]:
        return list(Path(os.environ["TMPDIR"]).glob("rlm-host-*/**/context-*/0/many/*"))

    batch = run_batch("?", attempts=3, model=scripted, context=tmp_path / "many", concurrency_per_node=1)
    close_while_read(batch, unpacked, "the first files")
    wait_until(lambda: not unpacked(), "the removal of what was unpacked")


@pytest.mark.nightly
def test_a_context_that_cannot_be_sent_ends_its_own_attempts_alone(tmp_path: Path) -> None:
    deepest = functools.reduce(lambda inner, _: [inner], range(98), 1)
    questions = [Question("?", context=tmp_path / name) for name in ("gone", "big", "there")]
    for name in ("gone", "big", "there"):
        (tmp_path / name).mkdir()
    with (tmp_path / "big/file").open("wb") as file:
        file.truncate(3 << 20)
    batch = run_batch(
        [*questions, Question("?", context_json=deepest, metadata=deepest)], attempts=2, model=WithSmallFiles()
    )
    (tmp_path / "gone").rmdir()
    results = {result.id: result for result in batch}
    assert len(results) == 8
    for number in "12":
        gone, big = results[f"1-{number}"], results[f"2-{number}"]
        assert gone.stop_reason == big.stop_reason == "worker_failed"
        assert gone.error is not None
        assert "a context cannot be read: [Errno 2]" in gone.error
        assert big.error is not None
        assert re.search(r"it was lost 4 times, .* its context cannot be unpacked there: \[Errno 27\]", big.error)
        assert results[f"3-{number}"].answer == "a sub-call: 0"
        assert results[f"4-{number}"].answer == "a sub-call: 1"
