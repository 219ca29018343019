"""Programs are uploaded to where there are none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.runtimes import subprocess as subprocess_runtime

import rlm_env_harness
from harness.episodes import SET, Model, agent, calls, check, task
from harness.programs import stand_ins


class Box(subprocess_runtime.SubprocessRuntime):
    """A runtime that has the programs only if they are uploaded."""

    type = "box"


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Makes boxes of runtimes. Returns the directory of what is uploaded."""
    monkeypatch.setattr("verifiers.v1.runtimes.SubprocessRuntime", Box)
    monkeypatch.setattr(rlm_env_harness, "_UPLOADS", str(tmp_path / "uploads"))
    return tmp_path / "uploads"


@pytest.mark.parametrize("language", ["bash", "python"])
def test_programs_are_uploaded_once(model: Model, language: str, box: Path) -> None:
    played = agent(model, language=language)
    for _ in range(2):
        model.replies = calls(language, *SET[language])
        check(asyncio.run(played.run(task())))
    [directory] = box.iterdir()
    assert len(list(directory.iterdir())) == 3


def test_one_file_is_uploaded_and_brings_its_python(
    model: Model, box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Path(__file__).parents[3] / "target/bundle"
    if not (bundle / "rlm").exists():
        pytest.skip("there is no target/bundle/rlm: dist/build makes it")
    monkeypatch.setenv("RLM_BIN_DIR", str(bundle))
    monkeypatch.setenv("RLM_CACHE_DIR", str(tmp_path / "cache"))
    model.replies = calls("python", "import sys; answer.update(content=sys.executable, ready=True)")
    trace = asyncio.run(agent(model, language="python", python="builtin").run(task()))
    assert trace.errors == [], trace.errors[0].message
    assert trace.root_reply.startswith(str(tmp_path / "cache")), trace.root_reply
    [directory] = box.iterdir()
    assert [file.name for file in directory.iterdir()] == ["rlm"]


async def test_uploads_at_once_and_one_that_is_cancelled(
    model: Model, box: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    stand_ins(tmp_path / "programs", monkeypatch, "sleep 0.2")
    harness = agent(model).harness

    boxes = [Box(SubprocessConfig()) for _ in range(5)]
    for one in boxes:
        await one.start()
    cancelled = asyncio.create_task(harness.setup(boxes[0]))
    while not box.exists():
        await asyncio.sleep(0.001)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert list(box.iterdir()) == []
    await asyncio.gather(*(harness.setup(one) for one in boxes))
    for one in boxes:
        await one.stop()
    [directory] = box.iterdir()
    assert sorted(file.name for file in directory.iterdir()) == ["rlm", "rlm-root-tool", "rlm-worker-bash"]


def test_programs_that_do_not_run_there(model: Model, box: Path, tmp_path: Path, monkeypatch: Any) -> None:
    stand_ins(tmp_path / "programs", monkeypatch, "echo wrong machine >&2; exit 1")
    trace = asyncio.run(agent(model).run(task()))
    assert trace.stop_condition == "harness_error"
    assert "the programs of rlm-env do not run in this box: wrong machine" in trace.errors[-1].message
    assert list(box.iterdir()) == []
